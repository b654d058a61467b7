"""Rows 35 to 37: packets that arrive late, peers that fall silent, replies that are garbage or somebody else's."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import pytest

from tenure import Locks, Released, ServerUnavailable
from tenure.core.scripts import ACQUIRE, RENEW
from tests.faults.support import (
    FLAVOURS,
    PATIENCE,
    SERVER_TIMEOUT,
    SLACK,
    UNHURRIED,
    Driver,
    Stopwatch,
    key_fence,
    key_of,
    queue_length,
    set_timeouts,
    traces,
    wait_clean,
    wait_queued,
)
from tests.harness.commands import script_calls
from tests.harness.leases import age, renew_now
from tests.harness.processes import Worker, say
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tenure.core.scripts import Script
    from tests.faults.support import Flavour
    from tests.harness.proxy import FaultProxy
    from tests.harness.servers import Server

NAME = "doubtful"
SCRIPT = NAME.encode()
BOTH = pytest.mark.parametrize("flavour", FLAVOURS)

# Row 35


def ask_when_told(url: str, namespace: str, wait: float) -> None:
    """Worker: warms its connection up, and asks for the lock when told to."""
    with Locks(url, namespace=namespace, server_timeout=PATIENCE) as locks:
        set_timeouts(locks, PATIENCE)
        locks.lock("warm").acquire().release()
        with Locks(url, namespace=namespace) as other, other.lock("warm"):
            assert locks.lock("warm").try_acquire(0.05) is None, "brings the inbox up"
        say("ready")
        sys.stdin.readline()
        locks.lock(NAME).try_acquire(wait)
        say("answered")


def not_after(proxy: FaultProxy, script: Script) -> int:
    """The server's millisecond after which none of the calls of a script that were seen may have an effect."""
    # Behind the keys and their number come the echo, the channel prefix, and then it.
    return max(int(call[int(call[2]) + 5]) for call in proxy.seen if script.sha in call)


def server_ms(server: Server) -> int:
    seconds, micros = server.command("TIME")
    return int(seconds) * 1000 + int(micros) // 1000


def deliver_late(server: Server, proxy: FaultProxy, script: Script | None = None) -> None:
    """Deliver the stuck requests, and wait until the server has run them; those of a script after their not-after."""
    if script is not None:
        # Read, not reckoned: it is later by as long as an earlier reply was on its way.
        wait_until(lambda: server_ms(server) > not_after(proxy, script), 30, "the not-after to pass")
    before = script_calls(server.admin)
    proxy.release()
    wait_until(lambda: script_calls(server.admin) > before, 30, "the late request to arrive")


@pytest.mark.parametrize("wait", [0, 5], ids=["would take", "would queue"])
def test_row_35_an_acquire_that_arrives_after_its_client_is_gone_takes_nothing(
    valkey_server: Server, proxy: FaultProxy, namespace: str, wait: float
) -> None:
    """Nobody is left who could undo it: only the server time after which it must have no effect helps."""
    with (
        Driver("blocking", valkey_server.url, namespace) as other,
        Worker.start(ask_when_told, proxy.url, namespace, wait) as asker,
    ):
        asker.wait_for("ready")
        held = other.acquire(NAME) if wait else None
        proxy.hold_requests(SCRIPT)
        before = proxy.count(SCRIPT)
        asker.write_line()
        wait_until(lambda: proxy.count(SCRIPT) > before, 30, "the request to be on its way")
        asker.kill9()
        deliver_late(valkey_server, proxy, ACQUIRE)
        assert queue_length(valkey_server, namespace, NAME) == 0
        if held is None:
            assert not traces(valkey_server, namespace)
        else:
            assert key_fence(valkey_server, namespace, NAME) == held.fence
            other.release(held)
    assert not traces(valkey_server, namespace)


@BOTH
def test_row_35_an_acquire_that_was_given_up_arrives_late_and_takes_nothing(
    valkey_server: Server, proxy: FaultProxy, namespace: str, flavour: Flavour
) -> None:
    with Driver(flavour, proxy.url, namespace) as driver, Driver("blocking", valkey_server.url, namespace) as other:
        driver.warm()
        proxy.hold_requests(SCRIPT)
        with driver.hurried(), pytest.raises(ServerUnavailable):
            driver.acquire(NAME)
        lease = other.acquire(NAME)
        deliver_late(valkey_server, proxy, ACQUIRE)
        assert key_fence(valkey_server, namespace, NAME) == lease.fence
        assert lease.valid
        assert other.release(lease) is Released.RELEASED
        wait_clean(valkey_server, namespace)
        assert driver.holder_fence(NAME) is None
    assert not traces(valkey_server, namespace)


def end_on_the_server(server: Server, namespace: str) -> None:
    """The lock's key ends as if its ttl were over."""
    server.command("PEXPIRE", f"{namespace}:{NAME}", 1)
    wait_until(lambda: not traces(server, namespace), 30, "the key to end")


