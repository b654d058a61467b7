"""Lock and AsyncLock: immutable descriptions of a lock, to be shared and used again."""

from __future__ import annotations

import functools
import inspect
import weakref
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from . import options
from .core import inspect as inspection
from .core.acquire import Wish, acquire
from .core.keys import keys_of
from .core.several import acquire_all
from .core.waits_for import circle_through, sentence
from .errors import AlreadyHeld, ConfigError, NotAcquired, NotHeld, TenureError
from .lease import AsyncLease, Lease
from .runtime import clock
from .runtime.blocking import run
from .runtime.session import context
from .template import Template, called, refuse_generator

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from types import TracebackType

    from .core.keys import Keys
    from .core.lease_state import Hold
    from .core.ports import Port
    from .holder import Holder
    from .lease_base import LeaseBase
    from .manager_base import LocksBase
    from .options import LockOptions
    from .runtime.session import Session

P = ParamSpec("P")
T = TypeVar("T")


def watch(session: Session, holds: tuple[Hold, ...], lease: LeaseBase, owner: object) -> None:
    """From now on the lease is renewed, and told of what happens to it."""
    handle = weakref.ref(lease)
    try:
        for hold in holds:
            hold.handle = handle
            if lease.wants_asks:
                hold.announce_at = hold.granted_at
            session.hub.add(hold, owner)
            session.notifier.granted(hold)
    except BaseException:
        # Interrupted: the procedure gives the token back, and nothing here may renew it meanwhile.
        for hold in holds:
            hold.begin_release(clock.now())
            session.hub.remove(hold)
        raise


def _unpacked(build: Callable[..., T]) -> Callable[[list[Hold]], T]:
    return lambda holds: build(*holds)


