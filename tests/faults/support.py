"""What the fault tests share: both flavours behind one face, what a lock leaves on the server, a fenced register."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import inspect
import threading
import time
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, cast

from tenure import AsyncLocks, Locks
from tests.harness.leaks import leftover_keys
from tests.harness.leases import wait_for_inbox
from tests.harness.servers import connect
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator
    from concurrent.futures import Future

    from tenure import AsyncLease, AsyncLock, Lease, Lock, Released
    from tests.harness.servers import Server

T = TypeVar("T")
Flavour = Literal["blocking", "asyncio"]
FLAVOURS: tuple[Flavour, ...] = ("blocking", "asyncio")

PATIENCE = 6.0
"""The server time-out where nothing is to fail: this machine may stand still for seconds."""
SERVER_TIMEOUT = 0.9
"""The server time-out where a call is to fail, see `hurried`."""
REQUEST_TIMEOUT = 0.3
"""The time-out of one request, after which it is sent again, and an undo makes sure for the second time."""
UNHURRIED: dict[str, Any] = {"server_timeout": 30, "request_timeout": 10}
"""Options of a driver whose requests are counted: one that is sent again after a stand-still is one too many."""
SLACK = 10.0
"""What a loaded machine may add to a bound in seconds before it counts as broken."""
SELDOM = 60.0
"""Seconds between polls where they are not to hide that nobody was told, or the place of a poll that was due."""


def set_timeouts(locks: Locks | AsyncLocks, server_timeout: float, request_timeout: float = REQUEST_TIMEOUT) -> None:
    """Give locks other time-outs from now on; by themselves they take a third of one for the other."""
    session = locks.session()
    for who in (session.state, session.port, session.hub._port, *session._loops.values()):
        who.server_timeout, who.request_timeout = server_timeout, request_timeout


@contextlib.contextmanager
def hurried(locks: Locks | AsyncLocks, server_timeout: float = SERVER_TIMEOUT) -> Generator[None]:
    """Have calls give up soon within the block, into which nothing belongs but what is to fail; polls do not."""
    set_timeouts(locks, server_timeout, min(REQUEST_TIMEOUT, server_timeout / 3))
    # The undo behind what fails is not to fail: the test may stand still before it lets the server be reached again.
    locks.session().hub._port.server_timeout = PATIENCE
    try:
        yield
    finally:
        set_timeouts(locks, PATIENCE)


class Driver:
    """One `Locks` or `AsyncLocks` object, driven by blocking test code whichever flavour it is.

    The asyncio flavour runs in an event loop of its own thread. `close`, or leaving the block, ends both.
    """

    def __init__(
        self,
        flavour: Flavour,
        url: str,
        namespace: str,
        *,
        server_timeout: float = PATIENCE,
        request_timeout: float = REQUEST_TIMEOUT,
        **options: Any,  # noqa: ANN401
    ) -> None:
        settings: dict[str, Any] = {"namespace": namespace, "server_timeout": server_timeout} | options
        self.flavour: Flavour = flavour
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        if flavour == "asyncio":
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._loop.run_forever, name="driver-loop")
            self._thread.start()
        self.locks: Locks | AsyncLocks = (Locks if flavour == "blocking" else AsyncLocks)(url, **settings)
        set_timeouts(self.locks, server_timeout, request_timeout)

    def lock(self, name: str | bytes, **options: Any) -> Lock | AsyncLock:  # noqa: ANN401
        """Describe a lock; ttl 30 s unless told otherwise."""
        return self.locks.lock(name, **options)

    def acquire(self, name: str | bytes, **options: Any) -> Lease | AsyncLease:  # noqa: ANN401
        """Take a lock, waiting at most 30 s unless told otherwise."""
        lock = self.lock(name, **({"wait": 30} | options))
        return self.soon(lock.acquire).result(60)

    def renew(self, lease: Lease | AsyncLease, ttl: float | None = None) -> None:
        """Renew by hand."""
        self.soon(lambda: lease.renew(ttl)).result(60)

    def release(self, lease: Lease | AsyncLease) -> Released:
        """Give a lease back."""
        return self.soon(lease.release).result(60)

    def warm(self) -> None:
        """Open a connection and have the scripts loaded, so that faults strike no handshake and no NOSCRIPT.

        From then on the server can reach these locks: no lease of theirs will be announced while calls are counted.
        """
        lease = self.acquire("warm")
        self.renew(lease)
        self.release(lease)
        wait_for_inbox(self.locks)

    def hurried(self, server_timeout: float = SERVER_TIMEOUT) -> contextlib.AbstractContextManager[None]:
        """See `hurried`."""
        return hurried(self.locks, server_timeout)

    def soon(self, call: Callable[[], T | Coroutine[Any, Any, T]]) -> Future[T]:
        """Call something in this flavour's own place: a thread of its own, or a task of the loop."""
        if self._loop is not None:

            async def in_loop() -> T:
                outcome = call()
                return (
                    await cast("Coroutine[Any, Any, T]", outcome)
                    if inspect.iscoroutine(outcome)
                    else cast("T", outcome)
                )

            return asyncio.run_coroutine_threadsafe(in_loop(), self._loop)
        future: Future[T] = concurrent.futures.Future()

        def in_thread() -> None:
            try:
                future.set_result(cast("T", call()))
            except BaseException as error:  # noqa: BLE001 - it is the caller's to judge
                future.set_exception(error)

        threading.Thread(target=in_thread, name="driver-call").start()
        return future

    def holder_fence(self, name: str) -> int | None:
        """Ask the server for the holder's fence, over this driver's own connections."""
        holder = self.soon(lambda: self.locks.holder(name)).result(60)
        return None if holder is None else holder.fence

    def close(self) -> None:
        """Close the locks and end the loop; harmless when repeated."""
        if self._thread is not None and not self._thread.is_alive():
            return
        self.soon(self.locks.close).result(60)
        if self._loop is not None and self._thread is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(30)
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def traces(server: Server, namespace: str) -> list[bytes]:
    """List what locks have left on a server: keys, queues, entries; not the fences, which outlive their lock."""
    return [key for key in leftover_keys(server.admin, f"{namespace}:") if not key.endswith(b":fence")]


