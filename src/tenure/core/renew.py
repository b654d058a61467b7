"""Keeping leases: one request for many, and what each answer means."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from ..errors import TenureError
from . import requests, schedule
from .acquire import LATE_TRIES
from .exchange import exchange

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..errors import LossReason
    from ..options import Terms
    from .lease_state import Hold
    from .ports import Port

Outcome = Literal["renewed", "late", "gone", "taken", "moved", "revoked"]
LOSSES: dict[str, LossReason] = {"gone": "deleted", "taken": "taken", "revoked": "revoked"}


async def renew(
    port: Port, holds: Sequence[Hold], *, give_up: float | None = None, terms: Terms | None = None
) -> list[str]:
    """Renews leases with one request and applies the answers; the outcome of each, in order.

    `terms` replaces the terms of all of them. A deadline moves only by a reply that proves the renewal. Raises a
    `ServerError` when no answer came by `give_up`, see `exchange`; the leases then keep the deadlines they had. One
    failure never ends renewal: the next try is scheduled, until an answer "not yours" or the deadline ends it.
    """
    now = port.now()
    numbers = {hold.token: hold.begin_renewal(terms, now) for hold in holds}
    exclusive = [hold for hold in holds if hold.terms.mode == "exclusive"]
    others = [hold for hold in holds if hold.terms.mode != "exclusive"]
    # A renewal that arrives after its holder has given up would keep the lock from others for a whole ttl.
    request = requests.renew(
        [_renewal(hold) for hold in exclusive],
        [_renewal(hold) for hold in others],
        until=min(hold.deadline for hold in holds),
    )
    try:
        reply = await exchange(port, request, give_up=give_up)
    except BaseException:
        for hold in holds:
            _try_again(port, hold)
        raise
    outcomes = dict(zip((hold.token for hold in (*exclusive, *others)), requests.renewals(reply), strict=True))
    for hold in holds:
        outcome = outcomes[hold.token]
        if outcome == "renewed":
            hold.renewed(numbers[hold.token], reply.sent_at, port.now())
        elif outcome == "late":
            _try_again(port, hold)
    return [outcomes[hold.token] for hold in holds]


def _renewal(hold: Hold) -> requests.Renewal:
    return hold.keys, hold.token, hold.terms.ttl_ms, hold.terms.grace_ms


def _try_again(port: Port, hold: Hold) -> None:
    hold.next_renew = port.now() + schedule.retry_renew_in(hold.terms.ttl, port.random())


async def renew_now(
    port: Port, holds: Sequence[Hold], *, give_up: float | None = None, terms: Terms | None = None
) -> list[str]:
    """As `renew`, for a caller who waits for it: tries again when the request came too late to count."""
    outcomes: list[str] = []
    for _ in range(LATE_TRIES):
        outcomes = await renew(port, holds, give_up=give_up, terms=terms)
        if "late" not in outcomes:
            break
    return outcomes


async def renew_all(port: Port, holds: Sequence[Hold]) -> list[str] | None:
    """Renews on schedule; None when the server did not answer."""
    ttl = min(hold.terms.ttl for hold in holds)
    try:
        return await renew(port, holds, give_up=port.now() + min(port.request_timeout, ttl / 6))
    except TenureError:
        return None


async def announce(port: Port, holds: Sequence[Hold]) -> list[str]:
    """Tells the server our inbox for leases that were granted before there was one; their ends stay as they are.

    Without it a holder would hear of `break_lock` at its next renewal only. Raises a `ServerError`.
    """
    request = requests.announce(
        [(hold.keys, hold.token, requests.tail(port.inbox(), hold.context), "") for hold in holds]
    )
    return requests.renewals(await exchange(port, request))


async def describe(port: Port, hold: Hold, info: str) -> str:
    """Replaces what others can read about a lease: announced, gone, taken, moved or revoked. Raises a `ServerError`."""
    request = requests.announce([(hold.keys, hold.token, requests.tail(port.inbox(), hold.context), info)])
    return requests.renewals(await exchange(port, request))[0]


def shorter(terms: Terms, ttl: float, grace: float) -> Terms:
    """The same terms with another ttl."""
    return replace(terms, ttl=ttl, grace=grace)
