"""Whether a command line that a page shows would be understood."""

from __future__ import annotations

import importlib.util
import re
import shlex
import tomllib

import click

from tenure.cli.app import app
from tests.docs.pages import ROOT


def understood(words: list[str]) -> None:
    """Parse what follows `tenure`, options and their values included, without running it; raises a `UsageError`."""
    command: click.Command = app
    args = words
    # As a child of the group: a command keeps its help option as it is first asked for, and `-h` comes from the group.
    context = click.Context(app, **app.context_settings)
    while isinstance(command, click.Group):
        found = command.get_command(context, args[0]) if args else None
        assert found is not None, f"no command {args[:1]} in {' '.join(words)}"
        command, args = found, args[1:]
        context = click.Context(command, parent=context)
    command.make_context("tenure", list(args), parent=context.parent)


def check(line: str) -> None:
    """Fail if the line is no command that exists."""
    words = shlex.split(re.sub(r"^\w+=\$\((.*)\)$", r"\1", line))
    if words[0] == "tenure":
        understood(words[1:])
    elif words[1:2] == ["-m"] and words[0].endswith("python"):
        assert importlib.util.find_spec(words[2]), f"no module {words[2]}"
    elif words[0] == "make":
        assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
        for folder in re.findall(r"tests/\w+", line):
            assert (ROOT / folder).is_dir()
    elif words[:2] == ["pip", "install"]:
        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        extras = "|".join(project["optional-dependencies"])
        assert re.fullmatch(rf"tenure(\[({extras})(,({extras}))*\])?", words[2])
    else:
        assert words[0] == "ACL", f"nothing checks {line!r}"
