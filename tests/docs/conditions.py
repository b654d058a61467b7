"""How to get into each situation that docs/errors.md describes: a function for every row, which ends with the error."""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, NamedTuple

import tenure
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    import pytest

    from tests.harness.certs import Certificates
    from tests.harness.servers import Server

CASES: dict[str, Callable[[World], object]] = {}
SHORT = 0.3
"""The budget of a condition that does not go away: long enough for a try or two."""


class World(NamedTuple):
    """A server of our own to spoil, a flavour, and the budget of every call."""

    server: Server
    asynchronous: bool
    budget: float
    request: pytest.FixtureRequest

    def take(self, url: str | None = None, *, wait: float | None = 0) -> None:
        """Take the lock `n` and give it back, in this world's flavour."""
        url = url or self.server.url
        if self.asynchronous:
            asyncio.run(self._take(url, wait))
            return
        with tenure.Locks(url, server_timeout=self.budget) as locks:
            locks.lock("n", ttl=5, wait=wait).acquire().release()

    async def _take(self, url: str, wait: float | None) -> None:
        async with tenure.AsyncLocks(url, server_timeout=self.budget) as locks:
            lease = await locks.lock("n", ttl=5, wait=wait).acquire()
            await lease.release()

    def url(self, credentials: str = "", *, scheme: str = "redis", database: int = 0) -> str:
        """An address of the server that is not quite right."""
        return f"{scheme}://{credentials}127.0.0.1:{self.server.port}/{database}"

    def store(self, key: str, value: str) -> None:
        """Put a string where a lock keeps its data."""
        self.server.command("SET", key, value, "PX", 60_000)

    @property
    def certificates(self) -> Certificates:
        """A CA and certificates; skips without openssl."""
        return self.request.getfixturevalue("certificates")

    @property
    def tls(self) -> Server:
        """A server with TLS."""
        return self.request.getfixturevalue("tls_server")


def case(what: str) -> Callable[[Callable[[World], object]], Callable[[World], object]]:
    """Name the row of the page that a function brings about."""

    def remember(function: Callable[[World], object]) -> Callable[[World], object]:
        CASES[what] = function
        return function

    return remember


@contextlib.contextmanager
def holding(world: World, *, ttl: float = 5, renew: bool = True) -> Generator[tuple[tenure.Locks, tenure.Lease]]:
    """A lock `n` that is held by a `Locks` object of its own."""
    with tenure.Locks(world.server.url) as locks:
        lease = locks.lock("n", ttl=ttl, renew=renew).acquire()  # named, since a lease that nobody has is given back
        yield locks, lease


# Use


@case("somebody else holds the lock, `wait=0`")
def _(world: World) -> None:
    with holding(world):
        world.take()


@case("somebody else holds the lock, `wait` is over")
def _(world: World) -> None:
    with holding(world):
        world.take(wait=0.1)


@case("a client of another library holds the key")
def _(world: World) -> None:
    world.store("tenure:n", "their release token")
    world.take()


@case("the `Locks` object is closed")
def _(world: World) -> None:
    locks = tenure.Locks(world.server.url)
    locks.close()
    locks.lock("n").acquire()


@case("the same thread or task holds the lock")
def _(world: World) -> None:
    with holding(world) as (locks, _lease):
        locks.lock("n", wait=0).acquire()


@case("a reentrant lock is held shared, and wanted for this one alone")
def _(world: World) -> None:
    with tenure.Locks(world.server.url) as locks, locks.lock("n", shared=True):
        locks.lock("n", wait=0, reentrant=True).acquire()


@case("the name is in use as a semaphore")
def _(world: World) -> None:
    with tenure.Locks(world.server.url) as locks, locks.semaphore("n", 2):
        world.take()


@case("the name is in use as a lock")
def _(world: World) -> None:
    with holding(world) as (locks, lease):
        lease.detach()
        locks.semaphore("n", 2, wait=0).acquire()


@case("others use the semaphore with another limit")
def _(world: World) -> None:
    with tenure.Locks(world.server.url) as locks, tenure.Locks(world.server.url) as others, locks.semaphore("n", 2):
        others.semaphore("n", 3, wait=0).acquire()


@case("the holder was asked, and did not let go")
def _(world: World) -> None:
    with tenure.Locks(world.server.url) as locks, locks.lock("n", on_ask=lambda _lease: None):
        wait_until(lambda: locks.ask("n") is not None, 10, "the holder to be within reach")
        with tenure.Locks(world.server.url) as others:
            others.lock("n", wait=0.1, ask_after=0).acquire()


@case("two threads wait for each other")
def _(world: World) -> None:
    held, locks = threading.Event(), tenure.Locks(world.server.url)

    def the_other() -> None:
        with locks.lock("b"):
            held.set()
            with locks.lock("a", wait=30):
                pass

    def known() -> bool:
        holders = [*locks.holders("a"), *locks.holders("b")]
        return len(holders) == 2 and all(holder.context for holder in holders) and bool(locks.waiters("a"))

    thread = threading.Thread(target=the_other)
    with locks, contextlib.ExitStack() as stack:
        # Joined once `a` is given back, whereupon both threads go on.
        stack.callback(thread.join, 30)
        with locks.lock("a"):
            thread.start()
            assert held.wait(30)
            wait_until(known, 30, "both to be known by their inbox, and the other one to wait")
            locks.lock("b", wait=0.3).acquire()


@case("a lease of several names is asked for its fence")
def _(world: World) -> None:
    with tenure.Locks(world.server.url) as locks, locks.lock("n", "m") as lease:
        _ = lease.fence


@case("the lease was handed over")
def _(world: World) -> None:
    with holding(world) as (locks, lease):
        locks.adopt(lease.export()).release()
        lease.check()


@case("a lease is adopted that has ended")
def _(world: World) -> None:
    with holding(world) as (locks, lease):
        exported = lease.written()
        lease.release()
        locks.adopt(exported)


@case("the lease was released")
def _(world: World) -> None:
    with holding(world) as (_locks, lease):
        lease.release()
        lease.check()


_FORKS = """
import os, sys, tenure
with tenure.Locks(sys.argv[1]) as locks, locks.lock("n") as lease:
    child = os.fork()
    if child == 0:
        try:
            lease.check()
        except tenure.NotHeld as error:
            print(error, flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""


@case("the lease belongs to the parent process")
def _(world: World) -> None:
    command = [sys.executable, "-W", "ignore", "-c", _FORKS, world.server.url]
    text = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    if text:
        raise tenure.NotHeld(text.strip())


@case("the deadline passed")
def _(world: World) -> None:
    with holding(world, ttl=0.1, renew=False) as (_locks, lease):
        assert lease.wait_lost(30)
        lease.check()


@case("somebody deleted the key")
def _(world: World) -> None:
    with holding(world) as (_locks, lease):
        world.server.command("DEL", "tenure:n")
        lease.renew()


@case("somebody overwrote the key")
def _(world: World) -> None:
    with holding(world) as (_locks, lease):
        world.store("tenure:n", "somebody else's")
        lease.renew()


@case("an operator broke the lock")
def _(world: World) -> None:
    with holding(world) as (locks, lease):
        locks.break_lock("n")
        lease.renew()


@case("less is left than `check(min_remaining=…)` asks for")
def _(world: World) -> None:
    with holding(world) as (_locks, lease):
        lease.check(min_remaining=60)


@case("a held lease is pickled or copied")
def _(world: World) -> None:
    with holding(world) as (_locks, lease):
        pickle.dumps(lease)
