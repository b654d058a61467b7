"""Row 65: callbacks that raise, block or re-enter, and hundreds of leases beside them that go on being renewed."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

import pytest

from tests.faults.support import FLAVOURS, UNHURRIED, Driver, key_fence, wait_clean
from tests.harness.leases import age, renew_now
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from tenure import AsyncLease, Lease
    from tenure.events import Event
    from tests.faults.support import Flavour
    from tests.harness.servers import Server

NAME = "lost one"
TTL = 60.0
MANY = 300
BOTH = pytest.mark.parametrize("flavour", FLAVOURS)


class Told:
    """Counts how often a callback was called, and by which thread."""

    def __init__(self) -> None:
        self.calls: list[Lease | AsyncLease] = []
        self.threads: set[str] = set()

    def note(self, lease: Lease | AsyncLease) -> None:
        self.calls.append(lease)
        self.threads.add(threading.current_thread().name)


def lose(server: Server, namespace: str, *leases: Lease | AsyncLease) -> None:
    """Delete the keys of leases, and have the hub find out."""
    for lease in leases:
        assert server.command("DEL", f"{namespace}:{lease.names[0]}") == 1
    for lease in leases:
        renew_now(lease)


def outlive(*leases: Lease | AsyncLease) -> None:
    """Watch that the hub renews leases: they become older than their ttl, and stay valid."""
    for _ in range(3):
        for lease in leases:
            age(lease, TTL / 2)
        wait_until(lambda: all(lease.remaining() > TTL / 2 for lease in leases), 30, "the leases to be renewed")
    for lease in leases:
        assert lease.held_for() > TTL
        lease.check()


@BOTH
def test_row_65_a_callback_that_raises_is_logged_and_hurts_nobody(
    valkey_server: Server, namespace: str, flavour: Flavour, caplog: pytest.LogCaptureFixture
) -> None:
    told = Told()

    def on_lost(lease: Lease | AsyncLease) -> None:
        told.note(lease)
        raise ZeroDivisionError("in a callback")

    with Driver(flavour, valkey_server.url, namespace) as driver, caplog.at_level(logging.ERROR, "tenure"):
        others = [driver.acquire(f"other-{number}", ttl=TTL) for number in range(3)]
        lease = driver.acquire(NAME, ttl=TTL, on_lost=on_lost)
        lease.on_lost(on_lost)
        lose(valkey_server, namespace, lease)
        wait_until(lambda: len(told.calls) == 2, 30, "both callbacks")
        outlive(*others)
        assert told.calls == [lease, lease], "each was called once, whatever the other raised"
        wait_until(lambda: sum("callback" in record.getMessage() for record in caplog.records) == 2, 30, "the log")
        for other in others:
            driver.release(other)


@BOTH
def test_row_65_a_callback_that_blocks_delays_no_renewal(
    valkey_server: Server, namespace: str, flavour: Flavour
) -> None:
    """300 leases are renewed while callbacks, more of them than there are threads for them, do not return."""
    gate = threading.Event()
    blocked = Told()

    def on_lost(lease: Lease | AsyncLease) -> None:
        blocked.note(lease)
        gate.wait(30)

    with Driver(flavour, valkey_server.url, namespace, **UNHURRIED) as driver:
        try:
            others = [driver.acquire(f"other-{number}", ttl=TTL) for number in range(MANY)]
            victims = [driver.acquire(f"{NAME} {number}", ttl=TTL, on_lost=on_lost) for number in range(6)]
            lose(valkey_server, namespace, *victims)
            wait_until(lambda: all(victim.lost for victim in victims), 30, "the losses")
            wait_until(lambda: blocked.calls, 30, "a callback that blocks")
            outlive(*others)
            assert driver.locks.statistics().renew_failures == 0
            assert driver.locks.statistics().lost == len(victims)
        finally:
            gate.set()
        wait_until(lambda: len(blocked.calls) == len(victims), 30, "every callback to be called in the end")
        assert {lease.names for lease in blocked.calls} == {lease.names for lease in victims}


@BOTH
def test_row_65_a_callback_that_uses_the_locks_itself(valkey_server: Server, namespace: str, flavour: Flavour) -> None:
    """In blocking code it may take locks; in asyncio code, on the loop's thread, ask what needs no I/O."""
    done: list[object] = []

    def on_lost(lease: Lease | AsyncLease) -> None:
        lease.on_lost(done.append)
        if flavour == "blocking":
            for name in (NAME, "another"):
                held = driver.acquire(name, ttl=TTL)
                driver.release(held)
        done.append((lease.lost, lease.valid, lease.remaining(), driver.locks.statistics().lost))

    with Driver(flavour, valkey_server.url, namespace) as driver:
        other = driver.acquire("other", ttl=TTL)
        lease = driver.acquire(NAME, ttl=TTL, on_lost=on_lost)
        lose(valkey_server, namespace, lease)
        wait_until(lambda: len(done) == 2, 30, "the callbacks")
        assert lease in done
        assert ("deleted", False, 0.0, 1) in done
        outlive(other)
        driver.release(other)
        wait_clean(valkey_server, namespace)


