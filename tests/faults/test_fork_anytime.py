"""Rows 11 and 12: fork before any lease is taken, and in the middle of everything; what children draw at random."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tenure import AsyncLocks, Locks, Released
from tenure.clients import embedded
from tests.embedded.world import World
from tests.faults.forks import CHILD_SECONDS, expect_inert, fork, outlive, use_in_child
from tests.faults.support import FLAVOURS, UNHURRIED, Driver, traces, wait_clean
from tests.harness.leases import renew_now
from tests.harness.processes import Worker, say
from tests.harness.servers import available_kinds, why_missing
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from tenure import AsyncLock
    from tests.faults.support import Flavour
    from tests.harness.servers import Server

NAME = "precious"
OTHER = "other"
LONG = 120.0
"""A ttl that no test waits for."""
FORKS = 20
TOKENS = {"blocking": 100, "asyncio": 20}

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
BOTH = pytest.mark.parametrize("flavour", FLAVOURS)


def count_in_children(flavour: Flavour, url: str, namespace: str, folder: str, children: int, turns: int) -> None:
    """Worker: a server that makes and uses its locks, and then forks its workers."""
    counter, log = Path(folder, "counter"), Path(folder, "log")

    with Driver(flavour, url, namespace, **UNHURRIED) as driver:
        # Used and contended: connections, the hub's thread and the inbox are there before the fork.
        lease = driver.acquire(NAME)
        waiting = driver.soon(driver.lock(NAME, wait=30).acquire)
        wait_until(lambda: driver.locks.statistics().waiting, 30, "the hub to know a waiter")
        driver.release(lease)
        driver.release(waiting.result(30))

        def count() -> None:
            with use_in_child(driver, url, namespace) as own:
                for _ in range(turns):
                    mine = own.acquire(NAME, ttl=LONG, wait=CHILD_SECONDS)
                    counter.write_text(str(int(counter.read_text()) + 1))
                    with log.open("a") as lines:
                        lines.write(f"{mine.fence} {mine.token}\n")
                    own.release(mine)

        ends = [fork(count) for _ in range(children)]
        assert [end() for end in ends] == [0] * children
        driver.release(driver.acquire(NAME))


@BOTH
def test_row_11_pre_forked_workers_take_turns(
    valkey_server: Server, namespace: str, flavour: Flavour, tmp_path: Path
) -> None:
    """Row 11: locks that were made and used before the fork exclude the children from each other."""
    children, turns = 4, 50
    (tmp_path / "counter").write_text("0")
    args = (flavour, valkey_server.url, namespace, str(tmp_path), children, turns)
    with Worker.start(count_in_children, *args) as parent:
        assert parent.wait(90) == 0, parent.errors()
        assert not parent.errors()
    assert int((tmp_path / "counter").read_text()) == children * turns
    lines = [line.split() for line in (tmp_path / "log").read_text().splitlines()]
    fences = [int(fence) for fence, _ in lines]
    assert all(earlier < later for earlier, later in itertools.pairwise(fences))
    assert len({token for _, token in lines}) == children * turns
    assert not traces(valkey_server, namespace)


async def tell_async(lock: AsyncLock) -> None:
    async with lock as lease:
        say("token", lease.token)


def tell_tokens(flavour: Flavour, url: str, namespace: str, forks: int) -> None:
    """Worker: forks again and again; parent and children each tell the token of one lease."""
    random.seed(1)
    with Driver(flavour, url, namespace, **UNHURRIED) as driver:
        lease = driver.acquire("of the parent")
        say("token", lease.token)

        def tell(number: int) -> None:
            if isinstance(driver.locks, AsyncLocks):
                asyncio.run(tell_async(driver.locks.lock(f"of child {number}")))
                return
            with driver.locks.lock(f"of child {number}") as mine:
                say("token", mine.token)

        for number in range(forks):
            assert fork(lambda number=number: tell(number))() == 0
        driver.release(lease)


@BOTH
def test_row_12_tokens_differ_in_a_hundred_forks(valkey_server: Server, namespace: str, flavour: Flavour) -> None:
    """Row 12: each child draws its own random numbers, although all inherit one locks object that was in use."""
    with Worker.start(tell_tokens, flavour, valkey_server.url, namespace, TOKENS[flavour]) as parent:
        assert parent.wait(90) == 0, parent.errors()
        tokens = [line.split()[1] for line in parent.lines if line.startswith("token")]
    assert len(tokens) == TOKENS[flavour] + 1
    assert len(set(tokens)) == len(tokens)
    # What is drawn at random differs as well, not only the number that is counted up.
    assert len({token[:32] for token in tokens}) == len(tokens)


def fork_when_busy(url: str, namespace: str, forks: int) -> None:
    """Worker: forks while threads and tasks take, renew, wait for and release locks, in both flavours."""
    stop = threading.Event()
    turns = [0, 0, 0]

    def busy(number: int, locks: Locks) -> None:
        while not stop.is_set():
            with locks.lock("contended", ttl=LONG), locks.lock(f"alone {number}", ttl=LONG):
                turns[number] += 1

    async def busy_loop() -> None:
        async def task(locks: AsyncLocks) -> None:
            while not stop.is_set():
                async with locks.lock("contended", ttl=LONG):
                    turns[2] += 1

        async with AsyncLocks(url, namespace=namespace, server_timeout=30) as locks, asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(task(locks))

    async def use_async(locks: AsyncLocks) -> None:
        async with locks.lock(OTHER, ttl=LONG):
            lease = await locks.lock("contended", ttl=LONG).try_acquire(0.01)
            if lease is not None:
                await lease.release()

    with Locks(url, namespace=namespace, server_timeout=30, hooks=[lambda _: None]) as locks:
        asyncs = AsyncLocks(url, namespace=namespace, server_timeout=30)
        threads = [threading.Thread(target=busy, args=(number, locks)) for number in range(2)]
        threads.append(threading.Thread(target=asyncio.run, args=(busy_loop(),)))
        # Renewed again and again: the hub is in the middle of something at many a fork.
        held = [locks.lock(f"renewed {number}", ttl=LONG).acquire() for number in range(20)]
        for thread in threads:
            thread.start()

        def use() -> None:
            with locks.lock(OTHER, ttl=LONG):
                lease = locks.lock("contended", ttl=LONG).try_acquire(0.01)
                if lease is not None:
                    lease.release()
            asyncio.run(use_async(asyncs))

        try:
            for number in range(forks):
                before = list(turns)
                wait_until(lambda before=before: all(map(int.__lt__, before, turns)), 30, "all to be busy")
                for lease in held:
                    renew_now(lease)
                ended = fork(use)
                assert ended() == 0, f"fork {number}"
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        for lease in held:
            lease.check()


def test_row_11_forks_while_everything_is_busy(valkey_server: Server, namespace: str) -> None:
    """Row 11: whatever other threads were doing at the fork, the child's own locks work, and nobody stands still."""
    with Worker.start(fork_when_busy, valkey_server.url, namespace, FORKS) as parent:
        assert parent.wait(90) == 0, parent.errors()
    wait_clean(valkey_server, namespace)


