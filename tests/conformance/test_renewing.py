"""Keeping a lease: in the background, by hand, not too long, and never by a request alone."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

import tenure
from tenure.core import renew
from tenure.core.acquire import LATE_TRIES
from tests.harness.leases import age, behind, renew_now
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from tests.conformance.flavours import AnyLocks, Flavour
    from tests.harness.servers import Server


def milliseconds(seconds: bytes, micros: bytes) -> int:
    """An answer of TIME."""
    return int(seconds) * 1000 + int(micros) // 1000


def of(events: list[tenure.Event], kind: type[tenure.Event]) -> list[Any]:
    """The events of exactly one kind."""
    return [event for event in list(events) if type(event) is kind]


class TestInTheBackground:
    def test_a_lease_outlives_its_ttl(
        self, locks: AnyLocks, events: list[tenure.Event], any_server: Server, namespace: str
    ) -> None:
        lease = locks.lock("a", ttl=300).acquire()
        for done in range(1, 5):
            any_server.command("PEXPIRE", f"{namespace}:a", 100_000)
            age(lease.raw, 110)
            wait_until(lambda done=done: len(of(events, tenure.RenewedEvent)) == done, 30, "the renewal")
            assert lease.remaining() > 200
            assert any_server.command("PTTL", f"{namespace}:a") > 200_000
        assert lease.held_for() >= 440
        lease.release()
        renewals = of(events, tenure.RenewedEvent)
        assert len(renewals) == 4
        assert all(200 < event.remaining < 300 and event.fence == lease.fence for event in renewals)

    def test_keeps_the_fence_and_the_time_of_the_grant(self, locks: AnyLocks, events: list[tenure.Event]) -> None:
        lease = locks.lock("a", ttl=30).acquire()
        before = locks.holder("a")
        for number in (1, 2):
            renew_now(lease.raw)
            wait_until(lambda number=number: len(of(events, tenure.RenewedEvent)) >= number, 30, "the renewal")
        after = locks.holder("a")
        assert before is not None
        assert after is not None
        assert (before.fence, before.since, before.id) == (after.fence, after.since, after.id)
        lease.release()

    def test_ends_at_max_hold_and_the_lease_one_ttl_later(self, locks: AnyLocks, events: list[tenure.Event]) -> None:
        lease = locks.lock("a", ttl=300, max_hold=150).acquire()
        age(lease.raw, 110)
        wait_until(lambda: of(events, tenure.RenewedEvent), 30, "a renewal")
        assert not of(events, tenure.OverheldEvent)
        age(lease.raw, 110)
        (overheld,) = wait_until(lambda: of(events, tenure.OverheldEvent), 30, "the warning")
        assert 220 <= overheld.held_for <= lease.held_for()
        assert overheld.over == pytest.approx(overheld.held_for - 150)
        # The second renewal would have been due by now.
        assert 100 < lease.remaining() < 190
        age(lease.raw, 80)
        lease.check()
        age(lease.raw, 110)
        assert lease.wait_lost(30)
        assert lease.lost == "expired"
        wait_until(lambda: of(events, tenure.LostEvent), 30, "the event")
        assert len(of(events, tenure.RenewedEvent)) == 1
        assert len(of(events, tenure.OverheldEvent)) == 1

    def test_reports_a_lease_that_is_held_too_long_once(self, locks: AnyLocks, events: list[tenure.Event]) -> None:
        lease = locks.lock("a", ttl=300, warn_after=100).acquire()
        for number in (1, 2, 3):
            age(lease.raw, 110)
            wait_until(lambda number=number: len(of(events, tenure.RenewedEvent)) >= number, 30, "the renewal")
        (overheld,) = wait_until(lambda: of(events, tenure.OverheldEvent), 30, "the warning")
        assert overheld.name == "a"
        assert overheld.fence == lease.fence
        assert overheld.held_for - overheld.over == pytest.approx(100)
        lease.release()


class TestByHand:
    def test_a_lease_that_nobody_renews_is_lost_at_its_deadline(
        self, locks: AnyLocks, others: AnyLocks, events: list[tenure.Event]
    ) -> None:
        began = time.monotonic()
        lease = locks.lock("a", ttl=0.3, renew=False).acquire()
        assert lease.wait_lost(30)
        took = time.monotonic() - began
        assert lease.remaining() == 0
        assert not lease.valid
        with pytest.raises(tenure.LeaseLost, match="deadline passed") as caught:
            lease.check()
        with pytest.raises(tenure.LeaseLost):
            lease.renew()
        assert caught.value.reason == "expired"
        # Not before its deadline, 1 % and 2 ms earlier than its ttl, and by the timer that was set for it.
        assert 0.29 < caught.value.held_for < took + 0.001
        taken = others.lock("a", wait=30).acquire()
        assert lease.release() is tenure.Released.GONE
        assert taken.release() is tenure.Released.RELEASED
        assert not of(events, tenure.RenewedEvent)
        # Not renewed, so by default also held too long by then.
        assert len(of(events, tenure.OverheldEvent)) <= 1

    def test_renew_moves_the_deadline_to_a_full_ttl_from_now(
        self, locks: AnyLocks, any_server: Server, namespace: str
    ) -> None:
        lease = locks.lock("a", ttl=30, renew=False).acquire()
        for _ in range(4):
            age(lease.raw, 10)
            any_server.command("PEXPIRE", f"{namespace}:a", 15_000)
            assert lease.remaining() < 20
            lease.renew()
            assert 20 < lease.remaining() < 30
            assert any_server.command("PTTL", f"{namespace}:a") > 20_000
        assert lease.held_for() >= 40
        lease.release()

    def test_renew_sets_and_never_adds(self, locks: AnyLocks, any_server: Server, namespace: str) -> None:
        lease = locks.lock("a", ttl=30, renew=False).acquire()
        for _ in range(10):
            lease.renew()
        assert lease.remaining() < 30
        assert any_server.command("PTTL", f"{namespace}:a") <= 30_320
        lease.release()

    def test_a_longer_ttl_moves_both_ends(self, locks: AnyLocks, any_server: Server, namespace: str) -> None:
        lease = locks.lock("a", ttl=30, renew=False).acquire()
        lease.renew(200)
        assert 150 < lease.remaining() < 200
        assert 150_000 < any_server.command("PTTL", f"{namespace}:a") <= 200_500
        lease.release()

    def test_a_shorter_ttl_moves_only_the_local_deadline(
        self, locks: AnyLocks, any_server: Server, namespace: str
    ) -> None:
        lease = locks.lock("a", ttl=200, renew=False).acquire()
        lease.renew(30)
        assert 10 < lease.remaining() < 30
        assert any_server.command("PTTL", f"{namespace}:a") > 150_000
        lease.release()

    def test_a_shorter_ttl_ends_then_and_frees_the_lock(self, locks: AnyLocks, others: AnyLocks) -> None:
        lease = locks.lock("a", ttl=200, renew=False).acquire()
        lease.renew(30)
        waiting = others.queue("a", ttl=5)
        age(lease.raw, 30)
        assert lease.wait_lost(30)
        assert lease.lost == "expired"
        # Long before the 200 s of its key: a loss by the deadline sends a release.
        waiting.result(30).release()

    @pytest.mark.parametrize("ttl", [0, -1, 0.001, float("nan"), True, "5", 90000])
    def test_a_bad_ttl_is_refused_and_changes_nothing(self, locks: AnyLocks, ttl: Any) -> None:  # noqa: ANN401
        lease = locks.lock("a", ttl=30, renew=False).acquire()
        with pytest.raises(tenure.ConfigError, match="ttl must be"):
            lease.renew(ttl)
        assert lease.remaining() > 20
        lease.release()

    def test_renew_of_a_key_that_is_gone_loses_and_does_not_create(
        self, locks: AnyLocks, any_server: Server, namespace: str
    ) -> None:
        lease = locks.lock("a", ttl=20, renew=False).acquire()
        any_server.command("DEL", f"{namespace}:a")
        with pytest.raises(tenure.LeaseLost, match="deleted") as caught:
            lease.renew()
        assert caught.value.reason == lease.lost == "deleted"
        assert not any_server.command("EXISTS", f"{namespace}:a")

    def test_renew_of_anothers_key_loses_and_does_not_touch_it(
        self, locks: AnyLocks, any_server: Server, namespace: str
    ) -> None:
        lease = locks.lock("a", ttl=20, renew=False).acquire()
        any_server.command("SET", f"{namespace}:a", "somebody", "PX", 15_000)
        with pytest.raises(tenure.LeaseLost, match="another client"):
            lease.renew()
        assert any_server.command("GET", f"{namespace}:a") == b"somebody"
        assert any_server.command("PTTL", f"{namespace}:a") <= 15_000
        assert lease.release() is tenure.Released.TAKEN
        assert any_server.command("GET", f"{namespace}:a") == b"somebody"

    def test_may_come_from_another_thread_or_task(self, locks: AnyLocks, flavour: Flavour) -> None:
        lease = locks.lock("a", ttl=30, renew=False).acquire()
        flavour.spawn(lease.renew, 200).result(30)
        assert lease.remaining() > 150
        lease.release()


class TestTooLateToCount:
    """A request that arrives after its own not-after has no effect, and its answer corrects the client's idea of it."""

    def test_is_sent_again(self, locks: AnyLocks) -> None:
        lease = locks.lock("a", ttl=30, renew=False).acquire()
        age(lease.raw, 20)
        behind(locks.raw, 60)
        lease.renew()
        assert lease.remaining() > 25
        lease.release()

    def test_and_no_more_than_a_few_times(self, locks: AnyLocks, monkeypatch: pytest.MonkeyPatch) -> None:
        lease = locks.lock("a", ttl=30, renew=False).acquire()
        age(lease.raw, 20)
        tries: list[Any] = []
        once = renew.renew

        async def still_behind(*args: Any, **options: Any) -> list[str]:  # noqa: ANN401 - as renew itself
            behind(locks.raw, 60)
            tries.append(args)
            return await once(*args, **options)

        monkeypatch.setattr(renew, "renew", still_behind)
        with pytest.raises(tenure.ServerError, match="too late to count; the deadline is as it was"):
            lease.renew()
        assert len(tries) == LATE_TRIES
        assert lease.remaining() < 10
        monkeypatch.undo()
        lease.release()


