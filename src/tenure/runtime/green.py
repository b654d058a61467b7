"""Threads in a process that gevent has patched: callers are greenlets, the hub a thread of the system all the same.

A greenlet that computes delays all others of its thread, so the hub is none: it runs in a thread that gevent did not
make, on an event loop in which no socket, selector or lock is gevent's, and never switches. What it shares with callers
is guarded by `_thread.RLock`, which gevent leaves alone and which asks for the thread, not for the greenlet: should a
finaliser switch greenlets inside such a section, the others of the thread are not locked out, as they would be for ever
by a plain lock. The hub wakes a greenlet by an async watcher of its loop, which is what gevent has for other threads.
"""

# pyright: basic
# gevent has no complete types of its own.

from __future__ import annotations

import asyncio
import socket
from _thread import RLock
from typing import TYPE_CHECKING, Any, TypeVar

import gevent
from gevent.hub import Waiter, getcurrent

from ..errors import NotAcquired
from ..patches import original
from . import clock
from .blocking import Connections, ThreadSignal
from .threads import Threads

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from ..clients.base import Connection
    from ..core.ticket import Ticket
    from .client_state import ClientState
    from .threads import Event, Joinable

T = TypeVar("T")
_start_new_thread = original("_thread", "start_new_thread")
_allocate_lock = original("_thread", "allocate_lock")
_Socket: type[socket.socket] = original("socket", "socket")
_Selector = original("selectors", "DefaultSelector")
_getaddrinfo = original("socket", "getaddrinfo")
_pair = original("_socket", "socketpair")
_ThreadLocal = original("_thread", "_local")
_LONGEST = 1e8


class Gate:
    """Where one greenlet sleeps until another thread opens it; made by the greenlet itself."""

    __slots__ = ("_loop", "_waiter", "_watcher")

    def __init__(self) -> None:
        hub = gevent.get_hub()
        self._loop = hub.loop
        self._waiter = Waiter(hub)
        self._watcher = self._loop.async_()
        # Before anybody can open it: what is sent to a watcher that has not started is not remembered.
        self._watcher.start(self._waiter.switch, None)

    def open(self) -> None:
        """Wakes the greenlet, from any thread; not after `close`."""
        self._watcher.send()

    def wait(self, seconds: float | None) -> None:
        """Sleeps until opened, at most `seconds`."""
        if seconds is None:
            self._waiter.get()
            return
        timer = self._loop.timer(min(seconds, _LONGEST))
        try:
            # Counted from now: the loop's own idea of it is old when a greenlet has computed for long.
            timer.start(self._waiter.switch, None, update=True)
            self._waiter.get()
        finally:
            timer.close()

    def close(self) -> None:
        """Its watcher ends; whoever could open it must have been told before."""
        self._watcher.close()


class GreenSignal(ThreadSignal):
    """Wakes one greenlet from any thread; a `set` that comes first is remembered."""

    __slots__ = ()

    def __init__(self) -> None:
        self.mutex: Any = RLock()
        self._set = False
        self._gate: Any = None

    def set(self) -> None:
        """Wakes the greenlet; called with the mutex held."""
        self._set = True
        gate, self._gate = self._gate, None
        if gate is not None:
            gate.open()

    def wait(self, until: float | None) -> None:
        """Sleeps until set, or until the local instant `until`."""
        with self.mutex:
            if self._set:
                self._set = False
                return
            gate = self._gate = Gate()
        try:
            gate.wait(None if until is None else max(until - clock.now(), 0.0))
        finally:
            with self.mutex:
                self._set = False
                self._gate = None
            gate.close()


