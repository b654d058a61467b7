"""Row 11: fork with a lease held, or while waiting for one."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tenure import AsyncLocks, Locks, NotHeld, Released
from tenure.core import schedule
from tenure.core.scripts import ACQUIRE
from tests.faults.forks import (
    CHILD_SECONDS,
    connections,
    expect_inert,
    fork,
    outlive,
    reap,
    use_in_child,
    use_once,
    use_once_async,
)
from tests.faults.support import (
    FLAVOURS,
    SELDOM,
    SLACK,
    UNHURRIED,
    Driver,
    key_fence,
    queue_length,
    traces,
    wait_clean,
    wait_queued,
)
from tests.harness.commands import CallCounter
from tests.harness.processes import Worker, is_running, say
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tenure import AsyncLease, Lease
    from tests.faults.forks import How
    from tests.faults.support import Flavour
    from tests.harness.proxy import FaultProxy
    from tests.harness.servers import Server

NAME = "precious"
GATE = "gate"
OTHER = "other"
LONG = 120.0
"""A ttl that no test waits for."""

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
BOTH = pytest.mark.parametrize("flavour", FLAVOURS)
needs_proc = pytest.mark.skipif(not Path("/proc/self/net/tcp").exists(), reason="looks at /proc, which is not here")


# A lease is held


def hold_and_fork(flavour: Flavour, how: How, url: str, namespace: str) -> None:
    """Worker: forks while it holds one lock and waits for another; goes on with a line from the test."""
    schedule.NEAR_CAP = SELDOM
    # Unhurried, as all that are renewed here: a renewal that has no answer in time says so on standard error.
    with Driver(flavour, url, namespace, **UNHURRIED) as driver:
        lease = driver.acquire(NAME, ttl=LONG)
        waiting = driver.soon(driver.lock(GATE, ttl=LONG).acquire)
        say("held", lease.fence)
        sys.stdin.readline()
        parents = connections(url)
        assert len(parents) >= 2, "the inbox and at least one for commands"

        def check() -> None:
            shared = parents & connections(url)
            assert not shared, f"shared with the parent: {shared}"
            expect_inert(lease)
            with use_in_child(driver, url, namespace) as own:
                mine = own.acquire(OTHER, ttl=LONG)
                assert not parents & connections(url)
                own.renew(mine)
                assert own.release(mine) is Released.RELEASED
                assert own.soon(own.lock(NAME).try_acquire).result(30) is None
                say("child waits")
                mine = own.acquire(NAME, ttl=LONG, wait=CHILD_SECONDS)
                say("child served", mine.fence)
                own.release(mine)

        ended = fork(check, how)
        sys.stdin.readline()
        for _ in range(3):
            outlive(lease)
        say("outlived")
        gate = waiting.result(CHILD_SECONDS)
        say("served", time.monotonic())
        driver.release(gate)
        sys.stdin.readline()
        lease.check()
        assert driver.release(lease) is Released.RELEASED
        assert ended() == 0
        assert driver.locks.statistics().lost == 0


@BOTH
@pytest.mark.parametrize("how", ["os.fork", "multiprocessing"])
@needs_proc
def test_row_11_the_parent_keeps_its_lease_and_its_inbox(
    valkey_server: Server, namespace: str, flavour: Flavour, how: How
) -> None:
    """Row 11: renewed for longer than the ttl beside a busy child, and a waiter of the parent is still served."""
    with (
        Driver("blocking", valkey_server.url, namespace) as outside,
        Worker.start(hold_and_fork, flavour, how, valkey_server.url, namespace) as parent,
    ):
        gate = outside.acquire(GATE)
        fence = int(parent.wait_for("held").split()[1])
        wait_queued(valkey_server, namespace, GATE)
        parent.write_line()
        parent.wait_for("child waits")
        wait_queued(valkey_server, namespace, NAME)
        parent.write_line()
        parent.wait_for("outlived")
        assert key_fence(valkey_server, namespace, NAME) == fence, "the parent has lost its lease"
        released_at = time.monotonic()
        outside.release(gate)
        served_at = float(parent.wait_for("served").split()[1])
        assert served_at - released_at < 1 + SLACK < SELDOM, "served by its poll"
        assert key_fence(valkey_server, namespace, NAME) == fence
        assert queue_length(valkey_server, namespace, NAME) == 1
        parent.write_line()
        assert int(parent.wait_for("child served").split()[2]) > fence
        assert parent.wait() == 0, parent.errors()
        assert not parent.errors()
    wait_clean(valkey_server, namespace)


def fork_in_a_call(flavour: Flavour, url: str, namespace: str) -> None:
    """Worker: forks while another thread, or the event loop, waits for a reply."""
    with Driver(flavour, url, namespace, **UNHURRIED) as driver:
        answer = driver.soon(driver.lock(NAME, ttl=LONG).acquire)
        say("asks")
        sys.stdin.readline()
        parents = connections(url)
        assert parents

        def check() -> None:
            assert not parents & connections(url)

        assert fork(check)() == 0
        say("forked")
        assert driver.release(answer.result(CHILD_SECONDS)) is Released.RELEASED
        assert driver.locks.statistics().broken_connections == 0


@BOTH
@needs_proc
def test_row_11_a_reply_that_is_on_its_way_stays_the_parents(
    proxy: FaultProxy, namespace: str, flavour: Flavour
) -> None:
    """Row 11: the connection of a call that goes on during the fork is not shared either, and not disturbed."""
    proxy.hold(ACQUIRE.sha)
    with Worker.start(fork_in_a_call, flavour, proxy.url, namespace) as parent:
        parent.wait_for("asks")
        wait_until(lambda: proxy.count(ACQUIRE.sha), 30, "the request")
        parent.write_line()
        parent.wait_for("forked")
        proxy.release()
        assert parent.wait() == 0, parent.errors()
        assert proxy.count(ACQUIRE.sha) == 1, "the parent had to ask again"


def fork_in_a_block(form: str, url: str, namespace: str, fails: bool) -> None:
    """Worker: forks inside a `with` block, which the child leaves too."""
    with Locks(url, namespace=namespace, server_timeout=30) as locks:
        lock = locks.lock(NAME, ttl=LONG)
        child = 0
        try:
            with lock if form == "lock" else lock.acquire() as lease:
                child = os.fork()
                if child:
                    keep(lease, child)
                elif fails:
                    fail()
        except BaseException as error:
            if child:
                raise
            leave(error, lambda: use_once(locks.lock(OTHER)), fails=fails)
        if not child:
            os._exit(3)


def fork_in_an_async_block(form: str, url: str, namespace: str, fails: bool) -> None:
    """Worker: the same inside a running event loop; the child goes on in a new one."""

    async def main() -> None:
        async with AsyncLocks(url, namespace=namespace, server_timeout=30) as locks:
            lock = locks.lock(NAME, ttl=LONG)
            child = 0
            try:
                async with lock if form == "lock" else await lock.acquire() as lease:
                    child = os.fork()
                    if child:
                        keep(lease, child)
                    elif fails:
                        fail()
            except BaseException as error:
                if child:
                    raise
                leave(error, lambda: asyncio.run(use_once_async(locks.lock(OTHER))), fails=fails)
            if not child:
                os._exit(3)

    asyncio.run(main())


def fail() -> None:
    raise ValueError("in the body of the child")


def keep(lease: Lease | AsyncLease, child: int) -> None:
    """The parent's body: outlives the child, and holds until the test says so."""
    assert reap(child) == 0, "the child was not told, or could not go on"
    outlive(lease)
    say("child left", lease.fence)
    sys.stdin.readline()
    lease.check()


