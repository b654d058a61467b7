"""Replies that never came, calls that were cancelled, servers that went away in the middle."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from typing import TYPE_CHECKING

import pytest

import tenure
from tenure.core.scripts import ACQUIRE, RELEASE, RENEW
from tests.cases.server_side import Keys
from tests.harness.aio import run_async
from tests.harness.leases import age
from tests.harness.servers import free_port
from tests.harness.waiting import wait_until, wait_until_async

if TYPE_CHECKING:
    from tests.conformance.flavours import AnyLocks, Flavour
    from tests.harness.proxy import FaultProxy
    from tests.harness.servers import Server

LONG = 120.0
"""A ttl that no test waits for."""


@pytest.fixture
def keys(valkey_server: Server, namespace: str) -> Keys:
    return Keys(valkey_server, namespace, "a")


def test_a_try_whose_reply_was_lost_is_not_called_busy(through: AnyLocks, proxy: FaultProxy, keys: Keys) -> None:
    """acquire() said "busy", and the key held the caller's own token until its ttl."""
    fault = proxy.drop_next_reply(ACQUIRE.sha)
    lease = through.lock("a", ttl=LONG).try_acquire()
    fault.wait()
    assert lease is not None
    assert keys.token() == lease.token
    assert lease.release() is tenure.Released.RELEASED
    keys.wait_free()


def test_a_release_whose_reply_was_lost_raises_nothing(through: AnyLocks, proxy: FaultProxy, keys: Keys) -> None:
    """release() raised "not owned" although it had worked."""
    lease = through.lock("a", ttl=LONG).acquire()
    fault = proxy.drop_next_reply(RELEASE.sha)
    assert lease.release() is tenure.Released.RELEASED
    fault.wait()
    assert lease.lost is None
    keys.wait_free()


def test_a_renewal_whose_reply_was_lost_does_not_add_twice(through: AnyLocks, proxy: FaultProxy, keys: Keys) -> None:
    """extend(10) added 20 seconds, because the client library had sent it again."""
    lease = through.lock("a", ttl=LONG, renew=False).acquire()
    fault = proxy.drop_next_reply(RENEW.sha)
    lease.renew(300)
    fault.wait()
    assert 240_000 < keys.left_ms() <= 300_500
    assert lease.remaining() <= 300
    lease.release()


def test_a_cancelled_acquire_leaves_no_key(proxy: FaultProxy, namespace: str, keys: Keys) -> None:
    """A task that was cancelled between request and reply left the key held for its whole ttl."""

    async def main() -> None:
        async with tenure.AsyncLocks(proxy.url, namespace=namespace) as locks:
            await (await locks.lock("a").acquire()).release()
            proxy.hold(ACQUIRE.sha)
            task = asyncio.create_task(locks.lock("a", ttl=LONG).acquire())
            await wait_until_async(lambda: keys.left_ms() > 0, 30, "the server to have granted")
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            proxy.release()
            await wait_until_async(lambda: keys.left_ms() == -2, 30, "the key to be gone")

    run_async(main)


def test_an_interrupted_acquire_leaves_no_key(proxy: FaultProxy, namespace: str, keys: Keys) -> None:
    """Ctrl-C between request and reply left the key held for its whole ttl."""
    if threading.current_thread() is not threading.main_thread():
        pytest.skip("signals reach the main thread only")
    with tenure.Locks(proxy.url, namespace=namespace) as locks:
        locks.lock("a").acquire().release()
        proxy.hold(ACQUIRE.sha)

        def interrupt() -> None:
            # In the name of a user at the keyboard, once the server has granted.
            wait_until(lambda: keys.left_ms() > 0, 30, "the server to have granted")
            os.kill(os.getpid(), signal.SIGINT)

        user = threading.Thread(target=interrupt)
        user.start()
        with pytest.raises(KeyboardInterrupt):
            locks.lock("a", ttl=LONG).acquire()
        user.join()
        proxy.release()
        keys.wait_free()


def used(locks: AnyLocks) -> bool:
    """Whether the lock could be had and given back; a slow machine may need longer than these locks have patience."""
    try:
        locks.lock("a").acquire().release()
    except tenure.ServerUnavailable:
        return False
    return True


def test_an_acquire_that_ran_out_of_time_leaves_no_key(
    proxy: FaultProxy, flavour: Flavour, namespace: str, keys: Keys
) -> None:
    """The lock stuck until its ttl whenever a request timed out, for the cleanup was part of what had timed out."""
    # So long goes the undo on as well.
    locks = flavour.locks(proxy.url, namespace=namespace, server_timeout=3)
    wait_until(lambda: used(locks), 30, "a round within the time-out")
    proxy.hold(ACQUIRE.sha)
    with pytest.raises(tenure.ServerUnavailable):
        locks.lock("a", ttl=LONG).acquire()
    proxy.heal()
    keys.wait_free()


