"""Rows 29 to 34: the reply to acquire, renew or release is lost, cut, late, or an error; what happened is unknown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import pytest

from tenure import LeaseLost, Released, ServerError, ServerUnavailable
from tenure.core.scripts import RENEW
from tenure.runtime import clock
from tests.faults.support import (
    FLAVOURS,
    REQUEST_TIMEOUT,
    SERVER_TIMEOUT,
    SLACK,
    UNHURRIED,
    Driver,
    Stopwatch,
    key_fence,
    traces,
    wait_clean,
    wait_queued,
)
from tests.harness.leases import age_waiters, renew_now
from tests.harness.waiting import wait_until
from tests.harness.wire import ReplyFault

if TYPE_CHECKING:
    from tests.faults.support import Flavour
    from tests.harness.proxy import FaultProxy
    from tests.harness.servers import Server

NAME = "doubtful"
SCRIPT = NAME.encode()
"""Script calls about the lock are told by their keys."""
Loss = Literal["rst", "close", "silence", "cut"]
LOSSES: tuple[Loss, ...] = ("rst", "close", "silence", "cut")
BOTH = pytest.mark.parametrize("flavour", FLAVOURS)
LOST = pytest.mark.parametrize("loss", LOSSES)


def lose_reply(proxy: FaultProxy, loss: Loss, *, times: int | None = 1) -> ReplyFault:
    """Lose the next reply about the lock after the server has done the work."""
    if loss == "cut":
        return proxy.cut_next_reply(SCRIPT)
    return proxy.drop_next_reply(SCRIPT, then=loss, times=times)


def keep_a_copy(proxy: FaultProxy, loss: Loss) -> list[bytes]:
    """Lose the next reply about the lock, but show it to the test."""
    lost: list[bytes] = []

    def change(reply: bytes) -> bytes:
        lost.append(reply)
        return reply[: len(reply) // 2] if loss == "cut" else b""

    proxy._add(ReplyFault(SCRIPT, 0, 1, change=change, end="close" if loss == "cut" else loss))
    return lost


@BOTH
@LOST
def test_row_31_an_acquire_whose_reply_is_lost_succeeds_with_the_same_fence(
    valkey_server: Server, proxy: FaultProxy, namespace: str, flavour: Flavour, loss: Loss
) -> None:
    # A request that comes late is refused, and what it would have been granted is granted to the next one.
    with Driver(flavour, proxy.url, namespace, server_timeout=30, request_timeout=3) as driver:
        driver.warm()
        lost = keep_a_copy(proxy, loss)
        lease = driver.acquire(NAME)
        assert len(lost) == 1, "no reply was lost"
        assert str(lease.fence).encode() in lost[0], "a second grant: the first one was a lease that nobody has"
        assert key_fence(valkey_server, namespace, NAME) == lease.fence
        assert driver.holder_fence(NAME) == lease.fence
        assert driver.release(lease) is Released.RELEASED
        assert not traces(valkey_server, namespace)


@BOTH
@pytest.mark.parametrize("loss", ["rst", "silence"])
def test_row_31_an_acquire_that_never_gets_a_reply_leaves_nothing(
    valkey_server: Server, proxy: FaultProxy, namespace: str, flavour: Flavour, loss: Loss
) -> None:
    with Driver(flavour, proxy.url, namespace) as driver:
        driver.warm()
        fault = lose_reply(proxy, loss, times=None)
        strikes = 0
        # Once more where the machine stood still for so long that there was no time for a second try.
        for _ in range(3):
            before, watch = fault.strikes, Stopwatch()
            with driver.hurried(), pytest.raises(ServerUnavailable):
                driver.acquire(NAME, wait=None)
            assert watch.seconds <= SERVER_TIMEOUT + SLACK
            strikes = fault.strikes - before
            if strikes >= 2:
                break
        assert strikes >= 2, "given up without a second try"
        proxy.heal()
        wait_clean(valkey_server, namespace)
        lease = driver.acquire(NAME, wait=0)
        assert driver.holder_fence(NAME) == lease.fence
        driver.release(lease)
    assert not traces(valkey_server, namespace)


@BOTH
@LOST
def test_row_31_a_queueing_request_whose_reply_is_lost_keeps_one_place(
    valkey_server: Server, proxy: FaultProxy, namespace: str, flavour: Flavour, loss: Loss
) -> None:
    with (
        Driver("blocking", valkey_server.url, namespace) as holding,
        Driver(flavour, proxy.url, namespace) as driver,
    ):
        held = holding.acquire(NAME)
        assert driver.soon(driver.lock(NAME).try_acquire).result(30) is None
        driver.soon(driver.lock(NAME, wait=0.01).acquire).exception(30)
        fault = lose_reply(proxy, loss)
        grant = driver.soon(driver.lock(NAME).acquire)
        fault.wait()
        wait_queued(valkey_server, namespace, NAME, 1)
        holding.release(held)
        lease = grant.result(30)
        assert lease.fence > held.fence
        assert driver.holder_fence(NAME) == lease.fence
        assert driver.release(lease) is Released.RELEASED
    assert not traces(valkey_server, namespace)


@BOTH
@LOST
def test_row_32_a_release_whose_reply_is_lost_shows_no_error_and_leaves_no_key(
    valkey_server: Server, proxy: FaultProxy, namespace: str, flavour: Flavour, loss: Loss
) -> None:
    with (
        Driver("blocking", valkey_server.url, namespace) as other,
        Driver(flavour, proxy.url, namespace) as driver,
    ):
        driver.warm()
        lease = driver.acquire(NAME)
        grant = other.soon(other.lock(NAME).acquire)
        wait_queued(valkey_server, namespace, NAME)
        fault = lose_reply(proxy, loss)
        assert driver.release(lease) is Released.RELEASED
        assert fault.strikes == 1
        # Handed over by the release whose reply was lost; its second try has not touched the new holder's key.
        next_lease = grant.result(30)
        assert key_fence(valkey_server, namespace, NAME) == next_lease.fence
        assert lease.lost is None
        assert other.release(next_lease) is Released.RELEASED
    assert not traces(valkey_server, namespace)


@BOTH
def test_row_32_a_release_that_never_gets_a_reply_is_told_and_made_good(
    valkey_server: Server, proxy: FaultProxy, namespace: str, flavour: Flavour
) -> None:
    with Driver(flavour, proxy.url, namespace) as driver:
        driver.warm()
        lease = driver.acquire(NAME)
        lose_reply(proxy, "rst", times=None)
        watch = Stopwatch()
        with driver.hurried(), pytest.raises(ServerUnavailable):
            driver.release(lease)
        assert watch.seconds <= SERVER_TIMEOUT + SLACK
        proxy.heal()
        wait_clean(valkey_server, namespace)
        assert driver.release(lease) in (Released.RELEASED, Released.GONE)


def key_end(server: Server, namespace: str) -> int:
    """When the lock's key ends on the server, in its own milliseconds."""
    return server.command("PEXPIRETIME", f"{namespace}:{NAME}")


