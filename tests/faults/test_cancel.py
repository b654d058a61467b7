"""Rows 7 and 8: a task is cancelled at each await of acquire, release and `__aexit__`, and nothing is left behind."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeAlias

import anyio
import pytest

from tenure import AsyncLocks
from tests.faults.support import (
    REQUEST_TIMEOUT,
    key_of,
    queue_length,
    set_timeouts,
    traces,
    wait_clean,
)
from tests.harness.aio import run_async
from tests.harness.interrupts import cancel_at_each_await
from tests.harness.waiting import wait_until, wait_until_async

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from tenure import AsyncLease
    from tests.harness.interrupts import Cancelled, When
    from tests.harness.proxy import FaultProxy
    from tests.harness.servers import Server

Use: TypeAlias = "Callable[[AsyncLocks], Coroutine[None, None, None]]"
UseInside: TypeAlias = "Callable[[AsyncLocks, Callable[[], None]], Coroutine[None, None, None]]"

NAME = "contested"
HANDED_OVER_AFTER = 0.03
WHENS = pytest.mark.parametrize("when", ["waiting", "ready"])


def aio_locks(url: str, namespace: str, request_timeout: float = REQUEST_TIMEOUT) -> AsyncLocks:
    locks = AsyncLocks(url, namespace=namespace)
    # No call and no undo is to give up: what is left to its ttl lasts as long as the wait for nothing to be left.
    set_timeouts(locks, 30, request_timeout)
    return locks


def nothing() -> None:
    """What `Use` does while it holds, unless told otherwise."""


async def take_and_release(locks: AsyncLocks, inside: Callable[[], None] = nothing) -> None:
    lease = await locks.lock(NAME).acquire()
    inside()
    await lease.release()


async def use_block(locks: AsyncLocks, inside: Callable[[], None] = nothing) -> None:
    async with locks.lock(NAME):
        await asyncio.sleep(0)
        inside()


async def expect_own_replies(locks: AsyncLocks, k: int) -> None:
    """The next commands on the connection get their own replies: two tasks at once, each with another lock."""

    async def probe(name: str) -> None:
        lease = await locks.lock(name, wait=30).acquire()
        holder = await locks.holder(name)
        assert holder is not None
        assert holder.fence == lease.fence
        assert (await lease.release()).value == "released"

    await asyncio.gather(probe(f"probe-a-{k}"), probe(f"probe-b-{k}"))


def expect_cancelled(run: Cancelled[None]) -> None:
    if run.where is not None:
        assert isinstance(run.error, asyncio.CancelledError), f"at {run.where}: {run.error!r}"
    else:
        assert run.error is None, f"the undisturbed run failed: {run.error!r}"


async def expect_clean(server: Server, namespace: str, run: Cancelled[None]) -> None:
    await wait_until_async(lambda: not traces(server, namespace), 30, f"nothing left after a cancel at {run.where}")
    await wait_until_async(
        lambda: len(asyncio.all_tasks()) == 1, 30, f"no task left after a cancel at {run.where}: {asyncio.all_tasks()}"
    )


@WHENS
@pytest.mark.parametrize("use", [take_and_release, use_block])
def test_row_7_and_8_free_lock_on_a_warm_connection(
    valkey_server: Server, namespace: str, use: Use, when: When
) -> None:
    async def main() -> None:
        async with aio_locks(valkey_server.url, namespace) as locks:
            await use(locks)

            async def check(run: Cancelled[None]) -> None:
                expect_cancelled(run)
                await expect_own_replies(locks, run.k)
                await expect_clean(valkey_server, namespace, run)

            runs = await cancel_at_each_await(lambda: use(locks), check=check, when=when)
            assert len(runs) >= 3, "acquire and release each wait at least once"

    run_async(main)
    assert not traces(valkey_server, namespace), "something came late"


@WHENS
def test_row_7_and_8_free_lock_on_the_first_connection(valkey_server: Server, namespace: str, when: When) -> None:
    async def main() -> None:
        made: list[AsyncLocks] = []

        def fresh() -> Coroutine[None, None, None]:
            made.append(aio_locks(valkey_server.url, namespace))
            return take_and_release(made[-1])

        async def check(run: Cancelled[None]) -> None:
            expect_cancelled(run)
            await expect_own_replies(made[-1], run.k)
            await made[-1].close()
            await expect_clean(valkey_server, namespace, run)

        runs = await cancel_at_each_await(fresh, check=check, when=when)
        assert len(runs) >= 4, "connecting, acquiring and releasing each wait at least once"

    run_async(main)


def sleeps(locks: AsyncLocks) -> bool:
    """Whether somebody was told to wait, and does so."""
    return any(ticket.next_poll is not None for ticket in list(locks.session().hub.tickets.values()))


@WHENS
@pytest.mark.parametrize("use", [take_and_release, use_block])
@pytest.mark.parametrize("inbox", ["new", "confirmed"])
def test_row_7_and_8_contended_lock(
    valkey_server: Server,
    namespace: str,
    use: Use,
    when: When,
    inbox: str,
) -> None:
    """The lock is held when the task asks, and handed over to it while it waits."""

    async def main() -> None:
        async with aio_locks(valkey_server.url, namespace) as holding:
            waiting: list[AsyncLocks] = [aio_locks(valkey_server.url, namespace)]
            background: set[asyncio.Task[object]] = set()

            async def contended(lease: AsyncLease) -> None:
                over = asyncio.Event()

                async def hand_over() -> None:
                    await wait_until_async(lambda: over.is_set() or sleeps(waiting[-1]))
                    await lease.release()

                background.add(asyncio.create_task(hand_over()))
                try:
                    await use(waiting[-1])
                finally:
                    over.set()

            held: list[AsyncLease] = [await holding.lock(NAME, wait=30).acquire()]

            async def check(run: Cancelled[None]) -> None:
                expect_cancelled(run)
                await asyncio.gather(*background)
                background.clear()
                await expect_own_replies(waiting[-1], run.k)
                if inbox == "new":
                    await waiting[-1].close()
                    waiting.append(aio_locks(valkey_server.url, namespace))
                await expect_clean(valkey_server, namespace, run)
                held.append(await holding.lock(NAME, wait=30).acquire())

            runs = await cancel_at_each_await(lambda: contended(held[-1]), check=check, when=when)
            assert len(runs) >= 4, "asking, waiting for the turn and releasing each wait at least once"
            await held[-1].release()
            await waiting[-1].close()

    run_async(main)
    assert not traces(valkey_server, namespace), "something came late"


@pytest.mark.parametrize("use", [take_and_release, use_block])
def test_row_7_and_8_while_the_reply_is_held_on_the_wire(
    valkey_server: Server,
    proxy: FaultProxy,
    namespace: str,
    use: Use,
) -> None:
    """The server has done the work, the caller is cancelled, and only then the reply arrives."""

    async def main() -> None:
        async with aio_locks(proxy.url, namespace, 10) as locks:
            await use(locks)

            async def held_up() -> None:
                proxy.hold(NAME.encode())
                asyncio.get_running_loop().call_later(HANDED_OVER_AFTER, proxy.release)
                await use(locks)

            async def check(run: Cancelled[None]) -> None:
                expect_cancelled(run)
                await expect_own_replies(locks, run.k)
                await expect_clean(valkey_server, namespace, run)

            await cancel_at_each_await(held_up, check=check)
            assert locks.statistics().broken_connections == 0, "an abandoned reply is read and dropped, not waited for"

    run_async(main)
    assert not traces(valkey_server, namespace), "something came late"


@WHENS
def test_row_8_cancelled_while_renewing(valkey_server: Server, proxy: FaultProxy, namespace: str, when: When) -> None:
    """The lease goes on as it was: still held, still renewed in the background, released without a word."""

    async def main() -> None:
        async with aio_locks(proxy.url, namespace) as locks:
            lease = await locks.lock(NAME, ttl=30).acquire()

            async def check(run: Cancelled[None]) -> None:
                expect_cancelled(run)
                lease.check()
                await expect_own_replies(locks, run.k)

            runs = await cancel_at_each_await(lease.renew, check=check, when=when)
            assert len(runs) >= 2
            assert (await lease.release()).value == "released"

    run_async(main)
    assert not traces(valkey_server, namespace)


def test_row_7_a_cancelled_waiter_frees_its_place_at_once(valkey_server: Server, namespace: str) -> None:
    async def main() -> None:
        async with aio_locks(valkey_server.url, namespace) as locks, aio_locks(valkey_server.url, namespace) as other:
            held = await other.lock(NAME).acquire()
            waiter = asyncio.create_task(locks.lock(NAME).acquire())
            await wait_until_async(lambda: queue_length(valkey_server, namespace, NAME) == 1)
            waiter.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiter
            # Unrefreshed, it would be there for a minute and a half.
            await wait_until_async(lambda: queue_length(valkey_server, namespace, NAME) == 0, 30, "the place freed")
            assert held.valid
            await held.release()

    run_async(main)


@pytest.mark.parametrize("again_after", [0.0, 0.01])
@pytest.mark.parametrize("held_up", ["acquire", "release"])
@pytest.mark.parametrize("use", [take_and_release, use_block])
def test_row_7_and_8_a_second_cancel_during_the_undo(
    valkey_server: Server, proxy: FaultProxy, namespace: str, use: UseInside, held_up: str, again_after: float
) -> None:
    """An impatient caller cancels again and again while the first cancel is being cleaned up."""

    async def main() -> None:
        async with aio_locks(proxy.url, namespace) as locks:
            await use(locks, nothing)

            def hold() -> None:
                proxy.hold(b"EVALSHA")

            if held_up == "acquire":
                hold()
            before = proxy.count(b"EVALSHA")
            wanted = before + (1 if held_up == "acquire" else 2)
            task = asyncio.create_task(use(locks, hold if held_up == "release" else nothing))
            await wait_until_async(lambda: proxy.count(b"EVALSHA") >= wanted)
            for _ in range(3):
                task.cancel()
                await asyncio.sleep(again_after)
            with pytest.raises(asyncio.CancelledError):
                await task
            proxy.release()
            await expect_own_replies(locks, 0)
            await wait_until_async(lambda: not traces(valkey_server, namespace), 30, "nothing left")

    run_async(main)


async def hold_for_ever(locks: AsyncLocks) -> None:
    async with locks.lock(NAME):
        await asyncio.sleep(60)


async def wait_for_ever(locks: AsyncLocks) -> None:
    async with locks.lock("never-free"):
        raise AssertionError("granted a lock that another client holds")


async def raise_in_body(locks: AsyncLocks) -> None:
    async with locks.lock(NAME):
        with anyio.CancelScope() as inner:
            inner.cancel()
            await anyio.sleep(60)
        await anyio.sleep(60)


@pytest.mark.parametrize("use", [hold_for_ever, wait_for_ever, raise_in_body])
@pytest.mark.parametrize("after", [0.0, 0.05])
def test_row_7_and_8_inside_a_cancelled_anyio_scope(
    valkey_server: Server, namespace: str, use: Callable[[AsyncLocks], Awaitable[None]], after: float
) -> None:
    """An anyio scope cancels again at each await: an undo that awaits in it would spin or be given up."""

    async def main() -> None:
        async with aio_locks(valkey_server.url, namespace) as locks, aio_locks(valkey_server.url, namespace) as other:
            blocker = await other.lock("never-free").acquire()
            await expect_own_replies(locks, 0)
            with anyio.move_on_after(after) as scope:
                await use(locks)
            assert scope.cancelled_caught
            await expect_own_replies(locks, 1)
            await wait_until_async(
                lambda: (
                    key_of(valkey_server, namespace, NAME) is None
                    and queue_length(valkey_server, namespace, "never-free") == 0
                ),
                20,
                "neither a key nor a place in the queue",
            )
            assert blocker.valid
            await blocker.release()

    run_async(main)
    wait_clean(valkey_server, namespace)


def test_row_7_another_task_on_the_same_connection_gets_its_own_reply(
    valkey_server: Server, proxy: FaultProxy, namespace: str
) -> None:
    """Two tasks share one connection; the replies of both are on their way when the first is cancelled."""

    async def main() -> None:
        async with aio_locks(proxy.url, namespace, 10) as locks:
            await take_and_release(locks)
            proxy.hold(b"EVALSHA")
            abandoned = asyncio.create_task(locks.lock("abandoned").acquire())
            await asyncio.sleep(0)
            wanted = asyncio.create_task(locks.lock("wanted").acquire())
            await wait_until_async(lambda: proxy.count(b":wanted") == 1)
            connections = proxy.connections
            abandoned.cancel()
            await asyncio.sleep(0)
            proxy.release()
            lease = await wanted
            assert lease.names == ("wanted",)
            holder = await locks.holder("wanted")
            assert holder is not None
            assert holder.fence == lease.fence
            assert proxy.connections >= connections, "the shared connection was thrown away"
            assert locks.statistics().broken_connections == 0
            await lease.release()
            with pytest.raises(asyncio.CancelledError):
                await abandoned

    run_async(main)
    wait_until(lambda: not traces(valkey_server, namespace), 30, "nothing left")
