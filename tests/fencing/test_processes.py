"""Real processes on one SQLite file: a holder that is frozen between its read and its write, and the next one."""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

import tenure
from tenure.fencing import FencedTable
from tests.fencing.databases import SHELF
from tests.harness.processes import Worker, say

if TYPE_CHECKING:
    from tests.fencing.databases import Database

ROW = {"id": 1}


def add_boxes(file: str, url: str, namespace: str, boxes: int, guarded: bool) -> None:
    """Read, wait for a line, then write what was read and `boxes` more; says what came of it."""
    table = FencedTable(sqlite3, "shelf")
    with (
        tenure.Locks(url, namespace=namespace) as locks,
        # No check() before the write: that is what the fence is for.
        locks.lock("shelf:1", ttl=1, on_exit_lost="note") as lease,
        closing(sqlite3.connect(file, timeout=30)) as database,
    ):
        with database:
            if guarded:
                row = table.read(database, lease, ROW)
                assert row is not None
                seen = row["boxes"]
            else:
                (seen,) = database.execute("SELECT boxes FROM shelf WHERE id = 1").fetchone()
        say("read", seen)
        sys.stdin.readline()
        try:
            with database:
                if guarded:
                    table.update(database, lease, ROW, {"boxes": seen + boxes})
                else:
                    database.execute("UPDATE shelf SET boxes = ? WHERE id = 1", (seen + boxes,))
        except tenure.StaleFence as error:
            say("stale", error.fence < error.seen)
        else:
            say("written")


@pytest.mark.parametrize("late", ["after the newer one's write", "after the newer one's read"])
@pytest.mark.parametrize("guarded", [False, True])
def test_a_frozen_holder_wakes_up(sqlite: Database, url: str, namespace: str, guarded: bool, late: str) -> None:
    sqlite.run(SHELF)
    sqlite.run("INSERT INTO shelf (id) VALUES (1)")
    file = str(sqlite.file)
    with Worker.start(add_boxes, file, url, namespace, 1, guarded) as older:
        assert older.read_line(30) == "read 0"
        older.pause()
        with Worker.start(add_boxes, file, url, namespace, 10, guarded) as newer:
            # It has waited for the end of the frozen one's lease.
            assert newer.read_line(30) == "read 0"
            if late == "after the newer one's write":
                newer.write_line()
                assert newer.read_line(30) == "written"
            older.resume()
            older.write_line()
            outcome = older.read_line(30)
            if late == "after the newer one's read":
                newer.write_line()
                assert newer.read_line(30) == "written"
            assert (older.wait(30), newer.wait(30)) == (0, 0)
    ((boxes,),) = sqlite.run("SELECT boxes FROM shelf")
    if guarded:
        assert outcome == "stale True"
        assert boxes == 10
    else:
        # Both were told that their boxes are on the shelf, where there should be eleven.
        assert outcome == "written"
        assert boxes == (1 if late == "after the newer one's write" else 10)
