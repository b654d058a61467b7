"""What programs of greenlets share, each of which runs in a process that gevent has patched: see `worker.py`.

They are in `holding.py` and `ending.py`, and assert themselves what they find.
"""

# pyright: basic
# gevent has no complete types of its own.

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gevent import monkey

import tenure
from tenure import manager, manager_base
from tests.harness.processes import say
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

LONG = 120.0
"""A ttl that no test waits for."""
CROWD = 50
PATIENCE = 60.0
PROGRAMS: dict[str, Callable[[tenure.Locks, str, str], None]] = {}
# The development mode of asyncio tells of each callback that a busy machine made slow.
logging.getLogger("asyncio").setLevel(logging.ERROR)
native_ident: Any = monkey.get_original("_thread", "get_ident")


def program(function: Callable[[tenure.Locks, str, str], None]) -> Callable[[tenure.Locks, str, str], None]:
    """Gives a program its name."""
    PROGRAMS[function.__name__] = function
    return function


def main() -> None:
    """Runs the program that the command line names; says `done` when it has found everything as it should be."""
    name, url, namespace = sys.argv[1:4]
    # A program has a second to give back what it holds: too little on a machine that stands still.
    manager.EXIT_TIMEOUT = manager_base.EXIT_TIMEOUT = 20.0
    locks = tenure.Locks(url, namespace=namespace, server_timeout=PATIENCE)
    PROGRAMS[name](locks, url, namespace)
    say("done")


def queue(locks: tenure.Locks, count: int) -> None:
    """Waits until so many wait for `n`."""
    wait_until(lambda: len(locks.waiters("n")) == count, PATIENCE, f"{count} waiters")


def threads() -> int:
    """How many threads the system sees in this process."""
    return len(list(Path("/proc/self/task").iterdir()))
