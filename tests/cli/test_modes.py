"""`tenure run --shared`, `--limit` and `--once`: commands beside each other, and one that is left out."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING

import pytest

import tenure as library
from tests.cli.commands import python
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cli.commands import World
    from tests.harness.processes import Worker

HOLDS = "import os; print('up', os.environ['TENURE_FENCE'], flush=True); input()"
"""Says that it runs, and its fence, and goes on until it gets a line."""


@pytest.fixture
def locks(world: World) -> Iterator[library.Locks]:
    with library.Locks(world.server.url, namespace=world.namespace) as found:
        yield found


def holding(stack: contextlib.ExitStack, world: World, *options: str) -> Worker:
    worker = stack.enter_context(world.run("job", *options, "--", *python(HOLDS)))
    worker.wait_for("up")
    return worker


def end(worker: Worker) -> None:
    worker.write_line()
    assert worker.wait() == 0, worker.errors()


def test_commands_that_share_the_lock_run_together_and_one_that_does_not_waits_for_all_of_them(world: World) -> None:
    with contextlib.ExitStack() as stack:
        readers = [holding(stack, world, "--shared") for _ in range(3)]
        assert len({reader.lines[-1] for reader in readers}) == 1
        writer = stack.enter_context(world.run("job", "--", *python(HOLDS)))
        wait_until(lambda: world.waiting("job") == 1, why="the writer to wait")
        # Arrival order: a reader that comes after the writer waits for it, though others read now.
        late = stack.enter_context(world.run("job", "--shared", "--", *python(HOLDS)))
        wait_until(lambda: world.waiting("job") == 2, why="the late reader to wait")
        for reader in readers[1:]:
            end(reader)
        assert world.waiting("job") == 2
        end(readers[0])
        assert int(writer.wait_for("up").split()[1]) > int(readers[0].lines[-1].split()[1])
        assert world.waiting("job") == 1
        end(writer)
        late.wait_for("up")
        end(late)
        assert not world.held("job")


def test_no_more_commands_than_the_limit_run_at_a_time(world: World, locks: library.Locks) -> None:
    with contextlib.ExitStack() as stack:
        first = [holding(stack, world, "--limit", "2") for _ in range(2)]
        assert sorted(holder.mode for holder in locks.holders("job")) == ["semaphore"] * 2
        with world.run("job", "--limit", "2", "--no-wait", "--", "echo", "never") as busy:
            assert busy.wait() == 75
            assert busy.lines == []
            assert "tenure: busy: 'job' is held by " in busy.errors()
            assert "semaphore of 2" in busy.errors()
        third = stack.enter_context(world.run("job", "--limit", "2", "--", *python(HOLDS)))
        wait_until(lambda: world.waiting("job") == 1, why="the third command to wait")
        end(first[1])
        third.wait_for("up")
        assert len(locks.holders("job")) == 2
        end(first[0])
        end(third)
        assert not world.held("job")


def test_a_killed_command_frees_its_own_place_only(world: World, locks: library.Locks) -> None:
    with contextlib.ExitStack() as stack:
        killed = holding(stack, world, "--limit", "2", "--ttl", "5")
        other = holding(stack, world, "--limit", "2")
        next_ = stack.enter_context(world.run("job", "--limit", "2", "--", *python(HOLDS)))
        killed.kill9()
        next_.wait_for("up")
        assert {holder.pid for holder in locks.holders("job")} == {other.pid, next_.pid}
        end(other)
        end(next_)


def test_two_limits_for_one_name_are_a_mistake(world: World) -> None:
    with contextlib.ExitStack() as stack:
        first = holding(stack, world, "--limit", "2")
        with world.run("job", "--limit", "3", "--", "echo", "never") as other:
            assert other.wait() == 2
            assert "the limit 2 " in other.errors()
            assert "the limit 3 " in other.errors()
        end(first)


# Once


def test_of_commands_that_run_once_one_runs_and_the_others_are_told_who_did(world: World, locks: library.Locks) -> None:
    options = ("--once", "--at-least", "1h")
    with contextlib.ExitStack() as stack:
        all_ = [stack.enter_context(world.run("job", *options, "--", *python(HOLDS))) for _ in range(4)]
        running = wait_until(lambda: locks.holder("job"), why="one of them to run")
        assert running is not None
        runner = running.pid
        (winner,) = (worker for worker in all_ if worker.pid == runner)
        for worker in all_:
            if worker is not winner:
                assert worker.wait() == 75
                assert worker.lines == []
                assert re.search(rf"'job' (is held|ran at .*) ?by \S+ \(pid {runner} on ", worker.errors())
        winner.wait_for("up")
        end(winner)
    for _ in range(2):
        with world.run("job", *options, "--", "echo", "never") as again:
            assert again.wait() == 75
            assert again.lines == []
            told = re.fullmatch(
                rf"tenure: skipped: 'job' ran at \S+ \S+ \(.* ago\), by tenure \(pid {runner} on \S+\); "
                rf"it may run again in (1 h|5\d min( \d+ s)?), at \S+ \S+\n",
                again.errors(),
            )
            assert told, again.errors()
    # Those who do not ask for a distance keep none.
    with world.run("job", "--no-wait", "--", "echo", "done") as plain:
        assert plain.wait() == 0
    with world.run("job", "--once", "--", "echo", "done") as plain:
        assert plain.wait() == 0


def test_a_command_runs_again_after_the_distance_and_a_failure_counts_as_a_run(world: World) -> None:
    options = ("--once", "--at-least", "4s", "--conflict-exit-code", "0", "--quiet")
    granted: list[int] = []

    def ran_twice() -> bool:
        with world.run("job", *options, "--", *python("print('ran', flush=True); raise SystemExit(3)")) as worker:
            code = worker.wait()
            assert (code, worker.lines) in ((0, []), (3, ["ran"])), worker.errors()
            assert worker.errors() == ""
        if code == 3 and (last := world.server.command("GET", f"{{{world.namespace}:job}}:again")):
            granted.append(int(last.split()[2]))
        return len(granted) == 2

    wait_until(ran_twice, 60, "the second run")
    assert granted[1] - granted[0] >= 4000
