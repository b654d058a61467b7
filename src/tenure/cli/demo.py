"""`tenure demo`: several processes take turns under one lock, and the result is checked."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import secrets
import selectors
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rich.console import Console
from rich.text import Text

from tenure import Locks
from tenure.errors import TenureError

from .demo_board import Board, Row, WorkerFailed
from .demo_check import check
from .demo_view import View, milliseconds
from .demo_worker import PATIENCE
from .report import exit_code_of, tell
from .signals import Interrupted, Signals

if TYPE_CHECKING:
    from collections.abc import Generator

CHECK_FAILED = 1

_TICK = 0.05
_STALLED = 60.0
_END_SECONDS = 3.0
_REAPED_WITHIN = 30.0

_CODE = """\
    import tenure

    locks = tenure.Locks()                             # or tenure.Locks("redis://host:6379/0")
    with locks.lock("invoice:42", ttl=30) as lease:
        ...                                            # hand lease.fence to what you write to"""


class Plan(NamedTuple):
    """What the demo was asked for."""

    workers: int
    turns: int
    seconds: float
    """About how long all turns take together."""
    url: str | None
    namespace: str
    locked: bool

    @property
    def work(self) -> float:
        """Seconds of work in one turn."""
        return self.seconds / (self.workers * self.turns)


def show(plan: Plan) -> int:
    """Run the demo and return the exit code: 0 only if the check at its end found nothing wrong.

    Blocks; on the main thread only. No process is left, however it ends.
    """
    logging.getLogger("tenure").setLevel(logging.ERROR)  # that it is the embedded server is the first thing we say
    console = Console(highlight=False)
    try:
        with Signals() as signals, signals.ending_wait():
            return _show(plan, console)
    except Interrupted as interrupted:
        console.print("Interrupted; the workers have ended.")
        return interrupted.exit_code
    except WorkerFailed as error:
        tell(str(error))
        return CHECK_FAILED
    except TenureError as error:
        tell(str(error))
        return exit_code_of(error)


def _show(plan: Plan, console: Console) -> int:
    name = f"demo-{secrets.token_hex(3)}"
    _introduce(plan, name, console)
    with (
        contextlib.closing(Locks(plan.url, namespace=plan.namespace, server_timeout=_patience(plan))) as locks,
        tempfile.TemporaryDirectory(prefix="tenure-demo-") as folder,
    ):
        # Starts the embedded server, or meets what is wrong with another one, before there are any workers.
        locks.holder(name)
        counter = Path(folder, "counter")
        counter.write_text("0")
        board = Board(plan.turns)
        with _workers(plan, name, counter) as processes:
            board.rows = [Row(process.pid) for process in processes]
            with View(console, board) as view:
                _watch(board, processes, view, _STALLED + plan.work)
        return _conclude(board, int(counter.read_text() or 0), console)


def _named(plan: Plan) -> bool:
    return plan.url is not None or "TENURE_URL" in os.environ


def _patience(plan: Plan) -> float:
    """Seconds: somebody who has mistyped an address wants to know soon; our own server may start slowly."""
    return 5.0 if _named(plan) else PATIENCE


def _introduce(plan: Plan, name: str, console: Console) -> None:
    embedded = "the embedded server of this user on this machine"
    server = "the server that you have named" if _named(plan) else embedded
    lock = f"under the lock {name!r} on {server}" if plan.locked else "WITHOUT a lock"
    console.print(f"[bold]{plan.workers} processes take turns[/] {lock}.", soft_wrap=True)
    console.print(
        f"In each turn one reads a counter from a file, works for {plan.work * 1000:.3g} ms, and writes the counter "
        "back plus one.\nNothing else protects the file: were two at it at the same time, updates would be lost.\n",
        soft_wrap=True,
    )


