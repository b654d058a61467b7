"""`tenure break`."""

from __future__ import annotations

import contextlib
import json
import re
import secrets
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

import tenure as library
from tenure.cli import steer
from tenure.cli.app import app
from tenure.core.scripts import TOKEN_WIDTH
from tests.cli.commands import WAITS, python
from tests.harness.leases import wait_for_inbox
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from click.testing import Result

    from tests.cli.commands import World


@pytest.fixture
def locks(world: World) -> Iterator[library.Locks]:
    with library.Locks(world.server.url, namespace=world.namespace) as found:
        yield found


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time enough for the holder to hear of it and to acknowledge."""
    monkeypatch.setattr(steer, "_ACKNOWLEDGED_WITHIN", 30.0)


def ask(world: World, *arguments: str) -> Result:
    result = CliRunner().invoke(app, ["break", *arguments], env=world.env)
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result


def test_the_holder_is_told_and_the_lock_is_free(world: World, locks: library.Locks, patient: None) -> None:
    locks.lock("another").acquire().release()
    wait_for_inbox(locks)
    lease = locks.lock("job", info="counting", on_lost=lambda lost: lost.release()).acquire()
    result = ask(world, "job", "--yes", "--fence", str(lease.fence))
    assert result.exit_code == 0
    assert "for counting" in result.stderr
    assert f"fence {lease.fence}" in result.stderr
    assert result.stdout == "broken: 'job' is free now\n"
    assert lease.lost == "revoked"


def test_without_a_terminal_somebody_has_to_say_yes_first(world: World, locks: library.Locks) -> None:
    with locks.lock("job") as lease:
        result = ask(world, "job")
        assert result.exit_code == 2
        assert "add --yes" in result.stderr
        assert lease.valid
        assert world.left("job") > 0


def test_another_lease_than_the_one_that_was_seen_is_left_alone(world: World, locks: library.Locks) -> None:
    with locks.lock("job") as lease:
        result = ask(world, "job", "--yes", "--fence", str(lease.fence - 1))
        assert result.exit_code == 1
        assert "another lease" in result.stderr
        assert json.loads(ask(world, "job", "--yes", "--fence", "1", "--json").stdout)["broken"] is False
        lease.renew()
    nobody = ask(world, "job", "--yes")
    assert (nobody.exit_code, nobody.stdout) == (1, "")
    assert "nobody holds 'job'" in nobody.stderr


def test_a_lease_that_follows_while_the_user_thinks_is_left_alone(
    world: World, locks: library.Locks, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[library.Lease] = [locks.lock("job").acquire()]

    def think(*_: object, **__: object) -> None:
        kept.pop().release()
        kept.append(locks.lock("job").acquire())

    monkeypatch.setattr(steer, "_ask", think)
    result = ask(world, "job")
    assert result.exit_code == 1
    assert "has ended meanwhile; nothing was broken" in result.stderr
    kept[0].renew()
    kept[0].release()


def test_a_holder_of_another_library_is_only_taken_from_by_force(world: World) -> None:
    key = f"{world.namespace}:job"
    world.server.command("SET", key, "of another library", "PX", "60000")
    for arguments in (["job", "--yes"], ["job", "--yes", "--fence", "7", "--force"]):
        result = ask(world, *arguments)
        assert result.exit_code in (1, 2)
        assert "another library" in result.stderr
        assert world.held("job")
    assert "only --force takes it away" in " ".join(ask(world, "job", "--yes").stderr.split())
    result = ask(world, "job", "--yes", "--force", "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["now"] is None
    assert not world.held("job")


def test_a_foreign_lock_that_changes_hands_while_the_user_thinks_is_left_alone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = f"{world.namespace}:job"
    world.server.command("SET", key, "one", "PX", "60000")

    def think(*_: object, **__: object) -> None:
        world.server.command("SET", key, "two", "PX", "60000")

    monkeypatch.setattr(steer, "_ask", think)
    assert ask(world, "job", "--force").exit_code == 1
    assert world.server.command("GET", key) == b"two"


def test_a_holder_that_does_not_answer_is_told_as_that(world: World) -> None:
    value = f"tenure1:{secrets.token_hex(TOKEN_WIDTH)[:TOKEN_WIDTH]} 17 1700000000000 - {{}}"
    world.server.command("SET", f"{world.namespace}:job", value, "PX", "60000")
    result = ask(world, "job", "--yes")
    assert result.exit_code == 0
    assert "has not acknowledged yet" in result.stdout
    assert "'job' is free within " in result.stdout
    shown = CliRunner().invoke(app, ["show", "job"], env=world.env).stdout
    assert re.search(r"^ends in +\d+ s at the latest: the lock was broken$", shown, re.MULTILINE)
    assert re.search(r"\d+ s, broken", CliRunner().invoke(app, ["ls"], env=world.env).stdout)
    forced = ask(world, "job", "--yes", "--force")
    assert forced.stdout == "broken: 'job' is free now\n"


def test_the_next_one_in_the_queue_is_named_and_a_command_that_held_it_is_stopped(world: World, patient: None) -> None:
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(world.run("job", "--ttl", "15", "--grace", "5", "--", *python(WAITS)))
        first.wait_for("up")
        next_ = stack.enter_context(world.run("job", "--", *python(WAITS)))
        wait_until(lambda: world.waiting("job") == 1, why="the second command to wait")
        result = ask(world, "job", "--yes")
        assert result.exit_code == 0
        assert f"went to the next one, tenure (pid {next_.pid} on " in result.stdout
        assert first.wait() == 76
        assert first.lines[-1] == "SIGTERM"
        assert "an operator broke it" in first.errors()
        next_.wait_for("up")
