"""Rows 3 to 6: the holder stands still for longer than its lease, frozen, blocked, or with the interpreter locked."""

from __future__ import annotations

import asyncio
import hashlib
import re
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from tenure import AsyncLocks, LeaseLost, Locks
from tenure.runtime import clock
from tests.faults.support import FLAVOURS, SLACK, Driver, FencedRegister, Stopwatch, key_fence, key_of, traces
from tests.harness.leases import age
from tests.harness.processes import Worker, say
from tests.harness.waiting import wait_until, wait_until_async

if TYPE_CHECKING:
    from collections.abc import Callable

    from tenure import AsyncLease, Lease
    from tests.faults.support import Flavour
    from tests.harness.servers import Server

NAME = "precious"
TTL = 0.4
PAUSE = 3 * TTL
LONG = 120.0
"""A ttl that no test waits for."""
BLOCK = 0.3
"""Seconds that a thread is blocked in one go."""
BOTH = pytest.mark.parametrize("flavour", FLAVOURS)


def hold_and_be_paused(flavour: Flavour, url: str, namespace: str, how: str) -> None:
    """Worker: holds the lock while it stands still, and reports what it finds when it goes on."""
    told: list[str | None] = []
    stand_still = notice_a_pause if how == "stopped" else keep_the_interpreter

    def on_lost(lease: Lease | AsyncLease) -> None:
        told.append(lease.lost)

    def report(lease: Lease | AsyncLease) -> None:
        # First thing after the pause, before any other thread of this process may have seen the time.
        left, valid = lease.remaining(), lease.valid
        say("remaining", left)
        say("valid", valid)
        try:
            lease.check()
            say("check passed")
        except LeaseLost as loss:
            say("check", loss.reason)
        # Only now may time pass: the next holder has its write to do first.
        sys.stdin.readline()
        with FencedRegister(url, namespace) as register:
            say("write", register.write(lease.fence, "by the paused holder"))

    async def renew_async(lease: AsyncLease) -> None:
        try:
            await lease.renew()
            say("renew passed")
        except LeaseLost as loss:
            say("renew", loss.reason)

    async def main() -> None:
        async with AsyncLocks(url, namespace=namespace) as locks:
            lease = await locks.lock(NAME, ttl=TTL, on_lost=on_lost).acquire()
            stand_still(lease.fence)
            report(lease)
            await renew_async(lease)
            say("release", (await lease.release()).value)
            await asyncio.to_thread(sys.stdin.readline)
            await renew_async(lease)
            await wait_until_async(lambda: told, 30, "the loss to be told")
            say("told", len(told), told)

    if flavour == "asyncio":
        asyncio.run(main())
        return
    with Locks(url, namespace=namespace) as locks:
        lease = locks.lock(NAME, ttl=TTL, on_lost=on_lost).acquire()
        stand_still(lease.fence)
        report(lease)
        for _ in range(2):
            try:
                lease.renew()
                say("renew passed")
            except LeaseLost as loss:
                say("renew", loss.reason)
            if _ == 0:
                say("release", lease.release().value)
                sys.stdin.readline()
        wait_until(lambda: told, 30, "the loss to be told")
        say("told", len(told), told)


def notice_a_pause(fence: int) -> None:
    """Say that the lock is held, and return as soon as this process was frozen and goes on.

    The signal tells it from a machine that stands still, the time from a process that was frozen for a moment only.
    The kernel may give the signal to another thread, so that this one goes on before Python knows of it: how long it
    stood still is remembered until then.
    """
    woken: list[int] = []
    signal.signal(signal.SIGCONT, lambda number, _: woken.append(number))
    last = time.monotonic()
    give_up = last + 60
    stood_still = 0.0
    say("held", fence)
    while last < give_up:
        now = time.monotonic()
        stood_still = max(stood_still, now - last)
        if woken and stood_still > TTL:
            return
        last = now
        time.sleep(0.005)
    raise AssertionError("nobody froze this process")


def keep_the_interpreter(fence: int) -> None:
    """C calls that keep the interpreter's lock, each twice as long as the one before, until one outlasts the lease.

    A speed that was measured before is no promise: on a shared machine the next call may run twice as fast. Between
    the calls before the last one the hub may renew. What counts is the time of this thread: if it only stood still
    before the call, the hub could renew meanwhile.
    """
    say("held", fence)
    text = "a" * 18 + "b"
    for _ in range(40):
        start = time.thread_time()
        # A regex gone wrong: each letter more doubles the time.
        re.match(r"(a+)+$", text)
        if time.thread_time() - start > 1.5 * TTL:
            return
        text = "a" + text
    raise AssertionError("no call was long enough")


@BOTH
@pytest.mark.parametrize("taken", [True, False], ids=["taken meanwhile", "free again"])
def test_row_3_frozen_for_three_leases(valkey_server: Server, namespace: str, flavour: Flavour, taken: bool) -> None:
    with (
        Driver(flavour, valkey_server.url, namespace) as other,
        FencedRegister(valkey_server, namespace) as register,
        Worker.start(hold_and_be_paused, flavour, valkey_server.url, namespace, "stopped") as paused,
    ):
        # A lease that is taken without an inbox is announced a second later, which changes what its key holds.
        other.warm()
        old_fence = int(paused.wait_for("held").split()[1])
        paused.pause()
        frozen = Stopwatch()
        lease = other.acquire(NAME, ttl=30)
        assert lease.fence > old_fence
        assert register.write(lease.fence, "by the next holder")
        paused.write_line()
        if not taken:
            other.release(lease)
        before = key_of(valkey_server, namespace, NAME)
        wait_until(lambda: frozen.seconds > PAUSE, PAUSE + SLACK, "three leases to pass")
        paused.resume()

        expect_loss_noticed(paused, taken=taken)
        assert key_of(valkey_server, namespace, NAME) == before, "the paused holder has touched another's key"
        assert register.value() == "by the next holder"
        if taken:
            assert lease.valid
            other.release(lease)
        assert not traces(valkey_server, namespace), "the paused holder has come back to life"
        paused.write_line()
        assert paused.wait_for("renew").split()[1] in {"expired", "taken"}
        assert paused.wait_for("told").split()[1] == "1", paused.lines
        assert paused.wait() == 0, paused.errors()
        assert not traces(valkey_server, namespace)


