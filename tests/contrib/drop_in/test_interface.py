# ruff: noqa: ANN401 - two flavours and two libraries have no type in common
"""The drop-in locks are what callers of redis-py's and valkey-py's own class expect, and more."""

from __future__ import annotations

import inspect
import re
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
import redis
import redis.asyncio.lock
import redis.lock

import tenure
from tenure.contrib.redis_py import AsyncLock, Lock, namespaced
from tests.harness.leases import age
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from tests.contrib.drop_in.world import World
    from tests.harness.servers import Server

NAMES = ["foo", "a:b c", "{user}:1", "100%", "ключ", b"bytes \xff", memoryview(b"view")]
SLACK = 5000
"""Milliseconds by which a slow machine may be late where a key's life is looked at."""


class TestInterface:
    @pytest.mark.parametrize(("ours", "theirs"), [(Lock, redis.lock.Lock), (AsyncLock, redis.asyncio.lock.Lock)])
    def test_takes_what_theirs_takes(self, ours: type, theirs: type) -> None:
        methods = ("__init__", "acquire", "release", "do_release", "locked", "owned", "extend", "reacquire")
        for method in methods:
            mine, original = (inspect.signature(getattr(cls, method)).parameters for cls in (ours, theirs))
            assert list(mine) == list(original), method
            assert [p.default for p in mine.values()] == [p.default for p in original.values()], method

    @pytest.mark.parametrize(
        "name", [name for name, value in vars(Lock).items() if inspect.isfunction(value) and name[0] != "_"]
    )
    def test_is_the_same_in_both_flavours(self, name: str) -> None:
        blocking, aio = getattr(Lock, name), getattr(AsyncLock, name)
        assert blocking.__doc__
        # Theirs has it in one flavour only.
        assert re.sub(r" +sleep: .*\n", "", blocking.__doc__) == aio.__doc__
        taken = [p for p in inspect.signature(blocking).parameters.values() if p.name != "sleep"]
        assert taken == list(inspect.signature(aio).parameters.values())
        assert inspect.iscoroutinefunction(aio)

    def test_has_the_attributes_of_theirs(self, world: World, client: Any) -> None:
        mine, original = world.lock(client, "foo", 5).raw, world.theirs(client, "foo", 5).raw
        shared = {"name", "timeout", "sleep", "blocking", "blocking_timeout"}
        assert [getattr(mine, key) for key in shared] == [getattr(original, key) for key in shared]
        assert mine.local.token is None
        assert mine.redis is client

    @pytest.mark.parametrize("timeout", [-1, float("nan"), True, "5"])
    def test_refuses_a_timeout_that_cannot_be(self, timeout: Any, world: World, client: Any) -> None:
        with pytest.raises(ValueError, match="timeout"):
            world.lock(client, "foo", timeout)

    def test_refuses_a_client_of_the_other_flavour(self, world: World, client: Any) -> None:
        wrong = AsyncLock if world.flavour.kind == "blocking" else Lock
        with pytest.raises(tenure.ConfigError, match="other kind of client"):
            wrong(client, "foo")
        with pytest.raises(tenure.ConfigError, match="other flavour"):
            wrong(namespaced(client, "shop"), "foo")

    @pytest.mark.parametrize("cls", [redis.RedisCluster, redis.asyncio.RedisCluster], ids=["blocking", "asyncio"])
    def test_refuses_a_client_of_a_cluster(self, cls: Any) -> None:
        made = Lock if cls is redis.RedisCluster else AsyncLock
        # Without its constructor, which looks for the cluster.
        with pytest.raises(tenure.ConfigError, match="not supported by this version"):
            made(object.__new__(cls), "foo")

    def test_inherits_nothing_that_works_on_another_format(self) -> None:
        assert not issubclass(Lock, redis.lock.Lock)
        assert not issubclass(AsyncLock, redis.asyncio.lock.Lock)

    def test_hides_its_token_in_its_repr(self, world: World, client: Any) -> None:
        lock = world.lock(client, "foo", 5)
        lock.acquire()
        assert lock.local.token.decode() not in repr(lock.raw)
        assert "'foo'" in repr(lock.raw)
        lock.release()


