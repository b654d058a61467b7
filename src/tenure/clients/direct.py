"""Connections that tenure opens itself, for client libraries that lend their settings but not their connections."""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .. import patches
from ..core.ports import NotSent, Unanswered
from .resp import pack
from .sockets import SocketConnection
from .streams import StreamConnection

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

_SOONEST = 0.001


def _nobody() -> None:
    """Told of nothing: a connection that breaks before it is given away is found broken at its next command."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server is, and how it is to be greeted; whatever of it is a secret is in no `repr`."""

    host: str = "localhost"
    port: int = 6379
    path: str | None = None
    """A unix socket, instead of host and port."""
    tls: ssl.SSLContext | None = None
    database: int = 0
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    provider: Callable[[], Awaitable[tuple[str | None, str]]] | None = field(default=None, repr=False)
    """Gives user and password instead; asked anew for each connection."""
    client_name: str | None = None
    socket_options: Mapping[tuple[int, int], int | bytes] = field(default_factory=dict[tuple[int, int], int | bytes])
    """Level and option -> value, for connections by TCP."""
    greeting: tuple[tuple[str, ...], ...] = ()
    """More commands for a fresh connection; one that is refused refuses the connection."""

    @property
    def node(self) -> str:
        """The server's address for messages."""
        return self.path or f"{self.host}:{self.port}"

    def commands(self, user: str | None, password: str | None) -> list[bytes]:
        """What a fresh connection says first."""
        words: list[tuple[str, ...]] = []
        if user:
            words.append(("AUTH", user, password or ""))
        elif password:
            words.append(("AUTH", password))
        if self.client_name:
            words.append(("CLIENT", "SETNAME", self.client_name))
        if self.database:
            words.append(("SELECT", str(self.database)))
        return [pack(*command) for command in (*words, *self.greeting)]


class DirectClient:
    """A `Client` of one server that needs no client library: an address is all it knows."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self.node = address.node

    def connect(self, timeout: float) -> SocketConnection:
        """Opens and authenticates a blocking connection."""
        until = time.monotonic() + timeout
        try:
            greeting = self._address.commands(*self._credentials(timeout))
            sock = self._socket(timeout)
        except (OSError, ValueError) as error:
            raise self._failure(error) from None
        connection = SocketConnection(sock, sock)
        try:
            for command in greeting:
                connection.call(command, max(until - time.monotonic(), _SOONEST))
        except Unanswered as failure:
            raise self._unanswered(failure.cause) from None
        except BaseException:
            connection.close()
            raise
        return connection

    def _socket(self, timeout: float) -> socket.socket:
        address = self._address
        if address.path is not None:
            sock = socket.socket(socket.AF_UNIX)
            try:
                sock.settimeout(timeout)
                sock.connect(address.path)
            except BaseException:
                sock.close()
                raise
            return sock
        sock = socket.create_connection((address.host, address.port), timeout)
        try:
            self._set_options(sock)
            return sock if address.tls is None else address.tls.wrap_socket(sock, server_hostname=address.host)
        except BaseException:
            sock.close()
            raise

    def _set_options(self, sock: Any) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for (level, option), value in self._address.socket_options.items():
            sock.setsockopt(level, option, value)

    def _credentials(self, timeout: float) -> tuple[str | None, str | None]:
        if self._address.provider is None:
            return self._address.user, self._address.password

        async def provided() -> tuple[str | None, str | None]:
            async with asyncio.timeout(timeout):
                return await self._provided()

        if patches.green():
            from ..runtime.green import run_apart  # noqa: PLC0415 - imports gevent

            return run_apart(provided())
        # In a thread: this one may be running an event loop, in which no other can run.
        with ThreadPoolExecutor(1, "tenure-credentials") as executor:
            return executor.submit(asyncio.run, provided()).result()

    async def _provided(self) -> tuple[str | None, str | None]:
        ask = self._address.provider
        if ask is None:
            return self._address.user, self._address.password
        try:
            return await ask()
        except Exception as error:  # noqa: BLE001 - whatever a user's provider raises
            # Not in its own words: there may be a secret in them.
            msg = f"the credential provider failed: {type(error).__name__}"
            raise NotSent(msg) from None

    async def connect_async(
        self,
        timeout: float,
        *,
        on_lost: Callable[[], None],
        on_push: Callable[[Any], None] | None = None,
    ) -> StreamConnection:
        """Opens and authenticates a connection of the running event loop."""
        try:
            async with asyncio.timeout(timeout):
                greeting = self._address.commands(*await self._provided())
                return await self._greeted(greeting, timeout, on_lost, on_push)
        except Unanswered as failure:
            raise self._unanswered(failure.cause) from None
        except (OSError, ValueError) as error:
            raise self._failure(error) from None

    async def _greeted(
        self,
        greeting: list[bytes],
        timeout: float,
        on_lost: Callable[[], None],
        on_push: Callable[[Any], None] | None,
    ) -> StreamConnection:
        address = self._address
        loop = asyncio.get_running_loop()
        if address.path is not None:
            transport, _ = await loop.create_unix_connection(asyncio.Protocol, address.path)
        else:
            # The name that the certificate has to bear is the host's.
            transport, _ = await loop.create_connection(asyncio.Protocol, address.host, address.port, ssl=address.tls)
        try:
            if address.path is None:
                self._set_options(transport.get_extra_info("socket"))
            # A subscriber's connection pairs no replies with commands; while it is greeted it is an ordinary one.
            ordinary = StreamConnection(transport, transport, on_lost=_nobody, on_push=None)
            for command in greeting:
                await ordinary.submit(command, timeout)
            return StreamConnection(transport, transport, on_lost=on_lost, on_push=on_push)
        except BaseException:
            transport.abort()
            raise

    def _failure(self, error: Exception) -> NotSent:
        text = str(error) or ("no answer in time" if isinstance(error, TimeoutError) else type(error).__name__)
        if isinstance(error, ssl.SSLError):
            hint = "check the certificates and the host name, and that the server speaks TLS on this port"
            return NotSent(f"{text} (TLS: {hint})", fatal=True)
        return self._unanswered(text)

    def _unanswered(self, text: str) -> NotSent:
        plain = self._address.tls is None and self._address.path is None
        hint = " (does this port expect TLS?)" if plain and re.search(r"closed|reset|lost", text, re.IGNORECASE) else ""
        return NotSent(text + hint)

    def forked(self) -> None:
        """Nothing of the parent is kept here."""

    def close(self) -> None:
        """Nothing is kept open here."""
