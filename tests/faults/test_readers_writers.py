"""Readers and writers of one lock in many processes: who was inside with whom, and how long a writer had to wait."""

from __future__ import annotations

import itertools
import random
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.faults.crowds import Calls, Heart, crowd, finish, gaps_of, stood_still, together
from tests.faults.support import traces
from tests.harness.history import Recorder, deadline_now, hash_token, holds, read
from tests.harness.processes import say

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tests.faults.support import Flavour
    from tests.harness.history import Hold, Record
    from tests.harness.servers import Server

NAME = "book"
PROCESSES = 8
WRITERS = 2
WINDOW = 20.0
LONGEST_READ = 0.12
PAUSE = 0.03
"""What a writer does between two turns; readers come back at once, so that there is always one inside."""


def read_or_write(number: int, flavour: Flavour, url: str, namespace: str, history: str) -> None:
    """Worker: takes turns until the instant that the test says, as one of the writers or one of the readers."""
    writes = number < WRITERS
    choose = random.Random(number)
    with (
        Heart() as heart,
        Calls(flavour, url, namespace) as call,
        Recorder(Path(history), f"{'writer' if writes else 'reader'} {number}") as recorder,
    ):
        lock = call.locks.lock(NAME, ttl=30, shared=not writes)
        call(call(lock.acquire).release)
        say("ready")
        end = float(sys.stdin.readline())
        while time.monotonic() < end:
            asked = time.monotonic()
            lease = call(lock.acquire)
            granted = time.monotonic()
            token = hash_token(lease.token)
            facts = {"token": token, "fence": lease.fence, "deadline": deadline_now(granted, lease.remaining())}
            recorder.add("acquire", NAME, asked, complete=granted, **facts)
            time.sleep(0.003 if writes else choose.uniform(0.02, LONGEST_READ))
            released = time.monotonic()
            call(lease.release)
            recorder.add("release", NAME, released, token=token)
            if writes:
                time.sleep(PAUSE)
        heart.tell()


def writes(item: Record | Hold) -> bool:
    return item.worker.startswith("writer")


def together_with_a_writer(records: Sequence[Record]) -> list[tuple[Hold, Hold]]:
    """All pairs of holds of which one is a writer's and that overlap."""
    found: list[tuple[Hold, Hold]] = []
    inside: list[Hold] = []
    for hold in holds(records):
        inside = [other for other in inside if other.end > hold.start]
        found += [(other, hold) for other in inside if writes(other) or writes(hold)]
        inside.append(hold)
    return found


def fences_that_do_not_rise(grants: Iterable[Record]) -> list[tuple[Record, Record]]:
    """All grants whose fence is no higher than one that was complete before they were asked for; readers may share."""
    by_completion = sorted(grants, key=lambda record: record.complete)
    found: list[tuple[Record, Record]] = []
    highest: dict[bool, Record] = {}
    done = 0
    for grant in sorted(by_completion, key=lambda record: record.invoke):
        while by_completion[done].complete < grant.invoke:
            earlier = by_completion[done]
            if fence(earlier) > fence(highest.get(writes(earlier))):
                highest[writes(earlier)] = earlier
            done += 1
        for of_writer, earlier in highest.items():
            both_read = not of_writer and not writes(grant)
            if fence(grant) < fence(earlier) or (fence(grant) == fence(earlier) and not both_read):
                found.append((earlier, grant))
    return found


def fence(record: Record | None) -> int:
    return -1 if record is None or record.fence is None else record.fence


def test_no_writer_with_anybody_and_no_writer_starves(valkey_server: Server, namespace: str, tmp_path: Path) -> None:
    history = tmp_path / "history"
    args = (valkey_server.url, namespace, str(history))
    with Heart() as heart, crowd(PROCESSES, read_or_write, *args) as workers:
        together(workers, WINDOW)
        finish(workers, WINDOW + 60)
        gaps = [*heart.gaps, *itertools.chain.from_iterable(map(gaps_of, workers))]
    records = read(history)
    grants = [record for record in records if record.op == "acquire"]
    of_writers = [record for record in grants if writes(record)]
    assert not together_with_a_writer(records)
    assert not fences_that_do_not_rise(grants)
    assert len({record.fence for record in of_writers}) == len(of_writers)
    release_of = {record.token: record for record in records if record.op == "release"}
    longest = max(release_of[record.token].complete - record.complete for record in grants if not writes(record))
    assert longest >= LONGEST_READ / 2
    for record in of_writers:
        waited = record.complete - record.invoke
        # What a process could not run for is no waiting for readers.
        excused = stood_still(gaps, record.invoke, record.complete)
        assert waited - excused <= 2 * longest + 1, f"{record} waited {waited:.3f} s, longest read {longest:.3f} s"
    assert len(of_writers) > 20, "too few turns of writers to show anything"
    assert len(grants) - len(of_writers) > 60, "too few turns of readers to show anything"
    # Readers do read together: else there would be no stream of them.
    shared = [record.fence for record in grants if not writes(record)]
    assert len(set(shared)) < 0.7 * len(shared)
    assert not traces(valkey_server, namespace)
