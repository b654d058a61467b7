"""The asyncio runtime: one multiplexed connection per event loop, no task and no timer per call."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

from ..core import requests
from ..core.ports import NotSent, Unanswered
from . import clock
from .client_state import TIME, reply_of
from .port_base import PortBase

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from ..clients.base import AsyncConnection
    from ..core.keys import Keys
    from ..core.requests import Reply, Request
    from ..core.ticket import Ticket
    from .client_state import ClientState
    from .hub import Hub


_HURRY = 0.01
_LAST_ROUNDS = 5
_TLS_PAUSE = 0.04
_CANCELS = 200
_CANCEL_PAUSE = 0.02


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _taken_notice_of(future: asyncio.Future[Any]) -> None:
    """A result that nobody waits for any more must not be reported as never retrieved."""
    if not future.cancelled():
        future.exception()


async def cancel_all(tasks: set[asyncio.Task[None]]) -> None:
    """Ends tasks, asking again those that went on."""
    # `wait_for` of Python 3.11, by which client libraries connect, swallows a cancellation that comes with its result.
    left = tasks
    for _ in range(_CANCELS):
        for task in left:
            task.cancel()
        left = (await asyncio.wait(left, timeout=_CANCEL_PAUSE))[1]
        if not left:
            return


async def last_rounds(*, handshaking: bool) -> None:
    """Lets connections that were closed end, in the next rounds of the loop."""
    for _ in range(_LAST_ROUNDS):
        # asyncio ends a TLS connection whose opening was cancelled in good order, which takes the peer's answer.
        await asyncio.sleep(_TLS_PAUSE if handshaking else 0)


class LoopSignal:
    """Wakes one coroutine of the loop it was made in, from any thread; a `set` that comes first is remembered."""

    __slots__ = ("_future", "_loop", "_set", "mutex")

    def __init__(self) -> None:
        self.mutex = threading.Lock()
        self._loop = asyncio.get_running_loop()
        self._set = False
        self._future: asyncio.Future[None] | None = None

    def set(self) -> None:
        """Wakes the coroutine; called with the mutex held."""
        self._set = True
        if self._future is not None and not self._loop.is_closed():
            try:
                self._loop.call_soon_threadsafe(_wake, self._future)
            except RuntimeError:
                # Closed between the two lines: nobody is left to be woken, and whoever wakes must go on.
                return

    async def wait(self, until: float | None) -> None:
        """Sleeps until set, or until the local instant `until`."""
        with self.mutex:
            if self._set:
                self._set = False
                return
            future = self._future = self._loop.create_future()
        timer = None if until is None else self._loop.call_later(max(until - clock.now(), 0.0), _wake, future)
        try:
            await future
        finally:
            if timer is not None:
                timer.cancel()
            with self.mutex:
                self._set = False
                self._future = None


class Node:
    """The connection of one event loop to the server; opened when first needed, and again when it broke."""

    def __init__(self, state: ClientState) -> None:
        self._state = state
        self._connection: AsyncConnection | None = None
        self._opening: asyncio.Task[AsyncConnection] | None = None
        self._at_loop_end: AsyncGenerator[None, None] | None = None

    async def call(self, request: Request, *, full: bool, timeout: float) -> Reply:
        """One request and its reply."""
        state = self._state
        connection = self._connection
        if connection is None or connection.closed:
            connection = await self._connected(timeout)
        try:
            raw = await connection.submit(state.pack(request, full=full), timeout)
        except Unanswered:
            state.unanswered(request)
            raise
        try:
            return reply_of(raw, request)
        except Unanswered:
            connection.close()
            state.connection_lost()
            state.unanswered(request)
            raise

    def tell(self, request: Request, timeout: float) -> None:
        """Sends behind everything that went before on the open connection, without waiting for the reply."""
        connection = self._connection
        if connection is not None and not connection.closed:
            future = connection.submit(self._state.pack(request, full=False), timeout)
            future.add_done_callback(_taken_notice_of)

    async def _connected(self, timeout: float) -> AsyncConnection:
        opening = self._opening
        if opening is None:
            # In a task of its own: a caller that is cancelled must not take the others' connection along.
            opening = self._opening = asyncio.get_running_loop().create_task(self._open(timeout))
            opening.add_done_callback(self._opened)
        # Not awaited itself: when it is given up, by a reconnect say, nobody has cancelled those who wait for it.
        await asyncio.wait({opening})
        if opening.cancelled():
            msg = "the connection was given up while it was being opened"
            raise NotSent(msg)
        return opening.result()

    def _opened(self, opening: asyncio.Task[AsyncConnection]) -> None:
        self._opening = None
        _taken_notice_of(opening)

    async def _open(self, timeout: float) -> AsyncConnection:
        state = self._state
        connection = await state.client.connect_async(timeout, on_lost=state.connection_lost)
        sent_at = clock.now()
        try:
            state.learn_time(sent_at, await connection.submit(TIME, timeout))
        except Unanswered as failure:
            raise NotSent(failure.cause) from None
        except BaseException:
            connection.close()
            raise
        if self._at_loop_end is None:
            self._at_loop_end = self._close_with_loop()
            await anext(self._at_loop_end)
        self._connection = connection
        return connection

    async def _close_with_loop(self) -> AsyncGenerator[None, None]:
        """`asyncio.run` ends asynchronous generators before it closes the loop: the moment to leave no socket open."""
        try:
            yield
        finally:
            self.close()

    def close(self) -> None:
        """Closes the connection; a later call opens a new one."""
        if self._opening is not None:
            self._opening.cancel()
        if self._connection is not None:
            self._connection.close()

    async def end(self) -> None:
        """Closes the connection, and returns when one that was just being opened is closed as well."""
        opening = self._opening
        self.close()
        if opening is not None:
            await asyncio.wait({opening})
            # See `cancel_all`: it may have gone on, and be open now.
            self.close()

    def abandon(self) -> None:
        """In a forked child: the connection stays the parent's."""
        if self._connection is not None:
            self._connection.abandon()


