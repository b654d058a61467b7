"""`tenure run` as process 1 of a container: of a process-id namespace, in these tests."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cli.commands import DEFAULT_SIGNALS, STUBBORN, WAITS, python
from tests.harness.processes import Worker
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from tests.cli.commands import World

_UNSHARE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")


def _why_not() -> str | None:
    if shutil.which("unshare") is None:
        return "no `unshare` on this machine, which makes the namespace"
    tried = subprocess.run([*_UNSHARE, "true"], capture_output=True, text=True, check=False, timeout=60)
    return None if tried.returncode == 0 else f"no process-id namespace for us: {tried.stderr.strip()}"


@pytest.fixture(autouse=True)
def needs_a_namespace() -> None:
    reason = _why_not()
    if reason is not None:
        pytest.skip(reason)


def process_1(world: World, *arguments: str) -> Worker:
    """Start `tenure run ARGUMENTS…` as process 1; the worker itself is `unshare`, which ends with its exit code."""
    clean = (sys.executable, "-c", DEFAULT_SIGNALS + "import os, sys; os.execv(sys.argv[1], sys.argv[1:])")
    command = (sys.executable, "-m", "tenure", "run", *arguments)
    return Worker([shutil.which("unshare") or "", *_UNSHARE[1:], *clean, *command], world.env)


def inside(worker: Worker) -> int:
    """The process id, as we see it, of process 1."""
    children = Path(f"/proc/{worker.pid}/task/{worker.pid}/children")
    return int(wait_until(lambda: children.read_text().split(), why="unshare to fork")[0])


@pytest.mark.parametrize("name", ["TERM", "INT", "HUP"])
def test_a_signal_reaches_the_command_although_process_1_ignores_defaults(world: World, name: str) -> None:
    number = signal.Signals[f"SIG{name}"]
    with process_1(world, "job", "--", *python(WAITS)) as worker:
        worker.wait_for("up")
        os.kill(inside(worker), number)
        assert worker.wait() == 40 + number
        assert worker.lines[-1] == number.name
        assert not world.held("job")


def test_a_signal_ends_the_wait(world: World, held: Worker) -> None:
    with process_1(world, "job", "--", "echo", "never") as worker:
        wait_until(lambda: world.waiting("job") == 1, why="the command to wait")
        os.kill(inside(worker), signal.SIGTERM)
        assert worker.wait() == 128 + signal.SIGTERM
    assert world.waiting("job") == 0
    held.write_line()
    assert held.wait() == 0


# A child of the command starts another one and ends, so that its own is an orphan; when that ends, too, only process 1
# can reap it.
_ORPHANS = """
import os, pathlib, subprocess, sys, time
lives = "import time; time.sleep(0.5)"
starts = f"import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', {lives!r}]).pid)"
orphans = [int(subprocess.check_output([sys.executable, "-c", starts])) for _ in range(3)]
until = time.monotonic() + 30
def left():
    return [pid for pid in orphans if pathlib.Path(f"/proc/{pid}").exists()]
def parent(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
    except OSError:  # it has ended
        return "1"
print("parents", {parent(pid) for pid in orphans} <= {"1"}, flush=True)
while left() and time.monotonic() < until:
    time.sleep(0.01)
print("left", left(), flush=True)
sys.exit(9)
"""


def test_orphans_are_reaped_and_do_not_end_the_command(world: World) -> None:
    with process_1(world, "job", "--", *python(_ORPHANS)) as worker:
        assert worker.wait() == 9
        assert worker.lines == ["parents True", "left []"]


def test_a_loss_stops_the_command(world: World) -> None:
    with process_1(world, "job", "--ttl", "12", "--grace", "4", "--", *python(STUBBORN)) as worker:
        worker.wait_for("up")
        world.server.command("DEL", f"{world.namespace}:job")
        assert worker.wait() == 76
        assert worker.lines[-1] == "SIGTERM"