@BOTH
@LOST
def test_row_33_a_renewal_of_unknown_outcome_never_moves_the_deadline(
    valkey_server: Server, proxy: FaultProxy, namespace: str, flavour: Flavour, loss: Loss
) -> None:
    """The server has renewed and nobody can know it: the local deadline stays as it was."""
    ttl = 60.0
    with Driver(flavour, proxy.url, namespace) as driver:
        driver.warm()
        lease = driver.acquire(NAME, ttl=ttl, renew=False)
        latest_deadline = lease._hold.deadline
        before = key_end(valkey_server, namespace)
        wait_until(lambda: lease.remaining() < 0.99 * ttl - 0.1, 30, "some of the lease to pass")
        # A cut strikes one reply: enough of them for every try of the call.
        for _ in range(50 if loss == "cut" else 1):
            lose_reply(proxy, loss, times=None)
        # Once more where the machine stood still for so long that the only try came late.
        for _ in range(3):
            with driver.hurried(), pytest.raises(ServerError):
                driver.renew(lease)
            if key_end(valkey_server, namespace) > before:
                break
        assert lease._hold.deadline == latest_deadline
        assert key_end(valkey_server, namespace) > before, "the renewals never reached the server: nothing was unknown"
        proxy.heal()
        assert lease._hold.deadline == latest_deadline
        driver.renew(lease)
        assert lease._hold.deadline > latest_deadline
        assert driver.release(lease) is Released.RELEASED
    assert not traces(valkey_server, namespace)


@BOTH
@LOST
def test_row_33_one_lost_renewal_reply_is_made_good_by_the_next(
    valkey_server: Server, proxy: FaultProxy, namespace: str, flavour: Flavour, loss: Loss
) -> None:
    with Driver(flavour, proxy.url, namespace) as driver:
        driver.warm()
        # The next try comes a fifteenth of the ttl later at about.
        lease = driver.acquire(NAME, ttl=12)
        first_deadline = lease._hold.deadline
        fault = lose_reply(proxy, loss)
        renew_now(lease)
        fault.wait()
        wait_until(lambda: lease._hold.deadline > first_deadline, 30, "another renewal")
        lease.check()
        assert driver.release(lease) is Released.RELEASED
        assert driver.locks.statistics().lost == 0


