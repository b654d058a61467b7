"""`python -m examples.library`: two web servers, a watcher and jobs at the same archives, watched while they are.

Uses `$TENURE_URL`, else the embedded server of this user on this machine.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Group
from rich.live import Live
from rich.progress import Progress
from rich.table import Table

from . import world

if TYPE_CHECKING:
    from .world import World


def view(library: World) -> Table:
    """Who holds what, for what, and how many wait."""
    table = Table("lock", "holder", "what for", "mode", "waiting")
    for holder in library.locks.list() if library.locks is not None else []:
        info = holder.info if isinstance(holder.info, dict) else {}
        waiting = len(library.locks.waiters(holder.name)) if library.locks is not None else 0
        about = " ".join(str(value) for value in info.values())
        table.add_row(holder.name, str(holder), about, holder.mode, str(waiting))
    return table


def main() -> int:
    """Runs a busy day, and returns 0 only if no change was lost."""
    parser = argparse.ArgumentParser(prog="python -m examples.library", description=__doc__)
    parser.add_argument("--archives", type=int, default=6)
    parser.add_argument("--people", type=int, default=6)
    parser.add_argument("--without-lock", action="store_true", help="what happens without locks")
    chosen = parser.parse_args()
    progress = Progress()
    task = progress.add_task("changes", total=chosen.archives * chosen.people * 2)
    with (
        tempfile.TemporaryDirectory() as folder,
        world.opened(Path(folder), os.environ.get("TENURE_URL"), with_lock=not chosen.without_lock) as library,
        Live(progress, refresh_per_second=10) as live,
        ThreadPoolExecutor(1) as thread,
    ):
        day = thread.submit(world.busy_day, library, archives=chosen.archives, people=chosen.people)
        while not day.done():
            progress.update(task, completed=library.statuses.count(HTTPStatus.OK))
            live.update(Group(progress, view(library)))
            time.sleep(0.05)
        outcome = day.result()
    print(outcome)
    print("fine" if outcome.fine else "NOT fine")
    return 0 if outcome.fine else 1


if __name__ == "__main__":
    sys.exit(main())
