# ruff: noqa: ANN401 - calls are handed on as they are, and two flavours have no type in common
"""One way to drive both flavours, so that each conformance test is written once, as plain blocking code.

The asyncio flavour runs in an event loop of its own on a background thread. Every thread of the test has *one* task
there, which runs what the thread asks for, call by call: a thread of the test and its task are the same "context" to
the library, so the rules about nested use, other threads and other tasks can be written down once.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, cast

import tenure
from tests.harness.leases import wait_for_inbox
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

T = TypeVar("T")
Kind = Literal["blocking", "asyncio"]
KINDS: tuple[Kind, ...] = ("blocking", "asyncio")

CALL_SECONDS = 30.0
_THREADS = 32


class AnyLease:
    """A lease of either flavour; what needs no I/O (`fence`, `remaining()`, `check()`, ...) is the lease's own."""

    def __init__(self, flavour: Flavour, raw: tenure.Lease | tenure.AsyncLease) -> None:
        self._flavour = flavour
        self.raw = raw

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)

    def renew(self, ttl: float | None = None) -> None:
        self._flavour.call(self.raw.renew, ttl)

    def release(self) -> tenure.Released:
        return self._flavour.call(self.raw.release)

    def wait_lost(self, timeout: float | None = None) -> bool:
        return self._flavour.call(self.raw.wait_lost, timeout)

    def wait_asked(self, timeout: float | None = None) -> bool:
        return self._flavour.call(self.raw.wait_asked, timeout)

    def set_info(self, info: Any) -> None:
        self._flavour.call(self.raw.set_info, info)

    @contextlib.contextmanager
    def block(self) -> Generator[None]:
        """`with lease:`."""
        with self._flavour.entered(self.raw):
            yield


class AnyLock:
    """A lock of either flavour."""

    def __init__(self, flavour: Flavour, raw: tenure.Lock | tenure.AsyncLock) -> None:
        self._flavour = flavour
        self.raw = raw

    def acquire(self) -> AnyLease:
        return AnyLease(self._flavour, self._flavour.call(self.raw.acquire))

    def try_acquire(self, *wait: float) -> AnyLease | None:
        lease = self._flavour.call(self.raw.try_acquire, *wait)
        return None if lease is None else AnyLease(self._flavour, lease)

    def locked(self) -> bool:
        return self._flavour.call(self.raw.locked)

    def holder(self) -> tenure.Holder | None:
        return self._flavour.call(self.raw.holder)

    @contextlib.contextmanager
    def block(self) -> Generator[AnyLease]:
        """`with lock as lease:`."""
        with self._flavour.entered(self.raw) as lease:
            yield AnyLease(self._flavour, lease)

    def decorate(self, function: Callable[..., T]) -> Callable[..., T]:
        """`@lock` on a function, or on a coroutine function that calls it."""
        return self._flavour.decorated(self.raw, function)


