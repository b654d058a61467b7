"""Server URLs, checked part by part before anything is opened; passwords never appear in a message."""

from __future__ import annotations

import importlib
from typing import Any
from urllib.parse import parse_qs, urlsplit

from ..errors import ConfigError
from .redis_py import RedisPyClient

_LATER = ("redis+sentinel", "redis+cluster", "rediss+sentinel", "rediss+cluster")
_LIBRARY = {"redis": "redis", "rediss": "redis", "unix": "redis", "valkey": "valkey", "valkeys": "valkey"}
_TLS = ("rediss", "valkeys")
_MOST_PORT = 65535
_OPTIONS = frozenset({
    "db", "username", "password", "socket_keepalive", "socket_read_size", "client_name", "ssl_certfile", "ssl_keyfile",
    "ssl_password", "ssl_cert_reqs", "ssl_ca_certs", "ssl_ca_path", "ssl_ca_data", "ssl_check_hostname",
    "ssl_min_version", "ssl_ciphers", "protocol", "decode_responses",
})  # fmt: skip


def masked(url: str) -> str:
    """The URL without user, password and options."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        return "***"
    rest = rest.rpartition("@")[2].partition("?")[0].partition("#")[0]
    return f"{scheme}://{rest}"


def _refuse(url: str, problem: str) -> ConfigError:
    return ConfigError(f"server URL {masked(url)!r}: {problem}")


def client_of(url: str) -> RedisPyClient:
    """The adapter for a `redis://`, `rediss://`, `unix://` or `valkey://` URL; raises `ConfigError`, does no I/O."""
    if not url.strip():
        msg = "the server URL is empty; set TENURE_URL to redis://HOST:PORT/DB, or unset it to use the embedded server"
        raise ConfigError(msg)
    scheme = url.partition("://")[0] if "://" in url else ""
    if scheme in _LATER:
        raise _refuse(url, f"{scheme}:// is not supported by this version")
    library = _LIBRARY.get(scheme)
    if library is None:
        raise _refuse(url, "the scheme must be redis, rediss (TLS), unix, valkey or valkeys")
    _check(url, scheme)
    try:
        module = importlib.import_module(f"{library}.connection")
    except ModuleNotFoundError:
        raise _refuse(url, f"{scheme}:// needs the client library: pip install 'tenure[valkey]'") from None
    try:
        settings: dict[str, Any] = module.parse_url(url)
    except ValueError as error:
        raise _refuse(url, str(error).replace(url, masked(url))) from None
    connection_class = settings.pop("connection_class", module.Connection)
    return RedisPyClient(library, connection_class, settings)


def _check(url: str, scheme: str) -> None:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise _refuse(
            url, f"the port must be a number from 1 to {_MOST_PORT} (percent-encode '@', ':' and '/' in a password)"
        ) from None
    if parts.fragment:
        raise _refuse(url, "'#' must be percent-encoded as %23")
    try:
        options = parse_qs(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        raise _refuse(url, "the options after '?' cannot be read") from None
    for name, values in options.items():
        if name not in _OPTIONS:
            raise _refuse(url, f"unknown option {name!r}; known are {', '.join(sorted(_OPTIONS))}")
        if len(values) > 1:
            raise _refuse(url, f"the option {name!r} is given twice")
        if name.startswith("ssl_") and scheme not in _TLS:
            # It would be ignored, and the password would travel in the clear.
            raise _refuse(url, f"{name} needs TLS: use rediss://")
    database = options["db"][0] if "db" in options else ""
    if scheme == "unix":
        if parts.netloc.rpartition("@")[2]:
            raise _refuse(url, "a unix socket needs three slashes: unix:///path/to/socket")
        if not parts.path:
            raise _refuse(url, "the path of the socket is missing: unix:///path/to/socket")
    else:
        if parts.netloc.count("@") > 1:
            raise _refuse(url, "'@' in the user or password must be percent-encoded as %40")
        if not parts.hostname:
            raise _refuse(url, "the host is missing")
        if port == 0:
            raise _refuse(url, f"the port must be a number from 1 to {_MOST_PORT}")
        database = database or parts.path.strip("/")
    if database and not (database.isascii() and database.isdigit()):
        raise _refuse(url, f"the database must be a number, not {database!r}")
