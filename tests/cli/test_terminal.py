"""The supervisor of `tenure run` as a job of a shell at a terminal."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from tests.cli.commands import python
from tests.cli.terminals import Terminal

_SUPERVISOR = """
import os, sys, time
from tenure.cli.child import Limits, supervise
from tenure.cli.signals import Signals
class Hold:
    lost = None
    def remaining(self):
        return 20.0 if os.path.exists(sys.argv[1]) else 60.0
with Signals() as signals:
    outcome = supervise(sys.argv[2:], os.environ, signals, Hold(), Limits(15, 15, 0.3, 0.3))
print("supervisor: in front", os.tcgetpgrp(1) == os.getpgrp(), outcome.stopped, flush=True)
sys.exit(outcome.exit_code)
"""

_READS = """
import os
print("asks", flush=True)
with open("/dev/tty") as terminal:
    print("got", terminal.readline().strip(), flush=True)
    print("got", terminal.readline().strip(), flush=True)
"""


def supervised(command: tuple[str, ...], *, piped: bool = False, over: Path = Path("/nonexistent")) -> Terminal:
    """The supervisor on a terminal; its hold is about to end, too soon for the command, once there is that file."""
    return Terminal((sys.executable, "-c", _SUPERVISOR, str(over), *command), piped=piped)


def test_the_command_reads_the_terminal_and_gets_ctrl_c_and_then_it_is_ours_again() -> None:
    with supervised(python(_READS)) as terminal:
        terminal.wait_for("asks")
        terminal.type("hello\n")
        terminal.wait_for("got hello")
        terminal.type("\x03")
        terminal.wait_for("KeyboardInterrupt")
        terminal.wait_for("supervisor: in front True False")
        terminal.wait_for(f"shell: ended with {128 + signal.SIGINT}")


def test_a_command_in_a_pipe_still_gets_the_terminal_when_it_reads_from_it() -> None:
    with supervised(python(_READS), piped=True) as terminal:
        terminal.wait_for("asks")
        terminal.type("hello\n")
        terminal.wait_for("got hello")
        terminal.type("again\n")
        terminal.wait_for("got again")
        terminal.wait_for("shell: ended with 0")


def test_ctrl_z_stops_both_as_one_job_and_fg_continues_both() -> None:
    for piped in (False, True):
        with supervised(python(_READS), piped=piped) as terminal:
            terminal.wait_for("asks")
            terminal.type("one\n")
            terminal.wait_for("got one")
            terminal.type("\x1a")
            terminal.wait_for("shell: stopped")
            terminal.type("fg\n")
            terminal.type("two\n")
            terminal.wait_for("got two")
            terminal.wait_for("supervisor: in front True False")
            terminal.wait_for("shell: ended with 0")


def test_a_command_in_a_pipe_that_never_reads_the_terminal_is_stopped_with_us() -> None:
    waits = "import time; print('asks', flush=True); time.sleep(60)"
    with supervised(python(waits), piped=True) as terminal:
        terminal.wait_for("asks")
        terminal.type("\x1a")
        terminal.wait_for("shell: stopped")
        terminal.type("fg\n")
        terminal.wait_for("shell: continued")
        terminal.type("\x03")
        terminal.wait_for(f"shell: ended with {128 + signal.SIGINT}")


def test_after_a_stop_that_outlasted_the_hold_the_command_does_not_go_on(tmp_path: Path) -> None:
    over = tmp_path / "over"
    with supervised(python(_READS + "print('went on')"), over=over) as terminal:
        terminal.wait_for("asks")
        terminal.type("one\n")
        terminal.wait_for("got one")
        terminal.type("\x1a")
        terminal.wait_for("shell: stopped")
        over.touch()
        terminal.type("fg\n")
        terminal.wait_for("supervisor: in front True True")
        terminal.wait_for(f"shell: ended with {128 + signal.SIGTERM}")
