"""A transaction whose lease is lost on the way: nothing is written, and it says so."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

import tenure
from tenure.transaction import AsyncTransaction, Transaction
from tests.conformance.flavours import Flavour
from tests.contrib.transfers import SITE, transfer, written
from tests.harness.leases import age
from tests.harness.processes import Worker, say
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.conformance.flavours import AnyLease, AnyLocks, Kind
    from tests.harness.servers import Server


LONG = 120.0
"""A ttl that no test waits for."""


@pytest.fixture
def others(flavour: Flavour, any_server: Server) -> AnyLocks:
    """Another process, as far as the server can tell."""
    return flavour.locks(any_server.url, namespace=SITE)


@pytest.fixture
def lease(flavour: Flavour, any_server: Server) -> Iterator[AnyLease]:
    locks = flavour.locks(any_server.url, namespace=SITE)
    # Or the lease is announced when it is a second old, and its hub may find a loss first, in another state.
    locks.warm()
    held = locks.lock("account", ttl=60).acquire()
    yield held
    held.release()


def test_the_key_was_deleted(flavour: Flavour, lease: AnyLease, any_server: Server) -> None:
    with pytest.raises(tenure.LeaseLost) as raised:
        transfer(flavour, lease, lambda: any_server.command("DEL", "testdata:account"))
    assert raised.value.reason == "deleted"
    assert raised.value.__notes__ == ["nothing of the transaction was written"]
    assert written(any_server) == [None, None]
    assert lease.lost == "deleted"


def test_somebody_else_holds_the_lock(flavour: Flavour, lease: AnyLease, others: AnyLocks, any_server: Server) -> None:
    taken: list[AnyLease] = []

    def taken_over() -> None:
        any_server.command("DEL", "testdata:account")
        taken.append(others.lock("account", ttl=60).acquire())
        assert transfer(flavour, taken[0]) == [1, 1]

    with pytest.raises(tenure.LeaseLost) as raised:
        transfer(flavour, lease, taken_over)
    assert raised.value.reason == "taken"
    assert written(any_server) == [b"1", b"1"]
    taken[0].check()
    taken[0].release()


@pytest.mark.parametrize("value", ["a lock of another library", "list", "short"])
def test_something_else_stands_in_the_locks_key(
    flavour: Flavour, lease: AnyLease, any_server: Server, value: str
) -> None:
    def replaced() -> None:
        token = any_server.command("GET", "testdata:account")[:52]
        any_server.command("DEL", "testdata:account")
        if value == "list":
            any_server.command("RPUSH", "testdata:account", token)
        else:
            any_server.command("SET", "testdata:account", token[:20] if value == "short" else value)

    with pytest.raises(tenure.LeaseLost):
        transfer(flavour, lease, replaced)
    assert written(any_server) == [None, None]


def test_an_operator_broke_the_lock(flavour: Flavour, lease: AnyLease, others: AnyLocks, any_server: Server) -> None:
    with pytest.raises(tenure.LeaseLost) as raised:
        transfer(flavour, lease, lambda: others.break_lock("account"))
    assert raised.value.reason == "revoked"
    assert written(any_server) == [None, None]


def test_the_lease_was_exported_and_adopted(flavour: Flavour, lease: AnyLease, any_server: Server) -> None:
    with pytest.raises(tenure.NotHeld):
        transfer(flavour, lease, lease.raw.export)
    assert written(any_server) == [None, None]


@pytest.mark.parametrize("at", ["MULTI", "INCRBY", "EXEC"])
def test_the_lease_ends_between_the_look_at_it_and_the_exec(
    flavour: Flavour, lease: AnyLease, any_server: Server, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    cls = Transaction if flavour.kind == "blocking" else AsyncTransaction
    call = cls._call

    async def deleted_before(self: Any, name: str, words: Sequence[bytes]) -> object:  # noqa: ANN401
        if name == at:
            any_server.command("DEL", "testdata:account")
        return await call(self, name, words)

    monkeypatch.setattr(cls, "_call", deleted_before)
    with pytest.raises(tenure.LeaseLost):
        transfer(flavour, lease)
    assert written(any_server) == [None, None]


def test_the_deadline_passes_while_the_commands_are_sent(
    flavour: Flavour, lease: AnyLease, any_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    cls = Transaction if flavour.kind == "blocking" else AsyncTransaction
    call = cls._call

    async def slow(self: Any, name: str, words: Sequence[bytes]) -> object:  # noqa: ANN401
        if name == "MULTI":
            lease.raw._hold.deadline = lease.raw._hold.granted_at
        return await call(self, name, words)

    monkeypatch.setattr(cls, "_call", slow)
    with pytest.raises(tenure.LeaseLost) as raised:
        transfer(flavour, lease)
    assert raised.value.reason == "expired"
    assert written(any_server) == [None, None]


def write_and_be_paused(kind: Kind, url: str, where: str) -> None:
    """Worker: is frozen in a transaction, in its block or right before its EXEC, for longer than its lease."""
    cls = Transaction if kind == "blocking" else AsyncTransaction
    call = cls._call

    def freeze(place: str) -> None:
        if place == where:
            say("here")
            sys.stdin.readline()
            # As old as the key on the server, which the test has ended: a ttl that really passes meanwhile is one that
            # a slow start may outlast.
            age(lease.raw, LONG)

    async def frozen_before(self: Any, name: str, words: Sequence[bytes]) -> object:  # noqa: ANN401
        freeze(name)
        return await call(self, name, words)

    cls._call = frozen_before
    with Flavour(kind) as flavour:
        lease = flavour.locks(url, namespace=SITE).lock("account", ttl=LONG, on_exit_lost="note").acquire()
        try:
            say("written", transfer(flavour, lease, lambda: freeze("block")))
        except tenure.LeaseLost as loss:
            say("lost", loss.reason, *loss.__notes__)
        lease.release()


@pytest.mark.parametrize("where", ["block", "EXEC"])
def test_a_process_that_was_frozen_writes_nothing(
    flavour: Flavour, others: AnyLocks, any_server: Server, where: str
) -> None:
    with Worker.start(write_and_be_paused, flavour.kind, any_server.url, where) as worker:
        worker.wait_for("here")
        worker.pause()
        any_server.command("PEXPIRE", "testdata:account", 1)
        wait_until(lambda: not any_server.command("EXISTS", "testdata:account"), 30, "the lease to expire")
        with others.lock("account", ttl=60).block() as theirs:
            assert transfer(flavour, theirs) == [1, 1]
            worker.resume()
            worker.write_line("go on")
            assert worker.wait_for("lost").endswith("nothing of the transaction was written")
            assert written(any_server) == [b"1", b"1"]
            theirs.check()