@BOTH
def test_row_35_a_release_of_an_old_lease_arrives_late_and_frees_nothing(
    valkey_server: Server, proxy: FaultProxy, namespace: str, flavour: Flavour
) -> None:
    """The token is the acquisition's, not the client's: also the same client's next lease is safe from it."""
    with Driver(flavour, proxy.url, namespace) as driver, Driver("blocking", valkey_server.url, namespace) as other:
        # A lease that is taken without an inbox is announced a second later, which changes what its key holds.
        other.warm()
        old = driver.acquire(NAME)
        proxy.hold_requests(SCRIPT)
        with driver.hurried(), pytest.raises(ServerUnavailable):
            driver.release(old)
        end_on_the_server(valkey_server, namespace)
        late = other.acquire(NAME)
        assert late.fence > old.fence
        before = key_of(valkey_server, namespace, NAME)
        deliver_late(valkey_server, proxy)
        assert key_of(valkey_server, namespace, NAME) == before
        assert other.release(late) is Released.RELEASED
        again = driver.acquire(NAME)
        assert driver.release(old) in (Released.GONE, Released.RELEASED, Released.TAKEN)
        assert key_fence(valkey_server, namespace, NAME) == again.fence, "released by the handle of an older lease"
        assert driver.release(again) is Released.RELEASED
    assert not traces(valkey_server, namespace)


@BOTH
def test_row_35_old_renewals_delivered_late_revive_nothing(
    valkey_server: Server, proxy: FaultProxy, namespace: str, flavour: Flavour
) -> None:
    with Driver(flavour, proxy.url, namespace) as driver:
        driver.warm()
        lease = driver.acquire(NAME, ttl=30)
        before = proxy.count(RENEW.sha)
        proxy.hold_requests(SCRIPT)
        renew_now(lease)
        wait_until(lambda: proxy.count(RENEW.sha) > before, 30, "a renewal to be on its way")
        age(lease, 30)
        wait_until(lambda: lease.lost, 30, "the lease to be lost")
        end_on_the_server(valkey_server, namespace)
        deliver_late(valkey_server, proxy, RENEW)
        assert lease.remaining() == 0
        assert driver.holder_fence(NAME) is None
        assert driver.release(lease) is Released.GONE
    assert not traces(valkey_server, namespace)


# Row 36


@BOTH
@pytest.mark.parametrize("fault", ["blackhole", "partition", "refused", "half closed"])
def test_row_36_a_server_that_falls_silent(
    valkey_server: Server, proxy: FaultProxy, namespace: str, flavour: Flavour, fault: str
) -> None:
    """A call returns in time with an error, and the holder is told of its loss no later than its deadline."""
    told: list[float] = []

    def note(_: object) -> None:
        told.append(time.monotonic())

    with Driver(flavour, proxy.url, namespace) as driver:
        lease = driver.acquire(NAME, ttl=1.2, on_lost=note)
        begin_silence(proxy, fault)
        silent = Stopwatch()
        with driver.hurried(), pytest.raises(ServerUnavailable):
            driver.acquire("other")
        assert silent.seconds <= SERVER_TIMEOUT + SLACK
        deadline = time.monotonic() + lease.remaining()
        wait_until(lambda: told, 30, "the loss to be told")
        assert told[0] <= deadline + SLACK
        assert lease.remaining() == 0
        assert lease.lost == "expired"
        proxy.heal()
        # The silence over, everything works again without a new object.
        again = driver.acquire(NAME)
        assert again.fence > lease.fence
        assert driver.release(lease) is Released.GONE
        assert driver.holder_fence(NAME) == again.fence
        assert driver.release(again) is Released.RELEASED
        wait_clean(valkey_server, namespace)
        assert len(told) == 1


def begin_silence(proxy: FaultProxy, fault: str) -> None:
    if fault == "blackhole":
        proxy.blackhole()
    elif fault == "partition":
        proxy.partition()
    elif fault == "refused":
        proxy.refuse()
        proxy.cut_all()
    else:
        proxy.half_close()
        proxy.refuse()


@BOTH
def test_row_36_a_frozen_server_then_one_that_goes_on(private_server: Server, namespace: str, flavour: Flavour) -> None:
    with Driver(flavour, private_server.url, namespace) as driver:
        lease = driver.acquire(NAME, ttl=0.6)
        deadline = time.monotonic() + lease.remaining()
        private_server.pause()
        try:
            watch = Stopwatch()
            with driver.hurried():
                failure = driver.soon(driver.lock("other").acquire)
                assert isinstance(failure.exception(30), ServerUnavailable)
            assert watch.seconds <= SERVER_TIMEOUT + SLACK
            wait_until(lambda: lease.lost, 30, "the loss")
            assert time.monotonic() <= deadline + SLACK
        finally:
            private_server.resume()
        again = driver.acquire(NAME)
        assert again.fence > lease.fence
        assert driver.release(again) is Released.RELEASED
        wait_clean(private_server, namespace)


