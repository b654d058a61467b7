"""Several names, readers and writers, semaphores: what went wrong with them elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import tenure
from tests.harness.leases import age
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from tests.conformance.flavours import AnyLease, AnyLocks, Flavour

LONG = 120.0
"""A ttl that no test waits for."""


def test_names_in_different_orders_do_not_wait_for_each_other(
    locks: AnyLocks, others: AnyLocks, flavour: Flavour
) -> None:
    """Two callers took the same locks in the order in which they had named them, and waited for each other for ever."""

    def turns(who: AnyLocks, names: tuple[str, ...]) -> int:
        done = 0
        for _ in range(20):
            with who.lock(*names, ttl=LONG, wait=60).block():
                done += 1
        return done

    one = flavour.spawn(turns, locks, ("a", "b", "c"))
    other = flavour.spawn(turns, others, ("c", "b", "a", "c"))
    assert (one.result(90), other.result(90)) == (20, 20)


def test_giving_up_on_several_leaves_none_of_them_held(locks: AnyLocks, others: AnyLocks) -> None:
    """A multi-lock that could not have all of its locks kept those that it had already taken."""
    with others.lock("b", ttl=LONG).block():
        assert locks.lock("a", "b", "c", ttl=LONG).try_acquire(0.1) is None
        wait_until(lambda: others.holder("a") is None and others.holder("c") is None, 30, "the others to be free")


def test_one_try_at_several_free_locks_is_a_try(locks: AnyLocks) -> None:
    """With a wait of 0 a multi-lock never succeeded, since the time for each of its locks was 0 / n."""
    lease = locks.lock("a", "b", "c", ttl=LONG).try_acquire()
    assert lease is not None
    lease.release()


def test_several_have_one_budget_of_waiting(locks: AnyLocks, others: AnyLocks) -> None:
    """A multi-lock of n locks waited n times as long as it was told to."""
    with others.lock("a", ttl=LONG).block(), others.lock("b", ttl=LONG).block(), others.lock("c", ttl=LONG).block():
        waited: list[float] = []
        # The shortest of a few: a machine that stands still adds to one of them.
        for _ in range(3):
            with pytest.raises(tenure.NotAcquired) as failure:
                locks.lock("a", "b", "c", ttl=LONG, wait=1).acquire()
            waited.append(failure.value.waited)
    assert all(seconds >= 1 for seconds in waited)
    assert min(waited) < 2, "a budget for each of them"


def test_the_reason_of_a_failure_is_not_hidden_by_the_rollback(locks: AnyLocks, others: AnyLocks) -> None:
    """An error while the first locks were given back replaced the one that told why."""
    with others.semaphore("b", 2, ttl=LONG).block(), pytest.raises(tenure.NameConflict, match="in use as a semaphore"):
        locks.lock("a", "b", ttl=LONG).acquire()
    assert others.holder("a") is None


def test_a_reader_that_died_does_not_keep_writers_out(locks: AnyLocks, others: AnyLocks, flavour: Flavour) -> None:
    """Readers shared one expiry, which those who lived renewed for the dead as well."""
    dead = locks.lock("a", ttl=1, shared=True, renew=False).acquire()
    living = others.lock("a", ttl=LONG, shared=True).acquire()
    age(dead.raw, 2)
    living.renew()
    writer = flavour.spawn(flavour.locks(others.raw.client, namespace=others.raw.namespace).lock("a", wait=60).acquire)
    wait_until(lambda: bool(others.waiters("a")), 30, "the writer to wait")
    living.release()
    writer.result(60).release()


def test_a_reader_renews_its_own_place_alone(locks: AnyLocks, others: AnyLocks) -> None:
    """A renewal by one reader moved the end of all of them."""
    short = locks.lock("a", ttl=LONG / 2, shared=True, renew=False).acquire()
    long = others.lock("a", ttl=LONG, shared=True).acquire()
    long.renew()
    ends = sorted(holder.expires_in or 0.0 for holder in others.holders("a"))
    assert ends[0] < LONG * 3 / 4 < ends[1]
    short.release()
    long.release()


def test_places_of_a_semaphore_neither_multiply_nor_vanish(locks: AnyLocks, others: AnyLocks) -> None:
    """A counter beside a list of tokens drifted: after crashes there were more places, or none."""
    for _ in range(4):
        # Exported, and adopted by nobody: as if its holder had died without a word.
        assert locks.semaphore("a", 2, ttl=4, wait=60).acquire().export()
    wait_until(lambda: not others.holders("a"), 30, "all of them to end")
    places: list[AnyLease] = []
    for _ in range(2):
        places.append(others.semaphore("a", 2, ttl=LONG).acquire())
        places[-1].detach()
    assert others.semaphore("a", 2, ttl=LONG).try_acquire() is None
    for place in places:
        place.release()
    assert not others.holders("a")


def test_a_release_wakes_who_waits_for_a_place(locks: AnyLocks, others: AnyLocks, flavour: Flavour) -> None:
    """A waiter was only woken by a number of free places that it had not asked for."""
    places: list[AnyLease] = []
    for _ in range(2):
        places.append(locks.semaphore("a", 2, ttl=LONG).acquire())
        places[-1].detach()
    waiting = [flavour.spawn(others.semaphore("a", 2, ttl=LONG, wait=60).acquire) for _ in range(2)]
    wait_until(lambda: len(locks.waiters("a")) == 2, 30, "both to wait")
    for place in places:
        place.release()
    for waiter in waiting:
        waiter.result(60).release()
