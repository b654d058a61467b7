"""The lease that a command depends on, followed to where the command itself takes it by adopting it."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import signal
import threading
from typing import TYPE_CHECKING, cast

from tenure.core.exchange import exchange
from tenure.core.keys import moved_key, short_id
from tenure.core.lease_state import State
from tenure.core.requests import Plain
from tenure.errors import TenureError
from tenure.events import MovedEvent
from tenure.runtime import clock
from tenure.runtime.blocking import run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tenure import Holder, Lease, Locks
    from tenure.core.lease_state import Hold
    from tenure.events import Event

GIVEN_BACK = "given back, or lost, by the process that had adopted it"
ENOUGH_TO_END = 10.0
"""Seconds that a command has to end after it has given back the lease that it had adopted."""

_ASK_WITHIN = 0.5
_LOOKS = 6
"""Looks in a ttl: a lease that is renewed at a third of it never seems near its end, whatever `--grace`."""
_LONGEST_PAUSE = 10.0
_LONGEST_CHAIN = 100


def wake() -> None:
    """Have the supervisor look again, which any SIGCHLD does."""
    os.kill(os.getpid(), signal.SIGCHLD)


def wake_when_adopted(event: Event) -> None:
    """A hook: the supervisor has to look elsewhere for a lease that was adopted."""
    if isinstance(event, MovedEvent):
        wake()


class Followed(logging.Filter):
    """A lease of ours as long as we have it; then its successors, as long as the same possession goes on.

    As a filter of the library's log it keeps to itself that the lease was tampered with when it was only adopted: one
    that others hold beside us, or that was given back since, is found gone.

    Safety: who has adopted the lease renews it and hears of its loss; here it is only looked at, a few times in a ttl.
    """

    def __init__(self, locks: Locks, lease: Lease) -> None:
        super().__init__()
        self._locks = locks
        self._lease = lease
        # None: it was lost within this moment.
        self._hold = locks.session().hub.holds.get(lease.token.encode())
        self._follower: _Follower | None = None
        self._finished = False
        self._refuted = False

    @property
    def adopted(self) -> bool:
        """Whether another process has it, or had it, as far as is known here."""
        return self._follower is not None or (self._hold is not None and self._hold.state is State.MOVED)

    @property
    def lost(self) -> str | None:
        """Why the command must end, or has ended; None when there is no reason."""
        if self._follower is not None:
            return self._follower.lost
        reason = self._lease.lost
        hold = self._hold
        if hold is None or not self._handed_over(hold, reason):
            return reason
        if not self._finished:
            self._follower = _Follower(self._locks, hold)
        return None

    def remaining(self) -> float:
        """Seconds until it is lost unless somebody renews it."""
        left = 0.0 if self._follower is not None else self._lease.remaining()
        # Adopted in between: not held by us, and not lost.
        if not left and self.lost is None and self._follower is not None:
            return self._follower.remaining()
        return left

    def finish(self) -> None:
        """The command has ended: gives back what is still ours. May block.

        Raises a `ServerError`; the lease then ends by its ttl.
        """
        self._finished = True
        if self._follower is not None:
            self._follower.stop()
            return
        hold = self._hold
        if hold is not None and hold.state is State.HELD and _successor(self._locks, hold, short_id(hold.token)):
            # To release it would find it gone, or another's, and call that a loss.
            self._locks.session().hub.moved(hold)
        else:
            self._lease.release()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a record of the library is to be told."""
        tampered = getattr(record, "tenure_event", "") == "tampered"
        return not (tampered and self._hold is not None and self._handed_over(self._hold, self._lease.lost))

    def _handed_over(self, hold: Hold, reason: str | None) -> bool:
        """Whether another process has adopted the lease; asks the server, once, when it is gone for another reason."""
        if hold.state is State.MOVED:
            return True
        if reason not in ("deleted", "taken") or self._refuted:
            return False
        try:
            self._refuted = _successor(self._locks, hold, short_id(hold.token), _ASK_WITHIN) is None
        except TenureError:
            self._refuted = True
        return not self._refuted


class _Follower:
    """Looks who holds the lock, from a thread of its own, until that is no successor of our lease any more."""

    def __init__(self, locks: Locks, hold: Hold) -> None:
        self.lost: str | None = None
        self._locks = locks
        self._hold = hold
        self._id = short_id(hold.token)
        # What the last renewal has proven; an adoption never moves the end back.
        self._until = hold.deadline
        self._missing_since: float | None = None
        self._over = threading.Event()
        threading.Thread(target=self._run, name="tenure-follow", daemon=True).start()

    def remaining(self) -> float:
        """Seconds until the lease ends unless it is renewed; without an end while its holder may be about to end."""
        return math.inf if self._missing_since is not None else max(0.0, self._until - clock.now())

    def stop(self) -> None:
        """Look no more."""
        self._over.set()

    def _run(self) -> None:
        pause = min(self._hold.terms.ttl / _LOOKS, _LONGEST_PAUSE)
        while self.lost is None and not self._over.is_set():
            asked_at = clock.now()
            # A server that does not answer says nothing new: the end that was seen last stands.
            with contextlib.suppress(TenureError):
                self._note(self._ours(self._locks.holders(self._hold.keys.name)), asked_at)
            wake()
            self._over.wait(pause)

    def _note(self, found: Holder | None, asked_at: float) -> None:
        if found is not None:
            if found.expires_in is not None:
                self._until = asked_at + found.expires_in - self._hold.terms.grace
            self._missing_since = None
        elif self._missing_since is None:
            self._missing_since = asked_at
        elif asked_at - self._missing_since >= ENOUGH_TO_END:
            self.lost = GIVEN_BACK

    def _ours(self, holders: Sequence[Holder]) -> Holder | None:
        """The one that has the lease now."""
        by_id = {holder.id: holder for holder in holders}
        for _ in range(_LONGEST_CHAIN):
            if self._id in by_id:
                return by_id[self._id]
            successor = _successor(self._locks, self._hold, self._id)
            if successor is None:
                break
            self._id = successor
        if self._hold.terms.mode == "shared":
            return None  # those who share a lock have the same fence
        return next((holder for holder in holders if holder.fence == self._hold.fence), None)


def _successor(locks: Locks, hold: Hold, lease: str, within: float | None = None) -> str | None:
    """The id of the lease that this one became when it was adopted, not long ago; None when it was not."""
    port = locks.session().port
    give_up = port.now() + (port.server_timeout if within is None else within)
    found = run(exchange(port, Plain(b"GET", moved_key(hold.keys, lease)), give_up=give_up)).answers
    return cast("bytes", found).decode("ascii", "replace") if found else None
