"""The device gateway, end to end: what the application needs, one assertion each; and what happens without the lock."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from typing import TYPE_CHECKING

import pytest

from examples.gateway.storm import Plan, Storm
from tests.examples import figures
from tests.fencing import postgres

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from examples.gateway.check import Outcome
    from tests.harness.servers import Server

SMALL = Plan(servers=2, processes=1, devices=12, storms=2, trouble=False, heartbeat=1, slack=2, delays=(8.0, 0.0))
"""With a ttl of four seconds; a write to the slow database takes twice as long."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An SQLite file, then a schema of a PostgreSQL of the tests' own."""
    if request.param == "sqlite":
        yield str(tmp_path / "devices.db")
        return
    if postgres.programs() is None:
        pytest.skip(postgres.MISSING)
    server = postgres.Postgres.start()
    yield server.conninfo(server.new_schema())
    server.stop()


def run(plan: Plan, folder: Path, server: Server, namespace: str, database: str | None = None) -> Outcome:
    storm = Storm(plan, folder, server.url, namespace, database or str(folder / "devices.db"))
    return asyncio.run(storm.run())


def test_one_connection_owns_a_device(tmp_path: Path, valkey_server: Server, namespace: str) -> None:
    """Two hundred devices and four servers, one of which is killed, and one stands still for longer than the ttl."""
    outcome = run(Plan(), tmp_path, valkey_server, namespace)
    found = outcome.figures
    figures.write("gateway", found)
    told = json.dumps(found, indent=2)
    assert found["devices with two owners"] == 0, f"only one connection may own the device\n{told}"
    assert found["taken over"] >= found["devices"], (
        f"a device that comes back takes over its half-open connection\n{told}"
    )
    assert found["ttl"] == 2 * Plan().heartbeat + 10, "ttl = 2 heartbeats + 10 s"
    assert found["longest connection in ttls"] > 1, f"each ping of the device renews\n{told}"
    assert found["silent devices freed"] == 5, f"silence frees the device\n{told}"
    assert found["closed after a loss"] > 0 == found["open after a loss"], f"whoever loses its lease closes\n{told}"
    assert found["stale offline marks"] == 0, f"a late disconnect cannot mark the new connection offline\n{told}"
    assert found["late writes refused"] > 0, f"there were late ones, and the fence has refused them\n{told}"
    assert found["wrong records"] == 0, f"the record tells where each device is\n{told}"
    assert found["commands routed wrong"] == 0, f"holder().info says which server owns the connection\n{told}"
    assert found["commands unanswered when settled"] == 0, f"requests for the device are routed there\n{told}"
    assert found["commands forwarded"] > 0, f"from whichever server they came to\n{told}"
    assert 1 < found["job runs"] <= found["job runs at most"], f"one server runs it, not again within N seconds\n{told}"
    assert "sweep skipped: examples.gateway.server (pid " in found["what a skip says"], f"skipped, and says so\n{told}"
    assert outcome.fine, outcome.problems


def test_a_database_slower_than_the_ttl_breaks_nothing(
    tmp_path: Path, valkey_server: Server, namespace: str, database: str
) -> None:
    assert SMALL.delays[0] >= 2 * SMALL.ttl
    outcome = run(SMALL, tmp_path, valkey_server, namespace, database)
    told = json.dumps(outcome.figures, indent=2)
    assert outcome.figures["longest connection in ttls"] > 1, f"connections outlive their ttl all the same\n{told}"
    assert outcome.figures["late writes refused"] > 0, f"writes came after those of newer connections\n{told}"
    assert outcome.fine, (outcome.problems, told)


def test_without_the_fence_late_writes_do_harm(tmp_path: Path, valkey_server: Server, namespace: str) -> None:
    plan = dataclasses.replace(SMALL, with_fence=False, patience=5)
    found = run(plan, tmp_path, valkey_server, namespace).figures
    assert found["devices with two owners"] == 0, "the lock alone does that"
    assert found["stale offline marks"] > 0, "the test would not see what the fence prevents"
    assert found["wrong records"] > 0, "and the damage stays"


def test_without_the_lock_two_connections_own_a_device(tmp_path: Path, valkey_server: Server, namespace: str) -> None:
    plan = Plan(servers=3, processes=1, devices=16, storms=2, trouble=False, with_lock=False, patience=5)
    outcome = run(plan, tmp_path, valkey_server, namespace)
    assert outcome.figures["devices with two owners"] > 0, "the test would not see what the lock prevents"
    assert outcome.figures["stale offline marks"] > 0, "nor what the fence prevents"
    assert outcome.figures["commands unanswered when settled"] > 0, "nor that nobody knows where the device is"
    assert outcome.figures["job runs"] > outcome.figures["job runs at most"], "nor that all servers run the job"
    assert not outcome.fine
