"""A transaction whose server, or whose own program, fails on the way: done once or not at all, or the truth is told."""

from __future__ import annotations

import asyncio
import gc
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tenure
from tests.contrib.transfers import SITE, transfer, written
from tests.faults.support import set_timeouts
from tests.harness.aio import run_async
from tests.harness.interrupts import cancel_at_each_await, count_lines, run_with_interrupt_at_line
from tests.harness.leases import renew_now, wait_for_inbox
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conformance.flavours import AnyLease, AnyLocks, Flavour
    from tests.harness.interrupts import Cancelled
    from tests.harness.proxy import FaultProxy
    from tests.harness.servers import Server

PACKAGE = Path(tenure.__file__).parent


def connections(server: Server) -> set[str]:
    admin: Any = server.admin
    return {client["id"] for client in admin.client_list()}


# Replies and requests that are lost


@pytest.fixture
def bank(flavour: Flavour, proxy: FaultProxy) -> AnyLocks:
    """Locks whose connections go through the proxy; a request has ten seconds, since an EXEC is never sent again."""
    locks = flavour.locks(proxy.url, namespace=SITE, server_timeout=30)
    # Or the lease is announced when it is a second old, which undoes an EXEC.
    locks.warm()
    return locks


@pytest.fixture
def through(bank: AnyLocks, proxy: FaultProxy) -> Iterator[AnyLease]:
    """A lease of these."""
    held = bank.lock("account", ttl=60).acquire()
    yield held
    proxy.heal()
    set_timeouts(bank.raw, 30, 10)
    held.release()


@pytest.mark.parametrize("way", ["reply", "request"])
def test_nobody_knows_whether_the_exec_was_carried_out(
    flavour: Flavour, through: AnyLease, proxy: FaultProxy, valkey_server: Server, way: str
) -> None:
    fault = proxy.drop_next_reply(b"EXEC") if way == "reply" else proxy.drop_next_request(b"EXEC")
    with pytest.raises(tenure.ServerUnavailable, match="unknown whether the transaction was carried out") as raised:
        transfer(flavour, through)
    fault.wait()
    assert raised.value.cause
    assert sum(request == (b"EXEC",) for request in proxy.seen) == 1, "never a second EXEC"
    assert written(valkey_server) == ([b"1", b"1"] if way == "reply" else [None, None])
    through.check()


@pytest.mark.parametrize("word", [b"WATCH", b"MULTI", b"INCRBY"])
@pytest.mark.parametrize("way", ["reply", "request", "cut"])
def test_what_is_lost_before_the_exec_is_done_again(
    flavour: Flavour, through: AnyLease, proxy: FaultProxy, valkey_server: Server, word: bytes, way: str
) -> None:
    strike = {"reply": proxy.drop_next_reply, "request": proxy.drop_next_request, "cut": proxy.cut_next_reply}[way]
    fault = strike(word)
    assert transfer(flavour, through) == [1, 1]
    fault.wait()
    assert written(valkey_server) == [b"1", b"1"]


def test_a_lost_read_is_read_again(
    flavour: Flavour, through: AnyLease, proxy: FaultProxy, valkey_server: Server
) -> None:
    valkey_server.command("SET", "testdata:a", 7)
    fault = proxy.drop_next_reply(b"testdata:a")
    tx: Any = flavour.call(through.raw.transaction)
    with flavour.entered(tx):
        assert flavour.call(tx.get, "a") == b"7"
    fault.wait()


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"-READONLY You can't write against a read only replica.\r\n", tenure.ServerReadOnly),
        (b"-NOPERM this user has no permissions to run the 'incrby' command\r\n", tenure.PermissionDenied),
        (b"-LOADING Redis is loading the dataset in memory\r\n", tenure.ServerUnavailable),
        (b"-OOM command not allowed when used memory > 'maxmemory'.\r\n", tenure.ServerError),
    ],
    ids=["readonly", "denied", "loading", "full"],
)
def test_a_server_that_says_no(
    flavour: Flavour, bank: AnyLocks, through: AnyLease, proxy: FaultProxy, valkey_server: Server, answer: bytes,
    error: type[tenure.ServerError],
) -> None:  # fmt: skip
    proxy.replace_next_reply(b"INCRBY", answer, times=None)
    set_timeouts(bank.raw, 1, 10)
    with pytest.raises(error, match=r"refused INCRBY in a transaction.*nothing was written") as raised:
        transfer(flavour, through)
    assert type(raised.value) is error
    assert written(valkey_server) == [None, None]


def test_a_server_that_is_loading_for_a_moment(
    flavour: Flavour, through: AnyLease, proxy: FaultProxy, valkey_server: Server
) -> None:
    proxy.replace_next_reply(b"WATCH", b"-LOADING Redis is loading the dataset in memory\r\n", times=2)
    assert transfer(flavour, through) == [1, 1]


