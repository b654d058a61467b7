"""What a hook is told: one frozen record per event."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .errors import LossReason


@dataclass(frozen=True, slots=True)
class Event:
    """What every event tells: the lock's name, 8 hex digits that identify the lease, and its fence."""

    name: str
    id: str
    fence: int | None


@dataclass(frozen=True, slots=True)
class GrantedEvent(Event):
    """A lease was granted, after `waited` seconds in the queue (0 when the lock was free)."""

    waited: float


@dataclass(frozen=True, slots=True)
class WaitedEvent(Event):
    """An acquire that had to wait has ended: with a grant, or without one."""

    waited: float
    granted: bool


@dataclass(frozen=True, slots=True)
class RenewedEvent(Event):
    """A lease was renewed; `remaining` seconds are left."""

    remaining: float


@dataclass(frozen=True, slots=True)
class RenewFailedEvent(Event):
    """A renewal had no answer; it is tried again until the deadline, `remaining` seconds away."""

    remaining: float


@dataclass(frozen=True, slots=True)
class OverheldEvent(Event):
    """A lease is held longer than `warn_after`, by `over` seconds when this was noticed; told once per lease."""

    held_for: float
    over: float


@dataclass(frozen=True, slots=True)
class LostEvent(Event):
    """A lease ended before its holder released it; told once per lease."""

    reason: LossReason
    held_for: float


@dataclass(frozen=True, slots=True)
class TamperedEvent(LostEvent):
    """A lease was lost because somebody deleted or overwrote its key before its end, which no sound client does."""


@dataclass(frozen=True, slots=True)
class AskedEvent(Event):
    """Somebody who waits for the lock asks its holder to release it; told once per lease.

    Who asks is told as far as it tells itself: host, pid, program, identity and info.
    """

    host: str
    pid: int | None
    program: str
    identity: str | None
    info: str | Mapping[str, str | int | float | bool | None] | None


@dataclass(frozen=True, slots=True)
class MovedEvent(Event):
    """A lease was taken over by another process, with `adopt`: this one holds it no longer, and nothing was lost."""

    held_for: float


@dataclass(frozen=True, slots=True)
class ReleasedEvent(Event):
    """A lease was given back after `held_for` seconds."""

    held_for: float


@dataclass(frozen=True, slots=True)
class UnansweredEvent(Event):
    """A request had no answer, so that its outcome is unknown until it is tried again or undone.

    `request` is what it was for: acquire, once, several, adopt, renew, announce, release, withdraw or break. `name` is
    the first of its locks when it was sent for several at once.
    """

    request: str


class Hook(Protocol):
    """Receives every event; synchronous, quick, and from whatever thread the event happened in."""

    def __call__(self, event: Event, /) -> None:
        """Takes notice of one event; what it raises is logged and goes no further."""
        ...
