"""`tenure acquire`, `renew` and `release`: a lease for the steps of a shell script."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

import tenure as library
from tenure.cli.app import app
from tenure.core.adopt import parse
from tests.cli.commands import tenure
from tests.harness.processes import ROOT
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from click.testing import Result

    from tests.cli.commands import World

SCRIPT = """
tenure() { "$PYTHON" -m tenure "$@"; }
TENURE_LEASE=$(tenure acquire job --ttl 60 --info deploy) || exit
export TENURE_LEASE
trap 'tenure release' EXIT
tenure run job --no-wait --conflict-exit-code 0 -- echo never
tenure show job
tenure renew --ttl 10m || exit
tenure show job --json
exit 7
"""


@pytest.fixture
def locks(world: World) -> Iterator[library.Locks]:
    with library.Locks(world.server.url, namespace=world.namespace) as found:
        yield found


def step(world: World, *arguments: str, lease: str | None = None, stdin: str | None = None) -> Result:
    result = CliRunner().invoke(app, [*arguments], env=world.env | {"TENURE_LEASE": lease}, input=stdin)
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result


def acquired(world: World, *options: str) -> str:
    result = step(world, "acquire", "job", *options)
    assert (result.exit_code, result.stderr) == (0, "")
    (line,) = result.stdout.splitlines()
    return line


def test_the_steps_of_a_script_hold_the_lock_from_the_first_to_the_last(world: World) -> None:
    environment = os.environ | world.env | {"PYTHONPATH": str(ROOT / "src"), "PYTHON": sys.executable}
    done = subprocess.run(
        ["sh", "-c", SCRIPT], env=environment, capture_output=True, text=True, check=False, timeout=100
    )
    assert done.returncode == 7, done.stderr
    *text, shown = done.stdout.splitlines()
    assert "for      deploy" in text
    assert "never" not in text
    assert json.loads(shown)["holder"]["expires_in"] > 500
    (line,) = done.stderr.splitlines()
    assert line.startswith("tenure: busy: 'job' is held by ")
    assert not world.held("job")


def test_who_takes_a_lock_for_a_script_waits_for_it_and_gives_it_to_the_next_one(
    world: World, locks: library.Locks
) -> None:
    lease = locks.lock("job").acquire()
    assert step(world, "acquire", "job", "--no-wait").exit_code == 75
    with tenure("acquire", "job", env=world.env) as first:
        wait_until(lambda: world.waiting("job") == 1, why="the first one to wait")
        with world.run("job", "--", "echo", "next") as next_:
            wait_until(lambda: world.waiting("job") == 2, why="the next one to wait")
            lease.release()
            assert first.wait() == 0
            assert next_.running
            assert step(world, "release", lease=first.lines[0]).exit_code == 0
            assert next_.wait() == 0
            assert next_.lines == ["next"]
    assert not world.held("job")


def test_the_lease_is_read_from_the_environment_from_standard_input_or_from_an_argument(world: World) -> None:
    text = acquired(world)
    assert step(world, "renew", lease=text).exit_code == 0
    assert step(world, "renew", "-", stdin=f"{text}\n").exit_code == 0
    assert step(world, "renew", text, lease="another").exit_code == 0
    result = CliRunner().invoke(app, ["release", text], env={"TENURE_URL": world.server.url, "TENURE_NAMESPACE": "no"})
    assert (result.exit_code, result.output) == (0, "")
    assert not world.held("job")


def test_renewing_extends_and_never_shortens_and_the_line_stays_the_same(world: World) -> None:
    text = acquired(world, "--ttl", "200")
    assert 150 < world.left("job") < 201
    assert step(world, "renew", "--ttl", "5m", lease=text).exit_code == 0
    assert world.left("job") > 280
    assert step(world, "renew", lease=text).exit_code == 0
    assert world.left("job") > 270
    assert step(world, "release", lease=text).exit_code == 0


def test_json_tells_the_fence_and_how_long_the_lease_lasts(world: World, locks: library.Locks) -> None:
    told = json.loads(step(world, "acquire", "job", "--ttl", "100", "--json").stdout)
    holder = locks.holder("job")
    assert holder is not None
    assert told["fence"] == holder.fence
    assert 50 < told["remaining"] <= 100
    assert holder.info == f"steps of process {os.getppid()}"
    assert step(world, "release", lease=told["lease"]).exit_code == 0


@pytest.mark.parametrize("options", [("--shared",), ("--limit", "2")])
def test_leases_beside_each_other(world: World, locks: library.Locks, options: tuple[str, ...]) -> None:
    leases = [acquired(world, *options) for _ in range(2)]
    assert len(locks.holders("job")) == 2
    if "--limit" in options:
        assert step(world, "acquire", "job", "--no-wait", *options).exit_code == 75
    assert step(world, "release", lease=leases[0]).exit_code == 0
    assert len(locks.holders("job")) == 1
    gone = step(world, "renew", lease=leases[0])
    assert gone.exit_code == 76
    assert step(world, "renew", "--ttl", "5m", lease=leases[1]).exit_code == 0
    assert world.left("job") > 280
    assert step(world, "release", lease=leases[1]).exit_code == 0
    assert not world.held("job")


def test_a_lease_of_several_names_that_a_program_has_written_down(world: World, locks: library.Locks) -> None:
    text = locks.lock("a", "b", renew=False).acquire().export()
    assert step(world, "renew", "--ttl", "5m", lease=text).exit_code == 0
    assert min(world.left("a"), world.left("b")) > 280
    assert step(world, "release", lease=text).exit_code == 0
    assert not world.held("a")
    assert not world.held("b")


# A lease that is not held any more


def lost(world: World, text: str, *reasons: str) -> None:
    """Fail unless renewing and releasing end with 76 and these reasons, without a word of the secret."""
    for command, reason in zip(("renew", "release"), reasons, strict=True):
        result = step(world, command, lease=text)
        assert (result.exit_code, result.stdout) == (76, "")
        assert reason in result.stderr
        assert "the lease of 'job' was lost" in result.stderr
        (_, token, _), *_ = parse(text).leases
        assert token not in result.output
        assert text not in result.output


def end(world: World) -> None:
    """Have the time of a lease be over: a ttl that a test could wait for might end before the command has."""
    world.server.command("PEXPIRE", f"{world.namespace}:job", 1)
    wait_until(lambda: not world.held("job"), why="the lease to end")


def test_a_lease_whose_time_is_over(world: World) -> None:
    text = acquired(world)
    end(world)
    lost(world, text, "it has ended", "it has ended")


def test_a_lease_whose_lock_somebody_else_has_by_now(world: World, locks: library.Locks) -> None:
    text = acquired(world)
    end(world)
    with locks.lock("job", wait=20) as other:
        lost(world, text, "somebody else holds the lock", "somebody else holds the lock")
        other.renew()


def test_a_lease_that_an_operator_broke_is_let_go_by_the_next_step(world: World, locks: library.Locks) -> None:
    text = acquired(world)
    assert locks.break_lock("job") is not None
    result = step(world, "renew", lease=text)
    assert result.exit_code == 76
    assert "an operator broke it" in result.stderr
    assert world.held("job")
    step(world, "release", lease=text)
    assert not world.held("job")


def test_a_lease_that_a_program_has_adopted_is_the_programs(world: World, locks: library.Locks) -> None:
    text = acquired(world)
    with locks.adopt(text) as lease:
        lost(world, text, "another process has adopted it", "another process has adopted it")
        lease.renew()
    assert not world.held("job")


# What cannot work


def test_without_a_server_that_outlives_the_command_nothing_is_acquired() -> None:
    result = CliRunner().invoke(app, ["acquire", "job"], env={"TENURE_URL": None, "TENURE_URL_FILE": None})
    assert result.exit_code == 2
    assert "needs a server that outlives them" in " ".join(result.stderr.split())


@pytest.mark.parametrize("text", ["", "geheim", "tenure1.geheim", "tenure1." + base64.b64encode(b'{"n":1}').decode()])
def test_what_is_no_lease_is_refused_and_not_shown(world: World, text: str) -> None:
    for arguments in (("renew",), ("release",), ("renew", text), ("release", "-")):
        result = step(world, *arguments, lease=text, stdin=text)
        assert result.exit_code == 2
        assert "no exported lease" in result.stderr
        assert "geheim" not in result.output


def test_no_lease_at_all_is_wrong_usage(world: World) -> None:
    result = step(world, "release")
    assert result.exit_code == 2
    assert "Set TENURE_LEASE" in result.stderr


def test_a_signal_ends_the_wait(world: World, locks: library.Locks) -> None:
    with locks.lock("job"), tenure("acquire", "job", env=world.env) as waiting:
        wait_until(lambda: world.waiting("job") == 1, why="the command to wait")
        waiting.signal(signal.SIGTERM)
        assert waiting.wait() == 143
        assert waiting.lines == []
        assert world.waiting("job") == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_line_that_cannot_be_written_gives_the_lock_back(world: World) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "tenure", "acquire", "job"],
            env=os.environ | world.env | {"PYTHONPATH": str(ROOT / "src")},
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
            timeout=60,
        )
    assert done.returncode != 0
    assert not world.held("job")
