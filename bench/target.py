"""The server that is measured, and what it tells of itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import redis
import redis.asyncio

if TYPE_CHECKING:
    from tests.harness.servers import Kind, Server

SCRIPT_COMMANDS = frozenset({"eval", "evalsha"})
# What the measuring itself asks.
OWN_COMMANDS = frozenset({"info", "hello", "client|setinfo", "client|setname"})
ENOUGH_CONNECTIONS = 2000


@dataclass(frozen=True, slots=True)
class Target:
    """A running server and the transport by which it is reached."""

    server: Server
    transport: str

    @property
    def kind(self) -> Kind:
        """Which of the two servers it is."""
        return self.server.kind

    @property
    def url(self) -> str:
        """Its address."""
        return self.server.url if self.transport == "tcp" else self.server.unix_url

    @property
    def version(self) -> str:
        """The version of the server program."""
        about: dict[str, Any] = self.info("server")
        return f"{self.kind} {about.get('valkey_version') or about['redis_version']}"

    def info(self, section: str) -> dict[str, Any]:
        """A section of INFO."""
        admin: Any = self.server.admin
        return admin.info(section)

    def client(self) -> redis.Redis:
        """A redis-py client as its users have it."""
        library: Any = redis
        return library.Redis.from_url(self.url)

    def async_client(self) -> redis.asyncio.Redis:
        """An asyncio client of redis-py; with its default limit of connections 100 tasks raise an error."""
        library: Any = redis.asyncio
        return library.Redis.from_url(self.url, max_connections=ENOUGH_CONNECTIONS)

    def usage(self) -> Usage:
        """What the server has done since its start."""
        stats: dict[str, Any] = self.info("commandstats")
        usage = Usage()
        for key, entry in stats.items():
            name = key.removeprefix("cmdstat_")
            if name in OWN_COMMANDS:
                continue
            usage.calls[name] = entry["calls"]
            if name in SCRIPT_COMMANDS:
                usage.script_us += entry["usec"]
        return usage


@dataclass(slots=True)
class Usage:
    """Calls per command, those that scripts made included, and the CPU time spent in scripts."""

    calls: dict[str, int] = field(default_factory=dict[str, int])
    script_us: int = 0

    def since(self, before: Usage) -> Usage:
        """What was done between two looks."""
        calls = {name: n - before.calls.get(name, 0) for name, n in self.calls.items()}
        return Usage({name: n for name, n in calls.items() if n}, self.script_us - before.script_us)

    @property
    def scripts(self) -> int:
        """How many script calls there were: our requests."""
        return sum(n for name, n in self.calls.items() if name in SCRIPT_COMMANDS)

    @property
    def inside(self) -> int:
        """How many other commands there were: when only scripts are called, those inside them."""
        return sum(n for name, n in self.calls.items() if name not in SCRIPT_COMMANDS)
