"""Tables and mapped classes of SQLAlchemy 2, on SQLite and PostgreSQL; `read` and `update` on whatever it supports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from sqlalchemy import Connection, RowMapping, Table, func, inspect, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import NoInspectionAvailable
from sqlalchemy.orm import Mapper, Session, scoped_session

from ..errors import ConfigError
from ..options import shown
from .rows import FencedRows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import ColumnElement, CursorResult, Executable

T = TypeVar("T")
RowT_co = TypeVar("RowT_co", covariant=True)
Sessions = Session | scoped_session[Any]
Connections = Connection | Sessions

_INSERTS = {"postgresql": postgresql.insert, "sqlite": sqlite.insert}


class _Statements(FencedRows[Connections, RowT_co], Generic[RowT_co]):
    """The statements, for columns that are called by the names in `columns`."""

    def __init__(self, table: Table[Any], columns: Mapping[str, ColumnElement[Any]], fence: str) -> None:
        super().__init__(table.fullname, fence)
        self._table = table
        self._columns = columns
        self._own = func.coalesce(self._column(fence), 0)

    def _column(self, name: str) -> ColumnElement[Any]:
        column = self._columns.get(name) if isinstance(name, str) else None  # pyright: ignore[reportUnnecessaryIsInstance] - for those without a type checker
        if column is None:
            msg = f"{self._shown} has no column {shown(name)}; it has {', '.join(self._columns)}"
            raise ConfigError(msg)
        return column

    def _named(self, values: Mapping[str, Any]) -> dict[Any, Any]:
        return {self._column(name): value for name, value in values.items()}

    def _where(self, key: Mapping[str, Any]) -> list[ColumnElement[bool]]:
        return [self._column(name) == value for name, value in key.items()]

    def _update(self, connection: Connections, fence: int, key: Mapping[str, Any], values: Mapping[str, Any]) -> int:
        named = self._named({**values, self._fence: fence})
        return self._changed(connection, update(self._table).where(*self._where(key), self._own <= fence).values(named))

    def _insert(self, connection: Connections, fence: int, key: Mapping[str, Any], values: Mapping[str, Any]) -> int:
        into = self._into(connection, fence, key, values)
        return self._changed(connection, into.on_conflict_do_nothing(index_elements=[*self._named(key)]))

    def _upsert(self, connection: Connections, fence: int, key: Mapping[str, Any], values: Mapping[str, Any]) -> int:
        into = self._into(connection, fence, key, values)
        new = into.excluded
        return self._changed(
            connection,
            into.on_conflict_do_update(
                index_elements=[*self._named(key)],
                set_={column.name: new[column.key] for column in self._named({**values, self._fence: fence})},
                where=self._own <= fence,
            ),
        )

    def _into(
        self, connection: Connections, fence: int, key: Mapping[str, Any], values: Mapping[str, Any]
    ) -> postgresql.Insert | sqlite.Insert:
        dialect = self._dialect(connection)
        if dialect not in _INSERTS:
            msg = f"{self._shown}: insert and upsert know {' and '.join(_INSERTS)}, not {dialect}; read and update do"
            raise ConfigError(msg)
        return _INSERTS[dialect](self._table).values(self._named({**key, **values, self._fence: fence}))

    def _dialect(self, connection: Connections) -> str:
        if isinstance(connection, Connection):
            return connection.dialect.name
        return connection.get_bind(clause=self._table).dialect.name

    def _seen(self, connection: Connections, key: Mapping[str, Any]) -> int | None:
        seen = self._run(connection, select(self._own).where(*self._where(key))).scalar()
        return None if seen is None else int(seen)

    def _changed(self, connection: Connections, statement: Executable) -> int:
        return self._run(connection, statement.execution_options(preserve_rowcount=True)).rowcount

    @staticmethod
    def _run(connection: Connections, statement: Executable) -> CursorResult[Any]:
        return cast("CursorResult[Any]", connection.execute(statement))

    def _usable(self, connection: Connections) -> None:
        if not isinstance(connection, Connection | Session | scoped_session):  # pyright: ignore[reportUnnecessaryIsInstance] - for those without a type checker
            msg = (
                f"{self._shown}: a Connection or a Session is needed, not {shown(connection)}; "
                f"in asyncio, run_sync of an AsyncConnection or AsyncSession hands one over"
            )
            raise ConfigError(msg)


class FencedTable(_Statements[RowMapping]):
    """A `Table` with a column that keeps the fence of the last holder that has read or written the row.

    All methods take a `Connection` or a `Session`; in asyncio those that `run_sync` hands over.

    Args:
        table: with a column `Column("fence", BigInteger, nullable=False, server_default="0")`.
        fence: how that column is called.

    Raises `ConfigError` when there is none. Does nothing else until it is used.

    Safety: what writes to the table in another way is not refused.
    """

    def __init__(self, table: Table[Any], *, fence: str = "fence") -> None:
        if not isinstance(table, Table):  # pyright: ignore[reportUnnecessaryIsInstance] - for those without a type checker
            msg = f"a Table is needed, not {shown(table)}; for mapped classes there is FencedModel"
            raise ConfigError(msg)
        super().__init__(table, dict(table.columns.items()), fence)

    def _select(self, connection: Connections, key: Mapping[str, Any]) -> RowMapping | None:
        return self._run(connection, select(self._table).where(*self._where(key))).mappings().first()


class FencedModel(_Statements[T], Generic[T]):
    """A mapped class with an attribute that keeps the fence of the last holder that has read or written the row.

    All methods take a `Session`; in asyncio the one that `run_sync` of an `AsyncSession` hands over. `read` returns the
    object as it is in the database now. What you change in it is fenced if you flush it in the same transaction. What
    `update`, `insert` and `upsert` write is loaded anew by the session's objects of the row at their next use.

    Args:
        model: with an attribute `fence: Mapped[int] = mapped_column(BigInteger, server_default="0")`.
        fence: how that attribute is called.

    Raises `ConfigError` when there is none. Does nothing else until it is used.

    Safety: objects that were loaded in another way, and are flushed in a transaction without `read`, are not refused.
    """

    def __init__(self, model: type[T], *, fence: str = "fence") -> None:
        try:
            mapper = inspect(model)
        except NoInspectionAvailable:
            mapper = None
        table = cast("Table[Any] | None", mapper.local_table if isinstance(mapper, Mapper) else None)
        if mapper is None or not isinstance(table, Table):
            msg = f"a class that is mapped to a table is needed, not {shown(model)}"
            raise ConfigError(msg)
        columns = {name: column for name, column in mapper.columns.items() if column.table is table}
        super().__init__(table, columns, fence)
        self._model = model

    def _select(self, connection: Connections, key: Mapping[str, Any]) -> T | None:
        statement = select(self._model).where(*self._where(key)).execution_options(populate_existing=True)
        found: T | None = connection.execute(statement).scalar()
        return found

    def _usable(self, connection: Connections) -> None:
        super()._usable(connection)
        if isinstance(connection, Connection):
            msg = f"{self._shown}: a mapped class needs a Session, not a Connection"
            raise ConfigError(msg)

    def _written(self, connection: Connections, key: Mapping[str, Any], values: Mapping[str, Any]) -> None:
        session = cast("Session", connection)
        for found in session.identity_map.values():
            if not isinstance(found, self._model):
                continue
            loaded: dict[str, Any] = inspect(found).dict
            # One that is expired, key and all, is loaded anew anyhow; to say so twice does no harm.
            if all(loaded.get(name, value) == value for name, value in key.items()):
                session.expire(found, [self._fence, *values])
