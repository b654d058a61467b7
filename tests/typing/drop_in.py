"""Never run: a user's program with the drop-in locks, for mypy --strict and pyright to check."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, assert_type

import tenure
from tenure.contrib.redis_py import AsyncLock, Lock, close_locks

if TYPE_CHECKING:
    import redis
    import redis.asyncio


def blocking(client: redis.Redis) -> None:
    with client.lock("report", timeout=10, lock_class=Lock):
        pass
    lock = Lock(client, "report", timeout=10.5, sleep=0.1, blocking=True, blocking_timeout=5, thread_local=False)
    assert_type(lock.acquire(), bool)
    assert_type(lock.acquire(0.1, False, 5, "token"), bool)
    assert_type(lock.fence, int | None)
    assert_type(lock.lease, tenure.Lease | None)
    assert_type(lock.local.token, bytes | None)
    assert_type(lock.owned(), bool)
    assert_type(lock.locked(), bool)
    assert_type(lock.extend(5, replace_ttl=True), Literal[True])
    assert_type(lock.reacquire(), Literal[True])
    lock.release()
    lock.do_release(b"token")
    with lock as entered:
        assert_type(entered, Lock)
    close_locks(client)


async def in_asyncio(client: redis.asyncio.Redis) -> None:
    # Declared by redis-py as a class derived from its own.
    async with client.lock("report", timeout=10, lock_class=AsyncLock):
        pass
    lock = AsyncLock(client, "report", timeout=10.5, raise_on_release_error=False)
    assert_type(await lock.acquire(), bool)
    assert_type(await lock.acquire(False, 5, token=b"token"), bool)
    assert_type(lock.fence, int | None)
    assert_type(lock.lease, tenure.AsyncLease | None)
    assert_type(await lock.owned(), bool)
    assert_type(await lock.locked(), bool)
    assert_type(await lock.extend(5), Literal[True])
    assert_type(await lock.reacquire(), Literal[True])
    await lock.release()
    await lock.do_release("token")
    async with lock as entered:
        assert_type(entered, AsyncLock)
    close_locks(client)
