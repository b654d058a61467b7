"""`tenure ls`, `show`, `watch` and `top`: who holds what, and who waits."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from tenure.core.waits_for import described

from .durations import format_duration
from .options import Duration, json_option, server_options
from .report import (
    age,
    as_dict,
    as_dicts,
    deadlocks_of,
    describe,
    ends_in,
    info_of,
    local,
    lock_name,
    mode_of,
    operating,
    print_json,
    printable,
    stamp,
    tell,
    where,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from tenure import Holder, Locks, Waiter

SHORTEST_PAUSE = 0.05


class Interval(Duration):
    """A length of time between two looks at a server, in seconds."""

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Parse what was typed; a server is not asked more often than is good for it."""
        seconds = super().convert(value, param, ctx)
        if seconds < SHORTEST_PAUSE:
            self.fail(f"{value!r} is too often: at least {format_duration(SHORTEST_PAUSE)}", param, ctx)
        return seconds


@click.command()
@click.argument("prefix", default="")
@json_option
@server_options
def ls(prefix: str, *, as_json: bool, url: str | None, namespace: str) -> None:
    """List the locks that are held, those whose names begin with PREFIX.

    They are found with SCAN, and each costs one more request.
    """
    from .tables import print_holders  # noqa: PLC0415 - rich takes a while to load

    with operating(url, namespace) as locks:
        holders = locks.list(prefix)
        if as_json:
            print_json(as_dicts(holders))
        elif holders:
            print_holders(holders)
        else:
            tell(f"nobody holds a lock{f' that begins with {prefix!r}' if prefix else ''} {where(locks)}")


@click.command()
@click.argument("name")
@json_option
@server_options
def show(name: str, *, as_json: bool, url: str | None, namespace: str) -> None:
    """Show who holds the lock NAME, since when, and who waits for it, in the order in which they are served.

    Deadlocks are named: processes that wait for each other in a circle, of which one waits for NAME.
    """
    with operating(url, namespace) as locks:
        holders, waiters = locks.holders(lock_name(name)), locks.waiters(lock_name(name))
        circles = deadlocks_of(locks, lambda wanted: wanted == name) if waiters else []
        if as_json:
            print_json(
                {
                    "name": name,
                    "holder": as_dict(holders[0] if holders else None),
                    "holders": as_dicts(holders),
                    "waiters": as_dicts(waiters),
                    "deadlocks": None if circles is None else [as_dicts(circle) for circle in circles],
                }
            )
            return
        for line in _about(name, holders, waiters, circles or []):
            click.echo(printable(line))
        if not holders:
            tell(f"looked {where(locks)}")


def _about(name: str, holders: list[Holder], waiters: list[Waiter], circles: Sequence[tuple[Waiter, ...]]) -> list[str]:
    facts = [("lock", name)]
    if len(holders) == 1:
        (holder,) = holders
        facts += [
            ("mode", mode_of(holder)),
            ("holder", str(holder)),
            ("for", info_of(holder)),
            ("since", f"{local(holder.since)} ({format_duration(age(holder.since))})" if holder.since else ""),
            ("ends in", ends_in(holder)),
            ("fence", str(holder.fence or "")),
            ("id", holder.id),
        ]
    elif holders:
        facts += [("mode", mode_of(holders[0])), ("holders", str(len(holders)))]
    else:
        facts.append(("holder", "nobody"))
    lines = [f"{title:9}{fact}" for title, fact in facts if fact]
    if len(holders) > 1:
        lines += [f"{'-':>7}  {_one_of(holder)}" for holder in holders]
    lines.append(f"{'waiting':9}{len(waiters) or 'nobody'}")
    lines += [f"{waiter.position + 1:6}.  {_waits(waiter)}" for waiter in waiters]
    return lines + [described(circle) for circle in circles]


def _one_of(holder: Holder) -> str:
    parts = [
        str(holder),
        f"for {info_of(holder)}" if holder.info else "",
        f"since {local(holder.since)} ({format_duration(age(holder.since))})" if holder.since else "",
        f"ends in {ends_in(holder)}" if holder.expires_in is not None else "",
        f"fence {holder.fence}",
        f"id {holder.id}",
    ]
    return ", ".join(part for part in parts if part)


def _waits(waiter: Waiter) -> str:
    parts = [
        str(waiter),
        mode_of(waiter),
        f"for {info_of(waiter)}" if waiter.info else "",
        f"waits since {local(waiter.since)} ({format_duration(age(waiter.since))})",
    ]
    return ", ".join(part for part in parts if part)


@click.command()
@click.argument("name")
@click.option(
    "--interval", type=Interval(), default="1", show_default=True, help="The longest pause between two looks."
)
@json_option
@server_options
def watch(name: str, *, interval: float, as_json: bool, url: str | None, namespace: str) -> None:
    """Print a line whenever the lock NAME changes hands, until Ctrl-C; the first one says who holds it now.

    Of a lock that several hold: whenever one of them comes or goes.

    Looks again after 50 ms, and less often while nothing changes: a holder that is quicker than that can be missed.
    """
    with operating(url, namespace, until_interrupted=True) as locks:
        for holders in _changes(locks, name, interval):
            now = datetime.now(UTC)
            if as_json:
                first = as_dict(holders[0] if holders else None)
                print_json({"at": stamp(now), "name": name, "holder": first, "holders": as_dicts(holders)})
            else:
                click.echo(f"{local(now)}  {printable(_state(holders))}")


def _state(holders: list[Holder]) -> str:
    each = [f"{describe(holder)}, fence {holder.fence}" for holder in holders]
    if len(each) > 1:
        return f"held by {len(each)}: {'; '.join(each)}"
    return f"held by {each[0]}" if each else "free"


def _changes(locks: Locks, name: str, longest: float) -> Generator[list[Holder]]:
    seen: object = None
    pause = SHORTEST_PAUSE
    while True:
        holders = locks.holders(lock_name(name))
        # Not who comes first: those who renew in turn would take turns there too.
        leases = {(holder.id, holder.fence) for holder in holders}
        if leases != seen:
            seen, pause = leases, SHORTEST_PAUSE
            yield holders
        time.sleep(pause)
        pause = min(pause * 1.5, longest)


@click.command()
@click.argument("prefix", default="")
@click.option("--interval", type=Interval(), default="2", show_default=True, help="The shortest pause between looks.")
@click.option(
    "--sort",
    type=click.Choice(["held", "ends", "name"]),
    default="held",
    show_default=True,
    help="First those held longest, or ending soonest, or by name.",
)
@click.option(
    "--limit",
    type=click.IntRange(1, 1000),
    help="How many locks to show [default: as many as fit on the screen, 20 without one].",
)
@click.option("--once", is_flag=True, help="Show the locks once.")
@json_option
@server_options
def top(  # noqa: PLR0913 - the options
    prefix: str,
    *,
    interval: float,
    sort: str,
    limit: int | None,
    once: bool,
    as_json: bool,
    url: str | None,
    namespace: str,
) -> None:
    """Show the locks that are held, those whose names begin with PREFIX, and how many wait for each, again and again.

    Deadlocks are named: processes that wait for each other in a circle.

    Ends on `q` or Ctrl-C. Without a terminal it prints one table after the other.
    """
    from .top import Wish  # noqa: PLC0415 - rich takes a while to load
    from .top import top as show_top  # noqa: PLC0415

    with operating(url, namespace, until_interrupted=True) as locks:
        show_top(locks, Wish(prefix, interval, sort, limit, once, as_json))
