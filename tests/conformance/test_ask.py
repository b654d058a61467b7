"""Asking a holder to release: who hears it, how often, and what the one who asks is told."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import TYPE_CHECKING, Any

import pytest

import tenure
from tenure.runtime import clock
from tenure.testing.clock import jump
from tests.harness.commands import CallCounter
from tests.harness.leases import age_waiters, wait_for_inbox
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from tests.conformance.flavours import AnyLocks, Flavour
    from tests.harness.servers import Server


def poll(client: AnyLocks) -> None:
    """Have the one waiter of a client ask again, and return when it has its answer."""
    (ticket,) = client.raw.session().hub.tickets.values()
    # The answer to its first request may still be on its way, and is none to a poll.
    wait_until(lambda: ticket.next_poll is not None, 30, "the answer before")
    before = ticket.sent_at
    age_waiters(client.raw, 10)
    wait_until(lambda: ticket.sent_at > before, 30, "the poll to be answered")


@pytest.fixture
def locks(locks: AnyLocks) -> AnyLocks:
    """Those of the holder; they can be reached from their first lease on."""
    locks.warm()
    return locks


class TestTheHolder:
    def test_hears_who_asks(self, flavour: Flavour, any_url: str, namespace: str, locks: AnyLocks) -> None:
        asking = flavour.locks(any_url, namespace=namespace, identity="impatient, köln")
        lease = locks.lock("a", ttl=60).acquire()
        assert lease.asked is None
        heard = asking.ask("a")
        assert heard is not None
        assert (heard.name, heard.fence, heard.pid) == ("a", lease.fence, os.getpid())
        assert lease.wait_asked(30)
        event = lease.asked
        assert event is not None
        assert (event.name, event.fence, event.pid, event.identity, event.info) == (
            "a", lease.fence, os.getpid(), "impatient, köln", None
        )  # fmt: skip
        assert event.id in repr(lease.raw)
        # To do nothing is to refuse.
        lease.check()
        lease.renew()
        lease.release()

    def test_is_told_once_by_hook_and_callback_however_often_it_is_asked(
        self, locks: AnyLocks, others: AnyLocks, events: list[tenure.Event]
    ) -> None:
        told: list[Any] = []
        lease = locks.lock("a", ttl=60, on_ask=told.append).acquire()
        lease.on_ask(told.append)
        for _ in range(5):
            assert others.ask("a") is not None
        wait_until(lambda: len(told) == 2, 30, "both callbacks")
        first = lease.asked
        # A sixth one is answered behind the five: then all of them have been heard.
        assert others.ask("a") is not None
        lease.renew()
        assert told == [lease.raw] * 2
        assert lease.asked is first
        wait_until(lambda: any(isinstance(event, tenure.AskedEvent) for event in events), 30, "the event")
        assert [event for event in events if isinstance(event, tenure.AskedEvent)] == [first]
        lease.release()

    def test_callback_that_comes_late_is_called_at_once(self, locks: AnyLocks, others: AnyLocks) -> None:
        lease = locks.lock("a", ttl=60).acquire()
        assert others.ask("a") is not None
        assert lease.wait_asked(30)
        told: list[Any] = []
        lease.on_ask(told.append)
        wait_until(lambda: told, 30, "the callback")
        lease.release()

    def test_callback_that_raises_harms_nobody(self, locks: AnyLocks, others: AnyLocks) -> None:
        told: list[Any] = []

        def refuse(lease: object) -> None:
            told.append(lease)
            raise ZeroDivisionError

        lease = locks.lock("a", ttl=60, on_ask=refuse).acquire()
        assert others.ask("a") is not None
        wait_until(lambda: told, 30, "the callback")
        lease.renew()
        assert lease.release() is tenure.Released.RELEASED

    def test_may_wait_to_be_asked_for_a_time(self, locks: AnyLocks, others: AnyLocks, flavour: Flavour) -> None:
        lease = locks.lock("a", ttl=60).acquire()
        assert not lease.wait_asked(0)
        assert not lease.wait_asked(0.05)
        waiting = flavour.spawn(lease.wait_asked, 25)
        assert others.ask("a") is not None
        assert waiting.result(30)
        assert lease.wait_asked(0)
        assert lease.wait_asked()
        lease.release()

    def test_is_reachable_although_its_lease_is_its_first(
        self, flavour: Flavour, any_url: str, namespace: str, others: AnyLocks
    ) -> None:
        """A client's first lease has no inbox yet; who wants to know of askers is announced once there is one."""
        fresh = flavour.locks(any_url, namespace=namespace)
        asked = threading.Event()

        def on_ask(lease: object) -> None:
            del lease
            asked.set()

        lease = fresh.lock("a", ttl=600, on_ask=on_ask).acquire()
        wait_for_inbox(fresh.raw)
        wait_until(lambda: others.ask("a"), 30, "somebody to hear it")
        assert asked.wait(30)
        lease.release()

    def test_of_a_lease_that_is_over_is_not_told(self, locks: AnyLocks, others: AnyLocks) -> None:
        told: list[Any] = []
        lease = locks.lock("a", ttl=60, on_ask=told.append).acquire()
        lease.release()
        assert others.ask("a") is None
        again = locks.lock("a", ttl=60).acquire()
        assert others.ask("a") is not None
        assert again.wait_asked(30)
        assert lease.asked is None
        assert not told
        again.release()

    def test_of_several_names_is_asked_for_any_of_them(self, locks: AnyLocks, others: AnyLocks) -> None:
        lease = locks.lock("a", "b", "c", ttl=60).acquire()
        assert others.ask("b") is not None
        assert lease.wait_asked(30)
        event = lease.asked
        assert event is not None
        assert (event.name, event.fence) == ("b", lease.fences["b"])
        lease.release()

    @pytest.mark.parametrize("shared", [True, False])
    def test_are_all_asked_when_they_are_many(
        self, locks: AnyLocks, others: AnyLocks, flavour: Flavour, *, shared: bool
    ) -> None:
        def take(client: AnyLocks) -> Any:  # noqa: ANN401
            lock = client.lock("a", ttl=60, shared=True) if shared else client.semaphore("a", 3, ttl=60)
            return lock.acquire()

        others.warm()
        leases = [take(locks), flavour.spawn(take, locks).result(30), take(others)]
        assert others.ask("a") is not None
        for lease in leases:
            assert lease.wait_asked(30)
            lease.release()


