"""Shared locks: many readers or one writer, in the order of arrival."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import tenure
from tests.cases.server_side import only_fences_left
from tests.harness.commands import CallCounter
from tests.harness.leases import age_waiters, renew_now
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from concurrent.futures import Future

    from tests.conformance.flavours import AnyLease, AnyLocks, Flavour
    from tests.harness.servers import Server


def readers(*clients: AnyLocks, name: str = "a") -> list[AnyLease]:
    """One shared lease for each client; at once, or not at all."""
    leases = [client.lock(name, ttl=60, shared=True).try_acquire() for client in clients]
    return [lease for lease in leases if lease is not None]


def end(*leases: AnyLease) -> list[tenure.Released]:
    return [lease.release() for lease in leases]


class TestSharing:
    def test_many_hold_together_and_the_last_one_frees_the_lock(
        self, locks: AnyLocks, others: AnyLocks, any_server: Server, namespace: str
    ) -> None:
        one, two = readers(locks, others)
        assert [one.mode, two.mode] == ["shared", "shared"]
        assert others.lock("a").locked()
        assert one.release() is tenure.Released.RELEASED
        two.check()
        two.renew()
        assert others.lock("a").locked()
        assert two.release() is tenure.Released.RELEASED
        assert not locks.lock("a").locked()
        assert only_fences_left(any_server, namespace)

    def test_no_writer_beside_readers_and_no_reader_beside_a_writer(
        self, locks: AnyLocks, others: AnyLocks, flavour: Flavour
    ) -> None:
        (reader,) = readers(locks)
        assert flavour.spawn(locks.lock("a", ttl=60).try_acquire).result(30) is None
        assert others.lock("a", ttl=60).try_acquire() is None
        reader.release()
        writer = others.lock("a", ttl=60).acquire()
        assert writer.mode == "exclusive"
        assert readers(locks) == []
        assert flavour.spawn(others.lock("a", shared=True).try_acquire).result(30) is None
        writer.release()
        both = readers(locks, others)
        assert len(both) == 2
        end(*both)

    def test_those_who_share_have_one_fence_and_it_rises_with_every_turn(
        self, locks: AnyLocks, others: AnyLocks
    ) -> None:
        fences: list[int] = []
        for _ in range(3):
            writer = locks.lock("a", ttl=60).acquire()
            fences.append(writer.fence)
            writer.release()
            one, two = readers(locks, others)
            assert one.fence == two.fence
            assert one.fences == {"a": one.fence}
            assert one.token != two.token
            fences.append(one.fence)
            end(one, two)
        assert fences == sorted(set(fences))

    def test_one_who_joins_keeps_the_fence_when_the_first_one_has_gone(self, locks: AnyLocks, others: AnyLocks) -> None:
        (first,) = readers(locks)
        (second,) = readers(others)
        first.release()
        (third,) = readers(locks)
        assert third.fence == second.fence == first.fence
        end(second, third)
        (later,) = readers(locks)
        assert later.fence > first.fence
        later.release()

    def test_each_has_an_end_of_its_own(self, locks: AnyLocks, others: AnyLocks) -> None:
        short = locks.lock("a", ttl=0.3, renew=False, shared=True).acquire()
        (long,) = readers(others)
        assert short.wait_lost(30)
        assert short.lost == "expired"
        long.renew()
        long.check()
        wait_until(lambda: len(others.holders("a")) == 1, 30, "the place of the first one to end")
        assert locks.lock("a").try_acquire() is None
        long.release()
        assert not locks.lock("a").locked()

    def test_the_lock_is_free_when_all_ends_have_come(self, locks: AnyLocks, others: AnyLocks) -> None:
        short = [client.lock("a", ttl=0.3, renew=False, shared=True).acquire() for client in (locks, others)]
        lease = others.queue("a", ttl=60).result(30)
        assert lease.valid
        assert [one.lost for one in short] == ["expired"] * 2
        lease.release()

    def test_is_renewed_in_the_background(self, locks: AnyLocks, others: AnyLocks) -> None:
        leases = readers(locks, others)
        for lease in leases:
            before = lease.raw._hold.deadline
            renew_now(lease.raw)
            wait_until(lambda lease=lease, before=before: lease.raw._hold.deadline > before, 30, "the renewal")
        assert end(*leases) == [tenure.Released.RELEASED] * 2

    def test_a_place_that_is_gone_is_a_loss(
        self, locks: AnyLocks, others: AnyLocks, any_server: Server, namespace: str
    ) -> None:
        lost, kept = readers(locks, others)
        assert any_server.command("ZREM", f"{{{namespace}:a}}:shared", lost.token) == 1
        with pytest.raises(tenure.LeaseLost):
            lost.renew()
        assert lost.lost == "deleted"
        kept.renew()
        assert kept.release() is tenure.Released.RELEASED
        assert lost.release() in {tenure.Released.GONE, tenure.Released.TAKEN}

    def test_of_another_library_is_respected(self, locks: AnyLocks, any_server: Server, namespace: str) -> None:
        any_server.command("SET", f"{namespace}:a", "theirs", "PX", 60_000)
        assert readers(locks) == []
        any_server.command("DEL", f"{namespace}:a")
        assert end(*readers(locks)) == [tenure.Released.RELEASED]


class TestTheOrderOfArrival:
    def test_a_writer_that_waits_stops_later_readers(self, locks: AnyLocks, others: AnyLocks, flavour: Flavour) -> None:
        (reader,) = readers(locks)
        writer = others.queue("a", ttl=60)
        assert flavour.spawn(locks.lock("a", shared=True).try_acquire).result(30) is None
        later = locks.queue("a", ttl=60, shared=True)
        assert [(waiter.mode, waiter.position) for waiter in locks.waiters("a")] == [("exclusive", 0), ("shared", 1)]
        reader.release()
        lease = writer.result(30)
        assert not later.done()
        assert lease.fence > reader.fence
        lease.release()
        read = later.result(30)
        assert read.fence > lease.fence
        read.release()

    def test_all_readers_at_the_head_are_admitted_at_once(
        self, locks: AnyLocks, others: AnyLocks, any_server: Server
    ) -> None:
        locks.warm()
        others.warm()
        writer = locks.lock("a", ttl=60).acquire()
        waiting = [client.queue("a", ttl=60, shared=True) for client in (locks, others, others, locks)]
        last = others.queue("a", ttl=60)
        behind = locks.queue("a", ttl=60, shared=True)
        # Nobody asks: they have to be told.
        for client in (locks, others):
            age_waiters(client.raw, -600)
        with CallCounter(any_server.admin) as counter:
            writer.release()
            leases = [future.result(30) for future in waiting]
        assert counter.commands.get("spublish", 0) + counter.commands.get("publish", 0) == 4
        assert len({lease.fence for lease in leases}) == 1
        assert not last.done()
        assert not behind.done()
        for lease in leases[:3]:
            lease.release()
        assert not last.done()
        leases[3].release()
        exclusive = last.result(30)
        assert not behind.done()
        exclusive.release()
        behind.result(30).release()

    def test_a_writer_that_gives_up_lets_the_readers_behind_it_in(self, locks: AnyLocks, others: AnyLocks) -> None:
        (reader,) = readers(locks)
        writer = others.queue("a", ttl=60, wait=1)
        waiting = [locks.queue("a", ttl=60, shared=True) for _ in range(5)]
        # None of them asks: they have to be told.
        age_waiters(locks.raw, -600)
        with pytest.raises(tenure.NotAcquired):
            writer.result(30)
        end(*[future.result(14) for future in waiting])
        assert reader.release() is tenure.Released.RELEASED

    def test_when_a_writer_has_died_the_first_reader_brings_all_others_in(
        self, locks: AnyLocks, others: AnyLocks, any_server: Server, namespace: str
    ) -> None:
        writer = locks.lock("a", ttl=60).acquire()
        waiting = [others.queue("a", ttl=60, shared=True) for _ in range(6)]
        age_waiters(others.raw, -600)
        any_server.command("DEL", f"{namespace}:a")
        # Only this one asks, and there is room for those behind it as well.
        first = min(others.raw.session().hub.tickets.values(), key=lambda ticket: ticket.position or 0)
        first.next_poll = 0.0
        others.raw.session().hub.wake()
        # All of them before the first one releases, which would let the next one in as well.
        leases = [future.result(14) for future in waiting]
        assert len({lease.fence for lease in leases}) == 1
        end(*leases)
        assert writer.release() is tenure.Released.GONE

    def test_a_try_never_overtakes(self, locks: AnyLocks, others: AnyLocks, flavour: Flavour) -> None:
        held = locks.lock("a", ttl=60).acquire()
        waiting = others.queue("a", ttl=60, shared=True)
        with pytest.raises(tenure.NotAcquired, match="1 waiting ahead"):
            flavour.spawn(locks.lock("a", wait=0, shared=True).acquire).result(30)
        held.release()
        waiting.result(30).release()


class TestLooking:
    def test_all_who_share_are_shown_in_the_order_of_their_ends(self, locks: AnyLocks, others: AnyLocks) -> None:
        leases = [
            client.lock("a", ttl=ttl, shared=True, info=str(ttl)).acquire()
            for client, ttl in ((locks, 300), (others, 100))
        ]
        holders = locks.holders("a")
        assert [(holder.info, holder.mode, holder.limit) for holder in holders] == [
            ("100", "shared", None), ("300", "shared", None)
        ]  # fmt: skip
        assert [holder.fence for holder in holders] == [leases[0].fence] * 2
        first = locks.holder("a")
        assert first is not None
        assert first.info == "100"
        assert [holder.info for holder in locks.list()] == ["100", "300"]
        end(*leases)
        assert locks.holders("a") == []

    def test_who_cannot_have_it_is_told_of_the_one_who_ends_last(
        self, locks: AnyLocks, others: AnyLocks, flavour: Flavour
    ) -> None:
        leases = [client.lock("a", ttl=ttl, shared=True).acquire() for client, ttl in ((locks, 40), (others, 200))]
        with pytest.raises(tenure.NotAcquired) as caught:
            # In a thread of its own: the test's thread shares the lock already.
            flavour.spawn(locks.lock("a", wait=0).acquire).result(30)
        assert caught.value.holder is not None
        assert caught.value.holder.mode == "shared"
        assert 100 < caught.value.retry_after <= 201
        end(*leases)


class TestBreaking:
    def test_all_who_share_are_told(self, locks: AnyLocks, others: AnyLocks) -> None:
        leases = readers(locks, others)
        broken = locks.break_lock("a", leases[0].fence)
        assert broken is not None
        assert broken.fence == leases[0].fence
        for lease in leases:
            renew_now(lease.raw)
            assert lease.wait_lost(30)
            assert lease.lost == "revoked"
        assert others.lock("a").locked()
        end(*leases)
        wait_until(lambda: not locks.lock("a").locked(), 30, "the acknowledgements")

    def test_with_force_hands_over_at_once(self, locks: AnyLocks, others: AnyLocks) -> None:
        leases = readers(locks, others)
        writer = others.queue("a", ttl=60)
        assert locks.break_lock("a", force=True) is not None
        lease = writer.result(30)
        assert lease.fence > leases[0].fence
        assert not any(answer is tenure.Released.RELEASED for answer in end(*leases))
        lease.check()
        lease.renew()
        assert lease.release() is tenure.Released.RELEASED


class TestRequests:
    @pytest.fixture
    def clients(self, flavour: Flavour, any_url: str, namespace: str) -> list[AnyLocks]:
        """Two that have the patience of a slow machine."""
        made = [flavour.locks(any_url, namespace=namespace, server_timeout=30) for _ in range(2)]
        for one in made:
            one.warm()
        return made

    def test_taking_joining_and_leaving_are_one_each(self, clients: list[AnyLocks], any_server: Server) -> None:
        for doing in ("take", "join"):
            leases: list[AnyLease] = []
            with CallCounter(any_server.admin) as counter:
                leases += readers(*clients[: 1 if doing == "take" else 2])
            assert counter.scripts == len(leases)
            with CallCounter(any_server.admin) as counter:
                assert set(end(*leases)) == {tenure.Released.RELEASED}
            assert counter.scripts == len(leases)

    def test_a_hand_over_to_many_is_one_and_no_poll(self, clients: list[AnyLocks], any_server: Server) -> None:
        writer = clients[0].lock("a", ttl=60).acquire()
        waiting: list[Future[AnyLease]] = [client.queue("a", ttl=60, shared=True) for client in clients * 3]
        for client in clients:
            age_waiters(client.raw, -600)
        with CallCounter(any_server.admin) as counter:
            writer.release()
            leases = [future.result(30) for future in waiting]
        assert counter.scripts == 1
        end(*leases)


@pytest.mark.usefixtures("patient_close")
def test_what_is_shared_is_given_back_at_the_end(
    flavour: Flavour, any_url: str, any_server: Server, namespace: str
) -> None:
    locks = flavour.locks(any_url, namespace=namespace)
    leases = readers(locks)
    leases += [flavour.spawn(readers, locks).result(30)[0]]
    locks.close()
    assert {lease.lost for lease in leases} == {"closed"}
    assert only_fences_left(any_server, namespace)
