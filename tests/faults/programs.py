"""Programs that end, and what their end must look like."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.faults.support import SLACK
from tests.harness.processes import Worker

if TYPE_CHECKING:
    from tests.faults.support import Flavour

EXIT = 1.5 + SLACK
"""What locks may take at exit: a second to give back what is held, half a second for the hub's thread to end."""

STRICT = {"PYTHONDEVMODE": "1", "PYTHONWARNINGS": "error"}
"""A warning in a place where nobody catches it is printed, as "Exception ignored in"."""

PRELUDE = """
import asyncio, logging, os, signal, sys, threading, time
import tenure

from tenure import manager, manager_base
from tenure.runtime import client_state

# The development mode of asyncio tells of each callback that a busy machine made slow.
logging.getLogger("asyncio").setLevel(logging.ERROR)
url, namespace = sys.argv[1:3]
if "patient" in sys.argv:
    # A program has a second to give back what it holds: too little on a machine that stands still.
    manager.EXIT_TIMEOUT = manager_base.EXIT_TIMEOUT = 20.0
    # A renewal that has no answer in time says so on standard error.
    client_state.REQUEST_SHARE = 1
else:
    # Unanswered requests are sent again soon, and an undo has soon made sure for the second time.
    client_state.REQUEST_SHARE = 15

def ready(*facts):
    print("ready", time.monotonic(), *facts, flush=True)

# The hub is busy with it when this returns.
def renew_now(*leases):
    for lease in leases:
        lease._hold.next_renew = 0.0
    leases[0]._session.hub.wake()

"""


@dataclass(frozen=True)
class Program:
    """A program in both flavours, and how it has to end."""

    blocking: str
    asyncio: str
    code: int = 0
    error: str = ""
    """The last line that the program's own error leaves on standard error."""

    def start(self, flavour: Flavour, url: str, namespace: str, *, patient: bool = True) -> Worker:
        """Start it; it says `ready` with the time when nothing but its end is to come.

        Args:
            flavour: which of the two programs.
            url: its server.
            namespace: of its locks.
            patient: with a server that answers: nothing is left to a ttl, however slow the machine is.
        """
        text = self.blocking if flavour == "blocking" else self.asyncio
        return Worker.start(PRELUDE + text, url, namespace, *(["patient"] if patient else []), env=STRICT)


def expect_end(worker: Worker, program: Program, ready_at: float) -> None:
    """The program ends soon, with its own code, and says no more than it has to."""
    code = worker.wait()
    assert time.monotonic() - ready_at < EXIT + SLACK, "the end took too long"
    errors = worker.errors()
    assert code == program.code, errors
    assert errors.strip().rpartition("\n")[2] == program.error, errors
    assert errors.count("Traceback") == bool(program.error), errors
    assert "Exception ignored" not in errors
