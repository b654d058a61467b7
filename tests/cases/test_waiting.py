"""Waiters that must wake, in their order, and no sooner and no busier than needed."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

import tenure
from tenure.core import schedule
from tenure.core.scripts import ACQUIRE
from tenure.runtime import clock
from tests.cases.server_side import Keys
from tests.harness.aio import run_async
from tests.harness.commands import CallCounter
from tests.harness.leases import age_waiters, wait_for_inbox
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from concurrent.futures import Future

    from tests.conformance.flavours import AnyLease, AnyLocks, Flavour
    from tests.harness.proxy import FaultProxy
    from tests.harness.servers import Server

LONG = 120.0
"""A ttl that no test waits for."""
POLL = 60.0
"""Seconds between two polls of a waiter, here where no poll is to hide that nobody has told it."""
TOLD = 30.0
"""Less than a poll, and enough for a slow machine."""


@pytest.fixture(autouse=True)
def seldom_polled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiters ask again once a minute, not every five seconds: whoever wakes sooner was told."""
    monkeypatch.setattr(schedule, "NEAR_CAP", POLL)


@pytest.fixture
def keys(valkey_server: Server, namespace: str) -> Keys:
    return Keys(valkey_server, namespace, "a")


def granted(waiting: Future[AnyLease]) -> AnyLease:
    """The lease of a waiter that is to be served now."""
    return waiting.result(TOLD)


# Wake-ups


def test_a_release_between_the_try_and_the_sleep_wakes_the_waiter(
    through: AnyLocks, others: AnyLocks, flavour: Flavour, proxy: FaultProxy, keys: Keys
) -> None:
    """The waiter slept although the lock was free: it was released between its failed try and its sleep."""
    holding = others.lock("a", ttl=LONG).acquire()
    assert through.lock("a").try_acquire(0.05) is None
    wait_for_inbox(through.raw)  # or the reply that tells it to subscribe would be held
    proxy.hold(ACQUIRE.sha)
    waiting = flavour.spawn(through.lock("a", ttl=LONG, wait=60).acquire)
    wait_until(lambda: keys.waiting() == 1, 30, "the waiter to queue")
    holding.release()
    proxy.release()
    lease = granted(waiting)
    assert keys.token() == lease.token
    lease.release()


def test_release_and_wake_up_are_one_step(
    locks: AnyLocks, flavour: Flavour, valkey_server: Server, namespace: str, keys: Keys
) -> None:
    """The signal to the waiter was a command of its own, which somebody else cleared before the waiter saw it."""
    # Patient and known to the server: nothing is sent again or announced while calls are counted.
    others = flavour.locks(valkey_server.url, namespace=namespace, server_timeout=30)
    others.lock("a").acquire().release()
    wait_for_inbox(others.raw)
    holding = others.lock("a", ttl=LONG).acquire()
    waiting = locks.queue("a", ttl=LONG, wait=60)
    with CallCounter(valkey_server.admin) as calls:
        holding.release()
        # No moment at which the lock is free and somebody waits.
        assert keys.token() not in (None, holding.token)
        lease = granted(waiting)
    assert calls.scripts == 1
    lease.release()


def test_the_last_waiter_wakes_after_its_connections_were_cut(
    through: AnyLocks, others: AnyLocks, proxy: FaultProxy, keys: Keys
) -> None:
    """After a short loss of connection nobody told the last waiter: publish and subscribe repeats nothing."""
    holding = others.lock("a", ttl=LONG).acquire()
    waiting = through.queue("a", ttl=LONG, wait=60)
    proxy.drop_pushes()
    holding.release()
    wait_until(lambda: keys.token() != holding.token, 30, "the release")
    proxy.cut_all()
    proxy.heal()
    granted(waiting).release()


def test_a_lost_message_costs_a_poll_and_not_the_ttl(through: AnyLocks, others: AnyLocks, proxy: FaultProxy) -> None:
    """The same when nothing breaks and the message alone is lost."""
    holding = others.lock("a", ttl=LONG).acquire()
    waiting = through.queue("a", ttl=LONG, wait=60)
    proxy.drop_pushes()
    holding.release()
    wait_until(lambda: proxy.pushes_dropped >= 1, 30, "the message to be lost")
    assert not waiting.done()
    age_waiters(through.raw, POLL)
    lease = granted(waiting)
    lease.check()
    lease.release()


# Order


def test_dead_waiters_in_front_cost_nothing(locks: AnyLocks, others: AnyLocks, keys: Keys) -> None:
    """A fair queue was blocked for hours: every waiter that had died added its time-out."""
    holding = others.lock("a", ttl=LONG).acquire()
    keys.dead_waiters(20)
    waiting = locks.queue("a", ttl=LONG, wait=60)
    holding.release()
    granted(waiting).release()
    keys.wait_free()


def test_a_waiter_that_was_dropped_from_the_queue_comes_back(
    locks: AnyLocks, others: AnyLocks, valkey_server: Server, keys: Keys
) -> None:
    """A waiter that lost its place in the queue slept for ever."""
    holding = others.lock("a", ttl=LONG).acquire()
    waiting = locks.queue("a", ttl=LONG, wait=60)
    valkey_server.command("DEL", keys.queue, keys.entry)
    age_waiters(locks.raw, POLL)
    wait_until(lambda: keys.waiting() == 1, 30, "the waiter to be back in the queue")
    holding.release()
    granted(waiting).release()


