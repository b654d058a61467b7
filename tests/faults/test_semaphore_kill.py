"""A semaphore of three while its holders are killed: never more than three inside, and each place comes back."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tenure import LeaseLost, Locks
from tests.faults.crowds import Calls, crowd, together
from tests.faults.support import FLAVOURS, traces
from tests.harness.history import Recorder, deadline_now, hash_token, holds, read
from tests.harness.processes import Worker, say
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.faults.support import Flavour
    from tests.harness.history import Hold, Record
    from tests.harness.servers import Server

NAME = "pumps"
LIMIT = 3
PROCESSES = 6
KILLS = 9
TTL = 1.0
GRACE = 0.01 * TTL + 0.02


def take_places(number: int, flavour: Flavour, url: str, namespace: str, history: str) -> None:
    """Worker: takes a place for a short while, again and again, until it is killed."""
    choose = random.Random(number)
    with (
        Calls(flavour, url, namespace) as call,
        Recorder(Path(history), f"worker {number}") as recorder,
    ):
        semaphore = call.locks.semaphore(NAME, LIMIT, ttl=TTL)
        say("ready")
        while True:
            asked = time.monotonic()
            lease = call(semaphore.acquire)
            granted = time.monotonic()
            token = hash_token(lease.token)
            facts = {"token": token, "fence": lease.fence, "deadline": deadline_now(granted, lease.remaining())}
            recorder.add("acquire", NAME, asked, complete=granted, **facts)
            time.sleep(choose.uniform(0.05, 0.3))
            before = time.monotonic()
            try:
                lease.check()
            except LeaseLost:
                # A machine that stands still for longer than the ttl; the lease ended at its deadline.
                recorder.add("lost", NAME, before, token=token)
            else:
                recorder.add("look", NAME, before, token=token, deadline=deadline_now(before, lease.remaining()))
                recorder.add("release", NAME, time.monotonic(), token=token)
            call(lease.release)


def most_inside(records: Sequence[Record]) -> tuple[int, list[Hold]]:
    """How many trusted themselves to hold a place at the same time at most, and who they were."""
    most: list[Hold] = []
    inside: list[Hold] = []
    for hold in holds(records):
        inside = [other for other in inside if other.end > hold.start] + [hold]
        if len(inside) > len(most):
            most = inside
    return len(most), most


def one_inside(locks: Locks, workers: Sequence[Worker], others: int) -> Worker | None:
    """A worker that holds a place now, while so many others do."""
    pids = {holder.pid for holder in locks.holders(NAME)}
    inside = [worker for worker in workers if worker.running and worker.pid in pids]
    return random.choice(inside) if len(inside) > others else None


def shown_enough(history: Path) -> bool:
    """Whether all places were in use at once, and many turns were taken."""
    records = read(history)
    return most_inside(records)[0] >= LIMIT and sum(record.op == "acquire" for record in records) > 5 * LIMIT


def test_never_more_than_three_and_all_places_come_back(valkey_server: Server, namespace: str, tmp_path: Path) -> None:
    history = tmp_path / "history"
    args = (valkey_server.url, namespace, str(history))
    with (
        Locks(valkey_server.url, namespace=namespace, server_timeout=30) as locks,
        crowd(PROCESSES, take_places, *args) as workers,
    ):
        together(workers)
        for number in range(KILLS):
            if number == KILLS - LIMIT:
                # Between the kills a slow machine takes few turns: each of them waits for a victim only.
                wait_until(lambda: shown_enough(history), 60, "enough turns")
            # Mostly while others are inside as well, whose places it must not touch.
            others = 1 if number < KILLS - LIMIT else 0
            victim = wait_until(lambda others=others: one_inside(locks, workers, others), 30, "somebody to kill")
            assert victim is not None
            victim.kill9()
            if sum(worker.running for worker in workers) <= LIMIT + 1 and number < KILLS - LIMIT:
                workers.append(Worker.start(take_places, PROCESSES + number, FLAVOURS[number % 2], *args))
        for worker in workers:
            worker.kill9()
        killed = time.monotonic()
        records = read(history)
        left = [holder.expires_in for holder in locks.holders(NAME)]
        assert len(left) <= LIMIT
        # In its very last millisecond a place has none left.
        assert all(seconds is not None and 0 <= seconds <= TTL + GRACE for seconds in left), left

        places = [locks.semaphore(NAME, LIMIT, ttl=30, wait=30).acquire()]
        for _ in range(LIMIT - 1):
            places[-1].detach()
            places.append(locks.semaphore(NAME, LIMIT, ttl=30, wait=30).acquire())
        places[-1].detach()
        back = time.monotonic()
        assert locks.semaphore(NAME, LIMIT).try_acquire() is None, "a fourth place"
        assert back - killed <= TTL + GRACE + 10
        for place in places:
            place.release()
    most, inside = most_inside(records)
    assert most <= LIMIT, "\n".join(map(str, inside))
    assert most == LIMIT, "never full: this has shown nothing"
    grants = [record for record in records if record.op == "acquire"]
    assert len({record.fence for record in grants}) == len(grants) > 5 * LIMIT
    assert not traces(valkey_server, namespace)
