"""The inbox: the one channel on which the server's scripts tell this client that it was granted, or lost, a lock."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, cast

import hiredis

from ..clients.resp import pack
from ..core import backoff
from ..core.exchange import Kind, classify, explain
from ..core.ports import NotSent, Refused, Unanswered
from ..core.schedule import NEAR_CAP
from ..errors import PermissionDenied, ServerError, ServerUnavailable, TenureError
from . import clock

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..clients.base import AsyncConnection
    from .client_state import ClientState

logger = logging.getLogger("tenure")

_SHARDED = "s"
_PLAIN = "p"


class Inbox:
    """Keeps a subscription alive; everything here runs on the hub's loop.

    Sharded publish and subscribe where the server has it, even standalone: PUBLISH counts pattern subscribers too, and
    one operator with `PSUBSCRIBE *` would make the dead look alive.
    """

    def __init__(
        self,
        state: ClientState,
        *,
        on_message: Callable[[list[bytes], float], None],
        on_change: Callable[[], None],
        on_trouble: Callable[[TenureError], None],
    ) -> None:
        self._state = state
        self._on_message = on_message
        self._on_change = on_change
        self._on_trouble = on_trouble
        self._connection: AsyncConnection | None = None
        self._kind = _SHARDED
        self._answers: asyncio.Queue[Any] = asyncio.Queue()
        self._broken = asyncio.Event()
        self._heard = asyncio.Event()
        self.error: TenureError | None = None
        """Why there is no subscription, when the server has refused one."""

    def _channel(self) -> bytes:
        return self._state.prefix + self._state.inbox_id.encode()

    def push(self, reply: Any) -> None:
        """Takes whatever arrives on the subscriber's connection."""
        words = cast("list[bytes]", reply) if isinstance(reply, list) else [b""]
        if words[0] in (b"smessage", b"message"):
            self._on_message(words[2].split(b" "), clock.now())
        elif words[0] == b"pong":
            self._heard.set()
        else:
            self._answers.put_nowait(reply)

    async def run(self, needed: Callable[[], bool]) -> None:
        """Subscribes, pings, and subscribes again, until cancelled; quiet while nobody waits and nobody holds."""
        failures = 0
        down_since = clock.now()
        while True:
            try:
                await self._subscribe()
            except (NotSent, Unanswered, Refused, TenureError) as failure:
                self._close()
                self._note(failure, down_since)
                await asyncio.sleep(backoff.delay(failures, self._state.random()))
                failures += 1
                continue
            failures = 0
            self.error = None
            self._state.inbox = self._kind + self._state.inbox_id
            self._on_change()
            await self._listen(needed)
            down_since = clock.now()
            self._close()

    def _note(self, failure: NotSent | Unanswered | Refused | TenureError, down_since: float) -> None:
        node = self._state.client.node
        if isinstance(failure, TenureError):
            # The client's own words (no embedded server to be had, say), as in `exchange`; it may come back.
            if not isinstance(failure, ServerError):
                self.error = failure
            if self.error is failure or clock.now() - down_since >= self._state.server_timeout:
                self._on_trouble(failure)
            return
        if isinstance(failure, Refused):
            kind = classify(failure.text)
            error = explain(failure.text, kind, node)
            if kind is Kind.DENIED:
                error = PermissionDenied(
                    f"{error} (waiting needs the inbox channel {self._channel().decode()!r})",
                    node=node,
                    cause=failure.text,
                )
            if kind is not Kind.RETRY:
                self.error = error
                self._on_trouble(error)
                return
            cause = failure.text
        else:
            cause = failure.cause
        if clock.now() - down_since >= self._state.server_timeout:
            self._on_trouble(
                ServerUnavailable(
                    f"cannot reach the server at {node} for {self._state.server_timeout:g} s: {cause}",
                    node=node,
                    cause=cause,
                )
            )

    async def _subscribe(self) -> None:
        state = self._state
        self._broken.clear()
        self._answers = asyncio.Queue()
        self._connection = await state.client.connect_async(
            state.request_timeout, on_lost=self._lost, on_push=self.push
        )
        try:
            await self._ask(self._kind)
        except Refused as refused:
            if self._kind == _PLAIN or "unknown command" not in refused.text.lower():
                raise
            # A server before 7.0; from now on scripts ask PUBSUB NUMSUB who is alive.
            self._kind = _PLAIN
            await self._ask(self._kind)

    async def _ask(self, kind: str) -> None:
        assert self._connection is not None  # noqa: S101 - for the type checker
        command = b"SSUBSCRIBE" if kind == _SHARDED else b"SUBSCRIBE"
        timeout = self._state.request_timeout
        self._connection.submit(pack(command, self._channel()), timeout)
        try:
            async with asyncio.timeout(timeout):
                answer = await self._answers.get()
        except TimeoutError:
            msg = "the subscription was not confirmed in time"
            raise Unanswered(msg) from None
        if isinstance(answer, hiredis.ReplyError):
            raise Refused(str(answer))
        if answer is None:
            msg = "the connection was closed"
            raise Unanswered(msg)

    async def _listen(self, needed: Callable[[], bool]) -> None:
        """Returns once the connection is broken or silent."""
        while not self._broken.is_set():
            try:
                async with asyncio.timeout(NEAR_CAP):
                    await self._broken.wait()
            except TimeoutError:
                if needed() and not await self._ping():
                    logger.debug("the inbox connection is silent; subscribing again")
                    self._state.connection_lost()
                    return

    async def _ping(self) -> bool:
        if self._connection is None or self._connection.closed:
            return False
        self._heard.clear()
        self._connection.submit(pack(b"PING"), self._state.request_timeout)
        try:
            async with asyncio.timeout(self._state.request_timeout):
                await self._heard.wait()
        except TimeoutError:
            return False
        return True

    def _lost(self) -> None:
        self._state.inbox = ""
        self._state.connection_lost()
        self._answers.put_nowait(None)
        self._broken.set()

    def _close(self) -> None:
        self._state.inbox = ""
        if self._connection is not None:
            self._connection.close()

    def renew(self) -> None:
        """Gives up a subscription that the server does not know, and makes a new one."""
        self._close()
        self._lost()

    def close(self) -> None:
        """Ends the subscription."""
        self._close()

    def abandon(self) -> None:
        """In a forked child: the connection stays the parent's."""
        if self._connection is not None:
            self._connection.abandon()
