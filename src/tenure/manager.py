"""Locks and AsyncLocks: where locks come from."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Any, Literal, Self

from . import options
from .adopting import Adopting, AsyncAdopting
from .lock import AsyncLock, Lock
from .looking import AsyncLooking, Looking
from .manager_base import EXIT_TIMEOUT, POLL
from .running import AsyncRunning, Running
from .runtime.aio import LoopSignal

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from .lease import AsyncLease, Lease


class Locks(Adopting, Looking, Running):
    """Locks on one server: `Locks` for blocking code, `AsyncLocks` for asyncio code, in any number of event loops.

    Args:
        server: a URL (`redis://`, `rediss://`, `unix://`, `valkey://`) or a client of redis-py, valkey-py or coredis,
            whose settings are used and whose pool is left alone. None: `$TENURE_URL`, else the embedded server of this
            user on this machine.
        namespace: what all keys begin with; up to 64 bytes without `:`, `{`, `}`. Empty: no prefix at all.
        server_timeout: seconds that a call goes on without a usable server, even with `wait=None`.
        grace: seconds that a key outlives its lease; None is 1 % of the ttl + 20 ms, at most 0.5 s.
        max_ttl: the longest ttl that is accepted, in seconds.
        drift: by how much clock rates may differ, 0 to 0.2; taken off every deadline.
        identity: what a `Holder` shows besides host, pid and program; at most 128 bytes.
        hooks: called with every event.
        embedded: False forbids the embedded server.

    The constructor does no I/O and starts no thread: it may run at import, before a fork, in any loop. Raises
    `ConfigError`.
    """

    def lock(  # noqa: PLR0913 - all by keyword
        self,
        *names: str | bytes,
        ttl: options.Seconds = 30,
        wait: options.Seconds | None = None,
        renew: bool = True,
        max_hold: options.Seconds | None = None,
        shared: bool = False,
        ask_after: options.Seconds | None = None,
        info: str | dict[str, Any] | None = None,
        reentrant: bool = False,
        warn_after: options.Seconds | None = None,
        on_lost: Callable[[Lease], object] | None = None,
        on_ask: Callable[[Lease], object] | None = None,
        on_exit_lost: Literal["raise", "note"] = "raise",
    ) -> Lock:
        """Describes a lock; nothing is asked of the server until it is acquired.

        Args:
            names: one or more, at most 100; each at most 512 bytes, no control characters. Several are taken all or
                none, each once and in one order everywhere, and have one budget of waiting.
            ttl: seconds that the lease lasts without renewal, from 0.01 to `max_ttl`.
            wait: seconds to wait for a holder; None for ever, 0 one try.
            renew: renewed in the background at a third of the ttl; False leaves it to `lease.renew()`.
            max_hold: seconds after which renewal stops.
            shared: held together with all others who share it, and never beside one who does not; the order of arrival
                decides, so that neither starves.
            ask_after: seconds of waiting after which the holder is asked to release; 0 at once, None never.
            info: what others can read about the lease: a str or a flat mapping, at most 1 KiB.
            reentrant: nested use by the same task, else thread, returns the same lease, which the outermost exit
                releases; False raises `AlreadyHeld`.
            warn_after: seconds after which one `OverheldEvent` is told; default `max_hold`, or the ttl if unrenewed.
            on_lost: called once with the lease if it is lost.
            on_ask: called once with the lease when somebody asks for it.
            on_exit_lost: "raise" raises `LeaseLost` at the end of a block whose lease was lost, "note" notes it.

        Raises `ConfigError` for anything that cannot work.
        """
        chosen = self._options(
            ttl=ttl,
            wait_for=wait,
            renew=renew,
            max_hold=max_hold,
            shared=shared,
            ask_after=ask_after,
            note=info,
            reentrant=reentrant,
            warn_after=warn_after,
            on_lost=on_lost,
            on_ask=on_ask,
            on_exit_lost=on_exit_lost,
        )
        return Lock(self, options.lock_names(names), chosen)

    def semaphore(  # noqa: PLR0913 - all by keyword
        self,
        name: str | bytes,
        limit: int,
        *,
        ttl: options.Seconds = 30,
        wait: options.Seconds | None = None,
        renew: bool = True,
        max_hold: options.Seconds | None = None,
        ask_after: options.Seconds | None = None,
        info: str | dict[str, Any] | None = None,
        reentrant: bool = False,
        warn_after: options.Seconds | None = None,
        on_lost: Callable[[Lease], object] | None = None,
        on_ask: Callable[[Lease], object] | None = None,
        on_exit_lost: Literal["raise", "note"] = "raise",
    ) -> Lock:
        """Describes a lock that `limit` leases may hold at a time; each has its own expiry.

        Args:
            name: at most 512 bytes, no control characters.
            limit: how many, from 1 to 100,000; the same for all who use the name at the same time.
            ttl: see `lock`, as for all other arguments.
            wait: see `lock`.
            renew: see `lock`.
            max_hold: see `lock`.
            ask_after: see `lock`; all holders are asked, at most 100.
            info: see `lock`.
            reentrant: see `lock`.
            warn_after: see `lock`.
            on_lost: see `lock`.
            on_ask: see `lock`.
            on_exit_lost: see `lock`.

        Raises `ConfigError` for anything that cannot work; acquiring raises it when others use another limit.

        Safety: its fence identifies a lease and orders nothing: it protects no resource.
        """
        chosen = self._options(
            ttl=ttl,
            wait_for=wait,
            renew=renew,
            max_hold=max_hold,
            places=options.limit(limit),
            ask_after=ask_after,
            note=info,
            reentrant=reentrant,
            warn_after=warn_after,
            on_lost=on_lost,
            on_ask=on_ask,
            on_exit_lost=on_exit_lost,
        )
        return Lock(self, (options.lock_name(name),), chosen)

    def close(self, wait: options.Seconds = 0) -> None:
        """Refuses new acquires, waits up to `wait` seconds for holders to finish, and gives back what is still held.

        An injected client stays open. May block for `wait` seconds and about one more. A second call does nothing.
        """
        until = time.monotonic() + options.seconds(wait, "wait")
        self._closing = True
        while self._held() and time.monotonic() < until:
            time.sleep(POLL)
        self.end_session(EXIT_TIMEOUT)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class AsyncLocks(AsyncAdopting, AsyncLooking, AsyncRunning):
    """Locks on one server: `Locks` for blocking code, `AsyncLocks` for asyncio code, in any number of event loops.

    Args:
        server: a URL (`redis://`, `rediss://`, `unix://`, `valkey://`) or a client of redis-py, valkey-py or coredis,
            whose settings are used and whose pool is left alone. None: `$TENURE_URL`, else the embedded server of this
            user on this machine.
        namespace: what all keys begin with; up to 64 bytes without `:`, `{`, `}`. Empty: no prefix at all.
        server_timeout: seconds that a call goes on without a usable server, even with `wait=None`.
        grace: seconds that a key outlives its lease; None is 1 % of the ttl + 20 ms, at most 0.5 s.
        max_ttl: the longest ttl that is accepted, in seconds.
        drift: by how much clock rates may differ, 0 to 0.2; taken off every deadline.
        identity: what a `Holder` shows besides host, pid and program; at most 128 bytes.
        hooks: called with every event.
        embedded: False forbids the embedded server.

    The constructor does no I/O and starts no thread: it may run at import, before a fork, in any loop. Raises
    `ConfigError`.
    """

    _asyncio = True

    def lock(  # noqa: PLR0913 - all by keyword
        self,
        *names: str | bytes,
        ttl: options.Seconds = 30,
        wait: options.Seconds | None = None,
        renew: bool = True,
        max_hold: options.Seconds | None = None,
        shared: bool = False,
        ask_after: options.Seconds | None = None,
        info: str | dict[str, Any] | None = None,
        reentrant: bool = False,
        warn_after: options.Seconds | None = None,
        on_lost: Callable[[AsyncLease], object] | None = None,
        on_ask: Callable[[AsyncLease], object] | None = None,
        on_exit_lost: Literal["raise", "note"] = "raise",
        cancel_on_lost: bool = True,
    ) -> AsyncLock:
        """Describes a lock; nothing is asked of the server until it is acquired.

        Args:
            names: one or more, at most 100; each at most 512 bytes, no control characters. Several are taken all or
                none, each once and in one order everywhere, and have one budget of waiting.
            ttl: seconds that the lease lasts without renewal, from 0.01 to `max_ttl`.
            wait: seconds to wait for a holder; None for ever, 0 one try.
            renew: renewed in the background at a third of the ttl; False leaves it to `lease.renew()`.
            max_hold: seconds after which renewal stops.
            shared: held together with all others who share it, and never beside one who does not; the order of arrival
                decides, so that neither starves.
            ask_after: seconds of waiting after which the holder is asked to release; 0 at once, None never.
            info: what others can read about the lease: a str or a flat mapping, at most 1 KiB.
            reentrant: nested use by the same task, else thread, returns the same lease, which the outermost exit
                releases; False raises `AlreadyHeld`.
            warn_after: seconds after which one `OverheldEvent` is told; default `max_hold`, or the ttl if unrenewed.
            on_lost: called once with the lease if it is lost.
            on_ask: called once with the lease when somebody asks for it.
            on_exit_lost: "raise" raises `LeaseLost` at the end of a block whose lease was lost, "note" notes it.
            cancel_on_lost: `async with` cancels its body when the lease is lost, and leaves as `LeaseLost`.

        Raises `ConfigError` for anything that cannot work.
        """
        chosen = self._options(
            ttl=ttl,
            wait_for=wait,
            renew=renew,
            max_hold=max_hold,
            shared=shared,
            ask_after=ask_after,
            note=info,
            reentrant=reentrant,
            warn_after=warn_after,
            on_lost=on_lost,
            on_ask=on_ask,
            on_exit_lost=on_exit_lost,
        )
        return AsyncLock(
            self, options.lock_names(names), chosen, cancel_on_lost=options.flag(cancel_on_lost, "cancel_on_lost")
        )

    def semaphore(  # noqa: PLR0913 - all by keyword
        self,
        name: str | bytes,
        limit: int,
        *,
        ttl: options.Seconds = 30,
        wait: options.Seconds | None = None,
        renew: bool = True,
        max_hold: options.Seconds | None = None,
        ask_after: options.Seconds | None = None,
        info: str | dict[str, Any] | None = None,
        reentrant: bool = False,
        warn_after: options.Seconds | None = None,
        on_lost: Callable[[AsyncLease], object] | None = None,
        on_ask: Callable[[AsyncLease], object] | None = None,
        on_exit_lost: Literal["raise", "note"] = "raise",
        cancel_on_lost: bool = True,
    ) -> AsyncLock:
        """Describes a lock that `limit` leases may hold at a time; each has its own expiry.

        Args:
            name: at most 512 bytes, no control characters.
            limit: how many, from 1 to 100,000; the same for all who use the name at the same time.
            ttl: see `lock`, as for all other arguments.
            wait: see `lock`.
            renew: see `lock`.
            max_hold: see `lock`.
            ask_after: see `lock`; all holders are asked, at most 100.
            info: see `lock`.
            reentrant: see `lock`.
            warn_after: see `lock`.
            on_lost: see `lock`.
            on_ask: see `lock`.
            on_exit_lost: see `lock`.
            cancel_on_lost: see `lock`.

        Raises `ConfigError` for anything that cannot work; acquiring raises it when others use another limit.

        Safety: its fence identifies a lease and orders nothing: it protects no resource.
        """
        chosen = self._options(
            ttl=ttl,
            wait_for=wait,
            renew=renew,
            max_hold=max_hold,
            places=options.limit(limit),
            ask_after=ask_after,
            note=info,
            reentrant=reentrant,
            warn_after=warn_after,
            on_lost=on_lost,
            on_ask=on_ask,
            on_exit_lost=on_exit_lost,
        )
        return AsyncLock(
            self, (options.lock_name(name),), chosen, cancel_on_lost=options.flag(cancel_on_lost, "cancel_on_lost")
        )

    async def close(self, wait: options.Seconds = 0) -> None:
        """Refuses new acquires, waits up to `wait` seconds for holders to finish, and gives back what is still held.

        An injected client stays open. May block for `wait` seconds and about one more. A second call does nothing.
        """
        until = time.monotonic() + options.seconds(wait, "wait")
        self._closing = True
        while self._held() and time.monotonic() < until:  # noqa: ASYNC110 - leases end in any thread
            await asyncio.sleep(POLL)
        ended = LoopSignal()

        def end() -> None:
            try:
                self.end_session(EXIT_TIMEOUT)
            finally:
                with ended.mutex:
                    ended.set()

        # Not in the loop's executor: all its threads may be busy, and none takes work once the main thread has ended.
        threading.Thread(target=end, name="tenure-close").start()
        await ended.wait(None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()
