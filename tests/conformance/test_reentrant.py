# ruff: noqa: PT012 - how a block of several statements ends is what is shown
"""Nested use of a reentrant lock: the same lease, given back by the outermost exit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import tenure
from tests.harness.commands import CallCounter
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from tests.conformance.flavours import AnyLock, AnyLocks, Flavour
    from tests.harness.servers import Server


@pytest.fixture
def lock(locks: AnyLocks) -> AnyLock:
    return locks.lock("a", ttl=60, reentrant=True)


class TestNestedUse:
    def test_gives_the_same_lease_and_the_outermost_exit_gives_it_back(
        self, locks: AnyLocks, others: AnyLocks, lock: AnyLock
    ) -> None:
        with lock.block() as outer:
            with lock.block() as middle:
                assert middle.raw is outer.raw
                with locks.lock("a", reentrant=True).block() as inner:
                    assert inner.raw is outer.raw
                outer.check()
                assert others.lock("a").locked()
            outer.check()
            assert locks.statistics().held == 1
            assert others.lock("a").try_acquire() is None
        assert not outer.valid
        assert not others.lock("a").locked()

    def test_by_acquire_and_release_counts_as_well(self, others: AnyLocks, lock: AnyLock) -> None:
        outer, inner, tried = lock.acquire(), lock.acquire(), lock.try_acquire()
        assert tried is not None
        assert outer.raw is inner.raw is tried.raw
        for lease in (tried, inner):
            assert lease.release() is tenure.Released.RELEASED
            outer.check()
            assert others.lock("a").locked()
        assert outer.release() is tenure.Released.RELEASED
        assert not others.lock("a").locked()
        assert outer.release() is tenure.Released.GONE

    def test_by_decorated_functions_that_call_each_other(
        self, locks: AnyLocks, lock: AnyLock, others: AnyLocks, flavour: Flavour
    ) -> None:
        if flavour.kind == "asyncio":
            # The harness calls plain functions from coroutines, in threads of their own: coroutines are written out.
            async def inner_job() -> int:
                current = locks.raw.current("a")
                assert current is not None
                return current.fence

            inner: Any = lock.raw(inner_job)

            async def outer_job() -> list[int]:
                return [await inner(), await inner()]

            outer: Any = lock.raw(outer_job)
        else:
            inner = lock.decorate(lambda: getattr(locks.raw.current("a"), "fence", None))
            outer = lock.decorate(lambda: [inner(), inner()])
        first, second = flavour.call(outer)
        assert first == second
        assert not others.lock("a").locked()

    def test_costs_no_request(self, flavour: Flavour, any_url: str, namespace: str, any_server: Server) -> None:
        locks = flavour.locks(any_url, namespace=namespace, server_timeout=30)
        locks.warm()
        lock = locks.lock("a", ttl=60, reentrant=True)
        with lock.block(), CallCounter(any_server.admin) as counter:
            for _ in range(10):
                with lock.block():
                    pass
        # The block's own end is outside of what is counted, or it is the one.
        assert counter.scripts <= 1

    def test_lets_an_error_through_and_goes_on(self, others: AnyLocks, lock: AnyLock) -> None:
        with lock.block() as outer:
            with pytest.raises(ZeroDivisionError), lock.block():
                raise ZeroDivisionError
            outer.check()
            assert others.lock("a").locked()
        assert not others.lock("a").locked()

    def test_inside_a_lock_that_is_not_reentrant_is_the_inner_ones_wish(self, locks: AnyLocks, lock: AnyLock) -> None:
        plain = locks.lock("a", ttl=60)
        with plain.block() as outer:
            with lock.block() as inner:
                assert inner.raw is outer.raw
            with pytest.raises(tenure.AlreadyHeld):
                plain.acquire()
        with lock.block(), pytest.raises(tenure.AlreadyHeld, match="reentrant=True"):
            plain.acquire()

    def test_as_a_semaphore_takes_one_place(self, locks: AnyLocks, others: AnyLocks) -> None:
        semaphore = locks.semaphore("a", 2, ttl=60, reentrant=True)
        with semaphore.block() as outer, semaphore.block() as inner:
            assert inner.raw is outer.raw
            assert len(others.holders("a")) == 1
            with others.semaphore("a", 2).block():
                pass

    def test_of_several_names_needs_the_same_ones(self, locks: AnyLocks) -> None:
        both = locks.lock("a", "b", ttl=60, reentrant=True)
        with both.block() as outer:
            with locks.lock("b", "a", reentrant=True).block() as inner:
                assert inner.raw is outer.raw
            for names in ("a", "b", "abc"):
                with pytest.raises(tenure.AlreadyHeld, match="the very same names"):
                    locks.lock(*names, reentrant=True).acquire()
            outer.check()


class TestModes:
    def test_a_reader_inside_a_writer_has_what_it_needs(self, locks: AnyLocks, lock: AnyLock) -> None:
        with lock.block() as outer, locks.lock("a", shared=True, reentrant=True).block() as inner:
            assert inner.raw is outer.raw
            assert inner.mode == "exclusive"

    def test_a_writer_inside_a_reader_would_wait_for_itself(self, locks: AnyLocks, lock: AnyLock) -> None:
        with locks.lock("a", shared=True, reentrant=True, ttl=60).block() as outer:
            with pytest.raises(tenure.AlreadyHeld, match="held as shared, and nested as exclusive"):
                lock.acquire()
            outer.check()

    @pytest.mark.parametrize("inner", ["shared", "exclusive"])
    @pytest.mark.parametrize("outer", ["shared", "exclusive"])
    def test_that_are_not_reentrant_are_refused_in_any_mix(self, locks: AnyLocks, outer: str, inner: str) -> None:
        """A reader that waits behind a writer that waits for that reader: no order of arrival helps them."""
        with locks.lock("a", shared=outer == "shared", ttl=60).block(), pytest.raises(tenure.AlreadyHeld):
            locks.lock("a", shared=inner == "shared", wait=30).acquire()


class TestOthers:
    def test_threads_and_tasks_are_no_nested_use(self, locks: AnyLocks, lock: AnyLock, flavour: Flavour) -> None:
        with lock.block() as lease:
            assert flavour.spawn(lock.try_acquire).result(30) is None
            waiting = locks.queue("a", ttl=60, reentrant=True)
            lease.check()
        theirs = waiting.result(30)
        assert theirs.raw is not lease.raw
        assert lock.try_acquire() is None
        theirs.release()

    def test_a_handle_may_be_released_by_any_of_them(self, others: AnyLocks, lock: AnyLock, flavour: Flavour) -> None:
        lease = lock.acquire()
        lock.acquire()
        for _ in range(2):
            flavour.spawn(lease.release).result(30)
        assert not others.lock("a").locked()


class TestALease:
    def test_that_was_lost_is_no_longer_nested(self, locks: AnyLocks) -> None:
        lock = locks.lock("a", ttl=0.3, renew=False, reentrant=True, wait=30)
        first = lock.acquire()
        assert first.wait_lost(30)
        again = lock.acquire()
        assert again.fence > first.fence
        again.release()

    def test_that_is_lost_inside_ends_all_its_blocks_as_lost(
        self, any_server: Server, namespace: str, lock: AnyLock
    ) -> None:
        with pytest.raises(tenure.LeaseLost) as caught, lock.block() as outer:
            with pytest.raises(tenure.LeaseLost), lock.block():
                any_server.command("DEL", f"{namespace}:a")
                with pytest.raises(tenure.LeaseLost):
                    outer.renew()
            with pytest.raises(tenure.LeaseLost):
                outer.check()
        assert caught.value.reason == "deleted"

    def test_that_was_detached_is_no_longer_nested(self, locks: AnyLocks, lock: AnyLock) -> None:
        lease = lock.acquire()
        lease.detach()
        assert lock.try_acquire() is None
        with pytest.raises(tenure.NotAcquired):
            locks.lock("a", wait=0).acquire()
        lease.check()
        assert lease.release() is tenure.Released.RELEASED

    def test_whose_block_is_left_can_be_taken_anew(self, lock: AnyLock) -> None:
        fences: list[int] = []
        for _ in range(3):
            with lock.block() as outer, lock.block():
                fences.append(outer.fence)
        assert fences == sorted(set(fences))


def test_two_locks_objects_of_one_process_are_strangers(locks: AnyLocks, others: AnyLocks) -> None:
    with locks.lock("a", reentrant=True).block():
        assert others.lock("a", reentrant=True).try_acquire() is None


def test_waiters_come_in_when_the_outermost_block_ends(locks: AnyLocks, others: AnyLocks, lock: AnyLock) -> None:
    with lock.block():
        with lock.block():
            waiting = others.queue("a", ttl=60)
        assert not waiting.done()
        assert locks.statistics().held == 1
    wait_until(waiting.done, 30, "the hand-over")
    waiting.result(0).release()
