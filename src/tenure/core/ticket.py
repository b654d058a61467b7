"""One token that waits: the single place where a grant by message, a grant by reply and giving up meet.

States: WAITING -> GRANTED -> HELD, or WAITING -> WITHDRAWN, or GRANTED -> WITHDRAWN. A grant for a token that is in
none of the first three is given back by whoever receives it.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Protocol

from . import schedule
from .lease_state import ENDED, MOVED, RELEASING, deadline_of_message, deadline_of_reply
from .requests import Granted, Item, Queued

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from ..errors import TenureError
    from ..options import Terms
    from .keys import Keys
    from .lease_state import Hold
    from .requests import Answer, Reply


class Signal(Protocol):
    """Wakes the one caller that waits for a ticket, from any thread; remembers a `set` that came first."""

    @property
    def mutex(self) -> AbstractContextManager[Any]:
        """Guards the ticket's phase, and this signal."""
        ...

    def set(self) -> None:
        """Wakes the waiting caller, now or as soon as it waits."""
        ...


class Phase(Enum):
    """Where a token is between asking and having."""

    WAITING = auto()
    GRANTED = auto()
    HELD = auto()
    WITHDRAWN = auto()


# As in lease_state.py: a look into the class at each use costs more.
WAITING, GRANTED, HELD, WITHDRAWN = Phase


