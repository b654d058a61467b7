"""Real leases, one of which is over without its holder's knowing, and real databases."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest

import tenure
from tests.conformance.flavours import KINDS, Flavour
from tests.fencing import databases, postgres

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.harness.servers import Server


class Holders(NamedTuple):
    """Two leases of one lock: the first one's holder does not know yet that it is over."""

    older: tenure.Lease
    newer: tenure.Lease


@pytest.fixture
def holders(url: str, namespace: str) -> Iterator[Holders]:
    with tenure.Locks(url, namespace=namespace) as first, tenure.Locks(url, namespace=namespace) as second:
        older = first.lock("shelf:1").acquire()
        second.break_lock("shelf:1", force=True)
        newer = second.lock("shelf:1").acquire()
        yield Holders(older, newer)
        newer.release()
        older.release()


@pytest.fixture
def several(valkey_server: Server, namespace: str) -> Iterator[tenure.Lease]:
    """A lease of the locks `shelf:1` and, with a higher fence, `shelf:2`."""
    with tenure.Locks(valkey_server.url, namespace=namespace) as locks:
        locks.lock("shelf:2").acquire().release()
        valkey_server.command("INCRBY", f"{{{namespace}:shelf:2}}:fence", 3_600_000_000)
        with locks.lock("shelf:1", "shelf:2") as lease:
            assert lease.fences["shelf:1"] < lease.fences["shelf:2"]
            yield lease


@pytest.fixture
def place(url: str, namespace: str) -> Iterator[tenure.Lease]:
    """One of three leases of a semaphore."""
    with tenure.Locks(url, namespace=namespace) as locks, locks.semaphore("shelf:1", 3) as lease:
        yield lease


@pytest.fixture(params=KINDS)
def flavour(request: pytest.FixtureRequest) -> Iterator[Flavour]:
    """Blocking, then asyncio."""
    with Flavour(request.param) as made:
        yield made


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[postgres.Postgres]:
    """One PostgreSQL for the whole session."""
    if postgres.programs() is None:
        pytest.skip(postgres.MISSING)
    server = postgres.Postgres.start()
    yield server
    server.stop()


@pytest.fixture(scope="session", params=["sqlite", "postgresql"])
def any_database_server(request: pytest.FixtureRequest) -> postgres.Postgres | None:
    """Nothing, which SQLite needs, then a PostgreSQL."""
    server: postgres.Postgres | None = (
        request.getfixturevalue("postgres_server") if request.param == "postgresql" else None
    )
    return server


@pytest.fixture
def any_database(any_database_server: postgres.Postgres | None, tmp_path: Path) -> Iterator[databases.Database]:
    """An empty database of each kind."""
    made = databases.Database(tmp_path / "file.db", any_database_server)
    yield made
    made.close()


@pytest.fixture
def postgresql(postgres_server: postgres.Postgres, tmp_path: Path) -> Iterator[databases.Database]:
    """An empty schema on PostgreSQL."""
    made = databases.Database(tmp_path / "unused", postgres_server)
    yield made
    made.close()


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[databases.Database]:
    """An empty SQLite file."""
    made = databases.Database(tmp_path / "file.db", None)
    yield made
    made.close()


@pytest.fixture(params=databases.WAYS)
def access(request: pytest.FixtureRequest, any_database: databases.Database) -> databases.Access:
    """A shelf without boxes, in each kind of database, reached in each way."""
    any_database.run(databases.SHELF)
    any_database.run("INSERT INTO shelf (id) VALUES (1)")
    return databases.Access(any_database, request.param)
