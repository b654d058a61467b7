"""Programs of greenlets that hold and wait."""

# pyright: basic
# gevent has no complete types of its own.

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from pathlib import Path

import gevent
import redis
from gevent import exceptions

import tenure
from tests.contrib.for_gevent.greens import CROWD, LONG, PATIENCE, native_ident, program, queue
from tests.harness.leases import age, renew_now, wait_for_inbox
from tests.harness.processes import say
from tests.harness.waiting import wait_until


@program
def in_order(locks: tenure.Locks, url: str, namespace: str) -> None:
    """A crowd of greenlets waits and is served in order, while another greenlet goes on."""
    ticks, served, fences, inside = 0, [], [], 0

    def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            gevent.sleep(0)

    def work(number: int) -> None:
        nonlocal inside
        with locks.lock("n", ttl=LONG, wait=PATIENCE) as lease:
            inside += 1
            assert inside == 1
            gevent.sleep(0)
            served.append(number)
            fences.append(lease.fence)
            inside -= 1

    first = locks.lock("n", ttl=LONG).acquire()
    crowd = []
    for number in range(CROWD):
        crowd.append(gevent.spawn(work, number))
        queue(locks, number + 1)
    ticker = gevent.spawn(tick)
    wait_until(lambda: ticks > 100, PATIENCE, "another greenlet to go on while all these wait")
    assert served == []
    first.release()
    gevent.joinall(crowd, timeout=PATIENCE, raise_error=True)
    ticker.kill()
    assert served == list(range(CROWD))
    assert fences == sorted({first.fence, *fences} - {first.fence})
    assert locks.statistics().held == 0


@program
def share(locks: tenure.Locks, url: str, namespace: str) -> None:
    """Greenlets that exclude each other, and those of another process that does the same."""
    client = redis.Redis.from_url(url)

    def work() -> list[int]:
        fences = []
        for _ in range(4):
            with locks.lock("n", ttl=LONG, wait=PATIENCE) as lease:
                assert client.incr(f"testdata:{namespace}") == 1
                gevent.sleep(0.001)
                assert client.decr(f"testdata:{namespace}") == 0
                fences.append(lease.fence)
        return fences

    crowd = [gevent.spawn(work) for _ in range(10)]
    gevent.joinall(crowd, timeout=PATIENCE, raise_error=True)
    found = [greenlet.get() for greenlet in crowd]
    assert all(fences == sorted(fences) for fences in found)
    say("fences", *(fence for fences in found for fence in fences))


@program
def owners(locks: tenure.Locks, url: str, namespace: str) -> None:
    """Who holds a lock is a greenlet, as it is a thread elsewhere."""
    with locks.lock("n", ttl=LONG) as lease:
        try:
            locks.lock("n", wait=PATIENCE).acquire()
        except tenure.AlreadyHeld:
            say("nested")
        assert locks.current("n") is lease
        assert gevent.spawn(locks.current, "n").get() is None
        assert gevent.spawn(locks.lock("n").try_acquire).get() is None
    with locks.lock("n", reentrant=True) as outer, locks.lock("n", reentrant=True) as inner:
        assert inner is outer


@program
def busy(locks: tenure.Locks, url: str, namespace: str) -> None:
    """A greenlet that computes without a switch loses nothing; what is lost then is told to all who wait for it."""
    ticks = 0

    def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            gevent.sleep(0)

    ticker = gevent.spawn(tick)
    told: list[object] = []
    lease = locks.lock("n", ttl=LONG, on_lost=lambda _: told.append((native_ident(), gevent.getcurrent()))).acquire()
    wait_until(lambda: ticks, PATIENCE, "the other greenlet to begin")
    before, until = ticks, time.monotonic() + PATIENCE
    for _ in range(6):
        age(lease, LONG / 2 + 1)
        while lease.remaining() < LONG / 2 and time.monotonic() < until:
            sum(range(1000))
    assert ticks == before, "nothing has switched meanwhile"
    assert lease.held_for() > 3 * LONG
    lease.check()
    waiters = [gevent.spawn(lease.wait_lost, PATIENCE) for _ in range(3)]
    assert gevent.spawn(lease.wait_lost, 0.01).get() is False
    redis.Redis.from_url(url).delete(f"{namespace}:n")
    renew_now(lease)
    assert [waiter.get(timeout=PATIENCE) for waiter in waiters] == [True, True, True]
    assert lease.lost == "deleted"
    wait_until(lambda: told, PATIENCE, "the callback")
    assert told[0] == (native_ident(), told[0][1])  # type: ignore[index]
    assert told[0][1] is not gevent.getcurrent()  # type: ignore[index]
    ticker.kill()


