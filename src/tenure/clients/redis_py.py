"""The adapter for redis-py and for valkey-py, which is its sibling: from a URL or from a client object.

The library opens and authenticates connections; then their socket or streams are used directly, which is several times
faster than its public methods and leaves its pool alone. Those attributes are not public: pyproject.toml caps the
version, and tests run both libraries.
"""

from __future__ import annotations

import importlib
import inspect
import re
from typing import TYPE_CHECKING, Any, cast

from ..core.ports import NotSent, Refused
from ..errors import ConfigError
from .sockets import SocketConnection
from .streams import StreamConnection

if TYPE_CHECKING:
    from collections.abc import Callable

# Ours to decide, whatever the user's client says: a resend by the library turns "acquired, reply lost" into "busy",
# RESP3 mixes pushes with replies, and decoded replies are not what the parsers here read.
_OURS = frozenset({
    "retry", "retry_on_error", "retry_on_timeout", "protocol", "decode_responses", "encoding", "encoding_errors",
    "health_check_interval", "socket_timeout", "socket_connect_timeout", "parser_class", "encoder_class",
    "event_dispatcher", "maint_notifications_config", "maint_notifications_pool_handler", "max_connections",
    "himport_registry", "oss_cluster_maint_notifications_handler", "command_packer", "connection_pool", "timeout",
})  # fmt: skip
_MOST_TEXT = 300


def _accepted(cls: type) -> set[str]:
    """The keyword arguments that a connection class and its bases take."""
    names: set[str] = set()
    for base in cls.__mro__:
        init = base.__dict__.get("__init__")
        if init is not None:
            names |= set(inspect.signature(init).parameters)
    return names


