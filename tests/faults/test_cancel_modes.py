"""Rows 7 and 8 for everything but one exclusive lock: cancelled at each await, nothing is left that nobody owns."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, TypeAlias

import pytest

from tenure import LeaseLost
from tenure.core.adopt import parse
from tenure.core.keys import keys_of
from tenure.core.release import withdraw
from tests.faults.support import traces
from tests.faults.test_cancel import aio_locks, expect_cancelled, expect_own_replies, sleeps
from tests.harness.aio import run_async
from tests.harness.interrupts import cancel_at_each_await
from tests.harness.waiting import wait_until_async

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tenure import AsyncLease, AsyncLock, AsyncLocks
    from tests.harness.interrupts import Cancelled, When
    from tests.harness.proxy import FaultProxy
    from tests.harness.servers import Server

Describe: TypeAlias = "Callable[[AsyncLocks], AsyncLock]"

IN_THE_WAY = "b"
WHENS = pytest.mark.parametrize("when", ["waiting", "ready"])


def several(locks: AsyncLocks) -> AsyncLock:
    return locks.lock("c", IN_THE_WAY, "a", ttl=30)


def several_shared(locks: AsyncLocks) -> AsyncLock:
    return locks.lock("c", IN_THE_WAY, "a", ttl=30, shared=True)


def shared(locks: AsyncLocks) -> AsyncLock:
    return locks.lock(IN_THE_WAY, ttl=30, shared=True)


def semaphore(locks: AsyncLocks) -> AsyncLock:
    return locks.semaphore(IN_THE_WAY, 2, ttl=30)


MODES = pytest.mark.parametrize("describe", [several, several_shared, shared, semaphore])


def left(server: Server, namespace: str) -> list[bytes]:
    """What is there besides fences, and besides the notes that a lease was adopted, which end with its ttl."""
    return [key for key in traces(server, namespace) if b":moved:" not in key]


async def expect_clean(server: Server, namespace: str, run: Cancelled[None]) -> None:
    await wait_until_async(lambda: not left(server, namespace), 30, f"nothing left after a cancel at {run.where}")
    await wait_until_async(
        lambda: len(asyncio.all_tasks()) == 1, 30, f"no task left after a cancel at {run.where}: {asyncio.all_tasks()}"
    )


async def expect_nothing_held(locks: AsyncLocks, run: Cancelled[None]) -> None:
    await wait_until_async(lambda: not locks.statistics().held, 30, f"nothing renewed after a cancel at {run.where}")


async def take_and_release(lock: AsyncLock) -> None:
    lease = await lock.acquire()
    await lease.release()


async def use_block(lock: AsyncLock) -> None:
    async with lock:
        await asyncio.sleep(0)


USES = pytest.mark.parametrize("use", [take_and_release, use_block])


@WHENS
@USES
@MODES
def test_free_locks(
    valkey_server: Server,
    namespace: str,
    describe: Describe,
    use: Callable[[AsyncLock], Coroutine[None, None, None]],
    when: When,
) -> None:
    async def main() -> None:
        async with aio_locks(valkey_server.url, namespace) as locks:
            lock = describe(locks)
            await use(lock)

            async def check(run: Cancelled[None]) -> None:
                expect_cancelled(run)
                await expect_own_replies(locks, run.k)
                await expect_clean(valkey_server, namespace, run)
                await expect_nothing_held(locks, run)

            runs = await cancel_at_each_await(lambda: use(lock), check=check, when=when)
            assert len(runs) >= 3, "acquire and release each wait at least once"

    run_async(main)
    assert not left(valkey_server, namespace), "something came late"


@WHENS
@MODES
def test_locks_that_are_handed_over(valkey_server: Server, namespace: str, describe: Describe, when: When) -> None:
    """One of them is held when the task asks, and handed over to it while it waits."""

    async def main() -> None:
        async with aio_locks(valkey_server.url, namespace) as holding, aio_locks(valkey_server.url, namespace) as locks:
            lock = describe(locks)
            await use_block(lock)
            background: set[asyncio.Task[object]] = set()
            held: list[AsyncLease] = []

            async def hold() -> None:
                """Takes what is in the way: the lock alone, or all places of the semaphore."""
                if describe is not semaphore:
                    held.append(await holding.lock(IN_THE_WAY, wait=30).acquire())
                    return
                for _ in range(2):
                    held.append(await holding.semaphore(IN_THE_WAY, 2, wait=30).acquire())
                    held[-1].detach()

            async def contended() -> None:
                over = asyncio.Event()

                async def hand_over() -> None:
                    await wait_until_async(lambda: over.is_set() or sleeps(locks))
                    while held:
                        await held.pop().release()

                background.add(asyncio.create_task(hand_over()))
                try:
                    await use_block(lock)
                finally:
                    over.set()

            async def check(run: Cancelled[None]) -> None:
                expect_cancelled(run)
                await asyncio.gather(*background)
                background.clear()
                await expect_own_replies(locks, run.k)
                await expect_clean(valkey_server, namespace, run)
                await expect_nothing_held(locks, run)
                await hold()

            await hold()
            runs = await cancel_at_each_await(contended, check=check, when=when)
            assert len(runs) >= 4, "asking, waiting for the turn and releasing each wait at least once"
            while held:
                await held.pop().release()

    run_async(main)
    assert not left(valkey_server, namespace), "something came late"


@WHENS
@pytest.mark.parametrize("names", ["a", "abc"])
def test_an_adoption(valkey_server: Server, namespace: str, names: str, when: When) -> None:
    """Either the lease still is what was handed over, for others to adopt, or it is given back: never nobody's."""

    async def main() -> None:
        async with aio_locks(valkey_server.url, namespace) as locks, aio_locks(valkey_server.url, namespace) as others:
            texts: list[str] = []

            async def hand_over() -> None:
                texts.append((await others.lock(*names, ttl=30, wait=30).acquire()).export())

            async def adopt() -> None:
                await (await locks.adopt(texts[-1])).release()

            async def check(run: Cancelled[None]) -> None:
                expect_cancelled(run)
                await expect_own_replies(locks, run.k)
                await expect_nothing_held(locks, run)
                await give_back_what_was_left(others, texts[-1])
                await expect_clean(valkey_server, namespace, run)
                await hand_over()

            await hand_over()
            runs = await cancel_at_each_await(adopt, check=check, when=when)
            assert len(runs) > 2 * len(names), "adopting and releasing each wait at least once for each name"
            await give_back_what_was_left(others, texts[-1])

    run_async(main)
    assert not left(valkey_server, namespace), "something came late"


