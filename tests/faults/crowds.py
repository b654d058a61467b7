"""Many worker processes at once: started together, ended together, and honest about when the machine stood still."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import threading
import time
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Self

from tenure import AsyncLocks, Locks
from tests.faults.support import FLAVOURS
from tests.harness.processes import Worker, say

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    from tests.faults.support import Flavour

PATIENT = 20.0
"""A server time-out that a slow machine does not reach."""


@contextlib.contextmanager
def crowd(count: int, program: Callable[..., object], *args: float | str) -> Generator[list[Worker]]:
    """Starts `program(number, flavour, *args)` in so many processes, half of each flavour; all end with the block."""
    workers: list[Worker] = []
    try:
        workers.extend(Worker.start(program, number, FLAVOURS[number % 2], *args) for number in range(count))
        yield workers
    finally:
        for worker in workers:
            worker.close()


def together(workers: Iterable[Worker], seconds: float = 0.0) -> None:
    """Lets all go on when the last one is ready; tells each of them the instant that is so many seconds away."""
    for worker in workers:
        worker.wait_for("ready", 60)
    end = time.monotonic() + seconds
    for worker in workers:
        worker.write_line(str(end))


def finish(workers: Iterable[Worker], timeout: float) -> None:
    """Waits until all have ended, without an error and without a word about one."""
    give_up = time.monotonic() + timeout
    for worker in workers:
        assert worker.wait(max(give_up - time.monotonic(), 1)) == 0, worker.errors()
        assert not worker.errors()


class Calls:
    """In a worker: locks of either flavour behind plain calls.

    The asyncio ones run in one task of a loop on a thread of its own.
    """

    def __init__(self, flavour: Flavour, url: str, namespace: str, **options: Any) -> None:  # noqa: ANN401
        settings: dict[str, Any] = {"namespace": namespace, "server_timeout": PATIENT} | options
        self._flavour = flavour
        self.locks: Any = (Locks if flavour == "blocking" else AsyncLocks)(url, **settings)
        self._loop = asyncio.new_event_loop() if flavour == "asyncio" else None
        self._queue: asyncio.Queue[tuple[Callable[[], Any], Future[Any]]] = asyncio.Queue()
        if self._loop is not None:
            threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),), daemon=True).start()

    def __call__(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        """Calls something of these locks and gives its result."""
        if self._loop is None:
            return function(*args, **kwargs)
        future: Future[Any] = Future()
        call = functools.partial(function, *args, **kwargs)
        self._loop.call_soon_threadsafe(self._queue.put_nowait, (call, future))
        return future.result()

    async def _serve(self) -> None:
        while True:
            call, future = await self._queue.get()
            try:
                outcome = call()
                future.set_result(await outcome if asyncio.iscoroutine(outcome) else outcome)
            except Exception as error:  # noqa: BLE001 - it is the caller's
                future.set_exception(error)
            del call, future
            outcome = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self(self.locks.close)


class Heart:
    """A thread that wakes a hundred times a second, and notes when it could not: the process, or all, stood still."""

    EVERY = 0.01
    LATE = 0.05

    def __init__(self) -> None:
        self.gaps: list[tuple[float, float]] = []
        """From when until when it did not wake."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat)

    def _beat(self) -> None:
        last = time.monotonic()
        while not self._stop.wait(self.EVERY):
            now = time.monotonic()
            if now - last > self.LATE:
                self.gaps.append((last, now))
            last = now

    def tell(self) -> None:
        """In a worker: says the gaps, for `gaps_of`."""
        say("gaps", json.dumps(self.gaps))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def gaps_of(worker: Worker) -> list[tuple[float, float]]:
    """The gaps that an ended worker has told."""
    told = [line for line in worker.lines if line.startswith("gaps ")]
    return [(start, end) for line in told for start, end in json.loads(line[5:])]


def stood_still(gaps: Iterable[tuple[float, float]], start: float, end: float) -> float:
    """For how many of the seconds between two instants some process could not run."""
    total, until = 0.0, start
    for gap_start, gap_end in sorted(gaps):
        first, last = max(gap_start, until), min(gap_end, end)
        if last > first:
            total += last - first
            until = last
    return total
