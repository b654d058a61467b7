"""Semaphores: so many leases at a time, each with its own end; one limit and one mode for all who use the name."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

import tenure
from tests.cases.server_side import only_fences_left
from tests.harness.commands import CallCounter
from tests.harness.leases import age_waiters, renew_now
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conformance.flavours import AnyLease, AnyLocks, Flavour
    from tests.harness.servers import Server

LIMIT = 3


@pytest.fixture
def three(flavour: Flavour, any_url: str, namespace: str) -> Iterator[list[AnyLease]]:
    """Three leases of one semaphore, each of another client; what is left of them is given back."""
    clients = [flavour.locks(any_url, namespace=namespace) for _ in range(LIMIT)]
    leases = [client.semaphore("a", LIMIT, ttl=60).acquire() for client in clients]
    yield leases
    for lease in leases:
        lease.release()


class TestTheLimit:
    def test_is_how_many_hold_at_a_time(self, three: list[AnyLease], others: AnyLocks) -> None:
        semaphore = others.semaphore("a", LIMIT, ttl=60)
        assert [lease.mode for lease in three] == ["semaphore"] * LIMIT
        assert semaphore.try_acquire() is None
        assert semaphore.locked()
        assert three[1].release() is tenure.Released.RELEASED
        lease = semaphore.try_acquire()
        assert lease is not None
        for held in (three[0], three[2], lease):
            held.check()
            held.renew()
        lease.release()

    def test_of_one_is_a_lock(self, locks: AnyLocks, others: AnyLocks) -> None:
        lease = locks.semaphore("a", 1).acquire()
        assert others.semaphore("a", 1).try_acquire() is None
        lease.release()
        with others.semaphore("a", 1).block():
            assert locks.semaphore("a", 1).locked()

    def test_may_be_large(self, locks: AnyLocks, others: AnyLocks) -> None:
        leases = [client.semaphore("a", 100_000).acquire() for client in (locks, others)]
        assert [lease.release() for lease in leases] == [tenure.Released.RELEASED] * 2

    def test_that_differs_is_refused_and_both_are_named(self, three: list[AnyLease], others: AnyLocks) -> None:
        with pytest.raises(tenure.ConfigError, match=r"'a' has the limit 3 .*limit 5 was asked for") as caught:
            others.semaphore("a", 5, wait=30).acquire()
        assert isinstance(caught.value, ValueError)
        with pytest.raises(tenure.ConfigError, match="limit 3"):
            others.semaphore("a", 2).try_acquire()
        assert others.waiters("a") == []
        for lease in three:
            lease.check()
            lease.renew()

    def test_is_that_of_those_who_use_it_now(self, three: list[AnyLease], others: AnyLocks) -> None:
        for lease in three:
            lease.release()
        with others.semaphore("a", 5).block() as lease:
            assert lease.mode == "semaphore"

    @pytest.mark.parametrize("limit", [0, -1, True, 1.0, "3", None, 100_001])
    def test_is_checked_before_anything_is_asked(self, locks: AnyLocks, limit: Any) -> None:  # noqa: ANN401
        with pytest.raises(
            tenure.ConfigError, match=re.escape(f"limit must be a whole number from 1 to 100000, not {limit!r}")
        ):
            locks.semaphore("a", limit)

    def test_counts_the_living_only(self, locks: AnyLocks, others: AnyLocks) -> None:
        short = locks.semaphore("a", 2, ttl=0.3, renew=False).acquire()
        long = others.semaphore("a", 2, ttl=60).acquire()
        assert short.wait_lost(30)
        # A dead holder frees its own place and no other.
        lease = locks.queue("a", 2, ttl=60).result(30)
        assert locks.queue("a", 2, ttl=60, wait=0.1).exception(30) is not None
        long.check()
        assert lease.release() is long.release() is tenure.Released.RELEASED


class TestWaiting:
    def test_is_in_the_order_of_arrival_and_by_hand_over(
        self, three: list[AnyLease], locks: AnyLocks, others: AnyLocks, any_server: Server
    ) -> None:
        for client in (locks, others):
            client.warm()
        for lease in three:
            # Somebody wants to hear of askers: the inbox is announced now, and not in a second, when calls are counted.
            assert not lease.wait_asked(0)
            hold, hub = lease.raw._hold, lease.raw._session.hub
            wait_until(lambda hold=hold, hub=hub: hold.reachable and not hub._tasks, 30, "the announcement")
        waiting = [client.queue("a", LIMIT, ttl=60) for client in (locks, others, locks, others)]
        assert [(waiter.mode, waiter.position) for waiter in locks.waiters("a")] == [
            ("semaphore", number) for number in range(4)
        ]
        # No poll of a slow machine is to be counted.
        for client in (locks, others):
            age_waiters(client.raw, -600)
        for number, lease in enumerate(three):
            with CallCounter(any_server.admin) as counter:
                lease.release()
                served = waiting[number].result(30)
            assert counter.scripts == 1
            assert not any(future.done() for future in waiting[number + 1 :])
            three[number] = served
        three[1].release()
        waiting[3].result(30).release()

    def test_ends_when_a_place_expires(self, locks: AnyLocks, others: AnyLocks) -> None:
        short = locks.semaphore("a", 1, ttl=0.5, renew=False).acquire()
        lease = others.queue("a", 1, ttl=60).result(30)
        assert lease.fence > short.fence
        assert short.release() is not tenure.Released.RELEASED
        lease.release()

    def test_that_ends_without_a_place_tells_who_ends_first(self, locks: AnyLocks, others: AnyLocks) -> None:
        leases = [
            client.semaphore("a", 2, ttl=ttl, info=str(ttl)).acquire() for client, ttl in ((locks, 300), (others, 100))
        ]
        with pytest.raises(tenure.NotAcquired) as caught:
            others.queue("a", 2, wait=0.1).result(30)
        holder = caught.value.holder
        assert holder is not None
        assert (holder.mode, holder.limit, holder.info) == ("semaphore", 2, "100")
        assert 1 <= caught.value.retry_after <= 101
        for lease in leases:
            lease.release()


class TestFences:
    def test_identify_a_lease(self, three: list[AnyLease], others: AnyLocks) -> None:
        assert len({lease.fence for lease in three}) == LIMIT
        last = max(lease.fence for lease in three)
        three[0].release()
        with others.semaphore("a", LIMIT).block() as lease:
            assert lease.fence > last


class TestLooking:
    def test_shows_each_holder_with_its_own_end(self, locks: AnyLocks, others: AnyLocks) -> None:
        leases = [client.semaphore("a", 4, ttl=ttl).acquire() for client, ttl in ((locks, 300), (others, 100))]
        holders = locks.holders("a")
        assert [holder.fence for holder in holders] == [leases[1].fence, leases[0].fence]
        assert [(holder.mode, holder.limit) for holder in holders] == [("semaphore", 4)] * 2
        ends = [holder.expires_in or 0 for holder in holders]
        assert 50 < ends[0] <= 100.5
        assert 250 < ends[1] <= 300.5
        first = locks.semaphore("a", 4).holder()
        assert first is not None
        assert first.fence == leases[1].fence
        for lease in leases:
            lease.release()
        assert locks.holders("a") == []


class TestBreaking:
    def test_takes_one_place_by_its_fence(self, three: list[AnyLease], others: AnyLocks) -> None:
        broken = others.break_lock("a", three[1].fence)
        assert broken is not None
        assert broken.fence == three[1].fence
        renew_now(three[1].raw)
        assert three[1].wait_lost(30)
        assert three[1].lost == "revoked"
        assert others.semaphore("a", LIMIT).try_acquire() is None
        assert three[1].release() is tenure.Released.GONE
        lease = others.queue("a", LIMIT, ttl=60).result(30)
        for held in (three[0], three[2]):
            held.renew()
        lease.release()

    def test_with_force_frees_the_place_at_once(self, three: list[AnyLease], others: AnyLocks) -> None:
        waiting = others.queue("a", LIMIT, ttl=60)
        assert others.break_lock("a", three[1].fence, force=True) is not None
        lease = waiting.result(30)
        three[0].renew()
        three[2].renew()
        assert three[1].release() is not tenure.Released.RELEASED
        assert lease.release() is tenure.Released.RELEASED


class TestAnotherMode:
    """The same name as a lock and as a semaphore is a mistake in somebody's program, and told as such."""

    def test_a_lock_where_a_semaphore_is(self, three: list[AnyLease], others: AnyLocks) -> None:
        for options in ({}, {"shared": True}):
            with pytest.raises(tenure.NameConflict, match=r"'a'.*in use as a semaphore") as caught:
                others.lock("a", wait=30, **options).acquire()
            assert caught.value.names == ("a",)
            with pytest.raises(tenure.NameConflict):
                others.lock("a", **options).try_acquire()
        with pytest.raises(tenure.NameConflict, match=r"'a'.*in use as a semaphore"):
            others.lock("a", "b").acquire()
        assert others.waiters("a") == []
        assert others.holder("b") is None
        for lease in three:
            lease.renew()

    @pytest.mark.parametrize("shared", [False, True])
    def test_a_semaphore_where_a_lock_is(self, locks: AnyLocks, others: AnyLocks, *, shared: bool) -> None:
        with locks.lock("a", shared=shared).block() as lease:
            with pytest.raises(tenure.NameConflict, match=r"'a'.*in use as an exclusive or shared lock"):
                others.semaphore("a", 2, wait=30).acquire()
            assert others.waiters("a") == []
            lease.renew()

    def test_is_free_to_use_once_nobody_does(
        self, locks: AnyLocks, others: AnyLocks, any_server: Server, namespace: str
    ) -> None:
        with locks.semaphore("a", 2).block():
            pass
        with others.lock("a").block():
            pass
        with locks.lock("a", shared=True).block():
            pass
        with others.semaphore("a", 7).block():
            pass
        assert only_fences_left(any_server, namespace)