class AnyLocks:
    """A `Locks` or an `AsyncLocks`."""

    def __init__(self, flavour: Flavour, raw: tenure.Locks | tenure.AsyncLocks) -> None:
        self._flavour = flavour
        self.raw = raw

    def lock(self, *names: Any, **options: Any) -> AnyLock:
        """A lock; in asyncio one that does not cancel its block, of which blocking code has no counterpart."""
        if self._flavour.kind == "asyncio":
            options.setdefault("cancel_on_lost", False)
        return AnyLock(self._flavour, cast("Any", self.raw).lock(*names, **options))

    def semaphore(self, name: Any, limit: Any, **options: Any) -> AnyLock:
        """A semaphore, as `lock`."""
        if self._flavour.kind == "asyncio":
            options.setdefault("cancel_on_lost", False)
        return AnyLock(self._flavour, cast("Any", self.raw).semaphore(name, limit, **options))

    def adopt(self, exported: Any, **options: Any) -> AnyLease:
        return AnyLease(self._flavour, self._flavour.call(self.raw.adopt, exported, **options))

    def current(self, name: str) -> tenure.Lease | tenure.AsyncLease | None:
        """The raw lease that the thread of the test, or its task, holds."""
        return self._flavour.call(self.raw.current, name)

    def run(self, *names: Any, call: Callable[[], T], **options: Any) -> Any:
        return self._flavour.call(self.raw.run, *names, call=self._flavour.job(call), **options)

    def once(self, name: Any, call: Callable[..., T], *args: Any, **options: Any) -> Any:
        return self._flavour.call(self.raw.once, name, self._flavour.job(call), *args, **options)

    def get_or_create(self, name: Any, get: Callable[[], Any], create: Callable[[], Any], **options: Any) -> Any:
        job = self._flavour.job
        return self._flavour.call(self.raw.get_or_create, name, job(get), job(create), **options)

    def ask(self, name: str) -> tenure.Holder | None:
        return self._flavour.call(self.raw.ask, name)

    def deadlocks(self) -> list[tuple[tenure.Waiter, ...]]:
        return self._flavour.call(self.raw.deadlocks)

    @contextlib.contextmanager
    def watch(self, name: str) -> Generator[Callable[[], tenure.Holder | None]]:
        """Start to watch a lock; gives a function that waits for the next change, and gives the watch up at the end."""
        watching: Any = self.raw.watch(name)

        async def following() -> tenure.Holder | None:
            return await anext(watching)

        try:
            yield (
                lambda: (
                    self._flavour.call(next, watching)
                    if isinstance(watching, Iterator)
                    else self._flavour.call(following)
                )
            )
        finally:
            self._flavour.call(getattr(watching, "aclose", None) or watching.close)

    def holder(self, name: str) -> tenure.Holder | None:
        return self._flavour.call(self.raw.holder, name)

    def holders(self, name: str) -> list[tenure.Holder]:
        return self._flavour.call(self.raw.holders, name)

    def waiters(self, name: str) -> list[tenure.Waiter]:
        return self._flavour.call(self.raw.waiters, name)

    def list(self, *prefix: str) -> list[tenure.Holder]:
        return self._flavour.call(self.raw.list, *prefix)

    def break_lock(self, name: str, fence: int | None = None, *, force: bool = False) -> tenure.Holder | None:
        return self._flavour.call(self.raw.break_lock, name, fence, force=force)

    def statistics(self) -> Any:
        return self.raw.statistics()

    def close(self, *wait: float) -> None:
        self._flavour.call(self.raw.close, *wait)

    @contextlib.contextmanager
    def block(self) -> Generator[None]:
        """`with locks:`."""
        with self._flavour.entered(self.raw):
            yield

    def warm(self) -> None:
        """Connect, subscribe, and have the server know the usual scripts: what is counted from now on is the rule."""
        lease = self.lock("warm", ttl=60).acquire()
        waiting = self.queue("warm", ttl=60)
        lease.release()
        waiting.result(30).release()
        wait_for_inbox(self.raw)

    def queue(self, name: str, limit: int | None = None, **options: Any) -> Future[AnyLease]:
        """Start to wait for a lock, or a semaphore, in another thread or task; returns once the waiter is queued."""
        # By their ids, not their number: another one may leave the queue meanwhile.
        before = {waiter.id for waiter in self.waiters(name)}
        lock = self.lock(name, **options) if limit is None else self.semaphore(name, limit, **options)
        future = self._flavour.spawn(lock.acquire)
        wait_until(lambda: future.done() or {w.id for w in self.waiters(name)} - before, 30, "the waiter to queue")
        return future


