"""The incoming side of a request: it tells the application of a disconnect when its lock has to be given up."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping

    Message = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[Message]]

DISCONNECT = "http.disconnect"
QUIET = 0.05
"""Seconds without a message after which nothing more has arrived before a lock was asked for."""
DRAIN = 0.5
"""Seconds after which a client that goes on sending is cut off."""


class Incoming:
    """What arrives for a request, for its application and before it."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._early: deque[Message] = deque()
        self._pending: asyncio.Task[Message] | None = None
        self._draining = False
        self._drained_at: float | None = None
        self._quiet_at: float | None = None
        self.given_up: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done once the lock has to be given up."""

    def hand_over(self, _lease: object = None) -> None:
        """The application gets what has arrived, and then sees that its client has gone; as `give_up`."""
        if not self.given_up.done():
            self._draining = True
            self.given_up.set_result(None)

    def give_up(self, _lease: object = None) -> None:
        """From now on the application sees that its client has gone; called on the event loop's thread."""
        self._draining = False
        if not self.given_up.done():
            self.given_up.set_result(None)

    async def gone(self) -> None:
        """Returns when the client goes away before the application has begun; keeps what arrives meanwhile.

        Reads no further than the first part of a body: a client that goes while it sends is noticed by the application.
        """
        while True:
            arriving = self._arriving()
            await asyncio.wait({arriving})
            message = self._taken(arriving)
            self._early.append(message)
            if message["type"] == DISCONNECT:
                return
            if message.get("more_body"):
                await asyncio.get_running_loop().create_future()

    def rest(self) -> Receive:
        """A `receive` for those who never give up their lock: the server's own, when nothing was read before."""
        return self._receive if self._pending is None and not self._early else self.receive

    async def receive(self) -> Message:
        """The application's `receive`: what arrives, or a disconnect once the lock has to be given up."""
        while not self.given_up.done():
            if self._early:
                return self._early.popleft()
            arriving = self._arriving()
            # Without a switch when it is there: who only wants to look cancels its `receive` at once.
            if arriving.done():
                return self._taken(arriving)
            await asyncio.wait({arriving, self.given_up}, return_when=asyncio.FIRST_COMPLETED)
        return await self._last()

    async def _last(self) -> Message:
        """What had arrived when the lock was asked for, and then the disconnect."""
        if self._draining and self._early:
            return self._early.popleft()
        if self._draining:
            now = asyncio.get_running_loop().time()
            if self._drained_at is None:
                self._drained_at = now + DRAIN
            if self._quiet_at is None:
                self._quiet_at = min(now + QUIET, self._drained_at)
            arriving = self._arriving()
            # An instant, and no switch after it: who only looks cancels its `receive` at once, each time.
            if not arriving.done() and now < self._quiet_at:
                await asyncio.wait({arriving}, timeout=self._quiet_at - now)
            if self._draining and arriving.done() and now < self._drained_at:
                self._quiet_at = None
                return self._taken(arriving)
        self._draining = False
        return {"type": DISCONNECT}

    def _arriving(self) -> asyncio.Task[Message]:
        if self._pending is None:
            # A task that outlives the call: a message that is on its way must not be lost with a cancelled wait.
            self._pending = asyncio.ensure_future(self._received())
        return self._pending

    async def _received(self) -> Message:
        return await self._receive()

    def _taken(self, arriving: asyncio.Task[Message]) -> Message:
        self._pending = None
        return arriving.result()

    async def close(self) -> None:
        """Ends what still waits for the client."""
        pending, self._pending = self._pending, None
        if pending is None:
            return
        pending.cancel()
        await asyncio.wait({pending})
        if not pending.cancelled():
            # A message, or an error, that nobody wants any more is not one that was forgotten.
            pending.exception()
