"""The states of a lease as a table, and the arithmetic of its local deadline.

Rules: every transition is in `TRANSITIONS`; whoever makes a transition is told so (`True`), exactly once, and it is
they who report it; the deadline only ever comes from a reply that proves it, never from a request that was sent.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from typing import Any

    from ..errors import LossReason
    from ..options import Terms
    from .keys import Keys


class State(Enum):
    """Where a lease is in its life."""

    HELD = auto()
    RELEASING = auto()
    RELEASED = auto()
    LOST = auto()
    MOVED = auto()

    # Members are compared by identity everywhere; the inherited one hashes the name, in Python, at each transition.
    __hash__ = object.__hash__


TRANSITIONS: dict[State, frozenset[State]] = {
    State.HELD: frozenset({State.RELEASING, State.LOST, State.MOVED}),
    # A release without an answer may be tried again; one that finds the deadline passed changes nothing for anybody.
    # LOST from here: the server answered that the key was not there any more, or another's.
    State.RELEASING: frozenset({State.RELEASING, State.RELEASED, State.LOST, State.MOVED}),
    State.RELEASED: frozenset(),
    # Adopted by another process under a new token, or handed over for it: ours to use no longer, and not lost.
    State.MOVED: frozenset(),
    # A lost lease may still have its key on the server: releasing it is right, and never makes it held again.
    State.LOST: frozenset(),
}

# Looking a member up in its class costs several times as much (Python 3.11), and a pair does so a dozen times.
HELD, RELEASING, RELEASED, LOST, MOVED = State

ANNOUNCE_AFTER = 1.0
"""Seconds that a lease without an inbox lives before the inbox is announced: most are given back sooner."""
ENDED = frozenset(state for state, following in TRANSITIONS.items() if not following)
"""Nothing is held any more."""


def margin(drift: float, span: float) -> float:
    """What a deadline gives up to clocks that run at different rates: the drift over `span`, and 2 ms of rounding."""
    return drift * span + 0.002


def deadline_of_reply(sent_at: float, remaining: float, ttl: float, drift: float) -> float:
    """The local deadline after a reply: counted from before the request was sent (the Redlock validity rule)."""
    return sent_at + min(ttl, remaining) - margin(drift, ttl)


def deadline_of_message(  # noqa: PLR0913 - the terms of one formula of design.md, section 5
    base_local: float, base_server_ms: float, granted_ms: float, received_at: float, ttl: float, drift: float
) -> float:
    """The local deadline after a message that granted the lock at the server time `granted_ms`.

    `base_local` is the local instant before the last request of the same acquire was sent, `base_server_ms` the server
    time in its reply: the message was sent no earlier than their distance says, however long it travelled.
    """
    since = (granted_ms - base_server_ms) / 1000
    return min(base_local + since, received_at) + ttl - margin(drift, ttl + since)


class Hold:
    """One lease as its client knows it; the only owner of its state.

    All methods may be called from any thread. `mutex` guards the transitions, so that a loss seen by the hub and by
    the holder at the same moment is told once.
    """

    __slots__ = (
        "acknowledged", "announce_at", "context", "deadline", "ended_at", "fence", "granted_at", "handle", "keys",
        "mutex", "next_renew", "owner", "place", "reachable", "reason", "release_unknown", "renewal", "state",
        "stray_until", "terms", "token", "waited", "warned",
    )  # fmt: skip

    def __init__(  # noqa: PLR0913
        self,
        keys: Keys,
        token: bytes,
        fence: int,
        terms: Terms,
        *,
        granted_at: float,
        deadline: float,
        waited: float = 0.0,
        reachable: bool = True,
        mutex: AbstractContextManager[Any],
    ) -> None:
        self.waited = waited
        self.keys = keys
        self.token = token
        self.fence = fence
        self.terms = terms
        self.granted_at = granted_at
        self.deadline = deadline
        self.mutex = mutex
        self.state = HELD
        self.reason: LossReason | None = None
        self.acknowledged = False
        """A revoked lease was given up by its holder: its key need not stay to its end."""
        self.reachable = reachable
        """The server knows the inbox under which this lease's holder can be told."""
        self.announce_at = granted_at + ANNOUNCE_AFTER
        """When the server is told the inbox of a lease that was granted without one."""
        self.context = ""
        """Names the thread or task that took it, for those who look for a deadlock."""
        self.ended_at: float | None = None
        self.renewal = 0
        """Number of the last renewal that was sent: only its answer counts, so that an older one that arrives late
        cannot undo a later wish for a shorter ttl."""
        self.next_renew = granted_at + terms.ttl / 3
        self.warned = terms.warn_after is None
        self.stray_until = 0
        """The server time until which an unanswered acquire of this token may still arrive; 0 when there is none."""
        self.release_unknown = False
        """There was more than one release, or one without an answer: a key that is gone may be our own doing."""
        self.owner: Callable[[], object] | None = None
        """A weak reference to the task or thread in which a nested acquire of the lock would wait for itself."""
        self.place: tuple[bytes, int] | None = None
        """Stands for the lock and that task or thread."""
        self.handle: Callable[[], object] | None = None
        """A weak reference to the user's handle: a lease that nobody can use any more is given back."""

    def remaining(self, now: float) -> float:
        """Seconds until the deadline, 0 when this lease is not held."""
        if self.state in ENDED:
            return 0.0
        return max(0.0, self.deadline - now)

    @property
    def orphaned(self) -> bool:
        """Whether the handle is gone without having given the lease back: an interrupt in a finaliser is swallowed."""
        return self.handle is not None and self.handle() is None

    def _move(self, to: State, now: float) -> bool:
        if to not in TRANSITIONS[self.state]:
            return False
        self.state = to
        if to in ENDED:
            self.ended_at = now
        return True

    def lose(self, reason: LossReason, now: float, *, releasing: bool = False) -> bool:
        """The lease is lost; True for the one caller that has to report it.

        Once a release is under way only its own answer (`releasing`) can tell of a loss: a renewal that finds no key
        then has found our own release.
        """
        with self.mutex:
            if (self.state is RELEASING) is not releasing or not self._move(LOST, now):
                return False
            self.reason = reason
            return True

    def expire(self, now: float) -> bool:
        """Loses the lease if its deadline has come: at that very instant it is lost, not after it."""
        return self.state is HELD and now >= self.deadline and self.lose("expired", now)

    def begin_release(self, now: float) -> bool:
        """From now on nothing is renewed; False when the lease is not held any more."""
        with self.mutex:
            self.release_unknown |= self.state is RELEASING
            return self._move(RELEASING, now)

    def end_release(self, now: float) -> bool:
        """The server has confirmed that the token holds nothing."""
        with self.mutex:
            return self._move(RELEASED, now)

    def move(self, now: float) -> bool:
        """The lease goes on under another token; True for the one caller that has to report it."""
        with self.mutex:
            return self._move(MOVED, now)

    def begin_renewal(self, terms: Terms | None, now: float) -> int:
        """The number of a renewal about to be sent; its answer is applied only if no later one was begun.

        From now on these terms are the wish: a renewal on schedule, which has none (None), must not bring back others.
        """
        with self.mutex:
            self.renewal += 1
            self.terms = terms = terms or self.terms
            # Nobody else renews it while this request is on its way.
            self.next_renew = now + terms.ttl
            return self.renewal

    def renewed(self, number: int, sent_at: float, now: float) -> bool:
        """A reply proves that the lease has a full ttl from `sent_at`; False when it no longer matters."""
        with self.mutex:
            # A lease whose deadline has come is lost, and stays so although the server still had the key.
            if number != self.renewal or self.state is not HELD or now >= self.deadline:
                return False
            terms = self.terms
            self.deadline = deadline_of_reply(sent_at, terms.ttl, terms.ttl, terms.drift)
            self.next_renew = sent_at + terms.ttl / 3
            return True