def test_the_first_waiter_wakes_when_the_holder_just_expires(locks: AnyLocks, keys: Keys) -> None:
    """Waiters woke on a release only: a holder that died left them asleep."""
    keys.dead_holder(400)
    waiting = locks.queue("a", ttl=LONG, wait=60)
    granted(waiting).release()


def test_late_comers_do_not_win(locks: AnyLocks, others: AnyLocks, keys: Keys) -> None:
    """Whoever came at the right moment won, again and again, over those who waited."""
    holding = others.lock("a", ttl=LONG).acquire()
    waiting = locks.queue("a", ttl=LONG, wait=60)
    third = others.lock("a", ttl=LONG)
    holding.release()
    assert third.try_acquire() is None
    second = others.queue("a", ttl=LONG, wait=60)
    lease = granted(waiting)
    assert third.try_acquire() is None
    lease.release()
    latest = granted(second)
    assert latest.fence > lease.fence > holding.fence
    latest.release()


# What is granted has to be worth something


def test_a_grant_that_comes_after_its_own_end_is_not_handed_out(
    through: AnyLocks, others: AnyLocks, proxy: FaultProxy, keys: Keys
) -> None:
    """The lock was "granted" to a waiter whose lease had died meanwhile."""
    holding = others.lock("a", ttl=LONG).acquire()
    waiting = through.queue("a", ttl=0.4, wait=60)
    proxy.partition()
    holding.release()
    wait_until(lambda: keys.left_ms() == -2, 30, "the grant to have ended unseen")
    between = others.lock("a", ttl=LONG).acquire()
    proxy.heal()
    with pytest.raises(TimeoutError):
        waiting.result(0.3)
    freed_at = clock.now()
    between.release()
    lease = granted(waiting)
    assert lease.raw._hold.deadline > freed_at
    assert lease.fence > between.fence
    lease.release()


def test_a_lease_is_counted_from_the_try_that_won(locks: AnyLocks, others: AnyLocks) -> None:
    """The lock was returned already expired: its time was counted from the first try."""
    holding = others.lock("a", ttl=LONG).acquire()
    began = clock.now()
    waiting = locks.queue("a", ttl=0.4, wait=60, renew=False)
    travelled = clock.now() - began
    wait_until(lambda: clock.now() - began - travelled > 0.6, 30, "more than the waiter's ttl")
    freed_at = clock.now()
    holding.release()
    lease = granted(waiting)
    # What the way of its last request to the server took is missing, but no more than a grant has to be good for.
    assert freed_at + 0.4 / 3 <= lease.raw._hold.deadline < clock.now() + 0.4
    lease.release()


# While waiting


def test_the_event_loop_runs_while_a_task_waits(url: str, namespace: str) -> None:
    """The whole event loop froze while one task waited."""

    async def main() -> None:
        async with (
            tenure.AsyncLocks(url, namespace=namespace) as locks,
            tenure.AsyncLocks(url, namespace=namespace) as others,
            others.lock("a"),
        ):
            waiting = asyncio.create_task(locks.lock("a").try_acquire(30))
            looks = 0
            while not (await others.waiters("a") or waiting.done()):
                looks += 1
            for _ in range(20):
                await asyncio.sleep(0.01)
            assert not waiting.done(), f"the loop came to its other work {looks} times while the task waited"
            waiting.cancel()
            await asyncio.wait([waiting])

    run_async(main)


@pytest.mark.parametrize("jump", [-3600, 3600])
def test_a_wait_ends_in_time_though_the_clock_is_set(
    locks: AnyLocks, others: AnyLocks, keys: Keys, monkeypatch: pytest.MonkeyPatch, jump: int
) -> None:
    """Waits ended early or late when somebody set the clock."""
    holding = others.lock("a", ttl=LONG).acquire()
    real = time.time
    began = time.monotonic()
    asked = iter(range(1_000_000))
    # Each look at the clock finds it an hour further off.
    monkeypatch.setattr(time, "time", lambda: real() + jump * next(asked))
    assert locks.lock("a").try_acquire(0.3) is None
    assert 0.3 <= time.monotonic() - began < 30
    lease = locks.lock("b", ttl=LONG, renew=False).acquire()
    lease.renew()
    assert LONG / 2 < lease.remaining() <= LONG
    monkeypatch.undo()
    lease.release()
    holding.release()


def test_waiting_without_messages_is_not_a_busy_loop(through: AnyLocks, others: AnyLocks, proxy: FaultProxy) -> None:
    """100 % CPU, and a missed wake-up, while the connection that listens came and went."""
    holding = others.lock("a", ttl=LONG).acquire()
    waiting = through.queue("a", ttl=LONG, wait=60)
    before = len(proxy.seen)
    for cut in range(1, 4):
        made = proxy.connections_made
        proxy.cut_all()
        wait_until(lambda made=made: proxy.connections_made > made, 30, f"a new connection after cut {cut}")
    proxy.drop_pushes()
    since = time.monotonic()
    wait_until(lambda: time.monotonic() - since > 1.0, 30, "a second")
    assert len(proxy.seen) - before < 100
    proxy.heal()
    holding.release()
    granted(waiting).release()
