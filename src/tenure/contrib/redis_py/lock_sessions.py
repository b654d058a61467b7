"""One `Locks` object for each client object, shared by all drop-in locks of that client and ended with it."""

# ruff: noqa: SLF001 - finalisers talk to the hub as its own do

from __future__ import annotations

import atexit
import time
import weakref
from typing import TYPE_CHECKING, Any, cast

from ...clients.redis_py import from_client
from ...core.lease_state import State
from ...errors import ConfigError
from ...manager import AsyncLocks, Locks
from ...manager_base import EXIT_TIMEOUT, LocksBase
from ...runtime import clock
from .namespacing import _Names  # pyright: ignore[reportPrivateUsage] - of this very package

if TYPE_CHECKING:
    from ...core.lease_state import Hold
    from ...runtime.hub import Hub
    from ...runtime.threads import Joinable

LONGEST_TIMEOUT = 10 * 365 * 86400.0
"""Seconds; the client library's own class knows no limit, a lease needs one."""


def site_of(client: object) -> str:
    """The namespace of a client that `namespaced()` has made; empty for any other."""
    return client.site if isinstance(client, _Names) else ""


def _server(client: object, *, asynchronous: bool) -> object:
    """What `Locks` takes for a client: itself, or the way to its server when it is a namespaced one, which is refused.

    It would be a mistake elsewhere, where the namespace of the locks is not the client's.
    """
    if not site_of(client):
        return client
    adapter, is_async = from_client(client)
    if is_async is not asynchronous:
        msg = "this client needs a drop-in lock of the other flavour: Lock for blocking ones, AsyncLock in asyncio"
        raise ConfigError(msg)
    return adapter


def leave(hub: Hub, hold: Hold) -> None:
    """Lets go of a lease without giving it back: its key stays until its end, as the client library's own would."""
    if hold.lose("closed", clock.now()):
        hub.remove(hold)


def leave_later(hub: Hub, hold: Hold) -> None:
    """The same from a finaliser, which may have interrupted whoever holds the lease's mutex; never blocks."""
    if hold.state is State.HELD:
        # On the hub's thread, as its own finalisers do it.
        cast("Any", hub)._call(leave, hub, hold)


_ending: list[Joinable] = []
"""Hubs of clients that were collected, which may still be giving back what these had locked."""


@atexit.register
def _at_exit() -> None:
    until = time.monotonic() + EXIT_TIMEOUT
    for thread in _ending:
        thread.join(max(until - time.monotonic(), 0.0))


class _SharedBase(LocksBase):
    ender: weakref.finalize[..., Any]
    """Ends everything when the client is collected, or before."""

    def end_session(self, within: float) -> None:
        """For the package itself: what has a timeout keeps its key until then, the rest is given back."""
        session = self._current
        if session is not None:
            for hold in list(session.hub.holds.values()):
                if not hold.terms.renew:
                    leave(session.hub, hold)
        super().end_session(within)

    def retire(self) -> None:
        """Ends the session once the client was collected; runs in the garbage collector, so nothing here may block."""
        session, self._current = self._current, None
        self._box.clear()
        if session is None or session.forked:
            return
        for hold in list(session.hub.holds.values()):
            if not hold.terms.renew:
                leave_later(session.hub, hold)
        session.close(release=True, within=EXIT_TIMEOUT, join=False)
        thread = cast("Any", session.hub)._thread
        if thread is not None:
            _ending[:] = [*(other for other in _ending if other.is_alive()), thread]


class SharedLocks(_SharedBase, Locks):
    """The locks of one blocking client."""


class SharedAsyncLocks(_SharedBase, AsyncLocks):
    """The locks of one asyncio client."""


# Two tables without a lock of their own, which a fork could leave locked for ever: `setdefault` decides.
_blocking: weakref.WeakKeyDictionary[Any, SharedLocks] = weakref.WeakKeyDictionary()
_asyncio: weakref.WeakKeyDictionary[Any, SharedAsyncLocks] = weakref.WeakKeyDictionary()


def blocking_locks(client: object) -> SharedLocks:
    """The `Locks` object of a blocking client; raises `ConfigError` for a client that cannot be used."""
    found = _blocking.get(client)
    if found is None:
        found = _blocking.setdefault(
            client, SharedLocks(_server(client, asynchronous=False), namespace=site_of(client), max_ttl=LONGEST_TIMEOUT)
        )
        _end_with(client, found)
    return found


def asyncio_locks(client: object) -> SharedAsyncLocks:
    """The `AsyncLocks` object of an asyncio client; raises `ConfigError` for a client that cannot be used."""
    found = _asyncio.get(client)
    if found is None:
        found = _asyncio.setdefault(
            client,
            SharedAsyncLocks(_server(client, asynchronous=True), namespace=site_of(client), max_ttl=LONGEST_TIMEOUT),
        )
        _end_with(client, found)
    return found


def _end_with(client: object, locks: _SharedBase) -> None:
    # Twice when two threads made the first lock of a client together: the second one then finds nothing to end.
    locks.ender = weakref.finalize(client, locks.retire)
    locks.ender.atexit = False


def close_locks(client: object) -> None:
    """Ends what the locks of a client share, a thread and connections, before the client itself is collected.

    Locks with a timeout keep their keys until then, the others are given back; their lock objects own them no longer.
    The client stays open, and may be used for new locks. Does not block.
    """
    for table in (_blocking, _asyncio):
        locks = table.pop(client, None)
        if locks is not None:
            locks.ender()
