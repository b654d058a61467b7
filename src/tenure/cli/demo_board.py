"""What the demo knows while it runs, built from the events of its workers."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from .demo_check import Turn, hand_overs

if TYPE_CHECKING:
    from collections.abc import Mapping

Phase = Literal["starts", "ready", "waits", "holds", "done"]


class WorkerFailed(Exception):
    """A worker has ended early; the message says why, for the user."""


@dataclass
class Row:
    """One worker."""

    pid: int
    phase: Phase = "starts"
    turns: int = 0
    fence: int = 0
    asked: float = 0.0
    began: float = 0.0
    deadline: float = 0.0


@dataclass
class Board:
    """All workers, and the turns that are over."""

    turns_each: int
    rows: list[Row] = field(default_factory=list[Row])
    turns: list[Turn] = field(default_factory=list[Turn])

    @property
    def total(self) -> int:
        """How many turns there will be."""
        return self.turns_each * len(self.rows)

    @property
    def holders(self) -> list[int]:
        """The workers that hold now; more than one only without a lock."""
        return [index for index, row in enumerate(self.rows) if row.phase == "holds"]

    @property
    def queue(self) -> list[int]:
        """The workers that wait, in the order in which they asked."""
        waiting = [index for index, row in enumerate(self.rows) if row.phase == "waits"]
        return sorted(waiting, key=lambda index: self.rows[index].asked)

    def hand_overs(self) -> list[float]:
        """Seconds from release to grant, in order."""
        return hand_overs(self.turns)

    def median_hand_over(self) -> float | None:
        """The middle one of them."""
        times = self.hand_overs()
        return statistics.median(times) if times else None

    def apply(self, index: int, event: Mapping[str, object]) -> None:
        """Take in one event of the worker at `index`; raises `WorkerFailed` when it says that it cannot go on."""
        row = self.rows[index]
        match event:
            case {"at": "ready"}:
                row.phase = "ready"
            case {"at": "asked", "time": float(asked)}:
                row.phase, row.asked = "waits", asked
            case {"at": "began", "time": float(began), "deadline": float(deadline), "fence": int(fence)}:
                row.phase, row.began, row.deadline, row.fence = "holds", began, deadline, fence
            case {"at": "ended", "time": float(ended)}:
                row.turns += 1
                row.phase = "done" if row.turns == self.turns_each else "ready"
                self.turns.append(Turn(index, row.fence, row.asked, row.began, ended, row.deadline))
            case {"at": "failed", "why": str(why)}:
                raise WorkerFailed(f"worker {index + 1}: {why}")
            case _:
                raise WorkerFailed(f"worker {index + 1} says what nobody understands: {event}")
