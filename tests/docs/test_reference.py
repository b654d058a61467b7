"""The tables of the reference and of the concepts are those of the code."""

from __future__ import annotations

import dataclasses
import logging
import re
from typing import Any, get_args

import pytest

import tenure
from tenure import errors, events
from tenure.instrument.logs import level_of, log_event, logger
from tests.docs.pages import ROOT, code, prose, rows

EVENTS = ROOT / "docs" / "reference" / "events.md"
API = (ROOT / "docs" / "reference" / "api.md").read_text(encoding="utf-8")
COMMON = {field.name for field in dataclasses.fields(tenure.Event)}


def example(kind: type[tenure.Event]) -> tenure.Event:
    """An event with something in each field."""
    values: dict[str, Any] = {"name": "n", "id": "0" * 8, "fence": 1}
    values |= {"reason": "expired", "request": "acquire", "granted": True}
    return kind(**{field.name: values.get(field.name, 1.0) for field in dataclasses.fields(kind)})


def kinds() -> dict[str, type[tenure.Event]]:
    return {
        name: kind
        for name, kind in vars(events).items()
        if isinstance(kind, type) and issubclass(kind, tenure.Event) and kind is not tenure.Event
    }


def test_every_event_is_in_the_table() -> None:
    assert {code(row[0]) for row in rows(EVENTS, "## Events")} == set(kinds())


@pytest.mark.parametrize("row", rows(EVENTS, "## Events"), ids=lambda row: code(row[0]))
def test_an_event_is_as_the_table_says(row: list[str], caplog: pytest.LogCaptureFixture) -> None:
    name, _when, fields, word, level = row
    kind = kinds()[code(name)]
    assert set(re.findall(r"`(\w+)`", fields)) == {f.name for f in dataclasses.fields(kind)} - COMMON
    event = example(kind)
    assert logging.getLevelName(level_of(event)) == level
    with caplog.at_level(logging.DEBUG, logger=logger.name):
        log_event(event)
    (record,) = caplog.records
    assert record.__dict__["tenure_event"] == word
    for field in dataclasses.fields(kind):
        assert record.__dict__[f"tenure_{field.name}"] == getattr(event, field.name)


def test_records_that_are_no_events_are_in_a_table() -> None:
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src" / "tenure").rglob("*.py"))
    written = set(re.findall(r'"tenure_event": "(\w+)"', source))
    assert {code(row[0]) for row in rows(EVENTS, "## Log records")} == written


def test_every_reason_of_a_loss_is_explained() -> None:
    listed = {code(row[0]) for row in rows(ROOT / "docs" / "concepts" / "lease.md", "## Its life")}
    assert listed == set(get_args(errors.LossReason))


def test_the_interface_has_every_public_name() -> None:
    shown = set(re.findall(r"auto(?:class|exception):: tenure\.(\w+)", API))
    assert set(tenure.__all__) - {"__version__"} <= shown


def test_plans_are_told_in_one_place() -> None:
    pages = [path for path in (ROOT / "docs").rglob("*.md") if path.parent.name != "adr" and path.name != "limits.md"]
    told = {path.name for path in pages if re.search(r"\b(planned|upcoming|roadmap|will be added)\b", prose(path))}
    assert told <= {"index.md", "questions.md"}  # which lead to the table of the README
