# ruff: noqa: ANN401 - two flavours and two libraries have no type in common
"""Drop-in locks by their tokens, and what becomes of them when lock objects, clients and processes go."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from redis.exceptions import LockNotOwnedError

from tenure import manager, manager_base
from tenure.contrib.redis_py import AsyncLock, Lock, close_locks, lock_sessions
from tenure.contrib.redis_py.lock_sessions import blocking_locks
from tenure.core import renew
from tests.contrib.drop_in.world import blocking, in_loop
from tests.harness.aio import run_async
from tests.harness.leases import age, behind
from tests.harness.processes import Worker, say
from tests.harness.waiting import wait_until, wait_until_async

if TYPE_CHECKING:
    from tests.contrib.drop_in.world import World
    from tests.harness.servers import Server

HUB = "tenure-hub"


class TestTokens:
    """Whoever knows the token may release and extend: in another thread, with another client, in another process."""

    @pytest.mark.parametrize("chosen", [None, "test", b"\xffbytes"], ids=["made", "text", "bytes"])
    @pytest.mark.parametrize("same", [True, False], ids=["here", "elsewhere"])
    def test_prove_possession(
        self, chosen: Any, same: bool, world: World, client: Any, other: Any, known: Any, valkey_server: Server
    ) -> None:
        first = world.lock(client, "foo", 10)
        assert first.acquire(token=chosen)
        token = first.local.token
        if chosen is not None:
            assert token == (chosen.encode() if isinstance(chosen, str) else chosen)
        second = world.lock(client if same else other, "foo", 10)
        assert not second.owned()
        second.raw.local.token = token
        assert second.owned()
        assert second.extend(10)
        assert 11_000 < valkey_server.command("PTTL", "foo") <= 20_000
        assert second.reacquire()
        second.release()
        assert second.local.token is None
        assert not second.locked()
        with pytest.raises(known.LockNotOwnedError):
            first.release()

    def test_of_a_lock_that_is_held_extend_it_though_a_request_comes_too_late(
        self, world: World, client: Any, other: Any, known: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first = world.lock(client, "foo", 100)
        assert first.acquire()
        second = world.lock(other, "foo", 100)
        second.raw.local.token = first.local.token
        assert second.owned()
        behind(second._shared(), 60)
        assert second.extend(100)
        once = renew.renew

        async def still_behind(*args: Any, **options: Any) -> list[str]:
            behind(second._shared(), 60)
            return await once(*args, **options)

        monkeypatch.setattr(renew, "renew", still_behind)
        # Not LockNotOwnedError, which nobody has said.
        with pytest.raises(known.ConnectionError, match="late"):
            second.reacquire()
        assert first.owned()

    @pytest.mark.parametrize("wrong", [b"0" * 44, b"test", "x"])
    @pytest.mark.parametrize("chosen", [None, "right"])
    def test_of_somebody_else_prove_nothing(
        self, wrong: Any, chosen: Any, world: World, client: Any, other: Any, known: Any
    ) -> None:
        first = world.lock(client, "foo", 10)
        assert first.acquire(token=chosen)
        second = world.lock(other, "foo", 10)
        second.raw.local.token = wrong
        assert not second.owned()
        for action in (lambda: second.extend(5), second.reacquire, second.release):
            with pytest.raises(known.LockNotOwnedError):
                action()
        with pytest.raises(known.LockNotOwnedError):
            second.do_release(wrong)
        assert first.owned()
        first.release()

    def test_that_users_choose_may_be_chosen_again(self, world: World, client: Any, other: Any) -> None:
        first, second = world.lock(client, "foo", 10), world.lock(other, "foo", 10)
        assert first.acquire(token="same")
        assert not second.acquire(blocking=False, token="same")
        first.release()
        assert second.acquire(blocking=False, token="same")
        assert not first.owned()
        second.release()

    def test_that_users_choose_are_not_shown(self, world: World, client: Any, valkey_server: Server) -> None:
        lock = world.lock(client, "foo", 10)
        assert lock.acquire(token="my-secret")
        assert b"my-secret" not in valkey_server.command("GET", "foo")
        lock.do_release("my-secret")
        assert not lock.locked()

    def test_of_a_lock_that_theirs_holds_release_nothing(
        self, world: World, client: Any, other: Any, known: Any
    ) -> None:
        theirs = world.theirs(other, "foo", 10)
        assert theirs.acquire(token="test")
        for token in ("test", theirs.local.token):
            with pytest.raises(known.LockNotOwnedError):
                world.lock(client, "foo", 10).do_release(token)
        assert theirs.owned()
        theirs.release()


class TestLockObjectsThatGo:
    @pytest.mark.parametrize("world", ["redis"], indirect=True)
    def test_leave_the_key_to_its_timeout(
        self, world: World, client: Any, other: Any, caplog: Any, valkey_server: Server
    ) -> None:
        # Many programs do something once a minute by not releasing a lock of a minute.
        began = time.monotonic()
        assert world.lock(client, "foo", 3).acquire(blocking=False)
        gc.collect()
        time.sleep(0.3)
        again = world.lock(other, "foo", 3)
        # On a slow machine the time may be over by now.
        assert not again.acquire(blocking=False) or time.monotonic() - began > 2.9
        wait_until(lambda: not valkey_server.command("EXISTS", "foo"), 20, "the timeout")
        assert not [record for record in caplog.records if again.fence is None]

    def test_leave_the_key_for_as_long_as_the_process_when_it_has_no_timeout(
        self, world: World, client: Any, other: Any, valkey_server: Server
    ) -> None:
        lock = world.lock(client, "foo")
        assert lock.acquire()
        token, lease = lock.local.token, lock.lease
        del lock
        gc.collect()
        valkey_server.command("PEXPIRE", "foo", 15_000)
        age(lease, 11)
        wait_until(lambda: valkey_server.command("PTTL", "foo") > 20_000, 30, "the renewal")
        again = world.lock(client, "foo")
        assert not world.lock(other, "foo").acquire(blocking=False)
        again.do_release(token)
        assert not again.locked()

    def test_go_with_a_thread_too(self, client: Any, world: World, other: Any) -> None:
        lock = world.lock(client, "foo", 30, thread_local=True)
        thread = threading.Thread(target=lock.acquire)
        thread.start()
        thread.join(30)
        gc.collect()
        assert not world.lock(other, "foo").acquire(blocking=False)


class TestClients:
    def test_share_one_thread_among_their_locks(self, world: World, client: Any, other: Any) -> None:
        before = hubs()
        locks = [world.lock(client, f"foo{number}", 10) for number in range(5)]
        assert all(lock.acquire() for lock in locks)
        assert hubs() - before == 1
        elsewhere = world.lock(other, "bar", 10)
        assert elsewhere.acquire()
        assert hubs() - before == 2
        for lock in (*locks, elsewhere):
            lock.release()

    def test_that_are_used_by_many_threads_at_first_share_one_too(self, url: str) -> None:
        client = blocking(url)
        gate = threading.Barrier(8)

        def first(number: int) -> None:
            gate.wait(30)
            with Lock(client, f"foo{number}", 10):
                gate.wait(30)

        before = hubs()
        threads = [threading.Thread(target=first, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert hubs() - before == 1
        client.close()

    @pytest.mark.usefixtures("patient_close")
    def test_that_are_collected_end_all_of_it(self, url: str, valkey_server: Server) -> None:
        before = hubs()
        client = blocking(url)
        assert client.lock("with", timeout=60, lock_class=Lock).acquire()
        assert client.lock("without", lock_class=Lock).acquire()
        assert hubs() - before == 1
        client.close()
        del client
        gc.collect()
        wait_until(lambda: hubs() == before, 25, "the hub to end")
        wait_until(lambda: not valkey_server.command("EXISTS", "without"), 25, "the lock without a timeout to be free")
        assert valkey_server.command("PTTL", "with") > 30_000

    @pytest.mark.usefixtures("patient_close")
    def test_that_are_collected_end_all_of_it_in_asyncio(self, url: str, valkey_server: Server) -> None:
        async def main() -> None:
            client = in_loop(url)
            assert await client.lock("with", timeout=60, lock_class=AsyncLock).acquire()
            assert await client.lock("without", lock_class=AsyncLock).acquire()
            await client.aclose()
            del client
            gc.collect()
            await wait_until_async(lambda: hubs() == before, 25, "the hub to end")

        before = hubs()
        run_async(main)
        assert not valkey_server.command("EXISTS", "without")
        assert valkey_server.command("PTTL", "with") > 30_000

    @pytest.mark.usefixtures("patient_close")
    def test_can_be_done_with_locks_before(self, world: World, client: Any, known: Any, valkey_server: Server) -> None:
        before = hubs()
        lock, renewed = world.lock(client, "with", 60), world.lock(client, "without")
        assert lock.acquire()
        assert renewed.acquire()
        close_locks(client)
        close_locks(client)
        wait_until(lambda: hubs() == before, 25, "the hub to end")
        wait_until(lambda: not valkey_server.command("EXISTS", "without"), 25, "the lock without a timeout to be free")
        assert valkey_server.command("PTTL", "with") > 30_000
        with pytest.raises(known.LockNotOwnedError):
            lock.release()
        # The client goes on, with a new thread when it is needed.
        again = world.lock(client, "without", 10)
        assert again.acquire(blocking=False)
        again.release()


def dies(url: str) -> None:
    """A program that ends without having released anything."""
    # A program has a second to give back what it holds: too little on a machine that stands still.
    manager.EXIT_TIMEOUT = manager_base.EXIT_TIMEOUT = lock_sessions.EXIT_TIMEOUT = 20.0
    client = blocking(url)
    assert client.lock("with", timeout=60, lock_class=Lock).acquire()
    assert client.lock("without", lock_class=Lock).acquire()
    kept = client.lock("kept", timeout=60, lock_class=Lock)
    assert kept.acquire()
    say("held", kept.local.token.decode())


def forks(url: str) -> None:
    """A program whose child leaves the parent's block."""
    client = blocking(url)
    lock = client.lock("foo", timeout=60, lock_class=Lock)
    assert lock.acquire()
    child = os.fork()
    if child == 0:
        try:
            lock.release()
        except LockNotOwnedError:
            say("refused", int(lock.owned()))
        mine = client.lock("bar", timeout=60, lock_class=Lock)
        say("child", int(mine.acquire(blocking=False)))
        mine.release()
        os._exit(0)
    os.waitpid(child, 0)
    say("parent", int(lock.owned()))
    lock.release()


