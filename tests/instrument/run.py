"""A run in which everything happens that is measured, in known numbers, and what the measurements must be."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

import tenure
from tenure.core import scripts
from tests.harness.leases import age, renew_now, wait_for_inbox
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tenure.events import Event, Hook
    from tests.harness.proxy import FaultProxy
    from tests.harness.servers import Server

    Measured = dict[tuple[str, ...], float]
    """(what, group, label) -> how often, or how many."""


def group(name: str) -> str:
    """The group of a lock: what stands before the colon."""
    return name.partition(":")[0]


def everything(server: Server, proxy: FaultProxy, namespace: str, hook: Hook, measured: Callable[[], Measured]) -> None:
    """Brings everything about, and compares what was measured while a lease is held, and after the end."""
    told: list[Event] = []
    hooks = (told.append, hook)
    with (
        tenure.Locks(proxy.url, namespace=namespace, hooks=hooks, server_timeout=30) as locks,
        tenure.Locks(server.url, namespace=namespace, hooks=hooks) as others,
    ):
        for number in range(3):
            with locks.lock(f"free:{number}"):
                pass
        _contended(locks, others)
        _lost(server, locks, others, namespace)
        with locks.lock("long:1", warn_after=0.05):
            wait_until(lambda: any(isinstance(event, tenure.OverheldEvent) for event in told))
        _unanswered(proxy, locks, told)
        lease = locks.lock("still:1").acquire()
        expected: Measured = {
            ("waited", "free", "granted"): 3, ("held", "free"): 3, ("holds", "free"): 0,
            ("waited", "busy", "granted"): 2, ("waited", "busy", "gave_up"): 2, ("held", "busy"): 2,
            ("holds", "busy"): 0,
            ("waited", "lost", "granted"): 3, ("held", "lost"): 3, ("holds", "lost"): 0,
            ("losses", "lost", "deleted"): 1, ("losses", "lost", "taken"): 1, ("losses", "lost", "revoked"): 1,
            ("waited", "long", "granted"): 1, ("held", "long"): 1, ("holds", "long"): 0, ("overheld", "long"): 1,
            ("waited", "wire", "granted"): 2, ("held", "wire"): 2, ("holds", "wire"): 0,
            ("unanswered", "wire", "acquire"): 1, ("losses", "wire", "expired"): 1,
            ("waited", "still", "granted"): 1, ("holds", "still"): 1,
        }  # fmt: skip
        wait_until(lambda: expected.items() <= measured().items(), 30, f"{expected}, not {measured()}")
        # How often was renewed cannot be known in advance; the hooks were told.
        wait_until(lambda: _counts(told).items() <= _sums(measured()).items(), 30, f"{_counts(told)}, {measured()}")
        assert _counts(told)["renewals"] >= 1
        wait_until(lambda: measured().get(("renew_failures", "wire"), 0) >= 1)
        # Told by another thread than the failure, which may have come first: then it is not there at all.
        wait_until(lambda: measured().get(("unanswered", "wire", "renew"), 0) >= 1)
        with pytest.warns(ResourceWarning, match="dropped while held"):
            del lease
    # It has been given back.
    wait_until(lambda: measured()["holds", "still"] == 0, 30, "the last lease to be given back")


def _contended(locks: tenure.Locks, others: tenure.Locks) -> None:
    lease = locks.lock("busy:1").acquire()
    assert others.lock("busy:1").try_acquire() is None
    with pytest.raises(tenure.NotAcquired):
        others.lock("busy:1", wait=0.05).acquire()
    with ThreadPoolExecutor(1) as pool:
        waiter = pool.submit(others.lock("busy:1", wait=30).acquire)
        wait_until(lambda: locks.waiters("busy:1"))
        lease.release()
        waiter.result().release()


def _lost(server: Server, locks: tenure.Locks, others: tenure.Locks, namespace: str) -> None:
    lease = locks.lock("lost:1").acquire()
    server.command("DEL", f"{namespace}:lost:1")
    renew_now(lease)
    assert lease.wait_lost(30)
    lease = locks.lock("lost:2").acquire()
    server.command("SET", f"{namespace}:lost:2", "somebody else", "PX", 60_000)
    renew_now(lease)
    assert lease.wait_lost(30)
    wait_for_inbox(locks)
    lease = locks.lock("lost:3", ttl=120).acquire()
    others.break_lock("lost:3")
    assert lease.wait_lost(30)


def _unanswered(proxy: FaultProxy, locks: tenure.Locks, told: list[Event]) -> None:
    # Its text must be known to the server, or the next request would be the one that sends it.
    proxy.drop_next_reply(scripts.ACQUIRE.sha)
    with locks.lock("wire:1"):
        pass
    lease = locks.lock("wire:2", ttl=6).acquire()
    renew_now(lease)
    wait_until(lambda: any(isinstance(event, tenure.RenewedEvent) for event in told))
    proxy.drop_next_reply(scripts.RENEW.sha, times=None)
    renew_now(lease)
    wait_until(lambda: any(isinstance(event, tenure.RenewFailedEvent) for event in told))
    age(lease, 6)
    assert lease.wait_lost(30)
    proxy.heal()


def _counts(told: list[Event]) -> dict[str, float]:
    kinds = {"renewals": tenure.RenewedEvent, "renew_failures": tenure.RenewFailedEvent}
    return {what: sum(isinstance(event, kind) for event in told) for what, kind in kinds.items()}


def _sums(measured: Measured) -> dict[str, float]:
    return {
        what: sum(value for key, value in measured.items() if key[0] == what) for what in {key[0] for key in measured}
    }
