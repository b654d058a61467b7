"""docs/cli.md says what the command does: its options, exit codes and JSON are those of the code."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import click
import pytest
from click.testing import CliRunner

import tenure as library
from tenure.cli import report, run, server, steer
from tenure.cli.app import app
from tests.docs.pages import ROOT, code, rows

if TYPE_CHECKING:
    from tests.cli.commands import World

PAGE = ROOT / "docs" / "cli.md"
COMMON = {"--url", "--namespace"}
STEPS = ("renew", "release")
_TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "object": dict,
    "list": list,
    "null": type(None),
}


def options(command: click.Command) -> set[str]:
    """The options of a command that its help shows, by their long names."""
    parameters = [parameter for parameter in command.params if isinstance(parameter, click.Option)]
    return {max(option.opts, key=len) for option in parameters if not option.hidden}


def listed(heading: str, column: int = 0) -> set[str]:
    """What the page lists in backticks under a heading."""
    return {code(row[column]) for row in rows(PAGE, heading) if row[column].startswith("`--")}


def test_every_command_has_a_place_on_the_page() -> None:
    text = PAGE.read_text(encoding="utf-8")
    headings = " ".join(re.findall(r"^## (.*)$", text, re.MULTILINE)).split()
    assert set(app.commands) <= set(headings)


@pytest.mark.parametrize("name", ["run", "acquire", "renew", "release", "ls", "show", "top", "watch", "ask", "break"])
def test_the_options_of_a_command_are_those_that_it_has(name: str) -> None:
    assert listed(f"## {name}") == options(app.commands[name]) - COMMON
    # A lease that was written down knows its namespace.
    assert options(app.commands[name]) & COMMON == (COMMON if name not in STEPS else {"--url"})


def test_the_options_of_the_others_are_those_that_they_have() -> None:
    assert listed("## Which server") == COMMON
    assert listed("## doctor and demo") == options(app.commands["demo"]) - COMMON
    group = app.commands["server"]
    assert isinstance(group, click.Group)
    table = {(code(row[0]), code(row[1])) for row in rows(PAGE, "## server")}
    assert table == {(name, option) for name, command in group.commands.items() for option in options(command)}


@pytest.mark.parametrize("name", ["run", "acquire", "top", "watch", "demo"])
def test_defaults_are_those_of_the_command(name: str) -> None:
    heading = "## doctor and demo" if name == "demo" else f"## {name}"
    described = {code(row[0]): row[1] for row in rows(PAGE, heading)}
    for parameter in app.commands[name].params:
        if not isinstance(parameter, click.Option) or not parameter.show_default:
            continue
        default = parameter.default
        assert re.search(rf"\(`?{re.escape(str(default))}`?( s)?\)$", described[max(parameter.opts, key=len)]), (
            parameter
        )


def test_exit_codes_are_those_of_the_code() -> None:
    table = {row[0]: row[1] for row in rows(PAGE, "### Exit codes of run")}
    assert table[str(run.BUSY)].startswith("busy")
    assert table[str(run.LOST)].startswith("the lease was lost")
    assert table[str(run.NO_SERVER)].startswith("no usable server")
    assert table[str(run.USAGE)].startswith("wrong usage")
    assert {"126", "127", "128 + n", "1", "COMMAND's own"} <= set(table)
    codes = {row[0] for row in rows(PAGE, "## break")}
    assert {"0", str(steer.NOT_BROKEN), str(report.NO_SERVER), str(report.USAGE)} <= codes
    asked = {row[0]: row[1] for row in rows(PAGE, "## ask")}
    assert asked[str(steer.NOBODY)].startswith("nobody holds it")
    assert asked[str(steer.UNHEARD)].startswith("somebody holds it, and nobody heard")
    assert str(run.BUSY) in {row[0] for row in rows(PAGE, "## acquire")}
    for name in STEPS:
        assert str(run.LOST) in {row[0] for row in rows(PAGE, f"## {name}")}
    assert f"exit code {server.NOT_RUNNING} if it does not run" in rows(PAGE, "## server")[0][2]


@pytest.mark.parametrize("name", ["run", "acquire", "renew", "release", "ask", "break"])
def test_the_help_names_the_same_exit_codes_as_the_page(name: str) -> None:
    text = CliRunner().invoke(app, [name, "--help"]).stdout
    helped = set(re.findall(r"^ +(\d+)(?:\+n)? {2,}\S", text, re.MULTILINE))
    heading = "### Exit codes of run" if name == "run" else f"## {name}"
    page = {found[0] for row in rows(PAGE, heading) if (found := re.match(r"\d+", row[0]))}
    assert helped
    assert page - helped <= {"1"}
    assert helped <= page


# JSON


def described(value: dict[str, Any], heading: str, *more: str) -> None:
    """Fail unless an object has the fields of a table, with their types."""
    table = {code(row[0]): row[1] for row in rows(PAGE, heading)}
    assert set(value) == set(table) | set(more)
    for name, types in table.items():
        allowed = [_TYPES[word] for word in re.findall(r"\w+", types) if word != "or"]
        assert any(isinstance(value[name], kind) for kind in allowed), (name, value[name], types)


def test_json_has_the_fields_of_the_page(world: World) -> None:
    def ask(*arguments: str) -> Any:  # noqa: ANN401 - JSON
        return json.loads(CliRunner().invoke(app, [*arguments, "--json"], env=world.env).stdout)

    with library.Locks(world.server.url, namespace=world.namespace) as locks:
        locks.holder("job")
        lease = locks.lock("job").acquire()
        world.server.command("SET", f"{world.namespace}:other", "foreign", "PX", "60000")
        ours, foreign = ask("ls")
        described(ours, "### A holder")
        described(foreign, "### A holder")
        described(ask("show", "job"), "### show as JSON")
        top = ask("top", "--once")
        described(top, "### top as JSON")
        described(top["locks"][0], "### A holder", "waiting")
        described(ask("ask", "job"), "### ask as JSON")
        described(ask("acquire", "third"), "### acquire as JSON")
        described(ask("break", "job", "--yes"), "### break as JSON")
        lease.release()
    described(ask("server", "status"), "### server status as JSON")


def test_json_of_waiters_has_the_fields_of_the_page(world: World) -> None:
    waiter = library.Waiter("job", 0, "0" * 8, "host", 1, "program", None, None, report.datetime.now(report.UTC))
    found = report.as_dict(waiter)
    assert found is not None
    described(json.loads(json.dumps(found)), "### A waiter")


def test_json_of_watch_has_the_fields_of_the_page(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def enough(_: float) -> None:
        raise RuntimeError

    monkeypatch.setattr("tenure.cli.look.time.sleep", enough)
    result = CliRunner().invoke(app, ["watch", "job", "--json"], env=world.env)
    described(json.loads(result.stdout), "### watch as JSON")
