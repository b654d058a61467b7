"""The watcher: looks into each archive that appears or changes.

`python -m examples.library.watcher FOLDER [--url URL]` prints "ready", and ends with its standard input.
"""

from __future__ import annotations

import argparse
import logging
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import watchfiles

import tenure

from .library import Library, archive_lock

if TYPE_CHECKING:
    from collections.abc import Iterable

logger = logging.getLogger("library.watcher")
THREADS = 4


def index(library: Library, locks: tenure.Locks | None, name: str) -> None:
    """Looks into one archive under its lock; what can happen to it meanwhile is no error."""

    def look() -> object:
        return library.index(name)

    try:
        if locks is None:
            look()
            return
        done = locks.run(archive_lock(name), call=look, ttl=5, wait=60, info={"job": "index"})
    except FileNotFoundError:
        # Deleted between its appearance and our turn: whoever deletes holds the lock that we have waited for.
        logger.warning("%s has vanished before it could be looked into", name)
    except tenure.ServerError as error:
        logger.error("%s was not looked into, for there is no server: %s", name, error)  # noqa: TRY400 - without a traceback
    else:
        if isinstance(done, tenure.Skipped):
            logger.warning("%s was not looked into, for it is busy: %s", name, done.holder)


def watch(library: Library, locks: tenure.Locks | None, stop: threading.Event) -> None:
    """Looks into archives until it is stopped."""

    def is_archive(change: watchfiles.Change, path: str) -> bool:
        return change != watchfiles.Change.deleted and path.endswith(".zip")

    batches: Iterable[set[tuple[watchfiles.Change, str]]] = watchfiles.watch(
        library.archives, watch_filter=is_archive, stop_event=stop, debounce=100, step=20, rust_timeout=200
    )
    # One archive that is busy for long must not keep the others waiting.
    with ThreadPoolExecutor(THREADS) as threads:
        for batch in batches:
            for name in sorted({Path(path).stem for _, path in batch}):
                threads.submit(index, library, locks, name)


def main() -> None:
    """Watches until the standard input ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--url")
    parser.add_argument("--without-lock", action="store_true")
    chosen = parser.parse_args()
    logging.basicConfig(
        filename=chosen.folder / "watcher.log", level=logging.INFO, format="%(levelname)s %(name)s %(message)s"
    )
    locks = None if chosen.without_lock else tenure.Locks(chosen.url, namespace="library")
    stop = threading.Event()

    def until_the_end() -> None:
        sys.stdin.read()
        stop.set()

    threading.Thread(target=until_the_end, daemon=True).start()
    watch(Library(chosen.folder), locks, stop)
    if locks is not None:
        locks.close()


if __name__ == "__main__":
    main()
