"""Closing: what is refused, what is given back, what stays; and what happens without a close."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

import tenure
from tests.harness.aio import run_async
from tests.harness.leases import age
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from tests.conformance.flavours import AnyLocks, Flavour
    from tests.harness.servers import Server


pytestmark = pytest.mark.usefixtures("patient_close")


def hub_threads() -> int:
    return sum(thread.name.startswith("tenure-hub") for thread in threading.enumerate())


class TestClose:
    def test_gives_back_what_is_held_and_tells_its_holder(
        self, locks: AnyLocks, others: AnyLocks, events: list[tenure.Event]
    ) -> None:
        told: list[Any] = []
        lease = locks.lock("a", ttl=30, on_lost=told.append).acquire()
        locks.close()
        assert not others.lock("a").locked()
        assert lease.lost == "closed"
        with pytest.raises(tenure.LeaseLost, match="closed") as caught:
            lease.check()
        assert caught.value.reason == "closed"
        assert lease.release() is tenure.Released.GONE
        wait_until(lambda: told and any(isinstance(event, tenure.LostEvent) for event in events), 30, "the callback")
        assert told == [lease.raw]

    def test_refuses_everything_new(self, locks: AnyLocks, others: AnyLocks) -> None:
        lock = locks.lock("a")
        lock.acquire().release()
        locks.close()
        for use in (lock.acquire, lock.locked, locks.list, lambda: locks.holder("a"), lambda: locks.break_lock("a")):
            with pytest.raises(tenure.NotAcquired, match="closed"):
                use()
        assert lock.try_acquire() is None
        others.lock("a", wait=0).acquire().release()

    def test_of_locks_that_were_never_used_does_nothing(self, flavour: Flavour, namespace: str) -> None:
        # Nothing listens there, and nobody asks.
        flavour.locks("redis://127.0.0.1:1", namespace=namespace).close()

    def test_twice_does_nothing(self, locks: AnyLocks) -> None:
        locks.lock("a").acquire().release()
        locks.close()
        began = time.monotonic()
        locks.close(60)
        assert time.monotonic() - began < 30

    def test_can_wait_for_holders(self, locks: AnyLocks, flavour: Flavour) -> None:
        lease = locks.lock("a", ttl=60).acquire()
        closing = flavour.spawn(locks.close, 60)
        with pytest.raises(tenure.NotAcquired):
            wait_until(lambda: bool(locks.list("nothing")))
        lease.check()
        assert not closing.done()
        assert lease.release() is tenure.Released.RELEASED
        closing.result(30)
        assert lease.lost is None

    def test_waits_no_longer_than_it_is_told(self, locks: AnyLocks) -> None:
        lease = locks.lock("a", ttl=60).acquire()
        began = time.monotonic()
        locks.close(0.2)
        assert 0.2 <= time.monotonic() - began < 30
        assert lease.lost == "closed"

    def test_ends_waits(self, locks: AnyLocks, others: AnyLocks) -> None:
        held = others.lock("a", ttl=60).acquire()
        waiting = locks.queue("a", ttl=60)
        locks.close()
        with pytest.raises(tenure.NotAcquired, match="closed"):
            waiting.result(30)
        assert others.waiters("a") == []
        held.release()

    @pytest.mark.parametrize("wait", [-1, float("nan"), True, "1", None])
    def test_refuses_a_bad_wait(self, locks: AnyLocks, wait: Any) -> None:  # noqa: ANN401
        with pytest.raises(tenure.ConfigError, match="wait must be"):
            locks.close(wait)
        locks.lock("a").acquire().release()

    def test_happens_at_the_end_of_a_block(self, flavour: Flavour, any_url: str, namespace: str) -> None:
        locks = flavour.locks(any_url, namespace=namespace)
        with locks.block():
            lease = locks.lock("a", ttl=30).acquire()
        assert lease.lost == "closed"
        wait_until(lambda: hub_threads() == 0, 30, "the hub to end")

    def test_leaves_an_injected_client_alone(self, flavour: Flavour, any_url: str, namespace: str) -> None:
        client = flavour.client(any_url)
        flavour.call(client.ping)
        locks = flavour.locks(client, namespace=namespace)
        lease = locks.lock("a").acquire()
        locks.close()
        assert lease.lost == "closed"
        assert flavour.call(client.ping)


class TestWithoutClose:
    @pytest.mark.parametrize("held", [False, True], ids=["released", "dropped"])
    def test_locks_that_nobody_has_any_more_end_their_thread(self, any_url: str, namespace: str, held: bool) -> None:
        locks = tenure.Locks(any_url, namespace=namespace)
        lease = locks.lock("a", ttl=60).acquire()
        assert hub_threads() == 1
        if not held:
            lease.release()
            del lease
        else:
            with pytest.warns(ResourceWarning, match="dropped while held"):
                del lease
        del locks
        gc.collect()
        wait_until(lambda: hub_threads() == 0, 30, "the hub to end")
        with tenure.Locks(any_url, namespace=namespace) as others:
            assert not others.lock("a").locked()

    def test_a_lease_keeps_its_locks_alive(self, any_url: str, namespace: str) -> None:
        def hold_for_a_while() -> None:
            lease = tenure.Locks(any_url, namespace=namespace).lock("a", ttl=30).acquire()
            gc.collect()
            age(lease, 15)
            wait_until(lambda: lease.remaining() > 20, 30, "the hub to renew it")
            lease.release()

        hold_for_a_while()
        gc.collect()
        wait_until(lambda: hub_threads() == 0, 30, "the hub to end")

    def test_asyncio_locks_end_with_their_last_reference_too(self, any_url: str, namespace: str) -> None:
        async def main() -> None:
            locks = tenure.AsyncLocks(any_url, namespace=namespace)
            async with locks.lock("a"):
                await asyncio.sleep(0)

        run_async(main)
        gc.collect()
        wait_until(lambda: hub_threads() == 0, 30, "the hub to end")


def test_constructing_costs_no_thread_and_no_connection(flavour: Flavour, namespace: str) -> None:
    locks = flavour.locks("redis://127.0.0.1:1", namespace=namespace)
    locks.lock("a")
    assert locks.statistics().requests == 0
    assert hub_threads() == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_a_forked_child_can_neither_release_nor_renew_and_its_own_locks_work(
    any_url: str, namespace: str, any_server: Server
) -> None:
    with tenure.Locks(any_url, namespace=namespace) as locks:
        lease = locks.lock("a", ttl=20).acquire()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                code = _in_the_child(locks, lease)
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 42
        lease.renew()
        assert lease.valid
        assert lease.release() is tenure.Released.RELEASED
        assert any_server.command("PTTL", f"{namespace}:b") == -2


def _in_the_child(locks: tenure.Locks, lease: tenure.Lease) -> int:
    """42 when a child behaves: its inherited lease is inert, its own work."""
    for use in (lease.release, lease.renew, lease.check):
        try:
            use()
        except tenure.NotHeld:
            continue
        return 2
    if lease.valid or locks.lock("a").try_acquire() is not None:
        return 3
    with locks.lock("b", ttl=5, wait=5) as own:
        own.renew()
    return 42
