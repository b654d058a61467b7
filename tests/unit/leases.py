"""Leases and tickets for tests of the core: fixed numbers, and a signal that remembers."""

from __future__ import annotations

import threading

from tenure.core.keys import keys_of
from tenure.core.lease_state import Hold
from tenure.core.ticket import Ticket
from tenure.options import Terms

KEYS = keys_of("ns", "n")
TOKEN = b"t" * 44


def terms(ttl: float = 10.0, *, renew: bool = True, max_hold: float | None = None, warn: float | None = None) -> Terms:
    return Terms(ttl=ttl, grace=0.1, drift=0.01, renew=renew, max_hold=max_hold, warn_after=warn)


def hold(ttl: float = 10.0, *, granted_at: float = 100.0, deadline: float = 110.0, **options: object) -> Hold:
    chosen = terms(ttl, **options)  # type: ignore[arg-type]
    return Hold(KEYS, TOKEN, 7, chosen, granted_at=granted_at, deadline=deadline, mutex=threading.Lock())


class Flag:
    """A signal that nobody waits for."""

    def __init__(self) -> None:
        self.mutex = threading.Lock()
        self.sets = 0

    def set(self) -> None:
        assert self.mutex.locked(), "a signal is set with its mutex held"
        self.sets += 1


def ticket(ttl: float = 10.0, *, give_up: float | None = None) -> tuple[Ticket, Flag]:
    flag = Flag()
    return Ticket(KEYS, TOKEN, terms(ttl), "{}", b"", give_up, flag), flag
