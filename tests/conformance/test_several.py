# ruff: noqa: PT012 - how a block of several statements ends is what is shown
"""Several names in one lock: all or none, in one order everywhere, one budget, one request when all are free."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Any

import pytest

import tenure
from tenure.core.scripts import RELEASE
from tenure.runtime import clock
from tenure.testing.clock import jump
from tests.cases.server_side import only_fences_left
from tests.harness.commands import CallCounter, Monitor
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from tests.conformance.flavours import AnyLocks, Flavour
    from tests.harness.servers import Server


def waits_for(client: AnyLocks, *names: str) -> None:
    """Return once somebody stands in the queue of each name."""
    wait_until(lambda: all(client.waiters(name) for name in names), 30, f"a waiter for each of {names}")


class TestTheNames:
    def test_are_sorted_and_each_is_there_once(self, locks: AnyLocks) -> None:
        lock = locks.lock("b", "a", b"b", "ü", "a")
        assert lock.raw.names == ("a", "b", "ü")
        assert repr(lock.raw).endswith("Lock 'a', 'b', 'ü'>")
        with lock.block() as lease:
            assert lease.names == ("a", "b", "ü")
            assert [holder.name for holder in locks.list()] == ["a", "b", "ü"]

    def test_that_are_one_are_a_plain_lock(self, locks: AnyLocks) -> None:
        with locks.lock("a", b"a").block() as lease:
            assert lease.fences == {"a": lease.fence}

    @pytest.mark.parametrize(
        ("names", "fragment"),
        [
            ((), "a lock needs a name"),
            (tuple(map(str, range(101))), "101 names in one lock; at most 100"),
            (("a", 5), "not the name of a lock; durations are given by keyword"),
            (("a", None), "not the name of a lock"),
            (("a", ""), "must not be empty"),
        ],
    )
    def test_are_checked_before_anything_is_asked(self, locks: AnyLocks, names: tuple[Any, ...], fragment: str) -> None:
        with pytest.raises(tenure.ConfigError, match=fragment):
            locks.lock(*names)

    def test_may_be_a_hundred(self, locks: AnyLocks, any_server: Server, namespace: str) -> None:
        names = [f"n{number}" for number in range(100)]
        with locks.lock(*names).block() as lease:
            assert len(locks.list()) == 100
            assert set(lease.fences) == set(names)
        assert only_fences_left(any_server, namespace)

    def test_are_templates_of_a_decorator(self, locks: AnyLocks) -> None:
        def transfer(source: int, target: int) -> list[str]:
            return [holder.name for holder in locks.list()]

        wrapped = locks.lock("account:{source}", "account:{target}").decorate(transfer)
        assert wrapped(7, 3) == ["account:3", "account:7"]
        assert wrapped(5, target=5) == ["account:5"]


class TestTheLease:
    def test_has_a_fence_for_each_name_and_no_single_one(self, locks: AnyLocks) -> None:
        lease = locks.lock("a", "b", ttl=60).acquire()
        assert set(lease.fences) == {"a", "b"}
        for attribute in ("fence", "token"):
            with pytest.raises(tenure.ConfigError, match=f"'a', 'b'.* has one {attribute} for each of them"):
                getattr(lease.raw, attribute)
        assert "'a', 'b'" in repr(lease.raw)
        lease.release()
        with locks.lock("a", "b").block() as later:
            assert all(later.fences[name] > lease.fences[name] for name in "ab")

    def test_is_one_possession_of_them_all(self, locks: AnyLocks, others: AnyLocks) -> None:
        lease = locks.lock("a", "b", ttl=60, info="both").acquire()
        assert [(holder.name, holder.info) for holder in others.list()] == [("a", "both"), ("b", "both")]
        for name in "ab":
            assert others.lock(name).try_acquire() is None
        lease.set_info("changed")
        assert [holder.info for holder in others.list()] == ["changed"] * 2
        assert lease.release() is tenure.Released.RELEASED
        assert lease.release() is tenure.Released.GONE
        with pytest.raises(tenure.NotHeld):
            lease.check()
        assert others.list() == []

    def test_is_renewed_as_one(self, locks: AnyLocks, any_server: Server, namespace: str) -> None:
        lease = locks.lock("a", "b", "c", ttl=60).acquire()
        for name in "abc":
            any_server.command("PEXPIRE", f"{namespace}:{name}", 30_000)
        lease.renew()
        assert all(any_server.command("PTTL", f"{namespace}:{name}") > 40_000 for name in "abc")
        lease.release()

    def test_is_lost_when_one_of_them_is(
        self, locks: AnyLocks, others: AnyLocks, any_server: Server, namespace: str
    ) -> None:
        told: list[Any] = []
        with (
            pytest.raises(tenure.LeaseLost, match="lock 'b' was lost") as caught,
            locks.lock("a", "b", "c", ttl=60, on_lost=told.append).block() as lease,
        ):
            any_server.command("DEL", f"{namespace}:b")
            with pytest.raises(tenure.LeaseLost, match="lock 'b' was lost"):
                lease.renew()
            assert not lease.valid
            assert lease.remaining() == 0
            assert lease.lost == "deleted"
            assert lease.wait_lost(30)
        assert caught.value.reason == "deleted"
        wait_until(lambda: told, 30, "the callback")
        # The others are not lost, and were given back.
        assert [others.lock(name).locked() for name in "abc"] == [False] * 3
        assert told == [lease.raw]

    def test_tells_the_worst_of_its_ends(
        self, locks: AnyLocks, others: AnyLocks, any_server: Server, namespace: str
    ) -> None:
        # Lest an announcement finds out, at the wrong moment, what the release is to find.
        locks.warm()
        lease = locks.lock("a", "b", ttl=60).acquire()
        any_server.command("DEL", f"{namespace}:b")
        assert lease.release() is tenure.Released.GONE
        lease = locks.lock("a", "b", ttl=60).acquire()
        any_server.command("DEL", f"{namespace}:a")
        with others.lock("a").block():
            assert lease.release() is tenure.Released.TAKEN
        assert others.list() == []

    def test_may_be_shared(self, locks: AnyLocks, others: AnyLocks) -> None:
        one, two = (client.lock("a", "b", shared=True, ttl=60).acquire() for client in (locks, others))
        assert one.mode == "shared"
        assert one.fences == two.fences
        one.release()
        assert others.lock("b", shared=True).holder() is not None
        two.release()
        assert others.list() == []


class TestAllOrNone:
    def test_a_try_takes_nothing_while_one_is_held(
        self, locks: AnyLocks, others: AnyLocks, any_server: Server, namespace: str
    ) -> None:
        held = others.lock("b", ttl=60).acquire()
        assert locks.lock("a", "b", "c").try_acquire() is None
        with pytest.raises(tenure.NotAcquired, match=r"'b' not acquired \(one try\)") as caught:
            locks.lock("a", "b", "c", wait=0).acquire()
        assert caught.value.holder is not None
        assert caught.value.holder.fence == held.fence
        assert [holder.name for holder in others.list()] == ["b"]
        assert locks.statistics().held == 0
        held.release()
        assert only_fences_left(any_server, namespace)

    def test_one_that_is_not_had_in_time_gives_the_first_ones_back(self, locks: AnyLocks, others: AnyLocks) -> None:
        held = others.lock("c", ttl=60).acquire()
        began = time.monotonic()
        with pytest.raises(tenure.NotAcquired, match="'c' not acquired"):
            locks.lock("a", "b", "c", ttl=60, wait=0.3).acquire()
        assert time.monotonic() - began >= 0.3
        assert [holder.name for holder in others.list()] == ["c"]
        assert others.waiters("c") == []
        held.release()

    def test_one_that_is_no_lock_leaves_the_others_alone(
        self, locks: AnyLocks, any_server: Server, namespace: str
    ) -> None:
        any_server.command("RPUSH", f"{namespace}:b", "x")
        any_server.command("PEXPIRE", f"{namespace}:b", 60_000)
        with pytest.raises(tenure.NameConflict, match="'b': the key holds a list") as caught:
            locks.lock("a", "b", "c").acquire()
        assert caught.value.names == ("b",)
        assert locks.list() == []

    def test_those_that_are_had_are_kept_while_the_rest_is_waited_for(
        self, locks: AnyLocks, others: AnyLocks, flavour: Flavour, any_server: Server, namespace: str
    ) -> None:
        held = others.lock("b", ttl=60).acquire()
        waiting = flavour.spawn(locks.lock("a", "b", "c", ttl=60).acquire)
        waits_for(others, "b")
        assert others.lock("a").try_acquire() is None
        assert not others.lock("c").locked()
        # Renewed although nobody has a handle of it yet.
        (hold,) = locks.raw.session().hub.holds.values()
        before, hold.next_renew = hold.deadline, 0.0
        locks.raw.session().hub.wake()
        wait_until(lambda: hold.deadline > before, 30, "the renewal")
        held.release()
        lease = waiting.result(30)
        assert lease.names == ("a", "b", "c")
        lease.release()
        assert only_fences_left(any_server, namespace)

    def test_one_that_is_lost_meanwhile_begins_anew(
        self, locks: AnyLocks, others: AnyLocks, flavour: Flavour, any_server: Server, namespace: str
    ) -> None:
        held = others.lock("b", ttl=60).acquire()
        waiting = flavour.spawn(locks.lock("a", "b", ttl=60).acquire)
        waits_for(others, "b")
        (hold,) = locks.raw.session().hub.holds.values()
        any_server.command("DEL", f"{namespace}:a")
        taken = others.lock("a", ttl=60).acquire()
        hold.next_renew = 0.0
        locks.raw.session().hub.wake()
        wait_until(lambda: hold.state.name == "LOST", 30, "the loss to be noticed")
        held.release()
        # With the second one alone it is not content: it gives it back, and waits for the first one.
        waits_for(others, "a")
        assert not others.lock("b").locked()
        taken.release()
        lease = waiting.result(30)
        assert lease.fences["a"] > taken.fence
        lease.check()
        lease.release()
        assert only_fences_left(any_server, namespace)

    def test_the_wait_is_one_for_the_whole_call(
        self, locks: AnyLocks, others: AnyLocks, flavour: Flavour, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(clock, "now", clock.now)
        held = [others.lock(name, ttl=600).acquire() for name in "ab"]
        waiting = flavour.spawn(locks.lock("a", "b", ttl=600, wait=100).acquire)
        waits_for(others, "a")
        (first,) = locks.raw.session().hub.tickets.values()
        jump(50)
        held[0].release()
        waits_for(others, "b")
        (second,) = locks.raw.session().hub.tickets.values()
        assert first.give_up is not None
        assert second.give_up is not None
        # Another hundred seconds from then on would be fifty more.
        assert abs(second.give_up - first.give_up) < 25
        jump(100)
        with pytest.raises(tenure.NotAcquired, match="'b' not acquired"):
            waiting.result(30)
        held[1].release()

    @pytest.mark.usefixtures("patient_close")
    def test_the_end_of_one_who_waits_leaves_nothing(
        self, flavour: Flavour, any_url: str, any_server: Server, namespace: str, others: AnyLocks
    ) -> None:
        locks = flavour.locks(any_url, namespace=namespace)
        held = others.lock("b", ttl=60).acquire()
        waiting = flavour.spawn(locks.lock("a", "b", ttl=60).acquire)
        waits_for(others, "b")
        locks.close()
        with pytest.raises(tenure.NotAcquired, match="being closed"):
            waiting.result(30)
        wait_until(lambda: [holder.name for holder in others.list()] == ["b"], 30, "the first one to be given back")
        held.release()
        wait_until(lambda: only_fences_left(any_server, namespace), 30, "nothing left")


class TestOrder:
    def test_callers_who_name_them_differently_do_not_block_each_other(
        self, locks: AnyLocks, others: AnyLocks, flavour: Flavour
    ) -> None:
        inside: dict[str, int] = dict.fromkeys("abcd", 0)

        def turns(client: AnyLocks, seed: int) -> None:
            choose = random.Random(seed)
            for _ in range(12):
                names = choose.sample("abcd", choose.choice([2, 3]))
                with client.lock(*names, ttl=60).block():
                    for name in names:
                        inside[name] += 1
                        assert inside[name] == 1
                    for name in names:
                        inside[name] -= 1

        running = [flavour.spawn(turns, client, seed) for seed, client in enumerate([locks, others] * 3)]
        for future in running:
            future.result(60)
        assert others.list() == []

    def test_a_writer_that_waits_for_one_of_them_is_not_overtaken(
        self, locks: AnyLocks, others: AnyLocks, flavour: Flavour
    ) -> None:
        reader = locks.lock("b", ttl=60, shared=True).acquire()
        writer = others.queue("b", ttl=60)
        both = locks.lock("a", "b", ttl=60, shared=True)
        assert flavour.spawn(both.try_acquire).result(30) is None
        waiting = flavour.spawn(both.acquire)
        wait_until(lambda: len(others.waiters("b")) == 2, 30, "the reader of both to queue")
        reader.release()
        lease = writer.result(30)
        assert not waiting.done()
        lease.release()
        later = waiting.result(30)
        assert later.fences["b"] > lease.fence
        later.release()

    def test_nested_use_of_one_of_them_is_refused(self, locks: AnyLocks) -> None:
        with locks.lock("b", ttl=60).block():
            with pytest.raises(tenure.AlreadyHeld, match="'b' is already held") as caught:
                locks.lock("a", "b", "c").acquire()
            assert caught.value.names == ("b",)
            assert [holder.name for holder in locks.list()] == ["b"]
        with locks.lock("a", "b", ttl=60).block():
            for name in "ab":
                with pytest.raises(tenure.AlreadyHeld):
                    locks.lock(name).try_acquire()
            with locks.lock("c").block():
                pass

    def test_holder_is_that_of_the_first_one_that_is_held(self, locks: AnyLocks, others: AnyLocks) -> None:
        lock = locks.lock("a", "b", "c")
        assert lock.holder() is None
        assert not lock.locked()
        with others.lock("c").block(), others.lock("b").block() as lease:
            holder = lock.holder()
            assert holder is not None
            assert (holder.name, holder.fence) == ("b", lease.fence)
            assert lock.locked()


class TestRequests:
    @pytest.fixture
    def patient(self, flavour: Flavour, any_url: str, namespace: str) -> AnyLocks:
        locks = flavour.locks(any_url, namespace=namespace, server_timeout=30)
        locks.warm()
        locks.lock("warm", "warmer", ttl=60).acquire().release()
        return locks

    def test_many_free_ones_are_one_and_each_release_is_one(self, patient: AnyLocks, any_server: Server) -> None:
        lock = patient.lock("a", "b", "c", "d", "e", ttl=60)
        # The server has to know the scripts: what is new to it is sent twice.
        known = lock.acquire()
        known.renew()
        known.release()
        with CallCounter(any_server.admin) as taking:
            lease = lock.acquire()
        with CallCounter(any_server.admin) as renewing:
            lease.renew()
        with CallCounter(any_server.admin) as giving_back:
            lease.release()
        assert (taking.scripts, renewing.scripts, giving_back.scripts) == (1, 1, 5)

    def test_they_are_given_back_in_reverse(self, patient: AnyLocks, any_server: Server, namespace: str) -> None:
        lease = patient.lock("a", "b", "c", ttl=60).acquire()
        with Monitor(any_server) as monitor:
            lease.release()
            keys = [request.args[3] for request in monitor.requests(b"EVALSHA")]
        assert keys == [f"{namespace}:{name}".encode() for name in "cba"]

    def test_so_are_those_that_were_had_before_one_was_in_the_way(
        self, patient: AnyLocks, others: AnyLocks, any_server: Server, namespace: str
    ) -> None:
        with others.lock("c", ttl=60).block():
            assert patient.lock("a", "b", "c").try_acquire() is None
            with Monitor(any_server) as monitor:
                assert patient.lock("a", "b", "c").try_acquire() is None
                keys = [request.args[3] for request in monitor.requests(RELEASE.sha)]
        assert keys[:2] == [f"{namespace}:{name}".encode() for name in "ba"]