class TestExclusion:
    @pytest.mark.parametrize("name", NAMES, ids=lambda name: bytes(name).hex() if not isinstance(name, str) else name)
    def test_works_both_ways_on_any_name(self, name: Any, world: World, client: Any, other: Any) -> None:
        ours, theirs = world.lock(client, name, 10), world.theirs(other, name, 10)
        assert ours.acquire(blocking=False)
        assert theirs.locked()
        assert not theirs.acquire(blocking=False)
        ours.release()
        assert theirs.acquire(blocking=False)
        assert ours.locked()
        assert not ours.owned()
        assert not ours.acquire(blocking=False)
        assert not ours.acquire(blocking_timeout=0.05)
        theirs.release()
        assert ours.acquire(blocking_timeout=10)
        ours.release()

    def test_goes_by_decoded_responses_too(self, world: World, other: Any) -> None:
        decoding = world.client(decode_responses=True)
        with world.lock(decoding, "foo", 10).block() as lock:
            assert world.flavour.call(lock.owned)
            assert not world.theirs(other, "foo").acquire(blocking=False)

    @pytest.mark.parametrize("name", ["foo", "{user}:1"])
    def test_stays_in_the_namespace_of_a_namespaced_client(
        self, name: str, world: World, client: Any, other: Any, valkey_server: Server
    ) -> None:
        inside = world.adopted(namespaced(other, "shop"))
        lock, outside = world.lock(inside, name, 10), world.lock(client, name, 10)
        assert lock.acquire(token="test")
        assert outside.acquire(blocking=False)
        assert lock.owned()
        assert not world.theirs(client, f"shop:{name}").acquire(blocking=False)
        assert set(valkey_server.command("KEYS", "*shop*")) >= {f"shop:{name}".encode()}
        again = world.lock(inside, name, 10)
        again.do_release("test")
        assert not lock.locked()
        outside.release()

    def test_in_one_thread_a_second_lock_object_waits_as_theirs_does(self, world: World, client: Any) -> None:
        first, second = world.lock(client, "foo", 10), world.lock(client, "foo", 10)
        assert first.acquire()
        assert not second.acquire(blocking=False)
        assert not second.acquire(blocking_timeout=0.1)
        assert not first.acquire(blocking_timeout=0.1)
        first.release()

    def test_the_holders_time_runs_out_under_the_waiter(self, world: World, client: Any, other: Any) -> None:
        assert world.lock(client, "foo", 1).acquire()
        second = world.lock(other, "foo", 10)
        assert second.acquire(blocking_timeout=10)
        second.release()


class TestHandOver:
    def test_in_the_order_of_arrival(self, world: World, client: Any, valkey_server: Server) -> None:
        order: list[int] = []
        first = world.lock(client, "foo", 30)
        assert first.acquire()
        waiting: list[Any] = []

        def turn(number: int) -> None:
            lock = world.lock(world.client(), "foo", 30)
            assert lock.acquire(blocking_timeout=30)
            order.append(number)
            lock.release()

        for number in range(5):
            waiting.append(world.flavour.spawn(turn, number))
            wait_until(lambda: valkey_server.command("ZCARD", "{foo}:queue") == len(waiting), 30, "the waiter to queue")
        first.release()
        for future in waiting:
            future.result(30)
        assert order == list(range(5))

    def test_nobody_polls(self, world: World, client: Any, other: Any, valkey_server: Server) -> None:
        first, second = world.lock(client, "foo", 30), world.lock(other, "foo", 30, sleep=0.001)
        assert first.acquire()
        future = world.flavour.spawn(second.acquire, blocking_timeout=30)
        wait_until(lambda: valkey_server.command("ZCARD", "{foo}:queue"), 30, "the waiter to queue")
        before = scripts(valkey_server)
        time.sleep(0.5)
        # Theirs would have asked 500 times by now.
        assert scripts(valkey_server) - before <= 5
        first.release()
        assert future.result(30)
        world.flavour.spawn(lambda: None).result(10)
        assert second.locked()

    def test_fences_rise(self, world: World, client: Any, other: Any) -> None:
        locks = [world.lock(made, "foo", 10) for made in (client, other, client)]
        assert locks[0].fence is None
        assert locks[0].lease is None
        fences: list[int] = []
        for lock in locks:
            assert lock.acquire()
            assert lock.lease.valid
            fences.append(lock.fence)
            lock.release()
            assert lock.fence is None
        assert fences == sorted(set(fences))


