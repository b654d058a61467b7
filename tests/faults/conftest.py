"""Fixtures of the fault tests."""

from __future__ import annotations

import pytest

from tenure.core import schedule
from tests.faults.support import SELDOM


@pytest.fixture
def seldom_polled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiters of this process ask again once a minute, not every five or fifteen seconds."""
    monkeypatch.setattr(schedule, "NEAR_CAP", SELDOM)
    monkeypatch.setattr(schedule, "FAR_INTERVAL", SELDOM)
