"""From events to measurements: what both kinds of metrics have in common.

Never the name of a lock becomes a label: there may be one for every invoice. A group may, of which there are few.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Protocol

from ..errors import ConfigError
from ..events import (
    GrantedEvent,
    LostEvent,
    OverheldEvent,
    ReleasedEvent,
    RenewedEvent,
    RenewFailedEvent,
    UnansweredEvent,
    WaitedEvent,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..events import Event

BUCKETS = (0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 30.0, 60.0, 300.0, 1800.0)
"""Bounds of the histograms, in seconds: from a free lock to a job of half an hour."""
ALL = "all"
"""The group of every lock when there is no function that sorts them."""
OTHER = "other"
"""The group of those that come after the limit is reached."""
MOST_GROUPS = 50


class Sink(Protocol):
    """Where measurements go."""

    def waited(self, group: str, outcome: str, seconds: float) -> None:
        """An acquire has ended, `granted` or `gave_up`."""
        ...

    def holding(self, group: str, change: int) -> None:
        """One lease more is held, or one less."""
        ...

    def held(self, group: str, seconds: float) -> None:
        """A lease has ended after so long."""
        ...

    def count(self, what: str, group: str, **more: str) -> None:
        """One of COUNTERS has happened, with the labels that it has."""
        ...


COUNTERS: dict[str, tuple[str, tuple[str, ...]]] = {
    "losses": ("Leases that ended before their holders released them.", ("reason",)),
    "renewals": ("Renewals in the background that the server has confirmed.", ()),
    "renew_failures": ("Renewals that had no answer; they are tried again until the deadline.", ()),
    "overheld": ("Leases held longer than their warn_after.", ()),
    "unanswered": ("Requests without an answer, whose outcome was unknown for a while.", ("request",)),
}
"""Name -> what it counts, and its labels besides the group."""


class MetricsHook:
    """A hook that measures; may be shared by any number of `Locks` and `AsyncLocks`."""

    def __init__(self, sink: Sink, group: Callable[[str], str] | None, most_groups: int) -> None:
        if group is not None and not callable(group):
            msg = f"group must be a function from a lock's name to its group, not {group!r}"
            raise ConfigError(msg)
        if isinstance(most_groups, bool) or most_groups < 1:
            msg = f"most_groups must be at least 1, not {most_groups!r}"
            raise ConfigError(msg)
        self._sink = sink
        self._group_of = group
        self._most = most_groups
        self._groups: set[str] = set()
        self._mutex = threading.Lock()

    def _group(self, name: str) -> str:
        if self._group_of is None:
            return ALL
        group = self._group_of(name)
        if group in self._groups:
            return group
        with self._mutex:
            if len(self._groups) < self._most:
                self._groups.add(group)
            return group if group in self._groups else OTHER

    def __call__(self, event: Event, /) -> None:
        """Measures one event; any thread."""
        sink, group = self._sink, self._group(event.name)
        if isinstance(event, GrantedEvent):
            sink.waited(group, "granted", event.waited)
            sink.holding(group, 1)
        elif isinstance(event, WaitedEvent):
            # One that was granted is told again as such.
            if not event.granted:
                sink.waited(group, "gave_up", event.waited)
        elif isinstance(event, ReleasedEvent | LostEvent):
            sink.holding(group, -1)
            sink.held(group, event.held_for)
            if isinstance(event, LostEvent):
                sink.count("losses", group, reason=event.reason)
        elif isinstance(event, RenewedEvent):
            sink.count("renewals", group)
        elif isinstance(event, RenewFailedEvent):
            sink.count("renew_failures", group)
        elif isinstance(event, OverheldEvent):
            sink.count("overheld", group)
        elif isinstance(event, UnansweredEvent):
            sink.count("unanswered", group, request=event.request)
