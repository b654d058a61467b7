"""What LockMiddleware costs a request that nobody is in the way of: beside the same application without it."""

from __future__ import annotations

import asyncio
import statistics
import time
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI

import tenure
from bench.measure import Table, interleaved, median_ratio, timed
from tenure.contrib.asgi.middleware import LockMiddleware
from tenure.contrib.asgi.rules import Rule

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.measure import Scale, Slice
    from bench.target import Target

BARE, UNLOCKED, LOCKED, TAKEOVER = "bare application", "no rule applies", "locked", "locked, takeover"
TASKS = (1, 100)
RULES = [Rule("/archives/{id}", ["archive:{id}"])]


_application = FastAPI()


@_application.put("/{folder}/{number}")
async def _put(folder: str, number: int) -> dict[str, str | int]:
    return {"folder": folder, "number": number}


async def _receive() -> dict[str, Any]:
    return {"type": "http.request", "body": b"x", "more_body": False}


async def _send(_message: object) -> None:
    """Nobody reads it."""


def measure(target: Target, scale: Scale) -> list[Table]:
    """Requests in one process, without a web server: only the middleware and its two round trips are to be seen."""
    table = Table(
        "LockMiddleware: requests that find their lock free",
        ("tasks", "side", "requests/s", "client CPU us/request", "to the bare one", "added us", "us of a lock pair"),
        note=(
            "a small endpoint of FastAPI, in process, without a web server; to the bare one: time per request, median "
            "over neighbouring turns; a lock pair: acquire and release alone"
        ),
    )
    for tasks in TASKS:
        _add(table, tasks, _sides(target, scale, tasks))
    return [table]


PAIR = "acquire and release"


def _add(table: Table, tasks: int, found: dict[str, list[Slice]]) -> None:
    def each(side: str) -> list[float]:
        return [slice_.seconds / max(slice_.pairs, 1) * 1e6 for slice_ in found[side]]

    bare, pair = each(BARE), each(PAIR)
    for side, slices in found.items():
        if side == PAIR:
            continue
        added = [mine - alone for mine, alone in zip(each(side), bare, strict=True)]
        table.add(
            tasks,
            side,
            round(statistics.median(slice_.rate for slice_ in slices)),
            round(statistics.median(slice_.cpu_us for slice_ in slices), 1),
            round(median_ratio(each(side), bare), 2),
            round(max(statistics.median(added), 0.0), 1),
            round(statistics.median(pair), 1),
        )


def _sides(target: Target, scale: Scale, tasks: int) -> dict[str, list[Slice]]:
    with asyncio.Runner() as runner:
        locks = tenure.AsyncLocks(target.url, namespace="bench")
        locked = LockMiddleware(_application, locks=locks, rules=RULES)
        takeover = LockMiddleware(_application, locks=locks, rules=RULES, wait=1, takeover=True)

        def side(request: Callable[[int], Any]) -> Callable[[], Slice]:
            async def loop(number: int, until: float) -> int:
                done = 0
                # One at least: a machine that stands still for a slice must not leave it without a figure.
                while not done or time.perf_counter() < until:
                    await request(number)
                    done += 1
                return done

            async def turn() -> int:
                until = time.perf_counter() + scale.slice
                return sum(await asyncio.gather(*(loop(number, until) for number in range(tasks))))

            runner.run(turn())  # connections are opened, scripts are loaded
            return lambda: timed(lambda: runner.run(turn()))

        def scope(number: int, folder: str = "archives") -> dict[str, Any]:
            return {
                "type": "http",
                "method": "PUT",
                "path": f"/{folder}/{number}",
                "headers": [],
                "query_string": b"",
            }

        async def pair(number: int) -> None:
            await (await locks.lock(f"archive:{number}", info={"operation": "put"}).acquire()).release()

        try:
            return interleaved(
                {
                    BARE: side(lambda number: _yielding(_application, scope(number))),
                    UNLOCKED: side(lambda number: _yielding(locked, scope(number, "pages"))),
                    LOCKED: side(lambda number: _yielding(locked, scope(number))),
                    TAKEOVER: side(lambda number: _yielding(takeover, scope(number))),
                    PAIR: side(pair),
                },
                scale.rounds,
            )
        finally:
            runner.run(locks.close())


async def _yielding(app: Any, scope: dict[str, Any]) -> None:  # noqa: ANN401 - ASGI
    """One request; the others get their turn even when it never waits."""
    await app(scope, _receive, _send)
    await asyncio.sleep(0)
