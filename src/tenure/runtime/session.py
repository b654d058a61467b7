"""One process's use of a `Locks` or `AsyncLocks` object: made when first needed, abandoned in a forked child."""

from __future__ import annotations

import asyncio
import functools
import os
import socket
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import patches
from ..core.inspect import encode_info
from ..errors import ConfigError
from .aio import AioPort
from .blocking import BlockingPort
from .client_state import ClientState
from .hub import Hub
from .notifier import Notifier
from .threads import Threads

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..clients.base import Client
    from ..errors import NotAcquired
    from ..events import Hook
    from ..options import Defaults


@dataclass(frozen=True, slots=True)
class Statistics:
    """What one `Locks` object has done in this process."""

    scope: str
    """Whom its locks exclude: the server's address, or "this user on this machine" for the embedded server."""
    held: int
    waiting: int
    granted: int
    released: int
    lost: int
    gave_up: int
    renew_failures: int
    unanswered: int
    """Requests that change something and had no answer."""
    requests: int
    broken_connections: int


@functools.cache
def _program() -> str:
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name:
        return spec.name.removesuffix(".__main__")
    return Path(sys.argv[0]).name if sys.argv and sys.argv[0] else "python"


_thread = threading.local()
_kind = threading.local
"""The class of `_thread`: what it is now may be gevent's, which tells greenlets apart."""
_plain = False
"""Somebody has a session whose callers are threads."""


def _threads() -> Threads:
    """The kind of threads that a new session has to do with, as this process is patched now."""
    global _thread, _kind, _plain  # noqa: PLW0603 - a process is patched as a whole
    # It may have been patched after the `Locks` object was made.
    patches.refuse(asynchronous=False)
    if not patches.green():
        _plain = True
        return Threads()
    if _plain:
        msg = "gevent has patched threads after locks were first used in this process; patch before anything else"
        raise ConfigError(msg)
    if threading.local is not _kind:
        _thread, _kind = threading.local(), threading.local
    from .green import GreenThreads  # noqa: PLC0415 - imports gevent, which is there in such a process only

    return GreenThreads()


def context() -> object:
    """What a nested acquire would wait for: the running asyncio task, else this thread.

    Never a context variable: child tasks inherit those, and would hold what their parent holds.
    """
    loop = asyncio._get_running_loop()
    if loop is not None:
        task = asyncio.current_task(loop)
        if task is not None:
            return task
    if threading.local is not _kind:
        _threads()
    try:
        return _thread.marker
    except AttributeError:
        marker = _thread.marker = _Marker()
        return marker


class _Marker:
    """Stands for one thread; idents are used again, objects are not."""

    __slots__ = ("__weakref__",)


class Session:
    """The hub, the ports and what they share."""

    def __init__(self, client: Client, defaults: Defaults, hooks: Iterable[Hook], scope: str) -> None:
        self.state = ClientState(client, defaults)
        self.threads = _threads()
        self.notifier = Notifier(hooks, self.threads.spawn)
        self.state.on_unanswered = self.notifier.unanswered
        self.hub = Hub(self.state, self.notifier, self.threads)
        self.port = BlockingPort(self.state, self.hub, self.threads)
        self.forked = False
        self._scope = scope
        self._client = client
        self._loops: dict[asyncio.AbstractEventLoop, AioPort] = {}
        self._last: tuple[asyncio.AbstractEventLoop, AioPort] | None = None
        self._host = socket.gethostname()
        self._pid = os.getpid()

    def aio_port(self) -> AioPort:
        """The port of the running loop."""
        loop = asyncio.get_running_loop()
        last = self._last
        if last is not None and last[0] is loop:
            return last[1]
        # A copy first: other threads have loops too, and come here at the same time.
        for other in list(self._loops):
            if other.is_closed():
                self._loops.pop(other, None)
        port = self._loops.get(loop)
        if port is None:
            port = self._loops[loop] = AioPort(self.state, self.hub)
        self._last = (loop, port)
        return port

    def describe(self, info: str | dict[str, Any] | None) -> str:
        """What holders and waiters of this process tell of themselves."""
        return encode_info(self._host, self._pid, _program(), self.state.defaults.identity, info)

    def note_if_here(self, error: NotAcquired) -> None:
        """Adds to an error that it is this very process which holds the lock: then waiting longer may not help."""
        holder = error.holder
        if holder is not None and (holder.host, holder.pid) == (self._host, self._pid):
            error.add_note(
                "this very process holds it: in another thread or task, or in this one through another Locks object, "
                "of which a program needs only one"
            )

    def statistics(self) -> Statistics:
        """Numbers as they are now; no I/O."""
        notes = self.notifier
        return Statistics(
            scope=self._scope,
            held=len(self.hub.holds),
            waiting=len(self.hub.tickets),
            granted=notes.granted_count,
            released=notes.released_count,
            lost=notes.lost_count,
            gave_up=notes.gave_up,
            renew_failures=notes.renew_failures,
            unanswered=self.state.unanswered_count,
            requests=self.state.requests,
            broken_connections=self.state.broken_connections,
        )

    def close(self, *, release: bool, within: float, join: bool = True) -> None:
        """Ends the hub, giving back what is held, and closes all connections; an injected client stays open."""
        self.hub.stop(release=release, within=within, join=join)
        self.port.connections.close()
        for loop, port in list(self._loops.items()):
            if not loop.is_closed():
                try:
                    loop.call_soon_threadsafe(port.server.close)
                except RuntimeError:
                    # It was closed between the two lines, and its connection with it.
                    continue
        self._loops.clear()
        self._last = None
        self._client.close()

    def abandon(self) -> None:
        """In a forked child: leases are inert, and no socket is shared."""
        self.forked = True
        self.hub.abandon()
        self.port.connections.abandon()
        for port in self._loops.values():
            port.server.abandon()
        self._client.forked()
