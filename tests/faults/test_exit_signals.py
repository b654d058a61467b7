"""Row 14: `close_on_signals`: what SIGTERM does to a program that holds or waits."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

import pytest

from tests.faults.programs import EXIT, PRELUDE, STRICT, Program, expect_end
from tests.faults.support import FLAVOURS, Driver, queue_length, traces, wait_queued
from tests.harness.processes import Worker
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from tests.faults.support import Flavour
    from tests.harness.servers import Server

NAME = "precious"
BOTH = pytest.mark.parametrize("flavour", FLAVOURS)

TERMINATED = -signal.SIGTERM

SLEEPS = Program(
    """
locks = tenure.Locks(url, namespace=namespace)
locks.close_on_signals()
with locks.lock("precious") as lease:
    ready()
    time.sleep(60)
""",
    """
locks = tenure.AsyncLocks(url, namespace=namespace)
locks.close_on_signals()

async def main():
    async with locks.lock("precious"):
        ready()
        await asyncio.sleep(60)

asyncio.run(main())
""",
    code=TERMINATED,
)


@BOTH
def test_row_14_sigterm_gives_back_and_ends_the_process(
    valkey_server: Server, namespace: str, flavour: Flavour
) -> None:
    """Row 14: with `close_on_signals` a terminated program leaves nothing, and has still died of SIGTERM."""
    with SLEEPS.start(flavour, valkey_server.url, namespace) as worker:
        worker.wait_for("ready")
        worker.signal(signal.SIGTERM)
        expect_end(worker, SLEEPS, time.monotonic())
        assert not traces(valkey_server, namespace)


WAITS_IN_MAIN = Program(
    """
locks = tenure.Locks(url, namespace=namespace)
locks.close_on_signals()
locks.lock("precious").acquire()
""",
    """
locks = tenure.AsyncLocks(url, namespace=namespace)
locks.close_on_signals()

async def main():
    await locks.lock("precious").acquire()

asyncio.run(main())
""",
    code=TERMINATED,
)


@BOTH
def test_row_14_sigterm_ends_a_wait_too(valkey_server: Server, namespace: str, flavour: Flavour) -> None:
    """Row 14: terminated inside of acquire, which would have waited for ever."""
    with Driver("blocking", valkey_server.url, namespace) as outside:
        lease = outside.acquire(NAME)
        with WAITS_IN_MAIN.start(flavour, valkey_server.url, namespace) as worker:
            wait_queued(valkey_server, namespace, NAME)
            worker.signal(signal.SIGTERM)
            expect_end(worker, WAITS_IN_MAIN, time.monotonic())
            assert queue_length(valkey_server, namespace, NAME) == 0, "the dead still queues"
        outside.release(lease)
        assert not traces(valkey_server, namespace)


HANDLER = """
def former(number, frame):
    print("handler", number, flush=True)
    sys.stdin.readline()
    sys.exit(7)

signal.signal(signal.SIGTERM, former)
"""

HAS_A_HANDLER = Program(HANDLER + SLEEPS.blocking, HANDLER + SLEEPS.asyncio, code=7)


@BOTH
def test_row_14_sigterm_takes_its_former_course(valkey_server: Server, namespace: str, flavour: Flavour) -> None:
    """Row 14: the program's own handler runs, when the lock is free already, and decides how the program ends."""
    with HAS_A_HANDLER.start(flavour, valkey_server.url, namespace) as worker:
        worker.wait_for("ready")
        worker.signal(signal.SIGTERM)
        assert worker.wait_for("handler") == f"handler {signal.SIGTERM.value}"
        assert not traces(valkey_server, namespace), "the handler ran before the lock was given back"
        worker.write_line()
        # The body's block ends in `SystemExit` with its lease closed: that goes along as a note, not as an error.
        expect_end(worker, HAS_A_HANDLER, time.monotonic())


IGNORES = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
locks = tenure.Locks(url, namespace=namespace)
locks.close_on_signals()
lease = locks.lock("precious").acquire()
ready()
sys.stdin.readline()
print("lost", lease.lost, flush=True)
try:
    locks.lock("precious").acquire()
except tenure.NotAcquired:
    print("refused", flush=True)
"""


def test_row_14_an_ignored_sigterm_closes_the_locks_and_no_more(valkey_server: Server, namespace: str) -> None:
    """Row 14: the former course of a signal that was ignored is to be ignored; the locks are closed all the same."""
    with Worker.start(PRELUDE + IGNORES, valkey_server.url, namespace, "patient", env=STRICT) as worker:
        worker.wait_for("ready")
        worker.signal(signal.SIGTERM)
        wait_until(lambda: not traces(valkey_server, namespace), EXIT, "the lock to be given back")
        worker.write_line()
        assert worker.wait_for("lost") == "lost closed"
        assert worker.wait_for("refused")
        assert worker.wait() == 0, worker.errors()
        assert not worker.errors()
