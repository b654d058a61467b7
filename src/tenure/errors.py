"""Every error that tenure raises, on one screen.

The tree is split by what a caller can do about it: wait longer (`NotAcquired`), stop working (`LeaseLost`), mend the
code (`NotHeld`, `AlreadyHeld`, `ConfigError`) or look after the server (`ServerError` and below). Errors carry their
facts as attributes, survive pickling, and never contain a password or a whole token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from .holder import Holder

LossReason = Literal["expired", "deleted", "taken", "revoked", "forked", "closed"]
"""Why a lease ended early: its deadline passed; its key vanished; another client holds it; an operator broke it; this
process is a fork of the holder; the `Locks` object was closed."""


class TenureError(Exception):
    """The base of every error of this package."""


class ConfigError(TenureError, ValueError):
    """An argument, a URL or a setting cannot work; raised before anything has changed."""


class NotAcquired(TenureError, TimeoutError):
    """The lock could not be had within the time that the caller was ready to wait.

    `heard`: whether the holder heard that it was asked to release; None when nobody asked. `deadlock`: who waits for
    whom in a circle, when that is why.
    """

    def __init__(  # noqa: PLR0913 - an error carries all the facts that it knows
        self,
        message: str,
        *,
        names: tuple[str, ...] = (),
        waited: float = 0.0,
        holder: Holder | None = None,
        position: int | None = None,
        retry_after: float = 1.0,
        heard: bool | None = None,
        deadlock: str | None = None,
    ) -> None:
        super().__init__(message)
        self.names = names
        self.waited = waited
        self.holder = holder
        self.position = position
        self.retry_after = retry_after
        self.heard = heard
        self.deadlock = deadlock


class LeaseLost(TenureError):
    """The lease ended before its holder released it: another process may be the holder now."""

    def __init__(
        self, message: str, *, names: tuple[str, ...] = (), reason: LossReason = "expired", held_for: float = 0.0
    ) -> None:
        super().__init__(message)
        self.names = names
        self.reason: LossReason = reason
        self.held_for = held_for


class NotHeld(TenureError):
    """The operation needs a lease that is held, and this one was released, or belongs to another process."""

    def __init__(self, message: str, *, names: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.names = names


class AlreadyHeld(TenureError):
    """This thread or task holds the lock already: waiting for it would be waiting for itself."""

    def __init__(self, message: str, *, names: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.names = names


class StaleFence(TenureError):
    """A resource has seen a newer fence than the one presented: the presenter's lease is over."""

    def __init__(self, message: str, *, fence: int = 0, seen: int = 0) -> None:
        super().__init__(message)
        self.fence = fence
        self.seen = seen


class NameConflict(TenureError):
    """The lock's key holds something that is no lock of ours, or one of a newer format; it was left as it is."""

    def __init__(self, message: str, *, names: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.names = names


class ServerError(TenureError):
    """The server answered with an error, or not at all."""

    def __init__(self, message: str, *, node: str | None = None, cause: str | None = None) -> None:
        super().__init__(message)
        self.node = node
        self.cause = cause


class ServerUnavailable(ServerError, ConnectionError):
    """No usable server within `server_timeout`."""


class ServerReadOnly(ServerError):
    """The server refuses writes (a replica, or a failover in progress): nothing was locked."""


class PermissionDenied(ServerError, PermissionError):
    """The server's access rules forbid a command, a key or a channel that locks need."""


class QuorumFailed(ServerError):
    """Fewer than a majority of the independent servers agreed."""

    def __init__(self, message: str, *, nodes: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.nodes = dict(nodes or {})
