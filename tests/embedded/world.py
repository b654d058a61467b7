"""A private runtime directory, other processes that join in it, and sight of all processes that belong to it."""

from __future__ import annotations

import ast
import contextlib
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pytest

import tenure.embedded

if TYPE_CHECKING:
    from collections.abc import Callable

    from tenure.embedded import Membership, Status

PROC = Path("/proc")
HAS_PROC = (PROC / "self/stat").exists()
needs_proc = pytest.mark.skipif(not HAS_PROC, reason="looks at /proc, which this system does not have")

_WORKER = """
import os, signal, sys
control, report = int(sys.argv[1]), int(sys.argv[2])
exec(sys.argv[3])
from functools import partial
from tenure import embedded
# Patient, for the machine may be slow.
join, status, stop = (partial(call, 30) for call in (embedded.join, embedded.status, embedded.stop))
with os.fdopen(control) as requests:
    for request in requests:
        try:
            answer = eval(request)
        except Exception as error:
            answer = f"{type(error).__name__}: {error}"
        os.write(report, (repr(answer) + chr(10)).encode())
"""


def join(timeout: float = 30.0) -> Membership:
    """Join in this process, with more patience than a program has by default: the machine may be slow."""
    return tenure.embedded.join(timeout)


def status() -> Status:
    """Look from this process, with the same patience."""
    return tenure.embedded.status(30.0)


def wait_until(condition: Callable[[], object], why: str, timeout: float = 30.0) -> None:
    """Poll until `condition` is true; fail the test with `why` once `timeout` seconds have passed."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() >= deadline:
            pytest.fail(f"after {timeout:g} s still not so: {why}")
        time.sleep(0.005)


@dataclass(frozen=True)
class Process:
    """One live process, zombies not counted."""

    pid: int
    parent: int
    arguments: str


def processes() -> list[Process]:
    """All live processes of this machine that we may see."""
    if HAS_PROC:
        return [found for entry in PROC.iterdir() if entry.name.isdigit() and (found := _from_proc(entry))]
    listing = subprocess.run(
        ["ps", "-axo", "pid=,ppid=,stat=,args="], stdout=subprocess.PIPE, text=True, check=True, timeout=30
    )
    fields = [line.split(maxsplit=3) for line in listing.stdout.splitlines()]
    return [Process(int(f[0]), int(f[1]), f[3]) for f in fields if len(f) == 4 and not f[2].startswith("Z")]


def _from_proc(entry: Path) -> Process | None:
    try:
        state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
        arguments = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:  # it ended while we looked
        return None
    return None if state in "ZX" else Process(int(entry.name), int(parent), arguments)


def alive(pid: int) -> bool:
    """Whether `pid` runs; a zombie does not."""
    if HAS_PROC:
        return _from_proc(PROC / str(pid)) is not None
    return any(process.pid == pid for process in processes())


class Member:
    """Another process, which evaluates expressions that a test sends to it."""

    def __init__(self, prelude: str, runtime: Path) -> None:
        control, self._requests = os.pipe()
        answers, report = os.pipe()
        source = Path(tenure.embedded.__file__).parents[2]
        self.process = subprocess.Popen(
            [sys.executable, "-c", _WORKER, str(control), str(report), prelude],
            pass_fds=(control, report),
            env={**os.environ, "PYTHONPATH": str(source), "XDG_RUNTIME_DIR": str(runtime)},
            start_new_session=True,
        )
        os.close(control)
        os.close(report)
        self._answers = os.fdopen(answers)

    def send(self, expression: str) -> None:
        """Have the process evaluate `expression`; `answer` gets the result."""
        os.write(self._requests, expression.encode() + b"\n")

    def answer(self) -> object:
        """The next result; the process's end shows as an error here."""
        line = self._answers.readline()
        assert line, "the process ended instead of answering"
        return ast.literal_eval(line)

    def ask(self, expression: str) -> object:
        """The value of `expression` in the other process; an exception comes back as its text."""
        self.send(expression)
        return self.answer()

    def join(self) -> int:
        """Join there; the server's pid."""
        pid = self.ask("(membership := join()).server_pid")
        assert isinstance(pid, int), pid
        return pid

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send a signal and wait for the end."""
        self.process.send_signal(number)
        self.process.wait(30)

    def close(self) -> None:
        """End the process, if it still runs, and forget it."""
        self.process.kill()
        self.process.wait(30)
        os.close(self._requests)
        self._answers.close()


class World:
    """Everything that one test starts."""

    def __init__(self, runtime: Path) -> None:
        self.runtime = runtime
        self.directory = runtime / "tenure" / "v1"
        self.socket = self.directory / "server.sock"
        self._members: list[Member] = []
        self._strays: list[int] = []

    def member(self, prelude: str = "") -> Member:
        """Start another process; `prelude` is executed in it before it imports tenure."""
        member = Member(prelude, self.runtime)
        self._members.append(member)
        return member

    def end_later(self, pid: int) -> None:
        """Have a process, started by a member, ended with the test."""
        self._strays.append(pid)

    def own(self) -> list[Process]:
        """The reapers and servers of this world."""
        mine = [process for process in processes() if str(self.directory) in process.arguments]
        return [process for process in mine if process.pid != os.getpid()]

    def reaper_of(self, server: int) -> int:
        """The parent of the server with the pid `server`."""
        return next(process.parent for process in self.own() if process.pid == server)

    def wait_empty(self, timeout: float = 30.0) -> None:
        """Wait until no reaper and no server is left."""
        wait_until(lambda: not self.own(), "no reaper and no server left", timeout)

    def fake_server(self, script: str) -> Path:
        """An executable shell script that stands in for the server binary."""
        path = self.runtime / "fake-server"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return path

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for member in self._members:
            member.close()
        for pid in self._strays:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            self.wait_empty()
        finally:
            for process in self.own():
                os.kill(process.pid, signal.SIGKILL)
