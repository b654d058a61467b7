"""Whose lease it is: handles, threads and tasks, forks, and verbs that must not touch what is another's."""

from __future__ import annotations

import asyncio
import math
import os
from typing import TYPE_CHECKING, Any

import pytest

import tenure
from tests.cases.server_side import Keys
from tests.harness.aio import run_async
from tests.harness.commands import Monitor
from tests.harness.leases import age, wait_for_inbox
from tests.harness.processes import Worker, say
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from tests.conformance.flavours import AnyLocks, Flavour
    from tests.harness.proxy import FaultProxy
    from tests.harness.servers import Server

LONG = 120.0
"""A ttl that no test waits for."""


@pytest.fixture
def keys(valkey_server: Server, namespace: str) -> Keys:
    return Keys(valkey_server, namespace, "a")


# Handles


def test_a_late_release_leaves_the_lease_of_the_next_user_of_the_same_object(
    locks: AnyLocks, flavour: Flavour, keys: Keys
) -> None:
    """Two tasks shared a lock object; the release of the one whose lock had expired freed the other's."""
    shared = locks.lock("a", ttl=0.2, renew=False)
    first = flavour.spawn(shared.acquire).result(30)
    assert first.wait_lost(30)
    second = flavour.spawn(locks.lock("a", ttl=LONG, wait=30).acquire).result(30)
    assert first.release() is not tenure.Released.RELEASED
    assert keys.token() == second.token
    second.check()
    second.release()


def test_a_lease_can_be_released_by_another_thread_or_task(locks: AnyLocks, flavour: Flavour, keys: Keys) -> None:
    """release() said "not owned" in every thread but the one that had acquired."""
    lease = locks.lock("a", ttl=LONG).acquire()
    assert flavour.spawn(lease.release).result(30) is tenure.Released.RELEASED
    keys.wait_free()


def test_nothing_is_renewed_after_the_release(
    locks: AnyLocks, events: list[tenure.Event], valkey_server: Server, namespace: str
) -> None:
    """A lock was renewed for ever after its release."""
    other = locks.lock("b", ttl=LONG).acquire()
    # From then on no lease is announced, which would be another request.
    wait_for_inbox(locks.raw)
    with Monitor(valkey_server) as monitor:
        lease = locks.lock("a", ttl=LONG).acquire()
        age(lease.raw, LONG / 2)
        wait_until(lambda: renewals(events, "a") >= 1, 30, "a renewal")
        lease.release()
        sent = len(monitor.requests(f"{namespace}:a".encode()))
        for number in (1, 2, 3):
            # The hub looks at all of its leases then.
            age(lease.raw, LONG / 2)
            age(other.raw, LONG / 2)
            wait_until(lambda number=number: renewals(events, "b") >= number, 30, "a renewal of the other lease")
        assert len(monitor.requests(f"{namespace}:a".encode())) == sent
    other.release()


def renewals(events: list[tenure.Event], name: str) -> int:
    return sum(isinstance(event, tenure.RenewedEvent) and event.name == name for event in events)


# Forks


def fork_and_release(url: str, namespace: str) -> None:
    """A worker that forks while it holds; tells what the child and the parent could do."""
    with tenure.Locks(url, namespace=namespace) as locks:
        lease = locks.lock("a", ttl=LONG).acquire()
        tell_from_child(lease)
        lease.check()
        say("parent", lease.release().name)


def fork_and_release_in_a_loop(url: str, namespace: str) -> None:
    """The same in asyncio."""

    async def main() -> None:
        async with tenure.AsyncLocks(url, namespace=namespace) as locks:
            lease = await locks.lock("a", ttl=LONG).acquire()
            tell_from_child(lease)
            lease.check()
            say("parent", (await lease.release()).name)

    run_async(main)


def tell_from_child(lease: tenure.Lease | tenure.AsyncLease) -> None:
    """Fork; the child tries to use the lease and says what came of it."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    try:
        for verb in (lease.check, lease.release, lease.renew):
            try:
                outcome: Any = verb()
                if asyncio.iscoroutine(outcome):
                    asyncio.run(outcome)
                say("child could", verb.__name__)
            except tenure.NotHeld:
                say("child", "NotHeld")
    finally:
        os._exit(0)


@pytest.mark.parametrize("program", [fork_and_release, fork_and_release_in_a_loop], ids=["blocking", "asyncio"])
def test_a_forked_child_cannot_end_the_lease_of_its_parent(url: str, namespace: str, program: Any) -> None:  # noqa: ANN401
    """The child of a fork had a copy of the token, and freed the parent's lock at its end."""
    with Worker.start(program, url, namespace) as worker:
        assert [worker.read_line() for _ in range(4)] == ["child NotHeld"] * 3 + ["parent RELEASED"], worker.errors()


# Verbs


def test_the_release_of_an_expired_lease_answers_at_once(through: AnyLocks, proxy: FaultProxy) -> None:
    """The release of an expired lock was repeated for seconds, then raised "no quorum"."""
    lease = through.lock("a", ttl=0.2, renew=False).acquire()
    assert lease.wait_lost(30)
    # Nobody answers any more: what is known here needs no server.
    proxy.blackhole()
    assert lease.release() is tenure.Released.GONE
    proxy.heal()


