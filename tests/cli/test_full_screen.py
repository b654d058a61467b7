"""Full-screen programs under `tenure run`, and `tenure top` and `break`, at a terminal."""

from __future__ import annotations

import curses
import shlex
import shutil
import sys
from typing import TYPE_CHECKING

import pytest

import tenure as library
from tests.cli.commands import python
from tests.cli.terminals import Terminal
from tests.harness.leases import wait_for_inbox
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from tests.cli.commands import World

_SCREEN = """
import curses, sys
def main(screen):
    screen.addstr(0, 0, "ready")
    screen.refresh()
    while True:
        key = screen.getch()
        screen.clear()
        if key == ord("q"):
            return
        text = "x".join(map(str, screen.getmaxyx())) if key == curses.KEY_RESIZE else f"key{key}"
        screen.addstr(0, 0, text)
        screen.refresh()
curses.wrapper(main)
sys.exit(5)
"""


def command(*arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "tenure", *arguments)


def needs_terminfo() -> None:
    try:
        curses.setupterm("xterm", 1)
    except curses.error:
        pytest.skip("this machine does not know the terminal `xterm`")


def test_a_full_screen_program_gets_keys_ctrl_c_and_the_size_of_the_terminal(world: World) -> None:
    needs_terminfo()
    raw = _SCREEN.replace("def main(screen):\n", "def main(screen):\n    curses.raw()\n")
    with Terminal(command("run", "job", "--", *python(raw)), env=world.env) as terminal:
        terminal.resize(24, 80)
        terminal.wait_for("ready")
        terminal.type("a")
        terminal.wait_for("key97")
        terminal.resize(30, 100)
        terminal.type("b")  # for curses may have looked for a new size just before it came
        terminal.wait_for("30x100")
        terminal.type("\x03")
        terminal.wait_for("key3")
        assert world.held("job")
        terminal.type("q")
        terminal.wait_for("shell: ended with 5")
    assert not world.held("job")


@pytest.mark.skipif(shutil.which("less") is None, reason="no `less` on this machine")
def test_a_pager_at_the_end_of_a_pipe_reads_its_keys_from_the_terminal(world: World) -> None:
    pipe = f"seq 1000 2000 | {shlex.join(command('run', 'job', '--', 'less'))}"
    with Terminal(("/bin/sh", "-c", pipe), env={**world.env, "LESS": "", "LESSOPEN": ""}) as terminal:
        terminal.resize(10, 60)
        terminal.wait_for("1005")
        terminal.type("G")
        terminal.wait_for("2000")
        terminal.type("q")
        terminal.wait_for("shell: ended with 0")


def test_top_is_drawn_again_and_ends_on_q(world: World) -> None:
    with library.Locks(world.server.url, namespace=world.namespace) as locks:
        first = locks.lock("first", info="[red]not markup[/]").acquire()
        with Terminal(command("top", "--interval", "100ms"), env={**world.env, "PYTHONUTF8": "1"}) as terminal:
            terminal.resize(20, 160)
            terminal.wait_for("1 held")
            terminal.wait_for("first")
            terminal.wait_for("[red]not markup[/]")
            terminal.wait_for("q ends")
            second = locks.lock("second").acquire()
            terminal.wait_for("2 held")
            terminal.wait_for("second")
            terminal.type("q")
            terminal.wait_for("shell: ended with 0")
        first.release()
        second.release()


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 1)])
def test_break_shows_the_holder_and_asks(world: World, answer: str, code: int) -> None:
    with library.Locks(world.server.url, namespace=world.namespace) as locks:
        locks.lock("another").acquire().release()
        wait_for_inbox(locks)
        lease = locks.lock("job", info="counting").acquire()
        with Terminal(command("break", "job"), env=world.env) as terminal:
            terminal.wait_for("for counting")
            terminal.wait_for("Break it?")
            terminal.type(answer)
            terminal.wait_for(f"shell: ended with {code}")
        if code == 0:
            wait_until(lambda: lease.lost == "revoked", why="the holder to be told")
        else:
            assert lease.valid
        lease.release()
