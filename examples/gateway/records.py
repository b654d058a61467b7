"""What is known of each device, in SQLite or PostgreSQL; written only under the fence of the connection's lease."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

from tenure import StaleFence
from tenure.fencing import FencedTable

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import TypeVar

    T = TypeVar("T")

THREADS = 4
"""At most as many connections to the database for each server."""

TABLES = """
CREATE TABLE IF NOT EXISTS device (
    id VARCHAR(100) PRIMARY KEY,
    online INTEGER NOT NULL DEFAULT 0,
    server VARCHAR(200),
    sid VARCHAR(100),
    seen DOUBLE PRECISION,
    fence BIGINT NOT NULL DEFAULT 0
);
CREATE TABLE IF NOT EXISTS history (
    id {serial},
    device VARCHAR(100) NOT NULL,
    online INTEGER NOT NULL,
    sid VARCHAR(100) NOT NULL,
    fence BIGINT NOT NULL
);
CREATE TABLE IF NOT EXISTS run (
    id {serial},
    job VARCHAR(100) NOT NULL,
    server VARCHAR(200) NOT NULL
)
"""


class Records:
    """The tables, for one process.

    Args:
        url: the path of an SQLite file, or what psycopg connects to.
        delay: seconds that each write takes, for those who want to see a slow database.
        fenced: False writes without looking at the fence, for those who want to see what it prevents.
    """

    def __init__(self, url: str, *, delay: float = 0.0, fenced: bool = True) -> None:
        self._url = url
        self._delay = delay
        self._fenced = fenced
        self._sqlite = not url.startswith(("postgres:", "postgresql:")) and "dbname=" not in url
        self._driver: Any = sqlite3 if self._sqlite else __import__("psycopg")
        self._table = FencedTable(self._driver, "device")
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="records")
        self.refused = 0
        """How many writes came after those of a newer connection."""
        self.pending = 0
        """How many writes are under way."""

    def prepare(self) -> None:
        """Makes the tables; before the first server starts."""
        serial = "INTEGER PRIMARY KEY" if self._sqlite else "BIGSERIAL PRIMARY KEY"
        with self._transaction() as connection:
            if self._sqlite:
                connection.execute("PRAGMA journal_mode = wal")
            for statement in TABLES.format(serial=serial).split(";"):
                connection.execute(statement)

    async def online(self, device: str, server: str, sid: str, fence: int) -> bool:
        """Writes that this connection owns the device; False when a newer one was here."""
        return await self._mark(device, sid, fence, {"online": 1, "server": server, "sid": sid, "seen": time.time()})

    async def offline(self, device: str, sid: str, fence: int) -> bool:
        """Writes that this connection has ended; False when a newer one was here."""
        return await self._mark(device, sid, fence, {"online": 0, "seen": time.time()})

    async def seen(self, device: str, fence: int) -> None:
        """Writes that the device has shown itself."""
        await self._write(device, fence, {"seen": time.time()}, None)

    async def ran(self, job: str, server: str) -> None:
        """Remembers that a scheduled job ran."""
        await self._in_thread(partial(self._insert, "run", {"job": job, "server": server}))

    async def device(self, device: str) -> dict[str, Any] | None:
        """The record of one device."""
        found = await self._in_thread(partial(self.rows, "device", "id", device))
        return found[0] if found else None

    async def said_to_be_online(self) -> list[dict[str, Any]]:
        """The records of all devices that are online, as far as the database knows."""
        return await self._in_thread(partial(self.rows, "device", "online", 1))

    def rows(self, table: str, column: str | None = None, value: object = None) -> list[dict[str, Any]]:
        """All rows, or those with one value; for those who look from outside. Blocks."""
        where = "" if column is None else f"WHERE {column} = {self._mark_of_value}"
        with self._transaction() as connection:
            cursor = connection.cursor()
            cursor.execute(f"SELECT * FROM {table} {where} ORDER BY id", () if column is None else (value,))  # noqa: S608 - our own names
            names = [part[0] for part in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    async def _mark(self, device: str, sid: str, fence: int, values: dict[str, Any]) -> bool:
        entry = {"device": device, "online": values["online"], "sid": sid, "fence": fence}
        return await self._write(device, fence, values, entry)

    async def _write(self, device: str, fence: int, values: dict[str, Any], entry: dict[str, Any] | None) -> bool:
        self.pending += 1
        try:
            await asyncio.sleep(self._delay)
            await self._in_thread(partial(self._guarded, device, fence, values, entry))
        except StaleFence:
            self.refused += 1
            return False
        finally:
            self.pending -= 1
        return True

    def _guarded(self, device: str, fence: int, values: dict[str, Any], entry: dict[str, Any] | None) -> None:
        with self._transaction() as connection:
            # The comparison with the highest fence so far and the write are one statement.
            self._table.upsert(connection, fence if self._fenced else 1, {"id": device}, values)
            if entry is not None:
                self._add(connection, "history", entry)

    def _insert(self, table: str, values: dict[str, Any]) -> None:
        with self._transaction() as connection:
            self._add(connection, table, values)

    def _add(self, connection: Any, table: str, values: dict[str, Any]) -> None:  # noqa: ANN401 - of either driver
        places = ", ".join([self._mark_of_value] * len(values))
        connection.execute(
            f"INSERT INTO {table} ({', '.join(values)}) VALUES ({places})",  # noqa: S608 - our own names
            tuple(values.values()),
        )

    @property
    def _mark_of_value(self) -> str:
        return "?" if self._sqlite else "%s"

    @contextlib.contextmanager
    def _transaction(self) -> Generator[Any]:
        made = sqlite3.connect(self._url, timeout=60) if self._sqlite else self._driver.connect(self._url)
        with contextlib.closing(made) as connection, connection:
            yield connection

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)
