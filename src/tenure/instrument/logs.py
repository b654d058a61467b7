"""Events as records of the standard logger `tenure`, with their fields in `extra`."""

from __future__ import annotations

import dataclasses
import logging
from typing import TYPE_CHECKING

from ..events import (
    AskedEvent,
    LostEvent,
    MovedEvent,
    OverheldEvent,
    RenewFailedEvent,
    TamperedEvent,
    UnansweredEvent,
    WaitedEvent,
)

if TYPE_CHECKING:
    from ..events import Event

logger = logging.getLogger("tenure")

_LOST = {
    "expired": "its deadline passed",
    "deleted": "its key was deleted before its end",
    "taken": "its key was overwritten by somebody else before its end",
    "revoked": "an operator broke it",
    "forked": "this process is a fork of its holder",
    "closed": "its Locks object was closed",
}


def _sentence(event: Event) -> str:  # noqa: PLR0911 - one for each kind
    name = event.name
    if isinstance(event, LostEvent):
        how = "tampered with" if isinstance(event, TamperedEvent) else "lost"
        return f"lock {name!r} was {how}: {_LOST[event.reason]}, after {event.held_for:.2f} s"
    if isinstance(event, OverheldEvent):
        return f"lock {name!r} is held too long: {event.held_for:.2f} s, {event.over:.2f} s more than it should be"
    if isinstance(event, RenewFailedEvent):
        return f"lock {name!r} could not be renewed; {event.remaining:.2f} s are left"
    if isinstance(event, UnansweredEvent):
        return f"lock {name!r}: the {event.request} had no answer; it is tried again or undone"
    if isinstance(event, WaitedEvent):
        return f"lock {name!r} {'granted' if event.granted else 'not acquired'} after waiting {event.waited:.2f} s"
    if isinstance(event, AskedEvent):
        return f"lock {name!r} was asked for by {event.program} (pid {event.pid} on {event.host})"
    if isinstance(event, MovedEvent):
        return f"lock {name!r} was handed over after {event.held_for:.2f} s"
    return f"lock {name!r} {type(event).__name__.removesuffix('Event').lower()}"


def level_of(event: Event) -> int:
    """Losses are errors, what may become one is a warning, the daily round is for debugging."""
    if isinstance(event, LostEvent):
        return logging.INFO if event.reason == "closed" else logging.ERROR
    if isinstance(event, OverheldEvent | RenewFailedEvent):
        return logging.WARNING
    if isinstance(event, AskedEvent | MovedEvent):
        return logging.INFO
    return logging.DEBUG


def log_event(event: Event) -> None:
    """Writes one event; its fields are in the record as `tenure_<field>`."""
    level = level_of(event)
    if logger.isEnabledFor(level):
        fields = {f"tenure_{f.name}": getattr(event, f.name) for f in dataclasses.fields(event)}
        fields["tenure_event"] = type(event).__name__.removesuffix("Event").lower()
        logger.log(level, "%s", _sentence(event), extra=fields)