class TestAsALock:
    def test_in_a_block_and_as_a_decorator(self, locks: AnyLocks) -> None:
        semaphore = locks.semaphore("job:{number}", 2)
        seen: list[str] = []

        def job(number: int) -> None:
            seen.extend(holder.name for holder in locks.list())
            assert number == 7

        semaphore.decorate(job)(7)
        assert seen == ["job:7"]
        assert locks.list() == []

    def test_two_places_for_one_thread_or_task_are_refused(self, locks: AnyLocks, flavour: Flavour) -> None:
        semaphore = locks.semaphore("a", 2, ttl=60)
        with semaphore.block():
            with pytest.raises(tenure.AlreadyHeld):
                semaphore.acquire()
            second = flavour.spawn(semaphore.try_acquire).result(30)
            assert second is not None
            second.release()

    def test_takes_one_name(self, locks: AnyLocks) -> None:
        with pytest.raises(TypeError):
            locks.raw.semaphore("a", 2, "b")  # type: ignore[call-arg, misc]

    def test_another_library_that_holds_the_name_is_waited_for(
        self, locks: AnyLocks, any_server: Server, namespace: str
    ) -> None:
        any_server.command("SET", f"{namespace}:a", "theirs", "PX", 500)
        lease = locks.semaphore("a", 2, wait=30).acquire()
        assert lease.valid
        lease.release()


def test_taking_and_giving_back_a_place_is_one_request_each(
    flavour: Flavour, any_url: str, namespace: str, any_server: Server
) -> None:
    clients = [flavour.locks(any_url, namespace=namespace, server_timeout=30) for _ in range(2)]
    for client in clients:
        client.warm()
    leases: list[AnyLease] = []
    with CallCounter(any_server.admin) as taking:
        leases += [client.semaphore("a", 2, ttl=60).acquire() for client in clients]
    with CallCounter(any_server.admin) as giving_back:
        assert [lease.release() for lease in leases] == [tenure.Released.RELEASED] * 2
    assert (taking.scripts, giving_back.scripts) == (2, 2)


def test_a_place_that_is_gone_is_a_loss_of_that_lease_alone(
    three: list[AnyLease], any_server: Server, namespace: str
) -> None:
    assert any_server.command("ZREM", f"{{{namespace}:a}}:shared", three[0].token) == 1
    renew_now(three[0].raw)
    wait_until(lambda: three[0].lost, 30, "the loss to be noticed")
    assert three[0].lost == "deleted"
    for lease in three[1:]:
        lease.renew()
