"""What the drop-in locks of both flavours share: names, tokens, times, and the procedures over a port.

Their interface cannot be built on tenure's public names alone: a token that comes from elsewhere has to be released
without its lease, a key has to stay when its lock object goes, and `%`, `{` and `}` in a name have to stay as they are.
"""

# ruff: noqa: SLF001 - see above
# ruff: noqa: ANN401 - clients, leases and stored values are of either library and flavour

from __future__ import annotations

import abc
import contextlib
import hashlib
import importlib
import logging
import re
import threading
from typing import TYPE_CHECKING, Any

from ... import errors
from ...core import inspect as inspection
from ...core import release as release_procedure
from ...core.acquire import too_late
from ...core.keys import Keys, short_id
from ...core.lease_state import Hold
from ...core.renew import renew_now
from ...options import MAX_GRACE, MIN_TTL, Terms, lock_name, seconds
from ...runtime import clock
from .lock_sessions import LONGEST_TIMEOUT, leave_later, site_of

if TYPE_CHECKING:
    from collections.abc import Generator

    from ...core.ports import Port
    from ...manager_base import LocksBase
    from ...runtime.session import Session

logger = logging.getLogger("tenure")

RENEWED_TTL = 30.0
"""Seconds that a lock without a timeout outlives its process; it is renewed at a third of that."""

_OURS = re.compile(rb"[0-9a-f]{44}")
_STORED = re.compile(rb"tenure1:([0-9a-f]{44}) ")
_WRITTEN_DIFFERENTLY = re.compile(rb"[%{}]")


def lifetime(seconds: float) -> float:
    """The ttl of a lease whose key lives for `seconds`, ttl and grace together; rounded down to whole milliseconds.

    The key's life is what a user of the client library sees as the timeout; its holder stops a little earlier.
    """
    life = min(seconds, LONGEST_TIMEOUT)
    # The grace is taken from the life and not from the ttl, so a little too large: no key may outlive its timeout.
    return max(int((life - min(life * 0.01 + 0.02, MAX_GRACE)) * 1000) / 1000 - 0.001, MIN_TTL)


class Possession:
    """What a lock has acquired; kept in its `local`, and gone with the lock object or the thread."""

    __slots__ = ("lease", "session", "token")

    def __init__(self, token: bytes, lease: Any, session: Session) -> None:
        self.token = token
        self.lease = lease
        self.session = session

    def __del__(self) -> None:
        # With a timeout the key stays until then, as it would without tenure, and nobody is told of its end. Without
        # one it is renewed on: its token may be known elsewhere.
        lease = getattr(self, "lease", None)
        if lease is None:
            # Interrupted while it was made.
            return
        hold: Hold = lease._hold
        if not hold.terms.renew and not self.session.forked:
            leave_later(self.session.hub, hold)


class Local:
    """What a lock knows of its own acquisition, for all threads."""

    token: bytes | None = None
    possession: Possession | None = None


class ThreadLocal(threading.local):
    """The same for each thread; the attributes of the class, so that a thread that never acquired has them too."""

    token: bytes | None = None
    possession: Possession | None = None


