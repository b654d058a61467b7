"""The doctor of these tests has more patience than a user's: a slow machine is no finding about a server."""

from __future__ import annotations

import pytest

from tenure.doctor import probe


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hand-over may take longer, but not as long as until the poll, which comes after five seconds."""
    monkeypatch.setattr(probe, "TTL", 12.0)
    monkeypatch.setattr(probe, "PROMPT", 4.0)
    monkeypatch.setattr(probe, "WAIT", 30.0)


@pytest.fixture
def impatient(patient: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the hand-over is to be late: the time until the poll runs before the release from which it is counted."""
    monkeypatch.setattr(probe, "PROMPT", 1.0)
