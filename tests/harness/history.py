"""Histories of lock operations, written by worker processes and read by the checkers of `checkers.py`.

Every process appends one JSON line per operation. All times are seconds of `time.monotonic()`, which all processes of
one machine share, so that the order of what happened in different processes is exact.
"""

from __future__ import annotations

import collections
import hashlib
import json
import math
import os
import time
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, Self

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

Outcome = Literal["ok", "fail", "unknown"]
"""`ok`: done, and the answer came. `fail`: the answer came, and it was no: not granted, not the owner (any more).
`unknown`: no answer; it may take effect, late or never."""

Op = Literal["acquire", "renew", "release", "look", "lost", "write"]
"""`look` only samples the local deadline; `lost` says that the holder was told; `write` is an effect under the lock."""


@dataclass(frozen=True, slots=True)
class Record:
    """One operation on one lock by one worker."""

    worker: str
    op: Op
    lock: str
    invoke: float
    """When it was called."""
    complete: float
    """When it returned; infinity when it never did."""
    outcome: Outcome = "ok"
    token: str = ""
    """A hash of the lease's token, the same in all records of the lease."""
    fence: int | None = None
    deadline: float | None = None
    """Until when the holder trusts itself, as far as known at `complete`: see `deadline_now`."""
    ttl: float | None = None
    """For how many seconds from `invoke` on the server keeps the lease at least, after an acquire or renew."""
    score: int | None = None
    """The place in the queue of an acquire that had to wait."""
    effect: str = ""
    """What a `write` has written."""


def hash_token(token: bytes | str) -> str:
    """Give eight hex digits that stand for a token."""
    return hashlib.sha256(token if isinstance(token, bytes) else token.encode()).hexdigest()[:8]


def deadline_now(before: float, remaining: float) -> float:
    """Turn `remaining` seconds, asked for after the instant `before`, into a deadline: the earliest that it can be.

    The earliest, so that an overlap that a checker reports is none of the measurement's own making.
    """
    return before + remaining


class Recorder:
    """Appends a worker's records to a file that any number of processes share."""

    def __init__(self, path: Path, worker: str) -> None:
        self.worker = worker
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def add(self, op: Op, lock: str, invoke: float, *, complete: float | None = None, **facts: Any) -> Record:  # noqa: ANN401
        """Append a record that completes now, unless `complete` says when it did; returns it.

        Args:
            op: what was done.
            lock: the name it was done to.
            invoke: `time.monotonic()` before the call.
            complete: `time.monotonic()` after it.
            facts: the other fields of `Record`.
        """
        record = Record(self.worker, op, lock, invoke, time.monotonic() if complete is None else complete, **facts)
        # One write call with O_APPEND: lines of several processes do not mix, and a killed process leaves whole lines.
        os.write(self._file, json.dumps(asdict(record)).encode() + b"\n")
        return record

    def close(self) -> None:
        """Close the file; harmless when repeated."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read(path: Path) -> list[Record]:
    """Read the records of all workers, in order of `invoke`; a last line that was cut off by a kill is left out."""
    names = {field.name for field in fields(Record)}
    found: list[Record] = []
    for line in path.read_bytes().split(b"\n")[:-1]:
        facts: dict[str, Any] = json.loads(line)
        found.append(Record(**{name: value for name, value in facts.items() if name in names}))
    return sorted(found, key=lambda record: record.invoke)


@dataclass(frozen=True, slots=True)
class Hold:
    """The time during which one lease's holder trusted itself."""

    worker: str
    lock: str
    token: str
    fence: int | None
    start: float
    end: float


def holds(records: Iterable[Record]) -> list[Hold]:
    """Find who trusted itself to hold what, from the acquire's reply to the release's call or the local deadline.

    A release ends the hold when it is called, whatever becomes of it, and so does the news that the lease was lost.
    Each later record of the lease with a deadline (a renewal, a look) prolongs it, never shortens it. A worker that
    was killed holds until its last known deadline.
    """
    leases: dict[tuple[str, str], list[Record]] = collections.defaultdict(list)
    for record in records:
        if record.token:
            leases[record.lock, record.token].append(record)
    found: list[Hold] = []
    for (lock, token), of_lease in leases.items():
        grants = [record for record in of_lease if record.op == "acquire" and record.outcome == "ok"]
        if not grants:
            continue
        grant = min(grants, key=lambda record: record.complete)
        deadlines = [record.deadline for record in of_lease if record.deadline is not None and record.outcome == "ok"]
        ends = [record.invoke for record in of_lease if record.op in {"release", "lost"}]
        end = min([max(deadlines, default=math.inf), *ends])
        found.append(Hold(grant.worker, lock, token, grant.fence, grant.complete, max(end, grant.complete)))
    return sorted(found, key=lambda hold: hold.start)


def summary(records: Iterable[Record]) -> dict[str, int]:
    """Count what a run has seen, as `op outcome` → records: a run that saw too little proves nothing."""
    return dict(collections.Counter(f"{record.op} {record.outcome}" for record in records))
