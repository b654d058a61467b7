"""When to poll for a waiter, when to renew a lease, when to call it lost: pure functions of times."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .lease_state import State

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .lease_state import Hold

NEAR_PLACES = 4
NEAR_CAP = 5.0
FAR_INTERVAL = 15.0
FOREIGN_SHORTEST = 0.1
BATCH = 100
ASK_SOON = 0.1
ASK_AGAIN = 1.0


def poll_interval(position: int, ttl: float) -> float:
    """Seconds between the polls that repair lost messages, at this place of the queue."""
    return min(NEAR_CAP, ttl / 2) if position < NEAR_PLACES else FAR_INTERVAL


def entry_life(position: int | None, ttl: float, wait_left: float | None) -> float:
    """Seconds that a queue entry lives without a poll: three poll intervals, or the waiter's budget if less."""
    life = 3 * (FAR_INTERVAL if position is None else poll_interval(position, ttl))
    return life if wait_left is None else min(life, wait_left)


def next_poll(position: int, left: float | None, ttl: float, *, foreign: bool, random: float) -> float:
    """Seconds until a waiter's next poll.

    The first four places ask again when the holder's key ends, 50 ms apart, in case the holder died; the one in front
    asks often while the holder belongs to another library, whose release wakes nobody.
    """
    if foreign and position == 0:
        return FOREIGN_SHORTEST * (1 + random)
    if position >= NEAR_PLACES:
        return FAR_INTERVAL
    interval = poll_interval(position, ttl)
    if left is None:
        return interval
    return min(left + 0.001 + 0.05 * position, interval)


def next_ask(asking_for: float, position: int, *, heard: bool) -> float:
    """Seconds until a waiter asks for the lock again, `asking_for` seconds after the first time (before it: below 0).

    Far more often than it would poll: the holder that it has asked may have let go in favour of another one, who does
    not know of it. One that nobody heard is repeated sooner, since a lease that was taken just now has no inbox yet.
    """
    if asking_for < 0:
        return -asking_for
    if position >= NEAR_PLACES:
        return FAR_INTERVAL
    return ASK_AGAIN if heard else min(ASK_AGAIN, max(ASK_SOON, asking_for))


def first_due(hold: Hold) -> float:
    """The local instant at which a fresh lease first needs attention."""
    terms = hold.terms
    first = hold.deadline
    if terms.renew and hold.next_renew < first:
        first = hold.next_renew
    if not hold.reachable and hold.announce_at < first:
        first = hold.announce_at
    return first if terms.warn_after is None or hold.warned else min(first, hold.granted_at + terms.warn_after)


@dataclass(slots=True)
class Due:
    """What has to happen now, and when to look again."""

    renew: list[Hold] = field(default_factory=list["Hold"])
    expired: list[Hold] = field(default_factory=list["Hold"])
    overheld: list[Hold] = field(default_factory=list["Hold"])
    announce: list[Hold] = field(default_factory=list["Hold"])
    next_at: float | None = None


def due(holds: Iterable[Hold], now: float) -> Due:
    """Sorts the held leases into those to renew, those whose deadline has come, and those held too long."""
    plan = Due()
    held = State.HELD
    next_at = math.inf
    for hold in holds:
        if hold.state is not held:
            continue
        terms = hold.terms
        # The deadline first: after a pause longer than the ttl a renewal must not even be tried.
        at = hold.deadline
        if now >= at:
            plan.expired.append(hold)
            continue
        if terms.warn_after is not None and not hold.warned:
            warn_at = hold.granted_at + terms.warn_after
            if now >= warn_at:
                plan.overheld.append(hold)
            elif warn_at < at:
                at = warn_at
        if not hold.reachable:
            if now >= hold.announce_at:
                plan.announce.append(hold)
            else:
                at = min(at, hold.announce_at)
        if terms.renew and (terms.max_hold is None or now < hold.granted_at + terms.max_hold):
            next_renew = hold.next_renew
            # A thirtieth of the ttl early is still in time, and fills batches instead of sending one request per lease.
            if now >= next_renew - terms.ttl / 30:
                plan.renew.append(hold)
            elif next_renew < at:
                at = next_renew
        next_at = min(next_at, at)
    plan.next_at = None if next_at == math.inf else next_at
    return plan


def retry_renew_in(ttl: float, attempt_random: float) -> float:
    """Seconds until a renewal that failed is tried again: several tries fit into what is left of the lease."""
    return ttl / 15 * (0.75 + attempt_random / 2)
