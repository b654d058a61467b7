"""Running something under a lock: run, once and get_or_create of Locks and AsyncLocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar, TypeVarTuple, Unpack

from .errors import NotAcquired, ServerReadOnly
from .lock import AsyncLock, Lock
from .manager_base import LocksBase
from .outcomes import Ran

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from . import options
    from .options import LockKeywords
    from .outcomes import Skipped

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Running(LocksBase):
    """Running something under a lock, and telling whether it ran."""

    def run(self, *names: str | bytes, call: Callable[[], T], **lock_options: Unpack[LockKeywords]) -> Ran[T] | Skipped:
        """Calls `call()` while the lock is held: returns `Ran` with its value, or `Skipped` when it could not be had.

        Args:
            names: see `lock`.
            call: takes no arguments; what it raises goes to the caller.
            lock_options: those of `lock`; `wait` is 0 unless it is given: one try.

        Raises `LeaseLost` as the block of a lock does, and what `acquire` raises except `NotAcquired`. May block.

        Safety: what `call` does is protected by a lease. See `Lease`.
        """
        lock = Lock(self, *self._described(names, {**lock_options}))
        try:
            lease = lock.acquire()
        except NotAcquired as error:
            return self._skipped(error)
        with lease:
            return Ran(call())

    def once(
        self,
        name: str | bytes,
        call: Callable[[*Ts], T],
        *args: *Ts,
        at_least: options.Seconds = 0,
        max_hold: options.Seconds | None = None,
        ttl: options.Seconds = 30,
    ) -> Ran[T] | Skipped:
        """Calls `call(*args)` in one process at a time: returns `Ran` with its value, or `Skipped` in all others.

        Args:
            name: see `lock`.
            call: what it raises goes to the caller, and counts as a run.
            args: handed to `call`.
            at_least: seconds between the beginnings of two runs, up to 366 days; 0: as soon as the last one has ended.
            max_hold: see `lock`.
            ttl: see `lock`.

        Raises `LeaseLost` as the block of a lock does, and what `acquire` raises except `NotAcquired`. Never waits for
        a holder.

        Safety: the distance is kept by the server's clock while it keeps its memory; what `call` does is protected by a
        lease. See `Lease`.
        """
        wishes = {"ttl": ttl, "wait": 0, "max_hold": max_hold, "apart": at_least}
        lock = Lock(self, *self._described((name,), wishes))
        try:
            lease = lock.acquire()
        except NotAcquired as error:
            return self._skipped(error)
        with lease:
            return Ran(call(*args))

    def get_or_create(
        self,
        name: str | bytes,
        get: Callable[[], T | None],
        create: Callable[[], T],
        ttl: options.Seconds = 30,
        wait: options.Seconds | None = None,
    ) -> T:
        """Returns `get()`, or what `create()` makes when that is None, in one process for all who ask meanwhile.

        Args:
            name: the lock under which it is created: see `lock`.
            get: looks it up, and returns None when it is not there; called without a lock first, and again under it.
            create: makes it, stores it where `get` finds it, and returns it; what it raises goes to its caller alone.
            ttl: see `lock`.
            wait: see `lock`: how long to wait for somebody else who creates it.

        No request at all when it is there. On a server that is read-only what exists is returned, and nothing is
        created: raises `ServerReadOnly` when there is nothing. Raises `NotAcquired` when the time is up and it is still
        not there, and what else `acquire` raises. May block.

        Safety: creation is protected by a lease: when it is lost meanwhile, somebody else may create it as well.
        """
        found = get()
        if found is not None:
            return found
        wishes = {"ttl": ttl, "wait": wait, "on_exit_lost": "note"}
        lock = Lock(self, *self._described((name,), wishes))
        try:
            lease = lock.acquire()
        except (NotAcquired, ServerReadOnly):
            found = get()
            if found is None:
                raise
            return found
        with lease:
            found = get()
            return create() if found is None else found


class AsyncRunning(LocksBase):
    """Running something under a lock, and telling whether it ran."""

    async def run(
        self, *names: str | bytes, call: Callable[[], Awaitable[T]], **lock_options: Unpack[LockKeywords]
    ) -> Ran[T] | Skipped:
        """Calls `call()` while the lock is held: returns `Ran` with its value, or `Skipped` when it could not be had.

        Args:
            names: see `lock`.
            call: takes no arguments; what it raises goes to the caller.
            lock_options: those of `lock`; `wait` is 0 unless it is given: one try.

        Raises `LeaseLost` as the block of a lock does, and what `acquire` raises except `NotAcquired`. May block.

        Safety: what `call` does is protected by a lease. See `Lease`.
        """
        lock = AsyncLock(self, *self._described(names, {**lock_options}), cancel_on_lost=True)
        try:
            lease = await lock.acquire()
        except NotAcquired as error:
            return self._skipped(error)
        async with lease:
            return Ran(await call())

    async def once(
        self,
        name: str | bytes,
        call: Callable[[*Ts], Awaitable[T]],
        *args: *Ts,
        at_least: options.Seconds = 0,
        max_hold: options.Seconds | None = None,
        ttl: options.Seconds = 30,
    ) -> Ran[T] | Skipped:
        """Calls `call(*args)` in one process at a time: returns `Ran` with its value, or `Skipped` in all others.

        Args:
            name: see `lock`.
            call: what it raises goes to the caller, and counts as a run.
            args: handed to `call`.
            at_least: seconds between the beginnings of two runs, up to 366 days; 0: as soon as the last one has ended.
            max_hold: see `lock`.
            ttl: see `lock`.

        Raises `LeaseLost` as the block of a lock does, and what `acquire` raises except `NotAcquired`. Never waits for
        a holder.

        Safety: the distance is kept by the server's clock while it keeps its memory; what `call` does is protected by a
        lease. See `Lease`.
        """
        wishes = {"ttl": ttl, "wait": 0, "max_hold": max_hold, "apart": at_least}
        lock = AsyncLock(self, *self._described((name,), wishes), cancel_on_lost=True)
        try:
            lease = await lock.acquire()
        except NotAcquired as error:
            return self._skipped(error)
        async with lease:
            return Ran(await call(*args))

    async def get_or_create(
        self,
        name: str | bytes,
        get: Callable[[], Awaitable[T | None]],
        create: Callable[[], Awaitable[T]],
        ttl: options.Seconds = 30,
        wait: options.Seconds | None = None,
    ) -> T:
        """Returns `get()`, or what `create()` makes when that is None, in one process for all who ask meanwhile.

        Args:
            name: the lock under which it is created: see `lock`.
            get: looks it up, and returns None when it is not there; called without a lock first, and again under it.
            create: makes it, stores it where `get` finds it, and returns it; what it raises goes to its caller alone.
            ttl: see `lock`.
            wait: see `lock`: how long to wait for somebody else who creates it.

        No request at all when it is there. On a server that is read-only what exists is returned, and nothing is
        created: raises `ServerReadOnly` when there is nothing. Raises `NotAcquired` when the time is up and it is still
        not there, and what else `acquire` raises. May block.

        Safety: creation is protected by a lease: when it is lost meanwhile, somebody else may create it as well.
        """
        found = await get()
        if found is not None:
            return found
        wishes = {"ttl": ttl, "wait": wait, "on_exit_lost": "note"}
        lock = AsyncLock(self, *self._described((name,), wishes), cancel_on_lost=False)
        try:
            lease = await lock.acquire()
        except (NotAcquired, ServerReadOnly):
            found = await get()
            if found is None:
                raise
            return found
        async with lease:
            found = await get()
            return await create() if found is None else found
