"""What `tenure ls`, `show`, `top`, `watch` and `break` tell of locks that several hold, and of deadlocks."""

from __future__ import annotations

import contextlib
import json
import re
import signal
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

import tenure as library
from tenure.cli import look, steer
from tenure.cli.app import app
from tenure.core.keys import short_id
from tests.cli.commands import tenure
from tests.harness.processes import Worker
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from click.testing import Result

    from tests.cli.commands import World

WAITS_FOR_ANOTHER = """
import sys, threading, tenure
url, namespace, mine, wanted = sys.argv[1:]
locks = tenure.Locks(url, namespace=namespace)
with locks.lock(mine):
    print("holds", mine, flush=True)
    input()
    try:
        locks.lock(wanted, wait=120).acquire()
    except tenure.NotAcquired as error:
        print(error, flush=True)
"""
"""Holds one lock, and waits for another one once it gets a line."""


@pytest.fixture
def clients(world: World) -> Iterator[list[library.Locks]]:
    """Three of them, for each holds a lock once."""
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(library.Locks(world.server.url, namespace=world.namespace, identity=f"client {number}"))
            for number in range(3)
        ]


def ask(world: World, *arguments: str) -> Result:
    result = CliRunner().invoke(app, [*arguments], env=world.env)
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result


def answer(world: World, *arguments: str) -> Any:  # noqa: ANN401 - JSON
    return json.loads(ask(world, *arguments, "--json").stdout)


def shown_in_circle(circle: list[dict[str, Any]]) -> set[tuple[str, int]]:
    return {(waiter["name"], waiter["pid"]) for waiter in circle}


# Several holders


def test_all_who_hold_a_semaphore_are_shown(world: World, clients: list[library.Locks]) -> None:
    leases = [locks.semaphore("pool", 3, info=f"place {n}").acquire() for n, locks in enumerate(clients[:2])]
    plain = clients[2].lock("plain").acquire()
    table = ask(world, "ls").stdout
    head, *rows = table.splitlines()
    assert head.split()[:3] == ["lock", "mode", "holder"]
    assert [row.split()[0] for row in rows] == ["plain", "pool", "pool"]
    assert [row.count("semaphore of 3") for row in rows] == [0, 1, 1]
    assert [(row["mode"], row["limit"]) for row in answer(world, "ls", "p")] == [
        ("exclusive", None),
        ("semaphore", 3),
        ("semaphore", 3),
    ]

    text = ask(world, "show", "pool").stdout
    assert re.search(r"^mode +semaphore of 3\nholders +2$", text, re.MULTILINE)
    for n, lease in enumerate(leases):
        assert re.search(
            rf"^ +-  .*, client {n}, for place {n}, since .*, fence {lease.fence}, id ", text, re.MULTILINE
        )
    shown = answer(world, "show", "pool")
    assert {row["fence"] for row in shown["holders"]} == {lease.fence for lease in leases}
    assert shown["holder"] == shown["holders"][0] | {"expires_in": shown["holder"]["expires_in"]}
    assert "mode" not in ask(world, "show", "plain").stdout

    top = answer(world, "top", "--once", "--sort", "name")
    assert (top["total"], top["deadlocks"]) == (3, [])
    assert [row["name"] for row in top["locks"]] == ["plain", "pool", "pool"]
    assert "semaphore of 3" in ask(world, "top", "--once").stdout
    for lease in (*leases, plain):
        lease.release()


def test_show_tells_how_those_who_wait_want_the_lock(world: World, clients: list[library.Locks]) -> None:
    lease = clients[0].lock("job", shared=True).acquire()
    assert re.search(r"^mode +shared$", ask(world, "show", "job").stdout, re.MULTILINE)
    with world.run("job", "--", "true") as writer:
        wait_until(lambda: world.waiting("job") == 1, why="the writer to wait")
        with world.run("job", "--shared", "--", "true") as reader:
            wait_until(lambda: world.waiting("job") == 2, why="the reader to wait")
            text = ask(world, "show", "job").stdout
            assert re.search(rf"^ +1\.  .*pid {writer.pid} on \S+\), for true, waits since", text, re.MULTILINE)
            assert re.search(rf"^ +2\.  .*pid {reader.pid} on \S+\), shared, for true", text, re.MULTILINE)
            assert [waiter["mode"] for waiter in answer(world, "show", "job")["waiters"]] == ["exclusive", "shared"]
            lease.release()
            assert (writer.wait(), reader.wait()) == (0, 0)


def test_watch_tells_when_one_of_several_comes_or_goes(world: World, clients: list[library.Locks]) -> None:
    first = clients[0].lock("job", shared=True).acquire()
    with tenure("watch", "job", "--interval", "100ms", "--json", env=world.env) as worker:
        seen = [json.loads(worker.read_line())]
        second = clients[1].lock("job", shared=True).acquire()
        seen.append(json.loads(worker.read_line()))
        first.release()
        seen.append(json.loads(worker.read_line()))
        second.release()
        seen.append(json.loads(worker.read_line()))
        worker.signal(signal.SIGINT)
        assert worker.wait() == 0
    assert [len(change["holders"]) for change in seen] == [1, 2, 1, 0]
    assert [change["holder"] is None for change in seen] == [False, False, False, True]


