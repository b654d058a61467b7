"""What Locks and AsyncLocks share: settings, this process's session, and what happens at fork, exit and collection."""

from __future__ import annotations

import atexit
import os
import signal
import threading
import weakref
from _thread import RLock
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

from . import options, patches
from .clients.coredis import CoredisClient, is_coredis
from .clients.embedded import EmbeddedClient
from .clients.redis_py import from_client
from .clients.url import client_of
from .core.adopt import parse
from .core.keys import keys_of
from .errors import ConfigError, NotAcquired
from .instrument.logs import logger
from .outcomes import Skipped
from .runtime import clock
from .runtime.session import Session, context

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import FrameType

    from .clients.base import Client
    from .core.adopt import Exported
    from .core.keys import Keys
    from .events import Hook
    from .options import LockOptions, Terms
    from .runtime.session import Statistics

EXIT_TIMEOUT = 1.0
POLL = 0.01
_HERE_ONLY = "this user on this machine"

_DEFAULTS: dict[str, Any] = {
    "ttl": 30, "wait": 0, "renew": True, "max_hold": None, "shared": False, "ask_after": None, "info": None,
    "reentrant": False, "warn_after": None, "on_lost": None, "on_ask": None, "on_exit_lost": "raise", "apart": 0,
}  # fmt: skip

_managers: weakref.WeakSet[LocksBase] = weakref.WeakSet()
_warned = threading.Event()


def _from_environment(*, embedded: bool, server_timeout: float) -> Client:
    """The client when no server was named."""
    url = os.environ.get("TENURE_URL")
    if url is not None:
        return client_of(url)
    if not embedded or os.environ.get("TENURE_EMBEDDED") == "0":
        msg = "no server: pass a URL or a client, or set TENURE_URL (the embedded server is forbidden here)"
        raise ConfigError(msg)
    if patches.green():
        # The hub may have to start it anew, which needs a process's end to be awaited outside of the main thread.
        msg = "no server: pass a URL or a client, or set TENURE_URL (the embedded server needs threads without gevent)"
        raise ConfigError(msg)
    return EmbeddedClient(server_timeout)


