"""The outgoing side of a request: a client that does not read must not keep a lock that others ask for."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping

    Message = MutableMapping[str, Any]
    Send = Callable[[Message], Awaitable[None]]

PATIENCE = 0.5
"""Seconds that the end of an answer may take once the lock has to be given up."""


class Outgoing:
    """What an application answers.

    Args:
        send: the server's.
        given_up: done once the lock has to be given up: from then on a response that goes on raises `OSError`, as
            servers do when the client has gone. None: never.
    """

    def __init__(self, send: Send, given_up: asyncio.Future[None] | None) -> None:
        self._send = send
        self._given_up = given_up
        self.started = False
        """Whether a response has begun: it cannot be taken back."""

    async def send(self, message: Message) -> None:
        """The application's `send`."""
        if message["type"] == "http.response.start":
            self.started = True
        elif self._given_up is not None:
            await self._promptly(message, self._given_up)
            return
        await self._send(message)

    async def _promptly(self, message: Message, given_up: asyncio.Future[None]) -> None:
        if given_up.done() and message.get("more_body"):
            self._refuse()
        sending = asyncio.ensure_future(self._sent(message))
        try:
            await asyncio.wait({sending, given_up}, return_when=asyncio.FIRST_COMPLETED)
            if not sending.done():
                await asyncio.wait({sending}, timeout=PATIENCE)
        finally:
            finished = sending.done()
            if not finished:
                sending.cancel()
        if not finished:
            await asyncio.wait({sending})
            self._refuse()
        sending.result()

    async def _sent(self, message: Message) -> None:
        await self._send(message)

    @staticmethod
    def _refuse() -> None:
        msg = "the response was cut off: the lock of this request has to be given up"
        raise OSError(msg)
