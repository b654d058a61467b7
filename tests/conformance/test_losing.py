# ruff: noqa: PT012 - how a block of several statements ends is what is shown
"""Losing a lease: why, who is told, how often, and how a block ends."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

import tenure
from tests.harness.leases import age, renew_now
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from tests.conformance.flavours import AnyLease, AnyLocks, Flavour
    from tests.harness.servers import Server


class Loser:
    """Ways for an operator, a stranger or time to end a lease of the lock "a"."""

    def __init__(self, server: Server, namespace: str, others: AnyLocks) -> None:
        self._server = server
        self._key = f"{namespace}:a"
        self._others = others

    def lose(self, why: str, lease: AnyLease) -> None:
        """Ends the lease for this reason, and has the hub find out."""
        if why == "expired":
            # Its deadline may pass before the call has returned, which says so.
            with contextlib.suppress(tenure.LeaseLost):
                lease.renew(0.1)
            return
        if why == "deleted":
            self._server.command("DEL", self._key)
        elif why == "taken":
            self._server.command("SET", self._key, "somebody else", "PX", 20000)
        else:
            assert why == "revoked"
            assert self._others.break_lock("a", lease.fence) is not None
        renew_now(lease.raw)


REASONS = ["deleted", "taken", "revoked", "expired"]
KINDS = {
    "deleted": tenure.TamperedEvent,
    "taken": tenure.TamperedEvent,
    "revoked": tenure.LostEvent,
    "expired": tenure.LostEvent,
}


@pytest.fixture
def loser(any_server: Server, namespace: str, others: AnyLocks) -> Loser:
    return Loser(any_server, namespace, others)


def losses(events: list[tenure.Event]) -> list[Any]:
    return [event for event in list(events) if isinstance(event, tenure.LostEvent)]


@pytest.mark.parametrize("why", REASONS)
def test_a_loss_is_told_once_to_everybody(
    locks: AnyLocks,
    loser: Loser,
    events: list[tenure.Event],
    why: str,
    caplog: pytest.LogCaptureFixture,
    flavour: Flavour,
) -> None:
    caplog.set_level(logging.INFO, "tenure")
    told: list[Any] = []
    lock = locks.lock("a", ttl=60, renew=why != "expired", warn_after=120, on_lost=told.append)
    began = time.monotonic()
    lease = lock.acquire()
    lease.on_lost(told.append)
    waiting = flavour.spawn(lease.wait_lost, 30)
    loser.lose(why, lease)
    assert lease.wait_lost(30)
    assert waiting.result(30)
    assert lease.lost == why
    assert not lease.valid
    assert lease.remaining() == 0
    with pytest.raises(tenure.LeaseLost, match="'a' was lost after") as caught:
        lease.check()
    assert (caught.value.names, caught.value.reason) == (("a",), why)
    wait_until(lambda: len(told) >= 2 and losses(events), 30, "callbacks and hook")
    assert told == [lease.raw, lease.raw]
    # A callback that comes late is called at once.
    lease.on_lost(told.append)
    wait_until(lambda: len(told) == 3, 30, "the late callback")
    assert lease.release() is (tenure.Released.TAKEN if why == "taken" else tenure.Released.GONE)
    (event,) = losses(events)
    assert type(event) is KINDS[why]
    assert (event.name, event.fence, event.reason) == ("a", lease.fence, why)
    assert 0 <= event.held_for <= time.monotonic() - began
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert record.__dict__["tenure_event"] == ("tampered" if KINDS[why] is tenure.TamperedEvent else "lost")
    assert record.__dict__["tenure_reason"] == why
    assert locks.statistics().lost == 1
    assert locks.statistics().held == 0


def test_a_revoked_lock_is_free_once_its_holder_was_told_and_has_let_go(
    locks: AnyLocks, others: AnyLocks, any_server: Server, namespace: str
) -> None:
    # The first lease of a client is granted before it has an inbox; its next renewal is 40 s away.
    lease = locks.lock("a", ttl=120).acquire()
    next_one = others.queue("a")
    wait_until(lambda: b" x@" in any_server.command("GET", f"{namespace}:a"), 30, "the first client's inbox")
    others.break_lock("a")
    assert lease.wait_lost(30)
    assert lease.lost == "revoked"
    # Told, but perhaps still stopping: the next one must not begin before this one has ended.
    assert others.lock("a").try_acquire() is None
    assert lease.release() is tenure.Released.GONE
    next_one.result(30).release()


def test_callbacks_that_raise_or_block_disturb_nobody(
    locks: AnyLocks, loser: Loser, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[Any] = []
    blocking, go_on = threading.Event(), threading.Event()

    def slow(lease: object) -> None:
        # In asyncio it runs on the loop's thread, which stands still until then.
        blocking.set()
        go_on.wait(30)

    def bad(lease: object) -> None:
        raise ZeroDivisionError

    lease = locks.lock("a", ttl=60, on_lost=slow).acquire()
    kept = locks.lock("b", ttl=60).acquire()
    lease.on_lost(bad)
    lease.on_lost(told.append)
    loser.lose("deleted", lease)
    assert blocking.wait(30)
    # The loop being blocked, only what needs no I/O may be asked.
    age(kept.raw, 30)
    wait_until(lambda: kept.remaining() > 40, 30, "the other lease to be renewed meanwhile")
    go_on.set()
    wait_until(lambda: told, 30, "the callback behind the bad ones")
    kept.release()
    # In blocking code each of them has a thread of its own.
    wait_until(lambda: "a callback raised" in caplog.text, 30, "the log of the bad one")


def test_a_hook_that_raises_is_logged_and_the_others_are_told(
    flavour: Flavour, any_url: str, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[tenure.Event] = []

    def bad(event: tenure.Event) -> None:
        raise ZeroDivisionError

    locks = flavour.locks(any_url, namespace=namespace, hooks=[bad, told.append])
    locks.lock("a").acquire().release()
    assert [type(event) for event in told] == [tenure.GrantedEvent, tenure.ReleasedEvent]
    assert "ZeroDivisionError" in caplog.text


def test_a_key_that_vanishes_before_the_release_is_tampering_too(
    locks: AnyLocks, any_server: Server, namespace: str, events: list[tenure.Event]
) -> None:
    lease = locks.lock("a", ttl=60).acquire()
    any_server.command("DEL", f"{namespace}:a")
    assert lease.release() is tenure.Released.GONE
    assert lease.lost == "deleted"
    (event,) = wait_until(lambda: losses(events), 30, "the event")
    assert type(event) is tenure.TamperedEvent


class TestLeavingABlock:
    @pytest.mark.parametrize("why", REASONS)
    def test_whose_lease_was_lost_raises(self, locks: AnyLocks, loser: Loser, why: str) -> None:
        lock = locks.lock("a", ttl=60, renew=why != "expired", warn_after=120)
        with pytest.raises(tenure.LeaseLost) as caught, lock.block() as lease:
            loser.lose(why, lease)
            assert lease.wait_lost(30)
        assert caught.value.reason == why
        assert caught.value.names == ("a",)

    def test_with_an_error_of_its_own_lets_that_win_with_a_note(self, locks: AnyLocks, loser: Loser) -> None:
        with pytest.raises(ZeroDivisionError) as caught, locks.lock("a", ttl=60).block() as lease:
            loser.lose("deleted", lease)
            assert lease.wait_lost(30)
            raise ZeroDivisionError
        (note,) = caught.value.__notes__
        assert "'a' was lost" in note

    @pytest.mark.parametrize("own", [True, False], ids=["error", "no error"])
    def test_can_be_told_to_note_only(self, locks: AnyLocks, loser: Loser, own: bool) -> None:
        def body() -> None:
            with locks.lock("a", ttl=60, on_exit_lost="note").block() as lease:
                loser.lose("deleted", lease)
                assert lease.wait_lost(30)
                if own:
                    raise ZeroDivisionError

        if own:
            with pytest.raises(ZeroDivisionError) as caught:
                body()
            assert "'a' was lost" in caught.value.__notes__[0]
        else:
            body()

    def test_that_finds_the_key_gone_on_release_raises(
        self, locks: AnyLocks, any_server: Server, namespace: str
    ) -> None:
        with pytest.raises(tenure.LeaseLost, match="deleted"), locks.lock("a", ttl=60).block():
            any_server.command("DEL", f"{namespace}:a")

    def test_does_not_touch_the_next_holder(self, locks: AnyLocks, others: AnyLocks, loser: Loser) -> None:
        taken: list[AnyLease] = []
        with pytest.raises(tenure.LeaseLost), locks.lock("a", ttl=60, renew=False).block() as lease:
            age(lease.raw, 60)
            assert lease.wait_lost(30)
            taken.append(others.lock("a", wait=30).acquire())
        assert taken[0].release() is tenure.Released.RELEASED

    def test_of_a_decorated_function_raises_too(self, locks: AnyLocks, any_server: Server, namespace: str) -> None:
        def job() -> None:
            any_server.command("DEL", f"{namespace}:a")

        with pytest.raises(tenure.LeaseLost, match="deleted"):
            locks.lock("a", ttl=20).decorate(job)()


def test_events_tell_the_daily_round(locks: AnyLocks, others: AnyLocks, events: list[tenure.Event]) -> None:
    began = time.monotonic()
    held = others.lock("a", ttl=60).acquire()
    assert locks.lock("a").try_acquire() is None
    waiting = locks.queue("a", ttl=60)
    held.release()
    lease = waiting.result(30)
    identity = locks.holder("a")
    assert identity is not None
    lease.release()
    kinds = [type(event) for event in events]
    assert kinds == [tenure.WaitedEvent, tenure.WaitedEvent, tenure.GrantedEvent, tenure.ReleasedEvent]
    failed, waited, granted, released = events
    assert isinstance(failed, tenure.WaitedEvent)
    assert (failed.granted, failed.fence) == (False, None)
    assert isinstance(waited, tenure.WaitedEvent)
    assert isinstance(granted, tenure.GrantedEvent)
    assert waited.granted
    assert granted.waited == waited.waited > 0
    assert isinstance(released, tenure.ReleasedEvent)
    assert 0 <= released.held_for <= time.monotonic() - began
    assert {event.id for event in events[1:]} == {identity.id}
    assert {event.fence for event in events[1:]} == {lease.fence}


def test_a_release_that_is_refused_does_not_hide_the_bodys_error(
    locks: AnyLocks, any_server: Server, namespace: str
) -> None:
    with pytest.raises(ZeroDivisionError), locks.lock("a", ttl=60).block():
        any_server.command("RPUSH", f"{{{namespace}:a}}:queue", "no queue of ours")
        raise ZeroDivisionError
    assert any_server.command("DEL", f"{{{namespace}:a}}:queue")
