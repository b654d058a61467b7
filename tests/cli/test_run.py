"""`tenure run` against a real server."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

import tenure as library
from tenure.cli.app import app
from tenure.core.adopt import parse
from tests.cli.commands import STUBBORN, WAITS, group_is_gone, python, tenure
from tests.harness.processes import ROOT, is_running
from tests.harness.servers import Server
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.commands import World
    from tests.harness.processes import Worker

ENVIRONMENT = "import os; print({k: v for k, v in os.environ.items() if k.startswith('TENURE_')})"


def test_the_command_runs_while_the_lock_is_held_and_gives_its_exit_code(world: World) -> None:
    with world.run(
        "job", "--ttl", "10s", "--", *python("print('up', flush=True); raise SystemExit(int(input()))")
    ) as worker:
        worker.wait_for("up")
        assert world.held("job")
        worker.write_line("7")
        assert worker.wait() == 7
        assert not world.held("job")
        assert worker.errors() == ""


def test_the_command_is_told_name_lease_and_fence_which_rises(world: World) -> None:
    fences: list[int] = []
    for _ in range(2):
        with world.run("nightly job", "--", *python(ENVIRONMENT)) as worker:
            assert worker.wait() == 0
            seen = eval(worker.lines[0])  # noqa: S307 - it comes from the line above
            fences.append(int(seen.pop("TENURE_FENCE")))
            lease = parse(seen.pop("TENURE_LEASE"))
            assert [(name, fence) for name, _, fence in lease.leases] == [("nightly job", fences[-1])]
            assert seen == world.env | {"TENURE_NAME": "nightly job"}
    assert fences[0] < fences[1]


def test_a_server_given_as_an_option_is_not_told_to_the_command(world: World) -> None:
    options = ["--url", world.server.url, "--namespace", world.namespace]
    with tenure("run", "job", *options, "--", *python(ENVIRONMENT)) as worker:
        assert worker.wait() == 0
        assert sorted(eval(worker.lines[0])) == ["TENURE_FENCE", "TENURE_LEASE", "TENURE_NAME"]  # noqa: S307


def test_stdin_passes_through(world: World) -> None:
    with world.run("job", "--", "sort") as worker:
        worker.write_line("b")
        worker.write_line("a")
        assert worker.wait() == 0
        assert worker.lines == ["a", "b"]


def test_without_a_url_the_embedded_server_is_used() -> None:
    with tenure("run", "job", "--", "echo", "done") as worker:
        assert worker.wait() == 0
        assert worker.lines == ["done"]
        assert "Traceback" not in worker.errors()


# Somebody else holds the lock


@pytest.mark.parametrize("options", [("--no-wait",), ("--wait", "0"), ("--wait", "300ms")])
def test_busy_is_told_with_who_holds_since_when(world: World, held: Worker, options: tuple[str, ...]) -> None:
    with world.run("job", *options, "--", "echo", "never") as worker:
        assert worker.wait() == 75
        assert worker.lines == []
        (line,) = worker.errors().splitlines()
        assert line.startswith("tenure: busy: 'job' is held by ")
        assert f"pid {held.pid} " in line
        assert "since 2" in line
    assert world.waiting("job") == 0
    held.write_line()
    assert held.wait() == 0


def test_commands_wait_and_are_served_in_the_order_of_their_coming(world: World, held: Worker, tmp_path: Path) -> None:
    log = tmp_path / "log"
    append = f"import sys; open({str(log)!r}, 'a').write(sys.argv[1])"
    waiting: list[Worker] = []
    try:
        for number in range(5):
            waiting.append(world.run("job", "--wait", "60", "--", *python(append), str(number)))
            wait_until(lambda number=number: world.waiting("job") == number + 1, why="the command to wait")
        held.write_line()
        assert held.wait() == 0
        assert [worker.wait() for worker in waiting] == [0] * 5
    finally:
        for worker in waiting:
            worker.close()
    assert log.read_text() == "01234"


@pytest.mark.parametrize("name", ["INT", "TERM", "HUP"])
def test_a_signal_ends_the_wait_and_leaves_nothing_in_the_queue(world: World, held: Worker, name: str) -> None:
    number = signal.Signals[f"SIG{name}"]
    with world.run("job", "--", "echo", "never") as worker:
        wait_until(lambda: world.waiting("job") == 1, why="the command to wait")
        worker.signal(number)
        assert worker.wait() == 128 + number
        assert worker.lines == []
        assert "Traceback" not in worker.errors()
    assert world.waiting("job") == 0
    held.write_line()
    assert held.wait() == 0


def test_who_holds_is_told_at_a_terminal_while_waiting(world: World, held: Worker) -> None:
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "tenure", "run", "job", "--", "echo", "done"]
    environment = os.environ | world.env | {"PYTHONPATH": str(ROOT / "src")}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=slave) as process:
        os.close(slave)
        seen = b""
        while b"\n" not in seen:
            seen += os.read(master, 4096)
        held.write_line()
        assert process.wait(60) == 0
    os.close(master)
    assert b"tenure: waiting for 'job', held by " in seen
    assert f"pid {held.pid} ".encode() in seen


# Signals, and the end of the lease


@pytest.mark.parametrize("name", ["INT", "TERM", "HUP", "QUIT"])
def test_a_signal_reaches_the_command_and_the_lock_is_released(world: World, name: str) -> None:
    number = signal.Signals[f"SIG{name}"]
    with world.run("job", "--", *python(WAITS)) as worker:
        worker.wait_for("up")
        worker.signal(signal.SIGUSR1)
        worker.wait_for("SIGUSR1")
        worker.signal(number)
        assert worker.wait() == 40 + number
        assert worker.lines[-1] == number.name
        assert not world.held("job")


def test_a_deleted_key_stops_the_command(world: World) -> None:
    with world.run("job", "--ttl", "15", "--grace", "5", "--", *python(WAITS)) as worker:
        group = int(worker.wait_for("up").split()[2])
        world.server.command("DEL", f"{world.namespace}:job")
        assert worker.wait() == 76
        assert worker.lines[-1] == "SIGTERM"
        assert "the lease of 'job' was lost (deleted): the command was stopped with exit code 55" in worker.errors()
        assert "Traceback" not in worker.errors()
        assert group_is_gone(group)


def test_a_lease_that_somebody_took_meanwhile_is_told_though_the_command_had_ended(world: World) -> None:
    with world.run("job", "--", *python("print('up', flush=True); input()")) as worker:
        worker.wait_for("up")
        world.server.command("SET", f"{world.namespace}:job", "somebody else's", "PX", "60000")
        worker.write_line()
        assert worker.wait() == 76
        assert "the command had ended with exit code 0" in worker.errors()
    assert world.held("job")


def fall_silent(world: World, program: str) -> bool:
    """Whether the command was told and had ended before its lease."""
    with world.run("job", "--ttl", "8", "--", *python(program)) as worker:
        group = int(worker.wait_for("up").split()[2])
        # Just renewed: the next renewal cannot come between our looking and the pause.
        wait_until(lambda: world.left("job") > 7.5, why="a renewal")
        left, looked = world.left("job"), time.monotonic()
        world.server.pause()
        wait_until(lambda: group_is_gone(group), 30, "the command to be ended")
        left -= time.monotonic() - looked
        world.server.resume()
        assert worker.wait() == 76
        return left > 0 and worker.lines[-1] == "SIGTERM" and "not renewed in time" in worker.errors()


@pytest.mark.parametrize("program", [WAITS, STUBBORN])
def test_a_silent_server_stops_the_command_before_the_lease_ends(own_world: World, program: str) -> None:
    # A quarter of a second is kept for a scheduler that is late: where it is later, for any of the processes that have
    # a part in it, the round says nothing.
    assert any(fall_silent(own_world, program) for _ in range(5))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux kills a program with its parent")
def test_a_killed_tenure_takes_the_command_with_it_and_the_next_one_comes_after_the_ttl(world: World) -> None:
    with world.run("job", "--ttl", "3", "--", *python(STUBBORN)) as worker:
        pid = int(worker.wait_for("up").split()[1])
        worker.kill9()
        wait_until(lambda: not is_running(pid), 30, "the command to be killed by the kernel")
    with world.run("job", "--wait", "60", "--", "echo", "next") as worker:
        assert worker.wait() == 0


# What cannot work


def test_a_command_that_is_not_there_is_told_before_anybody_waits(world: World, held: Worker, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("no program")
    for command, code, message in [
        ("no-such-command", 127, "no-such-command: command not found"),
        (str(plain), 126, f"{plain}: not executable"),
    ]:
        with world.run("job", "--", command) as worker:
            assert worker.wait() == code
            assert worker.errors() == f"tenure: {message}\n"
    held.write_line()
    assert held.wait() == 0


def test_no_server() -> None:
    # Not a port that was free a moment ago: a server of another test may get it.
    env = {"TENURE_URL": "redis://:geheim@127.0.0.1:1/0"}
    commands = [["run", "job", "--", "echo", "never"], ["demo"], ["ls"], ["show", "job"], ["watch", "job"], ["top"]]
    commands += [["break", "job", "--yes"], ["ask", "job"], ["acquire", "job"]]
    # All at once, for each waits for a server as long as the library does.
    workers = [tenure(*arguments, env=env) for arguments in commands]
    try:
        for arguments, worker in zip(commands, workers, strict=True):
            assert worker.wait() == 69, arguments
            assert "never" not in worker.lines
            assert "geheim" not in worker.errors()
            assert "Traceback" not in worker.errors()
    finally:
        for worker in workers:
            worker.close()


def test_a_wrong_password_is_told_without_it() -> None:
    with Server.start(password="richtig") as server:
        url = server.url.replace("richtig", "geheim")
        with tenure("run", "job", "--", "echo", "never", env={"TENURE_URL": url}) as worker:
            assert worker.wait() == 2
            assert "password" in worker.errors()
            assert "geheim" not in worker.errors()
            assert "Traceback" not in worker.errors()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run"], "Missing argument 'NAME'"),
        (["run", "job"], "tenure run job -- COMMAND"),
        (["run", "job", "--"], "tenure run job -- COMMAND"),
        (["run", "job", "echo", "hi"], "'echo' is one argument too many: the command to run comes after two dashes"),
        (["run", "job", "--ttl", "soon", "--", "echo"], "'soon' is not a length of time"),
        (["run", "job", "--ttl", "0", "--", "echo"], "ttl must be"),
        (["run", "job", "--wait", "-1", "--", "echo"], "'-1' is not a length of time"),
        (["run", "job", "--wait", "1", "--no-wait", "--", "echo"], "exclude each other"),
        (["run", "job", "--once", "--wait", "1", "--", "echo"], "--wait and --once exclude each other"),
        (["run", "job", "--once", "--limit", "3", "--", "echo"], "--limit and --once exclude each other"),
        (["run", "job", "--once", "--ask-after", "3", "--", "echo"], "--ask-after and --once exclude each other"),
        (["run", "job", "--shared", "--limit", "3", "--", "echo"], "--shared and --limit exclude each other"),
        (["run", "job", "--at-least", "60s", "--", "echo"], "--at-least goes with --once"),
        (["run", "job", "--once", "--at-least", "400d", "--", "echo"], "at_least must be"),
        (["run", "job", "--limit", "0", "--", "echo"], "--limit"),
        (["run", "job", "--on-ask", "cry", "--", "echo"], "not one of ignore, term, signal:NAME"),
        (["run", "job", "--on-ask", "signal:CRY", "--", "echo"], "there is no signal 'CRY'"),
        (["run", "job", "--max-hold", "0", "--", "echo"], "max_hold must be"),
        (["run", "job", "--on-lost", "cry", "--", "echo"], "'cry' is not one of"),
        (["run", "job", "--ttl", "8", "--grace", "4", "--", "echo"], "needs a --ttl of at least 10.7s"),
        (["run", "job", "--conflict-exit-code", "256", "--", "echo"], "0<=x<=255"),
        (["run", "job", "--quiet", "--warn-after", "1", "--", "echo"], "exclude each other"),
        (["run", "job", "--info", "a\tb", "--", "echo"], "control character"),
        (["run", "job", "--url", "http://host", "--", "echo"], "http"),
        (["run", "job", "--url", "", "--", "echo"], "url"),
        (["run", "", "--", "echo"], "name"),
        (["run", "job", "--namespace", "a:b", "--", "echo"], "namespace"),
        (["walk"], "No such command 'walk'"),
    ],
)
def test_wrong_usage_is_explained(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert isinstance(result.exception, SystemExit)
    assert message.lower() in result.stderr.lower()


def test_an_empty_url_in_the_environment_is_a_mistake() -> None:
    with tenure("run", "job", "--", "echo", "never", env={"TENURE_URL": ""}) as worker:
        assert worker.wait() == 2
        assert "TENURE_URL" in worker.errors()


def test_dashes_of_the_commands_own_are_handed_on(world: World) -> None:
    with world.run("job", "--", *python("import sys; print(sys.argv[1:])"), "--ttl", "--", "--help") as worker:
        assert worker.wait() == 0
        assert worker.lines == ["['--ttl', '--', '--help']"]


def test_version_and_help() -> None:
    with tenure("--version") as worker:
        assert worker.wait() == 0
        assert worker.lines == [f"tenure {library.__version__}"]
    for arguments in ([], ["run"], ["demo"], ["ls"], ["ask"], ["acquire"], ["server"], ["server", "stop"]):
        result = CliRunner().invoke(app, [*arguments, "-h"], prog_name="tenure")
        assert result.exit_code == 0
        assert result.stdout.startswith(" ".join(["Usage: tenure", *arguments]))
        assert "without-lock" not in result.stdout
        assert "\\b" not in result.stdout


@pytest.mark.parametrize("missing", ["click", "rich"])
def test_without_the_extra_one_line_says_what_to_install(missing: str) -> None:
    source = f"import sys; sys.modules[{missing!r}] = None; from tenure.cli import main; main()"
    process = subprocess.run(
        python(source),
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert process.returncode == 2
    assert process.stderr == f"tenure: the command needs {missing}: pip install 'tenure[cli]'\n"
