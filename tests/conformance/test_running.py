"""Running something under a lock: run, once and get_or_create."""

from __future__ import annotations

import operator
import os
import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

import tenure
from tests.cases.server_side import only_fences_left
from tests.harness.commands import CallCounter
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from tests.conformance.flavours import AnyLocks, Flavour
    from tests.harness.servers import Server


def nothing() -> None:
    """What has to be called, and does not matter."""


def must_not_run() -> None:
    msg = "ran although it should be skipped"
    raise AssertionError(msg)


def server_time(server: Server) -> datetime:
    seconds, micros = server.command("TIME")
    return datetime.fromtimestamp(seconds, UTC) + timedelta(microseconds=micros)


class TestRun:
    def test_gives_the_value_and_holds_the_lock_meanwhile(self, locks: AnyLocks, others: AnyLocks) -> None:
        def call() -> list[str]:
            return [holder.name for holder in others.list()]

        assert locks.run("a", call=call) == tenure.Ran(["a"])
        assert locks.run("b", "a", call=call, ttl=60) == tenure.Ran(["a", "b"])
        assert others.list() == []

    def test_is_skipped_when_the_lock_cannot_be_had(
        self, locks: AnyLocks, others: AnyLocks, any_server: Server
    ) -> None:
        with others.lock("a", ttl=60, info="busy").block() as lease:
            before = server_time(any_server)
            skipped = locks.run("a", call=must_not_run)
            after = server_time(any_server)
        assert isinstance(skipped, tenure.Skipped)
        assert skipped.holder is not None
        assert (skipped.holder.fence, skipped.holder.info, skipped.holder.pid) == (lease.fence, "busy", os.getpid())
        assert skipped.until is not None
        # The end of the holder's lease, with its grace, as far as the server's clock is known.
        assert before + timedelta(seconds=50) < skipped.until < after + timedelta(seconds=61)

    def test_waits_when_it_is_told_to(self, locks: AnyLocks, others: AnyLocks, flavour: Flavour) -> None:
        lease = others.lock("a", ttl=60).acquire()
        running = flavour.spawn(locks.run, "a", call=lambda: 7, wait=30)
        wait_until(lambda: others.waiters("a"), 30, "the call to queue")
        lease.release()
        assert running.result(30) == tenure.Ran(7)

    def test_lets_errors_through_and_frees_the_lock(self, locks: AnyLocks, others: AnyLocks) -> None:
        def fail() -> None:
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            locks.run("a", call=fail)
        assert not others.lock("a").locked()

    def test_ends_as_lease_lost_when_it_was(self, locks: AnyLocks, any_server: Server, namespace: str) -> None:
        def call() -> None:
            assert any_server.command("DEL", f"{namespace}:a") == 1

        with pytest.raises(tenure.LeaseLost, match="'a' was lost"):
            locks.run("a", call=call, ttl=60)
        assert locks.run("a", call=call, ttl=60, on_exit_lost="note") == tenure.Ran(None)

    def test_takes_the_options_of_a_lock_and_no_others(self, locks: AnyLocks, others: AnyLocks) -> None:
        with others.lock("a", shared=True, ttl=60).block():
            assert locks.run("a", call=lambda: 1, shared=True, info="with others") == tenure.Ran(1)
        with pytest.raises(tenure.ConfigError, match=r"unknown option 'timeout'; .* knows ask_after, info"):
            locks.run("a", call=nothing, timeout=5)
        with pytest.raises(tenure.ConfigError, match="ttl"):
            locks.run("a", call=nothing, ttl=-1)
        with pytest.raises(tenure.ConfigError, match="a lock needs a name"):
            locks.run(call=nothing)

    def test_in_the_middle_of_itself_is_refused(self, locks: AnyLocks) -> None:
        with locks.lock("a").block(), pytest.raises(tenure.AlreadyHeld):
            locks.run("a", call=must_not_run)