def test_a_release_says_what_it_found(locks: AnyLocks, keys: Keys) -> None:
    """The release of an expired lock was reported as a success."""
    lock = locks.lock("a", ttl=LONG)
    assert lock.acquire().release() is tenure.Released.RELEASED
    gone = lock.acquire()
    keys.delete()
    assert gone.release() is tenure.Released.GONE
    taken = lock.acquire()
    keys.overwrite()
    assert taken.release() is tenure.Released.TAKEN
    assert keys.value() == b"their token"


def test_a_renewal_renews(locks: AnyLocks, keys: Keys) -> None:
    """renew() ran the release script."""
    lease = locks.lock("a", ttl=LONG / 4, renew=False).acquire()
    lease.renew(LONG)
    assert keys.token() == lease.token
    assert keys.left_ms() > 500 * LONG
    assert LONG / 2 < lease.remaining() <= LONG
    lease.release()


def test_no_verb_touches_the_key_of_another(locks: AnyLocks, keys: Keys) -> None:
    """Extending or deleting came before looking whose key it was."""
    first, second = locks.lock("a", ttl=LONG, renew=False), locks.lock("a", ttl=LONG, renew=False)
    lease = first.acquire()
    keys.overwrite(life_ms=60_000)
    with pytest.raises(tenure.LeaseLost) as caught:
        lease.renew(60)
    assert caught.value.reason == "taken"
    assert lease.release() is tenure.Released.TAKEN
    assert second.try_acquire() is None
    assert keys.value() == b"their token"
    assert 0 < keys.left_ms() <= 60_000


def test_a_renewal_does_not_bring_a_lease_back_to_life(locks: AnyLocks, keys: Keys) -> None:
    """extend() set the key anew when it was gone, though others might have held the lock in between."""
    lease = locks.lock("a", ttl=LONG, renew=False).acquire()
    keys.delete()
    with pytest.raises(tenure.LeaseLost) as caught:
        lease.renew()
    assert caught.value.reason == "deleted"
    assert keys.value() is None


@pytest.mark.parametrize("ttl", [-20, 0, math.nan, math.inf, True, "5"])
def test_a_renewal_by_nothing_or_less_is_refused(locks: AnyLocks, keys: Keys, ttl: float) -> None:
    """extend(-20) deleted the lock and returned True."""
    lease = locks.lock("a", ttl=LONG).acquire()
    with pytest.raises(tenure.ConfigError):
        lease.renew(ttl)
    lease.check()
    assert keys.left_ms() > 20_000
    lease.release()


def test_renewing_often_does_not_add_up(locks: AnyLocks, keys: Keys) -> None:
    """Each renewal added its time: the ttl crept hours ahead."""
    lease = locks.lock("a", ttl=LONG).acquire()
    for _ in range(5):
        lease.renew()
    assert keys.left_ms() <= 1000 * LONG + 500
    assert lease.remaining() <= LONG
    lease.release()


# Errors


def test_errors_tell_busy_from_lost_from_misused(locks: AnyLocks, others: AnyLocks, keys: Keys) -> None:
    """An unlock said "taken"; one error class stood for busy, cancelled and lost."""
    lease = locks.lock("a", ttl=LONG, info="nightly report").acquire()
    with pytest.raises(tenure.NotAcquired) as busy:
        others.lock("a", wait=0).acquire()
    assert busy.value.names == ("a",)
    assert busy.value.holder is not None
    assert (busy.value.holder.fence, busy.value.holder.info) == (lease.fence, "nightly report")
    assert (busy.value.holder.pid, busy.value.position) == (os.getpid(), 0)
    assert LONG / 2 < busy.value.retry_after < LONG + 1
    with pytest.raises(tenure.AlreadyHeld):
        locks.lock("a").acquire()
    keys.delete()
    with pytest.raises(tenure.LeaseLost) as lost:
        lease.renew()
    assert (lost.value.names, lost.value.reason) == (("a",), "deleted")
    released = locks.lock("a", ttl=LONG).acquire()
    released.release()
    with pytest.raises(tenure.NotHeld):
        released.check()


# What another library could not do


@pytest.mark.parametrize(
    "options",
    [
        *({"ttl": 0}, {"ttl": -1}, {"ttl": 0.0005}, {"ttl": math.nan}, {"ttl": math.inf}, {"ttl": True}, {"ttl": "5"}),
        *({"wait": -1}, {"wait": math.nan}, {"wait": True}, {"wait": "5"}, {"ttl": None}),
    ],
    ids=repr,
)
def test_times_that_cannot_work_are_refused_before_any_request(flavour: Flavour, options: dict[str, Any]) -> None:
    """timeout=0.0005 was an error of the server's, timeout=0 no ttl at all, blocking_timeout=-1 a single try."""
    with pytest.raises(tenure.ConfigError, match=r"ttl|wait"):
        flavour.locks("redis://127.0.0.1:1").lock("a", **options)


def test_fractions_of_a_second_are_taken_as_they_are(locks: AnyLocks, others: AnyLocks, keys: Keys) -> None:
    """acquire(timeout=0.5) hung for ever, expire=0.5 was an error of the server's."""
    lease = locks.lock("a", ttl=30.5).acquire()
    # The ttl and the grace, 1 % of it + 20 ms.
    assert 15_000 < keys.left_ms() <= 30_825
    with pytest.raises(tenure.NotAcquired) as caught:
        others.lock("a", wait=0.15).acquire()
    assert 0.15 <= caught.value.waited < 15
    lease.release()
