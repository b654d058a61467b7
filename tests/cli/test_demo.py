"""`tenure demo`, whose own check must be able to fail."""

from __future__ import annotations

import contextlib
import os
import pty
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cli.commands import tenure
from tests.harness.processes import ROOT
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.harness.servers import Server

needs_proc = pytest.mark.skipif(
    not Path("/proc/self").exists(), reason="looks at /proc, which this system does not have"
)

QUICK = ("--workers", "3", "--turns", "5", "--seconds", "1500ms")
LONG = ("--workers", "3", "--turns", "2", "--seconds", "18")
"""In each turn a worker works for three seconds: one that stands still for a moment still meets the others."""


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A runtime folder of this test's own, by which all processes of its demo can be told."""
    with tempfile.TemporaryDirectory(prefix="tn-demo-") as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        yield Path(folder)


def processes_of(runtime: Path) -> list[str]:
    """Everything that runs with that folder in its environment or its arguments: workers, reaper, server."""
    found: list[str] = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            environment, arguments = (entry / "environ").read_bytes(), (entry / "cmdline").read_bytes()
        except OSError:  # it has ended, or is somebody else's
            continue
        if str(runtime).encode() in environment + arguments:
            found.append(arguments.replace(b"\0", b" ").decode())
    return found


@needs_proc
def test_the_demo_checks_itself_says_so_and_leaves_nothing_twice_in_a_row(runtime: Path) -> None:
    texts: list[str] = []
    for _ in range(2):
        with tenure("demo", *QUICK) as worker:
            assert worker.wait(60) == 0, worker.errors()
            text = "\n".join(worker.lines)
            assert worker.lines[0].startswith("3 processes take turns under the lock 'demo-")
            assert text.count("  ok    ") == 3
            assert "the counter says 15 after 15 turns" in text
            texts.append(text)
            assert "README" in worker.lines[-1]
            assert "\x1b" not in text
            assert "Traceback" not in worker.errors()
    # A worker that comes late, when the others have had all of their turns, waits for nobody.
    assert any("Hand-over from release to next grant: median " in text for text in texts)
    wait_until(lambda: not processes_of(runtime), 30, "the embedded server to go away")


def test_at_a_terminal_the_demo_draws_who_holds_and_who_waits(runtime: Path) -> None:
    master, slave = pty.openpty()
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "TERM": "xterm", "PYTHONUTF8": "1", "COLUMNS": "110"}
    command = [sys.executable, "-m", "tenure", "demo", *QUICK[:-1], "6s"]
    with subprocess.Popen(command, env=environment, stdin=slave, stdout=slave, stderr=slave) as process:
        os.close(slave)
        seen = b""
        with contextlib.suppress(OSError):  # how a terminal tells that nobody has it open any more
            while chunk := os.read(master, 4096):
                seen += chunk
        os.close(master)
        assert process.wait(60) == 0
    text = seen.decode()
    assert "● holds" in text
    assert "○ next" in text
    assert "5 of 5" in text


def test_without_the_lock_the_check_fails(runtime: Path) -> None:
    with tenure("demo", *LONG, "--without-lock") as worker:
        assert worker.wait(60) == 1
        text = "\n".join(worker.lines)
        assert text.count("  FAIL  ") == 3
        assert "The check has failed." in text


def test_the_demo_runs_on_a_server_of_ones_own_and_leaves_only_keys_that_end(
    valkey_server: Server, namespace: str
) -> None:
    with tenure("demo", *QUICK, "--url", valkey_server.url, "--namespace", namespace) as worker:
        assert worker.wait(60) == 0, worker.errors()
        assert "the server that you have named" in worker.lines[0]
    assert valkey_server.command("KEYS", f"*{namespace}*")


@needs_proc
@pytest.mark.parametrize("name", ["INT", "TERM"])
def test_a_signal_in_the_middle_leaves_no_process(runtime: Path, name: str) -> None:
    number = signal.Signals[f"SIG{name}"]
    with tenure("demo", "--seconds", "30") as worker:
        wait_until(lambda: sum("demo_worker" in line for line in processes_of(runtime)) == 4, why="four workers")
        while "turns;" not in worker.read_line():
            pass
        worker.signal(number)
        assert worker.wait() == 128 + number
        assert "Traceback" not in worker.errors()
        assert not any("demo_worker" in line for line in processes_of(runtime))
    wait_until(lambda: not processes_of(runtime), 30, "the embedded server to go away")


@needs_proc
def test_a_killed_demo_leaves_no_process(runtime: Path) -> None:
    with tenure("demo", "--seconds", "5") as worker:
        while "turns;" not in worker.read_line():
            pass
        worker.kill9()
    wait_until(lambda: not processes_of(runtime), 30, "the workers and the embedded server to go away")


@needs_proc
def test_a_worker_that_dies_fails_the_demo(runtime: Path) -> None:
    with tenure("demo", "--seconds", "30") as worker:
        while "turns;" not in worker.read_line():
            pass
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and _is_worker(entry, worker.pid):
                os.kill(int(entry.name), signal.SIGKILL)
                break
        assert worker.wait() == 1
        assert "with exit code -9" in worker.errors()
    wait_until(lambda: not processes_of(runtime), 30, "the embedded server to go away")


def _is_worker(entry: Path, parent: int) -> bool:
    try:
        fields = (entry / "stat").read_text().rpartition(")")[2].split()
        return int(fields[1]) == parent and b"demo_worker" in (entry / "cmdline").read_bytes()
    except OSError:
        return False
