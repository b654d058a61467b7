"""How everything here is measured: in turn, in slices of time, by medians."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

T = TypeVar("T")
Cell = str | int | float


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is measured."""

    name: str
    rounds: int
    """How often each side of a comparison has its turn."""
    slice: float
    """Seconds that a turn lasts."""
    tasks: tuple[int, ...]
    """Numbers of asyncio tasks."""
    hand_overs: int
    window: float
    """Seconds for which the processes compete for one name."""
    windows: int
    batches: int
    """How many small batches the server's CPU time is read for."""
    batch: int
    leases: tuple[int, ...]
    """How many leases are held while they are renewed."""
    ttl: float
    """Their ttl: short enough for several renewals."""


TINY = Scale("tiny", 1, 0.02, (1, 10), 2, 0.3, 1, 2, 20, (100,), 1.2)
QUICK = Scale("quick", 3, 0.1, (1, 10, 100, 1000), 20, 0.5, 2, 20, 100, (1000,), 2.0)
FULL = Scale("full", 7, 0.3, (1, 10, 100, 1000), 200, 2.5, 3, 80, 100, (1000, 10000), 6.0)
SCALES = {scale.name: scale for scale in (TINY, QUICK, FULL)}


@dataclass(slots=True)
class Table:
    """One table of results; `data` holds the same numbers for programs."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[Cell, ...]] = field(default_factory=list[tuple[Cell, ...]])
    note: str = ""

    def add(self, *cells: Cell) -> None:
        """Appends a row."""
        self.rows.append(cells)

    def data(self) -> dict[str, object]:
        """The table for a JSON file."""
        rows = [dict(zip(self.columns, row, strict=True)) for row in self.rows]
        return {"title": self.title, "note": self.note, "rows": rows}


@dataclass(frozen=True, slots=True)
class Slice:
    """What one side did in one turn."""

    pairs: int
    seconds: float
    cpu: float

    @property
    def rate(self) -> float:
        """Pairs per second."""
        return self.pairs / self.seconds

    @property
    def cpu_us(self) -> float:
        """CPU time of this process per pair, all its threads together, in microseconds."""
        return self.cpu / max(self.pairs, 1) * 1e6


def timed(work: Callable[[], int]) -> Slice:
    """Runs `work`, which returns how many pairs it has done."""
    cpu, start = time.process_time(), time.perf_counter()
    pairs = work()
    return Slice(pairs, time.perf_counter() - start, time.process_time() - cpu)


def interleaved(sides: Mapping[str, Callable[[], T]], rounds: int) -> dict[str, list[T]]:
    """Gives each side its turn, again and again: whatever slows the machine down meets all of them."""
    found: dict[str, list[T]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, measure in sides.items():
            found[name].append(measure())
    return found


def median_ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The median of the ratios of neighbouring turns, which drifts less than the ratio of two medians."""
    return statistics.median(a / b for a, b in zip(ours, theirs, strict=True) if b)


def percentile(values: Sequence[float], percent: float) -> float:
    """The value that `percent` of the values do not exceed."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(len(ranked) * percent / 100))]
