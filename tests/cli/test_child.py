"""The supervisor of `tenure run`, with a hold that is no lease."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.commands import DEFAULT_SIGNALS, STUBBORN, WAITS, group_is_gone, python
from tests.harness.processes import Worker, is_running
from tests.harness.waiting import wait_until

_SUPERVISOR = (
    DEFAULT_SIGNALS
    + """
import os, sys, time
from tenure.cli.child import CannotRun, Limits, supervise
from tenure.cli.signals import Signals

class Hold:
    def __init__(self):
        self.until = time.monotonic() + 90
    @property
    def lost(self):
        return os.path.exists("lost") and "deleted"
    def remaining(self):
        lost = self.lost  # first: once the file is gone the test goes on, perhaps with a loss
        if os.path.exists("until"):
            self.until = float(open("until").read())
            os.rename("until", "taken")
        return -1.0 if lost else self.until - time.monotonic()

notice, margin, sudden, folder, *command = sys.argv[1:]
os.chdir(folder)
with Signals() as signals:
    try:
        hold = Hold()
        limits = Limits(float(notice), float(margin), float(sudden), overtime=0.3)
        outcome = supervise(command, os.environ, signals, hold, limits)
    except CannotRun as error:
        print(error, flush=True)
        sys.exit(error.exit_code)
if outcome.stopped:
    print("stopped with", round(hold.until - time.monotonic(), 3), "left, exit code", outcome.exit_code, flush=True)
    sys.exit(76)
