"""What the child processes run: they are told what to do by lines on their standard input, and answer by lines.

Instants are read from the monotonic clock, which all processes of a machine share.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import TYPE_CHECKING, Any

import redis
import redis.asyncio

import tenure
from tests.harness.processes import say

if TYPE_CHECKING:
    from collections.abc import Callable

TTL = 30


# --- one waiter: how long after the release does it return? -----------------------------------------------------------


def wait_blocking(url: str, name: str) -> None:
    """Waits for the lock at each line; answers with the instant at which it had it."""
    with tenure.Locks(url, namespace="bench") as locks:
        lock = locks.lock(name, ttl=TTL)

        def wait() -> float:
            lease = lock.acquire()
            at = time.monotonic()
            lease.release()
            return at

        _answer(wait)


def wait_asyncio(url: str, name: str) -> None:
    """The same by an asyncio waiter."""
    locks = tenure.AsyncLocks(url, namespace="bench")
    lock = locks.lock(name, ttl=TTL)

    async def wait() -> float:
        lease = await lock.acquire()
        at = time.monotonic()
        await lease.release()
        return at

    with asyncio.Runner() as runner:
        _answer(lambda: runner.run(wait()))
        runner.run(locks.close())


def wait_redis_py(url: str, name: str) -> None:
    """The same with redis-py's Lock, which polls."""
    client: Any = _client(url)
    lock = client.lock(name, timeout=TTL)

    def wait() -> float:
        lock.acquire()
        at = time.monotonic()
        lock.release()
        return at

    _answer(wait)


def listen_blocking(url: str, channel: str) -> None:
    """Receives one message at each line; the least that a wake-up in another process costs."""
    client: Any = _client(url)
    messages = client.pubsub(ignore_subscribe_messages=True)
    messages.subscribe(channel)
    messages.get_message(timeout=10)

    def receive() -> float:
        next(messages.listen())
        return time.monotonic()

    _answer(receive)


def listen_asyncio(url: str, channel: str) -> None:
    """The same by an asyncio listener."""

    async def subscribed() -> Any:  # noqa: ANN401 - redis-py leaves its type open
        client: Any = redis.asyncio.Redis.from_url(url)  # pyright: ignore[reportUnknownMemberType]
        messages = client.pubsub(ignore_subscribe_messages=True)
        await messages.subscribe(channel)
        await messages.get_message(timeout=10)
        return messages

    async def receive(messages: Any) -> float:  # noqa: ANN401
        await anext(messages.listen())
        return time.monotonic()

    with asyncio.Runner() as runner:
        listener = runner.run(subscribed())
        _answer(lambda: runner.run(receive(listener)))


def _client(url: str) -> Any:  # noqa: ANN401 - the types of redis-py are not complete
    return redis.Redis.from_url(url)  # pyright: ignore[reportUnknownMemberType]


def _answer(wait: Callable[[], float]) -> None:
    say("ready")
    for _ in sys.stdin:
        say("waiting")
        say(wait())


# --- one of several that take turns: the line says until when, the answer lists the instants of the turns ------------


def turns_blocking(url: str, name: str) -> None:
    """Takes turns until the instant of each line."""
    with tenure.Locks(url, namespace="bench") as locks:
        lock = locks.lock(name, ttl=TTL)

        def window(until: float) -> list[float]:
            taken: list[float] = []
            while (left := until - time.monotonic()) > 0:
                lease = lock.try_acquire(left)
                if lease is not None:
                    taken.append(time.monotonic())
                    lease.release()
            return taken

        _windows(window)


def turns_asyncio(url: str, name: str) -> None:
    """The same in asyncio code."""
    locks = tenure.AsyncLocks(url, namespace="bench")
    lock = locks.lock(name, ttl=TTL)

    async def window(until: float) -> list[float]:
        taken: list[float] = []
        while (left := until - time.monotonic()) > 0:
            lease = await lock.try_acquire(left)
            if lease is not None:
                taken.append(time.monotonic())
                await lease.release()
        return taken

    with asyncio.Runner() as runner:
        _windows(lambda until: runner.run(window(until)))
        runner.run(locks.close())


def turns_redis_py(url: str, name: str) -> None:
    """The same with redis-py's Lock."""
    client: Any = _client(url)
    lock = client.lock(name, timeout=TTL)

    def window(until: float) -> list[float]:
        taken: list[float] = []
        while (left := until - time.monotonic()) > 0:
            if lock.acquire(blocking_timeout=left):
                taken.append(time.monotonic())
                lock.release()
        return taken

    _windows(window)


def _windows(window: Callable[[float], list[float]]) -> None:
    say("ready")
    for line in sys.stdin:
        cpu = time.process_time()
        taken = window(float(line))
        say(json.dumps({"taken": taken, "cpu": time.process_time() - cpu}))
