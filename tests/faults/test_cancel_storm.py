"""Rows 7 and 8: 1,000 random cancels under load leave no key, queue entry or task beyond what a live lease owns."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from tenure import AsyncLocks
from tests.faults.support import key_fence, set_timeouts, traces
from tests.harness.aio import run_async
from tests.harness.waiting import wait_until_async

if TYPE_CHECKING:
    from tests.harness.servers import Server

CANCELS = 1000
TASKS = 12
NAMES = ("one", "one", "one", "two", "three", "four")
LONGEST_ROUND = 0.03
"""Seconds that a task is left alone at the most, to begin with."""


class Storm:
    """Tasks that take and give back a few locks again and again, while each is cancelled at random moments."""

    def __init__(self, clients: list[AsyncLocks], seed: int) -> None:
        self.random = random.Random(seed)
        self.longest_round = LONGEST_ROUND
        self.clients = clients
        self.cancelled = 0
        self.completed = 0
        self.inside: dict[str, int] = {}
        self.overlaps: list[str] = []

    async def work(self, locks: AsyncLocks) -> None:
        name = self.random.choice(NAMES)
        async with locks.lock(name, ttl=30) as lease:
            other = self.inside.get(name)
            if other is not None:
                self.overlaps.append(f"{name}: {other} and {lease.fence}")
            self.inside[name] = lease.fence
            try:
                await asyncio.sleep(self.random.random() * 0.002)
            finally:
                del self.inside[name]

    async def rounds(self, locks: AsyncLocks) -> None:
        while self.cancelled < CANCELS:
            task = asyncio.create_task(self.work(locks))
            await asyncio.sleep(self.random.random() * self.longest_round)
            if task.cancel():
                self.cancelled += 1
            # However fast this machine is, some of them come to their end and most do not.
            try:
                await task
            except asyncio.CancelledError:
                self.longest_round = min(self.longest_round * 1.01, 1.0)
                continue
            self.completed += 1
            self.longest_round *= 0.98


def test_row_7_and_8_random_cancels_under_load(valkey_server: Server, namespace: str) -> None:
    seed = random.SystemRandom().randrange(1 << 32)

    async def main() -> None:
        clients = [AsyncLocks(valkey_server.url, namespace=namespace) for _ in range(3)]
        for locks in clients:
            set_timeouts(locks, 30)
        keeper = await clients[0].lock("kept").acquire()
        storm = Storm(clients, seed)
        await asyncio.gather(*(storm.rounds(clients[number % len(clients)]) for number in range(TASKS)))
        print(f"seed {seed}: {storm.cancelled} cancelled, {storm.completed} ended by themselves")  # noqa: T201

        assert storm.completed >= CANCELS / 20, "too few ended by themselves: the load was no load"
        assert storm.overlaps == []
        kept = f"{namespace}:kept".encode()
        await wait_until_async(
            lambda: traces(valkey_server, namespace) == [kept], 20, "nothing left but what a live lease owns"
        )
        await wait_until_async(lambda: len(asyncio.all_tasks()) == 1, 30, f"no task left: {asyncio.all_tasks()}")
        assert keeper.valid
        assert key_fence(valkey_server, namespace, "kept") == keeper.fence
        for locks in clients:
            assert (locks.statistics().waiting, locks.statistics().lost) == (0, 0)
            for name in sorted(set(NAMES)):
                lease = await locks.lock(name, wait=0).acquire()
                holder = await locks.holder(name)
                assert holder is not None
                assert holder.fence == lease.fence
                await lease.release()
        await keeper.release()
        for locks in clients:
            await locks.close()

    # On a slow machine the rounds grow longer, and so does the storm.
    run_async(main, timeout=100)
    assert not traces(valkey_server, namespace), f"something came late (seed {seed})"
