"""Many processes on one name: nothing is lost, all have their turns in the order of arrival, the server has peace."""

from __future__ import annotations

import asyncio
import collections
import itertools
import os
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tenure import AsyncLocks, Locks
from tenure.core.ticket import Ticket
from tests.faults.crowds import PATIENT, Heart, gaps_of, stood_still
from tests.faults.support import FLAVOURS, UNHURRIED, Driver, Stopwatch, queue_length, traces, wait_queued
from tests.harness.checkers import check_arrival_order, check_fence_order, check_overlap
from tests.harness.commands import CallCounter
from tests.harness.history import Recorder, deadline_now, hash_token, read
from tests.harness.processes import Worker, say
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tenure import AsyncLease, Lease
    from tenure.core.lease_state import Hold
    from tests.faults.support import Flavour
    from tests.harness.servers import Server

NAME = "precious"
LONG = 30.0
PROCESSES = 8
INCREMENTS = int(os.environ.get("TESTS_INCREMENTS", "1000"))
"""Per process; to be made smaller on a machine that does something else at the same time."""
WINDOW = 5.0


BOTH = pytest.mark.parametrize("flavour", FLAVOURS)


def take_turns(flavour: Flavour, url: str, namespace: str, turn: Callable[[Lease | AsyncLease, float], bool]) -> None:
    """Take and give back the lock until `turn`, which gets the lease and the time of asking, says that it is enough."""

    async def main() -> None:
        async with AsyncLocks(url, namespace=namespace, server_timeout=PATIENT) as locks:
            lock = locks.lock(NAME, ttl=LONG)
            more = True
            while more:
                asked = time.monotonic()
                async with lock as lease:
                    more = turn(lease, asked)

    if flavour == "asyncio":
        asyncio.run(main())
        return
    with Locks(url, namespace=namespace, server_timeout=PATIENT) as locks:
        lock = locks.lock(NAME, ttl=LONG)
        more = True
        while more:
            asked = time.monotonic()
            with lock as lease:
                more = turn(lease, asked)


def start_together(workers: list[Worker]) -> None:
    """Let all workers go on when the last one is ready."""
    for worker in workers:
        worker.wait_for("ready", 60)
    for worker in workers:
        worker.write_line()


# Nothing is lost


def count_up(flavour: Flavour, url: str, namespace: str, folder: str, times: int) -> None:
    """Worker: adds to a number in a file that nothing but the lock protects."""
    counter = os.open(Path(folder, "counter"), os.O_RDWR)
    fences = os.open(Path(folder, "fences"), os.O_WRONLY | os.O_APPEND)
    left = times

    def turn(lease: Lease | AsyncLease, asked: float) -> bool:
        nonlocal left
        value = int(os.pread(counter, 20, 0))
        os.write(fences, b"%d\n" % lease.fence)
        os.pwrite(counter, b"%020d" % (value + 1), 0)
        left -= 1
        return left > 0

    say("ready")
    sys.stdin.readline()
    take_turns(flavour, url, namespace, turn)
    os.close(counter)
    os.close(fences)


@BOTH
def test_an_unprotected_counter_under_the_lock_is_exact(
    valkey_server: Server, namespace: str, flavour: Flavour, tmp_path: Path
) -> None:
    (tmp_path / "counter").write_bytes(b"%020d" % 0)
    (tmp_path / "fences").touch()
    workers: list[Worker] = []
    try:
        for _ in range(PROCESSES):
            args = (flavour, valkey_server.url, namespace, str(tmp_path), INCREMENTS)
            workers.append(Worker.start(count_up, *args))
        start_together(workers)
        for worker in workers:
            assert worker.wait(110) == 0, worker.errors()
            assert not worker.errors()
    finally:
        for worker in workers:
            worker.close()
    assert int((tmp_path / "counter").read_bytes()) == PROCESSES * INCREMENTS
    fences = [int(line) for line in (tmp_path / "fences").read_text().split()]
    assert len(fences) == PROCESSES * INCREMENTS
    assert all(earlier < later for earlier, later in itertools.pairwise(fences))
    assert not traces(valkey_server, namespace)


# Everybody has a turn, in the order of arrival