@BOTH
def test_row_6_a_c_call_keeps_the_interpreter_past_the_lease(
    valkey_server: Server, namespace: str, flavour: Flavour
) -> None:
    """The hub cannot run either: the loss is noticed, and told once, when the call returns."""
    with (
        Driver(flavour, valkey_server.url, namespace) as other,
        FencedRegister(valkey_server, namespace) as register,
        Worker.start(hold_and_be_paused, flavour, valkey_server.url, namespace, "kept") as stuck,
    ):
        old_fence = int(stuck.wait_for("held", 60).split()[1])
        lease = other.acquire(NAME, ttl=30, wait=30)
        assert lease.fence > old_fence
        assert register.write(lease.fence, "by the next holder")
        stuck.write_line()
        expect_loss_noticed(stuck, taken=True)
        assert key_fence(valkey_server, namespace, NAME) == lease.fence
        assert register.value() == "by the next holder"
        stuck.write_line()
        assert stuck.wait_for("renew").split()[1] in {"expired", "taken"}
        assert stuck.wait_for("told").split()[1] == "1", stuck.lines
        assert stuck.wait() == 0, stuck.errors()
        assert lease.valid
        other.release(lease)


def expect_loss_noticed(worker: Worker, *, taken: bool) -> None:
    assert float(worker.wait_for("remaining").split()[1]) <= 0
    assert worker.wait_for("valid").split()[1] == "False"
    assert worker.wait_for("check").split()[1] in {"expired", "taken"}
    assert worker.wait_for("write").split()[1] == "False", "a fenced write was accepted"
    assert worker.wait_for("renew").split()[1] in {"expired", "taken"}
    assert worker.wait_for("release").split()[1] in ({"gone", "taken"} if taken else {"gone"})


def sleep_in_c() -> None:
    time.sleep(BLOCK)


def big_hash() -> None:
    """C calls that free the interpreter's lock, each twice as long as the one before, until one alone was long enough.

    A speed that was measured before is no promise: on a shared machine the next call may run twice as fast.
    """
    rounds = 20_000
    for _ in range(20):
        start = time.perf_counter()
        hashlib.pbkdf2_hmac("sha256", b"x", b"y", rounds)
        if time.perf_counter() - start >= BLOCK:
            return
        rounds *= 2


def block_until_renewed(block: Callable[[], None], lease: Lease | AsyncLease) -> None:
    """Block this thread until the lease, old by now, is as new; longer than once only on a machine that is busy."""
    age(lease, LONG / 2)
    for _ in range(50):
        block()
        if lease.remaining() > LONG / 2:
            break
    assert lease.remaining() > LONG / 2, "not renewed while the thread was blocked"
    lease.check()


BLOCKS = pytest.mark.parametrize("block", [sleep_in_c, big_hash])


@BLOCKS
def test_row_5_a_blocked_event_loop_still_holds(
    valkey_server: Server, namespace: str, block: Callable[[], None]
) -> None:
    async def main() -> None:
        async with AsyncLocks(valkey_server.url, namespace=namespace) as locks:
            async with locks.lock(NAME, ttl=LONG) as lease:
                block_until_renewed(block, lease)
                assert key_fence(valkey_server, namespace, NAME) == lease.fence
            assert locks.statistics().lost == 0

    asyncio.run(main())


@BLOCKS
def test_row_6_a_busy_main_thread_still_holds(valkey_server: Server, namespace: str, block: Callable[[], None]) -> None:
    with Locks(valkey_server.url, namespace=namespace) as locks:
        with locks.lock(NAME, ttl=LONG) as lease:
            block_until_renewed(block, lease)
            assert key_fence(valkey_server, namespace, NAME) == lease.fence
        assert locks.statistics().lost == 0


# Row 4


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="only Linux has a clock that counts suspended time")
def test_row_4_the_local_clock_counts_suspended_time() -> None:
    """CLOCK_MONOTONIC stands still while the machine sleeps; only the boot clock goes on."""
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert before <= clock.now() <= time.clock_gettime(time.CLOCK_BOOTTIME)
    # On a machine that never slept both clocks show the same: only the clock's name tells.
    chosen: Any = clock.now
    assert chosen.args == (time.CLOCK_BOOTTIME,)


@BOTH
def test_row_4_a_lease_is_lost_when_the_machine_slept_through_its_end(
    valkey_server: Server, namespace: str, flavour: Flavour, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock jumps as it does for a process that wakes up on a machine that was suspended."""
    slept = 0.0
    real: Callable[[], float] = clock.now

    def now() -> float:
        return real() + slept

    monkeypatch.setattr(clock, "now", now)
    told: list[Any] = []
    with Driver(flavour, valkey_server.url, namespace) as driver:
        lease = driver.acquire(NAME, ttl=LONG, on_lost=told.append)
        assert lease.valid
        slept = LONG + 1
        assert lease.remaining() <= 0
        assert not lease.valid
        with pytest.raises(LeaseLost):
            lease.check()
        with pytest.raises(LeaseLost):
            driver.renew(lease)
        wait_until(lambda: told == [lease], 30, "the loss to be told")
        wait_until(lambda: not traces(valkey_server, namespace), 30, "the key to be given back")
    assert told == [lease]