class TestTimes:
    def test_a_key_lives_for_its_timeout(self, world: World, client: Any, valkey_server: Server) -> None:
        lock = world.lock(client, "foo", 10)
        assert lock.acquire()
        assert 10_000 - SLACK < valkey_server.command("PTTL", "foo") <= 10_000
        assert lock.extend(10)
        assert 20_000 - SLACK < valkey_server.command("PTTL", "foo") <= 20_000
        assert lock.reacquire()
        assert lock.lease.remaining() <= 10
        lock.release()

    def test_a_shorter_time_ends_the_lease_though_not_the_key(self, world: World, client: Any, other: Any) -> None:
        lock = world.lock(client, "foo", 600)
        assert lock.acquire()
        assert lock.extend(1, replace_ttl=True)
        # While this process lives its hub gives the key back at that moment.
        second = world.lock(other, "foo", 10)
        assert second.acquire(blocking_timeout=10)
        assert not lock.owned()
        second.release()

    def test_without_a_timeout_it_is_renewed(self, world: World, client: Any, valkey_server: Server) -> None:
        lock = world.lock(client, "foo")
        assert lock.acquire()
        assert 20_000 < valkey_server.command("PTTL", "foo") < 31_000
        valkey_server.command("PEXPIRE", "foo", 15_000)
        age(lock.lease, 11)
        wait_until(lambda: valkey_server.command("PTTL", "foo") > 20_000, 30, "the renewal")
        assert lock.owned()
        lock.release()

    def test_with_one_it_is_not(self, world: World, client: Any, known: Any) -> None:
        lock = world.lock(client, "foo", 1)
        assert lock.acquire()
        wait_until(lambda: not lock.owned(), 10, "the end of the lock")
        with pytest.raises(known.LockNotOwnedError):
            lock.extend(10)
        with pytest.raises(known.LockNotOwnedError):
            lock.release()
        assert lock.local.token is None
        with pytest.raises(known.LockError):
            lock.release()


class TestThreads:
    def test_a_token_is_the_threads_own(self, world: World, client: Any, known: Any) -> None:
        lock = world.lock(client, "foo", 10, thread_local=True)
        assert lock.acquire()

        def elsewhere() -> None:
            # Theirs has no attribute here, and ends in AttributeError.
            assert lock.raw.local.token is None
            if world.flavour.kind == "blocking":
                with pytest.raises(known.LockError):
                    lock.release()

        run_in_thread(elsewhere)
        assert lock.owned()
        lock.release()

    def test_or_everybodys(self, world: World, client: Any) -> None:
        lock = world.lock(client, "foo", 10, thread_local=False)
        assert lock.acquire()
        run_in_thread(lock.release)
        assert not lock.locked()


class TestErrors:
    def test_of_a_block(self, world: World, client: Any, other: Any, known: Any, caplog: Any) -> None:
        assert world.theirs(other, "foo", 30).acquire()
        with pytest.raises(known.LockError, match="time specified"), world.lock(client, "foo", blocking=False).block():
            pass
        if world.library == "redis":
            with world.lock(client, "bar", 10, raise_on_release_error=False).block() as lock:
                world.flavour.call(lock.release)
            assert "before its block ended" in caplog.text

    def test_of_a_key_that_is_no_lock(self, world: World, client: Any, known: Any, valkey_server: Server) -> None:
        valkey_server.command("RPUSH", "testdata:foo", "x")
        with pytest.raises(known.LockError, match="list"):
            world.lock(client, "testdata:foo", 10).acquire(blocking=False)

    def test_of_rights(self, world: World, known: Any, valkey_server: Server) -> None:
        url = valkey_server.acl_user("jo", "pw", "~*", "+ping", "+hello", "+client|setinfo", "+select", "+time")
        with pytest.raises(known.NoPermissionError):
            world.lock(world.client(url), "foo", 10).acquire()

    def test_of_credentials(self, world: World, known: Any, valkey_server: Server) -> None:
        valkey_server.acl_user("jim", "pw", "~*", "+@all")
        url = valkey_server.url.replace("//", "//jim:wrong@")
        with pytest.raises(known.ConnectionError):
            world.lock(world.client(url), "foo", 10).acquire()

    def test_of_a_replica(self, world: World, known: Any, private_server: Server) -> None:
        private_server.command("REPLICAOF", "127.0.0.1", "1")
        with pytest.raises(known.ReadOnlyError):
            world.lock(world.client(private_server.url), "foo", 10).acquire()

    @pytest.mark.parametrize("world", ["redis"], indirect=True)
    def test_of_a_server_that_is_away_leave_the_release_to_be_tried_again(
        self, world: World, known: Any, private_server: Server
    ) -> None:
        lock = world.lock(world.client(private_server.url), "foo", 60)
        assert lock.acquire()
        private_server.pause()
        try:
            with pytest.raises(known.ConnectionError):
                lock.release()
        finally:
            private_server.resume()
        assert lock.local.token is not None
        lock.release()
        assert lock.local.token is None
        assert not lock.locked()


def scripts(server: Server) -> int:
    """How many scripts the server has run."""
    stats = server.command("INFO", "commandstats")
    return sum(row["calls"] for name, row in stats.items() if name in ("cmdstat_eval", "cmdstat_evalsha"))


def run_in_thread(function: Any) -> None:
    """Run something in a thread of its own, to its end."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            function()
        except BaseException as error:  # noqa: BLE001 - told in the test's thread
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(30)
    assert not thread.is_alive()
    if failures:
        raise failures[0]
