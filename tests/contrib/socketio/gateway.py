"""Gateways in the test's own event loop, each with an AsyncLocks of its own, and devices that are real clients."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import TYPE_CHECKING, Any, Self

import socketio  # pyright: ignore[reportMissingTypeStubs] - it has no types
import uvicorn
from socketio.exceptions import (  # pyright: ignore[reportMissingTypeStubs]
    ConnectionError as Refused,
)

import tenure
from tenure.contrib.socketio import DeviceLeases
from tests.harness.waiting import wait_until_async

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine

    from tenure.contrib.socketio import Connection

SECONDS = 60.0
"""Until a whole test is given up."""


def scenario(work: Coroutine[Any, Any, None]) -> None:
    """Runs what a test does in an event loop of its own."""

    async def bounded() -> None:
        async with asyncio.timeout(SECONDS):
            await work

    asyncio.run(bounded())


def device_of(environ: dict[str, Any], auth: dict[str, str] | None) -> str | None:
    """Devices say who they are."""
    return auth["device"] if auth else None


class Gateway:
    """One server; `told` are the calls of its hooks in order."""

    def __init__(
        self,
        url: str,
        namespace: str,
        *,
        ping_interval: int = 60,
        ping_timeout: int = 60,
        server_timeout: float = 5,
        **options: Any,  # noqa: ANN401 - those of DeviceLeases
    ) -> None:
        self.events: list[tenure.Event] = []
        self.locks = tenure.AsyncLocks(
            url, namespace=namespace, hooks=[self.events.append], server_timeout=server_timeout
        )
        self.sio: Any = socketio.AsyncServer(async_mode="asgi", ping_interval=ping_interval, ping_timeout=ping_timeout)
        self.told: list[tuple[str, str, str | None]] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        # Nobody is refused because the machine stands still while the old connection is being closed.
        chosen: dict[str, Any] = {"takeover": 30, "on_connect": self.online, "on_disconnect": self.offline}
        self.leases = DeviceLeases(
            self.sio, self.locks, options.pop("device_of", device_of), server=self.url, **{**chosen, **options}
        )
        self._server = uvicorn.Server(
            uvicorn.Config(socketio.ASGIApp(self.sio), log_level="critical", lifespan="off", ws="wsproto")
        )
        self._serving: asyncio.Task[None] | None = None

    async def online(self, connection: Connection) -> None:
        self.told.append(("online", connection.device, connection.ending))

    async def offline(self, connection: Connection) -> None:
        self.told.append(("offline", connection.device, connection.ending))

    def connection(self, device: str = "d") -> Connection:
        """The one that owns the device here."""
        (found,) = [connection for connection in self.leases.connections if connection.device == device]
        return found

    async def __aenter__(self) -> Self:
        self._serving = asyncio.create_task(self._server.serve(sockets=[self._listening]))
        await wait_until_async(lambda: self._server.started, why="uvicorn to start")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.leases.close()
        self._server.should_exit = self._server.force_exit = True
        assert self._serving is not None
        await self._serving
        self._listening.close()
        # python-socketio looks after its connections for as long as the loop runs.
        task = self.sio.eio.service_task_handle
        if task is not None:
            task.cancel()
        await self.locks.close()


class Device:
    """One connection of a device."""

    def __init__(self, name: str = "d") -> None:
        self.name = name
        self.client: Any = socketio.AsyncClient(reconnection=False)
        self.gone = asyncio.Event()
        self.refused: Any = None
        self._wire: Any = None
        self.client.on("disconnect", self._disconnected)
        self.client.on("connect_error", self._refused)

    async def _disconnected(self, reason: str = "") -> None:
        del reason
        self.gone.set()

    async def _refused(self, data: object) -> None:
        self.refused = data

    async def connect(self, gateway: Gateway, **options: Any) -> Self:  # noqa: ANN401 - those of the client
        """Connects by websocket; raises python-socketio's `ConnectionError` when it is refused."""
        chosen: dict[str, Any] = {"transports": ["websocket"], "auth": {"device": self.name}}
        # Not with the library's own wait: until that has returned, a disconnect by the server is overlooked for good.
        await self.client.connect(gateway.url, **{**chosen, **options}, wait=False)
        await until(self._answered, "the answer to a connect")
        if not (self.client.get_sid() or self.gone.is_set()):
            await self.client.disconnect()
            raise Refused("refused")
        return self

    def _answered(self) -> bool:
        answers = (self.client.get_sid(), self.gone.is_set(), self.client.failed_namespaces)
        return any(answers) or self.client.eio.state != "connected"

    def vanish(self) -> None:
        """The network goes away: nothing is read any more, so no ping is answered, and the connection stays open."""
        self._wire = self.client.eio.ws._conn.transport
        self._wire.pause_reading()

    async def close(self) -> None:
        if self._wire is not None:
            # No farewell, for which it would wait.
            self._wire.abort()
        await self.client.shutdown()


@contextlib.asynccontextmanager
async def closing(*devices: Device) -> AsyncGenerator[tuple[Device, ...]]:
    """Ends the devices' clients after the block."""
    try:
        yield devices
    finally:
        for device in devices:
            await device.close()


async def until(predicate: Callable[[], object], why: str) -> None:
    await wait_until_async(predicate, 30, why)
