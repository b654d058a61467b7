"""A plugin job: reads what is known of an archive, asks somebody far away for more, and writes it back.

Longer than the ttl, which is how long the archive stays locked when the job dies: the lease is renewed, up to a bound.

`python -m examples.library.plugin FOLDER NAME` prints "began", and "done" or why not; a line typed meanwhile is enough.
"""

from __future__ import annotations

import argparse
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import tenure

from .library import Library, archive_lock

if TYPE_CHECKING:
    from collections.abc import Callable

TTL = 5.0
MAX_HOLD = 600.0
LOST, BUSY = 3, 4


def work(library: Library, name: str, steps: int, step: Callable[[int], object], enough: threading.Event) -> None:
    """What the plugin does to an archive; `step` is called before each step, and once more before it writes."""
    metadata = library.read(name)
    print("began", flush=True)
    number = 0
    while number < steps and not enough.is_set():
        step(number)
        enough.wait(0.2)  # stands for an answer from far away
        number += 1
    step(number)
    library.write(name, metadata | {"plugin": number})


def run(  # noqa: PLR0913 - all by keyword
    library: Library,
    locks: tenure.Locks,
    name: str,
    *,
    steps: int,
    enough: threading.Event,
    max_hold: float = MAX_HOLD,
) -> int:
    """Works under the archive's lock; what has come of it as an exit code."""
    lock = locks.lock(archive_lock(name), ttl=TTL, wait=30, max_hold=max_hold, info={"job": "plugin"})
    try:
        with lock as lease:

            def step(number: int) -> None:
                # If the lease is gone, somebody else may be at it: what was read is old, and must not be written.
                lease.check()
                lease.set_info({"job": "plugin", "step": number, "of": steps})

            work(library, name, steps, step, enough)
    except tenure.LeaseLost as lost:
        print(lost, flush=True)
        return LOST
    except tenure.NotAcquired as busy:
        print(busy, flush=True)
        return BUSY
    print("done", flush=True)
    return 0


def main() -> int:
    """Works once."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("name")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--max-hold", type=float, default=MAX_HOLD)
    parser.add_argument("--url")
    parser.add_argument("--without-lock", action="store_true")
    chosen = parser.parse_args()
    library = Library(chosen.folder)
    enough = threading.Event()
    threading.Thread(target=lambda: sys.stdin.readline() and enough.set(), daemon=True).start()
    if chosen.without_lock:
        work(library, chosen.name, chosen.steps, lambda _: None, enough)
        return 0
    with tenure.Locks(chosen.url, namespace="library") as locks:
        return run(library, locks, chosen.name, steps=chosen.steps, enough=enough, max_hold=chosen.max_hold)


if __name__ == "__main__":
    sys.exit(main())
