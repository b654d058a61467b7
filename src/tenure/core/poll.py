"""Repairing lost messages: one request asks for all waiters of a client that are due."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import TenureError
from . import requests, schedule
from .exchange import exchange
from .ticket import Phase

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .ports import Port
    from .ticket import Ticket

COALESCE = 0.1


def due(tickets: Iterable[Ticket], now: float) -> tuple[list[Ticket], float | None]:
    """The waiters to ask for now, and when the next one is due."""
    waiting = [t for t in tickets if t.phase is Phase.WAITING and t.next_poll is not None]
    ready = [t for t in waiting if t.next_poll is not None and t.next_poll <= now]
    if ready:
        # Those who would be due in a moment come along: one request instead of several. Not those whose moment is the
        # end of the holder's key: asking before it would be asking for nothing.
        ready += [
            t
            for t in waiting
            if t.next_poll is not None
            and now < t.next_poll <= now + COALESCE
            and (t.position or 0) >= schedule.NEAR_PLACES
        ]
    asked = set(map(id, ready))
    later = [t.next_poll for t in waiting if t.next_poll is not None and id(t) not in asked]
    return ready[: schedule.BATCH], min(later, default=None) if len(ready) <= schedule.BATCH else now


async def poll(port: Port, tickets: Sequence[Ticket]) -> None:
    """Asks for these waiters and gives each its answer; a server that stays away ends their waits with its error."""
    now = port.now()
    for ticket in tickets:
        ticket.next_poll = None
    epoch = port.epoch()
    request = requests.acquire([ticket.item(now, last_try=False) for ticket in tickets])

    def all_wait() -> bool:
        # Tokens end: nothing is sent again for one that was released or withdrawn meanwhile.
        return all(ticket.phase is Phase.WAITING for ticket in tickets)

    try:
        reply = await exchange(port, request, give_up=now + port.server_timeout, wanted=all_wait)
    except BaseException as error:
        _unanswered(port, tickets, request)
        if not isinstance(error, TenureError):
            raise
        broken_off = not all_wait()
        for ticket in tickets:
            if broken_off:
                ticket.next_poll = port.now()
            else:
                ticket.failed(error)
        return
    for ticket, answer in zip(tickets, requests.acquire_answers(reply), strict=True):
        # What a poll brought to a token whose wait or lease was over meanwhile is given back.
        if not ticket.answered(answer, reply, epoch, port.random()):
            port.undo(ticket.keys, ticket.token)
    _unanswered(port, tickets, request)


def _unanswered(port: Port, tickets: Sequence[Ticket], request: requests.Request) -> None:
    """A try of this request that had no answer may still arrive: whoever is left remembers it, or it is undone."""
    if request.unanswered:
        for ticket in tickets:
            if not ticket.strayed(port.server_time.latest):
                port.undo(ticket.keys, ticket.token)