# On the embedded server


def fork_on_the_embedded_server(flavour: Flavour) -> None:
    """Worker: forks while it holds a lock of the embedded server, and ends before its child does."""
    nowhere: Any = None
    # Starting it may take a slow machine longer than a program waits for it.
    embedded.JOIN_TIMEOUT = 30.0
    with Driver(flavour, nowhere, "forked", **UNHURRIED) as driver:
        lease = driver.acquire(NAME, ttl=LONG)
        parent = os.getpid()

        def check() -> None:
            expect_inert(lease)
            with use_in_child(driver, nowhere, "forked") as own:
                assert own.soon(own.lock(NAME).try_acquire).result(30) is None
                mine = own.acquire(NAME, ttl=LONG, wait=CHILD_SECONDS)
                assert mine.fence > lease.fence
                wait_until(lambda: os.getppid() != parent, CHILD_SECONDS, "the parent's end")
                for _ in range(3):
                    outlive(mine)
                own.release(own.acquire(OTHER))
                assert own.release(mine) is Released.RELEASED
            say("child done")

        fork(check)
        wait_until(lambda: driver.soon(lambda: driver.locks.waiters(NAME)).result(30), 30, "the child to queue")
        for _ in range(3):
            outlive(lease)
        assert driver.release(lease) is Released.RELEASED
    say("parent done")


@BOTH
def test_row_11_on_the_embedded_server(flavour: Flavour, monkeypatch: pytest.MonkeyPatch) -> None:
    """Row 11: the same on a server that lives by its users: the child needs it for longer than the parent."""
    if not available_kinds():
        pytest.skip(why_missing("valkey"))
    # Short, for a unix socket's path may have about 100 characters.
    with tempfile.TemporaryDirectory(prefix="tn-", dir="/tmp") as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        with World(Path(folder)) as world, Worker.start(fork_on_the_embedded_server, flavour) as parent:
            assert parent.wait(90) == 0, parent.errors()
            assert parent.lines == ["parent done", "child done"], parent.errors()
            world.wait_empty()
