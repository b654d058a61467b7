# ruff: noqa: ANN401 - two flavours and two libraries have no type in common
"""One way to drive the drop-in locks of both flavours and both libraries, from plain blocking code."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, cast

import redis
import redis.asyncio

from tenure.contrib.redis_py import AsyncLock, Lock, close_locks

if TYPE_CHECKING:
    from collections.abc import Generator

    from tests.conformance.flavours import Flavour


class DropIn:
    """A drop-in lock; what does I/O is run by the flavour, the rest is the lock's own."""

    def __init__(self, flavour: Flavour, raw: Any) -> None:
        self._flavour = flavour
        self.raw = raw

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)

    def acquire(self, **options: Any) -> bool:
        return self._flavour.call(self.raw.acquire, **options)

    def release(self) -> None:
        self._flavour.call(self.raw.release)

    def do_release(self, token: str | bytes) -> None:
        self._flavour.call(self.raw.do_release, token)

    def locked(self) -> bool:
        return self._flavour.call(self.raw.locked)

    def owned(self) -> bool:
        return self._flavour.call(self.raw.owned)

    def extend(self, seconds: float, **options: Any) -> bool:
        return self._flavour.call(self.raw.extend, seconds, **options)

    def reacquire(self) -> bool:
        return self._flavour.call(self.raw.reacquire)

    @contextlib.contextmanager
    def block(self) -> Generator[Any]:
        """`with lock:`."""
        with self._flavour.entered(self.raw) as value:
            yield value


def blocking(url: str) -> Any:
    """A blocking client of redis-py."""
    return cast("Any", redis.Redis).from_url(url)


def in_loop(url: str) -> Any:
    """An asyncio client of redis-py."""
    return cast("Any", redis.asyncio.Redis).from_url(url)


class World:
    """A flavour, a library and a server: where drop-in locks and the library's own come from."""

    def __init__(self, flavour: Flavour, library: str, url: str) -> None:
        self.flavour = flavour
        self.library = library
        self.url = url
        self.cls = Lock if flavour.kind == "blocking" else AsyncLock
        self._clients: list[Any] = []

    def client(self, url: str = "", **options: Any) -> Any:
        """A client of its own, as another process would have it."""
        url = (url or self.url).replace("redis:", f"{self.library}:")
        made = self.flavour.client(url, self.library, **options)
        return self.adopted(made)

    def adopted(self, client: Any) -> Any:
        """A client whose locks are ended with the test."""
        self._clients.append(client)
        return client

    def lock(self, client: Any, name: Any, timeout: float | None = None, **options: Any) -> DropIn:
        """A drop-in lock of a client; in asyncio one that the test's thread can look into, which is not the loop's."""
        options.setdefault("thread_local", self.flavour.kind == "blocking")
        return DropIn(self.flavour, client.lock(name, timeout, lock_class=self.cls, **options))

    def theirs(self, client: Any, name: Any, timeout: float | None = None, **options: Any) -> DropIn:
        """A lock of the library's own class."""
        options.setdefault("thread_local", self.flavour.kind == "blocking")
        return DropIn(self.flavour, client.lock(name, timeout, **options))

    def end(self) -> None:
        """End what the locks of the clients share: a test's fixtures keep the clients alive until after the test."""
        for client in self._clients:
            close_locks(client)
