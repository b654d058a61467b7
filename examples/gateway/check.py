"""What the journals and the database tell at the end, and what must not be there."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from .records import Records
    from .storm import Storm


@dataclass(frozen=True)
class Outcome:
    """The figures of a run, and what is wrong with them."""

    figures: dict[str, Any]
    problems: list[str]

    @property
    def fine(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems


@dataclass
class Owned:
    """A connection owned its device from here to there."""

    device: str
    sid: str
    server: str
    fence: int
    start: float
    end: float = math.inf
    why: str = ""
    lost: bool = False


def owned(folder: Path, killed: Mapping[str, float]) -> list[Owned]:
    """What the journals tell; a server that was killed owned nothing afterwards."""
    found: dict[str, Owned] = {}
    for path in sorted(folder.glob("journal-*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            entry = json.loads(line)
            if "from" in entry:
                made = Owned(entry["device"], entry["sid"], entry["server"], entry["fence"], entry["from"])
                made.end = killed.get(made.server, math.inf)
                found[made.sid] = made
            else:
                found[entry["sid"]].end = min(entry["to"], found[entry["sid"]].end)
                found[entry["sid"]].why, found[entry["sid"]].lost = entry["why"], entry["lost"]
    return list(found.values())


def two_owners(intervals: Iterable[Owned]) -> list[tuple[Owned, Owned]]:
    """Pairs of connections that owned a device at the same moment."""
    clashes: list[tuple[Owned, Owned]] = []
    last: dict[str, Owned] = {}
    for interval in sorted(intervals, key=lambda one: one.start):
        before = last.get(interval.device)
        if before is not None and interval.start < before.end:
            clashes.append((before, interval))
        if before is None or interval.end >= before.end:
            last[interval.device] = interval
    return clashes


def stale_offline_marks(history: Iterable[Mapping[str, Any]]) -> int:
    """How often a connection that was over marked the device offline which a newer one had."""
    count = 0
    current: dict[str, Mapping[str, Any]] = {}
    for entry in history:
        device = entry["device"]
        if entry["online"]:
            # Without the fence this may come late as well, and makes its connection no newer than it is.
            if device not in current or entry["fence"] >= current[device]["fence"]:
                current[device] = entry
        elif device in current:
            owner = current[device]
            older = entry["fence"] < owner["fence"] or (
                entry["fence"] == owner["fence"] and entry["sid"] != owner["sid"]
            )
            count += older
            if not older:
                del current[device]
    return count


def wrong_records(records: Records, where: Mapping[str, list[str]], silent: Iterable[str]) -> list[str]:
    """Devices of which the database does not tell where they are, or that they are gone."""
    rows = {row["id"]: row for row in records.rows("device")}
    wrong = [
        device
        for device, (server, sid) in where.items()
        if device not in rows
        or (rows[device]["online"], rows[device]["server"], rows[device]["sid"]) != (1, server, sid)
    ]
    return wrong + [device for device in silent if rows[device]["online"]]


def outcome(storm: Storm, records: Records, statuses: Mapping[str, Mapping[str, Any]], ran_for: float) -> Outcome:
    """All figures of a run, and the promises that were not kept."""
    plan = storm.plan
    intervals = owned(storm.folder, storm.killed)
    runs = storm.runs
    most_runs = int(ran_for / plan.job_every) + 1
    figures: dict[str, Any] = {
        "devices": plan.devices,
        "servers": plan.servers,
        "ttl": plan.ttl,
        "connections": len(intervals),
        "taken over": sum(interval.why == "asked" for interval in intervals),
        "closed after a loss": sum(interval.lost for interval in intervals),
        "open after a loss": sum(left == 0 for status in statuses.values() for left in status["connections"].values()),
        "longest connection in ttls": round(
            max((i.end - i.start for i in intervals if i.end < math.inf), default=0.0) / plan.ttl, 2
        ),
        "devices with two owners": len({clash[0].device for clash in two_owners(intervals)}),
        "stale offline marks": stale_offline_marks(records.rows("history")),
        "late writes refused": sum(status["refused"] for status in statuses.values()),
        "wrong records": len(storm.wrong_at_end),
        "commands in storms": storm.routed.sent,
        "commands in storms answered": storm.routed.answered,
        "commands routed wrong": storm.routed.wrong + storm.settled.wrong,
        "commands unanswered when settled": storm.settled.sent - storm.settled.answered,
        "commands forwarded": sum(status["forwarded"] for status in statuses.values()),
        "job runs": runs,
        "job runs at most": most_runs,
        "job skipped": sum(status["skipped"] for status in statuses.values()),
        "what a skip says": next((status["last_skip"] for status in statuses.values() if status["last_skip"]), ""),
        "silent devices freed": storm.freed,
        "seconds": storm.seconds,
    }
    nothing = (
        "devices with two owners", "open after a loss", "stale offline marks", "wrong records", "commands routed wrong",
        "commands unanswered when settled",
    )  # fmt: skip
    problems = [f"{name}: {figures[name]}" for name in nothing if figures[name]]
    if not 1 <= runs <= most_runs:
        problems.append(f"job runs: {runs}, at most {most_runs}")
    if storm.freed != len(storm.silent):
        problems.append(f"silent devices freed: {storm.freed} of {len(storm.silent)}")
    return Outcome(figures, problems)
