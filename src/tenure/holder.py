"""What others may know of a holder and of a waiter: plain records, no tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from .options import Mode


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a lock, as the server told it at one moment.

    `foreign` is true for a key that another library wrote: then only `name`, `expires_in` and `id` (a hash of the
    value, which is somebody's release token) are known.
    """

    name: str
    fence: int | None
    id: str
    """8 hex digits that identify the lease in logs; never its token."""
    host: str
    pid: int | None
    program: str
    identity: str | None
    info: str | Mapping[str, str | int | float | bool | None] | None
    since: datetime | None
    """When the lease was granted, by the server's clock."""
    expires_in: float | None
    """Seconds until the key ends on the server unless renewed; None when it has no expiry."""
    foreign: bool = False
    mode: Mode = "exclusive"
    limit: int | None = None
    """How many may hold at a time, for a semaphore."""
    context: str | None = None
    """The same for all leases and waits of one thread or task; None for a lease that was taken just now."""
    revoked: bool = False
    """Whether the lock was broken: the lease is renewed no more, and ends when its holder lets go or at its end."""

    def __str__(self) -> str:
        if self.foreign:
            return f"a client of another library (value #{self.id})"
        who = f"{self.program} (pid {self.pid} on {self.host})"
        return f"{who}, {self.identity}" if self.identity else who


@dataclass(frozen=True, slots=True)
class Waiter:
    """Who waits for a lock, in the order in which it will be served."""

    name: str
    position: int
    """0 is served next."""
    id: str
    host: str
    pid: int | None
    program: str
    identity: str | None
    info: str | Mapping[str, str | int | float | bool | None] | None
    since: datetime
    """When it joined the queue, by the server's clock."""
    mode: Mode = "exclusive"
    context: str | None = None
    """The same for all leases and waits of one thread or task."""

    def __str__(self) -> str:
        who = f"{self.program} (pid {self.pid} on {self.host})"
        return f"{who}, {self.identity}" if self.identity else who
