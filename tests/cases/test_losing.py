"""A lease that ends before its holder: noticed, told to the right one, and never hidden."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

import tenure
from tests.cases.server_side import Keys, only_fences_left
from tests.cli.commands import WAITS, python
from tests.cli.commands import tenure as command
from tests.harness.aio import run_async
from tests.harness.leases import age, renew_now
from tests.harness.processes import Worker, say
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from tests.conformance.flavours import AnyLocks, Flavour
    from tests.harness.servers import Server

LOST_EXIT_CODE = 76
LONG = 120.0
"""A ttl that no test waits for."""


@pytest.fixture
def keys(valkey_server: Server, namespace: str) -> Keys:
    return Keys(valkey_server, namespace, "a")


def test_a_holder_is_told_of_its_loss(locks: AnyLocks, events: list[tenure.Event], keys: Keys) -> None:
    """The holder worked on after losing the lock: the loss was only logged."""
    told: list[Any] = []
    lease = locks.lock("a", ttl=LONG, on_lost=told.append).acquire()
    keys.delete()
    renew_now(lease.raw)
    assert lease.wait_lost(30)
    assert (lease.lost, lease.valid, lease.remaining()) == ("deleted", False, 0)
    with pytest.raises(tenure.LeaseLost):
        lease.check()
    wait_until(lambda: told == [lease.raw], 30, "the callback")
    losses = wait_until(lambda: [event for event in events if isinstance(event, tenure.LostEvent)], 30, "the event")
    assert [type(event) for event in losses] == [tenure.TamperedEvent]


def test_a_loss_cancels_the_body_of_an_async_block(url: str, namespace: str, keys: Keys) -> None:
    """The body of the block worked on after losing the lock."""

    async def work(locks: tenure.AsyncLocks) -> None:
        async with locks.lock("a", ttl=LONG) as lease:
            keys.delete()
            renew_now(lease)
            await asyncio.sleep(30)

    async def main() -> None:
        async with tenure.AsyncLocks(url, namespace=namespace) as locks:
            task = asyncio.create_task(work(locks))
            with pytest.raises(tenure.LeaseLost):
                await task
            assert task.cancelling() == 0

    run_async(main)


def test_a_full_cache_server_that_evicts_locks_is_noticed(flavour: Flavour, private_server: Server) -> None:
    """Locks vanished on a full cache server, and both holders worked."""
    events: list[tenure.Event] = []
    locks = flavour.locks(private_server.url, hooks=[events.append])
    lease = locks.lock("a", ttl=LONG).acquire()
    private_server.command("CONFIG", "SET", "maxmemory-policy", "allkeys-random")
    private_server.command("CONFIG", "SET", "maxmemory", 1)
    with pytest.raises(Exception, match="maxmemory"):
        private_server.command("SET", "testdata:one-more", "x")
    renew_now(lease.raw)
    assert lease.wait_lost(30)
    assert lease.lost == "deleted"
    wait_until(lambda: any(isinstance(event, tenure.TamperedEvent) for event in events), 30, "the event")
    locks.close()


def test_killed_connections_neither_free_the_lock_nor_let_two_hold_it(
    locks: AnyLocks, others: AnyLocks, events: list[tenure.Event], valkey_server: Server, keys: Keys
) -> None:
    """A killed connection meant a lost lock, silently reconnected: both held."""
    lease = locks.lock("a", ttl=LONG).acquire()
    valkey_server.command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    valkey_server.command("CLIENT", "KILL", "TYPE", "pubsub")
    assert others.lock("a").try_acquire() is None
    for _ in range(2):
        age(lease.raw, LONG / 2 + 1)
        wait_until(lambda: lease.remaining() > LONG / 2, 30, "a renewal")
    assert lease.held_for() > LONG
    lease.check()
    assert keys.token() == lease.token
    assert not [event for event in events if isinstance(event, tenure.LostEvent)]
    lease.release()


def test_a_loss_is_told_to_its_holder_alone(locks: AnyLocks, keys: Keys) -> None:
    """A loss interrupted the main thread, whatever it was doing."""
    told: list[str] = []
    where: list[threading.Thread] = []

    def lost(lease: tenure.Lease | tenure.AsyncLease) -> None:
        where.append(threading.current_thread())
        told.extend(lease.names)

    unlucky = locks.lock("a", ttl=LONG, on_lost=lost).acquire()
    lucky = locks.lock("b", ttl=LONG, on_lost=lost).acquire()
    keys.delete()
    renew_now(unlucky.raw)
    renew_now(lucky.raw)
    wait_until(lambda: told, 30, "the callback")
    assert unlucky.lost == "deleted"
    lucky.check()
    lucky.release()
    assert told == ["a"]
    assert where[0] is not threading.main_thread()


# Blocks


def test_no_lock_no_body(locks: AnyLocks, others: AnyLocks) -> None:
    """The body of `with` ran without the lock."""
    holding = others.lock("a", ttl=LONG).acquire()
    ran: list[str] = []
    with pytest.raises(tenure.NotAcquired), locks.lock("a", wait=0).block():
        ran.append("the body")
    assert ran == []
    holding.release()


def test_the_error_of_the_body_is_not_hidden_by_the_loss(locks: AnyLocks, keys: Keys) -> None:
    """The error that mattered was replaced by LockNotOwnedError."""
    lock = locks.lock("a", ttl=LONG)

    def work(divisor: int) -> None:
        with lock.block():
            keys.delete()
            _ = 1 / divisor

    with pytest.raises(ZeroDivisionError) as caught:
        work(0)
    assert any("was lost" in note for note in caught.value.__notes__)
    with pytest.raises(tenure.LeaseLost):
        work(1)


def test_an_error_in_the_body_releases_the_lock(locks: AnyLocks, keys: Keys) -> None:
    """The lock was not released when the body raised."""

    def work() -> None:
        with locks.lock("a", ttl=LONG).block():
            assert keys.token() is not None
            _ = 1 / 0

    with pytest.raises(ZeroDivisionError):
        work()
    keys.wait_free()


# Renewal that must not starve


def compute_until_renewed(lease: tenure.Lease | tenure.AsyncLease) -> None:
    """Computes in pure Python, without a pause, until the lease, old by now, is as new; half a minute at most."""
    age(lease, LONG / 2)
    give_up = time.monotonic() + 30
    while lease.remaining() < LONG / 2 and time.monotonic() < give_up:
        sum(range(1000))
    assert lease.remaining() > LONG / 2


def test_a_busy_main_thread_does_not_lose_the_lease(url: str, namespace: str) -> None:
    """The lease was lost while the program computed: its renewal starved."""
    with tenure.Locks(url, namespace=namespace) as locks, locks.lock("a", ttl=LONG) as lease:
        compute_until_renewed(lease)


def test_a_blocked_event_loop_does_not_lose_the_lease(url: str, namespace: str) -> None:
    """The lease was lost while a callback blocked the event loop."""

    async def main() -> None:
        async with tenure.AsyncLocks(url, namespace=namespace) as locks, locks.lock("a", ttl=LONG) as lease:
            compute_until_renewed(lease)

    run_async(main)


# Processes


def hold_for_ever(url: str, namespace: str) -> None:
    """A worker that holds until it is killed."""
    with tenure.Locks(url, namespace=namespace) as locks, locks.lock("a", ttl=0.6) as lease:
        say("held", lease.fence)
        time.sleep(60)


def test_the_lock_of_a_killed_process_ends_by_itself(
    locks: AnyLocks, url: str, namespace: str, valkey_server: Server
) -> None:
    """Orphaned locks stayed for ever; the reaper that was to remove them deleted live ones."""
    with Worker.start(hold_for_ever, url, namespace) as worker:
        fence = int(worker.wait_for("held").split()[1])
        worker.kill9()
    lease = locks.lock("a", ttl=LONG, wait=30).acquire()
    assert lease.fence > fence
    lease.release()
    assert only_fences_left(valkey_server, namespace)


def test_a_command_is_stopped_when_its_lease_is_lost(url: str, namespace: str, keys: Keys) -> None:
    """The wrapped command survived the loss, and its real exit code was hidden."""
    env = {"TENURE_URL": url, "TENURE_NAMESPACE": namespace}
    with command("run", "a", "--ttl", "24s", "--grace", "9s", "--", *python(WAITS), env=env) as worker:
        worker.wait_for("up")
        keys.delete()
        assert worker.wait_for("SIGTERM")
        assert worker.wait() == LOST_EXIT_CODE
    with command("run", "a", "--", *python("raise SystemExit(7)"), env=env) as worker:
        assert worker.wait() == 7