class TestWhoAsks:
    def test_for_a_free_lock_is_told_that_nobody_holds_it(self, others: AnyLocks) -> None:
        assert others.ask("a") is None

    def test_is_told_when_the_holder_cannot_hear(
        self, locks: AnyLocks, others: AnyLocks, any_server: Server, namespace: str
    ) -> None:
        lease = locks.lock("a", ttl=60).acquire()
        value = any_server.command("GET", f"{namespace}:a")
        lease.release()
        # The same key as a process that has died leaves it.
        any_server.command("SET", f"{namespace}:a", value.replace(b"@", b"@s0000dead"), "PX", 20_000)
        assert others.ask("a") is None
        with pytest.raises(tenure.NotAcquired, match="was asked to release, and did not hear it") as caught:
            others.lock("a", wait=0, ask_after=0).acquire()
        assert caught.value.heard is False

    def test_of_a_client_of_another_library_asks_nobody(
        self, others: AnyLocks, any_server: Server, namespace: str
    ) -> None:
        any_server.command("SET", f"{namespace}:a", "theirs", "PX", 20_000)
        assert others.ask("a") is None
        with pytest.raises(tenure.NotAcquired) as caught:
            others.lock("a", wait=0, ask_after=0).acquire()
        assert caught.value.heard is False

    def test_of_something_else_is_told_so(self, others: AnyLocks, any_server: Server, namespace: str) -> None:
        any_server.command("RPUSH", f"{namespace}:a", "x")
        any_server.command("PEXPIRE", f"{namespace}:a", 20_000)
        with pytest.raises(tenure.NameConflict, match=r"'a'.*list"):
            others.ask("a")

    @pytest.mark.parametrize("wait", [0, 0.3])
    def test_learns_from_the_error_that_the_holder_heard_it(
        self, locks: AnyLocks, others: AnyLocks, wait: float
    ) -> None:
        lease = locks.lock("a", ttl=60).acquire()
        with pytest.raises(tenure.NotAcquired, match="the holder was asked to release, and heard it") as caught:
            others.lock("a", wait=wait, ask_after=0).acquire()
        assert caught.value.heard is True
        assert lease.wait_asked(30)
        lease.release()

    def test_who_did_not_ask_learns_nothing(self, locks: AnyLocks, others: AnyLocks) -> None:
        lease = locks.lock("a", ttl=60).acquire()
        for options in ({"wait": 0}, {"wait": 0.1, "ask_after": 60}):
            with pytest.raises(tenure.NotAcquired) as caught:
                others.lock("a", **options).acquire()
            assert caught.value.heard is None
            assert "asked" not in str(caught.value)
        assert lease.asked is None
        lease.release()

    def test_tells_its_info(self, locks: AnyLocks, others: AnyLocks) -> None:
        lease = locks.lock("a", ttl=60).acquire()
        assert others.lock("a", wait=0, ask_after=0, info={"why": "a spaced out word"}).try_acquire() is None
        assert lease.wait_asked(30)
        assert lease.asked.info == {"why": "a spaced out word"}
        lease.release()

    @pytest.mark.parametrize("value", [-1, "1", True, float("nan"), float("inf")])
    def test_after_no_time_at_all_is_refused(self, locks: AnyLocks, value: Any) -> None:  # noqa: ANN401
        with pytest.raises(tenure.ConfigError, match="ask_after"):
            locks.lock("a", ask_after=value)


