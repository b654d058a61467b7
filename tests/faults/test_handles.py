"""Rows 10, 13, 46 and 47, and handles that are dropped: what a program can do to a lease that it holds."""

from __future__ import annotations

import asyncio
import copy
import gc
import pickle
import threading
from typing import TYPE_CHECKING, Any

import pytest

from tenure import AsyncLocks, LeaseLost, Locks, NotHeld, Released
from tests.faults.support import (
    FLAVOURS,
    SLACK,
    UNHURRIED,
    Driver,
    Stopwatch,
    key_fence,
    key_of,
    set_timeouts,
    traces,
    wait_clean,
    wait_queued,
)
from tests.harness.aio import run_async
from tests.harness.leases import renew_now
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tenure import AsyncLease, Lease
    from tests.faults.support import Flavour
    from tests.harness.servers import Server

NAME = "precious"
LONG = 120.0
"""A ttl that no test waits for."""
BOTH = pytest.mark.parametrize("flavour", FLAVOURS)


class BodyFailed(Exception):
    """What the body of a block raises."""


# Row 10


@pytest.mark.parametrize("error", [BodyFailed, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_row_10_an_error_in_the_body_passes_and_the_lock_is_given_back(
    valkey_server: Server, namespace: str, error: type[BaseException]
) -> None:
    raised = error("mine")
    with Locks(valkey_server.url, namespace=namespace) as locks:
        with pytest.raises(error) as caught, locks.lock(NAME):
            raise raised
        assert caught.value is raised
        assert not traces(valkey_server, namespace)

    async def main() -> None:
        async with AsyncLocks(valkey_server.url, namespace=namespace) as aio:
            with pytest.raises(BodyFailed) as caught:
                async with aio.lock(NAME):
                    raise BodyFailed
            assert not hasattr(caught.value, "__notes__")
            assert not traces(valkey_server, namespace)

    run_async(main)


@BOTH
@pytest.mark.parametrize("body_fails", [True, False])
def test_row_10_the_bodys_error_wins_over_the_loss_which_becomes_a_note(
    valkey_server: Server, namespace: str, flavour: Flavour, body_fails: bool
) -> None:
    def use_blocking(locks: Locks) -> None:
        with locks.lock(NAME, ttl=LONG) as lease:
            lose(lease)
            if body_fails:
                raise BodyFailed

    async def use_asyncio(locks: AsyncLocks) -> None:
        async with locks.lock(NAME, ttl=LONG, cancel_on_lost=False) as lease:
            lose(lease)
            if body_fails:
                raise BodyFailed

    def lose(lease: Lease | AsyncLease) -> None:
        valkey_server.command("DEL", f"{namespace}:{NAME}")
        renew_now(lease)
        wait_until(lambda: lease.lost, 30, "the loss to be noticed")

    def use() -> None:
        if flavour == "blocking":
            with Locks(valkey_server.url, namespace=namespace) as locks:
                use_blocking(locks)
            return

        async def main() -> None:
            async with AsyncLocks(valkey_server.url, namespace=namespace) as locks:
                await use_asyncio(locks)

        asyncio.run(main())

    with pytest.raises(BodyFailed if body_fails else LeaseLost) as caught:
        use()
    if body_fails:
        assert any(NAME in note and "lost" in note for note in caught.value.__notes__)


@BOTH
def test_row_10_a_failed_release_does_not_hide_the_bodys_error(
    private_server: Server, namespace: str, flavour: Flavour
) -> None:
    """The server is gone when the block ends."""

    def use_blocking() -> None:
        with Locks(private_server.url, namespace=namespace) as locks, locks.lock(NAME):
            private_server.kill9()
            set_timeouts(locks, 0.3, 0.1)
            raise BodyFailed

    async def use_asyncio() -> None:
        async with AsyncLocks(private_server.url, namespace=namespace) as locks, locks.lock(NAME):
            private_server.kill9()
            set_timeouts(locks, 0.3, 0.1)
            raise BodyFailed

    watch = Stopwatch()
    with pytest.raises(BodyFailed):
        use_blocking() if flavour == "blocking" else asyncio.run(use_asyncio())
    assert watch.seconds < 0.3 + 1 + 2 * SLACK


# Row 13


@BOTH
def test_row_13_a_held_lease_refuses_pickle_and_copy(valkey_server: Server, namespace: str, flavour: Flavour) -> None:
    with Driver(flavour, valkey_server.url, namespace) as driver:
        lease = driver.acquire(NAME)
        for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="lease"):
                attempt(lease)
        assert lease.valid
        assert driver.release(lease) is Released.RELEASED


# Rows 46 and 47


@BOTH
def test_row_46_a_second_release_never_frees_anothers_lock(
    valkey_server: Server, namespace: str, flavour: Flavour
) -> None:
    with (
        Driver(flavour, valkey_server.url, namespace) as driver,
        Driver(flavour, valkey_server.url, namespace) as other,
    ):
        lease = driver.acquire(NAME)
        grant = other.soon(other.lock(NAME).acquire)
        wait_queued(valkey_server, namespace, NAME)
        assert driver.release(lease) is Released.RELEASED
        theirs = grant.result(30)
        before = key_of(valkey_server, namespace, NAME)
        assert driver.release(lease) is Released.GONE
        assert key_of(valkey_server, namespace, NAME) == before
        with pytest.raises(NotHeld):
            lease.check()
        with pytest.raises(NotHeld):
            driver.renew(lease)
        assert other.release(theirs) is Released.RELEASED


def test_row_46_released_by_two_threads_at_once(valkey_server: Server, namespace: str) -> None:
    rounds, threads = 30, 4
    with Locks(valkey_server.url, namespace=namespace) as locks, Locks(valkey_server.url, namespace=namespace) as other:
        for _ in range(rounds):
            lease = locks.lock(NAME, wait=30).acquire()
            answers: list[Released] = []
            together = threading.Barrier(threads)

            def release(
                lease: Lease = lease, answers: list[Released] = answers, together: threading.Barrier = together
            ) -> None:
                together.wait(30)
                answers.append(lease.release())

            workers = [threading.Thread(target=release) for _ in range(threads)]
            for worker in workers:
                worker.start()
            theirs = other.lock(NAME, wait=30).acquire()
            for worker in workers:
                worker.join()
            assert answers == [Released.RELEASED] * len(answers) or set(answers) == {Released.RELEASED, Released.GONE}
            assert len(answers) == threads
            assert lease.lost is None, "a release was taken for tampering by the other one"
            assert key_fence(valkey_server, namespace, NAME) == theirs.fence, "the second release freed another's lock"
            theirs.release()
        assert locks.statistics().released == rounds
        assert locks.statistics().lost == 0


@BOTH
def test_row_47_a_release_after_the_end_leaves_the_next_holder_alone(
    valkey_server: Server, namespace: str, flavour: Flavour
) -> None:
    with (
        Driver(flavour, valkey_server.url, namespace) as driver,
        Driver(flavour, valkey_server.url, namespace) as other,
    ):
        # Reachable from the first: a lease that is announced a second later has another value then.
        other.warm()
        lease = driver.acquire(NAME, ttl=0.3, renew=False)
        theirs = other.acquire(NAME)
        before = key_of(valkey_server, namespace, NAME)
        assert lease.remaining() == 0
        assert driver.release(lease) in (Released.GONE, Released.TAKEN)
        assert lease.lost == "expired"
        assert key_of(valkey_server, namespace, NAME) == before
        assert theirs.valid
        assert other.release(theirs) is Released.RELEASED


@BOTH
def test_row_47_a_key_that_another_client_took_is_told_by_the_release(
    valkey_server: Server, namespace: str, flavour: Flavour
) -> None:
    """An operator deletes the key of a live lease, and another client takes the lock: the release says so."""
    with (
        # A release that is sent again cannot tell who holds: its first one may have worked.
        Driver(flavour, valkey_server.url, namespace, **UNHURRIED) as driver,
        Driver(flavour, valkey_server.url, namespace) as other,
    ):
        # Nor is the lease to be announced in between, which would find the key gone.
        driver.warm()
        lease = driver.acquire(NAME, ttl=LONG)
        valkey_server.command("DEL", f"{namespace}:{NAME}")
        theirs = other.acquire(NAME)
        assert theirs.fence > lease.fence
        assert driver.release(lease) is Released.TAKEN
        assert lease.lost == "taken"
        assert key_fence(valkey_server, namespace, NAME) == theirs.fence
        assert other.release(theirs) is Released.RELEASED


# Dropped handles


def drop(boxes: list[Any]) -> None:
    """Forget what only the list refers to."""
    boxes.clear()
    gc.collect()


def test_a_dropped_handle_is_given_back_with_a_warning(valkey_server: Server, namespace: str) -> None:
    with Locks(valkey_server.url, namespace=namespace) as locks, Locks(valkey_server.url, namespace=namespace) as other:
        lease = locks.lock(NAME, ttl=LONG).acquire()
        waiter = threading.Thread(target=lambda: other.lock(NAME, wait=30).acquire().release())
        waiter.start()
        wait_queued(valkey_server, namespace, NAME)
        boxes = [lease]
        del lease
        with pytest.warns(ResourceWarning, match=NAME):
            drop(boxes)
        waiter.join(30)
        assert not waiter.is_alive(), "the next in the queue was not served"
        wait_clean(valkey_server, namespace)
        assert locks.statistics().held == 0


def test_a_dropped_handle_of_asyncio_is_given_back_with_a_warning(valkey_server: Server, namespace: str) -> None:
    async def main() -> None:
        async with AsyncLocks(valkey_server.url, namespace=namespace) as locks:
            boxes = [await locks.lock(NAME, ttl=LONG).acquire()]
            with pytest.warns(ResourceWarning, match=NAME):
                drop(boxes)
            async with locks.lock(NAME, wait=30):
                pass
            assert locks.statistics().held == 0

    run_async(main)
    assert not traces(valkey_server, namespace)


def test_a_handle_in_a_cycle_is_given_back_when_it_is_collected(valkey_server: Server, namespace: str) -> None:
    with Locks(valkey_server.url, namespace=namespace) as locks:
        ring: list[object] = [locks.lock(NAME, ttl=LONG).acquire()]
        ring.append(ring)
        # Kept until the warning is awaited: the collector may come by itself as soon as nobody has the ring.
        boxes: list[Any] = [ring]
        del ring
        with pytest.warns(ResourceWarning, match=NAME):
            drop(boxes)
        wait_clean(valkey_server, namespace)


def test_a_dropped_locks_object_gives_back_what_it_held(
    valkey_server: Server, namespace: str, patient_close: None
) -> None:
    """Without `close`: nobody can use its leases any more."""
    boxes: list[object] = [Locks(valkey_server.url, namespace=namespace).lock(NAME, ttl=LONG).acquire()]
    with pytest.warns(ResourceWarning):
        drop(boxes)
    wait_clean(valkey_server, namespace)


# Rows 61 and 62


@pytest.mark.parametrize("make", [str, str.encode])
@BOTH
def test_row_61_a_huge_name_is_refused_before_any_io(
    namespace: str, flavour: Flavour, make: Callable[[str], str | bytes]
) -> None:
    # Nobody listens there.
    with Driver(flavour, "redis://127.0.0.1:1/0", namespace) as driver:
        for size in (513, 20_000_000):
            with pytest.raises(ValueError, match="512"):
                driver.lock(make("x" * size))
        assert driver.locks.statistics().requests == 0


HOSTILE = [
    "*", "?", "[a-z]", "a*", "{}", "{a}", "}{", "a}b{c", "%7B", "%", "..", "../../etc/passwd", "'; FLUSHALL; --",
    '"]]; redis.call("FLUSHALL") --[[', "a:fence", "a}:queue", "a:queue", "$(id)", "`id`", "\\",
    "\\r\\n*1", "name with spaces",
    "\N{RIGHT-TO-LEFT OVERRIDE}abc", "zero\N{ZERO WIDTH SPACE}width", "\N{FIRE}", "x" * 512, b"\xff\xfe",
]  # fmt: skip


@BOTH
def test_row_62_hostile_names_touch_nothing_but_their_own_keys(
    valkey_server: Server, namespace: str, flavour: Flavour
) -> None:
    """All are held at once, each with a waiter; none excludes, wakes or deletes another."""
    with (
        Driver(flavour, valkey_server.url, namespace) as driver,
        Driver(flavour, valkey_server.url, namespace) as other,
    ):
        bystander = driver.acquire("bystander")
        leases = [driver.acquire(name, wait=0) for name in HOSTILE]
        assert len(driver.soon(driver.locks.list).result(30)) == len(HOSTILE) + 1
        grants = [other.soon(other.lock(name).acquire) for name in HOSTILE]
        wait_until(lambda: other.locks.statistics().waiting == len(HOSTILE), 30, "all to wait")
        for lease, grant, name in zip(leases, grants, HOSTILE, strict=True):
            assert driver.release(lease) is Released.RELEASED
            theirs = grant.result(30)
            assert theirs.fence > lease.fence, name
            assert other.release(theirs) is Released.RELEASED
        assert bystander.valid
        assert key_fence(valkey_server, namespace, "bystander") == bystander.fence
        assert driver.release(bystander) is Released.RELEASED
    assert not traces(valkey_server, namespace)