class GreenEvent:
    """A flag that greenlets of any thread wait for, set from any thread."""

    def __init__(self) -> None:
        self._mutex = RLock()
        self._set = False
        self._gates: list[Gate] = []
        # For who cannot switch: a signal handler runs in gevent's own hub when every greenlet sleeps.
        self._plain = _allocate_lock()
        self._plain.acquire()

    def set(self) -> None:
        """Wakes all who wait, now and later."""
        with self._mutex:
            if not self._set:
                self._set = True
                self._plain.release()
            gates, self._gates = self._gates, []
            for gate in gates:
                gate.open()

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until it is set, at most `timeout` seconds; whether it is."""
        if getcurrent() is gevent.get_hub():
            if self._plain.acquire(timeout=-1 if timeout is None else timeout):
                self._plain.release()
            return self._set
        with self._mutex:
            if self._set:
                return True
            gate = Gate()
            self._gates.append(gate)
        try:
            gate.wait(timeout)
        finally:
            with self._mutex:
                if gate in self._gates:
                    self._gates.remove(gate)
            gate.close()
        return self._set


class SystemThread:
    """A thread of the system, of which neither `threading` nor gevent knows; it ends with the process."""

    def __init__(self, run: Callable[[Joinable], None]) -> None:
        self._ended = GreenEvent()
        self.ident: int | None = _start_new_thread(self._main, (run,))

    def _main(self, run: Callable[[Joinable], None]) -> None:
        try:
            run(self)
        finally:
            self._ended.set()

    def join(self, timeout: float | None = None) -> None:
        """Waits until it has ended, at most `timeout` seconds; other greenlets run meanwhile."""
        self._ended.wait(timeout)

    def is_alive(self) -> bool:
        """Whether it runs."""
        return not self._ended._set


class SystemLoop(asyncio.SelectorEventLoop):
    """An event loop whose sockets, selector and helper threads are the system's, not gevent's."""

    def __init__(self) -> None:
        super().__init__(_Selector())

    def _make_self_pipe(self) -> None:
        # As asyncio's own, which would take gevent's sockets.
        me: Any = self
        me._ssock, me._csock = [_Socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, half.detach()) for half in _pair()]
        for sock in (me._ssock, me._csock):
            sock.settimeout(0)
        me._internal_fds += 1
        me._add_reader(me._ssock.fileno(), me._read_from_self)

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:
        """Runs a function in a thread of the system of its own."""
        del executor
        future = self.create_future()

        def end(result: Any, error: BaseException | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

        def work() -> None:
            result, failure = None, None
            try:
                result = func(*args)
            except BaseException as error:  # noqa: BLE001 - whatever it is, it is the caller's
                failure = error
            try:
                self.call_soon_threadsafe(end, result, failure)
            except RuntimeError:
                # The loop was closed meanwhile: nobody waits for it.
                return

        _start_new_thread(work, ())
        return future

    async def getaddrinfo(self, host: Any, port: Any, **how: Any) -> Any:
        """Looks a name up in a thread of the system."""
        return await self.run_in_executor(None, lambda: _getaddrinfo(host, port, **how))

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any) -> Any:
        """Opens a connection by TCP, on a socket of the system."""
        if options.get("sock") is None:
            where = {name: options.pop(name) for name in ("family", "proto", "flags") if name in options}
            options["sock"] = await self._connected(host, port, where)
            if options.get("ssl") and options.get("server_hostname") is None:
                options["server_hostname"] = host
        return await super().create_connection(protocol_factory, **options)

    async def create_unix_connection(self, protocol_factory: Any, path: Any = None, **options: Any) -> Any:
        """Opens a connection by a unix socket of the system."""
        if options.get("sock") is None:
            options["sock"] = await self._opened((socket.AF_UNIX, socket.SOCK_STREAM, 0), path)
        return await super().create_unix_connection(protocol_factory, **options)

    async def _connected(self, host: Any, port: Any, where: dict[str, int]) -> socket.socket:
        failure: OSError | None = None
        for *kind, _, address in await self.getaddrinfo(host, port, type=socket.SOCK_STREAM, **where):
            try:
                return await self._opened(kind, address)
            except OSError as error:
                failure = failure or error
        raise failure or OSError(f"no address for {host}")

    async def _opened(self, kind: Any, address: Any) -> socket.socket:
        sock = _Socket(*kind)
        try:
            sock.settimeout(0)
            await self.sock_connect(sock, address)
        except BaseException:
            sock.close()
            raise
        return sock


class GreenConnections(Connections):
    """Kept for each thread of the system: one of gevent's sockets works in the thread that has opened it."""

    def __init__(self, state: ClientState) -> None:
        self._own: Any = _ThreadLocal()
        super().__init__(state)

    @property
    def _idle(self) -> list[Connection]:
        try:
            return self._own.idle
        except AttributeError:
            self._own.idle = []
            return self._own.idle

    @_idle.setter
    def _idle(self, idle: list[Connection]) -> None:
        self._own.idle = idle


def run_apart(coroutine: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine in an event loop of its own, in a thread of the system, while other greenlets go on.

    This thread has one running loop for all its greenlets, and so can have no second one.
    """
    results: list[T] = []
    errors: list[BaseException] = []

    def run(_: Joinable) -> None:
        try:
            with asyncio.Runner(loop_factory=SystemLoop) as runner:
                results.append(runner.run(coroutine))
        except BaseException as error:  # noqa: BLE001 - it is the caller's
            errors.append(error)

    SystemThread(run).join()
    if errors:
        raise errors[0]
    return results[0]


class GreenThreads(Threads):
    """What the runtime needs of threads, where callers are greenlets."""

    signal = GreenSignal
    connections = GreenConnections

    def __init__(self) -> None:
        hub = gevent.get_hub()
        # The hub of another thread runs only while a greenlet there waits.
        self._home: Any = hub if hub.main_hub else None

    def new_loop(self) -> asyncio.AbstractEventLoop:
        """An event loop for the hub."""
        return SystemLoop()

    def start(self, run: Callable[[Joinable], None], name: str) -> Joinable:
        """Starts a thread of the system that runs `run(thread)`."""
        del name
        return SystemThread(run)

    def event(self) -> Event:
        """A flag to wait for."""
        return GreenEvent()

    def spawn(self, call: Callable[[], object]) -> None:
        """Has a user's function run soon in a greenlet of the main thread, where it may use what gevent has."""
        # None also when gevent's hub has been ended.
        loop = None if self._home is None else self._home.loop
        if loop is None:
            _start_new_thread(call, ())
        else:
            loop.run_callback_threadsafe(gevent.spawn, call)

    def abandoned(self, tickets: Sequence[Ticket]) -> None:
        """In a forked child: greenlets that waited with these tickets do exist here, and stop."""
        for ticket in tickets:
            self.renewed_mutex(ticket.signal)
            ticket.failed(NotAcquired(f"lock {ticket.keys.name!r} not acquired: the process was forked meanwhile"))

    def renewed_mutex(self, owner: Any) -> None:
        """In a forked child: a mutex that a thread may have held at the moment of the fork, which does not run here."""
        owner.mutex = RLock()