class RedisPyClient:
    """Opens connections with the classes and settings of redis-py or valkey-py."""

    def __init__(self, root: str, connection_class: type, settings: dict[str, Any]) -> None:
        self._root = root
        self._class = connection_class
        self._settings = {key: value for key, value in settings.items() if key not in _OURS}
        self._ready: dict[str, tuple[type, dict[str, Any]]] = {}
        host = self._settings.get("host", "localhost")
        path = self._settings.get("path")
        self.tls = "SSL" in connection_class.__name__
        self.node = str(path) if path else f"{host}:{self._settings.get('port', 6379)}"

    def _resolve(self, flavour: str) -> tuple[type, dict[str, Any]]:
        """The connection class of one flavour with the settings that it takes."""
        ready = self._ready.get(flavour)
        if ready is not None:
            return ready
        module = importlib.import_module(f"{self._root}.{flavour}")
        cls = self._class
        if not issubclass(cls, module.AbstractConnection):
            # The other flavour's class of the same kind; a user's subclass counts as what it was derived from.
            found = [getattr(module, base.__name__, None) for base in cls.__mro__]
            cls = next((c for c in found if isinstance(c, type) and not inspect.isabstract(c)), None)
            if cls is None:
                msg = f"connections of the class {self._class.__name__} cannot be opened; pass a plain client or a URL"
                raise ConfigError(msg)
        accepted = _accepted(cls)
        settings = {key: value for key, value in self._settings.items() if key in accepted}
        retry_module = "redis.asyncio.retry" if flavour.startswith("asyncio") else "redis.retry"
        retry = importlib.import_module(retry_module.replace("redis", self._root, 1))
        backoff = importlib.import_module(f"{self._root}.backoff")
        settings["retry"] = retry.Retry(backoff.NoBackoff(), 0)
        settings["protocol"] = 2
        if "maint_notifications_config" in accepted:
            maintenance = importlib.import_module(f"{self._root}.maint_notifications")
            settings["maint_notifications_config"] = maintenance.MaintNotificationsConfig(enabled=False)
        if "driver_info" in accepted and not {"driver_info", "lib_name", "lib_version"} & set(settings):
            # Else each connection looks up the library's version in its installed files: a millisecond, and an import.
            settings["driver_info"] = importlib.import_module(f"{self._root}.driver_info").DriverInfo()
        ready = self._ready[flavour] = (cls, settings)
        return ready

    def _new(self, cls: type, settings: dict[str, Any], timeout: float) -> Any:
        try:
            return cls(**settings, socket_timeout=timeout, socket_connect_timeout=timeout)
        except Exception as error:  # noqa: BLE001 - whatever the library finds wrong with the settings
            text = self._masked(str(error) or type(error).__name__)
            msg = f"the settings of the connection to {self.node} cannot work: {text}"
            raise ConfigError(msg) from None

    def connect(self, timeout: float) -> SocketConnection:
        """Opens and authenticates a blocking connection."""
        cls, settings = self._resolve("connection")
        connection = self._new(cls, settings, timeout)
        try:
            connection.connect()
        except Exception as error:  # noqa: BLE001 - sorted by _failure, whatever the library raises
            raise self._failure(error) from None
        # Private, see the top of this file.
        return SocketConnection(connection._sock, connection)

    async def connect_async(
        self,
        timeout: float,
        *,
        on_lost: Callable[[], None],
        on_push: Callable[[Any], None] | None = None,
    ) -> StreamConnection:
        """Opens and authenticates a connection of the running event loop."""
        cls, settings = self._resolve("asyncio.connection")
        connection = self._new(cls, settings, timeout)
        try:
            await connection.connect()
        except Exception as error:  # noqa: BLE001 - sorted by _failure, whatever the library raises
            raise self._failure(error) from None
        except BaseException:
            # Cancelled half-way: the library leaves the socket to the garbage collector, which finds a closed loop.
            writer, connection._reader, connection._writer = connection._writer, None, None
            if writer is not None:
                writer.transport.abort()
            raise
        streams = (connection._reader, connection._writer)
        # From here on the streams are ours; the library's object must not warn about them when it is collected.
        connection._reader = connection._writer = None
        return StreamConnection(streams[1].transport, streams, on_lost=on_lost, on_push=on_push)

    def _failure(self, error: Exception) -> NotSent | Refused:
        exceptions = importlib.import_module(f"{self._root}.exceptions")
        text = self._masked(str(error) or type(error).__name__)
        kinds = [base.__name__ for base in type(error).__mro__]
        if "AuthenticationError" in kinds:
            return Refused(f"WRONGPASS {text}")
        if "NoPermissionError" in kinds:
            return Refused(f"NOPERM {text}")
        if "BusyLoadingError" in kinds:
            return Refused(f"LOADING {text}")
        if isinstance(error, exceptions.ResponseError):
            return Refused(text)
        if "NOAUTH" in text or "max number of clients" in text:
            return Refused(text)
        return NotSent(text + self._hint(text), fatal=self._hopeless(text))

    def _hint(self, text: str) -> str:
        if self.tls:
            if "No such file" in text:
                return " (TLS: a file named by ssl_ca_certs, ssl_certfile or ssl_keyfile does not exist)"
            if "CERTIFICATE_VERIFY_FAILED" in text or "certificate verify failed" in text:
                return " (TLS: the server's certificate is not the one expected: check ssl_ca_certs and the host name)"
            return " (TLS: does the server speak TLS on this port? if not, use redis:// instead of rediss://)"
        if "path" not in self._settings and re.search(r"closed|reset|lost", text, re.IGNORECASE):
            return " (does this port expect TLS? then use rediss:// instead of redis://)"
        return ""

    def _hopeless(self, text: str) -> bool:
        """Whether trying again within the same call cannot help: a TLS handshake that ended with a verdict."""
        return self.tls and bool(
            re.search(r"certificate|WRONG_VERSION|SSL: |record layer|No such file", text, re.IGNORECASE)
        )

    def _masked(self, text: str) -> str:
        password = self._settings.get("password")
        if password:
            text = text.replace(str(password), "***")
        return text if len(text) <= _MOST_TEXT else text[:_MOST_TEXT] + "…"

    def forked(self) -> None:
        """Nothing of the parent is kept here."""

    def close(self) -> None:
        """An injected client stays as it is."""


def from_client(client: Any) -> tuple[RedisPyClient, bool]:
    """The adapter for a redis-py or valkey-py client object, and whether that client is an asyncio one.

    Raises `ConfigError` for anything else. The client's settings are read, its pool is not touched.
    """
    roots = [base.__module__.split(".")[0] for base in type(client).__mro__]
    root = next((name for name in roots if name in ("redis", "valkey")), None)
    if root is None:
        msg = (
            f"server must be a URL or a client of redis-py, valkey-py or coredis, not {type(client).__name__}; "
            f"for another library implement tenure.clients.Client"
        )
        raise ConfigError(msg)
    kinds = {base.__name__ for base in type(client).__mro__}
    pool = getattr(client, "connection_pool", None)
    if pool is None or any(name.endswith("Cluster") for name in kinds):
        msg = (
            f"a {type(client).__name__} object is not supported by this version; pass a client of one standalone server"
        )
        raise ConfigError(msg)
    if "Sentinel" in pool.connection_class.__name__:
        msg = "a Sentinel-managed client is not supported by this version; pass a client of one standalone server"
        raise ConfigError(msg)
    is_async = any(".asyncio" in base.__module__ for base in type(client).__mro__)
    settings = cast("dict[str, Any]", dict(pool.connection_kwargs))
    return RedisPyClient(root, pool.connection_class, settings), is_async