@program
def asked(locks: tenure.Locks, url: str, namespace: str) -> None:
    """A greenlet that waits to be asked is woken by who asks from another process's locks."""
    lease = locks.lock("n", ttl=LONG).acquire()
    waiter = gevent.spawn(lease.wait_asked, PATIENCE)
    wait_for_inbox(locks)
    with tenure.Locks(url, namespace=namespace) as others:
        wanted = gevent.spawn(others.lock("n", wait=PATIENCE, ask_after=0).acquire)
        assert waiter.get(timeout=PATIENCE)
        lease.release()
        wanted.get(timeout=PATIENCE).release()


@program
def in_threads(locks: tenure.Locks, url: str, namespace: str) -> None:
    """Threads of the system beside the greenlets, of gevent's pool: one `Locks` object for all of them."""
    inside = 0

    def work() -> int:
        nonlocal inside
        for _ in range(5):
            with locks.lock("n", ttl=LONG, wait=PATIENCE):
                inside += 1
                assert inside == 1
                gevent.sleep(0.001)
                inside -= 1
        return native_ident()

    pool = gevent.get_hub().threadpool
    crowd = [*(pool.spawn(work) for _ in range(4)), *(gevent.spawn(work) for _ in range(4))]
    where = {each.get(timeout=PATIENCE) for each in crowd}
    assert native_ident() in where
    assert len(where) > 1


@program
def logs(locks: tenure.Locks, url: str, namespace: str) -> None:
    """The log, whose locks are gevent's, is used by the greenlets and by the hub's thread."""
    with Path(os.devnull).open("w") as nowhere:
        logging.basicConfig(level=logging.DEBUG, stream=nowhere)
        stop = threading.Event()

        def noisy() -> None:
            while not stop.is_set():
                for number in range(20):
                    logging.getLogger(f"other{number}").debug("noise")
                gevent.sleep(0)

        def work() -> None:
            for _ in range(10):
                with locks.lock("n", ttl=LONG, wait=PATIENCE) as lease:
                    age(lease, LONG / 2 + 1)
                    wait_until(lambda lease=lease: lease.remaining() > LONG / 2, PATIENCE, "a renewal")

        noise = [gevent.spawn(noisy) for _ in range(2)]
        gevent.joinall([gevent.spawn(work) for _ in range(4)], timeout=PATIENCE, raise_error=True)
        stop.set()
        gevent.joinall(noise, timeout=PATIENCE, raise_error=True)
        locks.close()


@program
def renewed(locks: tenure.Locks, url: str, namespace: str) -> None:
    """The hub reaches the server in the way that the URL says, and after its connections were cut."""
    with locks.lock("n", ttl=LONG) as lease:
        client = redis.Redis.from_url(url)
        for cut in (False, True):
            if cut:
                wait_for_inbox(locks)
                for kind in ("normal", "pubsub"):
                    client.client_kill_filter(_type=kind, skipme=True)
            age(lease, LONG / 2 + 1)
            while lease.remaining() < LONG / 2:
                sum(range(1000))
        client.close()
        waiter = gevent.spawn(locks.lock("n", ttl=LONG, wait=PATIENCE).acquire)
        queue(locks, 1)
    waiter.get(timeout=PATIENCE).release()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@program
def callback_alone(locks: tenure.Locks, url: str, namespace: str) -> None:
    """Who waits for nothing but a callback is told by gevent that nobody could wake it; `wait_lost` is no such wait."""
    told = threading.Event()
    lease = locks.lock("n", ttl=LONG, on_lost=lambda _: told.set()).acquire()
    try:
        told.wait()
    except exceptions.LoopExit:
        say("LoopExit")
    redis.Redis.from_url(url).delete(f"{namespace}:n")
    renew_now(lease)
    assert lease.wait_lost(PATIENCE)
    wait_until(told.is_set, PATIENCE, "the callback")
