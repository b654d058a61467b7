"""Programs of greenlets that are ended, or end with their process."""

# pyright: basic
# gevent has no complete types of its own.

from __future__ import annotations

import contextlib
import os
import random
import sys
import time
from typing import Any

import gevent
from gevent.resolver.blocking import Resolver

import tenure
from tests.contrib.for_gevent.greens import LONG, PATIENCE, program, queue, threads
from tests.harness.leases import age
from tests.harness.processes import say
from tests.harness.waiting import wait_until


@program
def killed(locks: tenure.Locks, url: str, namespace: str) -> None:
    """A greenlet that is ended while it waits or holds leaves nothing behind."""
    holder = locks.lock("n", ttl=LONG).acquire()
    waiter = gevent.spawn(locks.lock("n", ttl=LONG, wait=None).acquire)
    queue(locks, 1)
    waiter.kill()
    queue(locks, 0)
    ended: list[str] = []

    def impatient() -> None:
        try:
            with gevent.Timeout(0.3):
                locks.lock("n", ttl=LONG, wait=None).acquire()
        except gevent.Timeout:
            ended.append("timeout")

    gevent.spawn(impatient).join(PATIENCE)
    assert ended == ["timeout"]
    queue(locks, 0)
    holder.release()

    inside: list[int] = []

    def work() -> None:
        with locks.lock("n", ttl=LONG, wait=PATIENCE) as lease:
            inside.append(lease.fence)
            gevent.sleep(PATIENCE)

    for how in (gevent.GreenletExit, gevent.Timeout(PATIENCE), ValueError("mine")):
        worker = gevent.spawn(work)
        wait_until(lambda: inside, PATIENCE, "the block to be entered")
        inside.clear()
        worker.kill(how, timeout=PATIENCE)
        assert worker.dead
        assert locks.holder("n") is None, "given back by the block itself"


@program
def storm(locks: tenure.Locks, url: str, namespace: str) -> None:
    """Greenlets that are killed at any moment: a request on its way, a wait, a block, a release."""
    chance = random.Random(os.getpid())
    inside = 0

    def work() -> None:
        nonlocal inside
        while True:
            with locks.lock("n", ttl=LONG, wait=PATIENCE):
                inside += 1
                try:
                    assert inside == 1
                    gevent.sleep(0)
                finally:
                    inside -= 1

    crowd = [gevent.spawn(work) for _ in range(5)]
    for _ in range(200):
        gevent.sleep(chance.random() * 0.01)
        number = chance.randrange(len(crowd))
        assert not crowd[number].ready(), crowd[number].exception
        crowd[number].kill(timeout=PATIENCE)
        crowd[number] = gevent.spawn(work)
    gevent.killall(crowd, timeout=PATIENCE)
    wait_until(lambda: locks.holder("n") is None and not locks.waiters("n"), PATIENCE, "nothing to be left")
    statistics = locks.statistics()
    assert (statistics.held, statistics.waiting, statistics.lost) == (0, 0, 0), statistics


@program
def two(locks: tenure.Locks, url: str, namespace: str) -> None:
    """Two `Locks` objects have a thread each, and none when they are closed."""
    # Or gevent looks names up in threads of its own, one more whenever the one that it has is late to call itself idle.
    hub: Any = gevent.get_hub()
    hub.resolver = Resolver()
    before = threads()
    others = tenure.Locks(url, namespace=namespace)
    one, other = locks.lock("one", ttl=LONG).acquire(), others.lock("other", ttl=LONG).acquire()
    wait_until(lambda: threads() == before + 2, PATIENCE, "two threads more, and no helper of theirs")
    waiter = gevent.spawn(others.lock("one", wait=PATIENCE).acquire)
    wait_until(lambda: locks.waiters("one"), PATIENCE, "the other one to wait")
    one.release()
    wanted = waiter.get(timeout=PATIENCE)
    assert locks.lock("other").try_acquire() is None
    others.close()
    wait_until(lambda: threads() == before + 1, PATIENCE, "the thread to end")
    assert not other.valid
    assert not wanted.valid
    locks.lock("other").acquire().release()
    refused = gevent.spawn(locks.lock("other", wait=PATIENCE, ttl=LONG).acquire).get()
    waiter = gevent.spawn(lambda: locks.lock("other", wait=None).acquire())
    wait_until(lambda: locks.waiters("other"), PATIENCE, "somebody to wait")
    locks.close()
    wait_until(lambda: threads() == before, PATIENCE, "the thread to end")
    assert refused.lost == "closed"
    waiter.join(PATIENCE)
    assert isinstance(waiter.exception, tenure.NotAcquired)


