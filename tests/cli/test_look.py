"""`tenure ls`, `show`, `top` and `watch`."""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import re
import secrets
import signal
from typing import TYPE_CHECKING

import click
import pytest
from click.testing import CliRunner

import tenure as library
from tenure.cli import look, top
from tenure.cli.app import app
from tenure.core.scripts import TOKEN_WIDTH
from tests.cli.commands import tenure
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from click.testing import Result

    from tests.cli.commands import World


@pytest.fixture
def locks(world: World) -> Iterator[library.Locks]:
    with library.Locks(world.server.url, namespace=world.namespace, identity="blue") as found:
        yield found


def ask(world: World, *arguments: str) -> Result:
    result = CliRunner().invoke(app, [*arguments], env=world.env)
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result


@contextlib.contextmanager
def somebody_waits(world: World, name: str, count: int) -> Generator[None]:
    """So many others wait for a lock meanwhile, each after the one before; they get it at the end."""
    with concurrent.futures.ThreadPoolExecutor(count) as pool, contextlib.ExitStack() as stack:

        def wait(lock: library.Lock) -> None:
            lock.acquire().release()

        done: list[concurrent.futures.Future[None]] = []
        for number in range(count):
            others = stack.enter_context(library.Locks(world.server.url, namespace=world.namespace))
            lock = others.lock(name, info={"number": number}, wait=60)
            done.append(pool.submit(wait, lock))
            wait_until(lambda number=number: world.waiting(name) == number + 1, why="somebody to wait")
        yield
        for future in done:
            future.result(30)


def foreign(world: World, name: str) -> None:
    world.server.command("SET", f"{world.namespace}:{name}", "of another library", "PX", "60000")


def ours(world: World, name: str, told: dict[str, object]) -> None:
    """A lease of somebody who speaks our protocol and says of itself what it likes."""
    value = f"tenure1:{secrets.token_hex(TOKEN_WIDTH)[:TOKEN_WIDTH]} 17 1700000000000 - {json.dumps(told)}"
    world.server.command("SET", f"{world.namespace}:{name}", value, "PX", "60000")


# ls


def test_ls_lists_what_is_held_by_name(world: World, locks: library.Locks) -> None:
    with locks.lock("b:2", info="counting") as lease, locks.lock("b:1"), locks.lock("a"):
        foreign(world, "b:3")
        result = ask(world, "ls", "b:")
        head, *rows = result.stdout.splitlines()
        assert head.split() == ["lock", "holder", "held", "for", "ends", "in", "fence", "for"]
        assert [row.split()[0] for row in rows] == ["b:1", "b:2", "b:3"]
        assert re.search(rf"\(pid \d+ on \S+\), blue .* {lease.fence} +counting$", rows[1])
        assert "a client of another library" in rows[2]
        assert (result.exit_code, result.stderr) == (0, "")
        assert len(ask(world, "ls").stdout.splitlines()) == 5


def test_ls_says_where_it_looked_when_there_is_nothing(world: World) -> None:
    result = ask(world, "ls", "x")
    assert result.stdout == ""
    assert f"nobody holds a lock that begins with 'x' in namespace '{world.namespace}' of 127.0.0.1:" in result.stderr
    assert ask(world, "ls", "--json").stdout == "[]\n"


def test_what_others_have_written_cannot_steer_a_terminal_or_pass_for_markup(world: World) -> None:
    ours(world, "job", {"h": "\x1b[2Jhost", "p": 1, "g": "[red]program[/]", "n": {"a\x9b": "b\nc", "d": None}})
    for arguments in (["ls"], ["show", "job"], ["top", "--once"]):
        text = ask(world, *arguments).output
        assert r"\x1b[2Jhost" in text
        assert "[red]program[/]" in text
        assert r"a\x9b=b\nc d=None" in text
        assert all(line.isprintable() for line in text.splitlines()), text
    text = ask(world, "ls", "--json").stdout
    assert text.isascii()
    assert json.loads(text)[0]["host"] == "\x1b[2Jhost"


