"""Forking in a worker process: what the child found is its exit code, and its traceback on standard error."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import multiprocessing
import os
import signal
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from tenure import NotHeld
from tests.faults.support import Driver
from tests.harness.leases import age
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tenure import AsyncLease, AsyncLock, Lease, Lock

How = Literal["os.fork", "multiprocessing"]

CHILD_SECONDS = 40.0
"""How long a child may take before it counts as stuck."""


def fork(check: Callable[[], None], how: How = "os.fork") -> Callable[[], int]:
    """Run `check` in a forked child; what is returned waits for its end and gives its exit code, 0 if all was well."""
    if how == "multiprocessing":
        process = multiprocessing.get_context("fork").Process(target=check)
        process.start()

        def join() -> int:
            process.join(CHILD_SECONDS)
            code = process.exitcode
            if code is None:
                process.kill()
                process.join()
            return -1 if code is None else code

        return join
    child = os.fork()
    if not child:
        code = 1
        try:
            check()
            code = 0
        except BaseException:  # noqa: BLE001 - told below, and by the exit code
            traceback.print_exc()
        finally:
            os._exit(code)
    return lambda: reap(child)


def reap(child: int) -> int:
    """Wait for a child's end and return its exit code; one that does not end is killed."""
    ended = [0, 0]

    def has_ended() -> bool:
        ended[:] = os.waitpid(child, os.WNOHANG)
        return ended[0] == child

    try:
        wait_until(has_ended, CHILD_SECONDS, f"the end of child {child}")
    except BaseException:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise
    return os.waitstatus_to_exitcode(ended[1])


def finish(outcome: Any) -> Any:  # noqa: ANN401 - whatever the call of either flavour returns
    """The result of a call of either flavour; a coroutine runs in a new event loop."""
    return asyncio.run(outcome) if inspect.iscoroutine(outcome) else outcome


def connections(url: str) -> set[str]:
    """Inodes of this process's TCP connections to a server: the same in two processes if they share the socket."""
    port = f":{urlsplit(url).port or 0:04X}"
    rows = [line.split() for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]]
    known = {f"socket:[{row[9]}]" for row in rows if row[2].endswith(port)}
    links: set[str] = set()
    for descriptor in Path("/proc/self/fd").iterdir():
        # One of them is the descriptor that listed the folder, which is closed by now.
        with contextlib.suppress(OSError):
            links.add(str(descriptor.readlink()))
    return known & links


def expect_inert(lease: Lease | AsyncLease) -> None:
    """The child's handle of its parent's lease can do nothing."""
    assert lease.remaining() == 0
    assert not lease.valid
    assert lease.lost == "forked"
    for verb in (lease.check, lease.renew, lease.release):
        try:
            finish(verb())
        except NotHeld as refusal:
            assert "parent" in str(refusal)  # noqa: PT017 - no pytest in a forked child
        else:
            raise AssertionError(f"{verb.__name__} was accepted in the child")


def outlive(lease: Lease | AsyncLease) -> None:
    """The hub renews a lease that has become old."""
    ttl = lease._hold.terms.ttl
    age(lease, ttl / 2)
    wait_until(lambda: lease.remaining() > ttl / 2, CHILD_SECONDS, "the lease to be renewed")


def use_in_child(driver: Driver, url: str, namespace: str) -> Driver:
    """A driver of the child's own for the locks object that it has inherited."""
    own = Driver(driver.flavour, url, namespace)
    own.locks = driver.locks
    return own


def use_once(lock: Lock) -> None:
    with lock as lease:
        lease.renew()


async def use_once_async(lock: AsyncLock) -> None:
    async with lock as lease:
        await lease.renew()
