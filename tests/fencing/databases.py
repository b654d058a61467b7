"""The databases of the tests, and every way in which the library reaches a table of theirs."""

from __future__ import annotations

import contextlib
import sqlite3
from typing import TYPE_CHECKING, Any, Literal

import psycopg
import sqlalchemy
from sqlalchemy import orm

from tenure import fencing
from tenure.fencing import sqlalchemy as fenced_sqlalchemy

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from tenure.fencing.rows import FencedRows
    from tests.fencing.postgres import Postgres

Way = Literal["dbapi", "core", "session", "model"]
WAYS: tuple[Way, ...] = ("dbapi", "core", "session", "model")

SHELF = """
CREATE TABLE shelf (
    id INTEGER PRIMARY KEY,
    boxes INTEGER NOT NULL DEFAULT 0,
    label VARCHAR(100) NOT NULL DEFAULT 'none',
    fence BIGINT DEFAULT 0
)
"""


class Base(orm.DeclarativeBase):
    """The mapped classes of these tests."""


class Shelf(Base):
    """The table `shelf`."""

    __tablename__ = "shelf"

    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    boxes: orm.Mapped[int] = orm.mapped_column(server_default="0")
    label: orm.Mapped[str] = orm.mapped_column(server_default="none")
    fence: orm.Mapped[int] = orm.mapped_column(sqlalchemy.BigInteger, server_default="0")


class Database:
    """An empty SQLite file, or an empty schema of a PostgreSQL server, and connections to it."""

    def __init__(self, file: Path, server: Postgres | None) -> None:
        self.file = file
        self._server = server
        self._schema = server.new_schema() if server is not None else ""
        self._open: list[Any] = []
        self.kind = "sqlite" if server is None else "postgresql"
        self.driver: Any = sqlite3 if server is None else psycopg
        url = f"sqlite:///{file}" if server is None else server.sqlalchemy_url(self._schema)
        # Without a pool nothing stays open.
        self.engine = sqlalchemy.create_engine(url, poolclass=sqlalchemy.NullPool)

    @property
    def schema(self) -> str:
        """What qualifies a table's name."""
        return self._schema or "main"

    @property
    def conninfo(self) -> str:
        """For connections of psycopg that are not `connect`'s."""
        assert self._server is not None
        return self._server.conninfo(self._schema)

    @property
    def async_url(self) -> str:
        """For `create_async_engine`; of PostgreSQL, whose driver is for both."""
        assert self._server is not None
        return self._server.sqlalchemy_url(self._schema)

    def connect(self, **options: Any) -> Any:  # noqa: ANN401 - of either driver
        """A new connection, closed at the end of the test."""
        if self._server is None:
            made = sqlite3.connect(self.file, timeout=30, check_same_thread=False, **options)
        else:
            made = psycopg.connect(self._server.conninfo(self._schema), **options)
        self._open.append(made)
        return made

    def run(self, statement: str) -> list[tuple[Any, ...]]:
        """Run one statement on a connection of its own, without any guard, and return its rows."""
        with contextlib.closing(self.connect()) as connection, connection:
            cursor = connection.cursor()
            cursor.execute(statement)
            return [tuple(row) for row in cursor.fetchall()] if cursor.description else []

    def close(self) -> None:
        """End what is still open."""
        for connection in self._open:
            connection.close()
        self.engine.dispose()


class Access:
    """A fenced table, reached in one of the ways."""

    def __init__(self, database: Database, way: Way) -> None:
        self.database = database
        self.way = way
        self.table = self._fenced(database, way)

    @staticmethod
    def _fenced(database: Database, way: Way) -> FencedRows[Any, Any]:
        match way:
            case "dbapi":
                return fencing.FencedTable(database.driver, "shelf")
            case "model":
                return fenced_sqlalchemy.FencedModel(Shelf)
            case _:
                return fenced_sqlalchemy.FencedTable(Shelf.metadata.tables["shelf"])

    @contextlib.contextmanager
    def transaction(self) -> Generator[Any]:
        """A connection or session, committed at the end, rolled back after an error."""
        match self.way:
            case "dbapi":
                with contextlib.closing(self.database.connect()) as connection, connection:
                    yield connection
            case "core":
                with self.database.engine.begin() as connection:
                    yield connection
            case _:
                with orm.Session(self.database.engine) as session, session.begin():
                    yield session

    def column(self, row: Any, name: str) -> Any:  # noqa: ANN401 - of either kind of row
        """One value of a row that `read` gave."""
        return getattr(row, name) if self.way == "model" else row[name]

    def shelf(self, number: int = 1) -> tuple[Any, ...] | None:
        """What is in the row now: boxes and fence."""
        found = self.database.run(f"SELECT boxes, fence FROM shelf WHERE id = {number}")  # noqa: S608 - a number
        return found[0] if found else None
