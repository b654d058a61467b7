"""`once` from ten processes: how often it runs, and what those are told who do not run it."""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any

from tenure import Skipped
from tests.faults.crowds import Calls, crowd, finish, together
from tests.faults.support import wait_clean
from tests.harness.processes import say

if TYPE_CHECKING:
    from tests.faults.support import Flavour
    from tests.harness.servers import Server

NAME = "nightly"
PROCESSES = 10
APART = 5.0
WINDOW = 30.0
EVERY = 0.1
TTL = 30.0


class FailedError(Exception):
    """What the job raises every other time: that counts as a run as well."""


def run_now_and_then(number: int, flavour: Flavour, url: str, namespace: str) -> None:
    """Worker: tries ten times a second; tells each run with its fence, and of those who ran whenever it was skipped."""
    with Calls(flavour, url, namespace, identity=f"worker {number}") as call:
        runs: list[int] = []

        def note() -> None:
            (hold,) = call.locks.session().hub.holds.values()
            runs.append(hold.fence)
            if len(runs) % 2:
                raise FailedError

        def job() -> None:
            note()

        async def async_job() -> None:
            note()

        say("ready")
        end = float(sys.stdin.readline())
        seen: dict[int, list[Any]] = {}
        while time.monotonic() < end:
            try:
                outcome = call(
                    call.locks.once, NAME, job if flavour == "blocking" else async_job, at_least=APART, ttl=TTL
                )
            except FailedError:
                continue
            if isinstance(outcome, Skipped):
                holder, until = outcome.holder, outcome.until
                assert holder is not None
                assert until is not None
                seen[holder.fence or 0] = [holder.pid, holder.identity, until.timestamp()]
            time.sleep(EVERY)
        say("told", json.dumps({"pid": os.getpid(), "runs": runs, "seen": seen}))


def test_at_most_one_run_in_five_seconds_and_all_others_are_told_who_ran(valkey_server: Server, namespace: str) -> None:
    with crowd(PROCESSES, run_now_and_then, valkey_server.url, namespace) as workers:
        together(workers, WINDOW)
        told = [json.loads(worker.wait_for("told", WINDOW + 60).partition(" ")[2]) for worker in workers]
        finish(workers, 60)
    # A fence is the server's time of the grant in microseconds; the distance is kept in whole milliseconds of it.
    ran_by = {fence: who["pid"] for who in told for fence in who["runs"]}
    grants = sorted(ran_by)
    assert all(later - earlier >= APART * 1e6 - 1000 for earlier, later in itertools.pairwise(grants))
    assert 4 <= len(grants) <= WINDOW / APART + 1
    for who in told:
        for text, (pid, identity, until) in who["seen"].items():
            fence = int(text)
            # The one that runs, or the one that ran last, is who is told.
            assert ran_by[fence] == pid
            assert identity == f"worker {[one['pid'] for one in told].index(pid)}"
            began = fence / 1e6
            # Never too early: a try at that time finds a run that is over, or the end of the lease that is in the way.
            assert began + APART - 0.002 <= until <= began + TTL + 10
        # Everybody was told of nearly every run, its own as well.
        assert len(who["seen"]) >= len(grants) - 2
    wait_clean(valkey_server, namespace, 30)
