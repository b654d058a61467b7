"""docs/doctor.md lists what is examined, and how bad it can be."""

from __future__ import annotations

import re

from tests.docs.pages import ROOT, code, rows

PAGE = ROOT / "docs" / "doctor.md"
RANKS = ["ok", "info", "warning", "error"]


def test_every_id_is_listed_with_its_worst_severity() -> None:
    source = "".join(path.read_text("utf-8") for path in sorted((ROOT / "src" / "tenure" / "doctor").glob("*.py")))
    worst: dict[str, str] = {}
    for ident, severities in re.findall(r'Finding\(\s*"(\w+)",\s*"(\w+)(?=")', source):
        worst[ident] = max(worst.get(ident, "ok"), severities, key=RANKS.index)
    # These choose between two.
    worst |= {"disk": "error", "permissions": "error"}
    assert {code(row[0]): row[1] for row in rows(PAGE, "## What is examined")} == worst


def test_severities() -> None:
    assert [code(row[0]) for row in rows(PAGE, "## Severities")] == RANKS
