"""The blocking runtime: steps a procedure on the caller's own thread; nothing here ever suspends."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet

from ..core.ports import NotSent, Refused, Unanswered
from . import clock
from .client_state import TIME, reply_of
from .port_base import PortBase

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from ..clients.base import Connection
    from ..core.requests import Reply, Request
    from ..core.ticket import Ticket
    from .client_state import ClientState
    from .hub import Hub
    from .threads import Threads

T = TypeVar("T")
KEPT = 32


def run(procedure: Coroutine[Any, Any, T]) -> T:
    """Runs a procedure to its end on this thread.

    A step that suspends is a bug of the port: the error is thrown into it, since closing it instead would hide where.
    """
    try:
        procedure.send(None)
    except StopIteration as end:
        return end.value
    try:
        procedure.throw(RuntimeError("a blocking step suspended: its port must not await anything"))
    except StopIteration as end:
        return end.value
    msg = "a blocking step suspended twice"
    raise RuntimeError(msg)


class ThreadSignal:
    """Wakes one thread; a `set` that comes first is remembered."""

    __slots__ = ("_gate", "_set", "mutex")

    def __init__(self) -> None:
        self.mutex = threading.Lock()
        self._set = False
        self._gate: threading.Lock | None = None

    def set(self) -> None:
        """Wakes the thread; called with the mutex held."""
        self._set = True
        if self._gate is not None:
            gate, self._gate = self._gate, None
            gate.release()

    def wait(self, until: float | None) -> None:
        """Sleeps until set, or until the local instant `until`."""
        with self.mutex:
            if self._set:
                self._set = False
                return
            gate = threading.Lock()
            gate.acquire()
            self._gate = gate
        left = -1.0 if until is None else min(max(until - clock.now(), 0.0), threading.TIMEOUT_MAX)
        gate.acquire(timeout=left)
        with self.mutex:
            self._set = False
            self._gate = None


class Connections:
    """Our own blocking connections: the one used last is used next, so that few are needed and they stay warm."""

    def __init__(self, state: ClientState) -> None:
        self._state = state
        self._idle: list[Connection] = []
        self._all: WeakSet[Connection] = WeakSet()
        self._closed = False
        self._forked = False

    def take(self, timeout: float) -> Connection:
        """An idle connection that is still good, or a new one."""
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                break
            if connection.usable():
                return connection
            connection.close()
            self._state.connection_lost()
        if self._forked:
            # A greenlet that a fork has copied: its token is the parent's, for which nobody else may ask.
            raise NotSent("this process is a fork of the one that asked", fatal=True)
        connection = self._state.client.connect(timeout)
        self._all.add(connection)
        sent_at = clock.now()
        try:
            self._state.learn_time(sent_at, connection.call(TIME, timeout))
        except Unanswered as failure:
            # Nothing of the request has left: it was only about to be sent on this connection.
            raise NotSent(failure.cause) from None
        except BaseException:
            connection.close()
            raise
        return connection

    def give(self, connection: Connection) -> None:
        """Keeps a connection for the next caller."""
        if self._closed or len(self._idle) >= KEPT:
            connection.close()
        else:
            self._idle.append(connection)
            if self._closed:
                # Meanwhile, by another thread, which may have looked before it was there.
                self.drop_idle()

    def drop_idle(self) -> None:
        """Closes those that nobody uses now."""
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return
            connection.close()

    def close(self) -> None:
        """Closes what is idle now, and each other one when it is given back."""
        self._closed = True
        self.drop_idle()

    def abandon(self) -> None:
        """In a forked child: no socket is shared with the parent."""
        self._forked = True
        for connection in self._all:
            connection.abandon()
        self._idle.clear()


class BlockingPort(PortBase):
    """The port of blocking callers; shared by all threads, since the calls keep their state on their own stacks."""

    def __init__(self, state: ClientState, hub: Hub, threads: Threads) -> None:
        super().__init__(state, hub)
        self.connections = threads.connections(state)
        self.signal = threads.signal
        self.undo = hub.undo

    async def send(self, request: Request, *, full: bool, timeout: float) -> Reply:
        """One request and its reply on a connection of this call's own."""
        state = self._state
        connection = self.connections.take(timeout)
        try:
            reply = reply_of(connection.call(state.pack(request, full=full), timeout), request)
        except Refused:
            self.connections.give(connection)
            raise
        except Unanswered:
            connection.close()
            state.connection_lost()
            state.unanswered(request)
            raise
        except BaseException:
            # Interrupted between send and full reply: whatever comes must not be read by the next caller.
            connection.close()
            raise
        self.connections.give(connection)
        return reply

    def reconnect(self) -> None:
        """Drops idle connections."""
        self.connections.drop_idle()
        self._state.connection_lost()

    async def sleep(self, seconds: float) -> None:
        """Sleeps on this thread."""
        time.sleep(seconds)

    async def subscribe(self, until: float, unknown: tuple[str, int]) -> bool:
        """Waits for the hub to have the inbox confirmed."""
        signal = self.signal()
        if not self._hub.subscribe(signal, unknown):
            signal.wait(until)
        return self._hub.subscribed()

    async def wait(self, ticket: Ticket, until: float | None) -> None:
        """Sleeps until the ticket's signal."""
        signal = ticket.signal
        assert isinstance(signal, ThreadSignal)  # noqa: S101 - for the type checker; tickets are made by this port
        self._hub.poll_by(ticket)
        signal.wait(until)