@contextlib.contextmanager
def _workers(plan: Plan, name: str, counter: Path) -> Generator[list[subprocess.Popen[bytes]]]:
    """Start the workers; on leaving, however that comes about, none of them is left."""
    environment = os.environ | {"TENURE_NAMESPACE": plan.namespace}
    command = [sys.executable, "-m", "tenure.cli.demo_worker", name, str(plan.turns), str(plan.work), str(counter)]
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for _ in range(plan.workers):
            process = subprocess.Popen(
                [*command, "locked" if plan.locked else "free"],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                # Ctrl-C is for us alone, who then end the workers in order.
                start_new_session=True,
            )
            processes.append(process)
            _write(process, json.dumps(plan.url))  # an argument could be seen by everybody, the environment by some
        yield processes
    finally:
        _end(processes)


def _end(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.terminate()
    give_up = time.monotonic() + _END_SECONDS
    for process in processes:
        try:
            process.wait(max(0.0, give_up - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for stream in (process.stdin, process.stdout):
            with contextlib.suppress(BrokenPipeError):
                if stream is not None:
                    stream.close()


def _watch(board: Board, processes: list[subprocess.Popen[bytes]], view: View, patience: float) -> None:
    """Start the turns together and follow them to the end; raises `WorkerFailed`."""
    started = False
    buffers = [b""] * len(processes)
    # Counted, not read off a clock: while the whole machine stood still nothing could happen.
    idle = 0
    with selectors.DefaultSelector() as selector:
        for index, process in enumerate(processes):
            selector.register(_stdout(process), selectors.EVENT_READ, index)
        while selector.get_map():
            ready = selector.select(_TICK)
            idle = 0 if ready else idle + 1
            for key, _ in ready:
                index: int = key.data
                chunk = os.read(key.fd, 65536)
                if not chunk:
                    selector.unregister(key.fileobj)
                    _require_all_turns(board, index, processes[index])
                *lines, buffers[index] = (buffers[index] + chunk).split(b"\n")
                for line in lines:
                    board.apply(index, json.loads(line))
            if not started and all(row.phase == "ready" for row in board.rows):
                started = True
                for process in processes:
                    _write(process, "go")
            if idle * _TICK > patience:
                raise WorkerFailed(f"nothing has happened for {patience:.0f} seconds")
            view.show()
    view.show(now=True)


def _stdout(process: subprocess.Popen[bytes]) -> int:
    assert process.stdout is not None  # noqa: S101 - it was asked for
    return process.stdout.fileno()


def _write(process: subprocess.Popen[bytes], line: str) -> None:
    assert process.stdin is not None  # noqa: S101 - it was asked for
    with contextlib.suppress(BrokenPipeError):  # its output ends, too, and says why
        process.stdin.write(line.encode() + b"\n")
        process.stdin.flush()


def _require_all_turns(board: Board, index: int, process: subprocess.Popen[bytes]) -> None:
    row = board.rows[index]
    if row.turns != board.turns_each:
        code = process.wait(_REAPED_WITHIN)
        raise WorkerFailed(f"worker {index + 1} ended after {row.turns} turns, with exit code {code}")


def _conclude(board: Board, counter: int, console: Console) -> int:
    findings = check(board.turns, counter, board.total)
    console.print("\n[bold]Checked[/], from what the workers wrote down and the file says:")
    width = max(len(finding.what) for finding in findings)
    for finding in findings:
        mark = Text("  ok    ", style="bold green") if finding.good else Text("  FAIL  ", style="bold red")
        console.print(mark + Text(f"{finding.what:{width}}  {finding.detail}"), soft_wrap=True)
    times = board.hand_overs()
    if times:
        console.print(
            f"Hand-over from release to next grant: median {milliseconds(statistics.median(times))}, "
            f"slowest {milliseconds(max(times))}, of {len(times)} with somebody waiting.",
            soft_wrap=True,
        )
    if not all(finding.good for finding in findings):
        console.print("[bold red]The check has failed.[/]")
        return CHECK_FAILED
    console.print("\nThe same in your own program:\n")
    console.print(_CODE, soft_wrap=True, markup=False)
    console.print("\nFor any command: [bold]tenure run NAME -- COMMAND[/]. Read on in README.md.", soft_wrap=True)
    return 0
