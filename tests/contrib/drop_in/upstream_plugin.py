"""Loaded into a run of redis-py's own tests: puts the drop-in classes in the place of its own, and writes a report."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import redis.asyncio.lock
import redis.lock

from tenure.contrib.redis_py import AsyncLock, Lock

# Before their test modules are imported, which take the class from here.
redis.lock.Lock = Lock
redis.asyncio.lock.Lock = AsyncLock

_outcomes: dict[str, str] = {}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuses to run with any other class: then nothing would be shown."""
    for item in items:
        used = getattr(item.getparent(pytest.Module), "obj", None)
        assert getattr(used, "Lock", None) in (Lock, AsyncLock), f"{item.nodeid} does not use the drop-in class"


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Notes how a test has ended: its own part decides, and an error before or after it."""
    if report.when == "call" or report.outcome != "passed":
        _outcomes[report.nodeid] = report.outcome if report.when == "call" else f"{report.outcome} in its {report.when}"


def pytest_sessionfinish() -> None:
    """Writes the outcomes."""
    Path(os.environ["UPSTREAM_REPORT"]).write_text(json.dumps(_outcomes))
