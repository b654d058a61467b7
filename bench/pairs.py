"""Uncontended pairs: acquire and release, each caller on a name of its own, beside redis-py's Lock."""

from __future__ import annotations

import asyncio
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import tenure
from bench.measure import Table, interleaved, median_ratio, timed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from bench.measure import Scale, Slice
    from bench.target import Target

THREADS = (1, 8)
TTL = 30
OURS, PEER = "tenure", "redis-py Lock"
MANY_TASKS = 1000


def measure(target: Target, scale: Scale) -> list[Table]:
    """Blocking with threads and asyncio with tasks."""
    table = Table(
        "Uncontended pairs (acquire + release), a name per caller",
        ("flavour", "callers", "side", "pairs/s", "client CPU us/pair", "ratio"),
        note="ratio: pairs/s of tenure to those of redis-py's Lock, median over neighbouring turns",
    )
    for threads in THREADS:
        _add(table, "blocking", threads, _blocking(target, scale, threads))
    for tasks in scale.tasks:
        _add(table, "asyncio", tasks, _asyncio(target, scale, tasks))
    return [table]


def _add(table: Table, flavour: str, callers: int, found: dict[str, list[Slice]]) -> None:
    ratio = median_ratio([s.rate for s in found[OURS]], [s.rate for s in found[PEER]])
    for side, slices in found.items():
        rate = statistics.median(s.rate for s in slices)
        cpu = statistics.median(s.cpu_us for s in slices)
        table.add(flavour, callers, side, round(rate), round(cpu, 1), round(ratio, 2) if side == OURS else "")


def _blocking(target: Target, scale: Scale, threads: int) -> dict[str, list[Slice]]:
    with (
        tenure.Locks(target.url, namespace="bench") as locks,
        target.client() as client,
        ThreadPoolExecutor(threads) as pool,
    ):

        def ours(number: int) -> Callable[[], object]:
            lock = locks.lock(f"pair-{number}", ttl=TTL)
            return lambda: lock.acquire().release()

        def theirs(number: int) -> Callable[[], object]:
            lock = client.lock(f"peer-{number}", timeout=TTL)
            return lambda: (lock.acquire(), lock.release())

        def side(make: Callable[[int], Callable[[], object]]) -> Callable[[], Slice]:
            pairs = [make(number) for number in range(threads)]

            def loop(pair: Callable[[], object], until: float) -> int:
                done = 0
                # One at least: a machine that stands still for a slice must not leave it without a figure.
                while not done or time.perf_counter() < until:
                    pair()
                    done += 1
                return done

            def turn() -> int:
                until = time.perf_counter() + scale.slice
                return sum(pool.map(loop, pairs, [until] * threads))

            turn()  # connections are opened, scripts are loaded
            return lambda: timed(turn)

        return interleaved({OURS: side(ours), PEER: side(theirs)}, scale.rounds)


def _asyncio(target: Target, scale: Scale, tasks: int) -> dict[str, list[Slice]]:
    # A thousand tasks of the peer do about one pair each in a short slice.
    seconds = scale.slice * (3 if tasks >= MANY_TASKS else 1)
    with asyncio.Runner() as runner:
        locks = tenure.AsyncLocks(target.url, namespace="bench")
        client = target.async_client()

        def ours(number: int) -> Callable[[], Awaitable[object]]:
            lock = locks.lock(f"pair-{number}", ttl=TTL)

            async def pair() -> None:
                await (await lock.acquire()).release()

            return pair

        def theirs(number: int) -> Callable[[], Awaitable[object]]:
            lock = client.lock(f"peer-{number}", timeout=TTL)

            async def pair() -> None:
                await lock.acquire()
                await lock.release()

            return pair

        def side(make: Callable[[int], Callable[[], Awaitable[object]]]) -> Callable[[], Slice]:
            pairs = [make(number) for number in range(tasks)]

            async def loop(pair: Callable[[], Awaitable[object]], until: float) -> int:
                done = 0
                # One at least: a machine that stands still for a slice must not leave it without a figure.
                while not done or time.perf_counter() < until:
                    await pair()
                    done += 1
                return done

            async def turn() -> int:
                until = time.perf_counter() + seconds
                return sum(await asyncio.gather(*(loop(pair, until) for pair in pairs)))

            runner.run(turn())
            return lambda: timed(lambda: runner.run(turn()))

        try:
            return interleaved({OURS: side(ours), PEER: side(theirs)}, scale.rounds)
        finally:
            runner.run(locks.close())
            runner.run(client.aclose())