def test_names_that_are_no_text_and_keys_that_are_no_locks_are_shown_too(world: World, locks: library.Locks) -> None:
    odd = "na\udcffme"  # how Python hands us the bytes of an argument that are no UTF-8
    with locks.lock(b"na\xffme") as lease:
        foreign(world, "line\nbreak")
        seen = json.loads(ask(world, "top", "--once", "--json").stdout)
        assert {row["name"]: row["waiting"] for row in seen["locks"]} == {odd: 0, "line\nbreak": 0}
        assert json.loads(ask(world, "show", odd, "--json").stdout)["holder"]["fence"] == lease.fence
        assert f"fence {lease.fence}" in ask(world, "break", odd).stderr


# show


def test_show_tells_all_about_the_holder_and_who_waits_in_order(world: World, locks: library.Locks) -> None:
    lease = locks.lock("job", info="counting").acquire()
    with somebody_waits(world, "job", 2):
        text = ask(world, "show", "job").stdout
        shown = json.loads(ask(world, "show", "job", "--json").stdout)
        holder = locks.holder("job")
        lease.release()
    facts = dict(re.findall(r"^(\w[\w ]+?)  +(.*)$", text, re.MULTILINE))
    assert holder is not None
    assert facts["lock"] == "job"
    assert facts["holder"] == str(holder)
    assert facts["for"] == "counting"
    assert facts["fence"] == str(lease.fence)
    assert facts["id"] == holder.id
    assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \(\d+ m?s\)", facts["since"])
    assert re.match(r"\d+ s unless renewed", facts["ends in"])
    assert facts["waiting"] == "2"
    assert re.findall(r"^ +(\d)\. .* for number=(\d), waits since ", text, re.MULTILINE) == [("1", "0"), ("2", "1")]
    assert shown["holder"]["fence"] == lease.fence
    assert [waiter["info"] for waiter in shown["waiters"]] == [{"number": 0}, {"number": 1}]


def test_show_of_a_lock_that_nobody_holds_or_that_another_library_holds(world: World) -> None:
    free = ask(world, "show", "job")
    assert free.exit_code == 0
    assert "holder   nobody" in free.stdout
    assert f"in namespace '{world.namespace}' of 127.0.0.1" in free.stderr
    nothing: dict[str, object] = {"name": "job", "holder": None, "holders": [], "waiters": [], "deadlocks": []}
    assert json.loads(ask(world, "show", "job", "--json").stdout) == nothing
    foreign(world, "job")
    assert "holder   a client of another library" in ask(world, "show", "job").stdout
    world.server.command("PERSIST", f"{world.namespace}:job")
    assert "ends in  never by itself" in ask(world, "show", "job").stdout
    world.server.command("DEL", f"{world.namespace}:job")


def test_a_key_that_is_no_lock_is_told(world: World) -> None:
    world.server.command("LPUSH", f"{world.namespace}:job", "x")
    world.server.command("PEXPIRE", f"{world.namespace}:job", "60000")
    result = ask(world, "show", "job")
    assert result.exit_code == 2
    assert "list" in result.stderr


# watch


def test_watch_prints_a_line_whenever_the_lock_changes_hands(world: World, locks: library.Locks) -> None:
    options = ("job", "--interval", "100ms")
    with tenure("watch", *options, env=world.env) as lines, tenure("watch", *options, "--json", env=world.env) as json_:
        assert lines.read_line().endswith("  free")
        assert json.loads(json_.read_line())["holder"] is None
        for _ in range(2):
            lease = locks.lock("job", info="counting").acquire()
            assert re.match(rf"\d{{4}}-.*  held by .* for counting, .* fence {lease.fence}$", lines.read_line())
            assert json.loads(json_.read_line())["holder"]["fence"] == lease.fence
            lease.release()
            assert lines.read_line().endswith("  free")
            assert json.loads(json_.read_line())["holder"] is None
        for worker, number, code in ((lines, signal.SIGINT, 0), (json_, signal.SIGTERM, 143)):
            worker.signal(number)
            assert worker.wait() == code
            assert worker.errors() == ""


