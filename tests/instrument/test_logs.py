"""The standard logger: each kind of event has its sentence, level and fields."""

from __future__ import annotations

import logging

import pytest

import tenure
from tenure.instrument.logs import log_event

FACTS = ("n", "00000000", 7)


@pytest.mark.parametrize(
    ("event", "level", "text"),
    [
        (tenure.GrantedEvent(*FACTS, waited=0.0), "DEBUG", "lock 'n' granted"),
        (tenure.WaitedEvent(*FACTS, waited=2.0, granted=True), "DEBUG", "lock 'n' granted after waiting 2.00 s"),
        (tenure.WaitedEvent(*FACTS, waited=2.0, granted=False), "DEBUG", "lock 'n' not acquired after waiting 2.00 s"),
        (tenure.ReleasedEvent(*FACTS, held_for=1.0), "DEBUG", "lock 'n' released"),
        (tenure.RenewFailedEvent(*FACTS, remaining=3.0), "WARNING", "lock 'n' could not be renewed; 3.00 s are left"),
        (
            tenure.UnansweredEvent("n", "", None, request="acquire"),
            "DEBUG",
            "lock 'n': the acquire had no answer; it is tried again or undone",
        ),
        (
            tenure.LostEvent(*FACTS, reason="expired", held_for=9.0),
            "ERROR",
            "lock 'n' was lost: its deadline passed, after 9.00 s",
        ),
        (
            tenure.TamperedEvent(*FACTS, reason="deleted", held_for=9.0),
            "ERROR",
            "lock 'n' was tampered with: its key was deleted before its end, after 9.00 s",
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, tenure.Event) else None,
)
def test_what_is_logged(event: tenure.Event, level: str, text: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "tenure")
    log_event(event)
    (record,) = caplog.records
    assert (record.levelname, record.getMessage(), record.name) == (level, text, "tenure")
    fields = {name: value for name, value in vars(record).items() if name.startswith("tenure_")}
    assert fields["tenure_name"] == "n"
    assert fields["tenure_event"] in type(event).__name__.lower()
