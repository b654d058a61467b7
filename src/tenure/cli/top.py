"""`tenure top`: the locks that are held, drawn again and again."""

from __future__ import annotations

import contextlib
import math
import os
import select
import sys
import termios
import time
import tty
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import click
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from tenure.core.waits_for import described
from tenure.errors import ConfigError, NameConflict

from .report import as_dict, as_dicts, deadlocks_of, local, lock_name, print_json, printable, stamp, where
from .tables import holders_table, plain

if TYPE_CHECKING:
    from collections.abc import Generator

    from tenure import Holder, Locks, Waiter

_HEAD_LINES = 4
_PLAIN_ROWS = 20
_SHARE = 4
"""Looking takes at most every fifth moment of a server that is slow to tell, or has many locks."""


class Wish(NamedTuple):
    """What `tenure top` was asked for."""

    prefix: str
    interval: float
    sort: str
    limit: int | None
    once: bool
    as_json: bool


class Seen(NamedTuple):
    """What a look has found."""

    at: datetime
    where: str
    total: int
    holders: list[Holder]
    """Those that are shown, in order."""
    waiting: dict[str, int]
    circles: list[tuple[Waiter, ...]] | None
    """Deadlocks; None if we may not look for them."""


def top(locks: Locks, wish: Wish) -> None:
    """Show the locks until the user has seen enough; returns then, or after one look if that is all that was wished."""
    console = Console(highlight=False)
    live = console.is_terminal and not console.is_dumb_terminal and not wish.as_json and not wish.once
    with _drawing(console) if live else contextlib.nullcontext() as drawing, _Keys(live=live) as keys:
        while True:
            began = time.monotonic()
            rows = wish.limit or (max(1, console.size.height - _HEAD_LINES) if live else _PLAIN_ROWS)
            seen = _look(locks, wish, rows)
            if drawing is not None:
                drawing.update(Group(_head(seen), Text(), _body(seen)), refresh=True)
            elif wish.as_json:
                print_json(_as_json(seen))
            else:
                click.echo(f"{_head(seen)}\n\n{plain(holders_table(seen.holders, seen.waiting))}\n")
            took = time.monotonic() - began
            if wish.once or keys.pressed_q(max(wish.interval, _SHARE * took)):
                return


def _look(locks: Locks, wish: Wish, rows: int) -> Seen:
    holders = locks.list(wish.prefix)
    seen_at, total = datetime.now(UTC), len(holders)
    if wish.sort == "held":
        # A client of another library does not tell since when: last.
        holders.sort(key=lambda holder: (holder.since or seen_at, holder.fence or 0))
    elif wish.sort == "ends":
        holders.sort(key=lambda holder: math.inf if holder.expires_in is None else holder.expires_in)
    del holders[rows:]
    waiting = {name: _waiting(locks, name) for name in dict.fromkeys(holder.name for holder in holders)}
    circles = deadlocks_of(locks, lambda name: name.startswith(wish.prefix))
    return Seen(seen_at, where(locks), total, holders, waiting, circles)


def _waiting(locks: Locks, name: str) -> int:
    try:
        return len(locks.waiters(lock_name(name)))
    except (ConfigError, NameConflict):
        return 0  # a key of somebody else's, whose name no lock can have, or which is no lock any more


def _head(seen: Seen) -> Text:
    shown = f", {len(seen.holders)} shown" if len(seen.holders) < seen.total else ""
    lines = [f"{local(seen.at)}  {seen.total} held{shown}  {seen.where}", *map(described, seen.circles or ())]
    return Text("\n".join(map(printable, lines)))


def _body(seen: Seen) -> Group:
    return Group(holders_table(seen.holders, seen.waiting), Text("q ends", style="dim"))


def _as_json(seen: Seen) -> dict[str, object]:
    locks = [{**(as_dict(holder) or {}), "waiting": seen.waiting[holder.name]} for holder in seen.holders]
    circles = None if seen.circles is None else [as_dicts(circle) for circle in seen.circles]
    return {"at": stamp(seen.at), "total": seen.total, "locks": locks, "deadlocks": circles}


@contextlib.contextmanager
def _drawing(console: Console) -> Generator[Live]:
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        yield live


class _Keys:
    """Single keys from the terminal, as a context manager; without one just pauses."""

    def __init__(self, *, live: bool) -> None:
        self._live = live and sys.stdin.isatty()
        self._before: list[Any] | None = None

    def __enter__(self) -> Self:
        if self._live:
            self._before = termios.tcgetattr(0)
            tty.setcbreak(0)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            termios.tcsetattr(0, termios.TCSADRAIN, self._before)

    def pressed_q(self, within: float) -> bool:
        """Whether `q` is pressed within so many seconds, which it takes otherwise."""
        until = time.monotonic() + within
        while (left := until - time.monotonic()) > 0:
            if not self._live:
                time.sleep(left)
            elif select.select([0], [], [], left)[0]:
                keys = os.read(0, 64)
                if not keys or b"q" in keys.lower():
                    return True
        return False