def test_watch_tells_nothing_when_those_who_hold_it_together_renew_in_turn(
    monkeypatch: pytest.MonkeyPatch, clients: list[library.Locks]
) -> None:
    leases = [locks.lock("job", shared=True).acquire() for locks in clients[:2]]
    turns = 0

    def ends_first() -> library.Lease:
        holder = clients[2].holders("job")[0]
        return next(lease for lease in leases if short_id(lease.token.encode()) == holder.id)

    def sleep(_: float) -> None:
        nonlocal turns
        turns += 1
        first = ends_first()
        if turns == 6:
            first.release()
        for _ in range(1000):  # within one millisecond both would end at the same time
            if turns == 6 or ends_first() is not first:
                return
            first.renew()
        raise AssertionError("a renewal moves no end")

    monkeypatch.setattr(look.time, "sleep", sleep)
    changes = look._changes(clients[2], "job", 1.0)
    assert [len(next(changes)) for _ in range(2)] == [2, 1]
    monkeypatch.undo()
    assert turns == 6
    for lease in leases:
        lease.release()


def test_watch_puts_several_on_one_line(world: World, clients: list[library.Locks]) -> None:
    leases = [locks.semaphore("job", 3).acquire() for locks in clients]
    with tenure("watch", "job", env=world.env) as worker:
        line = worker.read_line()
    assert "  held by 3: " in line
    assert line.count("semaphore of 3") == 3
    for lease in leases:
        lease.release()


# Breaking


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steer, "_ACKNOWLEDGED_WITHIN", 30.0)


def test_breaking_a_semaphore_breaks_all_or_the_one_with_that_fence(
    world: World, clients: list[library.Locks], patient: None
) -> None:
    leases = [locks.semaphore("job", 3, on_lost=library.Lease.release).acquire() for locks in clients]
    one = ask(world, "break", "job", "--yes", "--fence", str(leases[1].fence))
    assert (one.exit_code, one.stderr.count("is held by")) == (0, 1)
    assert "broken: 'job' is still held by " in one.stdout
    wait_until(lambda: leases[1].lost == "revoked", why="the holder to hear it")
    leases[0].renew()
    all_ = ask(world, "break", "job", "--yes")
    assert (all_.exit_code, all_.stderr.count("is held by")) == (0, 2)
    assert all_.stdout == "broken: 'job' is free now\n"
    assert [lease.lost for lease in leases] == ["revoked"] * 3


def test_those_who_share_a_lock_lose_it_together(world: World, clients: list[library.Locks], patient: None) -> None:
    leases = [locks.lock("job", shared=True, on_lost=library.Lease.release).acquire() for locks in clients]
    told = answer(world, "break", "job", "--yes")
    assert told["broken"]
    assert len(told["holders"]) == 3
    assert told["now"] is None
    assert [lease.lost for lease in leases] == ["revoked"] * 3


# Deadlocks


def test_a_deadlock_of_three_processes_is_named_by_show_and_top(world: World) -> None:
    names = ("alpha", "beta", "gamma")
    with contextlib.ExitStack() as stack:
        workers: list[Worker] = []
        for mine, wanted in zip(names, (*names[1:], names[0]), strict=True):
            arguments = (world.server.url, world.namespace, mine, wanted)
            workers.append(stack.enter_context(Worker.start(WAITS_FOR_ANOTHER, *arguments)))
        for worker in workers:
            worker.wait_for("holds")
        # Two of them wait in a row, which is no deadlock.
        for worker, wanted in zip(workers[:2], names[1:], strict=True):
            worker.write_line()
            wait_until(lambda wanted=wanted: world.waiting(wanted) == 1, why="it to wait")
        assert answer(world, "show", "beta")["deadlocks"] == []
        assert answer(world, "top", "--once")["deadlocks"] == []
        workers[2].write_line()
        circle = {(wanted, worker.pid) for worker, wanted in zip(workers, (*names[1:], names[0]), strict=True)}

        for name in names:
            wait_until(lambda name=name: answer(world, "show", name)["deadlocks"], why="the deadlock to be seen")
            (found,) = answer(world, "show", name)["deadlocks"]
            assert shown_in_circle(found) == circle
            text = ask(world, "show", name).stdout.splitlines()[-1]
            assert text.startswith("deadlock: ")
            for wanted, pid in circle:
                assert re.search(rf"\(pid {pid} on \S+\) waits for '{wanted}', held by \S+ \(pid \d+ on ", text)
        (found,) = answer(world, "top", "--once")["deadlocks"]
        assert shown_in_circle(found) == circle
        assert "deadlock: " in ask(world, "top", "--once", "be").stdout
        assert "deadlock: " not in ask(world, "top", "--once", "delta").stdout
        # A lock outside the circle.
        assert answer(world, "show", "delta")["deadlocks"] == []