async def give_back_what_was_left(locks: AsyncLocks, text: str) -> None:
    """What the text still stands for is its reader's to release: of several names those that were not reached."""
    with contextlib.suppress(LeaseLost):
        await (await locks.adopt(text)).release()
        return
    for name, token, _ in parse(text).leases:
        keys = keys_of(locks.namespace, name)
        await withdraw(locks.session().aio_port(), keys, token.encode())


@WHENS
def test_run_once_and_get_or_create(valkey_server: Server, namespace: str, when: When) -> None:
    async def main() -> None:
        async with aio_locks(valkey_server.url, namespace) as locks:

            async def nothing() -> None:
                await asyncio.sleep(0)

            async def something() -> int:
                await asyncio.sleep(0)
                return 7

            async def run_them() -> None:
                await locks.run("a", call=nothing)
                await locks.once("b", nothing)
                await locks.get_or_create("c", nothing, something)

            await run_them()

            async def check(run: Cancelled[None]) -> None:
                expect_cancelled(run)
                await expect_own_replies(locks, run.k)
                await expect_clean(valkey_server, namespace, run)

            runs = await cancel_at_each_await(run_them, check=check, when=when)
            assert len(runs) >= 9

    run_async(main)
    assert not left(valkey_server, namespace), "something came late"


@USES
@MODES
def test_while_the_reply_is_held_on_the_wire(
    valkey_server: Server,
    proxy: FaultProxy,
    namespace: str,
    describe: Describe,
    use: Callable[[AsyncLock], Coroutine[None, None, None]],
) -> None:
    """The server has done the work, the caller is cancelled, and only then the reply arrives."""

    async def main() -> None:
        async with aio_locks(proxy.url, namespace, 10) as locks:
            lock = describe(locks)
            await use(lock)

            async def held_up() -> None:
                proxy.hold(b"EVALSHA")
                asyncio.get_running_loop().call_later(0.03, proxy.release)
                await use(lock)

            async def check(run: Cancelled[None]) -> None:
                expect_cancelled(run)
                await expect_own_replies(locks, run.k)
                await expect_clean(valkey_server, namespace, run)

            await cancel_at_each_await(held_up, check=check)
            assert locks.statistics().broken_connections == 0, "an abandoned reply is read and dropped, not waited for"

    run_async(main)
    assert not left(valkey_server, namespace), "something came late"
