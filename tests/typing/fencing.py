"""Programs that use `tenure.fencing` as a type checker sees them; nothing of this runs."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any, assert_type

import psycopg
from sqlalchemy import BigInteger, RowMapping
from sqlalchemy.orm import DeclarativeBase, mapped_column

from tenure import fencing
from tenure.fencing import sqlalchemy as fenced

if TYPE_CHECKING:
    import redis
    import redis.asyncio
    import valkey
    import valkey.asyncio
    from sqlalchemy import Connection, Table
    from sqlalchemy.orm import Mapped, Session

    import tenure


class Base(DeclarativeBase):
    """Mapped classes."""


class Shelf(Base):
    """A table."""

    __tablename__ = "shelf"
    id: Mapped[int] = mapped_column(primary_key=True)
    fence: Mapped[int] = mapped_column(BigInteger, server_default="0")


def numbers(lease: tenure.Lease, other: tenure.AsyncLease) -> None:
    """What counts as a fence."""
    assert_type(fencing.fence_of(lease), int)
    assert_type(fencing.fence_of(other, name="a"), int)
    fencing.fence_of("7")  # type: ignore[arg-type]
    guard = fencing.FenceGuard("x", seen=7)
    assert_type(guard.check(lease), int)
    with guard.admit(other, name="a") as number:
        assert_type(number, int)


def drivers(lease: tenure.Lease, lite: sqlite3.Connection, postgres: psycopg.Connection[Any]) -> None:
    """Connections of DB-API drivers."""
    table = fencing.FencedTable(sqlite3, "shelf")
    assert_type(table.read(lite, lease, {"id": 1}), dict[str, Any] | None)
    assert_type(table.update(lite, 7, {"id": 1}, {"boxes": 1}, name="a"), bool)
    other = fencing.FencedTable(psycopg, "shelf", fence="seen")
    assert_type(other.insert(postgres, lease, {"id": 1}, {}), bool)
    other.upsert(postgres, lease, {"id": 1}, {})
    other.update(7, lease, {"id": 1}, {})  # type: ignore[arg-type]


def wrong_flavour(postgres: psycopg.AsyncConnection[Any]) -> None:
    """An asyncio connection is refused."""
    fencing.FencedTable(psycopg, "shelf").read(postgres, 7, {})  # type: ignore[arg-type]


def tables(lease: tenure.AsyncLease, table: Table, connection: Connection, session: Session) -> None:
    """SQLAlchemy."""
    core = fenced.FencedTable(table)
    assert_type(core.read(connection, lease, {"id": 1}), RowMapping | None)
    assert_type(core.update(session, lease, {"id": 1}, {}), bool)
    model = fenced.FencedModel(Shelf)
    assert_type(model.read(session, lease, {"id": 1}), Shelf | None)


def keys(lease: tenure.Lease, first: redis.Redis, second: valkey.Valkey) -> None:
    """Blocking clients."""
    for made in (fencing.FencedKeys(first), fencing.FencedKeys(second, keep=86_400)):
        made.set(lease, "k", b"v", ttl=3)
        assert_type(made.delete(lease, b"k"), bool)


async def async_keys(lease: tenure.AsyncLease, first: redis.asyncio.Redis, second: valkey.asyncio.Valkey) -> None:
    """Asyncio clients."""
    for made in (fencing.AsyncFencedKeys(first), fencing.AsyncFencedKeys(second)):
        await made.set(lease, "k", 1.5)
        assert_type(await made.delete(lease, "k", name="a"), bool)
        await made.execute(lease, "HSET", "k", "f", 1)