class TestProcesses:
    def test_that_end_leave_keys_to_their_timeouts_and_give_the_others_back(
        self, url: str, valkey_server: Server
    ) -> None:
        with Worker.start(dies, url) as worker:
            token = worker.read_line(30).split()[1]
            assert worker.wait(60) == 0
        assert not valkey_server.command("EXISTS", "without")
        assert valkey_server.command("PTTL", "with") > 30_000
        client = blocking(url)
        Lock(client, "kept").do_release(token)
        assert not valkey_server.command("EXISTS", "kept")
        client.close()

    def test_that_are_killed_leave_the_others_for_half_a_minute(self, url: str, valkey_server: Server) -> None:
        client = blocking(url)
        lock = Lock(client, "foo")
        assert lock.acquire()
        # What the server would be left with.
        assert 20_000 < valkey_server.command("PTTL", "foo") <= 30_500
        lock.release()
        client.close()

    def test_that_are_forks_own_nothing(self, url: str) -> None:
        with Worker.start(forks, url) as worker:
            assert [worker.read_line(30) for _ in range(3)] == ["refused 0", "child 1", "parent 1"]
            assert worker.wait(30) == 0


class TestCancelling:
    def test_a_wait_leaves_nothing(self, url: str, valkey_server: Server) -> None:
        async def main() -> None:
            client, other = (in_loop(url) for _ in range(2))
            first = client.lock("foo", timeout=30, lock_class=AsyncLock)
            second = other.lock("foo", timeout=30, lock_class=AsyncLock)
            assert await first.acquire()
            waiting = asyncio.ensure_future(second.acquire())
            await wait_until_async(lambda: valkey_server.command("ZCARD", "{foo}:queue"), 30, "the waiter")
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            await wait_until_async(lambda: not valkey_server.command("ZCARD", "{foo}:queue"), 30, "an empty queue")
            await first.release()
            assert not await second.locked()
            assert second.local.token is None
            await client.aclose()
            await other.aclose()

        run_async(main)

    def test_a_release_leaves_it_to_be_done_again(self, url: str) -> None:
        async def main() -> None:
            client = in_loop(url)
            lock = client.lock("foo", timeout=30, lock_class=AsyncLock)
            assert await lock.acquire()
            releasing = asyncio.ensure_future(lock.release())
            # One step: the request is on its way.
            await asyncio.sleep(0)
            releasing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await releasing
            assert lock.local.token is not None
            await lock.release()
            assert not await lock.locked()
            await client.aclose()

        run_async(main)


def test_the_way_to_the_shared_locks_is_by_the_client_itself(url: str) -> None:
    first, second = (blocking(url) for _ in range(2))
    assert blocking_locks(first) is blocking_locks(first)
    assert blocking_locks(first) is not blocking_locks(second)
    first.close()
    second.close()


def hubs() -> int:
    """How many hubs run in this process."""
    return sum(thread.name == HUB for thread in threading.enumerate())
