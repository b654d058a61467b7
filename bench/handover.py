"""Hand-over: how long after the holder's release a waiter in another process has the lock.

Measured from just before the release is called to the return of the waiter's acquire, beside what any wake-up costs at
the least: a PUBLISH here that redis-py's listener receives there.
"""

from __future__ import annotations

import contextlib
import random
import statistics
import time
from typing import TYPE_CHECKING, Any

import tenure
from bench import workers
from bench.measure import Table, interleaved, percentile
from tests.harness.processes import Worker
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.measure import Scale
    from bench.target import Target

NAME = "hand-over"
CHANNEL = "bench-bare"
SETTLE = 0.002  # whoever is about to wait sleeps by then
PEER_POLL = 0.1  # redis-py's Lock asks ten times a second
BARE = "PUBLISH -> receive"


def measure(target: Target, scale: Scale) -> list[Table]:
    """One sample of each side in turn."""
    with contextlib.ExitStack() as stack:
        locks = stack.enter_context(tenure.Locks(target.url, namespace="bench"))
        client = stack.enter_context(target.client())

        def start(what: Callable[[str, str], None], name: str) -> Worker:
            worker = stack.enter_context(Worker.start(what, target.url, name))
            worker.read_line(30)
            return worker

        sides = {
            f"{BARE}, blocking": _bare(client, start(workers.listen_blocking, f"{CHANNEL}-b"), f"{CHANNEL}-b"),
            "tenure, blocking waiter": _tenure(locks, start(workers.wait_blocking, f"{NAME}-b"), f"{NAME}-b"),
            f"{BARE}, asyncio": _bare(client, start(workers.listen_asyncio, f"{CHANNEL}-a"), f"{CHANNEL}-a"),
            "tenure, asyncio waiter": _tenure(locks, start(workers.wait_asyncio, f"{NAME}-a"), f"{NAME}-a"),
            "redis-py Lock": _redis_py(client, start(workers.wait_redis_py, f"{NAME}-r"), f"{NAME}-r"),
        }
        interleaved(sides, 2)  # connections are opened, scripts are loaded
        found = interleaved(sides, scale.hand_overs)
    table = Table(
        "Hand-over to a waiter in another process",
        ("side", "median ms", "p99 ms", "to the bare one", "to redis-py Lock"),
        note=f"{scale.hand_overs} samples of each side in turn; target: at most 3 times the bare one",
    )
    bare, peer = 0.0, statistics.median(found["redis-py Lock"])
    for side, seconds in found.items():
        median = statistics.median(seconds)
        if side.startswith(BARE):
            bare = median
        ours = side.startswith("tenure")
        table.add(
            side,
            round(median * 1000, 3),
            round(percentile(seconds, 99) * 1000, 3),
            round(median / bare, 2) if ours else "",
            round(median / peer, 4) if ours else "",
        )
    return [table]


def _begin(worker: Worker) -> None:
    worker.write_line()
    worker.read_line()


def _bare(client: Any, worker: Worker, channel: str) -> Callable[[], float]:  # noqa: ANN401 - a redis-py client
    def sample() -> float:
        _begin(worker)
        time.sleep(SETTLE)
        start = time.monotonic()
        client.publish(channel, "x")
        return float(worker.read_line()) - start

    return sample


def _tenure(locks: tenure.Locks, worker: Worker, name: str) -> Callable[[], float]:
    lock = locks.lock(name, ttl=workers.TTL)

    def sample() -> float:
        lease = lock.acquire()
        _begin(worker)
        wait_until(lambda: locks.waiters(name), 30, "the waiter to queue")
        time.sleep(SETTLE)
        start = time.monotonic()
        lease.release()
        return float(worker.read_line()) - start

    return sample


def _redis_py(client: Any, worker: Worker, name: str) -> Callable[[], float]:  # noqa: ANN401
    lock = client.lock(name, timeout=workers.TTL)

    def sample() -> float:
        lock.acquire()
        _begin(worker)
        # A poller's delay depends on when within its interval the release falls: anywhere.
        time.sleep(SETTLE + random.uniform(0, PEER_POLL))  # noqa: S311
        start = time.monotonic()
        lock.release()
        return float(worker.read_line()) - start

    return sample
