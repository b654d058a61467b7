"""A middleware that holds locks for the time of a request, by rules on its path."""

from __future__ import annotations

import asyncio
import functools
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple

from ... import options
from ...errors import ConfigError, LeaseLost, NotAcquired, ServerError
from .answers import answer, handed_over, unusable
from .incoming import Incoming
from .outgoing import Outgoing
from .rules import READING, WAIT, Rule, path_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping, Sequence

    from ...lease import AsyncLease
    from ...lock import AsyncLock
    from ...manager import AsyncLocks
    from .answers import Answer

    Scope = MutableMapping[str, Any]
    Message = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[Message]]
    Send = Callable[[Message], Awaitable[None]]
    App = Callable[[Scope, Receive, Send], Awaitable[None]]

LEASE = "tenure.lease"
"""Under this key of its scope a request finds its lease, for the fence."""
request_lease: ContextVar[AsyncLease | None] = ContextVar("request_lease", default=None)
"""The lease that the middleware holds for the request in progress, for what is called deep inside of it."""

REMEMBERED = 1024
"""How many descriptions of locks are kept."""


class _Wanted(NamedTuple):
    """What a request wants, for its answer."""

    operation: str
    names: tuple[str, ...]


class LockMiddleware:
    """An ASGI application around another one, whose requests hold the locks that the first matching rule names.

    Args:
        app: the application.
        locks: where the locks are.
        rules: the first one that applies counts; a request that none applies to needs no lock.
        ttl: see `AsyncLocks.lock`.
        wait: how long a request waits for its locks before it is answered 423. Not 0: who has had an answer and comes
            again at once would at times be refused because of the request before, whose lease is given back after it.
        max_hold: see `AsyncLocks.lock`.
        shared: requests that only read (GET, HEAD) share their locks with each other.
        takeover: a request that waits asks the one in progress, whose application gets what has arrived and then sees
            its client disconnect. So does, at once, one whose lease is lost. Without it a request whose lease is lost
            is cancelled.
        show_holder: 423 tells the holder's `info`.

    A request finds its lease in its scope as `tenure.lease`. A request that is refused never reaches `app`: 423 with
    Retry-After and a JSON body (operation, resource, resources, error), 503 without a usable server, or 400 for a path
    of which no name can be made. One that waits leaves the queue when its client goes away. The lease is given back
    when `app` has returned: after its background tasks. Raises `ConfigError` for arguments that cannot work.

    Safety: what `app` does is protected by a lease. See `AsyncLease`.
    """

    def __init__(  # noqa: PLR0913 - all by keyword
        self,
        app: App,
        *,
        locks: AsyncLocks,
        rules: Sequence[Rule],
        ttl: options.Seconds = 30,
        wait: options.Seconds = WAIT,
        max_hold: options.Seconds | None = None,
        shared: bool = True,
        takeover: bool = False,
        show_holder: bool = False,
    ) -> None:
        self._app = app
        self._locks = locks
        self._rules = tuple(rules)
        self._ttl = ttl
        self._wait = options.seconds(wait, "wait")
        self._max_hold = max_hold
        self._shared = options.flag(shared, "shared")
        self._takeover = options.flag(takeover, "takeover")
        self._show_holder = options.flag(show_holder, "show_holder")
        self._in_progress: set[Incoming] = set()
        self._leaving = False
        # A description of a lock may be used again, and takes as long to check as a request to the server to write.
        self._lock = functools.lru_cache(REMEMBERED)(self._described)
        if self._takeover and not self._wait:
            msg = "takeover needs a wait: a request that does not wait asks nobody"
            raise ConfigError(msg)
        for rule in self._rules:
            if not isinstance(rule, Rule):  # pyright: ignore[reportUnnecessaryIsInstance] - of those who do not check
                msg = f"rules must be a list of Rule, not of {options.shown(rule)}"
                raise ConfigError(msg)
            self._described(rule.names, rule.operation or "check", shared=False)

    def _described(self, names: Sequence[str], operation: str, *, shared: bool) -> AsyncLock:
        return self._locks.lock(
            *names,
            ttl=self._ttl,
            wait=self._wait,
            max_hold=self._max_hold,
            shared=shared,
            ask_after=0 if self._takeover else None,
            info={"operation": operation},
            cancel_on_lost=not self._takeover,
        )

    def hand_over(self) -> None:
        """Has all requests that hold locks end as if another one had asked, and those that get locks from now on.

        For a server that is taken away, which needs `takeover`: raises `ConfigError` without it. On the event loop's
        thread; does not wait for them, and needs no lock server.
        """
        if not self._takeover:
            msg = "hand_over() needs takeover=True: without it the application of a request sees no disconnect"
            raise ConfigError(msg)
        # What was granted on the way to here, or arrived before the socket was closed, has to end as well.
        self._leaving = True
        for incoming in self._in_progress:
            incoming.hand_over()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one request, or hands on what is no HTTP request."""
        if scope["type"] == "http":
            method: str = scope["method"]
            path = path_of(scope)
            for rule in self._rules:
                names = rule.applies(method, path)
                if names is not None:
                    await self._locked(_Wanted(rule.operation or method.lower(), names), scope, receive, send)
                    return
        await self._app(scope, receive, send)

    async def _locked(self, wanted: _Wanted, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            lock = self._lock(wanted.names, wanted.operation, shared=self._shared and scope["method"] in READING)
        except ConfigError:
            # Too long, or with control characters: the rule was checked, so it is the request's fault.
            await unusable(wanted.operation).send(send)
            return
        incoming = Incoming(receive)
        try:
            refusal = await self._held(lock, wanted, scope, incoming, send)
            # Here the lock is given back already: a client that does not read its answer keeps nobody waiting.
            if refusal is not None:
                await refusal.send(send)
        finally:
            await incoming.close()

    async def _held(
        self, lock: AsyncLock, wanted: _Wanted, scope: Scope, incoming: Incoming, send: Send
    ) -> Answer | None:
        """Runs the application under the lock; what is left to be answered."""
        try:
            lease = await self._acquired(lock, incoming)
        except (NotAcquired, ServerError) as error:
            return answer(error, *wanted, show_holder=self._show_holder)
        if lease is None:
            return None
        outgoing = Outgoing(send, incoming.given_up if self._takeover else None)
        receive = incoming.receive if self._takeover else incoming.rest()
        if self._takeover:
            lease.on_ask(incoming.hand_over)
            lease.on_lost(incoming.give_up)
            self._in_progress.add(incoming)
            if self._leaving:
                incoming.hand_over()
        try:
            async with lease:
                inside = request_lease.set(lease)
                try:
                    await self._app({**scope, LEASE: lease}, receive, outgoing.send)
                finally:
                    request_lease.reset(inside)
        except LeaseLost as lost:
            # What was sent cannot be taken back, and its end must not look like one: the server cuts the connection.
            # A lease that the application has lost itself is its own affair.
            if outgoing.started or lease.lost is None:
                raise
            return answer(lost, *wanted)
        finally:
            self._in_progress.discard(incoming)
        if incoming.given_up.done() and not outgoing.started:
            # To an application whose client has gone an answer makes no sense; here somebody may still be there.
            return handed_over(*wanted)
        return None

    async def _acquired(self, lock: AsyncLock, incoming: Incoming) -> AsyncLease | None:
        """The lease; None when the client goes away while it waits, to whom nothing can be said."""
        if not self._wait:
            return await lock.acquire()
        lease = await lock.try_acquire()
        if lease is not None:
            return lease
        gone = asyncio.ensure_future(incoming.gone())
        deadline = asyncio.timeout(None)
        waiting = True

        def give_up(ended: asyncio.Future[None]) -> None:
            # An error of the server's `receive` is for the application, which will call it as well.
            if not ended.cancelled() and ended.exception() is None and waiting:
                deadline.reschedule(0)

        try:
            async with deadline:
                gone.add_done_callback(give_up)
                return await lock.acquire()
        except NotAcquired:
            raise
        except TimeoutError:
            return None
        finally:
            waiting = False
            gone.cancel()
