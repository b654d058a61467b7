"""A local clock that jumps, so that deadlines pass without anybody sleeping."""

from __future__ import annotations

# pyright: reportPrivateUsage=false
# What tests break on purpose is not public.
import threading

from .. import options
from ..manager_base import _managers
from ..runtime import clock

_mutex = threading.Lock()


class _Ahead:
    """The clock that there was, and so many seconds."""

    def __init__(self) -> None:
        self._base = clock.now
        self.seconds = 0.0

    def __call__(self) -> float:
        return self._base() + self.seconds


def jump(seconds: options.Seconds) -> None:
    """Makes the library's clock in this process jump ahead, as if this machine had slept for `seconds`.

    Every lease of this process is `seconds` nearer to its deadline, every waiter to the end of its wait; renewals,
    losses, `max_hold` and `warn_after` that are due by then happen at once, in the background as ever. The server's
    clock stays: a key is there for the rest of its ttl unless the lease is given up. There is no way back, since a
    clock that steps back is what the library relies on not to meet. Does not block; any thread.

    Raises `ConfigError` for anything but a positive number of seconds.
    """
    ahead = options.seconds(seconds, "seconds", above=True)
    with _mutex:
        now = clock.now
        if not isinstance(now, _Ahead):
            now = _Ahead()
        now.seconds += ahead
        clock.now = now
    for locks in list(_managers):
        session = locks._current
        if session is None:
            continue
        for ticket in list(session.hub.tickets.values()):
            with ticket.signal.mutex:
                ticket.signal.set()
        if session.hub.holds or session.hub.tickets:
            session.hub.wake()