@program
def ends(locks: tenure.Locks, url: str, namespace: str) -> None:
    """The program ends while greenlets hold and wait."""
    leases = [locks.lock(name, ttl=LONG).acquire() for name in ("n", "m")]
    waiters = [gevent.spawn(locks.lock("n", wait=None).acquire) for _ in range(3)]
    queue(locks, len(waiters))
    assert all(lease.valid for lease in leases)
    # Still referred to when the interpreter ends.
    sys.modules["kept"] = leases  # type: ignore[assignment]


@program
def told_to_end(locks: tenure.Locks, url: str, namespace: str) -> None:
    """SIGTERM strikes while all greenlets sleep, which is in gevent's own hub."""
    locks.close_on_signals()
    lease = locks.lock("n", ttl=LONG).acquire()

    def wait() -> None:
        with contextlib.suppress(tenure.NotAcquired):
            locks.lock("n", wait=None).acquire()

    waiter = gevent.spawn(wait)
    queue(locks, 1)
    say("ready")
    gevent.sleep(PATIENCE)
    assert (lease, waiter) == (None, None), "the signal has not come"


@program
def told_to_end_while_busy(locks: tenure.Locks, url: str, namespace: str) -> None:
    """SIGTERM strikes a greenlet that computes."""
    locks.close_on_signals()
    lease = locks.lock("n", ttl=LONG).acquire()
    say("ready")
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        sum(range(1000))
    assert lease is None, "the signal has not come"


@program
def exits_in_a_callback(locks: tenure.Locks, url: str, namespace: str) -> None:
    """A callback is a greenlet of the main thread: an exit, or a Ctrl-C, that strikes there is the program's own."""

    def leave(_: tenure.Lease) -> None:
        sys.exit(7)

    lease = locks.lock("n", ttl=LONG, on_lost=leave).acquire()
    locks.break_lock("n")
    gevent.sleep(PATIENCE)
    assert lease is None, "the exit was swallowed"


@program
def forks(locks: tenure.Locks, url: str, namespace: str) -> None:
    """In a forked child the greenlets that held or waited go on, and have nothing."""
    held = locks.lock("n", ttl=LONG).acquire()
    waiter = gevent.spawn(locks.lock("n", ttl=LONG, wait=PATIENCE).acquire)
    tickets = locks.session().hub.tickets
    wait_until(lambda: any(ticket.position is not None for ticket in tickets.values()), PATIENCE, "it to sleep")
    child = os.fork()
    if child == 0:
        code = 1
        try:
            waiter.join(PATIENCE)
            assert isinstance(waiter.exception, tenure.NotAcquired), waiter.exception
            assert held.lost == "forked"
            assert locks.lock("n").try_acquire() is None
            with locks.lock("child", ttl=LONG) as mine:
                age(mine, LONG / 2 + 1)
                wait_until(lambda: mine.remaining() > LONG / 2, PATIENCE, "the child's hub to renew")
            locks.close()
            code = 0
        except BaseException as error:  # noqa: BLE001 - told by the parent
            say("child:", repr(error))
        os._exit(code)
    _, status = os.waitpid(child, 0)
    assert status == 0
    held.check()
    assert len(locks.waiters("n")) == 1
    held.release()
    waiter.get(timeout=PATIENCE).release()
