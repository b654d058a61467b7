"""Lease and AsyncLease: one possession of a lock, from grant to release, loss or expiry."""

from __future__ import annotations

import asyncio
import functools
from typing import TYPE_CHECKING, Any, Self

from . import options
from .core import release as release_procedure
from .core.lease_state import State
from .errors import TenureError
from .lease_base import LeaseBase
from .outcomes import Released, worst
from .runtime.blocking import run
from .runtime.callbacks import quietly

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from .core.lease_state import Hold
    from .events import AskedEvent
    from .options import LockOptions
    from .runtime.callbacks import Callbacks
    from .runtime.session import Session
    from .runtime.threads import Event
    from .transaction import AsyncTransaction, Transaction


class Lease(LeaseBase):
    """One possession of a lock; a handle with its own token that may be handed to another thread or task.

    Returned by `acquire`. As a context manager it releases at the end of the block.

    Safety: this is a lease. While `remaining()` is positive no other client of a healthy server holds the same lock. It
    cannot stop work that was already sent, or that is done after the lease has ended.
    """

    _lost_event: Event | None = None
    _asked_event: Event | None = None

    def renew(self, ttl: float | None = None) -> None:
        """Extends the lease to a full `ttl` seconds from now (None: as it was taken); one request.

        Asking for less shortens only the local deadline. Raises `LeaseLost` when the lease is gone, a `ServerError`
        when the server did not answer: the deadline then is as it was. May block until then.

        Safety: the deadline moves only when a reply has proven the renewal.
        """
        run(self._renew(self._session.port, ttl))

    def set_info(self, info: str | dict[str, Any] | None) -> None:
        """Replaces what others can read about this lease; one request.

        Raises `ConfigError` for anything but a str or flat mapping of at most 1 KiB, `LeaseLost`, or a `ServerError`.
        May block.
        """
        run(self._set_info(self._session.port, info))

    def release(self) -> Released:
        """Gives the lock back and hands it to the next waiter in the same request; says how the lease had ended.

        A second call does nothing, and so does that of a nested block of a reentrant lock. Of several names the last
        one is released first. Raises `NotHeld` in a forked child, a `ServerError` when the server cannot be reached:
        the lease then ends by its ttl. May block for `server_timeout`.
        """
        self._refuse_forked()
        if self._unnested():
            return Released.RELEASED
        answers: list[Released] = []
        failure: TenureError | None = None
        for hold in reversed(self._holds):
            try:
                done = self._begin_release(hold)
                if done is None:
                    try:
                        how = run(release_procedure.release(self._session.port, hold))
                    finally:
                        self._session.hub.remove(hold)
                    done = self._end_release(hold, how)
                answers.append(done)
            except TenureError as error:
                failure = failure or error
            except BaseException:
                self.give_back()
                raise
        if failure is not None:
            raise failure
        return worst(answers)

    def transaction(self) -> Transaction:
        """A block of MULTI and EXEC whose writes take effect together, and only while this lease is held.

        Before `multi()` commands that read run at once; after it commands are queued, and carried out at the end of the
        block, on a connection of its own and inside the namespace. Raises `ConfigError` for a lease that is not
        exclusive. Entering the block raises `LeaseLost` or `NotHeld`; leaving it raises `LeaseLost` when nothing was
        written, and `ServerUnavailable` when that is unknown.

        Safety: the server itself compares the lease in the same step; what is written elsewhere needs the fence.
        """
        from .transaction import Transaction  # noqa: PLC0415 - imports redis-py, which is slow to import

        return Transaction(self._session, self._holds, self.check)

    def wait_lost(self, timeout: float | None = None) -> bool:
        """Waits until the lease is lost, at most `timeout` seconds; True when it is."""
        left = None if timeout is None else options.seconds(timeout, "timeout")
        with self._hold.mutex:
            if self._lost_event is None:
                self._lost_event = self._session.threads.event()
            if any(hold.state is State.LOST for hold in self._holds):
                self._lost_event.set()
        return self._lost_event.wait(left)

    def wait_asked(self, timeout: float | None = None) -> bool:
        """Waits until somebody asks for the lock, at most `timeout` seconds; True when somebody has."""
        left = None if timeout is None else options.seconds(timeout, "timeout")
        with self._hold.mutex:
            if self._asked_event is None:
                self._asked_event = self._session.threads.event()
            if self._asked is not None:
                self._asked_event.set()
        self._listen()
        return self._asked_event.wait(left)

    def deliver_lost(self, callbacks: Callbacks) -> None:
        """For the hub: wakes who waits for the loss, and has the callbacks run."""
        with self._hold.mutex:
            event, wanted = self._lost_event, self._callbacks
            self._callbacks = ()
        if event is not None:
            event.set()
        for callback in wanted:
            callbacks.submit(functools.partial(callback, self))

    def deliver_asked(self, event: AskedEvent, callbacks: Callbacks) -> bool:
        """For the hub: wakes who waits for an asker, and has the callbacks run; False when it was told before."""
        with self._hold.mutex:
            if self._asked is not None:
                return False
            self._asked = event
            wake, wanted = self._asked_event, self._ask_callbacks
            self._ask_callbacks = ()
        if wake is not None:
            wake.set()
        for callback in wanted:
            callbacks.submit(functools.partial(callback, self))
        return True

    def __enter__(self) -> Self:
        self.check()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._left_by_fork(error):
            return
        try:
            self.release()
        except TenureError as failure:
            self._release_failed(failure)
        self._tell_loss_at_exit(error)


