"""A lease is lost now; a reply is lost next: on real servers, in both flavours."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, cast

import pytest

import tenure
from tenure.testing import jump, lose, lose_next_reply
from tests.harness.aio import run_async
from tests.harness.waiting import wait_until, wait_until_async

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tenure.testing.losing import Reason
    from tests.harness.servers import Server

REASONS: list[Reason] = ["taken", "deleted", "revoked", "expired"]


@pytest.fixture
def locks(url: str, namespace: str) -> Iterator[tenure.Locks]:
    # Patient: a request that is given up and sent again takes its connection along.
    with tenure.Locks(url, namespace=namespace, server_timeout=30) as made:
        yield made


@pytest.mark.parametrize("renew", [True, False])
@pytest.mark.parametrize("reason", REASONS)
def test_a_lease_is_lost_at_once(reason: Reason, locks: tenure.Locks, *, renew: bool) -> None:
    told: list[tenure.Lease] = []
    lease = locks.lock("n", ttl=30, renew=renew, on_lost=told.append).acquire()
    lose(lease, reason)
    assert lease.lost == reason
    assert lease.wait_lost(0)
    with pytest.raises(tenure.LeaseLost) as caught:
        lease.check()
    assert caught.value.reason == reason
    wait_until(lambda: told == [lease])
    assert locks.statistics().lost == 1


@pytest.mark.parametrize("reason", REASONS)
def test_afterwards_the_lock_is_free_or_a_strangers(reason: Reason, locks: tenure.Locks) -> None:
    lease = locks.lock("n").acquire()
    lose(lease, reason)
    if reason == "taken":
        holder = locks.holder("n")
        assert holder is not None
        assert holder.foreign
        assert holder.expires_in is not None
        assert lease.release() is tenure.Released.TAKEN
    else:
        # A broken lock is free once its holder has let go; a deleted one is free already.
        assert lease.release() is tenure.Released.GONE
        with locks.lock("n", wait=30) as after:
            assert after.fence > lease.fence


@pytest.mark.parametrize("reason", REASONS)
def test_the_body_of_an_asyncio_block_is_cancelled(reason: Reason, url: str, namespace: str) -> None:
    async def main() -> None:
        async with tenure.AsyncLocks(url, namespace=namespace) as locks, locks.lock("n") as lease:
            lose(lease, reason)
            await asyncio.sleep(30)

    with pytest.raises(tenure.LeaseLost) as caught:
        run_async(main)
    assert caught.value.reason == reason


def test_tampering_is_told_as_such(url: str, namespace: str) -> None:
    told: list[tenure.Event] = []
    with tenure.Locks(url, namespace=namespace, hooks=[told.append]) as locks:
        lose(locks.lock("n").acquire(), "deleted")
        wait_until(lambda: any(isinstance(event, tenure.TamperedEvent) for event in told))


def test_only_a_lease_that_is_held_can_be_lost(locks: tenure.Locks) -> None:
    with locks.lock("n") as lease:
        pass
    with pytest.raises(tenure.NotHeld):
        lose(lease)
    with locks.lock("n") as lease, pytest.raises(tenure.ConfigError, match="reason must be one of"):
        lose(lease, cast("Reason", "forked"))


def test_others_keep_theirs(locks: tenure.Locks) -> None:
    with locks.lock("kept") as kept:
        lose(locks.lock("n").acquire())
        kept.renew()
        kept.check()


# The next reply


def test_the_server_has_done_what_was_asked(locks: tenure.Locks, valkey_server: Server, namespace: str) -> None:
    with lose_next_reply(locks) as lost:
        assert lost.request is None
        with locks.lock("n") as lease:
            assert lost.request == "acquire"
            assert valkey_server.command("GET", f"{namespace}:n")
            # Granted once, and found again by the second try: no second fence was given.
            assert int(valkey_server.command("GET", f"{{{namespace}:n}}:fence")) == lease.fence
    assert locks.statistics().broken_connections == 0
    assert locks.holder("n") is None


def test_a_release_whose_reply_is_lost(locks: tenure.Locks) -> None:
    lease = locks.lock("n").acquire()
    with lose_next_reply(locks) as lost:
        assert lease.release() is tenure.Released.RELEASED
    assert lost.request == "release"


def test_only_one_reply_and_only_within_the_block(locks: tenure.Locks) -> None:
    with lose_next_reply(locks) as lost:
        pass
    with locks.lock("n"):
        pass
    assert lost.request is None
    with lose_next_reply(locks) as lost, locks.lock("n") as lease:
        lost.request = None
        lease.renew()
        assert lost.request == "renew"


def test_in_asyncio(url: str, namespace: str) -> None:
    async def main() -> None:
        async with tenure.AsyncLocks(url, namespace=namespace) as locks:
            with lose_next_reply(locks) as lost:
                async with locks.lock("n") as lease:
                    assert lost.request == "acquire"
                    assert lease.valid
            with lose_next_reply(locks) as lost:
                task = asyncio.create_task(locks.lock("n").acquire())
                await wait_until_async(lambda: lost.request is not None)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            assert await (await locks.lock("n", wait=30).acquire()).release() is tenure.Released.RELEASED

    run_async(main)


def test_asyncio_needs_a_loop(url: str) -> None:
    locks = tenure.AsyncLocks(url)
    with pytest.raises(tenure.ConfigError, match="coroutine"):
        lose_next_reply(locks)
    locks.end_at_exit()


# The clock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts the clock back at the end, when all that has seen it ahead is closed."""
    from tenure.runtime import clock as module  # noqa: PLC0415

    monkeypatch.setattr(module, "now", module.now)


