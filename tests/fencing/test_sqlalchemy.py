# ruff: noqa: ANN401 - arguments are wrong on purpose
"""What is special about SQLAlchemy: mapped objects, sessions of several kinds, names, asyncio."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy
from sqlalchemy import orm
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

import tenure
from tenure.fencing.sqlalchemy import FencedModel, FencedTable
from tests.fencing.databases import SHELF, Base, Shelf

if TYPE_CHECKING:
    from tests.fencing.databases import Database

ROW = {"id": 1}
CORE = FencedTable(Shelf.metadata.tables["shelf"])
MODEL = FencedModel(Shelf)


class Box(Base):
    """A table with columns of the same names."""

    __tablename__ = "box"

    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    fence: orm.Mapped[int]


class Crate(Base):
    """A table whose columns have other names than its attributes."""

    __tablename__ = "crate"

    number: orm.Mapped[int] = orm.mapped_column("crate_no", primary_key=True)
    content: orm.Mapped[str] = orm.mapped_column("what_is_in_it")
    seen: orm.Mapped[int] = orm.mapped_column("crate_fence", sqlalchemy.BigInteger, server_default="0")


class Heavy(Crate):
    """A table that adds to another one."""

    __tablename__ = "heavy"

    number: orm.Mapped[int] = orm.mapped_column("heavy_no", sqlalchemy.ForeignKey("crate.crate_no"), primary_key=True)
    weight: orm.Mapped[int]


@pytest.fixture
def shelf(any_database: Database) -> Database:
    """A shelf without boxes."""
    any_database.run(SHELF)
    any_database.run("INSERT INTO shelf (id) VALUES (1)")
    return any_database


class TestMappedObjects:
    def test_what_is_read_may_be_changed_and_flushed_in_the_same_transaction(self, shelf: Database) -> None:
        with orm.Session(shelf.engine) as session, session.begin():
            found = MODEL.read(session, 8, ROW)
            assert found is not None
            found.boxes += 10
        assert shelf.run("SELECT boxes, fence FROM shelf") == [(10, 8)]
        with orm.Session(shelf.engine) as session, pytest.raises(tenure.StaleFence):
            MODEL.read(session, 7, ROW)

    def test_a_read_replaces_what_the_session_had_before(self, shelf: Database) -> None:
        with orm.Session(shelf.engine, expire_on_commit=False) as session:
            early = session.get(Shelf, 1)
            assert early is not None
            assert early.boxes == 0
            session.commit()
            shelf.run("UPDATE shelf SET boxes = 5 WHERE id = 1")
            found = MODEL.read(session, 8, ROW)
            assert found is early
            assert (early.boxes, early.fence) == (5, 8)

    @pytest.mark.parametrize("autoflush", [True, False])
    def test_what_is_written_is_seen_in_the_sessions_objects(self, shelf: Database, autoflush: bool) -> None:
        with orm.Session(shelf.engine, autoflush=autoflush) as session:
            found = session.get(Shelf, 1)
            assert found is not None
            found.label = "blue"
            MODEL.update(session, 7, ROW, {"boxes": 3})
            assert (found.boxes, found.label, found.fence) == (3, "blue", 7)
            MODEL.upsert(session, 8, ROW, {"boxes": 4})
            assert (found.boxes, found.label, found.fence) == (4, "blue", 8)
            MODEL.insert(session, 9, ROW, {"boxes": 5})
            assert (found.boxes, found.label, found.fence) == (4, "blue", 9)
            session.commit()
        assert shelf.run("SELECT boxes, label, fence FROM shelf") == [(4, "blue", 9)]

    def test_objects_of_other_rows_and_classes_are_left_alone(self, shelf: Database) -> None:
        Box.metadata.create_all(shelf.engine, tables=[Box.metadata.tables["box"]])
        shelf.run("INSERT INTO shelf (id) VALUES (2)")
        with orm.Session(shelf.engine, autoflush=False) as session:
            other = session.get(Shelf, 2)
            assert other is not None
            other.boxes = 9
            box = Box(id=1, fence=3)
            session.add(box)
            session.flush()
            box.fence = 4
            other.boxes = 8
            MODEL.update(session, 7, ROW, {"boxes": 3})
            assert (other.boxes, box.fence) == (8, 4)

    def test_attributes_have_the_names_that_the_class_gives_them(self, any_database: Database) -> None:
        Crate.metadata.create_all(any_database.engine, tables=[Crate.metadata.tables["crate"]])
        fenced = FencedModel(Crate, fence="seen")
        with orm.Session(any_database.engine) as session, session.begin():
            assert fenced.insert(session, 7, {"number": 1}, {"content": "pears"})
            fenced.upsert(session, 8, {"number": 1}, {"content": "plums"})
            with pytest.raises(tenure.StaleFence):
                fenced.update(session, 7, {"number": 1}, {"content": "figs"})
            found = fenced.read(session, 8, {"number": 1})
            assert found is not None
            assert (found.content, found.seen) == ("plums", 8)
            with pytest.raises(tenure.ConfigError, match="no column 'what_is_in_it'"):
                fenced.update(session, 8, {"number": 1}, {"what_is_in_it": "figs"})

    def test_a_column_of_another_table_is_refused(self) -> None:
        with pytest.raises(tenure.ConfigError, match="no column 'seen'"):
            FencedModel(Heavy, fence="seen")

    def test_a_connection_has_no_objects(self, shelf: Database) -> None:
        with shelf.engine.begin() as connection, pytest.raises(tenure.ConfigError, match="needs a Session"):
            MODEL.read(connection, 7, ROW)


class TestConnections:
    def test_a_scoped_session_will_do(self, shelf: Database) -> None:
        session = orm.scoped_session(orm.sessionmaker(shelf.engine))
        for fenced in (CORE, MODEL):
            fenced.upsert(session, 7, ROW, {"boxes": 1})
            assert fenced.read(session, 8, ROW) is not None
            with pytest.raises(tenure.StaleFence):
                fenced.update(session, 7, ROW, {"boxes": 2})
            session.rollback()
        session.remove()

    def test_a_session_whose_tables_are_in_several_databases(self, shelf: Database) -> None:
        with orm.Session(binds={Shelf: shelf.engine}) as session:
            CORE.upsert(session, 7, ROW, {"boxes": 1})
            MODEL.upsert(session, 8, ROW, {"boxes": 2})
            session.commit()
        assert shelf.run("SELECT boxes, fence FROM shelf") == [(2, 8)]

    def test_asyncio_through_run_sync(self, postgresql: Database, url: str, namespace: str) -> None:
        postgresql.run(SHELF)

        async def main() -> None:
            engine = create_async_engine(postgresql.async_url, poolclass=sqlalchemy.NullPool)
            async with tenure.AsyncLocks(url, namespace=namespace) as locks, locks.lock("shelf:1") as lease:
                async with AsyncSession(engine) as session, session.begin():
                    await session.run_sync(lambda sync: MODEL.upsert(sync, lease, ROW, {"boxes": 1}))
                    found = await session.run_sync(lambda sync: MODEL.read(sync, lease, ROW))
                    assert found is not None
                    assert (found.boxes, found.fence) == (1, lease.fence)
                async with engine.begin() as connection:
                    with pytest.raises(tenure.StaleFence):
                        await connection.run_sync(lambda sync: CORE.update(sync, 7, ROW, {"boxes": 2}))
                    wrong: Any = connection
                    with pytest.raises(tenure.ConfigError, match="run_sync"):
                        CORE.update(wrong, lease, ROW, {"boxes": 2})
            await engine.dispose()

        asyncio.run(main())

    def test_a_database_without_upsert_is_told(self, shelf: Database, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(shelf.engine.dialect, "name", "oracle")
        with shelf.engine.begin() as connection:
            for call in (CORE.insert, CORE.upsert):
                with pytest.raises(tenure.ConfigError, match="not oracle"):
                    call(connection, 7, ROW, {"boxes": 1})
            assert CORE.update(connection, 7, ROW, {"boxes": 1})


class TestConstruction:
    @pytest.mark.parametrize(
        "wrong", [Shelf, "shelf", None, sqlalchemy.select(1)], ids=["class", "text", "None", "query"]
    )
    def test_of_a_table(self, wrong: Any) -> None:
        with pytest.raises(tenure.ConfigError, match="Table is needed"):
            FencedTable(wrong)

    @pytest.mark.parametrize(
        "wrong",
        [Shelf.metadata.tables["shelf"], "shelf", None, dict, Base],
        ids=["table", "text", "None", "dict", "base"],
    )
    def test_of_a_model(self, wrong: Any) -> None:
        with pytest.raises(tenure.ConfigError, match="class that is mapped"):
            FencedModel(wrong)

    def test_a_column_for_the_fence_is_needed(self) -> None:
        with pytest.raises(tenure.ConfigError, match="no column 'token'"):
            FencedTable(Shelf.metadata.tables["shelf"], fence="token")
        with pytest.raises(tenure.ConfigError, match="no column 'token'"):
            FencedModel(Shelf, fence="token")

    def test_a_key_beside_the_primary_one_that_the_database_counts(self, any_database: Database) -> None:
        table = sqlalchemy.Table(
            "jar",
            sqlalchemy.MetaData(),
            sqlalchemy.Column("id", sqlalchemy.Integer, primary_key=True),
            sqlalchemy.Column("label", sqlalchemy.String(20), unique=True),
            sqlalchemy.Column("fence", sqlalchemy.BigInteger),
        )
        table.create(any_database.engine)
        fenced = FencedTable(table)
        with any_database.engine.begin() as connection:
            assert fenced.insert(connection, 7, {"label": "jam"}, {})
            assert not fenced.insert(connection, 8, {"label": "jam"}, {})
            fenced.upsert(connection, 9, {"label": "jam"}, {})
            fenced.upsert(connection, 9, {"label": "honey"}, {})
            for call in (fenced.insert, fenced.upsert):
                with pytest.raises(tenure.StaleFence):
                    call(connection, 8, {"label": "jam"}, {})
        assert any_database.run("SELECT label, fence FROM jar ORDER BY label") == [("honey", 9), ("jam", 9)]

    def test_defaults_of_python_are_used_on_insert(self, any_database: Database) -> None:
        table = sqlalchemy.Table(
            "jar",
            sqlalchemy.MetaData(),
            sqlalchemy.Column("id", sqlalchemy.Integer, primary_key=True),
            sqlalchemy.Column("label", sqlalchemy.String(20), default=lambda: "made"),
            sqlalchemy.Column("fence", sqlalchemy.BigInteger),
        )
        table.create(any_database.engine)
        fenced = FencedTable(table)
        with any_database.engine.begin() as connection:
            assert fenced.insert(connection, 7, ROW, {})
            fenced.upsert(connection, 7, {"id": 2}, {})
        assert any_database.run("SELECT id, label FROM jar ORDER BY id") == [(1, "made"), (2, "made")]
