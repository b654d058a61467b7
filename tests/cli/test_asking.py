"""Asking for a lock: `tenure ask`, and `--ask-after` and `--on-ask` of `tenure run`."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

import tenure as library
from tenure.cli.app import app
from tests.cli.commands import STUBBORN, WAITS, python
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from click.testing import Result

    from tests.cli.commands import World


@pytest.fixture
def locks(world: World) -> Iterator[library.Locks]:
    with library.Locks(world.server.url, namespace=world.namespace) as found:
        yield found


def ask(world: World, *arguments: str) -> Result:
    result = CliRunner().invoke(app, ["ask", *arguments], env=world.env)
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result


def heard(world: World, *arguments: str, code: int = 0, text: str = "") -> Result:
    """Ask until that is the answer: the server is told a little after a grant how its holder can be reached."""
    answers: list[Result] = []

    def good() -> bool:
        answers[:] = [ask(world, *arguments)]
        return answers[0].exit_code == code and text in answers[0].output

    wait_until(good, why="the holder to hear it" if code == 0 else "the end of the holder to be noticed")
    return answers[0]


# tenure run


@pytest.mark.parametrize(
    ("action", "told", "code"),
    [("term", "SIGTERM", 55), ("signal:INT", "SIGINT", 42), ("signal:sigquit", "SIGQUIT", 43)],
)
def test_the_holders_command_gets_the_signal_and_the_one_that_asked_goes_on(
    world: World, action: str, told: str, code: int
) -> None:
    with world.run("job", "--on-ask", action, "--", *python(WAITS)) as holder:
        holder.wait_for("up")
        with world.run("job", "--ask-after", "0", "--", "echo", "went on") as asker:
            assert holder.wait() == code, holder.errors()
            assert holder.lines[-1] == told
            assert f"(pid {asker.pid} on " in holder.errors()
            assert f", for echo, asks for 'job': {told} to the command" in holder.errors()
            assert asker.wait() == 0
            assert asker.lines == ["went on"]


def test_the_signal_is_sent_once_and_nobody_is_killed(world: World) -> None:
    with world.run("job", "--on-ask", "term", "--quiet", "--", *python(STUBBORN)) as holder:
        holder.wait_for("up")
        heard(world, "job")
        holder.wait_for("SIGTERM")
        for _ in range(3):
            heard(world, "job")
        with world.run("job", "--wait", "2s", "--ask-after", "0", "--", "echo", "never") as asker:
            assert asker.wait() == 75
            assert asker.lines == []
            assert asker.errors().endswith("; it heard that it was asked to release\n")
        assert holder.running
        assert holder.errors() == ""
        holder.kill9()
        assert holder.wait() == -signal.SIGKILL
        assert holder.lines.count("SIGTERM") == 1


def test_who_ignores_it_is_not_bothered(world: World) -> None:
    with world.run("job", "--", *python("print('up', flush=True); raise SystemExit(int(input()))")) as holder:
        holder.wait_for("up")
        heard(world, "job")
        holder.write_line("7")
        assert holder.wait() == 7
        assert holder.errors() == ""


def test_a_waiter_asks_only_after_the_time_that_was_named(world: World) -> None:
    with world.run("job", "--on-ask", "term", "--", *python(WAITS)) as holder:
        holder.wait_for("up")
        with world.run("job", "--ask-after", "1h", "--wait", "1s", "--", "echo", "never") as patient:
            assert patient.wait() == 75
            assert "asked to release" not in patient.errors()
        assert holder.running
        with world.run("job", "--ask-after", "200ms", "--", "echo", "went on") as asker:
            assert holder.wait() == 55
            assert asker.wait() == 0


# tenure ask


def test_ask_says_who_heard_it_and_why_it_was_asked(world: World, locks: library.Locks) -> None:
    reasons: list[object] = []
    lock = locks.lock("job", info="counting", on_ask=lambda lease: reasons.append(lease.asked and lease.asked.info))
    with lock:
        result = heard(world, "job", "--info", "a deploy")
        assert result.stdout.startswith("asked: ")
        assert "for counting" in result.stdout
        assert result.stderr == ""
        wait_until(lambda: reasons == ["a deploy"], why="the holder to be told")
        answer = json.loads(ask(world, "job", "--json").stdout)
        assert answer["heard"] == 1
        assert answer["holder"]["info"] == "counting"


def test_of_several_holders_all_are_asked(world: World, locks: library.Locks) -> None:
    asked: list[int] = []
    with library.Locks(world.server.url, namespace=world.namespace) as others:
        leases = [
            which.semaphore("job", 2, on_ask=lambda lease: asked.append(lease.fence)).acquire()
            for which in (locks, others)
        ]
        heard(world, "job", text="and 1 more")
        wait_until(lambda: sorted(asked) == sorted(lease.fence for lease in leases), why="both to be told")
        for lease in leases:
            lease.release()


def test_ask_says_when_there_is_nobody_to_hear_it(world: World) -> None:
    free = ask(world, "job")
    assert (free.exit_code, free.stdout, free.stderr) == (1, "", "tenure: nobody holds 'job'\n")
    assert json.loads(ask(world, "job", "--json").stdout) == {"name": "job", "holder": None, "heard": 0}
    world.server.command("SET", f"{world.namespace}:job", "of another library", "PX", "60000")
    foreign = ask(world, "job")
    assert foreign.exit_code == 75
    assert "a client of another library" in foreign.stderr
    assert "cannot be asked" in foreign.stderr


def test_ask_says_when_a_holder_is_cut_off(world: World) -> None:
    with world.run("job", "--ttl", "60", "--", *python(WAITS)) as holder:
        holder.wait_for("up")
        heard(world, "job")
        holder.kill9()
        gone = heard(world, "job", code=75)
        assert f"(pid {holder.pid} on " in gone.stderr
        assert "which did not hear it" in gone.stderr


def test_who_asks_in_vain_is_told_that_nobody_heard_it(world: World) -> None:
    world.server.command("SET", f"{world.namespace}:job", "of another library", "PX", "60000")
    with world.run("job", "--wait", "300ms", "--ask-after", "0", "--", "echo", "never") as asker:
        assert asker.wait() == 75
        assert "; it did not hear that it was asked to release" in asker.errors()


def test_a_name_that_is_in_use_for_something_else_is_told(world: World) -> None:
    world.server.command("LPUSH", f"{world.namespace}:job", "x")
    world.server.command("PEXPIRE", f"{world.namespace}:job", "60000")
    assert ask(world, "job").exit_code == 2