class _LockBase:
    """What both flavours share: names, options, and who is inside a `with` of it."""

    def __init__(self, locks: LocksBase, names: tuple[str, ...], chosen: LockOptions) -> None:
        self._locks = locks
        self._options = chosen
        # Everybody takes several locks in the order of their keys: that alone keeps them out of each other's way.
        found = {keys.main: keys for keys in (keys_of(locks.namespace, name) for name in names)}
        self._keys: list[Keys] = [found[main] for main in sorted(found)]
        self._names = tuple([keys.name for keys in self._keys])
        self._entered: dict[object, list[Any]] = {}
        self._described: tuple[Session, str] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the lock, sorted, each of them once."""
        return self._names

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {', '.join(map(repr, self._names))}>"

    def _nested(self, session: Session, owner: object) -> Any:  # noqa: ANN401 - a lease of either flavour
        """The lease that a nested use of a reentrant lock gets; refuses any other one, which would wait for itself."""
        for keys in self._keys:
            held = session.hub.held_in(keys.main, owner)
            if held is None:
                continue
            lease = held.handle() if held.handle is not None else None
            mode, wanted = held.terms.mode, self._options.terms.mode
            fits = lease is not None and getattr(lease, "names", None) == self._names
            if self._options.reentrant and fits and (mode == wanted or (mode, wanted) == ("exclusive", "shared")):
                return lease
            if not self._options.reentrant:
                how = "use the lease that you have, or reentrant=True"
            elif not fits:
                how = "a reentrant lock of several names needs the very same names"
            else:
                how = f"it is held as {mode}, and nested as {wanted}: take it as {wanted} in the first place"
            msg = (
                f"lock {keys.name!r} is already held by this thread or task (fence {held.fence}): it would wait "
                f"for itself; {how}"
            )
            raise AlreadyHeld(msg, names=(keys.name,))
        return None

    def _wish(self, session: Session, keys: Keys, wait: float | None, owner: object) -> Wish:
        """What the procedure needs to know of one of the locks."""
        described = self._described
        if described is None or described[0] is not session:
            described = self._described = (session, session.describe(self._options.info))
        chosen = self._options
        return Wish(keys, chosen.terms, described[1], wait, f"{id(owner):x}", chosen.ask_after, chosen.apart)

    # Apart, as `_unpacked` is: a comprehension or lambda in `_acquire` would cost it a cell for every variable it uses.
    def _wishes(self, session: Session, wait: float | None, owner: object) -> list[Wish]:
        return [self._wish(session, keys, wait, owner) for keys in self._keys]

    async def _gave_up(
        self, session: Session, port: Port, error: NotAcquired, owner: object, *, explain: bool
    ) -> NotAcquired:
        """Tells of it; the error, with the circle of waiters that is the cause of it if there is one."""
        for name in error.names:
            session.notifier.gave_up_waiting(name, error.waited)
        session.note_if_here(error)
        # Who holds nothing closes no circle, and one try waits for nobody.
        inbox = port.inbox()
        if not explain or self._options.wait == 0 or not error.names or not inbox or not session.hub.owned_by(owner):
            return error
        try:
            links = await circle_through(port, self._locks.namespace, error.names[0], f"{inbox[1:]}.{id(owner):x}")
        except TenureError:
            return error
        if not links:
            return error
        text = sentence(links)
        return NotAcquired(
            f"{error}; {text}: take the locks in one call, or everywhere in the same order",
            names=error.names,
            waited=error.waited,
            holder=error.holder,
            position=error.position,
            retry_after=error.retry_after,
            heard=error.heard,
            deadlock=text,
        )

    def _enter(self, lease: LeaseBase) -> None:
        self._entered.setdefault(context(), []).append(lease)

    def _drop_entered(self) -> None:
        """After an interrupt; the lease of an outer block, of a reentrant lock, stays where it is."""
        if len(self._entered.get(context(), ())) <= 1:
            self._entered.pop(context(), None)

    def _leave(self) -> Any:  # noqa: ANN401 - a lease of either flavour
        """The lease of the block that is being left."""
        leases = self._entered.pop(context(), None)
        if leases is None and len(self._entered) == 1:
            # Left by another task than it was entered by, as some test frameworks do: there is only one it can be.
            leases = self._entered.popitem()[1]
        if not leases:
            msg = (
                f"lock {self._names[0]!r}: this block was entered by another thread or task, and there are several; "
                f"use `with lock.acquire() as lease` for blocks that wander"
            )
            raise NotHeld(msg, names=self._names)
        lease = leases.pop()
        if leases:
            self._entered[context()] = leases
        return lease


class Lock(_LockBase):
    """How a lock is to be taken: its name and its options.

    Immutable: no token in it, so threads and tasks may share it and it may be used again. A context manager and a
    decorator; both acquire as `acquire()` does.
    """

    def acquire(self) -> Lease:
        """Takes the lock and returns the lease; waits as long as the lock's `wait` says.

        One request when it is free; else a place in the queue, and a sleep until it is handed over. May block. Raises
        `NotAcquired` when the time is up, `AlreadyHeld` when this thread or task has it, `NameConflict`, or a
        `ServerError` after `server_timeout` seconds without a usable server.

        Safety: what is returned is a lease; it can end before the work does. See `Lease`.
        """
        return self._acquire(self._options.wait)

    def try_acquire(self, wait: options.Seconds = 0) -> Lease | None:
        """Takes the lock if it can be had within `wait` seconds, else returns None; 0 is one try that never queues.

        Raises what `acquire` raises, except `NotAcquired`. May block for `wait` seconds, or `server_timeout` when the
        server is away.

        Safety: what is returned is a lease; it can end before the work does. See `Lease`.
        """
        try:
            return self._acquire(options.wait(wait), explain=False)
        except NotAcquired:
            return None

    def _acquire(self, wait: float | None, *, explain: bool = True) -> Lease:
        session = self._locks.session()
        owner = context()
        nested: Lease | None = self._nested(session, owner)
        if nested is not None:
            nested.nest()
            return nested

        build = functools.partial(self._lease, session, owner)
        port, new_token = session.port, session.state.new_token
        try:
            if len(self._keys) == 1:
                return run(acquire(port, self._wish(session, self._keys[0], wait, owner), new_token, build))
            return run(acquire_all(port, self._wishes(session, wait, owner), new_token, _unpacked(build)))
        except NotAcquired as error:
            raise run(self._gave_up(session, port, error, owner, explain=explain)) from None

    def _lease(self, session: Session, owner: object, *holds: Hold) -> Lease:
        lease = Lease(session, self._locks, holds, self._options)
        watch(session, holds, lease, owner)
        return lease

    def locked(self) -> bool:
        """Whether somebody holds the lock, this process included; one request.

        Safety: it may have changed before the answer arrives.
        """
        return self.holder() is not None

    def holder(self) -> Holder | None:
        """Who holds the lock, or None; one request. Of several names the first one that somebody holds.

        Safety: it may have changed before the answer arrives.
        """
        port = self._locks.session().port
        for keys in self._keys:
            found = run(inspection.holder(port, keys))
            if found is not None:
                return found
        return None

    def __enter__(self) -> Lease:
        lease = self.acquire()
        # An interrupt from here on must not leave the lease in a long-lived Lock, where no collector finds it.
        try:
            self._enter(lease)
            return lease
        except BaseException:
            self._drop_entered()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            lease = self._leave()
        except BaseException:
            # Interrupted: a lease that stayed here would be renewed for as long as this object lives.
            self._drop_entered()
            raise
        lease.__exit__(kind, error, traceback)

    def __call__(self, function: Callable[P, T]) -> Callable[P, T]:
        """Decorates a function: each call takes the lock, with the call's arguments in the fields of its name.

        `@locks.lock("report:{user_id}")` fills plain arguments, no attributes. Raises `ConfigError` when decorating
        something that does not fit this flavour, or when a field is no argument.
        """
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            msg = f"{called(function)} is a coroutine function: decorate it with a lock of AsyncLocks"
            raise ConfigError(msg)
        refuse_generator(function)
        template = Template(self._names, function)

        @functools.wraps(function)
        def locked(*args: P.args, **kwargs: P.kwargs) -> T:
            with Lock(self._locks, template.filled(args, kwargs), self._options):
                return function(*args, **kwargs)

        return locked


class AsyncLock(_LockBase):
    """How a lock is to be taken: its name and its options.

    Immutable: no token in it, so threads and tasks may share it and it may be used again. A context manager and a
    decorator; both acquire as `acquire()` does.
    """

    def __init__(self, locks: LocksBase, names: tuple[str, ...], chosen: LockOptions, *, cancel_on_lost: bool) -> None:
        super().__init__(locks, names, chosen)
        self._cancel_on_lost = cancel_on_lost

    async def acquire(self) -> AsyncLease:
        """Takes the lock and returns the lease; waits as long as the lock's `wait` says.

        One request when it is free; else a place in the queue, and a sleep until it is handed over. May block. Raises
        `NotAcquired` when the time is up, `AlreadyHeld` when this thread or task has it, `NameConflict`, or a
        `ServerError` after `server_timeout` seconds without a usable server.

        Safety: what is returned is a lease; it can end before the work does. See `Lease`.
        """
        return await self._acquire(self._options.wait)

    async def try_acquire(self, wait: options.Seconds = 0) -> AsyncLease | None:
        """Takes the lock if it can be had within `wait` seconds, else returns None; 0 is one try that never queues.

        Raises what `acquire` raises, except `NotAcquired`. May block for `wait` seconds, or `server_timeout` when the
        server is away.

        Safety: what is returned is a lease; it can end before the work does. See `Lease`.
        """
        try:
            return await self._acquire(options.wait(wait), explain=False)
        except NotAcquired:
            return None

    async def _acquire(self, wait: float | None, *, explain: bool = True) -> AsyncLease:
        session = self._locks.session()
        owner = context()
        nested: AsyncLease | None = self._nested(session, owner)
        if nested is not None:
            nested.nest()
            return nested

        build = functools.partial(self._lease, session, owner)
        port, new_token = session.aio_port(), session.state.new_token
        try:
            if len(self._keys) == 1:
                return await acquire(port, self._wish(session, self._keys[0], wait, owner), new_token, build)
            return await acquire_all(port, self._wishes(session, wait, owner), new_token, _unpacked(build))
        except NotAcquired as error:
            raise await self._gave_up(session, port, error, owner, explain=explain) from None

    def _lease(self, session: Session, owner: object, *holds: Hold) -> AsyncLease:
        lease = AsyncLease(session, self._locks, holds, self._options, cancel_on_lost=self._cancel_on_lost)
        watch(session, holds, lease, owner)
        return lease

    async def locked(self) -> bool:
        """Whether somebody holds the lock, this process included; one request.

        Safety: it may have changed before the answer arrives.
        """
        return await self.holder() is not None

    async def holder(self) -> Holder | None:
        """Who holds the lock, or None; one request. Of several names the first one that somebody holds.

        Safety: it may have changed before the answer arrives.
        """
        port = self._locks.session().aio_port()
        for keys in self._keys:
            found = await inspection.holder(port, keys)
            if found is not None:
                return found
        return None

    async def __aenter__(self) -> AsyncLease:
        lease = await self._acquire(self._options.wait)
        self._enter(await lease.__aenter__())
        return lease

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._leave().__aexit__(kind, error, traceback)

    def __call__(self, function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
        """Decorates a function: each call takes the lock, with the call's arguments in the fields of its name.

        `@locks.lock("report:{user_id}")` fills plain arguments, no attributes. Raises `ConfigError` when decorating
        something that does not fit this flavour, or when a field is no argument.
        """
        refuse_generator(function)
        if not inspect.iscoroutinefunction(function):
            msg = f"{called(function)} is no coroutine function: decorate it with a lock of Locks"
            raise ConfigError(msg)
        template = Template(self._names, function)

        @functools.wraps(function)
        async def locked(*args: P.args, **kwargs: P.kwargs) -> T:
            names = template.filled(args, kwargs)
            async with AsyncLock(self._locks, names, self._options, cancel_on_lost=self._cancel_on_lost):
                return await function(*args, **kwargs)

        return locked
