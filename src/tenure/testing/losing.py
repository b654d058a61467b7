"""Losing a lease, or a reply, on purpose and at once."""

from __future__ import annotations

# pyright: reportPrivateUsage=false
# What tests break on purpose is not public.
from typing import TYPE_CHECKING, Literal, Protocol, get_args

from ..core import inspect as inspection
from ..core import requests
from ..core.exchange import exchange
from ..core.lease_state import State
from ..core.ports import Unanswered
from ..core.renew import LOSSES, renew_now
from ..errors import ConfigError, NotHeld
from ..runtime import clock
from ..runtime.blocking import run

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from ..core.lease_state import Hold
    from ..core.requests import Reply, Request
    from ..lease_base import LeaseBase
    from ..manager_base import LocksBase
    from ..runtime.session import Session

Reason = Literal["taken", "deleted", "revoked", "expired"]

SOMEBODY = b"somebody else (tenure.testing)"


def lose(lease: LeaseBase, reason: Reason = "taken") -> None:
    """Has a lease lost, on the real server, and noticed: `lease.lost` tells the reason when this returns.

    - "taken": its key is overwritten, as by another client, which then holds the lock for as long as the ttl;
    - "deleted": its key is deleted, as by a flush or an eviction;
    - "revoked": an operator breaks it, as by `break_lock`;
    - "expired": its deadline passes, as if this process had slept; the key is given up in the background.

    Callbacks, events, the cancelling of an `async with` block and `LeaseLost` follow as ever. A function for both
    flavours: blocks for two requests, also in a coroutine.

    Raises `NotHeld` for a lease that is not held, `ConfigError` for another reason, or a `ServerError`.
    """
    if reason not in get_args(Reason):
        msg = f"reason must be one of {', '.join(get_args(Reason))}, not {reason!r}"
        raise ConfigError(msg)
    session, hold = lease._session, lease._hold
    if not lease.valid:
        msg = f"lock {hold.keys.name!r}: this lease is not held, so it cannot be lost"
        raise NotHeld(msg, names=(hold.keys.name,))
    if reason == "expired":
        hold.deadline = clock.now()
        if hold.expire(clock.now()):
            session.hub.report_loss(hold)
        return
    _spoil(session, hold, reason)
    _notice(session, hold)


def _spoil(session: Session, hold: Hold, reason: Reason) -> None:
    port = session.port
    if reason == "revoked":
        run(inspection.break_lock(port, hold.keys, hold.fence, force=False))
        return
    command = (b"DEL", hold.keys.main)
    if reason == "taken":
        command = (b"SET", hold.keys.main, SOMEBODY, b"PX", hold.terms.ttl_ms)
    request = requests.Plain(*command)
    run(exchange(port, request))


def _notice(session: Session, hold: Hold) -> None:
    """What the next renewal would find out."""
    port = session.port
    (outcome,) = run(renew_now(port, [hold]))
    if outcome in LOSSES:
        session.hub.lost(hold, LOSSES[outcome])
    # Unless the hub was faster, by a message or a renewal of its own, it is lost by now.
    assert hold.state is not State.HELD, outcome  # noqa: S101 - a bug of this module


class _SendingPort(Protocol):
    async def send(self, request: Request, *, full: bool, timeout: float) -> Reply: ...


class LostReply:
    """Loses one reply while its block lasts; made by `lose_next_reply`."""

    def __init__(self, port: _SendingPort) -> None:
        self._port = port
        self._really = port.send
        self.request: str | None = None
        """What the reply was to, acquire, renew or release for instance; None as long as none was lost."""

    async def _send(self, request: Request, *, full: bool, timeout: float) -> Reply:
        reply = await self._really(request, full=full, timeout=timeout)
        if self.request is not None:
            return reply
        self.request = request.script.name
        msg = "the reply was lost (tenure.testing)"
        raise Unanswered(msg)

    def __enter__(self) -> Self:
        vars(self._port)["send"] = self._send
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        vars(self._port)["send"] = self._really


def lose_next_reply(locks: LocksBase) -> LostReply:
    """Within its `with` block, the next request of these locks reaches the server and is carried out, unanswered.

    What then happens is what happens when a connection breaks at that moment: the request is tried again, or what it
    may have done is undone. Only requests that callers make count, not those of renewal in the background. With
    `AsyncLocks`: those of the event loop in which this is called. `request` of what `with` gives tells afterwards
    which reply was lost.

    Raises `ConfigError` when it is called for `AsyncLocks` without a running event loop.
    """
    session = locks.session()
    if not locks._asyncio:
        return LostReply(session.port)
    try:
        return LostReply(session.aio_port())
    except RuntimeError:
        msg = "lose_next_reply: call it for AsyncLocks in a coroutine, for one event loop has one connection"
        raise ConfigError(msg) from None
