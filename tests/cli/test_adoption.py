"""A command of `tenure run` that adopts its lease: nobody takes that for a loss, yet it is looked after."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from typing import TYPE_CHECKING

import pytest

import tenure as library
from tenure.cli import following
from tests.cli.commands import DEFAULT_SIGNALS, group_is_gone, python
from tests.harness.leases import renew_now
from tests.harness.processes import Worker
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cli.commands import World

MODES = pytest.mark.parametrize("mode", [(), ("--shared",), ("--limit", "1")], ids=["exclusive", "shared", "semaphore"])

ADOPTS = """
import os, sys, time, tenure
locks = tenure.Locks(namespace=os.environ["TENURE_NAMESPACE"])
lease = locks.adopt(os.environ["TENURE_LEASE"])
assert str(lease.fence) == os.environ["TENURE_FENCE"]
print("adopted", os.getpid(), os.getpgrp(), flush=True)
"""
HOLDS = ADOPTS + "with lease: input()\nsys.exit(7)"
"""Holds what it has adopted until it gets a line."""
GOES_ON = ADOPTS + "input(); lease.release(); print('released', flush=True); time.sleep(60)"

_IMPATIENT = DEFAULT_SIGNALS + (
    "import sys; from tenure.cli import following, main; following.ENOUGH_TO_END = 4.0; sys.argv[0] = 'tenure'; main()"
)


def impatient(world: World, *arguments: str) -> Worker:
    """Start a `tenure run` that gives a command four seconds to end after it has given the lease back."""
    return Worker.start(_IMPATIENT, "run", *arguments, env=world.env)


def following_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "tenure-follow"]


@pytest.fixture
def locks(world: World) -> Iterator[library.Locks]:
    with library.Locks(world.server.url, namespace=world.namespace) as found:
        yield found


def after(mode: tuple[str, ...]) -> tuple[str, ...]:
    """How one takes the lock that has to wait for those who hold it so."""
    return mode if "--limit" in mode else ()


def held_for(locks: library.Locks) -> float:
    """The age of the possession, which adopting does not make younger; the server is on this machine."""
    (holder,) = locks.holders("job")
    assert holder.since is not None
    return time.time() - holder.since.timestamp()


@MODES
def test_who_has_adopted_the_lease_may_hold_it_for_longer_than_its_ttl(
    world: World, locks: library.Locks, mode: tuple[str, ...]
) -> None:
    with contextlib.ExitStack() as stack:
        worker = stack.enter_context(world.run("job", "--ttl", "8", *mode, "--", *python(HOLDS)))
        pid = int(worker.wait_for("adopted").split()[1])
        next_ = stack.enter_context(world.run("job", *after(mode), "--", *python("print('next', flush=True)")))
        wait_until(lambda: world.waiting("job") == 1, why="the next one to wait")
        # By then we have heard that our own token holds nothing, and our own deadline has passed.
        wait_until(lambda: held_for(locks) > 9, why="more than a ttl to pass")
        (holder,) = locks.holders("job")
        assert holder.pid == pid
        assert worker.running
        worker.write_line()
        assert worker.wait() == 7
        assert "tampered" not in worker.errors()
        assert next_.wait() == 0
        assert next_.lines == ["next"]


@MODES
def test_who_adopts_and_gives_back_before_we_hear_of_it_has_lost_nothing(world: World, mode: tuple[str, ...]) -> None:
    with contextlib.ExitStack() as stack:
        worker = stack.enter_context(world.run("job", *mode, "--", *python(HOLDS)))
        worker.wait_for("adopted")
        next_ = stack.enter_context(world.run("job", *after(mode), "--", *python("print('next', flush=True)")))
        wait_until(lambda: world.waiting("job") == 1, why="the next one to wait")
        worker.write_line()
        assert worker.wait() == 7
        assert worker.errors() == ""
        assert next_.wait() == 0
        assert next_.lines == ["next"]


def test_who_goes_on_after_giving_it_back_is_stopped(world: World) -> None:
    with impatient(world, "job", "--ttl", "6", "--", *python(GOES_ON)) as worker:
        group = int(worker.wait_for("adopted").split()[2])
        worker.write_line()
        assert worker.wait() == 76
        assert "released" in worker.lines
        assert f"the lease of 'job' was lost ({following.GIVEN_BACK}): the command was stopped" in worker.errors()
        assert group_is_gone(group)


def test_who_does_not_notice_that_it_was_lost_is_stopped(world: World, locks: library.Locks) -> None:
    deaf = ADOPTS + "time.sleep(60)"
    with impatient(world, "job", "--ttl", "6", "--", *python(deaf)) as worker:
        worker.wait_for("adopted")
        assert locks.break_lock("job", force=True) is not None
        with locks.lock("job", wait=10):
            assert worker.wait() == 76
        assert f"was lost ({following.GIVEN_BACK}): the command was stopped" in worker.errors()


def test_a_loss_of_what_was_adopted_may_be_ignored_too(world: World, locks: library.Locks) -> None:
    with impatient(world, "job", "--ttl", "6", "--on-lost", "ignore", "--", *python(GOES_ON)) as worker:
        worker.wait_for("adopted")
        worker.write_line()
        worker.wait_for("released")
        with locks.lock("job", wait=10):
            assert worker.running
            worker.signal(signal.SIGTERM)
            assert worker.wait() == 143


def fall_silent_after_adoption(world: World) -> bool:
    """Whether the command that has adopted its lease was ended before that lease."""
    with world.run("job", "--ttl", "6", "--", *python(ADOPTS + "time.sleep(60)")) as worker:
        group = int(worker.wait_for("adopted").split()[2])
        with library.Locks(world.server.url, namespace=world.namespace) as locks:
            wait_until(lambda: held_for(locks) > 6.5, why="the lease to be followed")
        wait_until(lambda: world.left("job") > 5.4, why="a renewal")
        left, looked = world.left("job"), time.monotonic()
        world.server.pause()
        wait_until(lambda: group_is_gone(group), 30, "the command to be ended")
        left -= time.monotonic() - looked
        world.server.resume()
        assert worker.wait() == 76
        return left > 0 and "not renewed in time" in worker.errors()


def test_a_silent_server_stops_who_has_adopted_the_lease_before_it_ends(own_world: World) -> None:
    # A fifth of a second is left for it: on a machine that stands still in that moment the round says nothing.
    assert any(fall_silent_after_adoption(own_world) for _ in range(5))


def test_the_longest_hold_counts_for_what_was_adopted(world: World) -> None:
    with world.run("job", "--max-hold", "8s", "--", *python(ADOPTS + "time.sleep(60)")) as worker:
        worker.wait_for("adopted")
        assert worker.wait() == 76
        assert "was held for 8 s, the longest that --max-hold allows" in worker.errors()


@MODES
def test_a_lease_is_followed_from_one_that_adopts_it_to_the_next(
    monkeypatch: pytest.MonkeyPatch, world: World, locks: library.Locks, mode: tuple[str, ...]
) -> None:
    monkeypatch.setattr(following, "ENOUGH_TO_END", 0.0)
    monkeypatch.setattr(following, "_LOOKS", 240)  # two a second, of a lease that no slow machine lets end
    ttl = 120.0
    lock = (
        locks.semaphore("job", 1, ttl=ttl)
        if "--limit" in mode
        else locks.lock("job", ttl=ttl, shared="--shared" in mode)
    )
    with library.Locks(world.server.url, namespace=world.namespace) as others, contextlib.ExitStack() as stack:
        lease = lock.acquire()
        followed = following.Followed(locks, lease)
        assert followed.lost is None
        assert followed.remaining() > 0
        text = lease.written()
        for _ in range(3):
            successor = others.adopt(text)
            text = successor.export()
        last = others.adopt(text)
        # Somebody else with the same fence, if the lock is shared: it must not be taken for ours.
        if "--shared" in mode:
            third = stack.enter_context(library.Locks(world.server.url, namespace=world.namespace))
            stack.enter_context(third.lock("job", shared=True, wait=10))
        renew_now(lease)
        wait_until(lambda: not lease.valid, why="us to hear that it is not ours any more")
        assert followed.lost is None
        assert followed.adopted
        wait_until(lambda: followed.remaining() > 1.5, why="its successor to be found")
        last.release()
        wait_until(lambda: followed.lost == following.GIVEN_BACK, why="its end to be seen")
        followed.finish()
        assert followed.lost == following.GIVEN_BACK
        wait_until(lambda: not following_threads(), why="the looking to end")


def test_a_lease_that_nobody_adopted_is_lost_when_its_key_is_deleted(world: World, locks: library.Locks) -> None:
    lease = locks.lock("job").acquire()
    followed = following.Followed(locks, lease)
    world.server.command("DEL", f"{world.namespace}:job")
    renew_now(lease)
    wait_until(lambda: followed.lost == "deleted", why="the loss to be seen")
    assert not followed.adopted
    followed.finish()
    assert followed.lost == "deleted"
