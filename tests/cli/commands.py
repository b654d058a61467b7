"""Starting the `tenure` command, and programs that stand in for parts of it."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

from tests.harness.processes import Worker

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.harness.servers import Server

# A test run in the background of a script, or under nohup, ignores signals whose effect is to be tested.
DEFAULT_SIGNALS = """
import signal
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
    signal.signal(number, signal.SIG_DFL)
"""

_TENURE = DEFAULT_SIGNALS + "import os, sys; os.execv(sys.executable, [sys.executable, '-m', 'tenure', *sys.argv[1:]])"


def tenure(*arguments: str, env: Mapping[str, str] | None = None) -> Worker:
    """Start `tenure ARGUMENTS…`."""
    return Worker.start(_TENURE, *arguments, env=env)


def python(source: str) -> tuple[str, str, str]:
    """A command that runs a source text."""
    return sys.executable, "-c", source


WAITS = """
import os, signal, sys, time
for name in ("HUP", "INT", "QUIT", "TERM", "USR1", "USR2"):
    def tell(number, frame):
        print(signal.Signals(number).name, flush=True)
        if number not in (signal.SIGUSR1, signal.SIGUSR2):
            sys.exit(40 + number)
    signal.signal(getattr(signal, "SIG" + name), tell)
print("up", os.getpid(), os.getpgrp(), os.environ.get("TENURE_FENCE"), flush=True)
time.sleep(60)
"""
"""Says that it is up, and which signal it got; those that usually end a program end it with 40 and their number."""

STUBBORN = WAITS.replace("if number not in", "if number in () and number not in")
"""The same, and only SIGKILL ends it."""


def group_is_gone(group: int) -> bool:
    """Whether no process of the group is left, zombies counted."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False


def kill_group(group: int) -> None:
    """End a group that a test's own child has made."""
    os.killpg(group, signal.SIGKILL)


class World:
    """A namespace of a server, and commands that run in it."""

    def __init__(self, server: Server, namespace: str) -> None:
        self.server = server
        self.namespace = namespace
        self.env = {"TENURE_URL": server.url, "TENURE_NAMESPACE": namespace}

    def run(self, *arguments: str) -> Worker:
        """Start `tenure run ARGUMENTS…`."""
        return tenure("run", *arguments, env=self.env)

    def held(self, name: str) -> bool:
        """Whether somebody holds the lock."""
        return self.server.command("EXISTS", f"{self.namespace}:{name}") == 1

    def left(self, name: str) -> float:
        """Seconds until the server would give the lock to somebody else."""
        return self.server.command("PTTL", f"{self.namespace}:{name}") / 1000

    def waiting(self, name: str) -> int:
        """How many wait for it."""
        return self.server.command("ZCARD", f"{{{self.namespace}:{name}}}:queue")
