"""Rows 1 and 2: a holder or a waiter is killed with SIGKILL."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import TYPE_CHECKING

import pytest

from tenure import AsyncLocks, Locks
from tenure.core import schedule
from tests.faults.support import (
    FLAVOURS,
    SELDOM,
    SLACK,
    UNHURRIED,
    Driver,
    FencedRegister,
    key_fence,
    queue_length,
    traces,
    wait_queued,
)
from tests.harness.commands import CallCounter
from tests.harness.processes import Worker, say
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from tests.faults.support import Flavour
    from tests.harness.servers import Server

NAME = "precious"
TTL = 0.6
GRACE = 0.01 * TTL + 0.02
LONG = 120.0
"""A ttl that no test waits for; a waiter with it polls once a minute."""
BOTH = pytest.mark.parametrize("flavour", FLAVOURS)
pytestmark = pytest.mark.usefixtures("seldom_polled")


def take_and_hold(flavour: Flavour, url: str, namespace: str, ttl: float) -> None:
    """Worker: takes the lock, says when and with which fence, and holds it until its standard input ends.

    A ping of its inbox that is answered late must not make it subscribe anew, and ask: its questions are counted.
    """
    schedule.NEAR_CAP = SELDOM

    async def main() -> None:
        async with (
            AsyncLocks(url, namespace=namespace, server_timeout=30) as locks,
            locks.lock(NAME, ttl=ttl) as lease,
        ):
            say("granted", time.monotonic(), lease.fence)
            await asyncio.to_thread(sys.stdin.readline)

    if flavour == "asyncio":
        asyncio.run(main())
        return
    with Locks(url, namespace=namespace, server_timeout=30) as locks, locks.lock(NAME, ttl=ttl) as lease:
        say("granted", time.monotonic(), lease.fence)
        sys.stdin.readline()


@BOTH
def test_row_1_a_killed_holder_keeps_the_lock_no_longer_than_its_lease(
    valkey_server: Server, namespace: str, flavour: Flavour
) -> None:
    with (
        Driver(flavour, valkey_server.url, namespace) as next_one,
        FencedRegister(valkey_server, namespace) as register,
        Worker.start(take_and_hold, flavour, valkey_server.url, namespace, TTL) as holder,
    ):
        killed_fence = int(holder.wait_for("granted").split()[2])
        assert register.write(killed_fence, "by the first holder")
        grant = next_one.soon(next_one.lock(NAME, ttl=30).acquire)
        # A machine that stood still may have ended the first lease already.
        wait_until(lambda: grant.done() or queue_length(valkey_server, namespace, NAME) == 1, 30, "a waiter")
        holder.kill9()
        # Asked for when the lease was to end, and not only by a poll after a minute.
        lease = grant.result(TTL + GRACE + 2 * SLACK)
        assert lease.fence > killed_fence
        assert lease.valid
        assert register.write(lease.fence, "by the next holder")
        assert not register.write(killed_fence, "by the dead, late on the wire")
        assert register.value() == "by the next holder"
        next_one.release(lease)
        assert not traces(valkey_server, namespace)


@BOTH
def test_row_1_the_lock_of_a_killed_holder_is_free_without_a_waiter(
    valkey_server: Server, namespace: str, flavour: Flavour
) -> None:
    """Nobody renews for the dead, and nothing but time has to pass."""
    with Worker.start(take_and_hold, flavour, valkey_server.url, namespace, TTL) as holder:
        holder.wait_for("granted")
        holder.kill9()
    wait_until(lambda: not traces(valkey_server, namespace), TTL + GRACE + SLACK, "the key to end")


@BOTH
@pytest.mark.parametrize("dead", [1, 2])
def test_row_2_a_killed_waiter_is_skipped_in_the_release_itself(
    valkey_server: Server, namespace: str, flavour: Flavour, dead: int
) -> None:
    """The waiters in front die; the next living one is served by the very same release, not by a poll of its own."""
    workers: list[Worker] = []
    try:
        with Driver(flavour, valkey_server.url, namespace, **UNHURRIED) as holding:
            holding.warm()
            lease = holding.acquire(NAME, ttl=LONG)
            for number in range(dead + 1):
                workers.append(Worker.start(take_and_hold, flavour, valkey_server.url, namespace, LONG))
                wait_queued(valkey_server, namespace, NAME, number + 1)
            for worker in workers[:dead]:
                worker.kill9()
            living = workers[-1]
            with CallCounter(valkey_server.admin) as calls:
                released_at = time.monotonic()
                holding.release(lease)
                returned_at = time.monotonic()
                _, granted_at, fence = living.wait_for("granted").split()
            assert calls.scripts == 1, "somebody had to ask"
            assert released_at < float(granted_at) < returned_at + SLACK
            assert int(fence) == key_fence(valkey_server, namespace, NAME) > lease.fence
            assert queue_length(valkey_server, namespace, NAME) == 0, "the dead still queue"
            living.write_line()
            assert living.wait() == 0
            assert not traces(valkey_server, namespace)
    finally:
        for worker in workers:
            worker.close()


def test_row_2_a_killed_waiter_leaves_no_trace_when_nobody_else_comes(valkey_server: Server, namespace: str) -> None:
    with Driver("blocking", valkey_server.url, namespace) as holding:
        lease = holding.acquire(NAME)
        with Worker.start(take_and_hold, "blocking", valkey_server.url, namespace, TTL) as waiter:
            wait_queued(valkey_server, namespace, NAME)
            waiter.kill9()
        holding.release(lease)
        assert not traces(valkey_server, namespace), "the dead waiter was granted the lock"


def test_row_2_the_entry_of_a_killed_waiter_ends_by_itself(valkey_server: Server, namespace: str) -> None:
    """Also when the holder stays: the queue's keys live no longer than twice what an entry may."""
    with Driver("blocking", valkey_server.url, namespace) as holding:
        lease = holding.acquire(NAME)
        with Worker.start(take_and_hold, "blocking", valkey_server.url, namespace, TTL) as waiter:
            wait_queued(valkey_server, namespace, NAME)
            # At its first poll it says how long its place is to live from then on: three polls of half a ttl each.
            wait_until(
                lambda: (
                    valkey_server.command("HLEN", f"{{{namespace}:{NAME}}}:entry") > 0
                    and _entry_ends_within(valkey_server, namespace, 1.5 * TTL + SLACK)
                ),
                30,
                "the entry's life to shrink to what its place needs",
            )
            waiter.kill9()
        # Places are looked at when somebody acquires or releases.
        wait_until(
            lambda: (
                holding.soon(holding.lock(NAME).holder).result(30) and _first_waiter_is_dead(valkey_server, namespace)
            ),
            1.5 * TTL + 2 * SLACK,
            "the entry to end",
        )
        holding.release(lease)
        assert not traces(valkey_server, namespace)


def _entry_end(server: Server, namespace: str) -> float:
    entries = server.command("HVALS", f"{{{namespace}:{NAME}}}:entry")
    return max((int(entry.split(b" ")[0]) / 1000 for entry in entries), default=0.0)


def _server_now(server: Server) -> float:
    seconds, micros = server.command("TIME")
    return int(seconds) + int(micros) / 1_000_000


def _entry_ends_within(server: Server, namespace: str, seconds: float) -> bool:
    return _entry_end(server, namespace) - _server_now(server) <= seconds


def _first_waiter_is_dead(server: Server, namespace: str) -> bool:
    return _entry_end(server, namespace) < _server_now(server)
