"""Device gateways on python-socketio: one connection owns a device, on all servers together.

A device that comes back on another server races with its own old connection. Here each connection has a lease of its
device: it is taken while connecting, from an old connection that is asked to close; it is renewed by the pings that the
device answers, so that silence frees it; a connection that has lost it is closed. `owner()` tells which server has the
device, for routing.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from socketio.exceptions import (  # pyright: ignore[reportMissingTypeStubs] - it has no types
    ConnectionRefusedError as Refused,
)

from .. import options
from ..errors import ConfigError, LeaseLost, NotAcquired, NotHeld, ServerError, TenureError
from ..runtime import clock

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine

    from ..holder import Holder
    from ..lease import AsyncLease
    from ..manager import AsyncLocks

__all__ = ["Connection", "DeviceLeases", "Owner"]

logger = logging.getLogger("tenure")

NAME = "device:{device}"
_NEVER = 100 * 366 * 86_400.0
"""Seconds; to be connected for long is what a connection is for, and no reason to warn."""


class SocketServer(Protocol):
    """What is used of a `socketio.AsyncServer`."""

    eio: Any
    manager: Any

    def on(self, event: str, handler: Any = None, namespace: Any = None) -> Any:  # noqa: ANN401 - untyped there
        """Has a function called for an event."""
        ...

    async def disconnect(self, sid: str, namespace: Any = None) -> Any:  # noqa: ANN401 - untyped there
        """Closes a connection."""
        ...


@dataclass(frozen=True, slots=True)
class Owner:
    """Which connection owns a device, as the lock server told it at one moment."""

    device: str
    server: str
    """What that server calls its own address."""
    sid: str
    """The connection there."""
    fence: int


class Connection:
    """One connection of a device, and the lease that it has of it."""

    __slots__ = ("device", "ended_at", "ending", "last_hook", "lease", "renewal", "sid")

    def __init__(self, device: str, sid: str, lease: AsyncLease) -> None:
        self.device = device
        self.sid = sid
        self.lease = lease
        """Its fence goes into everything that is written for the device."""
        self.ending: str | None = None
        """Why it is being closed: `asked`, `lost`, `shutdown`; `left` when the device went by itself."""
        self.ended_at: float | None = None
        """When it had closed, by `time.monotonic()`; only then its lease was given back."""
        self.renewal: asyncio.Task[None] | None = None
        self.last_hook: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<Connection {self.sid} of {self.device!r} fence={self.lease.fence}>"


class DeviceLeases:
    """Lets one connection at a time own a device, on all servers that share `locks`.

    Args:
        sio: a `socketio.AsyncServer`; its events `connect` and `disconnect` are handled here from now on.
        locks: where the leases are; the same server and namespace for all.
        device_of: called with the environ and the auth data of a new connection; says which device it is, and is the
            place to check who it claims to be. None, or python-socketio's `ConnectionRefusedError`, refuses it. May be
            a coroutine function.
        server: the address of this server, for those who look for the owner of a device.
        heartbeat: seconds between two pings; None: what `sio` has.
        slack: how long a device may be silent beyond two heartbeats: together they are the ttl.
        takeover: how long a new connection waits for the old one to close, before it is refused.
        namespace: of Socket.IO.
        name: of the lock, with `{device}` in it.
        on_connect: a coroutine function, called with each `Connection` that owns its device.
        on_disconnect: the same, when it does no more; after `on_connect` has ended.

    The two hooks run beside the connection, in the order of its life: a database that is slow delays neither the pings
    nor the connection that takes over. A connection that is refused is told why, and after how many seconds to come
    again (`retry_after`). No I/O here; raises `ConfigError`.

    Safety: the lease is over before `on_disconnect` runs, and may be over in `on_connect` as well: what they write
    needs the fence of `connection.lease` where it is stored, or a late write marks the new connection offline.
    """

    def __init__(  # noqa: PLR0913 - all by keyword
        self,
        sio: SocketServer,
        locks: AsyncLocks,
        device_of: Callable[[dict[str, Any], Any], Awaitable[str | None] | str | None],
        *,
        server: str,
        heartbeat: options.Seconds | None = None,
        slack: options.Seconds = 10,
        takeover: options.Seconds = 5,
        namespace: str = "/",
        name: str = NAME,
        on_connect: Callable[[Connection], Awaitable[object]] | None = None,
        on_disconnect: Callable[[Connection], Awaitable[object]] | None = None,
    ) -> None:
        if "{device}" not in name:
            msg = f"the name of a device's lock needs '{{device}}', not {options.shown(name)}"
            raise ConfigError(msg)
        beat = options.seconds(sio.eio.ping_interval if heartbeat is None else heartbeat, "heartbeat", above=True)
        self._sio = sio
        self._locks = locks
        self._device_of = device_of
        self._server = server
        self._ttl = 2 * beat + options.seconds(slack, "slack")
        self._takeover = options.seconds(takeover, "takeover")
        self._namespace = namespace
        self._name = name
        self._on_connect = on_connect
        self._on_disconnect = on_disconnect
        self._connections: dict[str, Connection] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = False
        sio.on("connect", self._connected, namespace=namespace)
        sio.on("disconnect", self._disconnected, namespace=namespace)

    @property
    def server(self) -> str:
        """The address of this server."""
        return self._server

    @property
    def ttl(self) -> float:
        """Seconds of silence after which a device is free again: two heartbeats and the slack."""
        return self._ttl

    @property
    def connections(self) -> list[Connection]:
        """Those that own a device on this server now; no I/O."""
        return list(self._connections.values())

    def connection(self, sid: str) -> Connection | None:
        """The connection `sid` if it is on this server and owns its device; no I/O."""
        return self._connections.get(sid)

    def lease(self, sid: str) -> AsyncLease | None:
        """The lease of the connection `sid`, or None; no I/O.

        Safety: it can end before the work does; its fence goes into what is written, `check()` in front of effects.
        """
        found = self._connections.get(sid)
        return found.lease if found is not None else None

    async def owner(self, device: str) -> Owner | None:
        """Which connection owns the device, on whichever server, or None; one request. Raises a `ServerError`.

        Safety: it may have changed before the answer arrives: the server that is asked looks among its `connections`.
        """
        return self._owner_of(device, await self._locks.holder(self._name_of(device)))

    async def watch(self, device: str) -> AsyncGenerator[Owner | None]:
        """Yields who owns the device, or None, now and after each change, until the iteration is given up.

        See `AsyncLocks.watch`. Raises a `ServerError`.
        """
        async for holder in self._locks.watch(self._name_of(device)):
            yield self._owner_of(device, holder)

    def heard(self, sid: str) -> None:
        """Renews the lease of the connection `sid`, in the background: its device has just shown that it lives.

        Called for each ping that the device answers. For devices with a heartbeat of their own call it from the handler
        of that event. A lease that is gone is not extended: its connection is closed.
        """
        connection = self._connections.get(sid)
        # A renewal that is under way was sent a moment ago: one more would tell nothing new.
        if connection is not None and (connection.renewal is None or connection.renewal.done()):
            connection.renewal = self._start(self._renew(connection))

    async def close(self, timeout: options.Seconds = 10) -> None:
        """Closes the connections of all devices and gives their leases back; for the end of a server.

        Waits for the hooks, up to `timeout` seconds. New connections are refused from now on.
        """
        left = options.seconds(timeout, "timeout")
        self._closing = True
        for connection in self.connections:
            self._start(self._end(connection, "shutdown"))
        until = clock.now() + left
        # Leaving starts the hooks, which then are waited for too.
        while self._tasks and (remaining := until - clock.now()) > 0:
            await asyncio.wait(set(self._tasks), timeout=remaining)
        if self._tasks:
            logger.warning("%d tasks of connections still run at the end of the gateway", len(self._tasks))

    # Handlers of python-socketio

    async def _connected(self, sid: str, environ: dict[str, Any], auth: Any = None) -> None:  # noqa: ANN401 - its own
        if self._closing:
            raise Refused("this server is closing", {"retry_after": 1})
        found = self._device_of(environ, auth)
        device = await found if inspect.isawaitable(found) else found
        if not device:
            raise Refused("no device")
        socket = self._socket(sid)
        connection = Connection(device, sid, await self._acquired(device, sid))
        # Nobody tells us of a connection that ended while it was waiting.
        if self._closing or socket is None or socket.closed or socket.closing:
            await self._given_back(connection)
            raise Refused("the connection has ended")
        self._connections[sid] = connection
        self._listen(socket, sid)
        self._hook(connection, self._on_connect)
        connection.lease.on_lost(functools.partial(self._over, connection, "lost"))
        connection.lease.on_ask(functools.partial(self._over, connection, "asked"))

    async def _acquired(self, device: str, sid: str) -> AsyncLease:
        try:
            lease = await self._locks.lock(
                self._name_of(device),
                ttl=self._ttl,
                wait=self._takeover,
                renew=False,
                ask_after=0,
                warn_after=_NEVER,
                info={"server": self._server, "sid": sid},
            ).acquire()
        except NotAcquired as error:
            raise Refused("the device's old connection is still there", {"retry_after": error.retry_after}) from error
        except ConfigError as error:
            raise Refused("no name of a device") from error
        except TenureError as error:
            logger.warning("device %r is refused: %s", device, error)
            raise Refused("no lock server", {"retry_after": 1}) from error
        # It belongs to the connection, and not to the task that happens to read the first message.
        lease.detach()
        return lease

    async def _disconnected(self, sid: str, reason: str = "") -> None:
        del reason
        connection = self._connections.get(sid)
        if connection is not None:
            await self._leave(connection, "left")

    # Life of a connection

    def _over(self, connection: Connection, why: str, lease: AsyncLease) -> None:
        del lease
        self._start(self._end(connection, why))

    async def _end(self, connection: Connection, why: str) -> None:
        """Closes the connection first, and only then lets somebody else have the device."""
        connection.ending = connection.ending or why
        try:
            await self._sio.disconnect(connection.sid, namespace=self._namespace)
        except Exception:
            logger.exception("%r could not be closed", connection)
        # One that is not connected yet, or that python-socketio no longer knows, tells nobody that it has gone.
        await self._leave(connection, why)

    async def _leave(self, connection: Connection, why: str) -> None:
        """Gives back this connection's own lease, once."""
        if self._connections.pop(connection.sid, None) is None:
            return
        connection.ending, connection.ended_at = connection.ending or why, time.monotonic()
        try:
            await self._given_back(connection)
        finally:
            self._hook(connection, self._on_disconnect)

    @staticmethod
    async def _given_back(connection: Connection) -> None:
        try:
            await connection.lease.release()
        except TenureError as error:
            logger.warning("%r: its lease could not be given back (%s); its ttl takes over", connection, error)

    async def _renew(self, connection: Connection) -> None:
        try:
            await connection.lease.renew()
        except (LeaseLost, NotHeld):
            await self._end(connection, "lost")
        except ServerError as error:
            # Its deadline is as it was; the next ping tries again.
            logger.warning("%r was not renewed: %s", connection, error)

    def _listen(self, socket: Any, sid: str) -> None:  # noqa: ANN401 - untyped there
        """Engine.IO calls this method for each pong, and for nothing else."""
        schedule = socket.schedule_ping

        def schedule_ping() -> None:
            self.heard(sid)
            schedule()

        socket.schedule_ping = schedule_ping

    def _hook(self, connection: Connection, hook: Callable[[Connection], Awaitable[object]] | None) -> None:
        if hook is not None:
            connection.last_hook = self._start(self._called(connection, hook, connection.last_hook))

    @staticmethod
    async def _called(
        connection: Connection,
        hook: Callable[[Connection], Awaitable[object]],
        before: asyncio.Task[None] | None,
    ) -> None:
        if before is not None:
            await asyncio.wait([before])
        try:
            await hook(connection)
        except Exception:
            logger.exception("%r: %s failed", connection, getattr(hook, "__name__", hook))

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        # The loop keeps no reference to it.
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # Names

    def _socket(self, sid: str) -> Any:  # noqa: ANN401 - untyped there
        return self._sio.eio.sockets.get(self._sio.manager.eio_sid_from_sid(sid, self._namespace))

    def _name_of(self, device: str) -> str:
        return self._name.replace("{device}", device)

    @staticmethod
    def _owner_of(device: str, holder: Holder | None) -> Owner | None:
        if holder is None or not isinstance(holder.info, Mapping) or holder.fence is None:
            return None
        return Owner(device, str(holder.info.get("server")), str(holder.info.get("sid")), holder.fence)