class AsyncLease(LeaseBase):
    """One possession of a lock; a handle with its own token that may be handed to another thread or task.

    Returned by `acquire`. As a context manager it releases at the end of the block.

    Safety: this is a lease. While `remaining()` is positive no other client of a healthy server holds the same lock. It
    cannot stop work that was already sent, or that is done after the lease has ended.
    """

    # What most leases never need is made when it is needed.
    _lost_waiters: list[asyncio.Future[None]] | None = None
    _ask_waiters: list[asyncio.Future[None]] | None = None
    _task: asyncio.Task[Any] | None = None
    _cancelling = 0
    _cancelled = False

    def __init__(
        self, session: Session, keeper: object, holds: tuple[Hold, ...], chosen: LockOptions, *, cancel_on_lost: bool
    ) -> None:
        super().__init__(session, keeper, holds, chosen)
        self._cancel_on_lost = cancel_on_lost
        self._loop = asyncio.get_running_loop()

    async def renew(self, ttl: float | None = None) -> None:
        """Extends the lease to a full `ttl` seconds from now (None: as it was taken); one request.

        Asking for less shortens only the local deadline. Raises `LeaseLost` when the lease is gone, a `ServerError`
        when the server did not answer: the deadline then is as it was. May block until then.

        Safety: the deadline moves only when a reply has proven the renewal.
        """
        await self._renew(self._session.aio_port(), ttl)

    async def set_info(self, info: str | dict[str, Any] | None) -> None:
        """Replaces what others can read about this lease; one request.

        Raises `ConfigError` for anything but a str or flat mapping of at most 1 KiB, `LeaseLost`, or a `ServerError`.
        May block.
        """
        await self._set_info(self._session.aio_port(), info)

    async def release(self) -> Released:
        """Gives the lock back and hands it to the next waiter in the same request; says how the lease had ended.

        A second call does nothing, and so does that of a nested block of a reentrant lock. Of several names the last
        one is released first. Raises `NotHeld` in a forked child, a `ServerError` when the server cannot be reached:
        the lease then ends by its ttl. May block for `server_timeout`.
        """
        self._refuse_forked()
        if self._unnested():
            return Released.RELEASED
        answers: list[Released] = []
        failure: TenureError | None = None
        port = self._session.aio_port()
        for hold in reversed(self._holds):
            try:
                done = self._begin_release(hold)
                if done is None:
                    try:
                        how = await release_procedure.release(port, hold)
                    finally:
                        self._session.hub.remove(hold)
                    done = self._end_release(hold, how)
                answers.append(done)
            except TenureError as error:
                failure = failure or error
            except BaseException:
                self.give_back()
                raise
        if failure is not None:
            raise failure
        return worst(answers)

    def transaction(self) -> AsyncTransaction:
        """A block of MULTI and EXEC whose writes take effect together, and only while this lease is held.

        Before `multi()` commands that read run at once; after it commands are queued, and carried out at the end of the
        block, on a connection of its own and inside the namespace. Raises `ConfigError` for a lease that is not
        exclusive. Entering the block raises `LeaseLost` or `NotHeld`; leaving it raises `LeaseLost` when nothing was
        written, and `ServerUnavailable` when that is unknown.

        Safety: the server itself compares the lease in the same step; what is written elsewhere needs the fence.
        """
        from .transaction import AsyncTransaction  # noqa: PLC0415 - imports redis-py, which is slow to import

        return AsyncTransaction(self._session, self._holds, self.check)

    async def wait_lost(self, timeout: float | None = None) -> bool:
        """Waits until the lease is lost, at most `timeout` seconds; True when it is."""
        if any(hold.state is State.LOST for hold in self._holds):
            return True
        if self._lost_waiters is None:
            self._lost_waiters = []
        return await self._wait(self._lost_waiters, timeout)

    async def wait_asked(self, timeout: float | None = None) -> bool:
        """Waits until somebody asks for the lock, at most `timeout` seconds; True when somebody has."""
        if self._asked is not None:
            return True
        self._listen()
        if self._ask_waiters is None:
            self._ask_waiters = []
        return await self._wait(self._ask_waiters, timeout)

    @staticmethod
    async def _wait(waiters: list[asyncio.Future[None]], timeout: float | None) -> bool:
        left = None if timeout is None else options.seconds(timeout, "timeout")
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiters.append(future)
        try:
            await asyncio.wait([future], timeout=left)
            return future.done()
        finally:
            waiters.remove(future)
            future.cancel()

    def deliver_lost(self, callbacks: Callbacks) -> None:
        """For the hub: wakes who waits for the loss, and has the callbacks run."""
        del callbacks
        self._on_loop(self._lost_on_loop)

    def deliver_asked(self, event: AskedEvent, callbacks: Callbacks) -> bool:
        """For the hub: wakes who waits for an asker, and has the callbacks run; False when it was told before."""
        del callbacks
        with self._hold.mutex:
            if self._asked is not None:
                return False
            self._asked = event
        self._on_loop(self._asked_on_loop)
        return True

    def _on_loop(self, call: Callable[..., object], *args: object) -> None:
        if not self._loop.is_closed():
            try:
                self._loop.call_soon_threadsafe(call, *args)
            except RuntimeError:
                # Closed between the two lines: nobody is left to be told.
                return

    def _asked_on_loop(self) -> None:
        with self._hold.mutex:
            wanted, self._ask_callbacks = self._ask_callbacks, ()
        self._tell_on_loop(self._ask_waiters, wanted)

    def _lost_on_loop(self) -> None:
        with self._hold.mutex:
            wanted, self._callbacks = self._callbacks, ()
        self._tell_on_loop(self._lost_waiters, wanted)
        if self._task is not None and self._cancel_on_lost and not self._cancelled:
            self._cancelled = True
            self._task.cancel(f"lock {self._called()} was lost")

    def _tell_on_loop(
        self, waiters: list[asyncio.Future[None]] | None, wanted: tuple[Callable[[Any], object], ...]
    ) -> None:
        for future in waiters or ():
            if not future.done():
                future.set_result(None)
        for callback in wanted:
            quietly(functools.partial(callback, self))

    def _run_callback(self, callback: Callable[[Any], object]) -> None:
        self._on_loop(quietly, functools.partial(callback, self))

    async def __aenter__(self) -> Self:
        self.check()
        if not self._nested:
            task = self._task = asyncio.current_task()
            self._cancelling = task.cancelling() if task is not None else 0
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._unnested():
            self._tell_loss_at_exit(error)
            return
        task, self._task = self._task, None
        if self._left_by_fork(error):
            return
        try:
            await self.release()
        except TenureError as failure:
            self._release_failed(failure)
        if self._cancelled and task is not None:
            error = await self._taken_back(task, error)
        self._tell_loss_at_exit(error)

    async def _taken_back(self, task: asyncio.Task[Any], error: BaseException | None) -> BaseException | None:
        """Takes our own cancellation back; what is left of the body's error is somebody else's, and wins.

        Counted as `asyncio.timeout` does: when the task was cancelled by others too, CancelledError goes on.
        """
        if error is None:
            # The body ended before our cancellation arrived: it must not hit whatever the task awaits next.
            try:
                await asyncio.sleep(0)
            except asyncio.CancelledError as late:
                error = late
        others = task.uncancel() > self._cancelling
        if not isinstance(error, asyncio.CancelledError):
            return error
        if others:
            raise error
        lost = next(hold for hold in self._holds if hold.state is State.LOST)
        raise self._loss(lost) from error
