"""Taking several locks: in one request when all are free, else one after the other in their order, all or nothing.

Everybody takes them in the same order, that of their keys, so that callers who name them in different orders cannot
wait for each other in a circle.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from ..errors import NameConflict, NotAcquired, TenureError
from . import requests
from .acquire import ROUNDS, acquire, answer_in_time
from .lease_state import Hold, State, deadline_of_reply
from .release import release
from .renew import renew
from .requests import AllGranted, InTheWay, Other
from .ticket import Ticket

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .acquire import Wish
    from .ports import Port

T = TypeVar("T")


async def acquire_all(
    port: Port, wishes: Sequence[Wish], new_token: Callable[[], bytes], build: Callable[[list[Hold]], T]
) -> T:
    """Returns `build(holds)` for leases of all wishes, which differ in their keys only, or raises and leaves nothing.

    One budget of waiting for the whole call. A lease that is lost while another one is awaited ends the round: all are
    given back, and taken anew. Raises `NotAcquired`, `NameConflict` or a `ServerError`.
    """
    started = port.now()
    wait = wishes[0].wait
    give_up = None if wait is None else started + wait
    for _ in range(ROUNDS):
        tickets = [Ticket(wish.keys, new_token(), wish.terms, wish.info, b"", None, port.signal()) for wish in wishes]
        holds: list[Hold] = []
        try:
            await _at_once(port, wishes[0], tickets, holds)
            if not holds:
                await _in_order(port, wishes, new_token, holds, give_up)
            if await _long_enough(port, holds):
                return build(holds)
        except TenureError as error:
            await _roll_back(port, holds)
            if isinstance(error, NotAcquired):
                # The whole call's, not that of the one lock which could not be had.
                error.waited = port.now() - started
            raise
        except BaseException:
            _give_up(port, holds)
            raise
        await _roll_back(port, holds)
        if give_up is not None and port.now() >= give_up:
            break
    names = tuple(wish.keys.name for wish in wishes)
    msg = (
        f"locks {', '.join(map(repr, names))}: some of them were lost before the others could be had; "
        f"use a longer ttl than {wishes[0].terms.ttl:g} s, or fewer names"
    )
    raise NotAcquired(msg, names=names, waited=port.now() - started)


async def _at_once(port: Port, first: Wish, tickets: Sequence[Ticket], holds: list[Hold]) -> None:
    """Fills `holds` with all leases by one request, or with none of them."""
    flags = first.terms.word + requests.tail(port.inbox(), first.context)
    for ticket in tickets:
        ticket.flags = flags
    request = requests.several([ticket.item(port.now(), last_try=True) for ticket in tickets])
    try:
        reply, answer = await answer_in_time(
            port, request, requests.several_answer, lambda answer: answer is Other.LATE
        )
        if isinstance(answer, AllGranted):
            stray = port.server_time.latest if request.unanswered else 0
            deadline = deadline_of_reply(reply.sent_at, first.terms.ttl, first.terms.ttl, first.terms.drift)
            holds += [
                _hold(ticket, first, fence, reply.sent_at, deadline, stray)
                for ticket, fence in zip(tickets, answer.fences, strict=True)
            ]
            return
    except TenureError:
        if request.unanswered:
            _undo(port, tickets)
        raise
    except BaseException:
        # Also between the reply and the list: an interrupt may strike between any two lines.
        _undo(port, tickets)
        raise
    if request.unanswered:
        # An earlier send may still arrive, and hold for nobody. Only now: tokens that are undone are sent no more.
        _undo(port, tickets)
    if isinstance(answer, InTheWay) and answer.reason is not None:
        name = tickets[answer.index].keys.name
        msg = f"lock {name!r}: {answer.reason}; it was left as it is; choose another name or namespace"
        raise NameConflict(msg, names=(name,))


def _hold(  # noqa: PLR0913
    ticket: Ticket, wish: Wish, fence: int, granted_at: float, deadline: float, stray_until: int
) -> Hold:
    hold = Hold(
        ticket.keys, ticket.token, fence, ticket.terms, granted_at=granted_at, deadline=deadline,
        reachable="@" in ticket.flags, mutex=ticket.signal.mutex,
    )  # fmt: skip
    hold.context = wish.context
    hold.stray_until = stray_until
    return hold


async def _in_order(
    port: Port, wishes: Sequence[Wish], new_token: Callable[[], bytes], holds: list[Hold], give_up: float | None
) -> None:
    """Takes one after the other, and keeps those that it has; stops early when one of them is lost meanwhile."""

    def keep(hold: Hold) -> None:
        # In the list first: an interrupt from here on gives it back.
        holds.append(hold)
        port.keep(hold)

    for wish in wishes:
        left = None if give_up is None else max(0.0, give_up - port.now())
        await acquire(port, replace(wish, wait=left), new_token, keep)
        if not all(_held(hold, port.now()) for hold in holds):
            return


def _held(hold: Hold, now: float) -> bool:
    return hold.state is State.HELD and now < hold.deadline


async def _long_enough(port: Port, holds: Sequence[Hold]) -> bool:
    """Whether all are held, with enough validity left: those that had to wait for the others are renewed."""
    now = port.now()
    if not all(_held(hold, now) for hold in holds):
        return False
    weak = [hold for hold in holds if hold.remaining(now) < hold.terms.ttl / 3]
    if weak:
        await renew(port, weak, give_up=min(hold.deadline for hold in weak))
    return all(hold.state is State.HELD and hold.remaining(port.now()) >= hold.terms.ttl / 3 for hold in holds)


async def _roll_back(port: Port, holds: Sequence[Hold]) -> None:
    """Gives back in reverse; what goes wrong here must not hide why it was needed, and the undo goes on behind it."""
    for number, hold in enumerate(reversed(holds)):
        try:
            if hold.begin_release(port.now()):
                await release(port, hold)
                hold.end_release(port.now())
            port.forget(hold)
        except TenureError:
            port.forget(hold)
        except BaseException:
            _give_up(port, list(holds)[: len(holds) - number])
            raise


def _give_up(port: Port, holds: Sequence[Hold]) -> None:
    """The same without waiting for anything."""
    for hold in reversed(holds):
        port.forget(hold)
        hold.begin_release(port.now())
        port.undo(hold.keys, hold.token)


def _undo(port: Port, tickets: Sequence[Ticket]) -> None:
    for ticket in reversed(tickets):
        port.undo(ticket.keys, ticket.token)
