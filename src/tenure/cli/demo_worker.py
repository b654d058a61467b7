"""One worker of the demo: takes turns under the lock and tells its parent, one JSON line per event.

Run as `python -m tenure.cli.demo_worker NAME TURNS WORK COUNTER LOCKED`. The first line of its standard input is the
server's address, where nobody else sees it, as JSON; it starts on the second one.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tenure import Locks
from tenure.errors import TenureError

if TYPE_CHECKING:
    from types import FrameType

    from tenure import Lock

TTL = 60.0
"""Seconds that a worker may stand still without losing its turn: that would be right, and fail the check."""
PATIENCE = 30.0
"""Seconds within which the server has to answer; that it is there has been seen."""


def _tell(**event: float | str) -> None:
    # Not through sys.stdout: what stays in its buffer when the parent has gone would be reported at exit.
    os.write(1, json.dumps(event).encode() + b"\n")


def _add_one(counter: Path, work: float) -> None:
    """Add one as badly as possible: whoever comes in between is forgotten."""
    value = int(counter.read_text() or 0)
    time.sleep(work)
    counter.write_text(str(value + 1))


def _take_turn(lock: Lock | None, counter: Path, work: float) -> None:
    _tell(at="asked", time=time.monotonic())
    with lock or contextlib.nullcontext() as lease:
        now = time.monotonic()
        _tell(
            at="began",
            time=now,
            deadline=now + (lease.remaining() if lease else TTL),
            fence=lease.fence if lease else 0,
        )
        _add_one(counter, work)
        ended = time.monotonic()
    # Only now: writing it down earlier would make the hand-over look longer than it is.
    _tell(at="ended", time=ended)


def main(name: str, turns: str, work: str, counter: str, locked: str) -> int:
    """Take all turns; return an exit code."""

    def stop(number: int, _frame: FrameType | None) -> None:
        sys.exit(128 + number)  # through the `with`, which releases

    logging.getLogger("tenure").setLevel(logging.ERROR)  # the parent has said which server it is
    url, namespace = json.loads(sys.stdin.readline() or "null"), os.environ.get("TENURE_NAMESPACE", "tenure")
    locks = Locks(url, namespace=namespace, server_timeout=PATIENCE)
    try:
        with contextlib.closing(locks):
            locks.holder(name)  # connects, so that the first turn does not have to
            # Only now: until here nothing is held, and everything is imported. Python swallows an exit that strikes in
            # one of the callbacks of its imports, and the worker would go on.
            signal.signal(signal.SIGTERM, stop)
            lock = locks.lock(name, ttl=TTL) if locked == "locked" else None
            _tell(at="ready")
            if not sys.stdin.readline():
                return 1
            for _ in range(int(turns)):
                _take_turn(lock, Path(counter), float(work))
    except BrokenPipeError:
        return 1  # the parent has gone, and all that this was for
    except TenureError as error:
        _tell(at="failed", why=str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
