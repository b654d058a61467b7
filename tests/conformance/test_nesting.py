"""Whose lease it is: current, detach, and who inherits nothing."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from typing import TYPE_CHECKING

import pytest

import tenure
from tests.harness.aio import run_async
from tests.harness.leases import renew_now

if TYPE_CHECKING:
    from tests.conformance.flavours import AnyLease, AnyLocks, Flavour
    from tests.harness.servers import Server


class TestCurrent:
    def test_is_the_lease_that_this_thread_or_task_holds(self, locks: AnyLocks, flavour: Flavour) -> None:
        assert locks.current("a") is None
        with locks.lock("a", ttl=60).block() as lease:
            assert locks.current("a") is lease.raw
            assert locks.current("b") is None
            assert flavour.spawn(locks.current, "a").result(30) is None
        assert locks.current("a") is None

    def test_finds_each_of_several_names(self, locks: AnyLocks) -> None:
        with locks.lock("a", "b", ttl=60).block() as lease:
            assert locks.current("a") is locks.current("b") is lease.raw

    @pytest.mark.parametrize("mode", ["shared", "semaphore"])
    def test_knows_every_mode(self, locks: AnyLocks, flavour: Flavour, mode: str) -> None:
        lock = locks.lock("a", ttl=60, shared=True) if mode == "shared" else locks.semaphore("a", 2, ttl=60)
        mine, theirs = lock.acquire(), flavour.spawn(lock.acquire).result(30)
        assert locks.current("a") is mine.raw
        theirs.release()
        assert locks.current("a") is mine.raw
        mine.release()
        assert locks.current("a") is None

    def test_is_none_after_a_loss(self, locks: AnyLocks, any_server: Server, namespace: str) -> None:
        lease = locks.lock("a", ttl=60).acquire()
        any_server.command("DEL", f"{namespace}:a")
        renew_now(lease.raw)
        assert lease.wait_lost(30)
        assert locks.current("a") is None

    def test_is_that_of_these_locks_alone(self, locks: AnyLocks, others: AnyLocks) -> None:
        with locks.lock("a", ttl=60).block():
            assert others.current("a") is None

    def test_checks_the_name(self, locks: AnyLocks) -> None:
        with pytest.raises(tenure.ConfigError, match="empty"):
            locks.current(" ")


class TestDetach:
    def test_makes_a_lease_nobodys_in_particular(self, locks: AnyLocks, others: AnyLocks, flavour: Flavour) -> None:
        lease = locks.lock("a", ttl=60).acquire()
        lease.detach()
        lease.detach()
        assert locks.current("a") is None
        lease.check()
        renew_now(lease.raw)
        # No nested use: a lock that somebody else holds, for which one may wait.
        assert locks.lock("a").try_acquire() is None
        waiting = locks.queue("a", ttl=60)
        assert others.lock("a").locked()
        assert flavour.spawn(lease.release).result(30) is tenure.Released.RELEASED
        waiting.result(30).release()

    def test_of_several_names_detaches_them_all(self, locks: AnyLocks) -> None:
        lease = locks.lock("a", "b", ttl=60).acquire()
        lease.detach()
        assert locks.current("a") is locks.current("b") is None
        assert locks.lock("b").try_acquire() is None
        lease.release()

    def test_inside_a_block_leaves_the_block_as_it_is(self, locks: AnyLocks, others: AnyLocks) -> None:
        with locks.lock("a", ttl=60).block() as lease:
            lease.detach()
            lease.check()
        assert not others.lock("a").locked()


class TestWhoInheritsNothing:
    """A context variable would be inherited by every child task and thread, which would then hold what others hold."""

    def test_the_tasks_of_a_group(self, any_url: str, namespace: str) -> None:
        async def main() -> None:
            async with tenure.AsyncLocks(any_url, namespace=namespace) as locks:
                lock = locks.lock("a", ttl=60, reentrant=True)

                async def child() -> tuple[object, object]:
                    return locks.current("a"), await lock.try_acquire()

                async with lock as lease:
                    async with asyncio.TaskGroup() as group:
                        tasks = [group.create_task(child()) for _ in range(3)]
                        tasks.append(group.create_task(child(), context=contextvars.copy_context()))
                    assert [task.result() for task in tasks] == [(None, None)] * 4
                    assert await asyncio.gather(child(), child()) == [(None, None)] * 2
                    # Awaited without a task of its own it is still this one.
                    current, again = await child()
                    assert current is again is lease
                    await lease.release()

        run_async(main)

    def test_a_task_that_outlives_its_parent(self, any_url: str, namespace: str) -> None:
        async def main() -> None:
            async with tenure.AsyncLocks(any_url, namespace=namespace) as locks:
                lock = locks.lock("a", ttl=60, wait=30, reentrant=True)

                async def child(parent: int) -> int:
                    async with lock as lease:
                        assert lease.fence > parent
                        return lease.fence

                async with lock as lease:
                    task = asyncio.create_task(child(lease.fence))
                    while not await locks.waiters("a"):
                        assert not task.done()
                assert await task > lease.fence

        run_async(main)

    def test_the_thread_of_to_thread(self, any_url: str, namespace: str) -> None:
        async def main() -> None:
            with tenure.Locks(any_url, namespace=namespace) as locks:
                lock = locks.lock("a", ttl=60, reentrant=True)
                held = lock.try_acquire()
                assert held is not None
                # Blocking locks used in a coroutine belong to its task.
                assert locks.current("a") is held
                assert await asyncio.to_thread(locks.current, "a") is None
                assert await asyncio.to_thread(lock.try_acquire) is None
                assert locks.current("a") is held
                held.release()

        run_async(main)

    def test_a_thread_that_runs_in_a_copied_context(self, any_url: str, namespace: str) -> None:
        with tenure.Locks(any_url, namespace=namespace) as locks:
            lock = locks.lock("a", ttl=60, reentrant=True)
            found: list[object] = []
            with lock:
                context = contextvars.copy_context()
                thread = threading.Thread(
                    target=context.run, args=(lambda: found.extend([locks.current("a"), lock.try_acquire()]),)
                )
                thread.start()
                thread.join()
            assert found == [None, None]

    def test_a_later_thread_or_task_with_the_same_number(self, locks: AnyLocks, flavour: Flavour) -> None:
        """Idents of threads, and ids of objects, are used again."""
        leases: list[AnyLease] = []

        def take() -> None:
            lease = locks.lock("a", ttl=60).try_acquire()
            if lease is not None:
                leases.append(lease)

        for _ in range(5):
            made = threading.Thread(target=take)
            made.start()
            made.join()
        (held,) = leases
        assert flavour.spawn(locks.lock("a", reentrant=True).try_acquire).result(30) is None
        held.release()


class TestAnotherLocksObject:
    """Through it the same thread or task waits for itself, and the error says where the holder is."""

    def test_is_named_by_the_error(self, locks: AnyLocks, others: AnyLocks) -> None:
        lease = locks.lock("a", ttl=60).acquire()
        for wait in (0, 0.05):
            with pytest.raises(tenure.NotAcquired) as refused:
                others.lock("a", wait=wait).acquire()
            (note,) = refused.value.__notes__
            assert note.startswith("this very process holds it: in another thread or task, or")
        lease.release()

    def test_is_not_when_another_process_holds(self, locks: AnyLocks, any_server: Server, namespace: str) -> None:
        value = f"tenure1:{'0' * 44} 17 1700000000000 x {{}}"
        any_server.command("SET", f"{namespace}:a", value, "PX", 60_000)
        with pytest.raises(tenure.NotAcquired) as refused:
            locks.lock("a", wait=0).acquire()
        assert not hasattr(refused.value, "__notes__")
