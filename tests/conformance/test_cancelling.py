# ruff: noqa: PT012 - how a block of several statements ends is what is shown
"""Asyncio alone: a block whose lease is lost is cancelled, and nobody else's cancellation is swallowed or made up."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

import tenure
from tests.harness.aio import run_async
from tests.harness.leases import renew_now
from tests.harness.waiting import wait_until_async

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.harness.servers import Server

    Lose = Callable[[tenure.AsyncLease], None]

FOR_EVER = 20.0


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def play(request: pytest.FixtureRequest, valkey_server: Server, namespace: str) -> Callable[..., None]:
    """Runs a scenario with locks and a function that deletes the key of a lease of "a" and has the hub find out."""

    def lose(lease: tenure.AsyncLease) -> None:
        valkey_server.command("DEL", f"{namespace}:a")
        renew_now(lease)

    def run(scenario: Callable[[tenure.AsyncLocks, Lose], Awaitable[None]]) -> None:
        async def main() -> None:
            async with tenure.AsyncLocks(valkey_server.url, namespace=namespace) as locks:
                await scenario(locks, lose)
                task = asyncio.current_task()
                assert task is not None
                assert task.cancelling() == 0
                # No late cancellation is on its way either.
                await asyncio.sleep(0)

        run_async(main, uvloop=request.param)

    return run


def test_a_loss_cancels_the_body_and_leaves_as_lease_lost(play: Callable[..., None]) -> None:
    async def scenario(locks: tenure.AsyncLocks, lose: Lose) -> None:
        seen: list[BaseException] = []
        with pytest.raises(tenure.LeaseLost) as caught:
            async with locks.lock("a", ttl=60) as lease:
                lose(lease)
                try:
                    await asyncio.sleep(FOR_EVER)
                except asyncio.CancelledError as error:
                    seen.append(error)
                    raise
        assert caught.value.reason == "deleted"
        assert len(seen) == 1

    play(scenario)


def test_somebody_elses_cancellation_in_the_same_tick_wins(play: Callable[..., None]) -> None:
    async def scenario(locks: tenure.AsyncLocks, lose: Lose) -> None:
        async def work() -> None:
            async with locks.lock("a", ttl=60) as lease:
                lease.on_lost(lambda _: task.cancel("somebody else"))
                lose(lease)
                await asyncio.sleep(FOR_EVER)

        task = asyncio.create_task(work())
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()
        assert task.cancelling() == 1

    play(scenario)


def test_a_cancellation_without_a_loss_is_just_that(play: Callable[..., None]) -> None:
    async def scenario(locks: tenure.AsyncLocks, _: Lose) -> None:
        inside = asyncio.Event()

        async def work() -> None:
            async with locks.lock("a", ttl=5):
                inside.set()
                await asyncio.sleep(FOR_EVER)

        task = asyncio.create_task(work())
        await inside.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not await locks.lock("a").locked()

    play(scenario)


def test_an_outer_timeout_is_neither_triggered_nor_swallowed(play: Callable[..., None]) -> None:
    async def scenario(locks: tenure.AsyncLocks, lose: Lose) -> None:
        timeout = asyncio.timeout(FOR_EVER)
        with pytest.raises(tenure.LeaseLost):
            async with timeout, locks.lock("a", ttl=60) as lease:
                lose(lease)
                await asyncio.sleep(FOR_EVER)
        assert not timeout.expired()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05), locks.lock("a", ttl=5):
                await asyncio.sleep(FOR_EVER)
        assert not await locks.lock("a").locked()
        # Both at once: the time-out, which is somebody else's cancellation, wins.
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(FOR_EVER) as both, locks.lock("a", ttl=60) as lease:
                lease.on_lost(lambda _: both.reschedule(0))
                lose(lease)
                await asyncio.sleep(0.5)
                await asyncio.sleep(FOR_EVER)

    play(scenario)


def test_a_body_that_swallows_it_still_ends_as_lease_lost(play: Callable[..., None]) -> None:
    async def scenario(locks: tenure.AsyncLocks, lose: Lose) -> None:
        with pytest.raises(tenure.LeaseLost):
            async with locks.lock("a", ttl=60) as lease:
                lose(lease)
                try:
                    await asyncio.sleep(FOR_EVER)
                except asyncio.CancelledError:
                    assert lease.lost == "deleted"

    play(scenario)


def test_a_body_that_raises_instead_wins_with_a_note(play: Callable[..., None]) -> None:
    async def scenario(locks: tenure.AsyncLocks, lose: Lose) -> None:
        with pytest.raises(ZeroDivisionError) as caught:
            async with locks.lock("a", ttl=60) as lease:
                lose(lease)
                try:
                    await asyncio.sleep(FOR_EVER)
                finally:
                    raise ZeroDivisionError
        assert "'a' was lost" in caught.value.__notes__[0]

    play(scenario)


def test_a_body_that_ends_before_the_cancellation_arrives_passes_it_to_nobody(play: Callable[..., None]) -> None:
    async def scenario(locks: tenure.AsyncLocks, lose: Lose) -> None:
        async with locks.lock("a", ttl=60, on_exit_lost="note") as lease:
            lost = asyncio.Event()
            lease.on_lost(lambda _: lost.set())
            lose(lease)
            # Woken in the tick of the cancellation, which is delivered by the next one.
            waiter = asyncio.ensure_future(lost.wait())
            await asyncio.wait([waiter], timeout=30)

    async def tolerant(locks: tenure.AsyncLocks, lose: Lose) -> None:
        try:
            await scenario(locks, lose)
        except tenure.LeaseLost:
            return

    play(tolerant)


@pytest.mark.parametrize("how", ["raise", "note"])
def test_it_can_be_turned_off(play: Callable[..., None], how: str) -> None:
    async def scenario(locks: tenure.AsyncLocks, lose: Lose) -> None:
        ended: list[str] = []

        async def work() -> None:
            note = how == "note"
            async with locks.lock("a", ttl=60, cancel_on_lost=False, on_exit_lost="note" if note else "raise") as lease:
                lose(lease)
                assert await lease.wait_lost(30)
                await asyncio.sleep(0.02)
                ended.append("body")

        if how == "raise":
            with pytest.raises(tenure.LeaseLost):
                await work()
        else:
            await work()
        assert ended == ["body"]

    play(scenario)


def test_a_lease_without_a_block_cancels_nobody(play: Callable[..., None]) -> None:
    async def scenario(locks: tenure.AsyncLocks, lose: Lose) -> None:
        lease = await locks.lock("a", ttl=60).acquire()
        lose(lease)
        assert await lease.wait_lost(30)
        await asyncio.sleep(0.02)

    play(scenario)


def test_only_the_task_that_entered_is_cancelled(play: Callable[..., None]) -> None:
    async def scenario(locks: tenure.AsyncLocks, lose: Lose) -> None:
        results: list[str] = []

        async def helper(lease: tenure.AsyncLease) -> None:
            await lease.wait_lost(30)
            await asyncio.sleep(0.02)
            results.append("helper went on")

        async def work() -> None:
            async with locks.lock("a", ttl=60) as lease:
                helpers.append(asyncio.create_task(helper(lease)))
                lose(lease)
                await asyncio.sleep(FOR_EVER)

        helpers: list[asyncio.Task[None]] = []
        with pytest.raises(tenure.LeaseLost):
            await work()
        await helpers[0]
        assert results == ["helper went on"]

    play(scenario)


def test_a_block_of_a_lease_is_cancelled_too(play: Callable[..., None]) -> None:
    async def scenario(locks: tenure.AsyncLocks, lose: Lose) -> None:
        with pytest.raises(tenure.LeaseLost):
            lease = await locks.lock("a", ttl=60).acquire()
            async with lease:
                lose(lease)
                await asyncio.sleep(FOR_EVER)

    play(scenario)


def test_in_a_task_group_the_loss_is_the_groups_error(play: Callable[..., None]) -> None:
    async def scenario(locks: tenure.AsyncLocks, lose: Lose) -> None:
        async def work() -> None:
            async with locks.lock("a", ttl=60) as lease:
                lose(lease)
                await asyncio.sleep(FOR_EVER)

        async def group_of_two() -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(work())
                group.create_task(asyncio.sleep(FOR_EVER))

        with pytest.raises(ExceptionGroup) as caught:
            # In a task of its own: Python 3.11's groups leave their own task's count of cancellations raised.
            await asyncio.create_task(group_of_two())
        assert [type(error) for error in caught.value.exceptions] == [tenure.LeaseLost]

    play(scenario)


def test_a_cancelled_waiter_leaves_the_queue_at_once(play: Callable[..., None]) -> None:
    async def scenario(locks: tenure.AsyncLocks, _: Lose) -> None:
        lease = await locks.lock("a", ttl=60).acquire()
        waiter = asyncio.create_task(locks.lock("a", ttl=60).acquire())
        queued = [False]

        async def look() -> None:
            queued[0] = bool(await locks.waiters("a"))

        while not queued[0]:
            await look()
        waiter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiter
        # Unrefreshed, its entry would live for fifteen seconds.
        async with asyncio.timeout(10):
            while queued[0]:
                await look()
        await lease.release()
        assert not await locks.lock("a").locked()
        await wait_until_async(lambda: locks.statistics().waiting == 0)

    play(scenario)


def test_locks_serve_any_number_of_event_loops(url: str, namespace: str) -> None:
    locks = tenure.AsyncLocks(url, namespace=namespace)
    fences: list[int] = []

    async def turn() -> None:
        async with locks.lock("a", ttl=5) as lease:
            fences.append(lease.fence)

    for uvloop in (False, True, False):
        run_async(turn, uvloop=uvloop)
    run_async(locks.close)
    assert fences == sorted(set(fences))
    assert len(fences) == 3
