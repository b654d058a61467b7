"""Giving a lock back, and undoing whatever may have become of an acquire."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import requests
from .exchange import exchange

if TYPE_CHECKING:
    from .keys import Keys
    from .lease_state import Hold
    from .ports import Port
    from .requests import Reply, Request

MORE_ROUNDS = 1000
UNDO_ROUNDS = 4


async def _skip(port: Port, request: Request) -> Reply:
    """Sends again until the dead at the head of the queue are skipped; the last reply."""
    reply = await exchange(port, request)
    for _ in range(MORE_ROUNDS):
        if not requests.freed(reply)[1]:
            break
        reply = await exchange(port, request)
    return reply


async def release(port: Port, hold: Hold) -> str:
    """Ends a lease; the server hands the lock to the next waiter in the same request.

    Returns `released`, `gone` (the key had ended), `taken` (another client holds) or `moved` (it was adopted). When it
    is interrupted or the server cannot be reached, the undo goes on behind it and the error is raised; calling again is
    right.
    """
    try:
        request = requests.release(hold.keys, hold.token)
        reply = await exchange(port, request)
        how, more = requests.freed(reply)
        if more:
            reply = await _skip(port, request)
    except BaseException:
        hold.release_unknown = True
        port.undo(hold.keys, hold.token)
        raise
    if hold.stray_until and hold.stray_until >= reply.now_ms:
        # An acquire of this token was tried twice, and the first one may still arrive: it would hold for nobody.
        port.undo(hold.keys, hold.token)
    # An earlier try whose reply was lost has done the work, and the next holder may be there by now.
    # Looked at after the answer: another thread's release may have overtaken ours.
    return "released" if request.unanswered or hold.release_unknown else how


async def withdraw(port: Port, keys: Keys, token: bytes) -> int:
    """Makes sure that `token` neither holds nor waits; the server's time at which that was so.

    What a cancelled, timed-out or interrupted acquire ends with.
    """
    return (await _skip(port, requests.withdraw(keys, token))).now_ms


async def undo(port: Port, keys: Keys, token: bytes) -> None:
    """Withdraws at once, and again once no request of that token can take effect any more.

    An acquire whose bytes are stuck somewhere takes nothing after its not-after; until then it could still overtake
    the first withdraw, which the second one repairs. Raises a `ServerError` when the server stays away: then the ttl
    takes over.
    """
    settled = port.server_time.latest
    # Held until the server's own clock has passed every not-after that was given out, told by its replies: the local
    # clock may run fast.
    for _ in range(UNDO_ROUNDS):
        left = settled - await withdraw(port, keys, token)
        if left < 0:
            return
        # After a failover the server's clock may be hours behind: then the ttl has taken over long before.
        await port.sleep(min((left + 2) / 1000, 3 * port.request_timeout))


async def settle(port: Port, keys: Keys, token: bytes, stray_until: int) -> None:
    """After a lease that another process had acquired: nothing of its token that is still on its way takes effect.

    `stray_until` is what that process has written down, see `adopt.Exported`. Returns at once when that is over, else
    within a few request times. Raises a `ServerError` as `undo` does.
    """
    if stray_until:
        port.server_time.heed(stray_until)
        await undo(port, keys, token)
