"""A gateway without leases, for those who want to see what they prevent: whoever connects owns the device."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from tenure.contrib.socketio import Owner

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine

    from .records import Records

    Hook = Callable[["NaiveConnection"], Awaitable[object]]


class NaiveConnection:
    """One connection of a device, and nothing that says whether it is the only one."""

    lease: None = None

    def __init__(self, device: str, sid: str) -> None:
        self.device = device
        self.sid = sid
        self.ending: str | None = None
        self.ended_at: float | None = None
        self.hooks: asyncio.Future[Any] | None = None


class NaiveDevices:
    """The same methods as `DeviceLeases`; the owner is what the database says."""

    def __init__(  # noqa: PLR0913 - all by keyword
        self, sio: Any, records: Records,  # noqa: ANN401 - untyped
        device_of: Callable[[dict[str, Any], Any], str | None], *,
        server: str, on_connect: Hook, on_disconnect: Hook,
    ) -> None:  # fmt: skip
        self.server = server
        self._records = records
        self._device_of = device_of
        self._on_connect = on_connect
        self._on_disconnect = on_disconnect
        self._connections: dict[str, NaiveConnection] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        sio.on("connect", self._connected)
        sio.on("disconnect", self._disconnected)

    @property
    def connections(self) -> list[NaiveConnection]:
        """Those that are on this server."""
        return list(self._connections.values())

    def connection(self, sid: str) -> NaiveConnection | None:
        """One of them."""
        return self._connections.get(sid)

    async def owner(self, device: str) -> Owner | None:
        """Who wrote last that it is online."""
        record = await self._records.device(device)
        return Owner(device, record["server"], record["sid"], 0) if record and record["online"] else None

    async def watch(self, device: str) -> AsyncGenerator[Owner | None]:
        """Looks again and again."""
        while True:
            yield await self.owner(device)
            await asyncio.sleep(0.5)

    async def close(self) -> None:
        """Lets the hooks end."""
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=10)

    async def _connected(self, sid: str, environ: dict[str, Any], auth: Any = None) -> bool:  # noqa: ANN401 - untyped
        device = self._device_of(environ, auth)
        if not device:
            return False
        connection = self._connections[sid] = NaiveConnection(device, sid)
        connection.hooks = self._start(self._on_connect(connection))
        return True

    async def _disconnected(self, sid: str, reason: str = "") -> None:
        del reason
        connection = self._connections.pop(sid)
        connection.ending, connection.ended_at = "left", time.monotonic()

        async def after() -> None:
            if connection.hooks is not None:
                await connection.hooks
            await self._on_disconnect(connection)

        self._start(after())

    def _start(self, work: Awaitable[Any] | Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        async def run() -> None:
            await work

        task = asyncio.create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
