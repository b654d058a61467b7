"""Threads as the standard library has them: the hub's, those that wait, and those that run users' functions.

`runtime/green.py` has the same for a process in which gevent's greenlets stand for threads.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, Protocol

from .blocking import Connections, ThreadSignal
from .callbacks import in_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..core.ticket import Ticket


class Joinable(Protocol):
    """A thread that was started."""

    @property
    def ident(self) -> int | None:
        """What the system calls it."""
        ...

    def join(self, timeout: float | None = None) -> None:
        """Waits until it has ended, at most `timeout` seconds."""
        ...

    def is_alive(self) -> bool:
        """Whether it runs."""
        ...


class Event(Protocol):
    """A flag that threads wait for, set from any thread."""

    def set(self) -> None:
        """Wakes all who wait, now and later."""
        ...

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until it is set, at most `timeout` seconds; whether it is."""
        ...


def _told_itself(run: Callable[[Joinable], None]) -> None:
    run(threading.current_thread())


class Threads:
    """What the runtime needs of threads; one for each session."""

    signal: type[ThreadSignal] = ThreadSignal
    connections: type[Connections] = Connections

    def new_loop(self) -> asyncio.AbstractEventLoop:
        """An event loop for the hub."""
        return asyncio.new_event_loop()

    def start(self, run: Callable[[Joinable], None], name: str) -> Joinable:
        """Starts a daemon thread that runs `run(thread)`."""
        thread = threading.Thread(target=_told_itself, args=(run,), name=name, daemon=True)
        thread.start()
        return thread

    def event(self) -> Event:
        """A flag to wait for."""
        return threading.Event()

    def spawn(self, call: Callable[[], object]) -> None:
        """Has a user's function run soon, away from the hub."""
        in_thread(call)

    def abandoned(self, tickets: Sequence[Ticket]) -> None:
        """In a forked child: the threads that waited with these tickets do not exist here."""

    def renewed_mutex(self, owner: Any) -> None:
        """In a forked child: a mutex that a thread may have held at the moment of the fork, which does not run here."""
        owner.mutex = threading.Lock()
