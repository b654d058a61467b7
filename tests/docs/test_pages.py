"""What the pages refer to exists: links, files, commands, options, extras, numbers, fields."""

from __future__ import annotations

import importlib
import re
from typing import TYPE_CHECKING

import pytest

import tenure
from tenure.core.scripts import PARTS, TOKEN_WIDTH
from tests.docs.commands import check
from tests.docs.pages import ROOT, blocks, code, links, pages, prose, rows, title

if TYPE_CHECKING:
    from pathlib import Path

    from tests.harness.servers import Server

LINES = [
    (page, line.partition("  #")[0].strip())
    for page in pages()
    for block in blocks(page, "console")
    for line in block.text.splitlines()
    if line.strip()
]
RECORDS = sorted((ROOT / "docs" / "adr").glob("0*.md"))


@pytest.mark.parametrize("page", pages(), ids=title)
def test_links_lead_somewhere(page: Path) -> None:
    for target in links(page):
        path = page.parent / target.partition("#")[0]
        assert path.exists(), f"{title(page)} leads to {target}"


def test_every_page_is_reached_from_the_readme() -> None:
    reached, todo = set[str](), [ROOT / "README.md"]
    while todo:
        page = todo.pop()
        if title(page) in reached:
            continue
        reached.add(title(page))
        found = [(page.parent / target.partition("#")[0]).resolve() for target in links(page)]
        todo += [other for path in found for other in (path.glob("*.md") if path.is_dir() else [path])]
    assert {title(page) for page in pages()} <= reached


@pytest.mark.parametrize("page", [ROOT / "ARCHITECTURE.md", *RECORDS], ids=title)
def test_files_that_are_named_exist(page: Path) -> None:
    named = re.findall(r"`((?:[\w-]+/)+[\w.-]*|[\w-]+\.(?:py|lua))`", prose(page))
    missing = [name for name in named if not any((ROOT / base / name).exists() for base in ("", "src/tenure", "tests"))]
    assert not missing


def test_every_module_of_the_layers_is_introduced() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    for folder in ("core", "runtime"):
        modules = {path.name for path in (ROOT / "src/tenure" / folder).glob("*.py") if path.stem != "__init__"}
        small = {"backoff.py", "keys.py", "server_time.py", "clock.py"}
        assert not {name for name in modules - small if f"`{folder}/{name}`" not in text}


def test_every_folder_of_tests_is_introduced() -> None:
    listed = {code(row[0]) for row in rows(ROOT / "docs" / "testing.md", "## Folders")}
    assert {f"tests/{path.parent.name}" for path in (ROOT / "tests").glob("*/*.py")} <= listed


@pytest.mark.parametrize(("page", "line"), LINES, ids=[f"{title(page)}-{line}" for page, line in LINES])
def test_commands_exist(page: Path, line: str) -> None:
    check(line)


def test_numbers_are_those_of_the_code() -> None:
    for _what, value, origin in rows(ROOT / "docs" / "limits.md", "## Numbers"):
        module, _, constant = code(origin).rpartition(".")
        assert float(value.split()[0]) == getattr(importlib.import_module(module), constant), origin


def test_exit_codes_are_those_of_the_command() -> None:
    text = prose(ROOT / "README.md")
    run = importlib.import_module("tenure.cli.run")
    for number, words in ((run.BUSY, "holds the lock"), (run.LOST, "lease was lost"), (run.NO_SERVER, "usable server")):
        assert re.search(rf"{number} [^,.]*{words}", text)


def test_the_protocol_names_every_script_and_answer() -> None:
    text = (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8")
    for script in (ROOT / "src/tenure/core/lua").glob("*.lua"):
        if script.stem in PARTS:
            continue
        assert f"\n| {script.stem}" in text
        source = script.read_text(encoding="utf-8")
        answers = re.findall(r"(?:return|answer =) \{?(?:ARGV\[1\], now, )?\{?'([a-z]{4,})'", source)
        assert {answer for answer in answers if f"`{answer}`" not in text} == set()
    assert f"{TOKEN_WIDTH} hex digits" in text


def test_keys_are_as_the_protocol_says(private_server: Server) -> None:
    with tenure.Locks(private_server.url) as locks, tenure.Locks(private_server.url) as others, locks.lock("n"):
        with pytest.raises(tenure.NotAcquired):
            others.lock("n", wait=0.05).acquire()
        ask = private_server.command
        types = {key.decode(): ask("TYPE", key).decode() for key in ask("KEYS", "*")}
    listed = {code(row[0]).replace("K", "tenure:n"): row[1] for row in rows(ROOT / "docs/protocol.md", "## Keys")}
    assert types.items() <= listed.items()
    assert {"tenure:n", "{tenure:n}:fence"} <= set(types)


@pytest.mark.parametrize("record", RECORDS, ids=title)
def test_a_record_is_short_and_complete(record: Path) -> None:
    text = record.read_text(encoding="utf-8")
    assert re.match(rf"# {record.name[:4]}: \w", text)
    assert re.findall(r"^## (\w+)$", text, re.MULTILINE) == ["Context", "Decision", "Consequences"]
    assert len(text.split()) < 350


def test_every_record_is_listed() -> None:
    assert links(ROOT / "docs" / "adr" / "index.md") == [record.name for record in RECORDS]


def test_records_are_numbered_without_a_gap() -> None:
    assert [record.name[:4] for record in RECORDS] == [f"{number:04}" for number in range(1, len(RECORDS) + 1)]


@pytest.mark.parametrize("page", pages(), ids=title)
def test_words_that_a_lease_cannot_keep_are_not_used(page: Path) -> None:
    text = re.sub(r"`[^`]*`", "", prose(page))
    assert not re.search(r"\b(guarantee\w*|exactly[- ]once|proven|safe|safely|bullet-?proof)\b", text, re.IGNORECASE)
