"""One name, four processes that all want it all the time: how often it changes its owner, how fast, and how fairly.

Owner changes are counted, not acquisitions: a client that polls takes its own lock back over and over.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import time
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from bench import workers
from bench.measure import Table, interleaved, percentile
from tests.harness.processes import Worker

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.measure import Scale
    from bench.target import Target

PROCESSES = 4
LEAD = 0.05
ENTRANTS = {
    "tenure, blocking": workers.turns_blocking,
    "tenure, asyncio": workers.turns_asyncio,
    "redis-py Lock": workers.turns_redis_py,
}


@dataclass(frozen=True, slots=True)
class Window:
    """What happened in one window of time."""

    acquisitions: float
    """Per second, as all that follows where it says so."""
    changes: float
    latencies: list[float]
    most_to_fewest: float
    requests: float
    """Script calls and commands of clients per owner change."""
    inside: float
    server_us: float
    cpu_us: float


def measure(target: Target, scale: Scale) -> list[Table]:
    """Windows of the entrants in turn, each with four processes of its own."""
    table = Table(
        f"One name, {PROCESSES} processes",
        (
            "side", "acquisitions/s", "owner changes/s", "hand-over p50 ms", "p99 ms", "most/fewest turns",
            "script calls/change", "other commands/change", "script us/change", "client CPU us/change",
        ),
        note=(
            f"{scale.windows} windows of {scale.window:g} s each, medians; other commands: those inside the scripts, "
            "for redis-py also its SETs"
        ),
    )  # fmt: skip
    with contextlib.ExitStack() as stack:
        sides: dict[str, Callable[[], Window]] = {}
        for number, (side, what) in enumerate(ENTRANTS.items()):
            crew = [stack.enter_context(Worker.start(what, target.url, f"turns-{number}")) for _ in range(PROCESSES)]
            for worker in crew:
                worker.read_line(30)
            sides[side] = _side(target, crew, scale.window)
        for window in sides.values():
            window()  # connections are opened, scripts are loaded
        found = interleaved(sides, scale.windows)
    for side, windows in found.items():
        latencies = [latency for window in windows for latency in window.latencies] or [float("nan")]
        table.add(
            side,
            round(statistics.median(w.acquisitions for w in windows)),
            round(statistics.median(w.changes for w in windows)),
            round(percentile(latencies, 50) * 1000, 3),
            round(percentile(latencies, 99) * 1000, 3),
            round(statistics.median(w.most_to_fewest for w in windows), 2),
            *(
                round(statistics.median(values), 2)
                for values in (
                    [w.requests for w in windows],
                    [w.inside for w in windows],
                    [w.server_us for w in windows],
                    [w.cpu_us for w in windows],
                )
            ),
        )
    return [table]


def _side(target: Target, crew: list[Worker], seconds: float) -> Callable[[], Window]:
    def window() -> Window:
        before = target.usage()
        until = time.monotonic() + LEAD + seconds
        for worker in crew:
            worker.write_line(repr(until))
        answers = [json.loads(worker.read_line(seconds + 30)) for worker in crew]
        used = target.usage().since(before)
        taken = sorted((at, number) for number, answer in enumerate(answers) for at in answer["taken"])
        # The release follows at once: its begin is the instant at which the turn was had.
        latencies = [later - at for (at, owner), (later, next_owner) in pairwise(taken) if owner != next_owner]
        turns = [len(answer["taken"]) for answer in answers]
        changes = max(len(latencies), 1)
        return Window(
            acquisitions=len(taken) / seconds,
            changes=len(latencies) / seconds,
            latencies=latencies,
            most_to_fewest=max(turns) / max(min(turns), 1),
            requests=used.scripts / changes,
            inside=used.inside / changes,
            server_us=used.script_us / changes,
            cpu_us=sum(answer["cpu"] for answer in answers) / changes * 1e6,
        )

    return window