class TestAskAfter:
    def test_zero_asks_with_the_first_request(self, locks: AnyLocks, others: AnyLocks, any_server: Server) -> None:
        others.warm()
        lease = locks.lock("a", ttl=60).acquire()
        with CallCounter(any_server.admin) as counter:
            assert others.lock("a", ask_after=0).try_acquire() is None
        assert counter.scripts == 1
        assert lease.wait_asked(30)
        lease.release()

    def test_seconds_asks_after_them_and_not_before(
        self, locks: AnyLocks, others: AnyLocks, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(clock, "now", clock.now)
        lease = locks.lock("a", ttl=3600).acquire()
        waiting = others.queue("a", ttl=3600, ask_after=100)
        poll(others)
        assert not lease.wait_asked(0.1)
        jump(101)
        assert lease.wait_asked(30)
        lease.release()
        waiting.result(30).release()

    def test_asks_again_with_each_poll(self, locks: AnyLocks, others: AnyLocks, any_server: Server) -> None:
        lease = locks.lock("a", ttl=60).acquire()
        with CallCounter(any_server.admin) as counter:
            waiting = others.queue("a", ttl=60, ask_after=0)
            for _ in range(3):
                poll(others)
        assert counter.commands.get("spublish", 0) + counter.commands.get("publish", 0) >= 4
        lease.release()
        waiting.result(30).release()

    def test_a_holder_that_reacts_hands_it_over(self, locks: AnyLocks, others: AnyLocks, flavour: Flavour) -> None:
        lease = locks.lock("a", ttl=60).acquire()

        def react() -> tenure.Released:
            assert lease.wait_asked(25)
            return lease.release()

        reacting = flavour.spawn(react)
        taken = others.lock("a", ttl=60, wait=30, ask_after=0).acquire()
        assert reacting.result(30) is tenure.Released.RELEASED
        assert taken.fence > lease.fence
        taken.release()

    def test_a_callback_may_give_the_lock_back_itself(
        self, locks: AnyLocks, others: AnyLocks, flavour: Flavour
    ) -> None:
        releasing: list[Any] = []

        def on_ask(lease: Any) -> None:  # noqa: ANN401
            if flavour.kind == "asyncio":
                releasing.append(asyncio.ensure_future(lease.release()))
            else:
                releasing.append(lease.release())

        lease = locks.lock("a", ttl=60, on_ask=on_ask).acquire()
        taken = others.lock("a", ttl=60, wait=30, ask_after=0).acquire()
        # The lock is handed over before its release has returned.
        wait_until(lambda: len(releasing) == 1, 30, "the callback to end")
        assert not lease.valid
        assert lease.lost is None
        taken.release()

    def test_the_next_holder_is_asked_too(self, locks: AnyLocks, others: AnyLocks, any_server: Server) -> None:
        """One who waits behind another that has no hurry: the second holder hears it as well."""
        first = locks.lock("a", ttl=60).acquire()
        between = locks.queue("a", ttl=60)
        waiting = others.queue("a", ttl=60, ask_after=0)
        assert first.wait_asked(30)
        first.release()
        second = between.result(30)
        poll(others)
        assert second.wait_asked(30)
        second.release()
        waiting.result(30).release()

    def test_a_writer_asks_all_readers(self, locks: AnyLocks, others: AnyLocks, flavour: Flavour) -> None:
        reader = locks.lock("a", ttl=60, shared=True)
        leases = [reader.acquire(), flavour.spawn(reader.acquire).result(30)]
        waiting = others.queue("a", ttl=60, ask_after=0)
        for lease in leases:
            assert lease.wait_asked(30)
            assert not waiting.done()
            lease.release()
        waiting.result(30).release()

    def test_several_names_ask_for_the_one_that_is_held(
        self, locks: AnyLocks, others: AnyLocks, flavour: Flavour
    ) -> None:
        lease = locks.lock("b", ttl=60).acquire()
        waiting = flavour.spawn(others.lock("a", "b", "c", ttl=60, ask_after=0).acquire)
        assert lease.wait_asked(30)
        lease.release()
        waiting.result(30).release()


class TestCallbacks:
    @pytest.mark.parametrize("callback", [5, "f"])
    def test_must_be_callable(self, locks: AnyLocks, callback: Any) -> None:  # noqa: ANN401
        with pytest.raises(tenure.ConfigError, match="on_ask must be callable"):
            locks.lock("a", on_ask=callback)
        with locks.lock("a").block() as lease, pytest.raises(tenure.ConfigError, match="on_ask must be callable"):
            lease.on_ask(callback)

    def test_must_be_plain_functions(self, locks: AnyLocks) -> None:
        async def coroutine(lease: object) -> None:
            del lease

        with pytest.raises(tenure.ConfigError, match="on_ask must be a plain function"):
            locks.lock("a", on_ask=coroutine)

    def test_run_where_the_flavour_says(self, locks: AnyLocks, others: AnyLocks, flavour: Flavour) -> None:
        where: list[int] = []

        def on_ask(lease: object) -> None:
            del lease
            where.append(threading.get_ident())

        lease = locks.lock("a", ttl=60, on_ask=on_ask).acquire()
        assert others.ask("a") is not None
        wait_until(lambda: where, 30, "the callback")
        loop = flavour.call(threading.get_ident)
        hub = locks.raw.session().hub._thread
        assert hub is not None
        assert where[0] != hub.ident
        # asyncio: in the event loop's thread; blocking: in a thread of its own.
        assert (where[0] == loop) is (flavour.kind == "asyncio")
        lease.release()
