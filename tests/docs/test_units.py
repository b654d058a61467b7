"""What pages show besides Python: shell, crontabs, units of systemd and manifests of Kubernetes can be read."""

from __future__ import annotations

import configparser
import re
import shlex
import subprocess
from typing import TYPE_CHECKING, Any, cast

import pytest
import yaml

from tests.docs.commands import check, understood
from tests.docs.pages import ROOT, blocks, pages, title

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.docs.pages import Block

HOWTO = ROOT / "docs" / "howto"
CHECKED = {"python", "console", "sh", "ini", "yaml", "text", ""}
"""`text` and blocks without a language are for people alone, but for crontabs."""


def every(language: str) -> list[Any]:
    """Each block of a language, with a name for its test."""
    return [
        pytest.param(block, id=f"{title(page)}:{block.line}") for page in pages() for block in blocks(page, language)
    ]


@pytest.mark.parametrize("page", pages(), ids=title)
def test_every_block_is_of_a_language_that_is_checked(page: Path) -> None:
    assert set(re.findall(r"^ *```(\w+)", page.read_text(encoding="utf-8"), re.MULTILINE)) <= CHECKED


@pytest.mark.parametrize("block", every("sh"))
def test_shell_can_be_parsed(block: Block) -> None:
    done = subprocess.run(["sh", "-n"], input=block.text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert re.search(r"\btenure run\b|\bTENURE_", block.text)
    for words in commands_in(block.text):
        understood(words)


def commands_in(script: str) -> Iterator[list[str]]:
    """What follows each `tenure` of a script, up to the end of its command."""
    lexer = shlex.shlex(script.replace("\\\n", " "), posix=True, punctuation_chars=True)
    lexer.whitespace = " \t"  # the end of a line is a word of its own, and ends a command
    words = list(lexer)
    for number, word in enumerate(words):
        if word == "tenure":
            rest = words[number + 1 :]
            ends = [at for at, other in enumerate(rest) if other and set(other) <= set("|&;()<>\n")]
            yield rest[: ends[0]] if ends else rest


def test_the_crontab_has_commands_that_exist() -> None:
    (crontab,) = blocks(HOWTO / "cron-and-systemd.md", "text")
    jobs = [line for line in crontab.text.splitlines() if not re.match(r"#|[A-Z_]+=", line)]
    assert len(jobs) > 1
    for job in jobs:
        match = re.fullmatch(r"(?:[\d*/]+\s+){5}(tenure .*)", job)
        assert match, job
        check(match[1])


@pytest.mark.parametrize("block", every("ini"))
def test_a_unit_can_be_read(block: Block) -> None:
    unit = configparser.ConfigParser(strict=True, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(block.text)
    assert set(unit.sections()) <= {"Unit", "Service", "Install", "Timer"}
    program, *words = shlex.split(unit["Service"]["ExecStart"])
    assert program.endswith("/tenure")
    understood(words)
    assert "TENURE_URL_FILE=" in unit["Service"]["Environment"]


@pytest.mark.parametrize("block", every("yaml"))
def test_a_manifest_can_be_read_and_its_commands_exist(block: Block) -> None:
    manifests = [manifest for manifest in yaml.safe_load_all(block.text) if manifest]
    for manifest in manifests:
        assert {"apiVersion", "kind", "metadata"} <= set(manifest)
    found = list(containers(manifests))
    assert found
    for container in found:
        assert container["command"][0] == "tenure"
        understood(container["command"][1:])
        variables = {entry["name"] for entry in container["env"]}
        # Pods with a server of their own each would exclude nobody.
        assert "TENURE_EMBEDDED" in variables
        assert variables & {"TENURE_URL", "TENURE_URL_FILE"}


def containers(node: object) -> Iterator[dict[str, Any]]:
    """Every container in manifests, however deep."""
    if isinstance(node, dict):
        for key, value in cast("dict[str, Any]", node).items():
            if key == "containers":
                yield from value
            else:
                yield from containers(value)
    elif isinstance(node, list):
        for value in cast("list[Any]", node):
            yield from containers(value)