@BOTH
def test_row_36_a_waiter_whose_server_falls_silent_is_told(
    valkey_server: Server, proxy: FaultProxy, namespace: str, flavour: Flavour
) -> None:
    """Waiting for a holder and waiting for a server are two things: without a server a wait for ever ends."""
    with Driver("blocking", valkey_server.url, namespace) as holding, Driver(flavour, proxy.url, namespace) as driver:
        held = holding.acquire(NAME, ttl=30)
        grant = driver.soon(driver.lock(NAME, ttl=0.6, wait=None).acquire)
        wait_queued(valkey_server, namespace, NAME)
        proxy.blackhole()
        with driver.hurried(), pytest.raises(ServerUnavailable):
            # Asked for by its next poll, at half of its ttl.
            grant.result(0.3 + SERVER_TIMEOUT + 2 * SLACK)
        proxy.heal()
        wait_until(lambda: queue_length(valkey_server, namespace, NAME) == 0, 30, "the place to be given up")
        holding.release(held)
        wait_clean(valkey_server, namespace)


# Row 37

GARBAGE = [
    b"+OK\r\n", b"$-1\r\n", b"*0\r\n", b"*1\r\n:5\r\n", b"*3\r\n$3\r\nabc\r\n:1\r\n$7\r\ngranted\r\n",
    b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x00\xff\x00\r\n",
]  # fmt: skip


@BOTH
@pytest.mark.parametrize("reply", GARBAGE, ids=range(len(GARBAGE)))
def test_row_37_a_garbage_reply_never_grants_and_is_made_good(
    valkey_server: Server, proxy: FaultProxy, namespace: str, flavour: Flavour, reply: bytes
) -> None:
    with (
        Driver("blocking", valkey_server.url, namespace) as holding,
        Driver(flavour, proxy.url, namespace, **UNHURRIED) as driver,
    ):
        driver.warm()
        held = holding.acquire(NAME)
        fault = proxy.replace_next_reply(SCRIPT, reply)
        assert driver.soon(driver.lock(NAME).try_acquire).result(30) is None
        assert fault.strikes == 1
        holding.release(held)
        fault = proxy.replace_next_reply(SCRIPT, reply)
        lease = driver.acquire(NAME)
        assert fault.strikes == 1
        assert driver.holder_fence(NAME) == lease.fence
        proxy.replace_next_reply(SCRIPT, reply)
        assert driver.release(lease) is Released.RELEASED
        assert driver.locks.statistics().broken_connections >= 1, "a connection out of step was used again"
    assert not traces(valkey_server, namespace)


def stale_answer(reply: bytes) -> Callable[[bytes], bytes]:
    def change(_: bytes) -> bytes:
        return reply

    return change


@BOTH
def test_row_37_somebody_elses_reply_never_grants(
    valkey_server: Server, proxy: FaultProxy, namespace: str, flavour: Flavour
) -> None:
    """A well-formed `granted` that belongs to another request, as on a connection that is one reply out of step."""
    kept: list[bytes] = []

    def keep(reply: bytes) -> bytes:
        kept.append(reply)
        return reply

    with (
        Driver("blocking", valkey_server.url, namespace) as holding,
        Driver(flavour, proxy.url, namespace, **UNHURRIED) as driver,
    ):
        driver.warm()
        proxy.replace_next_reply(b":theirs", keep)
        theirs = driver.acquire("theirs")
        held = holding.acquire(NAME)
        assert b"granted" in kept[0]
        proxy.replace_next_reply(SCRIPT, stale_answer(kept[0]))
        assert driver.soon(driver.lock(NAME).try_acquire).result(30) is None, "granted by another lock's reply"
        # The same for a lease of this very lock that is over.
        proxy.replace_next_reply(SCRIPT, keep)
        holding.release(held)
        old = driver.acquire(NAME)
        driver.release(old)
        held = holding.acquire(NAME)
        proxy.replace_next_reply(SCRIPT, stale_answer(kept[-1]))
        assert driver.soon(driver.lock(NAME).try_acquire).result(30) is None, "granted by an old reply"
        assert key_fence(valkey_server, namespace, NAME) == held.fence
        assert driver.holder_fence("theirs") == theirs.fence
        assert driver.release(theirs) is Released.RELEASED
        holding.release(held)
    assert not traces(valkey_server, namespace)


@BOTH
def test_row_37_somebody_elses_reply_never_renews(
    valkey_server: Server, proxy: FaultProxy, namespace: str, flavour: Flavour
) -> None:
    kept: list[bytes] = []

    def keep(reply: bytes) -> bytes:
        kept.append(reply)
        return reply

    with Driver(flavour, proxy.url, namespace, **UNHURRIED) as driver:
        driver.warm()
        lease = driver.acquire(NAME, ttl=60, renew=False)
        proxy.replace_next_reply(SCRIPT, keep)
        driver.renew(lease)
        assert b"renewed" in kept[0]
        valkey_server.command("DEL", f"{namespace}:{NAME}")
        proxy.replace_next_reply(SCRIPT, stale_answer(kept[0]))
        deadline = lease._hold.deadline
        assert driver.soon(lease.renew).exception(30) is not None, "renewed by an old reply"
        assert lease._hold.deadline <= deadline
        assert lease.lost == "deleted"
