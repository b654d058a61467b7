"""Taking a lock: one request when it is free, else a place in the queue and a sleep until the lock is handed over."""

from __future__ import annotations

import contextlib
import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn, TypeVar

from ..errors import ConfigError, NameConflict, NotAcquired, ServerUnavailable, TenureError
from ..options import to_ms
from . import requests
from .exchange import exchange
from .inspect import holder_of
from .lease_state import Hold, deadline_of_reply
from .release import withdraw
from .requests import Again, Busy, Conflict, Granted, Limit, Other, Queued
from .ticket import WITHDRAWN, Phase, Ticket

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..options import Terms
    from .keys import Keys
    from .ports import Port

T = TypeVar("T")

ROUNDS = 3
LATE_TRIES = 3
# Made once: a union in place is put together anew each time.
_PLACED = (Granted, Queued)
_KNOWN = (Granted, Queued, Busy)


@dataclass(slots=True)
class Wish:
    """What a caller asks for: a lock, the terms of the lease, and how long to wait (None: for ever, 0: one try)."""

    keys: Keys
    terms: Terms
    info: str
    wait: float | None
    context: str = ""
    """Names the thread or task that asks, for those who look for a deadlock."""
    ask_after: float | None = None
    """Seconds of waiting after which the holder is asked to release."""
    apart: float = 0.0
    """Seconds that lie at least between two grants of this kind."""


async def acquire(port: Port, wish: Wish, new_token: Callable[[], bytes], build: Callable[[Hold], T]) -> T:
    """Returns `build(hold)` for a lease with enough validity left, or raises and leaves nothing behind.

    `build` is called while the token is still watched here, so that an interrupt between the grant and the caller's
    handle gives the lease back. Raises `NotAcquired`, `NameConflict` or a `ServerError`.
    """
    started = port.now()
    give_up = None if wish.wait is None else started + wish.wait
    ask_at = None if wish.ask_after is None else started + wish.ask_after
    score = b""
    for _ in range(ROUNDS):
        # Tokens end: one that was given back never acquires again, and its place is kept by its score.
        ticket = Ticket(wish.keys, new_token(), wish.terms, wish.info, score, give_up, port.signal(), ask_at)
        port.register(ticket)
        try:
            await _turn(port, wish, ticket, started)
            if ticket.deadline - port.now() >= wish.terms.ttl / 3 or await _long_enough(port, wish, ticket):
                hold = Hold(
                    wish.keys,
                    ticket.token,
                    ticket.fence,
                    wish.terms,
                    granted_at=ticket.granted_at,
                    deadline=ticket.deadline,
                    waited=0.0 if ticket.position is None else port.now() - started,
                    reachable="@" in ticket.flags,
                    mutex=ticket.signal.mutex,
                )
                hold.context = wish.context
                # First: a poll that is answered from now on has to know whether the lease is still wanted.
                if not ticket.held(hold):
                    await _ended(port, ticket)
                return build(hold)
        except BaseException:
            ticket.withdraw()
            if ticket.touched:
                port.undo(wish.keys, ticket.token)
            raise
        finally:
            port.unregister(ticket)
        ticket.withdraw()
        port.undo(wish.keys, ticket.token)
        score = ticket.score
    msg = (
        f"lock {wish.keys.name!r}: granted {ROUNDS} times, each time too late to use a ttl of {wish.terms.ttl:g} s: "
        f"ttl too short for this server; use a longer one"
    )
    raise NotAcquired(msg, names=(wish.keys.name,), waited=port.now() - started)


async def _turn(port: Port, wish: Wish, ticket: Ticket, started: float) -> None:
    """Asks and waits with one token until it is granted; raises when it cannot be."""
    late = 0
    while True:
        if ticket.phase is WITHDRAWN:
            await _ended(port, ticket)
        now = port.now()
        last_try = wish.wait == 0 or (ticket.give_up is not None and now >= ticket.give_up)
        inbox = port.inbox()
        ticket.flags = wish.terms.word + requests.tail(inbox, wish.context)
        epoch = port.epoch()
        item = ticket.item(now, last_try=last_try)
        answer, reply = await _ask(port, ticket, _request(wish, item), now)
        if isinstance(answer, _PLACED):
            ticket.answered(answer, reply, epoch, port.random())
            if isinstance(answer, Queued) and not (answer.more or ticket.check or ticket.phase is Phase.GRANTED):
                await port.wait(ticket, ticket.give_up)
            if ticket.phase is Phase.GRANTED:
                return
            if ticket.phase is WITHDRAWN:
                await _ended(port, ticket)
            if ticket.error is not None:
                # A copy: the hub has given the same error to every waiter, each of which adds its own traceback.
                raise copy.copy(ticket.error)
            ticket.check = False
        elif isinstance(answer, Busy):
            if not answer.more:
                if ticket.phase is Phase.GRANTED:
                    # By a poll that ran beside this try. Which of the two came last is not known here: ask once more.
                    ticket.deadline = 0.0
                    return
                # A token that has waited may have a poll on its way, and one whose try had no answer that try: they
                # may still arrive, and queue or take a lock for nobody.
                ticket.touched = ticket.position is not None or bool(ticket.stray_until)
                ticket.asked(answer.heard)
                raise _not_acquired(port, wish, answer, started, ticket.heard)
        elif isinstance(answer, Again):
            raise _not_again(wish, answer)
        elif isinstance(answer, Limit):
            msg = (
                f"semaphore {wish.keys.name!r} has the limit {answer.in_force} with those who use it now, "
                f"and the limit {wish.terms.limit} was asked for here: use the same limit everywhere"
            )
            raise ConfigError(msg)
        elif isinstance(answer, Conflict):
            msg = f"lock {wish.keys.name!r}: {answer.reason}; it was left as it is; choose another name or namespace"
            raise NameConflict(msg, names=(wish.keys.name,))
        elif answer is Other.SUBSCRIBE:
            until = now + port.server_timeout
            give_up = until if ticket.give_up is None else min(until, ticket.give_up)
            heard = await port.subscribe(give_up, (inbox, epoch))
            if not heard and give_up == until and ticket.phase is not WITHDRAWN:
                msg = f"no inbox at {port.node} within {port.server_timeout:g} s; without one nobody can wait"
                raise ServerUnavailable(msg, node=port.node, cause="no inbox")
        elif answer is Other.LATE:
            # Refused without effect, and the reply has told the server's time: the next one is right.
            late += 1
            if late > LATE_TRIES:
                raise too_late(port)
        else:
            # Granted, and broken by an operator before the grant was seen: no validity is left, so the turn is over.
            return


