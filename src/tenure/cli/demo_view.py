"""How the demo looks: a table that is redrawn at a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Self

from rich.console import Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from rich.console import Console

    from .demo_board import Board, Row

_REDRAW = 0.08
_LINE = 1.0
_BARS = "▁▂▃▄▅▆▇█"


def milliseconds(seconds: float) -> str:
    """Write a short time."""
    return f"{seconds * 1000:.2f} ms"


class View:
    """Shows a board as it changes; a context manager."""

    def __init__(self, console: Console, board: Board) -> None:
        self._board = board
        self._console = console
        drawable = console.is_terminal and not console.is_dumb_terminal and not console.options.ascii_only
        self._live = Live(console=console, auto_refresh=False) if drawable else None
        self._started = time.monotonic()
        self._drawn = self._started

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, *, now: bool = False) -> None:
        """Draw the board, unless that was done a moment ago; `now` draws it in any case."""
        at = time.monotonic()
        if not now and at - self._drawn < (_LINE if self._live is None else _REDRAW):
            return
        self._drawn = at
        if self._live is None:
            self._console.print(f"{at - self._started:5.1f} s  {_line(self._board)}", soft_wrap=True)
        else:
            self._live.update(Group(_table(self._board), Text(), _hand_overs(self._board)), refresh=True)


def _line(board: Board) -> str:
    names = [f"worker {index + 1} holds (fence {board.rows[index].fence})" for index in board.holders]
    queue = ", ".join(str(index + 1) for index in board.queue)
    median = board.median_hand_over()
    parts = [
        f"{len(board.turns):3d} of {board.total} turns",
        " and ".join(names) or "nobody holds",
        f"waiting in order: {queue}" if queue else "nobody waits",
        f"median hand-over {milliseconds(median)}" if median is not None else "",
    ]
    return "; ".join(part for part in parts if part)


def _table(board: Board) -> Table:
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="dim")
    table.add_column("worker")
    table.add_column("process", justify="right")
    table.add_column("now", min_width=12)
    table.add_column("turns")
    table.add_column("", justify="right")
    table.add_column("fence of its latest turn", justify="right")
    queue = board.queue
    for index, row in enumerate(board.rows):
        table.add_row(
            f"{index + 1}",
            f"{row.pid}",
            _state(row, queue.index(index) if index in queue else 0),
            ProgressBar(total=board.turns_each, completed=row.turns, width=20),
            f"{row.turns} of {board.turns_each}",
            Text(f"{row.fence or ''}", style="green" if row.phase == "holds" else "dim"),
        )
    return table


def _state(row: Row, position: int) -> Text:
    match row.phase:
        case "holds":
            return Text("● holds", style="bold green")
        case "waits":
            return Text("○ next" if position == 0 else f"○ {position} before it", style="yellow")
        case "done":
            return Text("done", style="dim")
        case _:
            return Text("…", style="dim")


def _hand_overs(board: Board) -> Text:
    times = board.hand_overs()
    if not times:
        return Text("hand-over: none yet", style="dim")
    latest = times[-40:]
    highest = max(latest)
    curve = "".join(_BARS[max(0, min(7, int(seconds / highest * 7.99)))] for seconds in latest)
    median = board.median_hand_over() or 0.0
    text = Text("hand-over from release to next grant: ")
    text.append(f"latest {milliseconds(times[-1])}, median {milliseconds(median)}  ")
    text.append(curve, style="cyan")
    return text