@BOTH
def test_row_65_a_loss_is_told_once_whoever_notices_it(valkey_server: Server, namespace: str, flavour: Flavour) -> None:
    """The hub's renewal, a renewal by hand, a check and a release all find out at about the same moment."""
    rounds = 15
    # A release that is sent twice has perhaps done its work the first time: it finds out nothing.
    with Driver(flavour, valkey_server.url, namespace, **UNHURRIED) as driver:
        told = [Told() for _ in range(rounds)]
        leases = [driver.acquire(f"{NAME} {number}", ttl=TTL, on_lost=told[number].note) for number in range(rounds)]
        lose(valkey_server, namespace, *leases)
        racing = [driver.soon(call) for lease in leases for call in (lease.renew, lease.release, lease.check)]
        for future in racing:
            future.exception(30)
        wait_until(lambda: all(lease.lost or not lease.valid for lease in leases), 30, "every lease to end")
        lost = [number for number in range(rounds) if leases[number].lost]
        assert lost, "every release was faster: nothing was lost"
        wait_until(lambda: all(told[number].calls for number in lost), 30, "every loss to be told")
        # Whoever else would tell has had its occasion when another lease of the same hub was renewed and lost.
        other = driver.acquire("other", ttl=TTL, on_lost=(last := Told()).note)
        outlive(other)
        lose(valkey_server, namespace, other)
        wait_until(lambda: last.calls, 30, "the other loss to be told")
        assert [len(told[number].calls) for number in lost] == [1] * len(lost)
        assert all(told[number].calls == [] for number in range(rounds) if number not in lost)


@BOTH
def test_row_65_a_callback_of_asyncio_runs_on_the_loops_thread(
    valkey_server: Server, namespace: str, flavour: Flavour
) -> None:
    told = Told()
    with Driver(flavour, valkey_server.url, namespace) as driver:
        lease = driver.acquire(NAME, ttl=TTL, on_lost=told.note)
        lose(valkey_server, namespace, lease)
        wait_until(lambda: told.calls, 30, "the callback")
        lease.on_lost(told.note)
        wait_until(lambda: len(told.calls) == 2, 30, "the callback that came late")
        if flavour == "asyncio":
            assert told.threads == {"driver-loop"}
        else:
            assert threading.main_thread().name not in told.threads
            assert not any("hub" in name for name in told.threads)


@BOTH
def test_row_65_a_hook_that_raises_and_blocks_delays_no_renewal(
    valkey_server: Server, namespace: str, flavour: Flavour
) -> None:
    gate = threading.Event()
    seen: list[Event] = []

    def hook(event: Event) -> None:
        seen.append(event)
        if type(event).__name__ == "RenewedEvent":
            gate.wait(30)
        raise ZeroDivisionError("in a hook")

    with Driver(flavour, valkey_server.url, namespace, hooks=[hook]) as driver:
        try:
            lease = driver.acquire(NAME, ttl=TTL)
            outlive(lease)
            assert key_fence(valkey_server, namespace, NAME) == lease.fence
            wait_until(lambda: any(type(event).__name__ == "RenewedEvent" for event in seen), 30, "the hook")
        finally:
            gate.set()
        driver.release(lease)
        assert driver.locks.statistics().lost == 0
