"""What every kind of table does alike: the guarded statement, and finding out why it has changed no row."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ..errors import ConfigError, TenureError
from ..options import shown
from .fence import fence_of, stale

if TYPE_CHECKING:
    from .fence import Fence

ConnT_contra = TypeVar("ConnT_contra", contravariant=True)
RowT_co = TypeVar("RowT_co", covariant=True)

_TRIES = 3
"""Between a statement that found no row and the look at the row it may come or go; not for ever."""


class FencedRows(ABC, Generic[ConnT_contra, RowT_co]):
    """Rows that carry the fence of the last holder that has read or written them."""

    def __init__(self, table: str, fence: str) -> None:
        self._shown = table
        self._fence = fence

    def read(
        self, connection: ConnT_contra, fence: Fence, key: Mapping[str, Any], *, name: str | None = None
    ) -> RowT_co | None:
        """Raises the row's fence, then reads the row; None when there is none.

        From then on no older holder writes this row. Until the end of the transaction nobody else does, so that other
        statements of yours on this row are fenced too.

        Args:
            connection: yours; whether and when to commit stays with you.
            fence: a lease, or its fence.
            key: columns and values that identify one row.
            name: of a lease of several names, the one that stands for this row.

        Raises `StaleFence` when a newer holder was here, `ConfigError` for arguments that cannot work; nothing has
        changed then. The driver's own errors go through. May block for as long as the driver does.

        Safety: a missing row remembers nothing; an older holder may still insert it. When that matters, keep a row.
        After a rollback the fence is what it was: use what was read only once it is committed, or in its transaction.
        """
        number, key, _ = self._checked(connection, fence, name, key, {})
        return self._select(connection, key) if self._guarded(connection, number, key, {}) else None

    def update(
        self,
        connection: ConnT_contra,
        fence: Fence,
        key: Mapping[str, Any],
        values: Mapping[str, Any],
        *,
        name: str | None = None,
    ) -> bool:
        """Writes the values and the fence into the row; whether there is such a row.

        Args:
            connection: yours; whether and when to commit stays with you.
            fence: a lease, or its fence.
            key: columns and values that identify one row.
            values: other columns and their new values; none to raise the fence only.
            name: of a lease of several names, the one that stands for this row.

        Raises `StaleFence` when a newer holder was here, `ConfigError` for arguments that cannot work; nothing has
        changed then. The driver's own errors go through. May block for as long as the driver does.

        Safety: comparison and write are one statement. Values that were worked out from a read need `read` for it.
        """
        number, key, values = self._checked(connection, fence, name, key, values)
        return self._guarded(connection, number, key, values)

    def insert(
        self,
        connection: ConnT_contra,
        fence: Fence,
        key: Mapping[str, Any],
        values: Mapping[str, Any],
        *,
        name: str | None = None,
    ) -> bool:
        """Inserts the row unless it is there; whether it was inserted. One that was there has its fence raised.

        Args:
            connection: yours; whether and when to commit stays with you.
            fence: a lease, or its fence.
            key: columns and values that identify one row; the table has a unique index on them.
            values: other columns and their values.
            name: of a lease of several names, the one that stands for this row.

        Raises `StaleFence` when a newer holder was here, `ConfigError` for arguments that cannot work; nothing has
        changed then. The driver's own errors go through. May block for as long as the driver does.

        Safety: a deleted row has forgotten its fence, and an older holder can insert it again. Mark rows as deleted.
        """
        number, key, values = self._checked(connection, fence, name, key, values)
        for _ in range(_TRIES):
            if self._one(self._insert(connection, number, key, values)):
                return True
            if self._guarded(connection, number, key, {}):
                return False
        raise self._unclear()

    def upsert(
        self,
        connection: ConnT_contra,
        fence: Fence,
        key: Mapping[str, Any],
        values: Mapping[str, Any],
        *,
        name: str | None = None,
    ) -> None:
        """Writes the values and the fence into the row, which is inserted when it is not there.

        Args:
            connection: yours; whether and when to commit stays with you.
            fence: a lease, or its fence.
            key: columns and values that identify one row; the table has a unique index on them.
            values: other columns and their new values; none for a row that only keeps the fence.
            name: of a lease of several names, the one that stands for this row.

        Raises `StaleFence` when a newer holder was here, `ConfigError` for arguments that cannot work; nothing has
        changed then. The driver's own errors go through. May block for as long as the driver does.

        Safety: a deleted row has forgotten its fence, and an older holder can insert it again. Mark rows as deleted.
        """
        number, key, values = self._checked(connection, fence, name, key, values)
        for _ in range(_TRIES):
            if self._one(self._upsert(connection, number, key, values)):
                self._written(connection, key, values)
                return
            seen = self._seen(connection, key)
            if seen is not None and seen > number:
                raise stale(self._row(key), number, seen)
        raise self._unclear()

    # What a kind of table knows: its statements, and how many rows they have changed

    def _usable(self, connection: ConnT_contra) -> None:
        """Refuses what is no connection of this kind."""

    def _written(self, connection: ConnT_contra, key: Mapping[str, Any], values: Mapping[str, Any]) -> None:
        """Told after each write."""

    @abstractmethod
    def _column(self, name: str) -> object:
        """Refuses what is no column."""

    @abstractmethod
    def _update(
        self, connection: ConnT_contra, fence: int, key: Mapping[str, Any], values: Mapping[str, Any]
    ) -> int: ...

    @abstractmethod
    def _insert(
        self, connection: ConnT_contra, fence: int, key: Mapping[str, Any], values: Mapping[str, Any]
    ) -> int: ...

    @abstractmethod
    def _upsert(
        self, connection: ConnT_contra, fence: int, key: Mapping[str, Any], values: Mapping[str, Any]
    ) -> int: ...

    @abstractmethod
    def _seen(self, connection: ConnT_contra, key: Mapping[str, Any]) -> int | None:
        """The row's fence, 0 when it has none yet, None when there is no row."""

    @abstractmethod
    def _select(self, connection: ConnT_contra, key: Mapping[str, Any]) -> RowT_co | None: ...

    # The procedure

    def _guarded(
        self, connection: ConnT_contra, number: int, key: Mapping[str, Any], values: Mapping[str, Any]
    ) -> bool:
        for _ in range(_TRIES):
            if self._one(self._update(connection, number, key, values)):
                self._written(connection, key, values)
                return True
            seen = self._seen(connection, key)
            if seen is None:
                return False
            if seen > number:
                raise stale(self._row(key), number, seen)
        raise self._unclear()

    def _one(self, changed: int) -> bool:
        if changed in (0, 1):
            return changed == 1
        many = "an unknown number of" if changed < 0 else changed
        msg = f"{self._shown}: the statement has changed {many} rows instead of one; roll back, and check the key"
        raise TenureError(msg)

    def _unclear(self) -> TenureError:
        msg = (
            f"{self._shown}: the row takes no write, though no newer holder was here; "
            f"a trigger or a policy of the database, or somebody who deletes and inserts it, keeps it from that"
        )
        return TenureError(msg)

    def _row(self, key: Mapping[str, Any]) -> str:
        return f"{self._shown} {', '.join(f'{column}={shown(value)}' for column, value in key.items())}"

    def _checked(
        self,
        connection: ConnT_contra,
        fence: Fence,
        name: str | None,
        key: Mapping[str, Any],
        values: Mapping[str, Any],
    ) -> tuple[int, dict[str, Any], dict[str, Any]]:
        self._usable(connection)
        number = fence_of(fence, name=name)
        for what, given in (("key", key), ("values", values)):
            if not isinstance(given, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - for those without a type checker
                msg = f"{what} must map columns to values, not {shown(given)}"
                raise ConfigError(msg)
            for column in given:
                self._column(column)
        if not key or any(value is None for value in key.values()):
            msg = f"{self._shown}: the key {shown(dict(key))} identifies no row (NULL equals nothing in SQL)"
            raise ConfigError(msg)
        if self._fence in key or self._fence in values:
            msg = f"{self._shown}: the column {self._fence!r} is written by the guard alone"
            raise ConfigError(msg)
        if both := sorted(key.keys() & values.keys()):
            msg = f"{self._shown}: {', '.join(map(repr, both))} cannot be in the key and among the values"
            raise ConfigError(msg)
        return number, dict(key), dict(values)
