"""Looking at locks and steering them: the part of Locks and AsyncLocks that needs no lease."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from . import options
from .core import inspect as inspection
from .core.waits_for import deadlocks
from .manager_base import LocksBase
from .runtime.blocking import run

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from .holder import Holder, Waiter

WATCH_EVERY = 0.5


class Looking(LocksBase):
    """What one can see of locks, and do about them, without holding them."""

    def holder(self, name: str) -> Holder | None:
        """Who holds the lock `name`, or None; one request. Raises `NameConflict` or a `ServerError`.

        Of several who hold it beside each other the one whose lease ends first.
        """
        return run(inspection.holder(self.session().port, self._keys(name)))

    def holders(self, name: str) -> list[Holder]:
        """All who hold the lock `name`, in the order in which their leases end, at most 1,000; one request."""
        return run(inspection.holders(self.session().port, self._keys(name)))

    def waiters(self, name: str) -> list[Waiter]:
        """Who waits for the lock `name`, in the order in which they will be served, at most 1,000; one request."""
        return run(inspection.waiters(self.session().port, self._keys(name)))

    def deadlocks(self) -> list[tuple[Waiter, ...]]:
        """Circles of threads or tasks that wait for each other: each waits for a lock that the next one holds.

        A SCAN, and one request per lock that somebody waits for. Raises a `ServerError`.
        """
        return run(deadlocks(self.session().port, self.namespace))

    def watch(self, name: str) -> Iterator[Holder | None]:
        """Yields who holds the lock `name`, or None, now and after each change, until the iteration is given up.

        Looks twice a second, one request each: a lease that is shorter than that may go unseen. Of several who hold it
        beside each other the one whose lease ends first is told, when one comes or goes. Blocks between two changes.
        Raises `NameConflict` or a `ServerError`.
        """
        keys = self._keys(name)
        seen: set[str] | None = None
        while True:
            found = run(inspection.holders(self.session().port, keys))
            now = {holder.id for holder in found}
            if now != seen:
                seen = now
                yield found[0] if found else None
            time.sleep(WATCH_EVERY)

    def ask(self, name: str) -> Holder | None:
        """Asks whoever holds the lock `name` to release it; returns the holder that heard it, or None. One request.

        What the holder does is up to it: see `lease.asked` and `on_ask`. None says that nobody holds it, or that the
        holder could not be told. Raises `NameConflict` or a `ServerError`.
        """
        session = self.session()
        asked = run(inspection.ask(session.port, self._keys(name), session.describe(None)))
        return asked.holder if asked.heard else None

    def break_lock(self, name: str, fence: int | None = None, *, force: bool = False) -> Holder | None:
        """Takes the lock away from its holder, who is told; returns the holder that was told, or None.

        With `fence` only the lease that was seen. The lock is free once the holder has let go, or when its lease
        ends. `force` deletes it at once, and is the only way with a client of another library. Of those who hold it
        beside each other all are meant, or those with this fence, at most 100 in one call.

        Safety: with `force` two clients may believe that they hold the lock. A fenced resource refuses the older one.
        """
        seen, forced = options.fence(fence), options.flag(force, "force")
        return run(inspection.break_lock(self.session().port, self._keys(name), seen, force=forced))

    def list(self, prefix: str = "") -> list[Holder]:
        """The holders of all locks whose names begin with `prefix`, by name; a SCAN and one request per lock."""
        return run(inspection.held(self.session().port, self.namespace, options.prefix(prefix)))


class AsyncLooking(LocksBase):
    """What one can see of locks, and do about them, without holding them."""

    async def holder(self, name: str) -> Holder | None:
        """Who holds the lock `name`, or None; one request. Raises `NameConflict` or a `ServerError`.

        Of several who hold it beside each other the one whose lease ends first.
        """
        return await inspection.holder(self.session().aio_port(), self._keys(name))

    async def holders(self, name: str) -> list[Holder]:
        """All who hold the lock `name`, in the order in which their leases end, at most 1,000; one request."""
        return await inspection.holders(self.session().aio_port(), self._keys(name))

    async def waiters(self, name: str) -> list[Waiter]:
        """Who waits for the lock `name`, in the order in which they will be served, at most 1,000; one request."""
        return await inspection.waiters(self.session().aio_port(), self._keys(name))

    async def deadlocks(self) -> list[tuple[Waiter, ...]]:
        """Circles of threads or tasks that wait for each other: each waits for a lock that the next one holds.

        A SCAN, and one request per lock that somebody waits for. Raises a `ServerError`.
        """
        return await deadlocks(self.session().aio_port(), self.namespace)

    async def watch(self, name: str) -> AsyncIterator[Holder | None]:
        """Yields who holds the lock `name`, or None, now and after each change, until the iteration is given up.

        Looks twice a second, one request each: a lease that is shorter than that may go unseen. Of several who hold it
        beside each other the one whose lease ends first is told, when one comes or goes. Blocks between two changes.
        Raises `NameConflict` or a `ServerError`.
        """
        keys = self._keys(name)
        seen: set[str] | None = None
        while True:
            found = await inspection.holders(self.session().aio_port(), keys)
            now = {holder.id for holder in found}
            if now != seen:
                seen = now
                yield found[0] if found else None
            await asyncio.sleep(WATCH_EVERY)

    async def ask(self, name: str) -> Holder | None:
        """Asks whoever holds the lock `name` to release it; returns the holder that heard it, or None. One request.

        What the holder does is up to it: see `lease.asked` and `on_ask`. None says that nobody holds it, or that the
        holder could not be told. Raises `NameConflict` or a `ServerError`.
        """
        session = self.session()
        asked = await inspection.ask(session.aio_port(), self._keys(name), session.describe(None))
        return asked.holder if asked.heard else None

    async def break_lock(self, name: str, fence: int | None = None, *, force: bool = False) -> Holder | None:
        """Takes the lock away from its holder, who is told; returns the holder that was told, or None.

        With `fence` only the lease that was seen. The lock is free once the holder has let go, or when its lease
        ends. `force` deletes it at once, and is the only way with a client of another library. Of those who hold it
        beside each other all are meant, or those with this fence, at most 100 in one call.

        Safety: with `force` two clients may believe that they hold the lock. A fenced resource refuses the older one.
        """
        seen, forced = options.fence(fence), options.flag(force, "force")
        return await inspection.break_lock(self.session().aio_port(), self._keys(name), seen, force=forced)

    async def list(self, prefix: str = "") -> list[Holder]:
        """The holders of all locks whose names begin with `prefix`, by name; a SCAN and one request per lock."""
        return await inspection.held(self.session().aio_port(), self.namespace, options.prefix(prefix))