class TestOnce:
    def test_runs_with_its_arguments_and_gives_the_value(self, locks: AnyLocks) -> None:
        assert locks.once("a", operator.add, 3, 4) == tenure.Ran(7)
        # Nothing was said of a distance: as soon as the last run has ended.
        assert locks.once("a", lambda: 8) == tenure.Ran(8)

    def test_skips_all_others_while_it_runs(self, locks: AnyLocks, others: AnyLocks, flavour: Flavour) -> None:
        inside, go_on = threading.Event(), threading.Event()

        def job() -> str:
            inside.set()
            assert go_on.wait(30)
            return "done"

        running = flavour.spawn(locks.once, "a", job, ttl=60)
        assert inside.wait(30)
        for client in (locks, others):
            skipped = client.once("a", must_not_run)
            assert isinstance(skipped, tenure.Skipped)
            assert skipped.holder is not None
            assert skipped.holder.pid == os.getpid()
            assert skipped.until is not None
        go_on.set()
        assert running.result(30) == tenure.Ran("done")
        assert others.once("a", nothing) == tenure.Ran(None)

    def test_keeps_its_distance_and_tells_who_ran_last(
        self, flavour: Flavour, any_url: str, namespace: str, others: AnyLocks, any_server: Server
    ) -> None:
        locks = flavour.locks(any_url, namespace=namespace, identity="the runner")
        before = server_time(any_server)
        assert locks.once("a", lambda: 1, at_least=100) == tenure.Ran(1)
        after = server_time(any_server)
        assert not others.lock("a").locked()
        for client in (locks, others):
            skipped = client.once("a", must_not_run, at_least=100)
            assert isinstance(skipped, tenure.Skipped)
            assert skipped.holder is not None
            assert skipped.holder.identity == "the runner"
            assert skipped.until is not None
            # From the beginning of that run on, and not from the try.
            assert before + timedelta(seconds=99) < skipped.until < after + timedelta(seconds=101)
        assert others.list() == []
        assert others.waiters("a") == []

    def test_runs_again_when_the_distance_is_over(self, locks: AnyLocks, others: AnyLocks) -> None:
        began: list[datetime] = []

        def job() -> None:
            holder = others.holder("a")
            assert holder is not None
            assert holder.since is not None
            began.append(holder.since)

        assert isinstance(locks.once("a", job, at_least=0.4), tenure.Ran)
        wait_until(lambda: isinstance(others.once("a", job, at_least=0.4), tenure.Ran), 30, "the second run")
        assert len(began) == 2
        # By the server's clock, which the script reads a moment later than the key's end is reckoned from.
        assert began[1] - began[0] > timedelta(seconds=0.3)

    def test_who_wants_no_distance_does_not_keep_it(self, locks: AnyLocks, others: AnyLocks) -> None:
        """The distance is a wish of the one who tries; who just locks the name does not know of it."""
        assert isinstance(locks.once("a", nothing, at_least=100), tenure.Ran)
        assert isinstance(others.once("a", nothing), tenure.Ran)
        with others.lock("a", wait=0).block():
            pass
        assert isinstance(others.once("a", must_not_run, at_least=100), tenure.Skipped)

    def test_that_raised_counts_as_run(self, locks: AnyLocks, others: AnyLocks) -> None:
        def fail() -> None:
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            locks.once("a", fail, at_least=100)
        assert not others.lock("a").locked()
        assert isinstance(others.once("a", must_not_run, at_least=100), tenure.Skipped)

    def test_that_was_skipped_does_not(
        self, locks: AnyLocks, others: AnyLocks, any_server: Server, namespace: str
    ) -> None:
        with others.lock("a", ttl=60).block():
            assert isinstance(locks.once("a", must_not_run, at_least=100), tenure.Skipped)
        assert isinstance(locks.once("a", nothing, at_least=100), tenure.Ran)
        left = any_server.command("PTTL", f"{{{namespace}:a}}:again")
        assert 50_000 < left <= 100_000

    def test_that_lasts_longer_than_the_distance_still_runs_alone(
        self, locks: AnyLocks, others: AnyLocks, any_server: Server, namespace: str
    ) -> None:
        def job() -> None:
            wait_until(lambda: not any_server.command("EXISTS", f"{{{namespace}:a}}:again"), 30, "the distance to pass")
            assert isinstance(others.once("a", must_not_run, at_least=0.05), tenure.Skipped)

        assert isinstance(locks.once("a", job, at_least=0.05, ttl=60), tenure.Ran)
        assert isinstance(others.once("a", nothing, at_least=0.05), tenure.Ran)

    def test_tells_a_foreign_holder_without_an_end(self, locks: AnyLocks, any_server: Server, namespace: str) -> None:
        any_server.command("SET", f"{namespace}:a", "theirs")
        skipped = locks.once("a", must_not_run, at_least=100)
        any_server.command("DEL", f"{namespace}:a")
        assert isinstance(skipped, tenure.Skipped)
        assert skipped.holder is not None
        assert skipped.holder.foreign
        assert skipped.until is None

    def test_ends_as_lease_lost_when_it_was(self, locks: AnyLocks, any_server: Server, namespace: str) -> None:
        def job() -> None:
            assert any_server.command("DEL", f"{namespace}:a") == 1

        with pytest.raises(tenure.LeaseLost):
            locks.once("a", job, at_least=100, ttl=60)
        assert isinstance(locks.once("a", must_not_run, at_least=100), tenure.Skipped)

    @pytest.mark.parametrize("value", [-1, True, "5", None, float("nan"), 366 * 86400.0 + 1])
    def test_checks_the_distance(self, locks: AnyLocks, value: Any) -> None:  # noqa: ANN401
        with pytest.raises(tenure.ConfigError, match="at_least"):
            locks.once("a", must_not_run, at_least=value)

    def test_takes_a_timedelta_up_to_a_year(self, locks: AnyLocks, others: AnyLocks) -> None:
        assert isinstance(locks.once("a", nothing, at_least=timedelta(days=366)), tenure.Ran)
        skipped = others.once("a", must_not_run, at_least=timedelta(days=366))
        assert isinstance(skipped, tenure.Skipped)
        assert skipped.until is not None
        assert skipped.until - datetime.now(UTC) > timedelta(days=365)

    def test_stops_renewing_at_max_hold(self, locks: AnyLocks) -> None:
        def job() -> bool:
            (hold,) = locks.raw.session().hub.holds.values()
            return (hold.terms.max_hold, hold.terms.ttl, hold.terms.renew) == (70.0, 60.0, True)

        assert locks.once("a", job, ttl=60, max_hold=70) == tenure.Ran(value=True)

    def test_each_is_two_requests_and_a_skip_one(
        self, flavour: Flavour, any_url: str, namespace: str, any_server: Server
    ) -> None:
        locks = flavour.locks(any_url, namespace=namespace, server_timeout=30)
        locks.warm()
        locks.once("warm", nothing, at_least=1)
        for at_least in (0, 100):
            with CallCounter(any_server.admin) as counter:
                assert isinstance(locks.once("a", nothing, at_least=at_least), tenure.Ran)
            assert counter.scripts == 2
        with CallCounter(any_server.admin) as counter:
            assert isinstance(locks.once("a", must_not_run, at_least=100), tenure.Skipped)
        assert counter.scripts == 1


