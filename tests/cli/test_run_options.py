"""The options of `tenure run`, and where it finds its server."""

from __future__ import annotations

import contextlib
import os
import re
import signal
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest
from click.testing import CliRunner

import tenure as library
from tenure.cli import report, telling
from tenure.cli.app import app
from tests.cli.commands import STUBBORN, WAITS, group_is_gone, python, tenure
from tests.harness.servers import Server
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from tests.cli.commands import World
    from tests.harness.processes import Worker

ECHOES = "print('up', flush=True); print(input(), flush=True); raise SystemExit(7)"


@pytest.mark.parametrize(("program", "ends", "grace"), [(WAITS, "55", "15s"), (STUBBORN, "137", "4s")])
def test_a_command_that_holds_the_lock_for_too_long_is_stopped(
    world: World, program: str, ends: str, grace: str
) -> None:
    options = ("--ttl", "60", "--max-hold", "5s", "--grace", grace)  # by then it is up
    with world.run("job", *options, "--", *python(program)) as worker:
        group = int(worker.wait_for("up").split()[2])
        assert worker.wait(40) == 76  # long before the lease ends
        assert worker.lines[-1] == "SIGTERM"
        told = (
            f"'job' was held for 5 s, the longest that --max-hold allows: the command was stopped with exit code {ends}"
        )
        assert told in worker.errors()
        assert group_is_gone(group)
        assert not world.held("job")


def test_a_loss_may_be_ignored(world: World) -> None:
    with world.run("job", "--ttl", "6", "--on-lost", "ignore", "--", *python(ECHOES)) as worker:
        worker.wait_for("up")
        world.server.command("DEL", f"{world.namespace}:job")
        wait_until(lambda: "its key was deleted" in worker.errors(), why="the loss to be told")
        worker.write_line("went on")
        assert worker.wait() == 7
        assert worker.lines[-1] == "went on"


def test_with_a_loss_ignored_the_longest_hold_only_ends_the_renewal(world: World) -> None:
    options = ("--ttl", "3s", "--max-hold", "1s", "--on-lost", "ignore")
    with world.run("job", *options, "--", *python(ECHOES)) as worker:
        worker.wait_for("up")
        wait_until(lambda: not world.held("job"), why="the lease to end")
        worker.write_line("went on")
        assert worker.wait() == 7


def test_the_exit_code_of_a_conflict_may_be_chosen(world: World, held: Worker) -> None:
    with world.run("job", "--no-wait", "--conflict-exit-code", "0", "--", "echo", "never") as worker:
        assert worker.wait() == 0
        assert worker.lines == []
        assert f"pid {held.pid} " in worker.errors()


def test_quiet_says_nothing_but_errors(world: World, held: Worker) -> None:
    with world.run("job", "--no-wait", "--quiet", "--", "echo", "never") as worker:
        assert worker.wait() == 75
        assert worker.errors() == ""
    with tenure("run", "job", "--quiet", "--", "echo", "on the embedded server") as worker:
        assert worker.wait() == 0
        assert worker.errors() == ""
    with world.run("other", "--quiet", "--", *python(ECHOES)) as worker:
        worker.wait_for("up")
        world.server.command("SET", f"{world.namespace}:other", "somebody else's", "PX", "60000")
        worker.write_line()
        assert worker.wait() == 76
        assert "the lease of 'other' was lost (taken)" in worker.errors()


def test_info_is_what_others_see_and_a_warning_comes_after_the_time_that_was_named(world: World) -> None:
    with (
        world.run("job", "--info", "nightly", "--warn-after", "200ms", "--", *python(ECHOES)) as worker,
        library.Locks(world.server.url, namespace=world.namespace) as locks,
    ):
        worker.wait_for("up")
        holder = locks.holder("job")
        assert holder is not None
        assert holder.info == "nightly"
        wait_until(lambda: "is held too long" in worker.errors(), why="the warning")
        worker.write_line()
        assert worker.wait() == 7


class FakeLocks:
    """Locks whose holder changes from look to look."""

    def __init__(self, *programs: str | None) -> None:
        self.programs = list(programs)

    def holders(self, name: str) -> list[library.Holder]:
        programs = self.programs.pop(0) if len(self.programs) > 1 else self.programs[0]
        if programs is None:
            raise library.ServerUnavailable("away")
        return [
            library.Holder(name, 1, program, "host", 1, program, None, None, datetime.now(UTC), 30.0)
            for program in programs.split()
        ]


