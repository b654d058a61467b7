"""Tables through any driver that follows the DB-API (PEP 249): sqlite3, psycopg and others."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import closing
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Protocol, cast

from ..errors import ConfigError
from ..options import shown
from .rows import FencedRows

if TYPE_CHECKING:
    from collections.abc import Callable

_IDENTIFIER = re.compile(r"[^\W\d][\w$]{0,62}")

_PLACEHOLDERS: dict[str, Callable[[int], str]] = {
    "qmark": lambda _: "?",
    "numeric": lambda number: f":{number}",
    "named": lambda number: f":p{number}",
    "format": lambda _: "%s",
    "pyformat": lambda number: f"%(p{number})s",
}


class Driver(Protocol):
    """A DB-API module, such as `sqlite3` or `psycopg`."""

    @property
    def paramstyle(self) -> str:
        """How its placeholders are written."""
        ...


class Cursor(Protocol):
    """What is used of a cursor."""

    @property
    def rowcount(self) -> int:
        """How many rows the last statement has changed."""
        ...

    @property
    def description(self) -> Any:  # noqa: ANN401 - each driver has a type of its own for it
        """The columns of the result."""
        ...

    def execute(self, operation: Any, parameters: Any, /) -> object:  # noqa: ANN401 - psycopg takes literals only
        """Runs one statement."""
        ...

    def fetchone(self) -> Any:  # noqa: ANN401 - a row of any shape
        """The next row."""
        ...

    def close(self) -> None:
        """Ends it."""
        ...


class Connection(Protocol):
    """What is used of a connection."""

    def cursor(self) -> Cursor:
        """A new cursor."""
        ...


class FencedTable(FencedRows[Connection, dict[str, Any]]):
    """A table with a column that keeps the fence of the last holder that has read or written the row.

    The statements work on SQLite and PostgreSQL; `read` and `update` on other databases that know `"quoted"` names and
    count the rows that a statement has found.

    Args:
        driver: the module whose connections will be used: `sqlite3`, `psycopg`, …
        table: its name, `schema.name` with a schema, in the case that the database has stored it in.
        fence: the name of the column, `BIGINT NOT NULL DEFAULT 0`.

    Raises `ConfigError` for a name that is none. Does nothing else until it is used.

    Safety: what writes to the table in another way is not refused.
    """

    def __init__(self, driver: Driver, table: str, *, fence: str = "fence") -> None:
        if driver.paramstyle not in _PLACEHOLDERS:
            msg = f"the driver's paramstyle {shown(driver.paramstyle)} is not one of {', '.join(_PLACEHOLDERS)}"
            raise ConfigError(msg)
        self._style = driver.paramstyle
        parts = table.split(".") if isinstance(table, str) else [table]  # pyright: ignore[reportUnnecessaryIsInstance] - for those without a type checker
        self._table = ".".join(_quoted(part, "table") for part in parts)
        self._alias = _quoted(parts[-1], "table")
        self._own = f"{self._alias}.{_quoted(fence, 'column')}"
        super().__init__(table, fence)

    def _usable(self, connection: Connection) -> None:
        if iscoroutinefunction(getattr(connection, "execute", None)) or not hasattr(connection, "cursor"):
            msg = (
                f"{self._shown}: a blocking connection of the driver is needed, not {shown(connection)}; "
                f"for asyncio there is tenure.fencing.sqlalchemy"
            )
            raise ConfigError(msg)

    def _column(self, name: str) -> str:
        # With its table: SQLite takes a quoted name alone that it does not know for a text.
        return f"{self._alias}.{_quoted(name, 'column')}"

    def _update(self, connection: Connection, fence: int, key: Mapping[str, Any], values: Mapping[str, Any]) -> int:
        bind = _Binder(self._style)
        sets = ", ".join(f"{_quoted(c, 'column')} = {bind(v)}" for c, v in {**values, self._fence: fence}.items())
        where = f"{self._where(bind, key)} AND COALESCE({self._own}, 0) <= {bind(fence)}"
        return self._changed(connection, f"UPDATE {self._table} SET {sets} WHERE {where}", bind)  # noqa: S608 - quoted

    def _insert(self, connection: Connection, fence: int, key: Mapping[str, Any], values: Mapping[str, Any]) -> int:
        bind = _Binder(self._style)
        return self._changed(connection, self._into(bind, fence, key, values) + " DO NOTHING", bind)

    def _upsert(self, connection: Connection, fence: int, key: Mapping[str, Any], values: Mapping[str, Any]) -> int:
        bind = _Binder(self._style)
        into = self._into(bind, fence, key, values)
        own = _quoted(self._fence, "column")
        sets = ", ".join(f"{c} = excluded.{c}" for c in [*(_quoted(c, "column") for c in values), own])
        return self._changed(
            connection, f"{into} DO UPDATE SET {sets} WHERE COALESCE({self._own}, 0) <= excluded.{own}", bind
        )

    def _seen(self, connection: Connection, key: Mapping[str, Any]) -> int | None:
        row = self._row_of(connection, f"COALESCE({self._own}, 0) AS {_quoted(self._fence, 'column')}", key)
        return None if row is None else int(row[self._fence])

    def _select(self, connection: Connection, key: Mapping[str, Any]) -> dict[str, Any] | None:
        return self._row_of(connection, "*", key)

    def _into(self, bind: _Binder, fence: int, key: Mapping[str, Any], values: Mapping[str, Any]) -> str:
        row = {**key, **values, self._fence: fence}
        columns = ", ".join(_quoted(column, "column") for column in row)
        unique = ", ".join(_quoted(column, "column") for column in key)
        places = ", ".join(bind(value) for value in row.values())
        return f"INSERT INTO {self._table} ({columns}) VALUES ({places}) ON CONFLICT ({unique})"  # noqa: S608 - quoted

    def _where(self, bind: _Binder, key: Mapping[str, Any]) -> str:
        return " AND ".join(f"{self._column(column)} = {bind(value)}" for column, value in key.items())

    def _row_of(self, connection: Connection, what: str, key: Mapping[str, Any]) -> dict[str, Any] | None:
        bind = _Binder(self._style)
        statement = f"SELECT {what} FROM {self._table} WHERE {self._where(bind, key)}"  # noqa: S608 - quoted
        with closing(_run(connection, statement, bind)) as cursor:
            row: Any = cursor.fetchone()
            if row is None or isinstance(row, Mapping):
                return None if row is None else dict(cast("Mapping[str, Any]", row))
            return dict(zip((column[0] for column in cursor.description), row, strict=True))

    @staticmethod
    def _changed(connection: Connection, statement: str, bind: _Binder) -> int:
        with closing(_run(connection, statement, bind)) as cursor:
            return cursor.rowcount


class _Binder:
    """Collects values, and gives a placeholder for each in the driver's style."""

    def __init__(self, style: str) -> None:
        self._placeholder = _PLACEHOLDERS[style]
        self._by_name = style in ("named", "pyformat")
        self._values: list[Any] = []

    def __call__(self, value: object) -> str:
        self._values.append(value)
        return self._placeholder(len(self._values))

    @property
    def parameters(self) -> list[Any] | dict[str, Any]:
        if self._by_name:
            return {f"p{number}": value for number, value in enumerate(self._values, 1)}
        return self._values


def _run(connection: Connection, statement: str, bind: _Binder) -> Cursor:
    cursor = connection.cursor()
    try:
        cursor.execute(statement, bind.parameters)
    except BaseException:
        cursor.close()
        raise
    return cursor


def _quoted(name: object, what: str) -> str:
    # No character that could end the quotes, or that a driver takes for a placeholder.
    if not isinstance(name, str) or not _IDENTIFIER.fullmatch(name):
        msg = f"{shown(name)} is no name of a {what}: letters, digits, _ and $, at most 63, no digit in front"
        raise ConfigError(msg)
    return f'"{name}"'