class Store:
    """Where values are created; counts who looked and who created."""

    def __init__(self) -> None:
        self.value: Any = None
        self.looked = 0
        self.created = 0

    def get(self) -> Any:  # noqa: ANN401
        self.looked += 1
        return self.value

    def create(self) -> Any:  # noqa: ANN401
        self.created += 1
        self.value = f"made {self.created}"
        return self.value


class TestGetOrCreate:
    @pytest.fixture
    def store(self) -> Store:
        return Store()

    def test_creates_what_is_not_there(self, locks: AnyLocks, store: Store, any_server: Server, namespace: str) -> None:
        assert locks.get_or_create("a", store.get, store.create) == "made 1"
        assert (store.looked, store.created) == (2, 1)
        assert only_fences_left(any_server, namespace)

    @pytest.mark.parametrize("value", ["there", 0, "", False, []])
    def test_asks_no_server_when_it_is_there(self, flavour: Flavour, store: Store, value: Any) -> None:  # noqa: ANN401
        nobody = flavour.locks("redis://127.0.0.1:1", server_timeout=0.1)
        store.value = value
        assert nobody.get_or_create("a", store.get, store.create) == value
        assert (store.looked, store.created) == (1, 0)

    def test_holds_the_lock_while_it_creates(self, locks: AnyLocks, others: AnyLocks, store: Store) -> None:
        def create() -> list[str]:
            return [holder.name for holder in others.list()]

        assert locks.get_or_create("a", store.get, create) == ["a"]

    def test_one_creates_and_the_others_get_it(
        self, locks: AnyLocks, others: AnyLocks, flavour: Flavour, store: Store
    ) -> None:
        go_on = threading.Event()

        def create() -> str:
            assert go_on.wait(30)
            return store.create()

        first = flavour.spawn(locks.get_or_create, "a", store.get, create, ttl=60)
        wait_until(lambda: others.lock("a").locked(), 30, "the first one to create")
        asking = [flavour.spawn(client.get_or_create, "a", store.get, must_not_run) for client in (locks, others) * 3]
        wait_until(lambda: len(others.waiters("a")) == len(asking), 30, "all others to wait")
        go_on.set()
        assert {future.result(30) for future in [first, *asking]} == {"made 1"}
        assert store.created == 1

    def test_an_error_reaches_its_caller_alone_and_the_next_one_creates(
        self, locks: AnyLocks, others: AnyLocks, flavour: Flavour, store: Store
    ) -> None:
        go_on = threading.Event()

        def fail() -> str:
            assert go_on.wait(30)
            raise ZeroDivisionError

        first = flavour.spawn(locks.get_or_create, "a", store.get, fail, ttl=60)
        wait_until(lambda: others.lock("a").locked(), 30, "the first one to create")
        second = flavour.spawn(others.get_or_create, "a", store.get, store.create)
        wait_until(lambda: others.waiters("a"), 30, "the second one to wait")
        go_on.set()
        with pytest.raises(ZeroDivisionError):
            first.result(30)
        assert second.result(30) == "made 1"
        assert not others.lock("a").locked()

    def test_who_does_not_want_to_wait_is_told(self, locks: AnyLocks, others: AnyLocks, store: Store) -> None:
        with others.lock("a", ttl=60).block() as lease:
            with pytest.raises(tenure.NotAcquired) as caught:
                locks.get_or_create("a", store.get, must_not_run, wait=0)
            assert caught.value.holder is not None
            assert caught.value.holder.fence == lease.fence
            # It looks a last time.
            answers = iter([None, "just made"])
            assert locks.get_or_create("a", lambda: next(answers), must_not_run, wait=0) == "just made"

    def test_an_error_of_get_is_the_callers(self, locks: AnyLocks, others: AnyLocks) -> None:
        looked: list[int] = []

        def get() -> None:
            looked.append(1)
            if len(looked) == 2:
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            locks.get_or_create("a", get, must_not_run)
        assert not others.lock("a").locked()

    def test_a_lease_that_was_lost_meanwhile_costs_nobody_the_value(
        self, locks: AnyLocks, any_server: Server, namespace: str, store: Store
    ) -> None:
        def create() -> str:
            assert any_server.command("DEL", f"{namespace}:a") == 1
            return store.create()

        assert locks.get_or_create("a", store.get, create, ttl=60) == "made 1"

    def test_on_a_server_that_is_read_only(self, flavour: Flavour, private_server: Server, store: Store) -> None:
        locks = flavour.locks(private_server.url)
        private_server.command("REPLICAOF", "127.0.0.1", "1")
        with pytest.raises(tenure.ServerReadOnly):
            locks.get_or_create("a", store.get, store.create)
        answers = iter([None, "made elsewhere"])
        assert locks.get_or_create("a", lambda: next(answers), store.create) == "made elsewhere"
        store.value = "old"
        assert locks.get_or_create("a", store.get, store.create) == "old"
        assert store.created == 0
        private_server.command("REPLICAOF", "NO", "ONE")

    def test_without_a_server_nothing_is_created(self, flavour: Flavour, store: Store) -> None:
        nobody = flavour.locks("redis://127.0.0.1:1", server_timeout=0.2)
        with pytest.raises(tenure.ServerUnavailable):
            nobody.get_or_create("a", store.get, store.create)
        assert store.created == 0
