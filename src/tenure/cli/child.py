"""A command in a process group of its own, looked after for as long as what it depends on is held."""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from . import launcher
from .signals import FORWARDED
from .terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .signals import Signals

_LAUNCHER = os.path.abspath(launcher.__file__)  # noqa: PTH100 - resolve() would follow links out of the environment
_KILL_AGAIN = 1.0


class CannotRun(Exception):
    """There is no such program, or it cannot be executed; `exit_code` is what a shell would return."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class Hold(Protocol):
    """What the command depends on: a lease, in practice."""

    @property
    def lost(self) -> object:
        """Something true once it is lost."""
        ...

    def remaining(self) -> float:
        """Seconds until it is lost unless somebody renews it."""
        ...


class Outcome(NamedTuple):
    """How a command ended."""

    exit_code: int
    """Its own, or 128 plus the number of the signal that killed it."""
    stopped: bool
    """Whether it was told to stop because its hold was lost or about to be, or had lasted long enough."""


def find_program(name: str) -> str:
    """Return the path of the program that `name` stands for; raises `CannotRun`."""
    if path := shutil.which(name):
        return path
    if shutil.which(name, mode=os.F_OK) or (os.sep in name and Path(name).exists()):
        raise CannotRun(f"{name}: not executable", launcher.NOT_EXECUTABLE)
    raise CannotRun(f"{name}: command not found", launcher.NOT_FOUND)


class Limits(NamedTuple):
    """When a command is told to stop, and when it is killed; seconds."""

    notice: float
    """From SIGTERM to SIGKILL when its hold is about to end."""
    margin: float
    """From SIGKILL to the end of its hold, for a scheduler that is late."""
    sudden: float
    """From SIGTERM to SIGKILL when its hold is lost before its end, and not beyond that end."""
    overtime: float
    """So long after the end of its hold nobody else has one."""
    most: float | None = None
    """Until SIGTERM in any case."""


def supervise(
    command: Sequence[str], environment: Mapping[str, str], signals: Signals, hold: Hold | None, limits: Limits
) -> Outcome:
    """Run `command` until it ends; forward signals to it, and stop it when `hold` is lost.

    It gets SIGTERM and then SIGKILL as `limits` say; without a hold it may go on for ever. If this process is killed
    the kernel kills the command too, though not what the command has started (Linux only). As process 1 of a container
    it also reaps what others have left behind. Blocks until the command has ended.

    Args:
        command: the program's path or name, and its arguments.
        environment: all of the command's environment.
        signals: armed already; on the main thread.
        hold: what the command depends on.
        limits: how much time it has.

    Raises:
        CannotRun: nothing was started.
    """
    path = find_program(command[0])
    # Ctrl-Z must not stop us alone: nobody would renew what a command that runs on depends on.
    signals.catch(signal.SIGTSTP)
    with contextlib.closing(Terminal()) as terminal, contextlib.closing(_Group(path, command, environment)) as group:
        if os.isatty(0):
            terminal.give(group.id)
        term = _Term(group, hold, limits)
        while True:
            for number in signals.take():
                group.send(number)
            exit_code = group.poll()
            if exit_code is not None:
                if term.over:
                    group.send(signal.SIGKILL)  # what the command has left behind
                return Outcome(exit_code, term.over)
            due = term.enforce()
            if group.stopped_by is not None and not term.over:
                _share_stop(group, terminal)
                if not term.near:
                    group.send(signal.SIGCONT)
                continue
            signals.wait(due)


class _Term:
    """How long the command may go on."""

    def __init__(self, group: _Group, hold: Hold | None, limits: Limits) -> None:
        self.over = False
        self._group = group
        self._hold = hold
        self._limits = limits
        now = time.monotonic()
        self._stop_at = math.inf if limits.most is None else now + limits.most
        self._kill_at = now
        # What it would have been, should it be lost before the first look.
        self._end = now if hold is None else now + hold.remaining()
        self._lost_at: float | None = None

    @property
    def near(self) -> bool:
        """Whether the command has to stop now, so that it has ended before somebody else can hold."""
        return self._left() <= 0

    def _left(self) -> float:
        """Seconds until the command has to stop."""
        hold = self._hold
        if hold is None:
            return math.inf
        now = time.monotonic()
        # The time first: were it lost in between, the command would get none of what it has for a sudden loss.
        left = hold.remaining()
        lost = hold.lost
        if left > 0 or not lost:
            self._end = now + left
        if lost:
            self._lost_at = self._lost_at or now
            return 0.0
        return min(left - self._limits.notice - self._limits.margin, self._stop_at - now)

    def enforce(self) -> float | None:
        """Send the signals that are due; return the seconds until there is something to do again, None for never."""
        left = self._left()
        now = time.monotonic()
        if not self.over:
            if left > 0:
                return None if left == math.inf else left
            self.over = True
            self._kill_at = now + self._limits.notice if self._lost_at is None else math.inf
            self._group.send(signal.SIGTERM)
            self._group.send(signal.SIGCONT)  # a stopped process would not get it
        limits = self._limits
        last = self._end - limits.margin
        if self._lost_at is not None:
            last = max(self._lost_at + limits.overtime, min(self._lost_at + limits.sudden, last))
        self._kill_at = min(self._kill_at, last)
        if now < self._kill_at:
            return self._kill_at - now
        self._group.send(signal.SIGKILL)
        return _KILL_AGAIN


def _share_stop(group: _Group, terminal: Terminal) -> None:
    """Follow the command into a stop, so that both are one job of the shell; returns when it may go on."""
    stopped_by, group.stopped_by = group.stopped_by, None
    if stopped_by != signal.SIGTSTP and terminal.give(group.id):
        return  # it only wanted the terminal, which we had until now
    terminal.take_back()
    handler = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
    os.killpg(0, signal.SIGTSTP)  # here we are stopped, until somebody continues us
    signal.signal(signal.SIGTSTP, handler)
    terminal.give(group.id)


class _Group:
    """The command's process group, which exists as long as the command has not been reaped."""

    def __init__(self, path: str, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self.stopped_by: int | None = None
        self._reaped = False
        self._complained = False
        blocked = ",".join(str(int(number)) for number in FORWARDED)
        self.id = os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", "-S", _LAUNCHER, str(os.getpid()), blocked, path, *command],
            environment,
            setpgroup=0,
            # What comes before the launcher is ready must meet no Python handler there but the fate of the command.
            setsigmask={*FORWARDED, *signal.pthread_sigmask(signal.SIG_BLOCK, ())},
        )

    def send(self, number: int) -> None:
        """Send a signal to the whole group."""
        try:
            os.killpg(self.id, number)
        except ProcessLookupError:
            return  # all of it has ended
        except PermissionError as error:
            if not self._complained:
                self._complained = True
                sys.stderr.write(f"tenure: the command cannot be sent signals: {error.strerror}\n")

    def poll(self) -> int | None:
        """Return the exit code if the command has ended; note in `stopped_by` if it was stopped for job control."""
        status = self._wait()
        if status is None:
            return None
        if os.WIFSTOPPED(status):
            # By SIGSTOP somebody has frozen it on purpose: we go on holding what it needs.
            self.stopped_by = None if os.WSTOPSIG(status) == signal.SIGSTOP else os.WSTOPSIG(status)
            return None
        self._reaped = True
        code = os.waitstatus_to_exitcode(status)
        return 128 - code if code < 0 else code

    def _wait(self) -> int | None:
        """Return what has become of the command, None if that is no news."""
        # Process 1 inherits the orphans of its container, and nobody else reaps them.
        whom = -1 if os.getpid() == 1 else self.id
        while True:
            pid, status = os.waitpid(whom, os.WNOHANG | os.WUNTRACED)
            if pid == 0:
                return None
            if pid == self.id:
                return status

    def close(self) -> None:
        """Kill what has not ended; only after an error of our own."""
        if not self._reaped:
            self.send(signal.SIGKILL)
            os.waitpid(self.id, 0)
