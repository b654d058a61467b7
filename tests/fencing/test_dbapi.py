# ruff: noqa: S608 - statements are made of the tests' own names
"""What is special about drivers: placeholders, names, shapes of rows, transactions."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg.rows import dict_row, namedtuple_row

import tenure
from tenure.fencing import FencedTable
from tests.fencing.databases import SHELF
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fencing.databases import Database

ROW = {"id": 1}


@dataclass
class Driver:
    """A module with placeholders of one kind."""

    paramstyle: str


def named(cursor: sqlite3.Cursor, row: tuple[Any, ...]) -> dict[str, Any]:
    """Make a row of SQLite a dictionary, of which no column is the first."""
    return {"": None} | dict(zip((column[0] for column in cursor.description), row, strict=True))


@pytest.fixture
def shelf(any_database: Database) -> Database:
    """A shelf without boxes."""
    any_database.run(SHELF)
    any_database.run("INSERT INTO shelf (id) VALUES (1)")
    return any_database


class TestPlaceholders:
    @pytest.mark.parametrize("style", ["named", "qmark"])
    def test_of_sqlite(self, sqlite: Database, style: str) -> None:
        self.everything(sqlite, style)

    @pytest.mark.parametrize("style", ["format", "pyformat"])
    def test_of_psycopg(self, postgresql: Database, style: str) -> None:
        self.everything(postgresql, style)

    @staticmethod
    def everything(database: Database, style: str) -> None:
        database.run(SHELF)
        table = FencedTable(Driver(style), "shelf")
        with database.connect() as connection:
            assert table.insert(connection, 7, ROW, {"boxes": 1, "label": "100 %s ? :p1"})
            table.upsert(connection, 8, ROW, {"boxes": 2})
            assert table.update(connection, 9, {"id": 1, "label": "100 %s ? :p1"}, {"boxes": 3})
            with pytest.raises(tenure.StaleFence):
                table.read(connection, 8, ROW)
            assert table.read(connection, 9, ROW) == {"id": 1, "boxes": 3, "label": "100 %s ? :p1", "fence": 9}

    def test_that_are_numbered(self) -> None:
        cursor = Recorder(rowcount=1)
        table = FencedTable(Driver("numeric"), "shelf")
        assert table.update(cursor, 7, ROW, {"boxes": 3})
        where = 'WHERE "shelf"."id" = :3 AND COALESCE("shelf"."fence", 0) <= :4'
        assert cursor.ran == [
            (
                f'UPDATE "shelf" SET "boxes" = :1, "fence" = :2 {where}',
                [3, 7, 1, 7],
            )
        ]

    def test_that_nobody_knows(self) -> None:
        with pytest.raises(tenure.ConfigError, match="paramstyle 'dollar'"):
            FencedTable(Driver("dollar"), "shelf")


class Recorder:
    """A connection of an unusual driver, and its one cursor."""

    def __init__(self, rowcount: int) -> None:
        self.rowcount = rowcount
        self.description = [("fence",)]
        self.ran: list[tuple[str, Any]] = []
        self.closed = 0
        self.error: Exception | None = None

    def cursor(self) -> Recorder:
        return self

    def execute(self, statement: str, parameters: object, /) -> None:
        self.ran.append((statement, parameters))
        if self.error is not None:
            raise self.error

    def fetchone(self) -> Any:  # noqa: ANN401 - a row of any shape
        return (0,)

    def close(self) -> None:
        self.closed += 1


def test_a_driver_that_does_not_count_is_told_from_success() -> None:
    cursor = Recorder(rowcount=-1)
    with pytest.raises(tenure.TenureError, match="unknown number"):
        FencedTable(sqlite3, "shelf").update(cursor, 7, ROW, {"boxes": 3})


def test_every_cursor_is_closed() -> None:
    cursor = Recorder(rowcount=0)
    with pytest.raises(tenure.TenureError, match="takes no write"):
        FencedTable(sqlite3, "shelf").update(cursor, 7, ROW, {"boxes": 3})
    assert cursor.closed == len(cursor.ran) == 6
    cursor.error = KeyError("x")
    with pytest.raises(KeyError):
        FencedTable(sqlite3, "shelf").update(cursor, 7, ROW, {"boxes": 3})
    assert cursor.closed == len(cursor.ran) == 7


class TestNames:
    def test_words_of_sql_and_letters_of_all_kinds(self, any_database: Database) -> None:
        any_database.run('CREATE TABLE "order" ("select" INTEGER PRIMARY KEY, "Größe$1" INTEGER, "when" BIGINT)')
        table = FencedTable(any_database.driver, "order", fence="when")
        with any_database.connect() as connection:
            table.upsert(connection, 7, {"select": 1}, {"Größe$1": 2})
            assert table.read(connection, 8, {"select": 1}) == {"select": 1, "Größe$1": 2, "when": 8}
            with pytest.raises(tenure.StaleFence):
                table.upsert(connection, 7, {"select": 1}, {"Größe$1": 3})

    def test_with_a_schema(self, shelf: Database) -> None:
        table = FencedTable(shelf.driver, f"{shelf.schema}.shelf")
        with shelf.connect() as connection:
            assert table.update(connection, 7, ROW, {"boxes": 1})
            table.upsert(connection, 7, ROW, {"boxes": 2})
            assert not table.insert(connection, 7, ROW, {"boxes": 3})
            assert table.read(connection, 7, ROW) == {"id": 1, "boxes": 2, "label": "none", "fence": 7}

    def test_a_key_of_several_columns(self, any_database: Database) -> None:
        any_database.run(
            "CREATE TABLE slot (hall INTEGER, place INTEGER, box TEXT, fence BIGINT, UNIQUE (hall, place))"
        )
        table = FencedTable(any_database.driver, "slot")
        with any_database.connect() as connection:
            for place in (1, 2):
                table.upsert(connection, 8, {"hall": 1, "place": place}, {"box": "a"})
            table.upsert(connection, 9, {"hall": 1, "place": 2}, {"box": "b"})
            assert table.update(connection, 8, {"place": 1, "hall": 1}, {"box": "c"})
            with pytest.raises(tenure.StaleFence):
                table.update(connection, 8, {"place": 2, "hall": 1}, {"box": "c"})
        assert any_database.run("SELECT box FROM slot ORDER BY place") == [("c",), ("b",)]

    @pytest.mark.parametrize(
        "name", ['shelf"', "shelf; DROP TABLE shelf", "she lf", "", "1shelf", "a..b", "a" * 64, "a\0", "a%s", None, 7]
    )
    def test_what_is_no_name_is_refused(self, name: Any) -> None:  # noqa: ANN401 - wrong on purpose
        with pytest.raises(tenure.ConfigError, match="no name of a table"):
            FencedTable(sqlite3, name)
        with pytest.raises(tenure.ConfigError, match="no name of a column"):
            FencedTable(sqlite3, "shelf", fence=name)

    @pytest.mark.parametrize("wrong", [{"idd": 1}, {"ID ": 1}, {"nobody": "nobody"}], ids=str)
    def test_a_column_that_is_not_there_is_an_error(self, shelf: Database, wrong: dict[str, Any]) -> None:
        # SQLite alone would take "idd" for a text, and find no row.
        table = FencedTable(shelf.driver, "shelf")
        with shelf.connect() as connection:
            with pytest.raises((shelf.driver.OperationalError, shelf.driver.ProgrammingError, tenure.ConfigError)):
                table.update(connection, 7, wrong, {"boxes": 1})
            connection.rollback()
            with pytest.raises((shelf.driver.OperationalError, shelf.driver.ProgrammingError)):
                FencedTable(shelf.driver, "shelf", fence="fency").read(connection, 7, ROW)
            connection.rollback()


class TestShapesOfRows:
    @pytest.mark.parametrize("factory", [None, sqlite3.Row, named])
    def test_of_sqlite(self, sqlite: Database, factory: Any) -> None:  # noqa: ANN401 - of any shape
        sqlite.run(SHELF)
        connection = sqlite.connect()
        connection.row_factory = factory
        self.both(FencedTable(sqlite3, "shelf"), connection)

    @pytest.mark.parametrize("factory", [dict_row, namedtuple_row])
    def test_of_psycopg(self, postgresql: Database, factory: Any) -> None:  # noqa: ANN401 - of any shape
        postgresql.run(SHELF)
        self.both(FencedTable(psycopg, "shelf"), postgresql.connect(row_factory=factory))

    @staticmethod
    def both(table: FencedTable, connection: Any) -> None:  # noqa: ANN401 - of either driver
        table.upsert(connection, 8, ROW, {"boxes": 1})
        with pytest.raises(tenure.StaleFence) as caught:
            table.update(connection, 7, ROW, {"boxes": 2})
        assert caught.value.seen == 8
        row = table.read(connection, 8, ROW)
        assert row is not None
        assert (row["id"], row["boxes"], row["fence"]) == (1, 1, 8)


class TestTransactions:
    def test_nothing_is_committed_for_the_user(self, shelf: Database) -> None:
        table = FencedTable(shelf.driver, "shelf")
        connection = shelf.connect()
        table.update(connection, 7, ROW, {"boxes": 1})
        table.upsert(connection, 7, {"id": 2}, {"boxes": 1})
        connection.rollback()
        assert shelf.run("SELECT id, boxes, fence FROM shelf") == [(1, 0, 0)]

    def test_after_a_refusal_the_transaction_goes_on(self, shelf: Database) -> None:
        table = FencedTable(shelf.driver, "shelf")
        with shelf.connect() as connection:
            table.update(connection, 8, ROW, {"boxes": 1})
            with pytest.raises(tenure.StaleFence):
                table.update(connection, 7, ROW, {"boxes": 2})
            table.upsert(connection, 8, {"id": 2}, {"boxes": 3})
        assert shelf.run("SELECT id, boxes, fence FROM shelf ORDER BY id") == [(1, 1, 8), (2, 3, 8)]

    def test_one_row_may_stand_for_many(self, any_database: Database) -> None:
        any_database.run("CREATE TABLE fences (name VARCHAR(200) PRIMARY KEY, fence BIGINT NOT NULL DEFAULT 0)")
        any_database.run("CREATE TABLE box (id INTEGER PRIMARY KEY)")
        guard = FencedTable(any_database.driver, "fences")
        for fence, number in ((7, 1), (8, 2), (7, 3)):
            with any_database.connect() as connection:
                try:
                    guard.upsert(connection, fence, {"name": "shelf:1"}, {})
                    connection.cursor().execute(f"INSERT INTO box (id) VALUES ({number})")
                except tenure.StaleFence:
                    assert number == 3
        assert any_database.run("SELECT id FROM box ORDER BY id") == [(1,), (2,)]
        assert any_database.run("SELECT fence FROM fences") == [(8,)]

    @pytest.mark.parametrize("method", ["update", "upsert"])
    def test_a_stale_write_waits_for_the_newer_ones_commit_and_is_refused(
        self, postgresql: Database, method: str
    ) -> None:
        postgresql.run(SHELF)
        postgresql.run("INSERT INTO shelf (id) VALUES (1)")
        table = FencedTable(psycopg, "shelf")
        newer, older = postgresql.connect(), postgresql.connect()
        table.update(newer, 8, ROW, {"boxes": 10})
        outcomes: list[object] = []
        call: Callable[..., Any] = getattr(table, method)

        def late() -> None:
            try:
                outcomes.append(call(older, 7, ROW, {"boxes": 1}))
            except tenure.StaleFence as error:
                outcomes.append(error.seen)

        thread = threading.Thread(target=late)
        thread.start()
        wait_until(lambda: _waits_for_a_row(postgresql, older.info.backend_pid), 20, "the late write to wait")
        newer.commit()
        thread.join(20)
        older.commit()
        assert outcomes == [8]
        assert postgresql.run("SELECT boxes, fence FROM shelf") == [(10, 8)]

    def test_a_snapshot_that_is_too_old_is_the_databases_error(self, postgresql: Database) -> None:
        postgresql.run(SHELF)
        postgresql.run("INSERT INTO shelf (id) VALUES (1)")
        table = FencedTable(psycopg, "shelf")
        older, newer = postgresql.connect(), postgresql.connect()
        older.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        older.execute("SELECT * FROM shelf")
        table.update(newer, 8, ROW, {"boxes": 10})
        newer.commit()
        with pytest.raises(psycopg.errors.SerializationFailure):
            table.update(older, 7, ROW, {"boxes": 1})
        older.rollback()
        with pytest.raises(tenure.StaleFence):
            table.update(older, 7, ROW, {"boxes": 1})

    def test_without_transactions_each_statement_is_guarded(self, sqlite: Database) -> None:
        sqlite.run(SHELF)
        table, connection = FencedTable(sqlite3, "shelf"), sqlite.connect(isolation_level=None)
        table.upsert(connection, 8, ROW, {"boxes": 1})
        assert table.read(connection, 9, ROW) == {"id": 1, "boxes": 1, "label": "none", "fence": 9}
        with pytest.raises(tenure.StaleFence):
            table.update(connection, 8, ROW, {"boxes": 2})


def _waits_for_a_row(database: Database, pid: int) -> bool:
    return database.run(f"SELECT wait_event_type FROM pg_stat_activity WHERE pid = {pid}") == [("Lock",)]


def test_an_asyncio_connection_is_refused_before_anything_is_sent(postgresql: Database) -> None:
    async def main() -> None:
        async with await psycopg.AsyncConnection[Any].connect(postgresql.conninfo) as connection:
            wrong: Any = connection
            with pytest.raises(tenure.ConfigError, match="asyncio"):
                FencedTable(psycopg, "shelf").update(wrong, 7, ROW, {"boxes": 1})

    asyncio.run(main())


def test_a_row_that_comes_between_two_statements_is_written_after_all(sqlite: Database) -> None:
    class Late(FencedTable):
        def _seen(self, connection: Any, key: Any) -> int | None:  # noqa: ANN401 - handed on
            connection.execute("INSERT INTO shelf (id, fence) VALUES (1, 6) ON CONFLICT DO NOTHING")
            return super()._seen(connection, key)

    sqlite.run(SHELF)
    with sqlite.connect() as connection:
        assert Late(sqlite3, "shelf").update(connection, 7, ROW, {"boxes": 1})
    assert sqlite.run("SELECT boxes, fence FROM shelf") == [(1, 7)]


def test_a_trigger_that_keeps_the_row_as_it_is_does_not_pass_for_success(sqlite: Database) -> None:
    sqlite.run(SHELF)
    sqlite.run("INSERT INTO shelf (id) VALUES (1)")
    sqlite.run("CREATE TRIGGER frozen BEFORE UPDATE ON shelf BEGIN SELECT RAISE(IGNORE); END")
    table = FencedTable(sqlite3, "shelf")
    with sqlite.connect() as connection:
        for call in (table.update, table.insert, table.upsert):
            with pytest.raises(tenure.TenureError, match="takes no write") as caught:
                call(connection, 7, ROW, {"boxes": 1})
            assert not isinstance(caught.value, tenure.StaleFence)