def test_a_timeout_around_an_acquire_leaves_no_key(proxy: FaultProxy, namespace: str, keys: Keys) -> None:
    """The same with the caller's own time-out, `asyncio.timeout`."""

    async def main() -> None:
        async with tenure.AsyncLocks(proxy.url, namespace=namespace) as locks:
            await (await locks.lock("a").acquire()).release()
            proxy.hold(ACQUIRE.sha)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await locks.lock("a", ttl=LONG).acquire()
            proxy.release()
            await wait_until_async(lambda: keys.left_ms() == -2, 30, "the key to be gone")

    run_async(main)


def test_a_release_that_failed_can_be_tried_again(
    proxy: FaultProxy, flavour: Flavour, namespace: str, keys: Keys
) -> None:
    """After a failed release the lock could not be released any more: the token had been forgotten."""
    lease = flavour.locks(proxy.url, namespace=namespace, server_timeout=2.5).lock("a", ttl=LONG).acquire()
    proxy.blackhole()
    with pytest.raises(tenure.ServerUnavailable):
        lease.release()
    assert keys.token() == lease.token
    proxy.heal()
    assert lease.release() is tenure.Released.RELEASED
    assert lease.lost is None
    keys.wait_free()


def test_a_release_that_was_cancelled_can_be_tried_again(proxy: FaultProxy, namespace: str, keys: Keys) -> None:
    """The same for a release that was cancelled."""

    async def main() -> None:
        async with tenure.AsyncLocks(proxy.url, namespace=namespace) as locks:
            await (await locks.lock("a").acquire()).release()
            lease = await locks.lock("a", ttl=LONG).acquire()
            proxy.hold_requests(RELEASE.sha)
            task = asyncio.create_task(lease.release())
            await wait_until_async(lambda: proxy.count(RELEASE.sha) > 1, 30, "the request")
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            proxy.release()
            assert await lease.release() is tenure.Released.RELEASED
            await wait_until_async(lambda: keys.left_ms() == -2, 30, "the key to be gone")
            assert lease.lost is None

    run_async(main)


def test_a_failed_renewal_is_tried_again_before_the_deadline(
    through: AnyLocks, proxy: FaultProxy, events: list[tenure.Event]
) -> None:
    """One failed renewal ended all renewal, in silence."""
    lease = through.lock("a", ttl=LONG).acquire()

    def renewals(before: int = 0) -> int:
        return sum(isinstance(event, tenure.RenewedEvent) for event in events) - before

    dropped = proxy.drop_next_reply(RENEW.sha)
    age(lease.raw, LONG / 3 + 1)
    dropped.wait()
    wait_until(renewals, 60, "a renewal behind the lost reply")
    refused = proxy.replace_next_reply(RENEW.sha, b"-ERR something odd\r\n")
    age(lease.raw, LONG / 3 + 1)
    refused.wait()
    wait_until(lambda: any(isinstance(event, tenure.RenewFailedEvent) for event in events), 30, "the failure")
    # Several tries fit into what is left of the lease.
    before = renewals()
    age(lease.raw, LONG / 6)
    wait_until(lambda: renewals(before), 30, "a renewal behind the error")
    assert lease.held_for() > 0.8 * LONG
    lease.check()
    lease.release()


def test_without_a_server_nobody_gets_a_lease(flavour: Flavour) -> None:
    """Two schedulers fired after a server error, for an exception counted as "I am the leader"."""
    locks = flavour.locks(f"redis://127.0.0.1:{free_port()}", server_timeout=0.3)
    ran: list[str] = []
    with pytest.raises(tenure.ServerUnavailable), locks.lock("a", wait=0).block():
        ran.append("the body")
    with pytest.raises(tenure.ServerUnavailable):
        locks.lock("a").try_acquire()
    assert ran == []


def test_a_holder_without_a_server_stops_at_its_own_deadline(through: AnyLocks, proxy: FaultProxy) -> None:
    """The holder went on as the leader while its server was away."""
    lease = through.lock("a", ttl=0.5).acquire()
    proxy.blackhole()
    assert lease.wait_lost(30)
    with pytest.raises(tenure.LeaseLost) as caught:
        lease.check()
    assert caught.value.reason == "expired"
    proxy.heal()
