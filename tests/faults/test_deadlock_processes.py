"""Three processes in a circle: it is named to whoever looks, and to the one that gives up."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING

from tenure import Locks, NotAcquired
from tests.faults.crowds import Calls, crowd, finish
from tests.faults.support import wait_clean, wait_queued
from tests.harness.processes import say
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from tests.faults.support import Flavour
    from tests.harness.servers import Server

NAMES = ("orders", "invoices", "stock")


def wait_in_a_circle(number: int, flavour: Flavour, url: str, namespace: str) -> None:
    """Worker: holds one lock and waits for the next one's, as patiently as it is told, until it is told to stop."""
    wanted = NAMES[(number + 1) % len(NAMES)]
    enough = threading.Event()

    def listen() -> None:
        sys.stdin.readline()
        enough.set()

    with Calls(flavour, url, namespace, identity=f"worker {number}") as call:
        lease = call(call.locks.lock(NAMES[number], ttl=60).acquire)
        say("ready")
        patience = float(sys.stdin.readline())
        threading.Thread(target=listen, daemon=True).start()
        while not enough.is_set():
            try:
                second = call(call.locks.lock(wanted, ttl=60, wait=patience).acquire)
            except NotAcquired as error:
                say("deadlock", error.deadlock)
                continue
            say("granted", wanted)
            call(second.release)
            break
        call(lease.release)


def test_a_circle_of_three_processes_is_named(valkey_server: Server, namespace: str) -> None:
    with (
        crowd(len(NAMES), wait_in_a_circle, valkey_server.url, namespace) as workers,
        Locks(valkey_server.url, namespace=namespace, server_timeout=30) as locks,
    ):
        for worker in workers:
            worker.wait_for("ready", 60)
        for number, (worker, patience) in enumerate(zip(workers, (80, 80, 2), strict=True)):
            assert locks.deadlocks() == []
            worker.write_line(str(patience))
            wait_queued(valkey_server, namespace, NAMES[(number + 1) % len(NAMES)], timeout=30)
        # Who holds is known a second after its first grant.
        (circle,) = wait_until(locks.deadlocks, 60, "the circle to be seen")
        assert {waiter.pid: waiter.name for waiter in circle} == {
            worker.pid: NAMES[(number + 1) % len(NAMES)] for number, worker in enumerate(workers)
        }
        workers[2].write_line()
        workers[2].wait_for("deadlock a deadlock: ", 60)
        assert workers[2].wait(60) == 0
        named = workers[2].lines[-1]
        for number, worker in enumerate(workers):
            assert f"'{NAMES[number]}', held by" in named
            assert f"(pid {worker.pid} " in named
            assert f"worker {number}" in named
        # It has given up, and let go of its own lock: the others go on one after the other.
        assert [worker.wait_for("granted", 60) for worker in workers[:2]] == ["granted invoices", "granted stock"]
        finish(workers, 60)
        assert locks.deadlocks() == []
    wait_clean(valkey_server, namespace, 30)
