"""Holders as a table."""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .durations import format_duration
from .report import age, info_of, mode_of, printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tenure import Holder

_WIDE = 10_000


def holders_table(holders: Sequence[Holder], waiting: Mapping[str, int] | None = None) -> Table:
    """A row for each lease; with the number of waiters of each lock, if that is given by name."""
    modes = any(mode_of(holder) for holder in holders)
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("lock", no_wrap=True, style="bold")
    if modes:
        table.add_column("mode", no_wrap=True)
    table.add_column("holder", no_wrap=True)
    table.add_column("held for", no_wrap=True)
    table.add_column("ends in", no_wrap=True)
    if waiting is not None:
        table.add_column("waiting", no_wrap=True, justify="right")
    table.add_column("fence", no_wrap=True)
    table.add_column("for", no_wrap=True)
    for holder in holders:
        cells = [
            holder.name,
            *([mode_of(holder)] if modes else []),
            str(holder),
            format_duration(age(holder.since)) if holder.since is not None else "",
            (format_duration(holder.expires_in) if holder.expires_in is not None else "never")
            + (", broken" if holder.revoked else ""),
        ]
        if waiting is not None:
            cells.append(str(waiting[holder.name]))
        cells += ["" if holder.fence is None else str(holder.fence), info_of(holder)]
        # As Text, for a name may look like markup.
        table.add_row(*(Text(printable(cell)) for cell in cells))
    return table


def plain(table: Table) -> str:
    """The table for a file or a pipe: however wide it is, nothing is cut off."""
    text = io.StringIO()
    Console(file=text, width=_WIDE, no_color=True).print(table)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines())


def print_holders(holders: Sequence[Holder]) -> None:
    """Print a table of leases to standard output."""
    table = holders_table(holders)
    if sys.stdout.isatty():
        Console(highlight=False).print(table)
    else:
        click.echo(plain(table))
