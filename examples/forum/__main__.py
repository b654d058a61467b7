"""`python -m examples.forum`: two sites make thumbnails, with a live view of who holds what, and a checked result.

Uses `$TENURE_URL`, else the embedded server of this user on this machine.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Group
from rich.live import Live
from rich.progress import Progress
from rich.table import Table

from . import crowd

if TYPE_CHECKING:
    from .site import Site


def main() -> int:
    """Runs the forum, and returns 0 only if each thumbnail was made once."""
    parser = argparse.ArgumentParser(prog="python -m examples.forum", description=__doc__)
    parser.add_argument("--posts", type=int, default=12)
    parser.add_argument("--without-lock", action="store_true", help="what happens without locks")
    chosen = parser.parse_args()
    progress = Progress()
    tasks = {name: progress.add_task(name, total=chosen.posts) for name in crowd.SITES}

    def look(sites: list[Site]) -> None:
        table = Table("site", "lock", "holder", "waiting")
        for site in sites:
            progress.update(tasks[site.name], completed=len(list(site.thumbnails.glob("*.png"))))
            for holder in site.locks.list():
                table.add_row(site.name, holder.name, str(holder), str(len(site.locks.waiters(holder.name))))
        live.update(Group(progress, table))
        time.sleep(0.05)

    with tempfile.TemporaryDirectory() as folder, Live(progress, refresh_per_second=10) as live:
        outcome = crowd.run(
            Path(folder),
            os.environ.get("TENURE_URL"),
            posts=chosen.posts,
            with_lock=not chosen.without_lock,
            watch=look,
        )
    print(outcome)
    print("fine" if outcome.fine else "NOT fine")
    return 0 if outcome.fine else 1


if __name__ == "__main__":
    sys.exit(main())
