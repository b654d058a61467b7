"""Turns what happens to leases into events: the log, the hooks, and the callbacks of the handle."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol, cast

from ..core.inspect import facts_of
from ..core.keys import short_id
from ..events import (
    AskedEvent,
    GrantedEvent,
    LostEvent,
    MovedEvent,
    OverheldEvent,
    ReleasedEvent,
    RenewedEvent,
    RenewFailedEvent,
    TamperedEvent,
    UnansweredEvent,
    WaitedEvent,
)
from ..instrument.logs import log_event, logger
from . import clock
from .callbacks import Callbacks, in_thread, quietly

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ..core.lease_state import Hold
    from ..events import Event, Hook


class Handle(Protocol):
    """What the notifier needs of a user's lease."""

    def deliver_lost(self, callbacks: Callbacks) -> None:
        """Tells whoever waits for or asked about the loss."""
        ...

    def deliver_asked(self, event: AskedEvent, callbacks: Callbacks) -> bool:
        """Tells whoever wants to know that somebody asks for the lock; False when it had been told before."""
        ...


class Notifier:
    """One per `Locks` object; counts what happened, for `statistics()`."""

    def __init__(self, hooks: Iterable[Hook], spawn: Callable[[Callable[[], object]], None] = in_thread) -> None:
        self._hooks = tuple(hooks)
        self.callbacks = Callbacks(spawn)
        self.granted_count = 0
        self.released_count = 0
        self.lost_count = 0
        self.renew_failures = 0
        self.gave_up = 0

    def _wanted(self) -> bool:
        # Most programs want neither: then a grant costs no record.
        return bool(self._hooks) or logger.isEnabledFor(logging.DEBUG)

    def _tell(self, event: Event) -> None:
        log_event(event)
        for hook in self._hooks:
            quietly(lambda hook=hook: hook(event))

    def _tell_later(self, event: Event) -> None:
        """From the hub: hooks and log handlers may block, renewals may not wait for them."""
        self.callbacks.submit(lambda: self._tell(event))

    @staticmethod
    def _facts(hold: Hold) -> tuple[str, str, int]:
        return hold.keys.name, short_id(hold.token), hold.fence

    def granted(self, hold: Hold) -> None:
        """A lease was granted."""
        self.granted_count += 1
        if self._wanted():
            facts = self._facts(hold)
            if hold.waited:
                self._tell(WaitedEvent(*facts, waited=hold.waited, granted=True))
            self._tell(GrantedEvent(*facts, waited=hold.waited))

    def gave_up_waiting(self, name: str, waited: float) -> None:
        """An acquire ended without a grant."""
        self.gave_up += 1
        if self._wanted():
            self._tell(WaitedEvent(name, "", None, waited=waited, granted=False))

    def released(self, hold: Hold) -> None:
        """A lease was given back."""
        self.released_count += 1
        if self._wanted():
            self._tell(ReleasedEvent(*self._facts(hold), held_for=clock.now() - hold.granted_at))

    def dropped(self, hold: Hold) -> None:
        """A lease is given back because nobody has its handle any more; called on the hub."""
        self.released_count += 1
        if self._wanted():
            self._tell_later(ReleasedEvent(*self._facts(hold), held_for=clock.now() - hold.granted_at))

    def unanswered(self, name: str, request: str) -> None:
        """A request that changes something had no answer."""
        if self._wanted():
            self._tell_later(UnansweredEvent(name, "", None, request=request))

    def renewed(self, hold: Hold) -> None:
        """A lease was renewed."""
        if self._wanted():
            self._tell_later(RenewedEvent(*self._facts(hold), remaining=hold.remaining(clock.now())))

    def renew_failed(self, hold: Hold) -> None:
        """A renewal had no answer."""
        self.renew_failures += 1
        self._tell_later(RenewFailedEvent(*self._facts(hold), remaining=hold.remaining(clock.now())))

    def overheld(self, hold: Hold) -> None:
        """A lease is held longer than its `warn_after`."""
        held_for = clock.now() - hold.granted_at
        over = held_for - (hold.terms.warn_after or 0.0)
        self._tell_later(OverheldEvent(*self._facts(hold), held_for=held_for, over=over))

    def moved(self, hold: Hold) -> None:
        """A lease was taken over by another process."""
        self._tell_later(MovedEvent(*self._facts(hold), held_for=(hold.ended_at or clock.now()) - hold.granted_at))

    def asked(self, hold: Hold, by: bytes) -> None:
        """Somebody asks for the lock; told once, however often they ask."""
        handle = cast("Handle | None", hold.handle() if hold.handle is not None else None)
        if handle is not None:
            event = AskedEvent(*self._facts(hold), **facts_of(by))
            if handle.deliver_asked(event, self.callbacks):
                self._tell_later(event)

    def lost(self, hold: Hold) -> None:
        """A lease was lost; called by the one who made the transition, so once."""
        self.lost_count += 1
        reason = hold.reason or "expired"
        kind = TamperedEvent if reason in ("deleted", "taken") else LostEvent
        held_for = (hold.ended_at or clock.now()) - hold.granted_at
        self._tell_later(kind(*self._facts(hold), reason=reason, held_for=held_for))
        handle = cast("Handle | None", hold.handle() if hold.handle is not None else None)
        if handle is not None:
            handle.deliver_lost(self.callbacks)