def test_the_pauses_between_looks_grow_to_the_longest_and_start_anew_with_a_change(
    monkeypatch: pytest.MonkeyPatch, world: World, locks: library.Locks
) -> None:
    pauses: list[float] = []
    lease = locks.lock("job").acquire()

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 12:
            lease.release()

    monkeypatch.setattr(look.time, "sleep", sleep)
    changes = look._changes(locks, "job", 1.0)
    assert [holder.fence for holder in next(changes)] == [lease.fence]
    assert next(changes) == []
    monkeypatch.undo()
    assert pauses[0] == look.SHORTEST_PAUSE
    assert pauses[:8] == sorted(pauses[:8])
    assert pauses[8:12] == [1.0] * 4


def test_a_pause_that_is_too_short_is_refused(world: World) -> None:
    result = ask(world, "watch", "job", "--interval", "10ms")
    assert result.exit_code == 2
    assert "too often" in result.stderr


# top


def test_top_shows_who_waits_first_those_held_longest(world: World, locks: library.Locks) -> None:
    leases = [locks.lock(name, ttl=ttl).acquire() for name, ttl in (("z", 10), ("y", 30), ("x", 20))]
    foreign(world, "f")
    with somebody_waits(world, "y", 1):
        orders = {
            sort: [row.split()[0] for row in ask(world, "top", "--once", "--sort", sort).stdout.splitlines()[3:] if row]
            for sort in ("held", "ends", "name")
        }
        few = ask(world, "top", "--once", "--limit", "2").stdout
        seen = json.loads(ask(world, "top", "--once", "--json").stdout)
        for lease in leases:
            lease.release()
    assert orders == {
        "held": ["z", "y", "x", "f"],
        "ends": ["z", "x", "y", "f"],
        "name": ["f", "x", "y", "z"],
    }
    assert "4 held, 2 shown" in few
    assert len([row for row in few.splitlines()[3:] if row]) == 2
    assert seen["total"] == 4
    assert {row["name"]: row["waiting"] for row in seen["locks"]} == {"z": 0, "y": 1, "x": 0, "f": 0}


def test_top_without_a_terminal_prints_one_table_after_the_other_until_ctrl_c(
    world: World, locks: library.Locks
) -> None:
    with tenure("top", "--interval", "100ms", env=world.env) as worker:
        assert " 0 held " in worker.read_line()
        with locks.lock("job"):
            wait_until(lambda: worker.read_line().startswith("job "), why="the lock to be shown")
        worker.wait_for("20")
        worker.signal(signal.SIGINT)
        assert worker.wait() == 0
        assert worker.errors() == ""
        assert "\x1b" not in "".join(worker.lines)


def test_a_server_that_tells_slowly_is_asked_less_often(monkeypatch: pytest.MonkeyPatch, locks: library.Locks) -> None:
    now = 0.0
    pauses: list[float] = []

    def look_for_long(*_: object) -> top.Seen:
        nonlocal now
        now += 2.0
        return top.Seen(top.datetime.now(top.UTC), "somewhere", 0, [], {}, [])

    def pressed(_keys: object, within: float) -> bool:
        pauses.append(within)
        return True

    monkeypatch.setattr(top.time, "monotonic", lambda: now)
    monkeypatch.setattr(top, "_look", look_for_long)
    monkeypatch.setattr(top._Keys, "pressed_q", pressed)
    top.top(locks, top.Wish("", 1.0, "held", None, once=False, as_json=True))
    assert pauses == [8.0]


def test_every_command_that_looks_or_steers_can_answer_in_json() -> None:
    group = app.commands["server"]
    assert isinstance(group, click.Group)
    commands = [app.commands[name] for name in ("ls", "show", "top", "watch", "break")] + list(group.commands.values())
    for command in commands:
        assert any("--json" in parameter.opts for parameter in command.params), command.name