def leave(error: BaseException, use: Callable[[], None], *, fails: bool) -> None:
    """The child's end: checks what came out of the block, and that locks of its own work."""
    code = 1
    try:
        if fails:
            assert isinstance(error, ValueError), repr(error)
            assert any("parent" in note for note in error.__notes__), error.__notes__
        else:
            assert isinstance(error, NotHeld), repr(error)
        use()
        code = 0
    except BaseException:  # noqa: BLE001 - told here, and by the exit code
        traceback.print_exc()
    finally:
        os._exit(code)


@pytest.mark.parametrize("program", [fork_in_a_block, fork_in_an_async_block], ids=FLAVOURS)
@pytest.mark.parametrize(("form", "fails"), [("lock", False), ("lease", True)], ids=["falls through", "body raises"])
def test_row_11_a_child_that_leaves_the_block_is_told_and_releases_nothing(
    valkey_server: Server, namespace: str, program: Callable[..., None], form: str, fails: bool
) -> None:
    """Row 11: `NotHeld` comes out of the block in the child, as a note when its body raised; the parent holds on."""
    with Worker.start(program, form, valkey_server.url, namespace, fails) as parent:
        fence = int(parent.wait_for("child left").split()[2])
        assert key_fence(valkey_server, namespace, NAME) == fence, "the lease has ended with the child"
        parent.write_line()
        assert parent.wait() == 0, parent.errors()
        assert not parent.errors()
    assert not traces(valkey_server, namespace)


