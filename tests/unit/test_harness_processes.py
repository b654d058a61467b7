"""Worker processes of tests."""

from __future__ import annotations

import os
import signal
import sys
import time

import pytest

from tests.harness.processes import Worker, is_running, say
from tests.harness.waiting import wait_until


def greet(name: str, times: int) -> None:
    for _ in range(times):
        say(f"hello {name}")
    say("asked:", sys.stdin.readline().strip())


def hang() -> None:
    say("up")
    time.sleep(60)


def fail() -> None:
    raise ValueError("told on stderr")


def write_much() -> None:
    sys.stderr.write("e" * 200_000)
    say("o" * 200_000)


def test_a_function_runs_in_a_process_and_talks_by_lines() -> None:
    with Worker.start(greet, "you", 2) as worker:
        assert worker.pid != os.getpid()
        assert [worker.read_line(), worker.read_line()] == ["hello you"] * 2
        worker.write_line("how are you")
        assert worker.wait_for("asked") == "asked: how are you"
        assert worker.wait() == 0
        assert worker.lines[-1] == "asked: how are you"


def test_a_source_text_runs_with_its_arguments_and_environment() -> None:
    source = "import os, sys\nprint(sys.argv[1:], os.environ['COLOUR'])"
    with Worker.start(source, "a", 1, env={"COLOUR": "red"}) as worker:
        assert worker.wait() == 0
        assert worker.lines == ["['a', '1'] red"]


def test_a_worker_that_says_nothing_or_fails_is_told_about() -> None:
    with Worker.start(hang) as worker:
        assert worker.read_line() == "up"
        with pytest.raises(AssertionError, match="still runs"):
            worker.read_line(timeout=0.05)
        with pytest.raises(AssertionError, match="still runs"):
            worker.wait(timeout=0.05)
    assert not worker.running
    with Worker.start(fail) as worker:
        with pytest.raises(AssertionError, match="told on stderr"):
            worker.read_line()
        assert worker.wait() == 1


def test_much_output_does_not_block() -> None:
    with Worker.start(write_much) as worker:
        assert worker.wait() == 0
        assert len(worker.lines[0]) == len(worker.errors()) == 200_000


def test_signals_reach_the_worker_and_it_is_always_reaped() -> None:
    with Worker.start(hang) as worker:
        assert worker.read_line() == "up"
        worker.pause()
        assert is_running(worker.pid)
        worker.resume()
        worker.signal(signal.SIGINT)
        assert worker.wait() == -signal.SIGINT
        assert "KeyboardInterrupt" in worker.errors()
    with Worker.start(hang) as killed:
        killed.kill9()
        assert killed.wait() == -signal.SIGKILL
    assert not is_running(killed.pid)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the kernel's parent-death signal is Linux only")
def test_a_worker_dies_with_its_parent() -> None:
    source = (
        "from tests.harness.processes import Worker; import sys\n"
        "w = Worker.start('print(1, flush=True); import time; time.sleep(60)')\n"
        "w.read_line(); print(w.pid, flush=True); sys.stdin.readline()"
    )
    with Worker.start(source) as parent:
        grandchild = int(parent.read_line())
        assert is_running(grandchild)
        parent.kill9()
        wait_until(lambda: not is_running(grandchild), 30, "the grandchild to die")


def test_only_functions_that_a_file_holds_can_run() -> None:
    with pytest.raises(ValueError, match="no function at the top"):
        Worker.start(lambda: None)
