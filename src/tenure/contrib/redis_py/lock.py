"""Drop-in classes for the `lock_class=` of redis-py and valkey-py: their interface, tenure's locks behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Self

from ...core import inspect as inspection
from ...errors import NotAcquired
from ...lease import Released
from ...runtime.blocking import run
from .lock_base import LockBase, logger
from .lock_sessions import asyncio_locks, blocking_locks

if TYPE_CHECKING:
    from types import TracebackType

    # For type checkers alone, since the asyncio client's lock_class= is declared as a class derived from this one. What
    # it would inherit works on another format of the key.
    from redis.asyncio.lock import Lock as _DeclaredAsyncLock

    from ...lease import AsyncLease, Lease
    from .lock_sessions import SharedAsyncLocks, SharedLocks
else:
    _DeclaredAsyncLock = object


class Lock(LockBase):
    """A lock with the interface of redis-py's and valkey-py's `Lock`, for the `lock_class=` of a client's `lock()`.

    On the same key it excludes, and is excluded by, locks of the library's own class. Those who wait are served in the
    order of their arrival, by hand-over; `sleep` is taken and not used. `fence` and `lease` are new.

    With a `timeout` the key lives that long at most, whatever becomes of this process, and nothing renews it. Without
    one it is renewed in the background, given back when the process ends, and gone 30 seconds after it died. All locks
    of one client share a background thread and connections of their own, which end when the client is collected.

    Safety: a lease. It ends before the key does, by 1 % of the timeout + 20 ms and what clocks may differ by; from then
    on `owned()` is False, and another client may hold the lock.
    """

    def _shared(self) -> SharedLocks:
        return blocking_locks(self.redis)

    @property
    def lease(self) -> Lease | None:
        """The lease behind the lock that this lock object (and thread) has acquired, or None."""
        return self._lease()

    def acquire(
        self,
        sleep: float | None = None,
        blocking: bool | None = None,  # noqa: FBT001 - the client library's signature
        blocking_timeout: float | None = None,
        token: str | bytes | None = None,
    ) -> bool:
        """Takes the lock and returns True, or False when it could not be had in time.

        Args:
            sleep: taken and not used: waiters are told, and do not ask again and again.
            blocking: False tries once and does not wait.
            blocking_timeout: seconds to wait; None for ever.
            token: kept in `local.token`; whoever knows it may release and extend the lock, in other processes too.

        Raises the client library's errors when the server is away or refuses.
        """
        del sleep
        wait = self._wait(blocking, blocking_timeout)
        given = None if token is None else self._encoded(token)
        with self._translated():
            locks = self._shared()
            session = locks.session()
            lock = locks.lock(self._raw, **self._wishes(given, wait))
            self._take_plain_key(lock)
            try:
                lease = lock.acquire()
            except NotAcquired:
                if wait is None:
                    raise
                return False
            self._taken(lease, given, session)
        return True

    def locked(self) -> bool:
        """Whether anybody holds the lock; one request."""
        with self._translated():
            return run(inspection.holder(self._shared().session().port, self._keys)) is not None

    def owned(self) -> bool:
        """Whether this lock object (and thread) holds the lock, by its lease and by the server; one request."""
        token = self.local.token
        if token is None:
            return False
        token, stored = self._encoded(token), self._look(token)
        with self._translated():
            session = self._shared().session()
            return run(self._owned(session.port, self._found(token, stored, session)))

    def release(self) -> None:
        """Gives the lock back and hands it to the next waiter in the same request.

        Raises `LockError` when nothing was acquired, `LockNotOwnedError` when it was lost. After any other error it
        may be called again.
        """
        token = self._to_release()
        try:
            self.do_release(token)
        except self._exceptions.LockNotOwnedError:
            self._forget()
            raise
        self._forget()

    def do_release(self, expected_token: str | bytes) -> None:
        """Releases the lock that `expected_token` is the right to; raises `LockNotOwnedError` when it is not held."""
        token, stored = self._encoded(expected_token), self._look(expected_token)
        with self._translated():
            session = self._shared().session()
            found = self._found(token, stored, session)
            if found is not None and found[1] is not None:
                released = found[1].release() is Released.RELEASED
            else:
                released = found is not None and run(self._release_bare(session.port, found[0], session))
        if not released:
            raise self._not_owned("release")

    def extend(self, additional_time: float, replace_ttl: bool = False) -> Literal[True]:  # noqa: FBT001, FBT002
        """Adds `additional_time` seconds to what the lock has left, or with `replace_ttl` sets it to that.

        Setting it to less shortens the lease only, not the key on the server. Raises `LockNotOwnedError` when the lock
        was lost, `LockError` for one without a timeout.
        """
        token, _ = self._to_prolong("extend")
        return self._do_prolong(token, "extend", additional_time, add=not replace_ttl)

    def reacquire(self) -> Literal[True]:
        """Sets what the lock has left to its timeout again.

        Raises `LockNotOwnedError` when the lock was lost, `LockError` for one without a timeout.
        """
        token, timeout = self._to_prolong("reacquire")
        return self._do_prolong(token, "reacquire", timeout, add=False)

    def _do_prolong(self, token: bytes, doing: str, life: float, *, add: bool) -> Literal[True]:
        token, stored = self._encoded(token), self._look(token)
        with self._translated():
            session = self._shared().session()
            found = self._found(token, stored, session)
            ttl = run(self._ttl(session.port, life, add=add))
            if found is not None and found[1] is not None:
                found[1].renew(ttl)
            elif found is None or not run(self._prolong_bare(session.port, found[0], session, ttl)):
                raise self._not_owned(doing)
        return True

    def _look(self, token: str | bytes) -> Any:  # noqa: ANN401
        """What the key holds, when only that tells which lease a token means."""
        return self.redis.get(self._raw) if self._needs_look(self._encoded(token)) else None

    def __enter__(self) -> Self:
        if self.acquire():
            return self
        raise self._error("Unable to acquire lock within the time specified")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.release()
        except self._exceptions.LockError:
            if self.raise_on_release_error:
                raise
            logger.warning("lock %r was released, or lost, before its block ended", self._keys.name)


class AsyncLock(LockBase, _DeclaredAsyncLock):
    """A lock with the interface of redis-py's and valkey-py's `Lock`, for the `lock_class=` of a client's `lock()`.

    On the same key it excludes, and is excluded by, locks of the library's own class. Those who wait are served in the
    order of their arrival, by hand-over; `sleep` is taken and not used. `fence` and `lease` are new.

    With a `timeout` the key lives that long at most, whatever becomes of this process, and nothing renews it. Without
    one it is renewed in the background, given back when the process ends, and gone 30 seconds after it died. All locks
    of one client share a background thread and connections of their own, which end when the client is collected.

    Safety: a lease. It ends before the key does, by 1 % of the timeout + 20 ms and what clocks may differ by; from then
    on `owned()` is False, and another client may hold the lock.
    """

    def _shared(self) -> SharedAsyncLocks:
        return asyncio_locks(self.redis)

    @property
    def lease(self) -> AsyncLease | None:
        """The lease behind the lock that this lock object (and thread) has acquired, or None."""
        return self._lease()

    async def acquire(
        self,
        blocking: bool | None = None,  # noqa: FBT001 - the client library's signature
        blocking_timeout: float | None = None,
        token: str | bytes | None = None,
    ) -> bool:
        """Takes the lock and returns True, or False when it could not be had in time.

        Args:
            blocking: False tries once and does not wait.
            blocking_timeout: seconds to wait; None for ever.
            token: kept in `local.token`; whoever knows it may release and extend the lock, in other processes too.

        Raises the client library's errors when the server is away or refuses.
        """
        wait = self._wait(blocking, blocking_timeout)
        given = None if token is None else self._encoded(token)
        with self._translated():
            locks = self._shared()
            session = locks.session()
            lock = locks.lock(self._raw, **self._wishes(given, wait))
            self._take_plain_key(lock)
            try:
                lease = await lock.acquire()
            except NotAcquired:
                if wait is None:
                    raise
                return False
            self._taken(lease, given, session)
        return True

    async def locked(self) -> bool:
        """Whether anybody holds the lock; one request."""
        with self._translated():
            return await inspection.holder(self._shared().session().aio_port(), self._keys) is not None

    async def owned(self) -> bool:
        """Whether this lock object (and thread) holds the lock, by its lease and by the server; one request."""
        token = self.local.token
        if token is None:
            return False
        token, stored = self._encoded(token), await self._look(token)
        with self._translated():
            session = self._shared().session()
            return await self._owned(session.aio_port(), self._found(token, stored, session))

    async def release(self) -> None:
        """Gives the lock back and hands it to the next waiter in the same request.

        Raises `LockError` when nothing was acquired, `LockNotOwnedError` when it was lost. After any other error it
        may be called again.
        """
        token = self._to_release()
        try:
            await self.do_release(token)
        except self._exceptions.LockNotOwnedError:
            self._forget()
            raise
        self._forget()

    async def do_release(self, expected_token: str | bytes) -> None:
        """Releases the lock that `expected_token` is the right to; raises `LockNotOwnedError` when it is not held."""
        token, stored = self._encoded(expected_token), await self._look(expected_token)
        with self._translated():
            session = self._shared().session()
            found = self._found(token, stored, session)
            if found is not None and found[1] is not None:
                released = await found[1].release() is Released.RELEASED
            else:
                released = found is not None and await self._release_bare(session.aio_port(), found[0], session)
        if not released:
            raise self._not_owned("release")

    async def extend(self, additional_time: float, replace_ttl: bool = False) -> Literal[True]:  # noqa: FBT001, FBT002
        """Adds `additional_time` seconds to what the lock has left, or with `replace_ttl` sets it to that.

        Setting it to less shortens the lease only, not the key on the server. Raises `LockNotOwnedError` when the lock
        was lost, `LockError` for one without a timeout.
        """
        token, _ = self._to_prolong("extend")
        return await self._do_prolong(token, "extend", additional_time, add=not replace_ttl)

    async def reacquire(self) -> Literal[True]:
        """Sets what the lock has left to its timeout again.

        Raises `LockNotOwnedError` when the lock was lost, `LockError` for one without a timeout.
        """
        token, timeout = self._to_prolong("reacquire")
        return await self._do_prolong(token, "reacquire", timeout, add=False)

    async def _do_prolong(self, token: bytes, doing: str, life: float, *, add: bool) -> Literal[True]:
        token, stored = self._encoded(token), await self._look(token)
        with self._translated():
            session = self._shared().session()
            port = session.aio_port()
            found = self._found(token, stored, session)
            ttl = await self._ttl(port, life, add=add)
            if found is not None and found[1] is not None:
                await found[1].renew(ttl)
            elif found is None or not await self._prolong_bare(port, found[0], session, ttl):
                raise self._not_owned(doing)
        return True

    async def _look(self, token: str | bytes) -> Any:  # noqa: ANN401
        """What the key holds, when only that tells which lease a token means."""
        return await self.redis.get(self._raw) if self._needs_look(self._encoded(token)) else None

    async def __aenter__(self) -> Self:
        if await self.acquire():
            return self
        raise self._error("Unable to acquire lock within the time specified")

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            await self.release()
        except self._exceptions.LockError:
            if self.raise_on_release_error:
                raise
            logger.warning("lock %r was released, or lost, before its block ended", self._keys.name)