def fork_a_program_that_ends(flavour: Flavour, url: str, namespace: str) -> None:
    """Worker: a forked child runs the interpreter's whole end, atexit handlers and collections, and not `os._exit`."""
    # The development mode of asyncio tells of each callback that a busy machine made slow.
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    with Driver(flavour, url, namespace, **UNHURRIED) as driver:
        lease = driver.acquire(NAME, ttl=LONG)
        child = os.fork()
        if not child:
            sys.exit(0)
        assert reap(child) == 0
        outlive(lease)
        say("child ended", lease.fence)
        sys.stdin.readline()
        lease.check()


@BOTH
def test_row_11_the_end_of_a_forked_interpreter_releases_nothing(
    valkey_server: Server, namespace: str, flavour: Flavour
) -> None:
    """Row 11: the child's exit gives no lease of its parent's back, and complains of no socket."""
    # Python 3.12 and later warn of any fork of a process with threads.
    strict = {"PYTHONWARNINGS": "error,ignore::DeprecationWarning", "PYTHONDEVMODE": "1"}
    with Worker.start(fork_a_program_that_ends, flavour, valkey_server.url, namespace, env=strict) as parent:
        fence = int(parent.wait_for("child ended").split()[2])
        assert key_fence(valkey_server, namespace, NAME) == fence, "the lease has ended with the child"
        parent.write_line()
        assert parent.wait() == 0, parent.errors()
        assert not parent.errors()
    assert not traces(valkey_server, namespace)


# The parent dies and the child lives


def wait_and_fork(flavour: Flavour, url: str, namespace: str) -> None:
    """Worker: waits for the gate, and has a child that does nothing but live until standard input ends."""
    driver = Driver(flavour, url, namespace)
    driver.soon(driver.lock(GATE, ttl=LONG).acquire)
    say("waits")
    sys.stdin.readline()
    child = os.fork()
    if not child:
        say("child", os.getpid())
        sys.stdin.readline()
        os._exit(0)
    threading.Event().wait(60)


@BOTH
def test_row_11_a_dead_parent_is_not_kept_alive_by_its_child(
    valkey_server: Server, namespace: str, flavour: Flavour, seldom_polled: None
) -> None:
    """Row 11: the inbox ends with the parent, so the next living waiter is served in the same release."""
    with (
        Driver("blocking", valkey_server.url, namespace, **UNHURRIED) as outside,
        Worker.start(wait_and_fork, flavour, valkey_server.url, namespace) as parent,
    ):
        outside.warm()
        # Long: a renewal would be one script call more.
        gate = outside.acquire(GATE, ttl=LONG)
        parent.wait_for("waits")
        wait_queued(valkey_server, namespace, GATE)
        parent.write_line()
        child = int(parent.wait_for("child").split()[1])
        parent.kill9()
        behind = outside.soon(outside.lock(GATE, ttl=LONG).acquire)
        wait_queued(valkey_server, namespace, GATE, 2)
        assert is_running(child), "it was to outlive its parent"
        with CallCounter(valkey_server.admin) as calls:
            outside.release(gate)
            lease = behind.result(30)
        assert calls.scripts == 1, "the dead was served, and somebody had to ask"
        outside.release(lease)
        assert not traces(valkey_server, namespace)
    wait_until(lambda: not is_running(child), 30, "the child to end with its standard input")