@dataclass(frozen=True)
class Turn:
    """One turn as the worker saw it, in seconds of the clock that all processes share."""

    token: str
    fence: int
    asked: float
    granted: float
    deadline: float
    released: float
    score: int | None
    """The place in the queue; None when the lock was free."""


def note_scores() -> dict[str, int]:
    """From now on, note the score that each granted token of this process had in the queue."""
    scores: dict[str, int] = {}
    plain = Ticket.held

    def held(self: Ticket, hold: Hold) -> bool:
        if self.score:
            scores[self.token.decode()] = int(self.score)
        return plain(self, hold)

    Ticket.held = held
    return scores


def take_turns_for_a_while(flavour: Flavour, url: str, namespace: str, history: str, name: str) -> None:
    """Worker: takes turns until the test says that it is enough, and then writes down what it saw."""
    turns: list[Turn] = []
    scores = note_scores()
    enough = threading.Event()

    def listen() -> None:
        sys.stdin.readline()
        enough.set()

    say("ready")
    sys.stdin.readline()
    threading.Thread(target=listen, daemon=True).start()

    def turn(lease: Lease | AsyncLease, asked: float) -> bool:
        granted = time.monotonic()
        deadline = deadline_now(granted, lease.remaining())
        score = scores.pop(lease.token, None)
        turns.append(Turn(lease.token, lease.fence, asked, granted, deadline, time.monotonic(), score))
        if len(turns) == 1:
            say("in")
        return not enough.is_set()

    with Heart() as heart:
        take_turns(flavour, url, namespace, turn)
    heart.tell()
    with Recorder(Path(history), name) as recorder:
        for one in turns:
            token = hash_token(one.token)
            facts = {"fence": one.fence, "deadline": one.deadline, "score": one.score}
            recorder.add("acquire", NAME, one.asked, complete=one.granted, token=token, **facts)
            recorder.add("release", NAME, one.released, token=token)


def test_in_some_seconds_everybody_has_as_many_turns_in_the_order_of_arrival(
    valkey_server: Server, namespace: str, tmp_path: Path
) -> None:
    """Half of the workers are of each flavour, so that neither is served better than the other."""
    history = tmp_path / "history"
    workers: list[Worker] = []
    try:
        for number in range(PROCESSES):
            args = (FLAVOURS[number % 2], valkey_server.url, namespace, str(history), f"worker {number}")
            workers.append(Worker.start(take_turns_for_a_while, *args))
        start_together(workers)
        for worker in workers:
            worker.wait_for("in", 60)
        # From here on all stand in the queue again and again.
        begin, watch = time.monotonic(), Stopwatch()
        wait_until(lambda: watch.seconds >= WINDOW, 2 * WINDOW, "some seconds to pass")
        end = time.monotonic()
        for worker in workers:
            worker.write_line()
        for worker in workers:
            assert worker.wait(60) == 0, worker.errors()
            assert not worker.errors()
    finally:
        for worker in workers:
            worker.close()
    records = read(history)
    grants = [record for record in records if record.op == "acquire" and begin <= record.complete < end]
    turns = collections.Counter(record.worker for record in grants)
    for number, worker in enumerate(workers):
        # Whoever is not let run by a busy machine does not ask; the order of those who did is exact, see below.
        ran = 1 - stood_still(gaps_of(worker), begin, end) / (end - begin)
        assert 1.5 * turns[f"worker {number}"] >= ran * max(turns.values()), (number, ran, turns)
    queued = [record for record in grants if record.score is not None]
    assert len(queued) > 0.9 * len(grants) > 10 * PROCESSES, "too few had to wait to show anything"
    assert not check_arrival_order(records)
    assert not check_fence_order(records)
    assert not check_overlap(records)
    assert not traces(valkey_server, namespace)


# The server is not stormed


