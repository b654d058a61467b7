# ruff: noqa: PT012 - how a block of several statements ends is what is shown
"""Asyncio alone: what a loss does to a block, for every way in which a lock can be held."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

import tenure
from tests.harness.aio import run_async
from tests.harness.waiting import wait_until_async

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.harness.servers import Server

    Block: TypeAlias = "Callable[[tenure.AsyncLocks], Awaitable[Any]]"

FOR_EVER = 60.0


async def several(locks: tenure.AsyncLocks) -> Any:  # noqa: ANN401 - something to enter
    return locks.lock("z", "a", "m", ttl=60)


async def shared(locks: tenure.AsyncLocks) -> Any:  # noqa: ANN401
    return locks.lock("a", ttl=60, shared=True)


async def semaphore(locks: tenure.AsyncLocks) -> Any:  # noqa: ANN401
    return locks.semaphore("a", 3, ttl=60)


async def adopted(locks: tenure.AsyncLocks) -> Any:  # noqa: ANN401
    return await locks.adopt((await locks.lock("a", ttl=60).acquire()).export())


async def reentrant(locks: tenure.AsyncLocks) -> Any:  # noqa: ANN401
    return locks.lock("a", ttl=60, reentrant=True)


@pytest.fixture(params=[several, shared, semaphore, adopted, reentrant])
def block(request: pytest.FixtureRequest) -> Block:
    return request.param


class World:
    """Locks, and a way to lose a lease."""

    def __init__(self, server: Server, namespace: str) -> None:
        self._server = server
        self.locks = tenure.AsyncLocks(server.url, namespace=namespace)

    def lose(self, lease: tenure.AsyncLease) -> None:
        """Deletes what the last of its names stands on, and has the hub find out."""
        hold = lease._holds[-1]
        if not self._server.command("ZREM", hold.keys.shared, hold.token):
            assert self._server.command("DEL", hold.keys.main) == 1
        hold.next_renew = 0.0
        lease._session.hub.wake()


@pytest.fixture
def play(valkey_server: Server, namespace: str) -> Callable[[Callable[[World], Awaitable[None]]], None]:
    """Runs a scenario; afterwards no cancellation is left in its task, nor on its way."""

    def run(scenario: Callable[[World], Awaitable[None]]) -> None:
        async def main() -> None:
            world = World(valkey_server, namespace)
            async with world.locks:
                await scenario(world)
                task = asyncio.current_task()
                assert task is not None
                assert task.cancelling() == 0
                await asyncio.sleep(0)

        run_async(main)

    return run


def test_a_loss_alone_leaves_the_block_as_lease_lost(play: Callable[..., None], block: Block) -> None:
    async def scenario(world: World) -> None:
        seen: list[BaseException] = []
        with pytest.raises(tenure.LeaseLost) as caught:
            async with await block(world.locks) as lease:
                world.lose(lease)
                try:
                    await asyncio.sleep(FOR_EVER)
                except asyncio.CancelledError as error:
                    seen.append(error)
                    raise
        # Itself, and not in a group.
        assert type(caught.value) is tenure.LeaseLost
        assert caught.value.reason in {"deleted", "taken"}
        assert len(seen) == 1
        assert await world.locks.list() == []

    play(scenario)


def test_somebody_elses_cancellation_in_the_same_tick_wins(play: Callable[..., None], block: Block) -> None:
    async def scenario(world: World) -> None:
        def cancel(_: object) -> None:
            task.cancel("somebody else")

        async def work() -> None:
            async with await block(world.locks) as lease:
                lease.on_lost(cancel)
                world.lose(lease)
                await asyncio.sleep(FOR_EVER)

        task = asyncio.create_task(work())
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()
        assert task.cancelling() == 1
        assert await world.locks.list() == []

    play(scenario)


def test_a_time_out_in_the_same_tick_wins_and_one_that_is_not_over_does_not(
    play: Callable[..., None], block: Block
) -> None:
    async def scenario(world: World) -> None:
        both = asyncio.timeout(FOR_EVER)

        def end(_: object) -> None:
            both.reschedule(0)

        with pytest.raises(TimeoutError):
            async with both, await block(world.locks) as lease:
                lease.on_lost(end)
                world.lose(lease)
                await asyncio.sleep(0.5)
                await asyncio.sleep(FOR_EVER)
        timeout = asyncio.timeout(FOR_EVER)
        with pytest.raises(tenure.LeaseLost):
            async with timeout, await block(world.locks) as lease:
                world.lose(lease)
                await asyncio.sleep(FOR_EVER)
        assert not timeout.expired()

    play(scenario)


def test_the_loss_inside_nested_blocks_is_taken_back_by_the_outermost(play: Callable[..., None]) -> None:
    async def scenario(world: World) -> None:
        lock = world.locks.lock("a", ttl=60, reentrant=True)
        path: list[str] = []
        with pytest.raises(tenure.LeaseLost):
            async with lock as lease:
                try:
                    async with lock, lock:
                        world.lose(lease)
                        await asyncio.sleep(FOR_EVER)
                finally:
                    path.append("out of the inner ones")
        assert path == ["out of the inner ones"]
        # Between an inner block that is over and the end of the outer one the body is cancelled all the same.
        with pytest.raises(tenure.LeaseLost):
            async with lock as lease:
                async with lock:
                    pass
                world.lose(lease)
                await asyncio.sleep(FOR_EVER)
        assert not await lock.locked()

    play(scenario)


def test_only_the_children_of_a_group_see_the_loss_as_its_error(play: Callable[..., None], block: Block) -> None:
    """A group inside the block is cancelled with it, and its own cancellation is no error of the group."""

    async def scenario(world: World) -> None:
        ended: list[str] = []

        async def child() -> None:
            try:
                await asyncio.sleep(FOR_EVER)
            except asyncio.CancelledError:
                ended.append("cancelled")
                raise

        with pytest.raises(tenure.LeaseLost) as caught:
            async with await block(world.locks) as lease, asyncio.TaskGroup() as group:
                for _ in range(2):
                    group.create_task(child())
                await asyncio.sleep(0)
                world.lose(lease)
        assert type(caught.value) is tenure.LeaseLost
        assert ended == ["cancelled"] * 2

    play(scenario)


@pytest.mark.parametrize("how", ["run", "once"])
def test_what_is_run_is_cancelled_and_ends_as_lease_lost(play: Callable[..., None], how: str) -> None:
    async def scenario(world: World) -> None:
        async def call() -> None:
            lease = world.locks.current("a")
            assert lease is not None
            world.lose(lease)
            await asyncio.sleep(FOR_EVER)

        with pytest.raises(tenure.LeaseLost):
            await (world.locks.run("a", call=call) if how == "run" else world.locks.once("a", call))

    play(scenario)


def test_a_creation_is_not_cancelled(play: Callable[..., None]) -> None:
    async def scenario(world: World) -> None:
        async def get() -> None:
            await asyncio.sleep(0)

        async def create() -> str:
            lease = world.locks.current("a")
            assert lease is not None
            world.lose(lease)
            await wait_until_async(lambda: lease.lost, 30, "the loss")
            await asyncio.sleep(0.02)
            return "made"

        assert await world.locks.get_or_create("a", get, create) == "made"

    play(scenario)
