"""Who waits for whom: circles are named to those who ask, and to the one who gives up waiting in one."""

from __future__ import annotations

import copy
import itertools
import threading
from typing import TYPE_CHECKING, Any

import pytest

import tenure
from tests.harness.commands import CallCounter
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from tests.conformance.flavours import AnyLocks, Flavour
    from tests.harness.servers import Server

LONG = 25
SHORT = 0.3


@pytest.fixture
def locks(locks: AnyLocks) -> AnyLocks:
    """Those whose inbox stands: a thread or task without one has no name that others could see."""
    locks.warm()
    return locks


@pytest.fixture
def others(others: AnyLocks) -> AnyLocks:
    """The same for another client."""
    others.warm()
    return others


class Someone:
    """A thread or task that holds one lock, and waits for another one when it is told to."""

    def __init__(self, flavour: Flavour, client: AnyLocks, holds: str, *, shared: bool = False) -> None:
        self._client = client
        self._shared = shared
        self._go_on = threading.Event()
        self._held = threading.Event()
        self._wish: Callable[[], object] = list[Any]().pop
        self.holds = holds
        self.done: Future[tenure.NotAcquired | None] = flavour.spawn(self._live)
        assert self._held.wait(30)

    def _live(self) -> tenure.NotAcquired | None:
        with self._client.lock(self.holds, ttl=60, shared=self._shared, on_exit_lost="note").block():
            self._held.set()
            assert self._go_on.wait(60)
            try:
                self._wish()
            except tenure.NotAcquired as error:
                return error
        return None

    def wait_for(self, name: str, seconds: float, *, by_block: bool = False) -> None:
        """Start to wait; returns when it stands in the queue."""
        before = {waiter.id for waiter in self._client.waiters(name)}
        lock = self._client.lock(name, ttl=60, wait=seconds)

        def block() -> None:
            with lock.block():
                pass

        self._wish = block if by_block else lambda: lock.acquire().release()
        self._go_on.set()
        wait_until(
            lambda: self.done.done() or {w.id for w in self._client.waiters(name)} - before,
            30,
            f"one who waits for {name}",
        )


def circle(flavour: Flavour, clients: list[AnyLocks], names: str) -> list[Someone]:
    """Each holds one of the locks, and all but the last one wait for the next one's."""
    people = [Someone(flavour, client, name) for client, name in zip(itertools.cycle(clients), names, strict=False)]
    for person, following in itertools.pairwise(people):
        person.wait_for(following.holds, LONG)
    return people


class TestACircle:
    @pytest.mark.parametrize(("names", "by_block"), [("ab", False), ("ab", True), ("abcde", False)])
    def test_is_named_to_the_one_who_gives_up(
        self, flavour: Flavour, locks: AnyLocks, others: AnyLocks, names: str, *, by_block: bool
    ) -> None:
        people = circle(flavour, [locks, others], names)
        people[-1].wait_for("a", SHORT, by_block=by_block)
        error = people[-1].done.result(30)
        assert error is not None
        assert error.names == ("a",)
        assert error.deadlock is not None
        assert error.deadlock in str(error)
        assert "take the locks in one call, or everywhere in the same order" in str(error)
        assert all(f"{name!r}, held by" in error.deadlock for name in names)
        assert copy.copy(error).deadlock == error.deadlock
        # It has given up, and with it its lock: the others go on.
        assert [person.done.result(30) for person in people[:-1]] == [None] * (len(names) - 1)

    def test_is_shown_to_whoever_looks(self, flavour: Flavour, locks: AnyLocks, others: AnyLocks) -> None:
        assert locks.deadlocks() == []
        people = circle(flavour, [locks, others], "abc")
        # A chain is none yet.
        assert locks.deadlocks() == []
        people[-1].wait_for("a", LONG)
        (found,) = others.deadlocks()
        assert sorted(waiter.name for waiter in found) == ["a", "b", "c"]
        assert len({waiter.context for waiter in found}) == 3
        # Each waits for a lock that the next one holds.
        for waiter, following in itertools.pairwise([*found, found[0]]):
            assert [holder.context for holder in others.holders(waiter.name)] == [following.context]
        others.break_lock("a", force=True)
        assert [person.done.result(30) for person in people] == [None] * 3
        assert locks.deadlocks() == []

    def test_two_are_told_apart(self, flavour: Flavour, locks: AnyLocks, others: AnyLocks) -> None:
        people = circle(flavour, [locks, others], "ab")
        more = circle(flavour, [locks, others], "cd")
        people[-1].wait_for("a", LONG)
        more[-1].wait_for("c", LONG)
        found = locks.deadlocks()
        assert sorted("".join(sorted(waiter.name for waiter in each)) for each in found) == ["ab", "cd"]
        for name in "ac":
            others.break_lock(name, force=True)
        assert [person.done.result(30) for person in people + more] == [None] * 4

    def test_of_readers_who_both_want_to_write(self, flavour: Flavour, locks: AnyLocks, others: AnyLocks) -> None:
        one = Someone(flavour, locks, "a", shared=True)
        beside = Someone(flavour, locks, "a", shared=True)
        two = Someone(flavour, others, "b", shared=True)
        one.wait_for("b", LONG)
        two.wait_for("a", SHORT)
        error = two.done.result(30)
        assert error is not None
        assert error.deadlock is not None
        assert one.done.result(30) is None
        beside.wait_for("c", LONG)
        assert beside.done.result(30) is None