def crowd(flavour: Flavour, url: str, namespace: str, count: int) -> None:
    """Worker: so many threads or tasks wait for the lock at the same time; tells the fences that they got."""

    async def main() -> None:
        async with AsyncLocks(url, namespace=namespace, server_timeout=PATIENT) as locks:

            async def wait() -> None:
                async with locks.lock(NAME, ttl=LONG) as lease:
                    say("fence", lease.fence)

            async with asyncio.TaskGroup() as group:
                for _ in range(count):
                    group.create_task(wait())

    if flavour == "asyncio":
        asyncio.run(main())
        return
    with Locks(url, namespace=namespace, server_timeout=PATIENT) as locks:

        def wait() -> None:
            with locks.lock(NAME, ttl=LONG) as lease:
                say("fence", lease.fence)

        threads = [threading.Thread(target=wait) for _ in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def test_a_hundred_waiters_hardly_ask_and_are_served_without_asking(valkey_server: Server, namespace: str) -> None:
    """Fewer than 20 script calls a second by all of them; then one for each release, which is the next one's grant."""
    each = 50
    with (
        Driver("blocking", valkey_server.url, namespace, **UNHURRIED) as outside,
        Worker.start(crowd, "blocking", valkey_server.url, namespace, each) as threads,
        Worker.start(crowd, "asyncio", valkey_server.url, namespace, each) as tasks,
    ):
        lease = outside.acquire(NAME)
        wait_queued(valkey_server, namespace, NAME, 2 * each, 60)
        with CallCounter(valkey_server.admin) as waiting:
            held = Stopwatch()
            wait_until(lambda: held.seconds >= WINDOW, 2 * WINDOW, "some seconds to pass")
        assert waiting.scripts < 20 * held.seconds
        assert queue_length(valkey_server, namespace, NAME) == 2 * each
        lease.check()
        served = Stopwatch()
        with CallCounter(valkey_server.admin) as serving:
            outside.release(lease)
            assert threads.wait() == 0, threads.errors()
            assert tasks.wait() == 0, tasks.errors()
        fences = [int(line.split()[1]) for line in threads.lines + tasks.lines]
        assert len(set(fences)) == 2 * each
        assert serving.commands["spublish"] == 2 * each
        # On a slow machine some have time for a poll or two before it is their turn.
        assert serving.scripts < 2 * each + 20 + 5 * served.seconds
    assert not traces(valkey_server, namespace)


def hand_over(flavour: Flavour, url: str, namespace: str, times: int) -> None:
    """Worker: takes so many turns, and tells in how many of them the lock was handed over to it."""
    scores = note_scores()
    left = times
    waited = 0

    def turn(lease: Lease | AsyncLease, asked: float) -> bool:
        nonlocal left, waited
        left -= 1
        waited += lease.token in scores
        # Long enough for the others to come and queue.
        time.sleep(0.001)
        return left > 0

    say("ready")
    sys.stdin.readline()
    take_turns(flavour, url, namespace, turn)
    say("waited", waited)


@BOTH
def test_a_hand_over_costs_two_requests_and_one_message(
    valkey_server: Server, namespace: str, flavour: Flavour
) -> None:
    """The request that queues, and the previous holder's release, whose message is the grant."""
    processes, times = 3, 150
    workers: list[Worker] = []
    try:
        args = (flavour, valkey_server.url, namespace, times)
        workers.extend(Worker.start(hand_over, *args) for _ in range(processes))
        with Driver("blocking", valkey_server.url, namespace, **UNHURRIED) as outside:
            outside.warm()
            # Until all have come: one that comes late would find the others at the end of their turns.
            lease = outside.acquire(NAME, ttl=120)
            watch = Stopwatch()
            with CallCounter(valkey_server.admin) as calls:
                start_together(workers)
                wait_queued(valkey_server, namespace, NAME, processes, 60)
                outside.release(lease)
                waited = sum(int(worker.wait_for("waited", 60).split()[1]) for worker in workers)
        for worker in workers:
            assert worker.wait() == 0, worker.errors()
    finally:
        for worker in workers:
            worker.close()
    assert waited > 0.1 * processes * times, "too few had to wait to show anything"
    assert calls.commands["spublish"] == waited
    # Once for each process: the first try of each script, and of an acquire without an inbox.
    first = 6 * processes
    # A machine that stands still may let a waiter sleep until its poll, or a request be sent again.
    polls = 10 + processes * int(watch.seconds)
    assert calls.scripts <= 2 * processes * times + first + polls
    assert not traces(valkey_server, namespace)