class Ticket:
    """A waiting token; its owner runs `acquire`, the hub feeds it messages and polls for it."""

    __slots__ = (
        "ask_at", "check", "deadline", "early", "epoch", "error", "fence", "flags", "give_up", "granted_at", "heard",
        "hold",
        "info", "keys", "left", "next_poll", "phase", "position", "score", "sent_at", "server_ms", "signal",
        "stray_until", "terms", "token", "touched",
    )  # fmt: skip

    def __init__(  # noqa: PLR0913
        self,
        keys: Keys,
        token: bytes,
        terms: Terms,
        info: str,
        score: bytes,
        give_up: float | None,
        signal: Signal,
        ask_at: float | None = None,
    ) -> None:
        self.keys = keys
        self.token = token
        self.terms = terms
        self.flags = terms.word
        self.info = info
        self.score = score
        self.give_up = give_up
        self.signal = signal
        self.ask_at = ask_at
        """The local instant from which each request asks the holder to release."""
        self.heard: bool | None = None
        """Whether a holder has heard it; None before the first time."""
        self.phase = WAITING
        self.error: TenureError | None = None
        self.check = False
        """Something cannot be told from here: the owner has to ask the server itself."""
        self.hold: Hold | None = None
        self.stray_until = 0
        """The server time until which an unanswered acquire of this token may still arrive; 0 when there is none."""
        self.touched = False
        """The server may know this token: giving up has to be told to it."""
        self.early: tuple[float, int, float, int] | None = None
        self.sent_at = 0.0
        self.server_ms: float | None = None
        self.epoch = -1
        self.position: int | None = None
        self.left: float | None = None
        self.next_poll: float | None = None
        self.fence = 0
        self.granted_at = 0.0
        self.deadline = 0.0

    def item(self, now: float, *, last_try: bool) -> Item:
        """This waiter's part of an acquire request."""
        life = 0
        if not last_try:
            left = None if self.give_up is None else max(self.give_up - now, 0.0)
            life = int(schedule.entry_life(self.position, self.terms.ttl, left) * 1000) + 1
        terms = self.terms
        return Item(
            self.keys, self.token, terms.ttl_ms, terms.grace_ms, life, self.score, self.flags, self.info, terms.packed,
            b"1" if self.ask_at is not None and now >= self.ask_at else b"",
        )  # fmt: skip

    def wanted(self) -> bool:
        """Whether the token may be asked for again; one that was given back never acquires."""
        return self.phase is not WITHDRAWN

    def _over(self) -> bool:
        """Whether the token has ended: given up, or held once and not any more.

        Not one that was handed over: it belongs to whoever takes it over.
        """
        return self.phase is WITHDRAWN or (
            self.hold is not None and self.hold.state in ENDED and self.hold.state is not MOVED
        )

    def _given_again(self, server_ms: int, fence: int | None) -> bool:
        """The server gave something to a token that waits no longer; False when nobody wants it any more.

        While its own release is under way nobody can tell which came first: the release finds out by the server's time.
        """
        if self.hold is not None and self.hold.state is RELEASING:
            self.hold.stray_until = max(self.hold.stray_until, server_ms)
        if self.hold is not None and self.hold.state is MOVED and fence not in (None, self.hold.fence):
            # Not the grant that was handed over: that one has ended, and this one is nobody's.
            return False
        return not self._over()

    def strayed(self, not_after: int) -> bool:
        """A request of this token had no answer and may arrive until `not_after`; False when the token has ended.

        Then nobody is left to remember it, and the caller undoes it.
        """
        with self.signal.mutex:
            self.stray_until = max(self.stray_until, not_after)
            if self.hold is not None:
                self.hold.stray_until = self.stray_until
            return not self._over()

    def answered(self, answer: Answer, reply: Reply, epoch: int, random: float) -> bool:
        """A reply of the server about this token, to its owner's request or to a poll.

        False when the answer gave the token something that nobody wants any more: a poll that was overtaken by the end
        of the wait, or of the lease.
        """
        with self.signal.mutex:
            if self.phase is not WAITING:
                fence = answer.fence if isinstance(answer, Granted) else None
                return not isinstance(answer, Granted | Queued) or self._given_again(reply.now_ms, fence)
            if isinstance(answer, Granted):
                deadline = deadline_of_reply(reply.sent_at, answer.remaining, self.terms.ttl, self.terms.drift)
                self._grant(answer.fence, reply.sent_at, deadline)
            elif isinstance(answer, Queued):
                self._queued(answer, reply, epoch, random)
            else:
                self.check = True
                self.signal.set()
            return True

    def asked(self, heard: int) -> None:
        """The answer to a request that may have asked: -1 says that it did not."""
        if heard >= 0:
            self.heard = bool(self.heard) or heard > 0

    def _queued(self, answer: Queued, reply: Reply, epoch: int, random: float) -> None:
        self.score = answer.score
        self.position = answer.position
        self.left = answer.left
        self.sent_at = reply.sent_at
        self.server_ms = answer.at_ms
        self.epoch = epoch
        foreign = answer.holder.startswith(b"foreign")
        self.next_poll = reply.sent_at + schedule.next_poll(
            answer.position, answer.left, self.terms.ttl, foreign=foreign, random=random
        )
        self.asked(answer.heard)
        if self.ask_at is not None:
            asks_in = schedule.next_ask(reply.sent_at - self.ask_at, answer.position, heard=answer.heard > 0)
            self.next_poll = min(self.next_poll, reply.sent_at + asks_in)
        if self.early is not None:
            early, self.early = self.early, None
            self._message(*early)

    def offered(self, granted_ms: float, fence: int, received_at: float, epoch: int) -> bool:
        """A message says that this token was granted; False when nobody wants the grant any more."""
        with self.signal.mutex:
            if self.phase is WAITING:
                self._message(granted_ms, fence, received_at, epoch)
                return True
            return self._given_again(int(granted_ms), fence)

    def _message(self, granted_ms: float, fence: int, received_at: float, epoch: int) -> None:
        if self.server_ms is None:
            # It has overtaken the acquire's reply, without which its time means nothing.
            self.early = (granted_ms, fence, received_at, epoch)
            return
        if epoch != self.epoch or granted_ms <= self.server_ms:
            # Sent by another server, or before the reply that said "queued": not proof of a grant that lasts.
            self.check = True
            self.signal.set()
            return
        terms = self.terms
        self._grant(
            fence,
            received_at,
            deadline_of_message(self.sent_at, self.server_ms, granted_ms, received_at, terms.ttl, terms.drift),
        )

    def _grant(self, fence: int, at: float, deadline: float) -> None:
        self.phase = GRANTED
        self.fence = fence
        self.granted_at = at
        self.deadline = deadline
        self.signal.set()

    def failed(self, error: TenureError) -> None:
        """The server cannot be used: the owner's wait ends with this error."""
        with self.signal.mutex:
            if self.phase is WAITING:
                self.error = error
                self.signal.set()

    def end(self, error: TenureError) -> Hold | None:
        """Somebody else gives the token back: no grant counts any more, and the owner's wait ends with this error.

        The lease that its owner has made of it already, if there is one.
        """
        with self.signal.mutex:
            if self.phase in (WAITING, GRANTED):
                self.phase = WITHDRAWN
                self.error = error
                self.signal.set()
            return self.hold

    def held(self, hold: Hold) -> bool:
        """The owner has taken the grant; False when somebody else has given the token back meanwhile."""
        with self.signal.mutex:
            if self.phase is WITHDRAWN:
                return False
            self.phase = HELD
            self.hold = hold
            hold.stray_until = self.stray_until
            return True

    def withdraw(self) -> None:
        """The owner gives up: a grant that arrives from now on is given back."""
        with self.signal.mutex:
            self.phase = WITHDRAWN
