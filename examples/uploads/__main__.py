"""`python -m examples.uploads`: uploads with cuts, watched live; exit code 1 when a check fails."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import sys
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

import tenure

from .parts import ROOT, install_tus_js
from .world import World

if TYPE_CHECKING:
    from rich.console import RenderableType

    from .world import Result

REFRESH_SECONDS = 0.25
NEWS = 8


def progress(world: World, holders: dict[str, tenure.Holder]) -> RenderableType:
    """A bar for each upload, with where it is and who holds its lock."""
    table = Table(title="uploads", expand=True)
    for column in ("upload", "sent", "", "PATCHes", "server", "holds the lock"):
        table.add_column(column)
    names = {port: server.name for port, server in world.servers.items()}
    pids = {server.process.pid: server.name for server in world.servers.values()}
    for upload in world.proxy.uploads.values():
        holder = holders.get(f"upload:{upload.uid}")
        who = "" if holder is None else f"{pids.get(holder.pid or 0, 'a server that is gone')} {holder.info or ''}"
        bar = ProgressBar(total=upload.length or 1, completed=upload.sent, width=30)
        share = f"{upload.sent / (upload.length or 1):.0%}"
        table.add_row(upload.uid[:8], share, bar, str(len(upload.pieces)), names.get(upload.server, "gone"), who)
    return Group(table, *world.news[-NEWS:])


async def watch(world: World, locks: tenure.AsyncLocks, live: Live) -> None:
    """Keeps the display up to date."""
    while True:
        holders = {holder.name: holder for holder in await locks.list("upload:")}
        live.update(progress(world, holders), refresh=True)
        await asyncio.sleep(REFRESH_SECONDS)


async def run(*, without_lock: bool) -> Result:
    """One run, watched."""
    # Like the servers: $TENURE_URL, or else the embedded server, which says once that it is for this machine only.
    with tempfile.TemporaryDirectory(prefix="uploads-") as name, warnings.catch_warnings(action="ignore"):
        folder = Path(name)
        modules = await install_tus_js(ROOT / "build" / "examples" / "node")
        world = World(folder, modules, without_lock=without_lock)
        async with tenure.AsyncLocks() as locks:
            await locks.list()
            async with world.open():
                with Live(console=Console(stderr=True), auto_refresh=False) as live:
                    watching = asyncio.ensure_future(watch(world, locks, live))
                    try:
                        return await world.run()
                    finally:
                        watching.cancel()
                        await asyncio.gather(watching, return_exceptions=True)
                        live.update(progress(world, {}), refresh=True)


def main() -> int:
    """Runs it, prints the figures, and checks them."""
    parser = argparse.ArgumentParser(prog="python -m examples.uploads", description=__doc__)
    parser.add_argument("--without-lock", action="store_true", help="servers take no locks: see what happens")
    arguments = parser.parse_args()
    logging.getLogger("tenure").setLevel(logging.ERROR)
    result = asyncio.run(run(without_lock=arguments.without_lock))
    print(json.dumps(result.figures(), indent=2))
    cuts = result.cuts + result.half_open
    print(
        f"{result.identical} of {result.uploads} uploads are byte-identical after {cuts} cuts; clients saw",
        ", ".join(f"{status} {result.seen(status)} times" for status in (423, 409, 503)),
    )
    for problem in result.problems:
        print("PROBLEM:", problem)
    return 1 if result.problems else 0


if __name__ == "__main__":
    sys.exit(main())