class LockBase(abc.ABC):
    """The interface of the client library's `Lock`, but for what talks to the server."""

    def __init__(  # noqa: PLR0913 - the client library's signature
        self,
        redis: Any,
        name: str | bytes | memoryview,
        timeout: float | None = None,
        sleep: float = 0.1,
        blocking: bool = True,  # noqa: FBT001, FBT002
        blocking_timeout: float | None = None,
        thread_local: bool = True,  # noqa: FBT001, FBT002
        raise_on_release_error: bool = True,  # noqa: FBT001, FBT002
    ) -> None:
        self.redis = redis
        # Refuses a client that cannot be used.
        self._shared()
        self.name = name
        self.timeout = None if timeout is None else seconds(timeout, "timeout", most=LONGEST_TIMEOUT)
        self.sleep = sleep
        self.blocking = blocking
        self.blocking_timeout = blocking_timeout
        self.thread_local = bool(thread_local)
        self.raise_on_release_error = raise_on_release_error
        self.local: Local | ThreadLocal = ThreadLocal() if self.thread_local else Local()
        roots = [base.__module__.partition(".")[0] for base in type(redis).__mro__]
        library = next((root for root in roots if root in ("redis", "valkey")), "redis")
        self._exceptions = importlib.import_module(f"{library}.exceptions")
        self._raw = bytes(name) if isinstance(name, memoryview) else self._encoded(name)
        site = site_of(redis)
        self._keys: Keys = Keys(lock_name(self._raw), (f"{site}:".encode() if site else b"") + self._raw)

    @abc.abstractmethod
    def _shared(self) -> LocksBase:
        """What all locks of this client share."""

    def _encoded(self, value: Any) -> bytes:
        pool = self.redis.connection_pool
        return pool.get_encoder().encode(value)

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.{type(self).__qualname__} {self._keys.name!r}>"

    # --- before an acquire -------------------------------------------------------------------------------------------

    def _wait(self, blocking: bool | None, blocking_timeout: float | None) -> float | None:  # noqa: FBT001
        """How long to wait: None for ever, 0 one try."""
        if blocking is None:
            blocking = self.blocking
        if not blocking:
            return 0.0
        wait = self.blocking_timeout if blocking_timeout is None else blocking_timeout
        return None if wait is None else max(wait, 0.0)

    def _wishes(self, token: bytes | None, wait: float | None) -> dict[str, Any]:
        """The options of the tenure lock that stands behind this one."""
        return {
            "ttl": lifetime(self.timeout) if self.timeout else RENEWED_TTL,
            "wait": wait,
            "renew": not self.timeout,
            "info": None if token is None else {"token": _digest(token)},
            # Not told as overheld: a lock with a timeout may last until then.
            "warn_after": LONGEST_TIMEOUT,
        }

    def _take_plain_key(self, lock: Any) -> None:
        """Tenure writes `%`, `{` and `}` of a name differently; here the key has to be the name itself."""
        if _WRITTEN_DIFFERENTLY.search(self._raw):
            lock._keys = [self._keys]

    def _taken(self, lease: Any, token: bytes | None, session: Session) -> None:
        """Makes this lock the owner of a lease."""
        hold: Hold = lease._hold
        # A second lock object of the same name may wait in this thread, as it may with the client library's class.
        lease.detach()
        # From now on the hub keeps the lease, until it is released or lost: the key outlives the lock object.
        hold.handle = lambda: lease
        mine = hold.token if token is None else token
        self.local.possession = Possession(mine, lease, session)
        self.local.token = mine

    # --- after it ----------------------------------------------------------------------------------------------------

    def _lease(self) -> Any:
        possession = self.local.possession
        return None if possession is None or possession.token != self.local.token else possession.lease

    @property
    def fence(self) -> int | None:
        """The fencing token of the lock that this lock object (and thread) has acquired, or None.

        Safety: write it where the data lives and refuse smaller ones; that is what stops a holder whose lock has run
        out.
        """
        lease = self._lease()
        return None if lease is None else lease.fence

    def _to_release(self) -> bytes:
        token = self.local.token
        if token is None:
            raise self._error("Cannot release a lock that's not owned or is already unlocked.")
        return token

    def _to_prolong(self, doing: str) -> tuple[bytes, float]:
        """The token to prove possession with, and the timeout."""
        token = self.local.token
        if token is None:
            raise self._error(f"Cannot {doing} an unlocked lock")
        if self.timeout is None:
            raise self._error(f"Cannot {doing} a lock with no timeout")
        return token, self.timeout

    def _forget(self) -> None:
        self.local.token = None
        self.local.possession = None

    def _needs_look(self, token: bytes) -> bool:
        """Whether only the server can tell which lease a token means: one that a user has chosen, elsewhere."""
        possession = self.local.possession
        return not (possession is not None and possession.token == token) and not _OURS.fullmatch(token)

    def _found(self, token: bytes, stored: Any, session: Session) -> tuple[bytes, Any] | None:
        """What `token` is the right to: the token on the server, and its lease if it is one of this process."""
        possession = self.local.possession
        if possession is not None and possession.token == token:
            lease = possession.lease
            return lease._hold.token, lease
        if not _OURS.fullmatch(token):
            value = b"" if stored is None else stored if isinstance(stored, bytes) else self._encoded(stored)
            match = _STORED.match(value)
            if match is None or f'"token":"{_digest(token)}"'.encode() not in value:
                return None
            token = match[1]
        hold = session.hub.holds.get(token)
        handle: Any = hold.handle() if hold is not None and hold.handle is not None else None
        return token, handle

    def _bare(self, token: bytes, session: Session) -> Hold:
        """A token of another process as a lease that nobody watches here, for one request."""
        now = clock.now()
        terms = Terms(RENEWED_TTL, MAX_GRACE, 0.0, renew=False, max_hold=None, warn_after=None)
        until = now + session.state.server_timeout
        return Hold(self._keys, token, 0, terms, granted_at=now, deadline=until, mutex=threading.Lock())

    async def _release_bare(self, port: Port, token: bytes, session: Session) -> bool:
        """Releases a lock that another process has acquired; False when the token does not hold it."""
        return await release_procedure.release(port, self._bare(token, session)) == "released"

    async def _prolong_bare(self, port: Port, token: bytes, session: Session, ttl: float) -> bool:
        """Prolongs a lock that another process has acquired; False when the token does not hold it."""
        hold = self._bare(token, session)
        terms = Terms(ttl, session.state.defaults.grace_for(ttl), 0.0, renew=False, max_hold=None, warn_after=None)
        outcomes = await renew_now(port, [hold], give_up=hold.deadline, terms=terms)
        if "late" in outcomes:
            # Refused without effect: nobody has said that the token does not hold the lock.
            raise too_late(port)
        return outcomes == ["renewed"]

    async def _ttl(self, port: Port, seconds: float, *, add: bool) -> float:
        """The ttl of a lease whose key is to live for `seconds`, or with `add` that much longer than now."""
        if add:
            holder = await inspection.holder(port, self._keys)
            seconds += (holder.expires_in if holder is not None else None) or 0.0
        return lifetime(seconds)

    async def _owned(self, port: Port, found: tuple[bytes, Any] | None) -> bool:
        if found is None or (found[1] is not None and not found[1].valid):
            return False
        holder = await inspection.holder(port, self._keys)
        return holder is not None and holder.id == short_id(found[0])

    # --- errors ------------------------------------------------------------------------------------------------------

    def _error(self, message: str) -> Exception:
        return self._exceptions.LockError(message, lock_name=self._keys.name)

    def _not_owned(self, doing: str) -> Exception:
        return self._exceptions.LockNotOwnedError(
            f"Cannot {doing} a lock that's no longer owned", lock_name=self._keys.name
        )

    @contextlib.contextmanager
    def _translated(self) -> Generator[None]:
        """Raises the errors that callers of the client library's class catch; the cause tells the rest."""
        known = self._exceptions
        try:
            yield
        except (errors.LeaseLost, errors.NotHeld) as error:
            raise known.LockNotOwnedError(str(error), lock_name=self._keys.name) from error
        except errors.ServerReadOnly as error:
            raise known.ReadOnlyError(str(error)) from error
        except errors.PermissionDenied as error:
            raise known.NoPermissionError(str(error)) from error
        except (errors.ServerUnavailable, errors.ConfigError) as error:
            raise known.ConnectionError(str(error)) from error
        except errors.ServerError as error:
            raise known.ResponseError(str(error)) from error
        except errors.TenureError as error:
            raise self._error(str(error)) from error


def _digest(token: bytes) -> str:
    """What others may see of a token that a user has chosen."""
    return hashlib.sha256(token).hexdigest()[:32]
