"""A batch job: tags or deletes many archives; those that are busy are reported, and the others go on.

`python -m examples.library.batch FOLDER {tag,delete} NAME... [--tag TAG] [--url URL]` prints a line of JSON for each.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import tenure

from .library import Library, archive_lock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


@dataclass(frozen=True)
class Item:
    """What became of one archive."""

    name: str
    result: Literal["done", "busy", "missing"]
    holder: str | None = None
    """Who keeps it busy."""


def each(locks: tenure.Locks | None, names: Iterable[str], work: Callable[[str], object]) -> list[Item]:
    """Works on each archive under its lock, without waiting for those that are busy.

    No server is another thing than busy: `ServerError` ends the job.
    """
    return [_one(locks, name, partial(work, name)) for name in names]


def _one(locks: tenure.Locks | None, name: str, work: Callable[[], object]) -> Item:
    try:
        if locks is None:
            work()
        else:
            done = locks.run(archive_lock(name), call=work, ttl=5, info={"job": "batch"})
            if isinstance(done, tenure.Skipped):
                return Item(name, "busy", str(done.holder))
    except FileNotFoundError:
        return Item(name, "missing")
    return Item(name, "done")


def main() -> None:
    """Works through the names once."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("action", choices=["tag", "delete"])
    parser.add_argument("names", nargs="+")
    parser.add_argument("--tag", default="batch")
    parser.add_argument("--url")
    parser.add_argument("--without-lock", action="store_true")
    chosen = parser.parse_args()
    library = Library(chosen.folder)

    def work(name: str) -> None:
        if chosen.action == "delete":
            library.delete(name)
        else:
            library.tag(name, chosen.tag)

    locks = None if chosen.without_lock else tenure.Locks(chosen.url, namespace="library")
    for item in each(locks, chosen.names, work):
        print(json.dumps(asdict(item)), flush=True)
    if locks is not None:
        locks.close()


if __name__ == "__main__":
    main()
