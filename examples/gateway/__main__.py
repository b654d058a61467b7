"""`python -m examples.gateway`: storms of reconnections, with a live view of who holds what, and a checked result.

Uses `$TENURE_URL`, else the embedded server of this user on this machine; SQLite, or the PostgreSQL that is given.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import secrets
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.live import Live
from rich.progress import Progress
from rich.table import Table

from .storm import Plan, Storm

if TYPE_CHECKING:
    from collections.abc import Mapping


def table_of(statuses: Mapping[str, Mapping[str, Any]]) -> Table:
    """Which server has how many devices, how soon the first of them is lost, and what else it does."""
    table = Table("server", "devices", "shortest lease", "late writes refused", "forwarded", "sweeps", "skipped")
    for url, status in statuses.items():
        left = [left for left in status.get("connections", {}).values() if left is not None]
        table.add_row(
            url,
            str(len(status["connections"])) if status else "-",
            f"{min(left):.1f} s" if left else "",
            *(str(status.get(name, "")) for name in ("refused", "forwarded", "ran", "skipped")),
        )
    return table


def main() -> int:
    """Runs the gateway, and returns 0 only if every check has passed."""
    parser = argparse.ArgumentParser(prog="python -m examples.gateway", description=__doc__)
    parser.add_argument("--servers", type=int, default=4)
    parser.add_argument("--devices", type=int, default=200)
    parser.add_argument("--storms", type=int, default=3)
    parser.add_argument("--database", help="what psycopg connects to; default: an SQLite file of its own")
    parser.add_argument("--slow-database", type=float, default=0, help="seconds that a write takes")
    parser.add_argument("--without-lock", action="store_true", help="what happens without leases")
    parser.add_argument(
        "--without-fence", action="store_true", help="what happens when the database compares no fences"
    )
    chosen = parser.parse_args()
    plan = Plan(
        servers=chosen.servers,
        devices=chosen.devices,
        storms=chosen.storms,
        delays=(chosen.slow_database,),
        with_lock=not chosen.without_lock,
        with_fence=not chosen.without_fence,
        patience=60 if not (chosen.without_lock or chosen.without_fence) else 5,
    )
    progress = Progress()
    with tempfile.TemporaryDirectory() as name, Live(progress, refresh_per_second=4) as live:
        folder = Path(name)
        storm = Storm(
            plan, folder, os.environ.get("TENURE_URL"), f"gateway-{secrets.token_hex(4)}",
            chosen.database or str(folder / "devices.db"),
        )  # fmt: skip
        task = progress.add_task("starting", total=storm.all_steps)

        def look(storm: Storm) -> None:
            progress.update(task, completed=storm.steps, description=storm.step)
            live.update(Group(progress, table_of(storm.statuses)))

        outcome = asyncio.run(storm.run(look))
    print(json.dumps(outcome.figures, indent=2))
    print("fine" if outcome.fine else f"NOT fine: {'; '.join(outcome.problems)}")
    return 0 if outcome.fine else 1


if __name__ == "__main__":
    sys.exit(main())
