"""One server however many ask for it at once; it lives as long as any user does, and no longer."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import time
from typing import TYPE_CHECKING

import pytest

from tenure.errors import ServerUnavailable
from tests.embedded.world import PROC, alive, join, needs_proc, status, wait_until

if TYPE_CHECKING:
    from tests.embedded.world import World

CHURN = """
def churn(rounds, seed):
    import random, time
    from tenure.embedded.joining import probe
    draw = random.Random(seed)
    pids = []
    for _ in range(rounds):
        with join() as membership:
            time.sleep(draw.random() * 0.01)
            answer = probe(membership.path, time.monotonic() + 30)
            assert answer is not None and answer.pid == membership.server_pid, (answer, membership)
            pids.append(answer.pid)
        time.sleep(draw.random() * 0.01)
    return pids
"""

FORK = """
def fork(joins):
    child = os.fork()
    if child:
        return child
    os.close(control)
    answer = join().server_pid if joins else membership.server_pid
    os.write(report, f"{answer}{chr(10)}".encode())
    signal.pause()
"""


def test_sixteen_processes_that_start_at_once_get_one_server_in_every_round(world: World) -> None:
    members = [world.member() for _ in range(16)]
    for member in members:
        assert member.ask("'up'") == "up"
    seen: set[object] = set()
    for _ in range(3):
        for member in members:
            member.send("(membership := join()).server_pid")
        pids = {member.answer() for member in members}
        assert len(pids) == 1
        assert not pids & seen
        seen |= pids
        for member in members:
            member.send("membership.close()")
        assert [member.answer() for member in members] == [None] * 16
        world.wait_empty()


def test_joining_while_the_last_server_is_being_ended_gets_a_server_that_stays(world: World) -> None:
    members = [world.member(CHURN) for _ in range(4)]
    for seed, member in enumerate(members):
        member.send(f"churn(12, {seed})")
    turns = [member.answer() for member in members]
    assert all(isinstance(pids, list) for pids in turns), turns
    world.wait_empty()


def test_the_server_outlives_the_process_that_started_it(world: World) -> None:
    first, second = world.member(), world.member()
    pid = first.join()
    assert second.join() == pid
    first.kill()
    assert second.ask("status().pid") == pid
    assert world.member().join() == pid


@pytest.mark.parametrize("end", ["membership.close()", "globals().pop('membership') and None"])
def test_closing_or_dropping_the_last_membership_ends_everything(world: World, end: str) -> None:
    member = world.member()
    member.join()
    assert member.ask(end) is None
    world.wait_empty()
    assert not world.socket.exists()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_death_of_the_last_user_ends_everything(world: World, number: int) -> None:
    member = world.member()
    member.join()
    member.kill(number)
    world.wait_empty()
    assert not world.socket.exists()


def test_a_killed_server_is_replaced_at_the_same_address(world: World) -> None:
    with join() as before:
        reaper = world.reaper_of(before.server_pid)
        os.kill(before.server_pid, signal.SIGKILL)
        wait_until(lambda: not alive(reaper), "the dead server's reaper is gone")
        with join() as after:
            assert after.path == before.path
            assert after.server_pid != before.server_pid
        assert status().pid == after.server_pid, "the older membership keeps the new server alive too"
    world.wait_empty()


@needs_proc
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_no_server_is_left_without_its_reaper(world: World, number: int) -> None:
    with join() as membership:
        os.kill(world.reaper_of(membership.server_pid), number)
        world.wait_empty()
        with join() as again:
            assert again.server_pid != membership.server_pid


def test_a_starter_killed_half_way_does_not_lead_to_a_second_server(world: World) -> None:
    gate = world.runtime / "gate"
    slow = world.fake_server(f'while [ ! -e {gate} ]; do sleep 0.02; done; exec "$REAL" "$@"')
    starter = world.member(
        "from tenure.embedded import joining\n"
        f"slow = {str(slow)!r}\n"
        "text = open(slow).read().replace('$REAL', joining.find_server())\n"
        "open(slow, 'w').write(text)\n"
        "joining.find_server = lambda: slow\n"
    )
    starter.send("join().server_pid")
    wait_until(
        lambda: any(str(slow) in p.arguments and p.arguments.startswith("/bin/sh") for p in world.own()), "started"
    )
    shells = {p.pid: p.parent for p in world.own() if p.arguments.startswith("/bin/sh")}
    # Not its fork, which looks like it until it has become `sleep`.
    (half_started,) = [pid for pid, parent in shells.items() if parent not in shells]
    starter.kill()
    assert not status().running
    second = world.member()
    second.send("(membership := join()).server_pid")
    wait_until(lambda: _is_in_use(world), "the second process waits for the server")
    gate.touch()
    assert second.answer() == half_started


def _is_in_use(world: World) -> bool:
    fd = os.open(world.directory, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def test_a_start_that_nobody_waits_for_any_more_leaves_nothing(world: World) -> None:
    starter = world.member()
    starter.send("join().server_pid")
    wait_until(world.own, "the reaper has been started")
    starter.kill()
    world.wait_empty()


def test_a_hung_server_is_reported_and_gets_no_second_one_beside_it(world: World) -> None:
    with join() as membership:
        os.kill(membership.server_pid, signal.SIGSTOP)
        try:
            with pytest.raises(ServerUnavailable, match="does not answer"):
                join(timeout=1.0)
            assert len(world.own()) == 2
        finally:
            os.kill(membership.server_pid, signal.SIGCONT)
        with join() as again:
            assert again.server_pid == membership.server_pid


@pytest.mark.parametrize("kind", ["socket", "file"])
def test_what_a_crash_left_at_the_address_is_harmless(world: World, kind: str) -> None:
    with join():
        pass
    world.wait_empty()
    if kind == "socket":
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(world.socket))
    else:
        world.socket.touch()
    assert not status().running
    with join() as membership:
        assert alive(membership.server_pid)


def test_the_server_lives_until_parent_and_fork_have_both_gone(world: World) -> None:
    parent = world.member(FORK)
    pid = parent.join()
    parent.send("fork(joins=False)")
    answers = {parent.answer(), parent.answer()}
    (child,) = answers - {pid}
    assert isinstance(child, int)
    world.end_later(child)
    assert parent.ask("membership.close()") is None
    parent.kill()
    assert world.member().join() == pid
    os.kill(child, signal.SIGKILL)
    wait_until(lambda: not alive(child), "the fork is gone")


def test_a_fork_of_a_member_can_join_anew(world: World) -> None:
    parent = world.member(FORK)
    pid = parent.join()
    parent.send("fork(joins=True)")
    answers = {parent.answer(), parent.answer()}
    (child,) = answers - {pid}
    assert isinstance(child, int)
    world.end_later(child)
    parent.kill()
    assert status().pid == pid
    os.kill(child, signal.SIGKILL)
    world.wait_empty()


def test_a_program_that_a_member_runs_does_not_keep_the_server(world: World) -> None:
    member = world.member("import subprocess")
    member.join()
    child = member.ask("(child := subprocess.Popen(['sleep', '60'], close_fds=False)).pid")
    assert isinstance(child, int)
    world.end_later(child)
    member.kill()
    world.wait_empty()
    assert alive(child)


@needs_proc
def test_the_reaper_sleeps_in_the_kernel_instead_of_polling(world: World) -> None:
    with join() as membership:
        status_file = PROC / str(world.reaper_of(membership.server_pid)) / "status"

        def switches() -> str:
            with status_file.open() as lines:
                return next(line for line in lines if line.startswith("voluntary_ctxt_switches"))

        def sleeps() -> bool:
            before = switches()
            time.sleep(0.3)  # whoever polls wakes up within that time
            return switches() == before

        wait_until(sleeps, "the reaper has gone to sleep")