class TestTheDeadline:
    def test_is_never_later_than_the_servers(self, locks: AnyLocks, any_server: Server, namespace: str) -> None:
        lease = locks.lock("a", ttl=10.5, renew=False).acquire()
        for ttl in (None, 15.5):
            if ttl:
                lease.renew(ttl)
            # The server's answer is the older of the two looks: time that passes between them counts against us.
            left = any_server.command("PTTL", f"{namespace}:a") / 1000
            assert lease.remaining() + 0.002 < left
        lease.release()

    def test_on_the_server_is_an_instant_too(self, locks: AnyLocks, any_server: Server, namespace: str) -> None:
        """Held while the server's clock shows at most the expiry that was set, free 1 ms later."""
        # Its holder believes in it for longer: its own release at its deadline must not end the key first.
        lease = locks.lock("a", ttl=60, renew=False).acquire()
        any_server.command("PEXPIRE", f"{namespace}:a", 300)
        end = any_server.command("PEXPIRETIME", f"{namespace}:a")
        # Keys end by the instant at which a script begins, and TIME in it is later in Redis 7.0, as late as the machine
        # likes; so that instant is looked at from both sides.
        look = "local there = redis.call('EXISTS', KEYS[1]) local t = redis.call('TIME') return {there, t[1], t[2]}"
        seen: list[tuple[int, int, int]] = []

        def over() -> bool:
            before = milliseconds(*any_server.command("TIME"))
            there, *after = any_server.command("EVAL", look, 1, f"{namespace}:a")
            seen.append((before, there, milliseconds(*after)))
            return before > end + 20

        wait_until(over, 30, "the end of the key")
        lease.release()
        assert all(there for _, there, after in seen if after <= end), "held up to its last instant"
        assert not any(there for before, there, _ in seen if before > end), "and not longer"