def test_a_deadline_passes(clock: None, locks: tenure.Locks) -> None:
    lease = locks.lock("n", ttl=3000, renew=False).acquire()
    jump(2900)
    assert 0 < lease.remaining() < 100
    jump(100)
    assert lease.remaining() == 0
    assert lease.wait_lost(30)
    assert lease.lost == "expired"
    assert lease.held_for() >= 3000
    # The key is given up, although its ttl on the server is not over.
    assert locks.lock("n", wait=30).acquire().release() is tenure.Released.RELEASED


def test_what_is_due_happens(clock: None, url: str, namespace: str) -> None:
    told: list[tenure.Event] = []
    with (
        tenure.Locks(url, namespace=namespace, hooks=[told.append]) as locks,
        locks.lock("n", ttl=3000, warn_after=500) as lease,
    ):
        jump(2000)
        # Well before the hub would have looked by itself.
        wait_until(lambda: {type(event) for event in told} >= {tenure.RenewedEvent, tenure.OverheldEvent})
        assert lease.remaining() > 2500


def test_max_hold_ends_renewal(clock: None, locks: tenure.Locks) -> None:
    lease = locks.lock("n", ttl=3000, max_hold=6000).acquire()
    jump(2000)
    wait_until(lambda: lease.remaining() > 2500)
    jump(2000)
    wait_until(lambda: lease.remaining() > 2500)
    jump(2900)
    assert lease.valid
    jump(100)
    assert lease.wait_lost(30)


@pytest.mark.parametrize("asynchronous", [True, False])
def test_the_patience_of_a_waiter_ends(clock: None, locks: tenure.Locks, url: str, *, asynchronous: bool) -> None:
    errors: list[tenure.NotAcquired] = []

    async def wait() -> None:
        async with tenure.AsyncLocks(url, namespace=locks.namespace) as others:
            with pytest.raises(tenure.NotAcquired) as caught:
                await others.lock("n", wait=3600).acquire()
            errors.append(caught.value)

    def work() -> None:
        if asynchronous:
            asyncio.run(wait())
            return
        with tenure.Locks(url, namespace=locks.namespace) as others:
            with pytest.raises(tenure.NotAcquired) as caught:
                others.lock("n", wait=3600).acquire()
            errors.append(caught.value)

    thread = threading.Thread(target=work)
    with locks.lock("n", ttl=7200):
        thread.start()
        wait_until(lambda: locks.waiters("n"))
        jump(3600)
        thread.join(30)
        assert not thread.is_alive()
    assert errors[0].waited >= 3600


@pytest.mark.parametrize("wrong", [0, -1, float("inf"), "1", True])
def test_only_forwards(wrong: float) -> None:
    with pytest.raises(tenure.ConfigError):
        jump(wrong)