class AioPort(PortBase):
    """The port of the coroutines of one event loop."""

    def __init__(self, state: ClientState, hub: Hub) -> None:
        super().__init__(state, hub)
        self.server = Node(state)
        self.send = self.server.call
        self.signal = LoopSignal

    def reconnect(self) -> None:
        """Closes this loop's connection."""
        self.server.close()
        self._state.connection_lost()

    async def sleep(self, seconds: float) -> None:
        """Sleeps in this loop."""
        await asyncio.sleep(seconds)

    async def subscribe(self, until: float, unknown: tuple[str, int]) -> bool:
        """Waits for the hub to have the inbox confirmed."""
        signal = LoopSignal()
        if not self._hub.subscribe(signal, unknown):
            await signal.wait(until)
        return self._hub.subscribed()

    async def wait(self, ticket: Ticket, until: float | None) -> None:
        """Sleeps until the ticket's signal."""
        signal = ticket.signal
        assert isinstance(signal, LoopSignal)  # noqa: S101 - for the type checker; tickets are made by this port
        self._hub.poll_by(ticket)
        await signal.wait(until)

    def undo(self, keys: Keys, token: bytes) -> None:
        """Withdraws behind the abandoned request on its own connection, where it cannot overtake; and by the hub."""
        self.server.tell(requests.withdraw(keys, token), self.request_timeout)
        self._hub.undo(keys, token)


class HubPort(AioPort):
    """The hub's own way to the server: its undo is a task, and its sleeps end when the hub ends."""

    def __init__(self, state: ClientState, hub: Hub) -> None:
        super().__init__(state, hub)
        self._stopping = hub.stopping

    async def sleep(self, seconds: float) -> None:
        """Sleeps, or hardly at all once the hub is ending: then what is left to undo is undone at once."""
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return
        # Without it the last second of a process whose server is away would be a storm of tries.
        await asyncio.sleep(min(seconds, _HURRY))