class LocksBase:
    """What both flavours share: settings, and the session of this process."""

    _asyncio = False

    def __init__(  # noqa: PLR0913 - all by keyword
        self,
        server: str | Client | Any | None = None,  # noqa: ANN401 - any client object of a known library
        *,
        namespace: str = "tenure",
        server_timeout: options.Seconds = 5,
        grace: options.Seconds | None = None,
        max_ttl: options.Seconds = 86400,
        drift: float = 0.01,
        identity: str | None = None,
        hooks: Iterable[Hook] = (),
        embedded: bool = True,
    ) -> None:
        patches.refuse(asynchronous=self._asyncio)
        self._defaults = options.defaults(
            space=namespace,
            server_timeout=server_timeout,
            grace=grace,
            max_ttl=max_ttl,
            drift=drift,
            who=identity,
        )
        self._hooks = options.hooks(hooks)
        self._client = self._client_for(server, embedded=options.flag(embedded, "embedded"))
        # Reentrant: close_on_signals() may interrupt the call that makes the session.
        self._mutex = RLock()
        self._current: Session | None = None
        self._closed = False
        self._closing = False
        # The hub's thread does not know this object: dropping the last reference ends it.
        self._box: list[Session] = []
        weakref.finalize(self, _end, self._box).atexit = False
        _managers.add(self)

    def _client_for(self, server: Any, *, embedded: bool) -> Client:  # noqa: ANN401
        if server is None:
            return _from_environment(embedded=embedded, server_timeout=self._defaults.server_timeout)
        if isinstance(server, str):
            return client_of(server)
        if isinstance(server, Sequence):
            msg = "a quorum of several servers is not supported by this version; pass one URL or client"
            raise ConfigError(msg)
        if all(callable(getattr(server, name, None)) for name in ("connect", "connect_async", "forked", "close")):
            return cast("Client", server)
        site = getattr(server, "site", None)
        if isinstance(site, str):
            # Its commands stay in its site; the locks would be the same for all of them.
            msg = f"pass the plain client and namespace={site!r}: a namespaced one serves one site, its locks would not"
            raise ConfigError(msg)
        if is_coredis(server):
            # Only its settings are used: good for both flavours.
            return CoredisClient(server)
        client, is_async = from_client(server)
        if is_async is not self._asyncio:
            mine, other = ("AsyncLocks", "Locks") if self._asyncio else ("Locks", "AsyncLocks")
            kind = "an asyncio" if is_async else "a blocking"
            msg = f"{mine} cannot use {kind} client; pass the other kind of client, or use {other}"
            raise ConfigError(msg)
        return client

    @property
    def namespace(self) -> str:
        """What all keys of these locks begin with."""
        return self._defaults.namespace

    @property
    def client(self) -> Client:
        """For the package itself: the way to the server."""
        return self._client

    def session(self) -> Session:
        """This process's session; for the package itself."""
        session = self._current
        if session is not None and not self._closing:
            return session
        if self._closing:
            msg = "these locks are being closed, or are closed: nothing more is acquired"
            raise NotAcquired(msg)
        with self._mutex:
            if self._closing:
                # Since the first look: nobody would close what is made now.
                return self.session()
            if self._current is None:
                patches.refuse(asynchronous=self._asyncio)
                here = isinstance(self._client, EmbeddedClient)
                if here and not _warned.is_set():
                    _warned.set()
                    logger.warning(
                        "no server was named: using the embedded server, whose locks exclude only %s; "
                        "set TENURE_URL to share locks between machines",
                        _HERE_ONLY,
                    )
                scope = _HERE_ONLY if here else self._client.node
                self._current = Session(self._client, self._defaults, self._hooks, scope)
                self._box[:] = [self._current]
            return self._current

    def forked(self) -> None:
        """For the package itself: this process is a fork, and starts anew."""
        self._mutex = RLock()
        session, self._current = self._current, None
        self._box.clear()
        if session is not None:
            session.abandon()

    def end_session(self, within: float) -> None:
        """For the package itself: gives back what is held and ends this process's session."""
        with self._mutex:
            session, self._current = self._current, None
            self._box.clear()
        if session is not None:
            session.close(release=True, within=within)

    def _held(self) -> int:
        session = self._current
        return 0 if session is None else len(session.hub.holds)

    def leave_asleep(self) -> None:
        """For the package itself, at exit: nobody is woken any more to be told that the locks are being closed.

        Who still waits is a daemon thread: it would only print an error that nobody asked for.
        """
        session = self._current
        for ticket in list(session.hub.tickets.values()) if session is not None else ():
            ticket.withdraw()

    def end_at_exit(self) -> None:
        """For the package itself: gives back what is held, within a second."""
        self._closing = True
        self.end_session(EXIT_TIMEOUT)

    def _options(self, **wishes: object) -> options.LockOptions:
        return options.lock_options(self._defaults, **wishes)

    def _keys(self, name: str) -> Keys:
        return keys_of(self.namespace, options.lock_name(name))

    def _lease_here(self, name: str) -> Any:  # noqa: ANN401 - a lease of either flavour
        hold = self.session().hub.held_in(self._keys(name).main, context())
        return hold.handle() if hold is not None and hold.handle is not None else None

    def _adopted(self, text: str, *, renew: bool, info: object, max_hold: object) -> tuple[Exported, LockOptions]:
        """A lease that was written down, and the options of the one that it becomes."""
        written = parse(text)
        if written.namespace != self.namespace:
            msg = f"this lease is of the namespace {written.namespace!r}, and these locks are of {self.namespace!r}"
            raise ConfigError(msg)
        chosen = self._options(
            ttl=written.ttl, wait_for=0, renew=renew, max_hold=max_hold, note=info, warn_after=None, on_lost=None,
            on_exit_lost="raise", shared=written.mode == "shared",
            places=written.limit if written.mode == "semaphore" else None,
        )  # fmt: skip
        return written, chosen

    def _described(self, names: tuple[object, ...], wishes: dict[str, Any]) -> tuple[tuple[str, ...], LockOptions]:
        """Names and options of a lock, from the arguments of `lock`; one try unless they say otherwise."""
        asked = _DEFAULTS | wishes
        unknown = sorted(asked.keys() - _DEFAULTS.keys())
        if unknown:
            msg = f"unknown option {unknown[0]!r}; lock() knows {', '.join(sorted(_DEFAULTS.keys() - {'apart'}))}"
            raise ConfigError(msg)
        asked["wait_for"], asked["note"] = asked.pop("wait"), asked.pop("info")
        return options.lock_names(names), self._options(**asked)

    def _skipped(self, error: NotAcquired) -> Skipped:
        """Why something did not run, and when another try makes sense."""
        left = error.retry_after if error.holder is None or error.holder.expires_in is None else error.holder.expires_in
        now_ms = self.session().state.server_time.at(clock.now())
        endless = error.holder is not None and error.holder.foreign and error.holder.expires_in is None
        until = None if now_ms is None or endless else datetime.fromtimestamp(now_ms / 1000 + left, UTC)
        return Skipped(error.holder, until)

    @staticmethod
    def _adopting(
        session: Session, written: Exported, chosen: LockOptions, owner: object
    ) -> tuple[Exported, Terms, str, str, Callable[[], bytes]]:
        """What the procedure needs behind its port."""
        return written, chosen.terms, session.describe(chosen.info), f"{id(owner):x}", session.state.new_token

    def statistics(self) -> Statistics:
        """What these locks have done in this process, and whom they exclude; no I/O."""
        return self.session().statistics()

    def close_on_signals(self) -> None:
        """Arms SIGTERM: what is held is given back within a second, then the signal takes its former course.

        For the main thread only. Raises `ConfigError` in another thread.
        """
        if threading.current_thread() is not threading.main_thread():
            msg = "close_on_signals() works in the main thread only, as signal handlers do"
            raise ConfigError(msg)
        former = signal.getsignal(signal.SIGTERM)
        mine = weakref.ref(self)

        def on_sigterm(number: int, frame: FrameType | None) -> None:
            locks = mine()
            if locks is not None:
                locks.end_at_exit()
            signal.signal(signal.SIGTERM, former if former is not None else signal.SIG_DFL)
            if callable(former):
                former(number, frame)
            else:
                os.kill(os.getpid(), number)

        signal.signal(signal.SIGTERM, on_sigterm)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.namespace!r} at {self._client.node}>"


def _end(box: list[Session]) -> None:
    """Ends the session of a `Locks` object that was collected: nobody can hold a lease of it any more."""
    while box:
        session = box.pop()
        if not session.forked:
            session.close(release=True, within=EXIT_TIMEOUT, join=False)


def _after_fork() -> None:
    for manager in list(_managers):
        manager.forked()


def _at_exit() -> None:
    for manager in list(_managers):
        manager.leave_asleep()
        manager.end_at_exit()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)