def wait_clean(server: Server, namespace: str, timeout: float = 20.0) -> None:
    """Wait until nobody holds and nobody queues in a namespace."""
    wait_until(lambda: not traces(server, namespace), timeout, f"nothing left, but {traces(server, namespace)}")


def queue_length(server: Server, namespace: str, name: str) -> int:
    """Count who queues for a lock."""
    return server.command("ZCARD", f"{{{namespace}:{name}}}:queue")


def wait_queued(server: Server, namespace: str, name: str, count: int = 1, timeout: float = 30.0) -> None:
    """Wait until `count` waiters queue for a lock."""
    wait_until(lambda: queue_length(server, namespace, name) == count, timeout, f"{count} in the queue of {name!r}")


def key_of(server: Server, namespace: str, name: str) -> bytes | None:
    """Return what the lock's main key holds."""
    return server.command("GET", f"{namespace}:{name}")


def key_fence(server: Server, namespace: str, name: str) -> int:
    """Return the fence of the lease that the server has stored; 0 when nobody holds."""
    value = key_of(server, namespace, name)
    return 0 if value is None else int(value.split(b" ")[1])


_FENCED_WRITE = """
if tonumber(ARGV[1]) < tonumber(redis.call('HGET', KEYS[1], 'fence') or '0') then return 0 end
redis.call('HSET', KEYS[1], 'fence', ARGV[1], 'value', ARGV[2])
return 1
"""


class FencedRegister:
    """A resource that refuses the writes of stale holders, kept on the server beside the locks."""

    def __init__(self, server: Server | str, name: str) -> None:
        self._client: Any = connect(server if isinstance(server, str) else server.url)
        self._key = f"testdata:{name}"

    def write(self, fence: int, value: str) -> bool:
        """Write unless a higher fence was seen; tells whether it was accepted."""
        return bool(self._client.eval(_FENCED_WRITE, 1, self._key, str(fence), value))

    def value(self) -> str:
        """Return what was written last."""
        return (self._client.hget(self._key, "value") or b"").decode()

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Stopwatch:
    """Seconds since it was made."""

    def __init__(self) -> None:
        self._start = time.monotonic()

    @property
    def seconds(self) -> float:
        """How long ago that is."""
        return time.monotonic() - self._start
