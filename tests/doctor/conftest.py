"""The doctor of these tests has more patience than a user's: a slow machine is no finding about a server."""

from __future__ import annotations

import pytest

from tenure.doctor import probe


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hand-over may take longer, but not as long as until the poll after half the ttl."""
    monkeypatch.setattr(probe, "TTL", 6.0)
    monkeypatch.setattr(probe, "PROMPT", 2.5)
    monkeypatch.setattr(probe, "WAIT", 30.0)