class TestNoCircle:
    def test_a_chain_is_not_named(self, flavour: Flavour, locks: AnyLocks, others: AnyLocks) -> None:
        people = circle(flavour, [locks, others], "abc")
        free = Someone(flavour, locks, "d")
        free.wait_for("a", SHORT)
        error = free.done.result(30)
        assert error is not None
        assert error.deadlock is None
        assert "deadlock" not in str(error)
        people[-1].wait_for("d", LONG)
        assert [person.done.result(30) for person in people] == [None] * 3

    def test_one_who_holds_nothing_closes_none(self, flavour: Flavour, locks: AnyLocks, others: AnyLocks) -> None:
        people = circle(flavour, [locks, others], "ab")
        with pytest.raises(tenure.NotAcquired) as caught:
            flavour.spawn(others.lock("a", wait=SHORT).acquire).result(30)
        assert caught.value.deadlock is None
        people[-1].wait_for("c", LONG)
        for person in people:
            assert person.done.result(30) is None

    def test_the_same_client_in_other_threads_or_tasks_is_somebody_else(
        self, flavour: Flavour, locks: AnyLocks
    ) -> None:
        one, two = Someone(flavour, locks, "a"), Someone(flavour, locks, "b")
        one.wait_for("b", SHORT)
        error = one.done.result(30)
        assert error is not None
        assert error.deadlock is None
        two.wait_for("c", LONG)
        assert two.done.result(30) is None

    def test_one_try_waits_for_nobody(self, flavour: Flavour, locks: AnyLocks, others: AnyLocks) -> None:
        people = circle(flavour, [locks, others], "ab")
        people[-1].wait_for("a", 0)
        error = people[-1].done.result(30)
        assert error is not None
        assert error.deadlock is None
        assert people[0].done.result(30) is None

    def test_a_failed_try_looks_for_nothing(
        self, locks: AnyLocks, others: AnyLocks, flavour: Flavour, any_server: Server
    ) -> None:
        held = others.lock("a", ttl=60).acquire()
        with locks.lock("b", ttl=60).block(), CallCounter(any_server.admin) as counter:
            assert locks.lock("a").try_acquire() is None
            with pytest.raises(tenure.NotAcquired):
                locks.lock("a", wait=0).acquire()
        assert counter.commands.get("scan", 0) == 0
        assert flavour.spawn(held.release).result(30) is tenure.Released.RELEASED

    def test_what_is_no_lock_is_passed_over(
        self, flavour: Flavour, locks: AnyLocks, others: AnyLocks, any_server: Server, namespace: str
    ) -> None:
        any_server.command("ZADD", f"{{{namespace}:odd}}:queue", 1, "x")
        any_server.command("PEXPIRE", f"{{{namespace}:odd}}:queue", 30_000)
        any_server.command("RPUSH", f"{namespace}:odd", "x")
        any_server.command("PEXPIRE", f"{namespace}:odd", 30_000)
        assert locks.deadlocks() == []
        people = circle(flavour, [locks, others], "ab")
        people[-1].wait_for("a", SHORT)
        error = people[-1].done.result(30)
        assert error is not None
        assert error.deadlock is not None
        assert people[0].done.result(30) is None

    def test_other_namespaces_are_none_of_ours(
        self, flavour: Flavour, any_url: str, namespace: str, locks: AnyLocks
    ) -> None:
        elsewhere = [flavour.locks(any_url, namespace=f"{namespace}2") for _ in range(2)]
        for client in elsewhere:
            client.warm()
        people = circle(flavour, elsewhere, "ab")
        people[-1].wait_for("a", LONG)
        assert locks.deadlocks() == []
        assert len(elsewhere[0].deadlocks()) == 1
        elsewhere[0].break_lock("a", force=True)
        assert [person.done.result(30) for person in people] == [None] * 2


def test_names_in_one_call_close_no_circle(flavour: Flavour, locks: AnyLocks, others: AnyLocks) -> None:
    with locks.lock("b", "a", ttl=60).block():
        with pytest.raises(tenure.NotAcquired) as caught:
            flavour.spawn(others.lock("a", "b", wait=SHORT).acquire).result(30)
        assert caught.value.deadlock is None
