"""Reading the documentation: its pages, their code blocks, tables and links."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]

_FENCE = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]\n]+\]\(([^)\s]+)\)")


class Block(NamedTuple):
    """A fenced block of a page."""

    language: str
    text: str
    line: int
    """The number of its first line of code in the page."""


def pages() -> list[Path]:
    """Every page that a reader is led to."""
    return [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").rglob("*.md"))]


def title(page: Path) -> str:
    """How a page is called in test ids."""
    return str(page.relative_to(ROOT))


def blocks(page: Path, language: str) -> list[Block]:
    """The page's fenced blocks in one language."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(found[2], textwrap.dedent(found[3]), text.count("\n", 0, found.start()) + 2)
        for found in _FENCE.finditer(text)
        if found[2] == language
    ]


def prose(page: Path) -> str:
    """The page without its code blocks."""
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def links(page: Path) -> list[str]:
    """Where the page points to within this repository."""
    return [target for target in _LINK.findall(prose(page)) if "://" not in target]


def rows(page: Path, heading: str) -> list[list[str]]:
    """The cells of the tables under a heading (with its hashes), without the tables' heads."""
    section = re.split(r"^#+ ", f"\n{prose(page)}".split(f"\n{heading}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    rule = [number for number, line in enumerate(lines) if re.fullmatch(r"[|: -]+", line)]
    skipped = {n for number in rule for n in (number - 1, number)}
    return [
        [cell.strip() for cell in line.split("|")[1:-1]] for number, line in enumerate(lines) if number not in skipped
    ]


def code(cell: str) -> str:
    """What stands between the backticks of a cell."""
    return cell.strip("`").strip()