def test_a_server_that_is_gone(flavour: Flavour, bank: AnyLocks, through: AnyLease, proxy: FaultProxy) -> None:
    def gone() -> None:
        set_timeouts(bank.raw, 1, 10)
        proxy.refuse()
        proxy.cut_all()

    with pytest.raises(tenure.ServerUnavailable, match="nothing was written"):
        transfer(flavour, through, gone)


# Cancels, interrupts and forks


def wait_until_only(server: Server, before: set[str], where: str | None) -> None:
    """No connection is left beside those that were there before."""

    def alone() -> bool:
        if connections(server) <= before:
            return True
        # What was interrupted may hang in a cycle with its own traceback.
        gc.collect()
        return False

    wait_until(alone, 30, f"no connection more after {where}")


def wait_settled(lease: tenure.Lease | tenure.AsyncLease) -> None:
    """The hub has its inbox and has renewed: later nobody opens a connection but the transaction."""
    wait_until(lambda: lease._session.state.inbox, 30, "the inbox to stand")
    before = lease._hold.deadline
    renew_now(lease)
    wait_until(lambda: lease._hold.deadline > before, 30, "the hub to renew")


def test_a_cancel_anywhere_leaves_all_or_nothing_and_no_connection(valkey_server: Server) -> None:
    async def main() -> None:
        async with tenure.AsyncLocks(valkey_server.url, namespace=SITE) as locks:
            lease = await locks.lock("account", ttl=600).acquire()
            await asyncio.to_thread(wait_settled, lease)
            before = connections(valkey_server)

            async def block() -> list[Any]:
                async with lease.transaction() as tx:
                    await tx.get("a")
                    tx.multi()
                    tx.incr("a")
                    tx.incr("b")
                return tx.results

            async def check(run: Cancelled[list[Any]]) -> None:
                assert isinstance(run.error, asyncio.CancelledError) or run.where is None
                a, b = written(valkey_server)
                assert a == b
                lease.check()
                await asyncio.to_thread(
                    wait_until, lambda: connections(valkey_server) <= before, 30, "no connection more"
                )

            runs = await cancel_at_each_await(block, check=check)
            assert len(runs) >= 8
            await cancel_at_each_await(block, check=check, when="ready")
            await lease.release()

    run_async(main)


def test_a_cancel_while_the_exec_is_on_its_way_says_what_is_unknown(proxy: FaultProxy, valkey_server: Server) -> None:
    async def main() -> None:
        # The time-out of a request, which is a third of it, must not come before the cancel.
        locks = tenure.AsyncLocks(proxy.url, namespace=SITE, server_timeout=90)
        async with locks, locks.lock("warm"):
            await asyncio.to_thread(wait_for_inbox, locks)
            lease = await locks.lock("account", ttl=120).acquire()

            async def block() -> None:
                async with lease.transaction() as tx:
                    tx.multi()
                    tx.incr("a")

            proxy.hold(b"EXEC")
            task = asyncio.create_task(block())
            await asyncio.to_thread(wait_until, lambda: (b"EXEC",) in proxy.seen, 25, "the EXEC to be sent")
            task.cancel()
            with pytest.raises(asyncio.CancelledError) as raised:
                await task
            assert "unknown whether" in raised.value.__notes__[0]
            proxy.heal()
            await lease.release()

    run_async(main)
    assert valkey_server.command("GET", "testdata:a") == b"1"


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
def test_an_interrupt_anywhere_leaves_all_or_nothing_and_no_connection(valkey_server: Server) -> None:
    with tenure.Locks(valkey_server.url, namespace=SITE) as locks:
        lease = locks.lock("account", ttl=600).acquire()
        wait_settled(lease)

        def block() -> None:
            with lease.transaction() as tx:
                tx.get("a")
                tx.multi()
                tx.incr("a")
                tx.incr("b")

        block()
        before = connections(valkey_server)
        lines = count_lines(block, PACKAGE)
        assert lines > 100
        for n in range(1, lines + 1):
            run = run_with_interrupt_at_line(block, n, PACKAGE)
            assert run.where is None or isinstance(run.error, KeyboardInterrupt), run
            a, b = written(valkey_server)
            assert a == b, run.where
            if run.error is not None:
                # Its frames refer to the transaction.
                run.error.with_traceback(None)
            wait_until_only(valkey_server, before, run.where)
        lease.check()
        lease.release()


def test_a_forked_child_has_no_part_in_it(valkey_server: Server) -> None:
    with tenure.Locks(valkey_server.url, namespace=SITE) as locks, locks.lock("account", ttl=60) as lease:
        with lease.transaction() as tx:
            tx.get("a")
            tx.multi()
            tx.incr("a")
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    tx.__exit__(None, None, None)
                except tenure.NotHeld:
                    code = 0
                finally:
                    os._exit(code)
            assert os.waitpid(child, 0)[1] == 0
        assert tx.results == [1]