async def _ended(port: Port, ticket: Ticket) -> NoReturn:
    """Somebody else has given the token back, which must not be asked for again: its owner ends, or sleeps for ever."""
    while ticket.error is None:
        await port.wait(ticket, None)
    if ticket.touched:
        # A request of ours may have arrived behind the other's withdraw, and nobody else is left to undo it.
        with contextlib.suppress(TenureError):
            await withdraw(port, ticket.keys, ticket.token)
    raise copy.copy(ticket.error)


def too_late(port: Port) -> ServerUnavailable:
    """The error of a request that was refused as late again and again."""
    msg = f"requests reach the server at {port.node} more than {port.request_timeout:g} s late"
    return ServerUnavailable(msg, node=port.node, cause="late")


async def answer_in_time(
    port: Port, request: requests.Request, read: Callable[[requests.Reply], T], late: Callable[[T], bool]
) -> tuple[requests.Reply, T]:
    """As `exchange`, with what was `read` from the reply; what is refused as late is sent again.

    It had no effect, and the reply has told the server's time. Raises `too_late` when that does not help.
    """
    for _ in range(LATE_TRIES):
        reply = await exchange(port, request)
        answer = read(reply)
        if not late(answer):
            return reply, answer
    raise too_late(port)


def _request(wish: Wish, item: requests.Item) -> requests.Request:
    return requests.once(item, to_ms(wish.apart)) if wish.apart else requests.acquire([item])


async def _ask(
    port: Port, ticket: Ticket, request: requests.Request, now: float
) -> tuple[requests.Answer, requests.Reply]:
    """One acquire request; notes whether the server may know the token afterwards."""
    before = ticket.touched
    # Before the request, not after it: an interrupt may strike between any two lines.
    ticket.touched = True
    try:
        reply = await exchange(port, request, give_up=now + port.server_timeout, wanted=ticket.wanted)
    except NameConflict as error:
        ticket.touched = before or request.unanswered
        name = ticket.keys.name
        msg = f"lock {name!r}: {error}"
        raise NameConflict(msg, names=(name,)) from None
    except TenureError:
        ticket.touched = before or request.unanswered
        raise
    if request.unanswered:
        ticket.strayed(port.server_time.latest)
    answer = requests.acquire_answers(reply)[0]
    if not isinstance(answer, _KNOWN):
        ticket.touched = before or request.unanswered
    return answer, reply


async def _long_enough(port: Port, wish: Wish, ticket: Ticket) -> bool:
    """Whether a grant that came late has enough validity left once it is extended; it keeps the turn.

    Asked for by an acquire of the same token, not by a renewal: the grant of the message may be over, and the server
    may have granted the same token anew since, with another fence. Under the same rule: the distance that `once` keeps
    may belong to somebody else by now.
    """
    now = port.now()
    answer, reply = await _ask(port, ticket, _request(wish, ticket.item(now, last_try=True)), now)
    if not isinstance(answer, Granted):
        return False
    ticket.fence = answer.fence
    ticket.deadline = deadline_of_reply(reply.sent_at, answer.remaining, ticket.terms.ttl, ticket.terms.drift)
    return ticket.deadline - port.now() >= ticket.terms.ttl / 3


_HEARD = {
    None: "",
    True: "; the holder was asked to release, and heard it",
    False: "; the holder was asked to release, and did not hear it",
}


def _not_acquired(port: Port, wish: Wish, busy: Busy, started: float, heard: bool | None) -> NotAcquired:  # noqa: FBT001
    name = wish.keys.name
    waited = port.now() - started
    holder = holder_of(name, busy.holder, busy.left)
    position = busy.ahead
    by = f"held by {holder}" if holder is not None else "not held, but others are ahead"
    until = "at the latest, for it was broken" if holder is not None and holder.revoked else "unless renewed"
    ends = "" if busy.left is None else f", whose lease ends in {busy.left:.1f} s {until}"
    queue = f"; {position} waiting ahead" if position else ""
    tried = "one try" if wish.wait == 0 else f"waited {waited:.2f} s"
    msg = f"lock {name!r} not acquired ({tried}): {by}{ends}{queue}{_HEARD[heard]}; try again later or wait longer"
    return NotAcquired(
        msg,
        names=(name,),
        waited=waited,
        holder=holder,
        position=position,
        retry_after=max(1.0, busy.left if busy.left is not None else 1.0),
        heard=heard,
    )


def _not_again(wish: Wish, last: Again) -> NotAcquired:
    name = wish.keys.name
    runner = holder_of(name, last.runner, None)
    msg = (
        f"lock {name!r} is not taken again for {last.left:.1f} s: {runner} had it last, and it was asked for a distance"
    )
    return NotAcquired(msg, names=(name,), holder=runner, retry_after=last.left)
