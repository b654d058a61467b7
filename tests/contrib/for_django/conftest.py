"""Django, configured once for the whole run: on PostgreSQL where there is one, else on SQLite."""

# pyright: basic

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.contrib.for_django import project
from tests.fencing import postgres

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.harness.servers import Server

SPACE = "for-django"


@pytest.fixture(scope="session")
def django_project(valkey_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The engine of its database: postgresql or sqlite3."""
    server = postgres.Postgres.start() if postgres.programs() is not None else None
    if server is None:
        file = tmp_path_factory.mktemp("django") / "orders.sqlite3"
        database: dict[str, Any] = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(file)}
    else:
        facts = dict(part.split("=", 1) for part in server.conninfo("public").split(" ") if "=" in part)
        database = {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": facts["dbname"].strip("'"),
            "USER": facts["user"].strip("'"),
            "HOST": facts["host"].strip("'"),
        }
        if "port" in facts:
            database["PORT"] = facts["port"].strip("'")
    project.configure(database, valkey_server.url, SPACE)
    yield database["ENGINE"].rpartition(".")[2]
    from django.db import connections  # noqa: PLC0415 - Django is configured only now

    connections.close_all()
    if server is not None:
        server.stop()


@pytest.fixture
def client(django_project: str) -> Iterator[Any]:
    """Django's test client on a fresh table; errors of views are responses."""
    del django_project
    from django.test import Client  # noqa: PLC0415 - Django is configured only now

    from tenure.contrib.django import locks  # noqa: PLC0415

    locks.cache_clear()
    project.create()
    yield Client(raise_request_exception=False)
    locks().close()
    locks.cache_clear()
    from django.db import connections  # noqa: PLC0415

    connections.close_all()