sys.exit(outcome.exit_code)
"""
)


def supervised(
    *command: str, notice: float = 1.0, margin: float = 1.0, sudden: float = 0.3, folder: Path | str = "."
) -> Worker:
    """Start the supervisor with limits in seconds; it looks into the folder for what becomes of its hold."""
    return Worker.start(_SUPERVISOR, notice, margin, sudden, str(folder), *command)


def end_hold(worker: Worker, folder: Path, seconds: float) -> None:
    """Have the supervisor know that its hold ends in so many seconds, counted from when the command is up."""
    draft, until = folder / "draft", folder / "until"
    draft.write_text(str(time.monotonic() + seconds))
    draft.rename(until)
    worker.signal(signal.SIGCHLD)
    # Two signals at once are one, and a hold that is lost by then tells nothing of its end any more.
    wait_until(lambda: not until.exists(), why="the supervisor to look")


def lose_hold(worker: Worker, folder: Path) -> None:
    """Tell the supervisor that its hold is lost."""
    (folder / "lost").touch()
    worker.signal(signal.SIGCHLD)


@pytest.mark.parametrize("code", [0, 1, 75, 255])
def test_the_exit_code_is_the_commands_own(code: int) -> None:
    with supervised(*python(f"raise SystemExit({code})")) as worker:
        assert worker.wait() == code


def test_a_command_killed_by_a_signal_ends_with_128_and_its_number() -> None:
    with supervised(*python("import os; os.kill(os.getpid(), 9)")) as worker:
        assert worker.wait() == 128 + signal.SIGKILL


@pytest.mark.parametrize("name", ["HUP", "INT", "QUIT", "TERM"])
def test_a_signal_reaches_the_command_which_may_end_as_it_likes(name: str) -> None:
    number = signal.Signals[f"SIG{name}"]
    with supervised(*python(WAITS)) as worker:
        worker.wait_for("up")
        worker.signal(number)
        assert worker.wait() == 40 + number
        assert worker.lines[-1] == number.name


def test_signals_that_end_nothing_are_forwarded_as_often_as_they_come() -> None:
    with supervised(*python(WAITS)) as worker:
        worker.wait_for("up")
        for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGUSR1):
            worker.signal(number)
            assert worker.read_line() == number.name
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 40 + signal.SIGTERM


@pytest.mark.parametrize("delay", [0.0, 0.01, 0.02, 0.03, 0.05, 0.1])
def test_a_signal_while_the_command_starts_ends_it_without_a_traceback(delay: float) -> None:
    source = _SUPERVISOR.replace("    try:\n", "    print('armed', flush=True)\n    try:\n")
    with Worker.start(source, 1.0, 1.0, 0.3, ".", "sleep", "60") as worker:
        worker.wait_for("armed")
        time.sleep(delay)  # whenever it comes, the end is the same
        worker.signal(signal.SIGINT)
        assert worker.wait() == 128 + signal.SIGINT
        assert not worker.errors()


def test_an_ignored_signal_stays_ignored_for_us_and_for_the_command() -> None:
    ignoring = "import signal, os, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN); "
    source = ignoring + _SUPERVISOR.replace("(signal.SIGHUP, signal.SIGINT,", "(signal.SIGINT,")
    shows = "import signal, time; print(repr(signal.getsignal(signal.SIGHUP)), flush=True); time.sleep(60)"
    with Worker.start(source, 1.0, 1.0, 0.3, ".", *python(shows)) as worker:
        assert "SIG_IGN" in worker.read_line()
        worker.signal(signal.SIGHUP)
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 128 + signal.SIGTERM


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="looks at /proc, which this system does not have")
def test_the_command_starts_with_the_usual_signals() -> None:
    shell = 'grep -E "^Sig(Ign|Blk)" /proc/self/status'
    with supervised("sh", "-c", shell) as worker:
        assert worker.wait() == 0
        # Of those beyond 31 glibc's posix_spawn ignores two of its own, which no program can see.
        usual = [int(line.split()[1], 16) & 0x7FFF_FFFF for line in worker.lines]
        assert usual == [0, 0]


def test_the_command_has_a_group_of_its_own_and_inherits_open_descriptors() -> None:
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    script = f"import os; os.write({writer}, b'%d %d' % (os.getpid(), os.getpgrp()))"
    process = subprocess.Popen(
        [sys.executable, "-c", _SUPERVISOR, "1", "1", "0.3", ".", *python(script)],
        pass_fds=(writer,),
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    os.close(writer)
    assert process.wait(60) == 0
    with os.fdopen(reader) as answer:
        pid, group = answer.read().split()
    assert pid == group


def test_stdin_and_stdout_are_the_commands() -> None:
    with supervised("sort") as worker:
        worker.write_line("b")
        worker.write_line("a")
        assert worker.wait() == 0
        assert worker.lines == ["a", "b"]


def test_arguments_meet_no_shell() -> None:
    awkward = ["$HOME", "*", "a b", "--", "", "'\"", "--ttl"]
    with supervised(*python("import sys; print(sys.argv[1:])"), *awkward) as worker:
        assert worker.wait() == 0
        assert worker.lines == [repr(awkward)]


def test_a_command_that_cannot_be_run_is_told_before_anything_is_started(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("no program")
    for name, code in [
        ("no-such-command", 127),
        ("./no/such", 127),
        ("", 127),
        (str(plain), 126),
        (str(tmp_path), 126),
    ]:
        with supervised(name) as worker:
            assert worker.wait() == code, name
            assert worker.lines[-1].startswith(name)


def test_a_script_whose_interpreter_is_missing_and_one_without_any(tmp_path: Path) -> None:
    for first_line, code in [("#!/no/such/interpreter", 127), ("just text", 126)]:
        script = tmp_path / f"script{code}"
        script.write_text(first_line)
        script.chmod(0o755)
        with supervised(str(script)) as worker:
            assert worker.wait() == code
            assert "cannot be run" in worker.errors()


# The end of the hold


def test_before_the_hold_ends_the_command_is_asked_to_stop_and_may_tidy_up(tmp_path: Path) -> None:
    with supervised(*python(WAITS), notice=15, margin=15, folder=tmp_path) as worker:
        group = int(worker.wait_for("up").split()[2])
        end_hold(worker, tmp_path, 30.2)
        assert worker.wait() == 76
        assert worker.lines[-2] == "SIGTERM"
        assert float(worker.lines[-1].split()[2]) > 0
        assert worker.lines[-1].endswith(str(40 + signal.SIGTERM))
        assert group_is_gone(group)


def test_a_stubborn_command_is_killed_before_the_hold_ends(tmp_path: Path) -> None:
    with supervised(*python(STUBBORN), notice=5, margin=20, folder=tmp_path) as worker:
        worker.wait_for("up")
        end_hold(worker, tmp_path, 25.1)
        assert worker.wait() == 76
        assert worker.lines[-2] == "SIGTERM"
        assert float(worker.lines[-1].split()[2]) > 0
        assert worker.lines[-1].endswith(str(128 + signal.SIGKILL))


def test_a_hold_that_is_gone_stops_the_command_and_what_it_has_started(tmp_path: Path) -> None:
    family = (
        "import subprocess, sys, signal, time; child = subprocess.Popen([sys.executable, '-c', "
        "'import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(60)'],"
        "stdout=subprocess.PIPE); child.stdout.readline(); print('family', child.pid, flush=True); time.sleep(60)"
    )
    with supervised(*python(family), folder=tmp_path) as worker:
        grandchild = int(worker.wait_for("family").split()[1])
        lose_hold(worker, tmp_path)
        assert worker.wait(40) == 76
        wait_until(lambda: not is_running(grandchild), 30, "what the command has started to be killed")


def test_a_stopped_command_is_stopped_for_good_when_the_hold_ends(tmp_path: Path) -> None:
    with supervised(*python(WAITS), notice=15, margin=15, folder=tmp_path) as worker:
        pid = int(worker.wait_for("up").split()[1])
        os.kill(pid, signal.SIGSTOP)
        end_hold(worker, tmp_path, 30.2)
        assert worker.wait() == 76
        assert worker.lines[-2] == "SIGTERM"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux kills a program with its parent")
def test_the_command_dies_with_a_supervisor_that_is_killed() -> None:
    with supervised(*python(STUBBORN)) as worker:
        pid = int(worker.wait_for("up").split()[1])
        worker.kill9()
        wait_until(lambda: not is_running(pid), 30, "the command to be killed by the kernel")


def test_the_supervisor_sleeps_while_nothing_happens() -> None:
    measure = DEFAULT_SIGNALS + _SUPERVISOR.replace(
        "sys.exit(outcome.exit_code)", "print(time.process_time() - began); sys.exit(outcome.exit_code)"
    ).replace("with Signals()", "began = time.process_time()\nwith Signals()")
    with Worker.start(measure, 1.0, 1.0, 0.3, ".", *python("import time; time.sleep(2)")) as worker:
        assert worker.wait() == 0
        assert float(worker.lines[-1]) < 0.5  # of its CPU time; a busy loop would take the two seconds


def test_a_command_may_be_given_time_to_tidy_up_after_a_sudden_loss(tmp_path: Path) -> None:
    tidies = (
        "import signal, sys, time\n"
        "def tidy(*_): time.sleep(0.8); print('tidied', flush=True); sys.exit(3)\n"
        "signal.signal(signal.SIGTERM, tidy); print('up', flush=True); time.sleep(60)"
    )
    with supervised(*python(tidies), sudden=40, folder=tmp_path) as worker:
        worker.wait_for("up")
        end_hold(worker, tmp_path, 90)  # so that the supervisor has seen that there is one
        lose_hold(worker, tmp_path)
        assert worker.wait() == 76
        assert "tidied" in worker.lines


def test_but_not_beyond_the_end_that_the_hold_would_have_had(tmp_path: Path) -> None:
    with supervised(*python(STUBBORN), margin=20, sudden=80, folder=tmp_path) as worker:
        worker.wait_for("up")
        end_hold(worker, tmp_path, 21.5)
        lose_hold(worker, tmp_path)
        assert worker.wait() == 76
        assert float(worker.lines[-1].split()[2]) > 0
        assert worker.lines[-1].endswith(str(128 + signal.SIGKILL))
