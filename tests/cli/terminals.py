"""A pseudo-terminal with a shell on it."""

from __future__ import annotations

import codecs
import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from typing import TYPE_CHECKING, Self

from tests.cli.commands import DEFAULT_SIGNALS
from tests.harness.processes import ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping

# As much of a shell as job control needs: one job in the foreground of the controlling terminal; told when it stops,
# the shell takes the terminal back, waits for the word "fg" and continues the job.
_SHELL = (
    DEFAULT_SIGNALS
    + """
import fcntl, os, signal, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
piped, job = sys.argv[1] == "piped", sys.argv[2:]
ready, go = os.pipe()
pid = os.fork()
if pid == 0:
    os.setpgid(0, 0)
    os.read(ready, 1)
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    if piped:
        os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
    os.execv(job[0], job)
os.setpgid(pid, pid)
os.tcsetpgrp(1, pid)
os.write(go, b"x")
while True:
    _, status = os.waitpid(pid, os.WUNTRACED)
    os.tcsetpgrp(1, os.getpgrp())
    if not os.WIFSTOPPED(status):
        break
    print("shell: stopped", flush=True)
    assert sys.stdin.readline() == "fg\\n"
    os.tcsetpgrp(1, pid)
    os.killpg(pid, signal.SIGCONT)
    print("shell: continued", flush=True)
print("shell: ended with", os.waitstatus_to_exitcode(status), flush=True)
"""
)


def _environment() -> dict[str, str]:
    """Ours, without a size: programs would believe it rather than their terminal."""
    rest = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    return rest | {"PYTHONPATH": str(ROOT / "src"), "TERM": "xterm"}


class Terminal:
    """A pseudo-terminal with the shell above on it, whose one job is the command; its path is absolute."""

    def __init__(self, command: tuple[str, ...], *, piped: bool = False, env: Mapping[str, str] | None = None) -> None:
        self._master, slave = pty.openpty()
        self.seen = ""
        # A read may end in the middle of a character.
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-c", _SHELL, "piped" if piped else "direct"),
                *command,
            ],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=_environment() | dict(env or {}),
            start_new_session=True,
        )
        os.close(slave)

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self._master, keys.encode())

    def resize(self, lines: int, columns: int) -> None:
        """Change the size of the terminal, whose foreground job is told."""
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def wait_for(self, text: str, timeout: float = 30.0) -> None:
        """Wait until the terminal shows a text, after what was waited for before."""
        give_up = time.monotonic() + timeout
        while text not in self.seen:
            ready, _, _ = select.select([self._master], [], [], max(0.0, give_up - time.monotonic()))
            assert ready, f"no {text!r} on the terminal, which shows {self.seen!r}"
            self.seen += self._decoder.decode(os.read(self._master, 4096))
        self.seen = self.seen.partition(text)[2]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # Closing the terminal hangs up all that is on it.
        os.close(self._master)
        self.process.kill()
        self.process.wait(30)