def test_who_holds_is_told_again_when_it_is_another_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(telling, "_TELL_A_LOG_AFTER", 0.001)
    monkeypatch.setattr(telling, "_LOOK_AGAIN", 0.001)
    locks = FakeLocks("one", "one", None, "", "two\x1b[2J", "two\x1b[2J other", "other two\x1b[2J", "three other")
    told: list[str] = []

    # What is captured is read only at the end: reading empties it, and what is written meanwhile is lost.
    def tell(message: str) -> None:
        report.tell(message)
        told.append(message)

    monkeypatch.setattr(telling, "tell", tell)
    with telling.telling_who_holds("job", cast("library.Locks", locks)):
        wait_until(lambda: any("three" in message for message in told), why="all three to be told")
    text = capsys.readouterr().err
    assert re.findall(r"held by (\S+) \(pid 1 on host\)", text) == ["one", r"two\x1b[2J", "three"]


# The server goes away


def test_a_server_that_goes_away_ends_the_wait_and_stops_the_command(own_world: World) -> None:
    with (
        own_world.run("job", "--ttl", "8", "--", *python(WAITS)) as holder,
        contextlib.ExitStack() as stack,
    ):
        group = int(holder.wait_for("up").split()[2])
        waiting = stack.enter_context(own_world.run("job", "--", "echo", "never"))
        wait_until(lambda: own_world.waiting("job") == 1, why="the command to wait")
        own_world.server.kill9()
        wait_until(lambda: group_is_gone(group), 30, "the command to be ended")
        assert waiting.wait() == 69
        assert waiting.lines == []
        assert "Traceback" not in waiting.errors()
        assert holder.wait() == 76
        assert "could not be released" in holder.errors() or "expired" in holder.errors()
        assert "Traceback" not in holder.errors()


# Passwords


def processes_that_show(secret: str) -> list[str]:
    """Whatever process has the text among its arguments, or in an environment that it inherited from nobody of ours."""
    found: list[str] = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            arguments, environment = (entry / "cmdline").read_bytes(), (entry / "environ").read_bytes()
            # The server itself was given its password by this test.
            if secret.encode() in arguments + environment and b"-server" not in arguments:
                found.append(arguments.replace(b"\0", b" ").decode())
    return found


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks at /proc, which this system does not have")
def test_with_a_file_the_password_stands_in_no_arguments_and_no_environment(tmp_path: Path) -> None:
    file = tmp_path / "url"
    with Server.start(password="sesam-zu") as server:
        file.write_text(f"  {server.url}\n")
        env = {"TENURE_URL_FILE": str(file)}
        with tenure("run", "job", "--", *python(WAITS), env=env) as worker, library.Locks(server.url) as locks:
            worker.wait_for("up")
            assert locks.holder("job") is not None
            assert processes_that_show("sesam-zu") == []
            worker.signal(signal.SIGTERM)
            assert worker.wait() == 55
            assert "sesam-zu" not in worker.errors()


@pytest.mark.parametrize(
    "url",
    [
        "redis://:geheim@127.0.0.1/0",
        "rediss://user:geheim@127.0.0.1:6379",
        "unix:///run/redis.sock?password=geheim",
        "rediss://127.0.0.1?ssl_password=geheim",
        "redis://u:geheim@[::1",
    ],
)
def test_a_password_among_the_arguments_is_refused_with_what_to_do_instead(url: str) -> None:
    result = CliRunner().invoke(app, ["ls", "--url", url])
    assert result.exit_code == 2
    assert "TENURE_URL, or TENURE_URL_FILE" in " ".join(result.stderr.split())
    assert "geheim" not in result.stderr


@pytest.mark.parametrize("url", ["redis://127.0.0.1:1/0", "redis://user@h", "redis://user:@h", "unix:///a:b@c"])
def test_a_url_without_a_password_is_fine(url: str) -> None:
    result = CliRunner().invoke(app, ["run", "job", "--url", url, "--", "no-such-command"])
    assert result.exit_code == 127


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file"),
        (b"", "must contain one URL"),
        (b"redis://a redis://b", "must contain one URL"),
        (b"\xff\xfe", "it is not text"),
        (b"http://geheim", "the scheme must be"),
    ],
)
def test_a_file_that_cannot_work_is_told(
    content: bytes | None, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "url"
    if content is not None:
        file.write_bytes(content)
    monkeypatch.setenv("TENURE_URL_FILE", str(file))
    result = CliRunner().invoke(app, ["ls"])
    assert result.exit_code == 2
    assert message in result.stderr
    # A URL among the arguments does without the file.
    assert CliRunner().invoke(app, ["run", "job", "--url", "redis://h", "--", "no-such-command"]).exit_code == 127


def test_two_servers_in_the_environment_are_one_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENURE_URL_FILE", os.devnull)
    monkeypatch.setenv("TENURE_URL", "redis://h")
    result = CliRunner().invoke(app, ["ls"])
    assert result.exit_code == 2
    assert "Both TENURE_URL and TENURE_URL_FILE are set" in result.stderr
