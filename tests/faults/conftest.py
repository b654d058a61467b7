"""Fixtures of the fault tests."""

from __future__ import annotations

import pytest

from tenure import manager, manager_base
from tenure.core import schedule
from tests.faults.support import SELDOM


@pytest.fixture
def seldom_polled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiters of this process ask again once a minute, not every five or fifteen seconds."""
    monkeypatch.setattr(schedule, "NEAR_CAP", SELDOM)
    monkeypatch.setattr(schedule, "FAR_INTERVAL", SELDOM)


@pytest.fixture
def patient_close(monkeypatch: pytest.MonkeyPatch) -> None:
    """Locks that are closed have half a minute to give back what they hold, where a program has a second."""
    for module in (manager, manager_base):
        monkeypatch.setattr(module, "EXIT_TIMEOUT", 30.0)
