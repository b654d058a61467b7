"""What it costs the server, what the server may forget, and what other users of a client must not notice."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

import tenure
from tests.harness.commands import CallCounter, Monitor
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from tests.conformance.flavours import AnyLocks, Flavour
    from tests.harness.servers import Server


@pytest.fixture
def locks(flavour: Flavour, any_url: str, namespace: str) -> AnyLocks:
    """Locks that wait ten seconds for an answer: a request that a slow machine has repeated would be one too many."""
    return flavour.locks(any_url, namespace=namespace, server_timeout=30)


@pytest.fixture
def others(flavour: Flavour, any_url: str, namespace: str) -> AnyLocks:
    """The same for another client."""
    return flavour.locks(any_url, namespace=namespace, server_timeout=30)


class TestRequests:
    def test_an_uncontended_acquire_and_its_release_are_one_each(self, locks: AnyLocks, any_server: Server) -> None:
        locks.warm()
        lock = locks.lock("a", ttl=30)
        with CallCounter(any_server.admin) as acquired:
            lease = lock.acquire()
        with CallCounter(any_server.admin) as released:
            lease.release()
        assert (acquired.scripts, released.scripts) == (1, 1)
        with CallCounter(any_server.admin) as block:
            for _ in range(20):
                with lock.block():
                    pass
        assert block.scripts == 40

    def test_they_are_no_other_commands_either(self, locks: AnyLocks, any_server: Server) -> None:
        locks.warm()
        lock = locks.lock("a", ttl=30)
        with Monitor(any_server) as monitor:
            for _ in range(5):
                with lock.block():
                    pass
            seen = [request.args[0].upper() for request in monitor.requests()]
        # The inbox is looked after every five seconds, which may be now.
        assert [command for command in seen if command != b"PING"] == [b"EVALSHA"] * 10

    def test_a_failed_try_is_one(self, locks: AnyLocks, others: AnyLocks, any_server: Server) -> None:
        locks.warm()
        others.warm()
        with others.lock("a").block(), CallCounter(any_server.admin) as counter:
            assert locks.lock("a").try_acquire() is None
        assert counter.scripts <= 2  # and the release of the other's block

    def test_a_hand_over_is_two(self, locks: AnyLocks, others: AnyLocks, flavour: Flavour, any_server: Server) -> None:
        """One by which the waiter has queued, one by which the holder gives the lock to it; nothing in between."""
        locks.warm()
        others.warm()
        rounds = 10

        def turns(who: AnyLocks, first: threading.Event) -> None:
            lock = who.lock("a", ttl=30)
            for _ in range(rounds):
                with lock.block():
                    first.set()
                    # Not released before the other one waits, or there would be nothing to hand over.
                    wait_until(lambda: queued() or done, 30, "the other one to queue")
            done.append(1)

        done: list[int] = []

        def queued() -> bool:
            return any_server.command("ZCARD", f"{{{locks.raw.namespace}:a}}:queue") > 0

        started = threading.Event()
        with CallCounter(any_server.admin) as counter:
            one = flavour.spawn(turns, locks, started)
            assert started.wait(30)
            two = flavour.spawn(turns, others, started)
            one.result(30)
            two.result(30)
        # The first and the last turn are no hand-overs, but one acquire and one release all the same.
        assert counter.scripts == 2 * 2 * rounds
        assert counter.commands.get("spublish", 0) + counter.commands.get("publish", 0) == 2 * rounds - 1

    def test_waiting_costs_nothing(self, locks: AnyLocks, others: AnyLocks, any_server: Server) -> None:
        # A holder that the server cannot reach yet would tell its inbox after a second: one call more.
        locks.warm()
        others.warm()
        lease = others.lock("a", ttl=60).acquire()
        began = time.monotonic()
        waiting = [locks.queue("a", ttl=60) for _ in range(5)]
        with CallCounter(any_server.admin) as counter:
            locks.lock("b", ttl=5).acquire().release()
            assert locks.statistics().waiting == 5
        # None but the polls that repair lost messages, each waiter's first of which is due after five seconds.
        assert 2 <= counter.scripts <= 2 + 5 * ((time.monotonic() - began) // 5)
        lease.release()
        for future in waiting:
            future.result(30).release()

    def test_constructing_a_lock_is_none(self, locks: AnyLocks, any_server: Server) -> None:
        locks.warm()
        with CallCounter(any_server.admin) as counter:
            for number in range(50):
                locks.lock(f"name {number}", ttl=3, info="x")
        assert counter.scripts == 0


class TestAServerThatForgetsScripts:
    def test_is_sent_them_again_unseen(self, locks: AnyLocks, others: AnyLocks, any_server: Server) -> None:
        locks.warm()
        lock = locks.lock("a", ttl=5)
        any_server.command("SCRIPT", "FLUSH")
        lease = lock.acquire()
        any_server.command("SCRIPT", "FLUSH")
        lease.renew()
        any_server.command("SCRIPT", "FLUSH")
        assert locks.holder("a") is not None
        waiting = others.queue("a", ttl=5)
        any_server.command("SCRIPT", "FLUSH")
        assert lease.release() is tenure.Released.RELEASED
        any_server.command("SCRIPT", "FLUSH")
        handed = waiting.result(30)
        assert handed.release() is tenure.Released.RELEASED
        assert locks.statistics().broken_connections == 0

    def test_costs_one_call_more_once(self, locks: AnyLocks, any_server: Server) -> None:
        locks.warm()
        lock = locks.lock("a", ttl=5)
        any_server.command("SCRIPT", "FLUSH")
        with CallCounter(any_server.admin) as counter:
            lock.acquire().release()
            lock.acquire().release()
        # Acquire and release, each tried by its hash and sent once, then two by hash.
        assert counter.scripts == 6


class TestAnInjectedClient:
    def test_in_the_middle_of_a_transaction_is_not_disturbed(
        self, flavour: Flavour, any_url: str, any_server: Server, namespace: str
    ) -> None:
        client = flavour.client(any_url)
        locks = flavour.locks(client, namespace=namespace)
        any_server.command("SET", "testdata:watched", 1)
        ready, go_on = threading.Event(), threading.Event()

        async def in_asyncio() -> Any:  # noqa: ANN401
            async with client.pipeline() as pipeline:
                await pipeline.watch("testdata:watched")
                value = await pipeline.get("testdata:watched")
                pipeline.multi()
                pipeline.incrby("testdata:watched", int(value))
                ready.set()
                await _until(go_on)
                return await pipeline.execute()

        def in_a_thread() -> Any:  # noqa: ANN401
            with client.pipeline() as pipeline:
                pipeline.watch("testdata:watched")
                value = pipeline.get("testdata:watched")
                pipeline.multi()
                pipeline.incrby("testdata:watched", int(value))
                ready.set()
                assert go_on.wait(30)
                return pipeline.execute()

        transaction = flavour.spawn(flavour.call, in_a_thread if flavour.kind == "blocking" else in_asyncio)
        assert ready.wait(30)
        with locks.lock("a", ttl=5).block() as lease:
            lease.renew()
            waiting = locks.queue("a", ttl=5)
        waiting.result(30).release()
        go_on.set()
        assert transaction.result(30) == [2]
        assert flavour.call(client.get, "testdata:watched") == b"2"

    def test_keeps_its_pool_to_itself(self, flavour: Flavour, any_url: str, namespace: str) -> None:
        client = flavour.client(any_url, max_connections=1)
        flavour.call(client.ping)
        locks = flavour.locks(client, namespace=namespace)
        pool = client.connection_pool
        before = len(pool._available_connections)
        with locks.lock("a", ttl=5).block():
            assert [flavour.spawn(locks.lock("a").try_acquire).result() for _ in range(3)] == [None] * 3
            assert flavour.call(client.ping)
        assert len(pool._available_connections) == before == 1


async def _until(event: threading.Event) -> None:
    import asyncio  # noqa: PLC0415 - one function's need

    for _ in range(6000):
        if event.is_set():
            return
        await asyncio.sleep(0.005)
    pytest.fail("waited 30 s for the test to go on")
