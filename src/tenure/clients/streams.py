"""A multiplexed connection on the streams that an asyncio client library has opened and authenticated."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

import hiredis

from ..core.ports import Refused, Unanswered
from .sockets import replace_descriptor

if TYPE_CHECKING:
    from collections.abc import Callable

_NOT_YET = object()


class StreamConnection(asyncio.Protocol):
    """Many callers of one event loop share it: one write per tick, replies in order, no task and no timer per call.

    A caller that is cancelled abandons its future; its reply is read and dropped here, so that the next caller gets
    its own. A reply that does not come in time closes the connection, since nothing overtakes it; those that had more
    time are told so as well.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        owner: object,
        *,
        on_lost: Callable[[], None],
        on_push: Callable[[Any], None] | None,
    ) -> None:
        self.closed = False
        self._loop = asyncio.get_running_loop()
        self._transport = transport
        self._owner = owner
        self._on_lost = on_lost
        self._on_push = on_push
        self._reader = hiredis.Reader(notEnoughData=_NOT_YET)
        self._pending: deque[tuple[asyncio.Future[Any], float]] = deque()
        self._out: list[bytes] = []
        self._corked = False
        self._watch: asyncio.TimerHandle | None = None
        self._watch_at = 0.0
        transport.set_protocol(self)

    def submit(self, packed: bytes, timeout: float) -> asyncio.Future[Any]:
        """Sends one packed command; the future ends with its reply, `Refused` or `Unanswered`."""
        future: asyncio.Future[Any] = self._loop.create_future()
        if self.closed:
            future.set_exception(Unanswered("the connection is closed"))
            return future
        until = self._loop.time() + timeout
        if self._on_push is None:
            self._pending.append((future, until))
            # One that has less time than those in front of it, or than those that were answered long ago.
            if self._watch is None or until < self._watch_at:
                self._watch_for(until)
        else:
            # A subscriber's commands are answered by pushes.
            future.set_result(None)
        if self._corked:
            self._out.append(packed)
        else:
            # The first of a tick goes out at once, the others of the same tick together behind it.
            self._corked = True
            self._loop.call_soon(self._uncork)
            self._transport.write(packed)
        return future

    def _uncork(self) -> None:
        self._corked = False
        if self._out:
            out, self._out = self._out, []
            if not self.closed:
                self._transport.write(b"".join(out))

    def _check(self) -> None:
        self._watch = None
        if not self._pending or self.closed:
            return
        until = min(until for _, until in self._pending)
        if until <= self._loop.time():
            self._fail("no reply in time")
        else:
            self._watch_for(until)

    def _watch_for(self, until: float) -> None:
        if self._watch is not None:
            self._watch.cancel()
        self._watch_at = until
        self._watch = self._loop.call_at(until, self._check)

    def data_received(self, data: bytes) -> None:
        """Gives each reply that is complete to the caller whose turn it is."""
        try:
            self._reader.feed(data)
            while (reply := self._reader.gets()) is not _NOT_YET:
                if self._on_push is not None:
                    self._on_push(reply)
                elif self._pending:
                    self._give(self._pending.popleft()[0], reply)
                else:
                    self._fail("a reply that nobody asked for")
                    return
        except hiredis.HiredisError as error:
            self._fail(f"unreadable reply: {error}")

    @staticmethod
    def _give(future: asyncio.Future[Any], reply: Any) -> None:
        if future.done():
            return
        if isinstance(reply, hiredis.ReplyError):
            future.set_exception(Refused(str(reply)))
        else:
            future.set_result(reply)

    def eof_received(self) -> bool:
        """The server has closed: so do we."""
        self._fail("the server closed the connection")
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The transport is gone."""
        self._fail(str(exc) if exc else "the connection was closed")

    def _fail(self, cause: str) -> None:
        if not self.closed:
            self._end(cause)
            self._on_lost()

    def _end(self, cause: str) -> None:
        self.closed = True
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        self._transport.abort()
        pending, self._pending = self._pending, deque()
        for future, _ in pending:
            if not future.done():
                future.set_exception(Unanswered(cause))

    def close(self) -> None:
        """Closes at once, without `on_lost`; pending replies end as `Unanswered`."""
        if not self.closed:
            self._end("the connection was closed")

    def abandon(self) -> None:
        """Replaces the descriptor in a forked child: the connection stays the parent's alone."""
        self.closed = True
        sock = self._transport.get_extra_info("socket")
        if sock is not None:
            replace_descriptor(sock.fileno())
