"""Waiting: budgets, order, hand-over, and refusing to wait for oneself."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

import tenure
from tests.harness.aio import run_async
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from tests.conformance.flavours import AnyLocks, Flavour
    from tests.harness.servers import Server


class TestTheBudget:
    def test_of_none_waits_until_the_lock_is_released(self, locks: AnyLocks, others: AnyLocks) -> None:
        first = others.lock("a", ttl=5).acquire()
        waiting = locks.queue("a", ttl=5, wait=None)
        assert not waiting.done()
        first.release()
        assert waiting.result(30).release() is tenure.Released.RELEASED

    def test_of_zero_is_one_try_that_leaves_no_entry(self, locks: AnyLocks, others: AnyLocks) -> None:
        held = others.lock("a", ttl=5).acquire()
        with pytest.raises(tenure.NotAcquired, match=r"'a' not acquired \(one try\): held by") as caught:
            locks.lock("a", wait=0).acquire()
        assert locks.waiters("a") == []
        error = caught.value
        assert isinstance(error, TimeoutError)
        assert error.names == ("a",)
        assert error.holder is not None
        assert error.holder.fence == held.fence
        assert error.position == 0
        assert 1 <= error.retry_after <= 5.1
        held.release()

    def test_of_seconds_ends_then_and_not_before(self, locks: AnyLocks, others: AnyLocks) -> None:
        held = others.lock("a", ttl=5).acquire()
        began = time.monotonic()
        with pytest.raises(tenure.NotAcquired, match=r"waited \d") as caught:
            locks.lock("a", wait=0.2).acquire()
        assert 0.2 <= caught.value.waited <= time.monotonic() - began
        assert f"waited {caught.value.waited:.2f} s" in str(caught.value)
        assert locks.waiters("a") == []
        held.release()

    def test_can_be_given_to_try_acquire_which_answers_none(self, locks: AnyLocks, others: AnyLocks) -> None:
        held = others.lock("a", ttl=5).acquire()
        lock = locks.lock("a", ttl=5, wait=60)
        assert lock.try_acquire() is None
        began = time.monotonic()
        assert lock.try_acquire(0.2) is None
        assert time.monotonic() - began >= 0.2
        held.release()
        taken = lock.try_acquire(1)
        assert taken is not None
        taken.release()

    def test_ends_with_a_last_try_and_a_win_there_is_a_win(
        self, locks: AnyLocks, others: AnyLocks, any_server: Server, namespace: str
    ) -> None:
        # Lest an announcement finds the waiter in the holder's place.
        others.warm()
        # Patience for once more: a machine that stands still for that long lets the waiter give up before the deletion.
        for wait in (0.4, 1.5, 4.0):
            held = others.lock("a", ttl=30).acquire()
            waiting = locks.queue("a", ttl=30, wait=wait)
            # Nobody tells the waiter, and its first poll would be 5 s from now.
            any_server.command("DEL", f"{namespace}:a")
            if waiting.exception(30) is None:
                break
            # A poll of it that was on its way may have taken the lock, which is being undone.
            assert held.release() is not tenure.Released.RELEASED
        lease = waiting.result()
        assert lease.valid
        assert lease.fence > held.fence
        lease.release()
        assert held.release() is tenure.Released.GONE

    def test_error_counts_the_waiters_ahead(self, locks: AnyLocks, others: AnyLocks) -> None:
        held = others.lock("a", ttl=5).acquire()
        waiting = [locks.queue("a", ttl=5) for _ in range(2)]
        with pytest.raises(tenure.NotAcquired, match="2 waiting ahead") as caught:
            locks.lock("a", wait=0).acquire()
        assert caught.value.position == 2
        held.release()
        for future in waiting:
            future.result(30).release()


class TestTheQueue:
    def test_is_served_in_the_order_of_arrival_whoever_waits(self, locks: AnyLocks, others: AnyLocks) -> None:
        held = locks.lock("a", ttl=5).acquire()
        clients = [locks, others, others, locks, others, locks]
        waiting = [client.queue("a", ttl=5) for client in clients]
        served: list[int] = []
        fences = [held.fence]
        held.release()
        for _ in clients:
            wait_until(lambda: any(future.done() for future in waiting), 30, "the next grant")
            (turn,) = [number for number, future in enumerate(waiting) if future.done() and number not in served]
            served.append(turn)
            lease = waiting[turn].result()
            fences.append(lease.fence)
            lease.release()
            if len(served) < len(clients):
                wait_until(lambda: sum(future.done() for future in waiting) > len(served), 30, "the hand-over")
        assert served == list(range(len(clients)))
        assert fences == sorted(set(fences))

    def test_is_not_overtaken_by_a_single_try(self, locks: AnyLocks, others: AnyLocks) -> None:
        held = others.lock("a", ttl=5).acquire()
        first = locks.queue("a", ttl=5)
        held.release()
        # Handed over in the release itself: there was no moment in which the lock was free.
        assert others.lock("a").try_acquire() is None
        first.result(30).release()

    def test_is_left_by_a_waiter_that_gives_up_and_the_next_is_served(self, locks: AnyLocks, others: AnyLocks) -> None:
        held = others.lock("a", ttl=5).acquire()
        impatient = locks.queue("a", ttl=5, wait=0.3)
        patient = locks.queue("a", ttl=5)
        with pytest.raises(tenure.NotAcquired):
            impatient.result(30)
        assert [waiter.position for waiter in locks.waiters("a")] == [0]
        held.release()
        patient.result(30).release()

    def test_goes_on_when_a_holder_dies_without_a_word(
        self, locks: AnyLocks, others: AnyLocks, any_server: Server, namespace: str
    ) -> None:
        held = others.lock("a").acquire()
        value = any_server.command("GET", f"{namespace}:a")
        held.release()
        # The same key as the crash of its process would have left it: nobody renews or releases it any more.
        any_server.command("SET", f"{namespace}:a", value, "PX", 300)
        lease = locks.queue("a", ttl=5).result(30)
        assert any_server.command("GET", f"{namespace}:a") != value
        assert lease.fence > held.fence
        lease.release()


class TestNestedUse:
    def test_in_the_same_thread_or_task_is_refused_at_once(self, locks: AnyLocks) -> None:
        outer = locks.lock("a", wait=30).acquire()
        began = time.monotonic()
        for nested in (locks.lock("a", wait=30).acquire, locks.lock("a").try_acquire):
            with pytest.raises(tenure.AlreadyHeld, match=f"'a' is already held .*fence {outer.fence}") as caught:
                nested()
            assert caught.value.names == ("a",)
        assert time.monotonic() - began < 20
        assert outer.valid
        outer.release()
        locks.lock("a", wait=0).acquire().release()

    def test_of_blocks_is_refused_and_the_outer_one_goes_on(self, locks: AnyLocks) -> None:
        lock = locks.lock("a")
        with lock.block() as lease:
            with pytest.raises(tenure.AlreadyHeld), lock.block():
                pytest.fail("entered a block twice")
            assert lease.valid
        assert not lock.locked()

    def test_of_other_names_is_free(self, locks: AnyLocks) -> None:
        with locks.lock("a").block(), locks.lock("b").block():
            assert len(locks.list()) == 2

    def test_in_another_thread_or_task_waits(self, locks: AnyLocks, flavour: Flavour) -> None:
        lock = locks.lock("a", ttl=5, wait=5)
        lease = lock.acquire()
        assert flavour.spawn(lock.try_acquire).result() is None
        waiting = locks.queue("a", ttl=5)
        lease.release()
        waiting.result(30).release()

    def test_after_the_lease_was_lost_waits_again(self, locks: AnyLocks) -> None:
        lease = locks.lock("a", ttl=0.3, renew=False).acquire()
        assert lease.wait_lost(30)
        again = locks.lock("a", wait=30).acquire()
        assert again.fence > lease.fence
        again.release()

    def test_in_a_child_task_waits_although_it_inherits_the_context(self, any_url: str, namespace: str) -> None:
        async def main() -> None:
            async with tenure.AsyncLocks(any_url, namespace=namespace) as locks:
                lock = locks.lock("a", ttl=5)
                async with lock:
                    assert await asyncio.create_task(lock.try_acquire()) is None
                    with pytest.raises(tenure.AlreadyHeld):
                        await lock.try_acquire()

        run_async(main)

    def test_of_one_lock_by_many_tasks_keeps_their_blocks_apart(self, any_url: str, namespace: str) -> None:
        async def main() -> None:
            async with tenure.AsyncLocks(any_url, namespace=namespace) as locks:
                lock = locks.lock("a", ttl=5)
                fences: list[int] = []

                async def turn() -> None:
                    async with lock as lease:
                        await asyncio.sleep(0)
                        lease.check()
                        fences.append(lease.fence)

                async with asyncio.TaskGroup() as group:
                    for _ in range(20):
                        group.create_task(turn())
                assert fences == sorted(set(fences))
                assert len(fences) == 20

        run_async(main)