@BOTH
def test_row_33_renewals_without_replies_end_in_a_loss_at_the_old_deadline(
    valkey_server: Server, proxy: FaultProxy, namespace: str, flavour: Flavour
) -> None:
    """The server goes on renewing; the holder does not believe what it cannot see, and gives the key back."""
    told: list[float] = []

    def note(_: object) -> None:
        told.append(clock.now())

    with Driver(flavour, proxy.url, namespace) as driver:
        driver.warm()
        proxy.drop_next_reply(RENEW.sha, times=None)
        lease = driver.acquire(NAME, ttl=0.9, on_lost=note)
        deadline = lease._hold.deadline
        wait_until(lambda: told or lease._hold.deadline != deadline, 30, "the loss to be told")
        assert lease._hold.deadline == deadline
        assert deadline <= told[0] <= deadline + SLACK
        assert lease.remaining() == 0
        assert lease.lost == "expired"
        proxy.heal()
        wait_clean(valkey_server, namespace)
        with pytest.raises(LeaseLost):
            driver.renew(lease)
        assert driver.release(lease) is Released.GONE
        assert len(told) == 1


@BOTH
def test_row_34_an_acquire_that_succeeds_after_its_time_out_is_undone(
    valkey_server: Server, proxy: FaultProxy, namespace: str, flavour: Flavour
) -> None:
    """Every reply comes later than the caller waits for it."""
    with Driver(flavour, proxy.url, namespace) as driver:
        driver.warm()
        proxy.delay(2 * REQUEST_TIMEOUT)
        watch = Stopwatch()
        with driver.hurried(), pytest.raises(ServerUnavailable):
            driver.acquire(NAME)
        assert watch.seconds <= SERVER_TIMEOUT + SLACK
        proxy.heal()
        wait_clean(valkey_server, namespace)
        lease = driver.acquire(NAME, wait=0)
        assert driver.holder_fence(NAME) == lease.fence
        driver.release(lease)
    assert not traces(valkey_server, namespace)


@BOTH
def test_row_34_one_slow_reply_is_not_taken_for_the_answer_to_the_next_request(
    valkey_server: Server, proxy: FaultProxy, namespace: str, flavour: Flavour
) -> None:
    with Driver(flavour, proxy.url, namespace) as driver:
        driver.warm()
        proxy.hold(SCRIPT)
        grant = driver.soon(driver.lock(NAME).acquire)
        wait_until(lambda: proxy.count(SCRIPT) >= 2, 30, "the second try")
        proxy.release()
        lease = grant.result(30)
        assert key_fence(valkey_server, namespace, NAME) == lease.fence
        assert driver.holder_fence(NAME) == lease.fence
        assert driver.release(lease) is Released.RELEASED
    assert not traces(valkey_server, namespace)


@BOTH
def test_row_29_scripts_flushed_in_the_middle_of_everything(
    valkey_server: Server, namespace: str, flavour: Flavour
) -> None:
    with (
        Driver(flavour, valkey_server.url, namespace, **UNHURRIED) as driver,
        Driver(flavour, valkey_server.url, namespace, **UNHURRIED) as other,
    ):
        lease = driver.acquire(NAME, ttl=30)
        grant = other.soon(other.lock(NAME, ttl=30).acquire)
        wait_queued(valkey_server, namespace, NAME)
        for _ in range(100):
            renew_now(lease)
            valkey_server.command("SCRIPT", "FLUSH", "SYNC")
            driver.renew(lease)
        valkey_server.command("SCRIPT", "FLUSH", "SYNC")
        assert driver.release(lease) is Released.RELEASED
        next_lease = grant.result(30)
        valkey_server.command("SCRIPT", "FLUSH", "SYNC")
        assert other.release(next_lease) is Released.RELEASED
        for locks in (driver.locks, other.locks):
            assert (locks.statistics().renew_failures, locks.statistics().lost) == (0, 0)


@BOTH
def test_row_30_a_script_that_may_not_publish_leaves_a_consistent_lock(
    private_server: Server, namespace: str, flavour: Flavour
) -> None:
    """Lua is not rolled back: the writes before the refused PUBLISH stay, and must have been safe as they are."""
    rules = [f"~{namespace}:*", f"~{{{namespace}:*", "+@all"]
    silent = private_server.acl_user("silent", "x", *rules, "resetchannels")
    waiting_url = private_server.acl_user("waiting", "x", *rules, "allchannels")
    with Driver(flavour, silent, namespace) as driver, Driver(flavour, waiting_url, namespace) as other:
        lease = driver.acquire(NAME)
        grant = other.soon(other.lock(NAME, ttl=8).acquire)
        wait_queued(private_server, namespace, NAME)
        assert driver.release(lease) is Released.RELEASED
        # The poll at half of the ttl repairs the message that was refused.
        age_waiters(other.locks, 4)
        next_lease = grant.result(30)
        assert next_lease.fence > lease.fence
        assert other.release(next_lease) is Released.RELEASED
        wait_clean(private_server, namespace)