class Flavour:
    """Makes locks of one flavour, calls them from any thread of the test, and closes them at its end."""

    def __init__(self, kind: Kind) -> None:
        self.kind: Kind = kind
        self._loop: _LoopThread | None = _LoopThread() if kind == "asyncio" else None
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="test")
        self._locks: list[AnyLocks] = []
        self._clients: list[Any] = []

    # Making

    def locks(self, server: Any, **options: Any) -> AnyLocks:
        """Locks on a server (a URL or a client), closed when the test ends."""
        cls = tenure.Locks if self.kind == "blocking" else tenure.AsyncLocks
        made = AnyLocks(self, cls(server, **options))
        self._locks.append(made)
        return made

    def client(self, url: str, library: str = "redis", **options: Any) -> Any:
        """A client object of this flavour of redis-py or valkey-py, closed when the test ends."""
        module = importlib.import_module(library if self.kind == "blocking" else f"{library}.asyncio")
        client = getattr(module, library.capitalize()).from_url(url, **options)
        self._clients.append(client)
        return client

    # Calling

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call something of this flavour and give what it returns; a coroutine is run by this thread's task."""
        if self._loop is None:
            return function(*args, **kwargs)
        return self._loop.call(function, *args, **kwargs)

    @contextlib.contextmanager
    def entered(self, manager: Any) -> Generator[Any]:
        """`with` or `async with`."""
        if self._loop is None:
            with manager as value:
                yield value
            return
        value = self.call(manager.__aenter__)
        try:
            yield value
        except BaseException as error:
            if not self.call(manager.__aexit__, type(error), error, error.__traceback__):
                raise
        else:
            self.call(manager.__aexit__, None, None, None)

    def decorated(self, lock: Any, function: Callable[..., T]) -> Callable[..., T]:
        """Decorate `function` with a lock, in the asyncio flavour through a coroutine function of its signature."""
        if self._loop is None:
            return lock(function)

        async def coroutine(*args: Any, **kwargs: Any) -> T:
            return await asyncio.to_thread(function, *args, **kwargs)

        coroutine.__wrapped__ = function  # pyright: ignore[reportFunctionMemberAccess] - what inspect.signature follows
        wrapped = lock(coroutine)
        return lambda *args, **kwargs: self.call(wrapped, *args, **kwargs)

    def job(self, function: Callable[..., T]) -> Callable[..., Any]:
        """Something for the library to call: the function itself, or a coroutine function that calls it in a thread."""
        if self._loop is None:
            return function

        async def coroutine(*args: Any) -> T:
            return await asyncio.to_thread(function, *args)

        return coroutine

    def spawn(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> Future[T]:
        """Call `function` in another thread, which in asyncio has another task."""
        return self._pool.submit(function, *args, **kwargs)

    # Ending

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for made in self._locks:
            made.close()
        self._pool.shutdown()
        for client in self._clients:
            self.call(getattr(client, "aclose", client.close))
        if self._loop is not None:
            self._loop.end()


class _LoopThread:
    """An event loop on a thread of its own, with one task for each thread that calls."""

    def __init__(self) -> None:
        self._ready = threading.Event()
        self._mine = threading.local()
        self._thread = threading.Thread(target=self._run, name="test-loop")
        self._thread.start()
        self._ready.wait(CALL_SECONDS)

    def _run(self) -> None:
        with asyncio.Runner() as runner:
            self._loop = runner.get_loop()
            self._over = asyncio.Event()
            runner.run(self._main())

    async def _main(self) -> None:
        self._ready.set()
        await self._over.wait()

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        queue = getattr(self._mine, "queue", None)
        if queue is None:
            queue = self._mine.queue = _Calls(self._loop)
        done: Future[None] = Future()
        value: list[Any] = []
        self._loop.call_soon_threadsafe(queue.calls.put_nowait, (function, args, kwargs, value, done))
        done.result(CALL_SECONDS)
        return value.pop()

    def end(self) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(CALL_SECONDS)


class _Calls:
    """The calls of one thread, and the one task that runs them."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.calls: asyncio.Queue[tuple[Callable[..., Any], Any, Any, list[Any], Future[None]]] = asyncio.Queue()
        self._task = asyncio.run_coroutine_threadsafe(self._run(), loop)

    async def _run(self) -> None:
        while True:
            function, args, kwargs, value, done = await self.calls.get()
            failure: Exception | None = None
            try:
                answer = function(*args, **kwargs)
                value.append(await answer if asyncio.iscoroutine(answer) else answer)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is the caller's
                failure = error
            # Before the caller goes on, which may be at once and drop its lease: nothing may keep it alive from here.
            function = args = kwargs = answer = None
            if failure is None:
                done.set_result(None)
            else:
                done.set_exception(failure)
            del value, done, failure
