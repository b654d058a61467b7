"""The adapter for coredis: its settings, on connections that tenure opens itself.

A connection of coredis belongs to a task in one event loop, speaks RESP3 only, and shows no socket under TLS;
a blocking caller and the hub's loop can use none of that. So nothing of coredis is imported here, and no more of it is
read than the public attributes of a client's pool.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError
from .direct import Address, DirectClient

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_CLASSES = ("TCPConnection", "UnixDomainSocketConnection")


def is_coredis(client: object) -> bool:
    """Whether this is a client object of coredis."""
    return any(base.__module__.partition(".")[0] == "coredis" for base in type(client).__mro__)


class CoredisClient(DirectClient):
    """Connections to the server of a `coredis.Redis` client, with its address, credentials, TLS and database.

    For `Locks` and `AsyncLocks` alike. The client itself is not used, need not be entered, and is never closed. Raises
    `ConfigError` for a client of a Cluster or of Sentinel, and for connection classes that are not coredis's own.
    """

    def __init__(self, client: Any) -> None:
        super().__init__(_address(client))


def _address(client: Any) -> Address:
    pool = getattr(client, "connection_pool", None)
    if not is_coredis(client) or pool is None:
        msg = f"a client of coredis is needed, not {type(client).__name__}"
        raise ConfigError(msg)
    if any("Cluster" in base.__name__ or "Sentinel" in base.__name__ for base in type(pool).__mro__):
        msg = (
            f"a {type(client).__name__} object is not supported by this version; pass a client of one standalone server"
        )
        raise ConfigError(msg)
    made_by, location = pool.connection_class, pool.location
    if made_by.__name__ not in _CLASSES or made_by.__module__.partition(".")[0] != "coredis" or location is None:
        msg = (
            f"connections of the class {made_by.__name__} cannot be opened from their settings; "
            f"pass a URL or a plain client, or implement tenure.clients.Client"
        )
        raise ConfigError(msg)
    settings: dict[str, Any] = dict(pool.connection_kwargs)
    path = getattr(location, "path", None)
    options: dict[tuple[int, int], int | bytes] = {}
    if settings.get("socket_keepalive"):
        options[socket.SOL_SOCKET, socket.SO_KEEPALIVE] = 1
        more: dict[int, int | bytes] = settings.get("socket_keepalive_options") or {}
        options |= {(socket.IPPROTO_TCP, option): value for option, value in more.items()}
    wishes = (("noevict", ("CLIENT", "NO-EVICT", "ON")), ("notouch", ("CLIENT", "NO-TOUCH", "ON")))
    return Address(
        host=getattr(location, "host", "localhost"),
        port=getattr(location, "port", 6379),
        path=path,
        tls=settings.get("ssl_context"),
        database=settings.get("db") or 0,
        user=settings.get("username"),
        password=settings.get("password"),
        provider=_provider(settings.get("credential_provider")),
        client_name=settings.get("client_name"),
        socket_options=options,
        greeting=tuple(command for name, command in wishes if settings.get(name)),
    )


def _provider(given: Any) -> Callable[[], Awaitable[tuple[str | None, str]]] | None:
    if given is None:
        return None

    async def ask() -> tuple[str | None, str]:
        found = await given.get_credentials()
        return found.username, found.password

    return ask
