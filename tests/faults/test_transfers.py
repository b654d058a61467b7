"""Transfers between accounts by processes that are killed in between: no deadlock, nothing lost, nothing done twice.

What a real program does: it locks both accounts in one call, reads them, thinks, and writes what comes out of it
together with the note that this transfer is done, in one transaction, which the fences guard. A kill before the end of
that transaction has done nothing; one after it has done everything, and whoever begins anew finds the note.
"""

from __future__ import annotations

import contextlib
import random
import sqlite3
import time
from typing import TYPE_CHECKING, Any

from tenure import LeaseLost, Locks, NotAcquired, StaleFence
from tests.faults.crowds import Calls, together
from tests.faults.support import FLAVOURS, traces
from tests.harness.processes import Worker, say
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping
    from pathlib import Path

    from tests.faults.support import Flavour
    from tests.harness.servers import Server

ACCOUNTS = 10
EACH = 1000
TRANSFERS = 200
PROCESSES = 8
KILLS = 8
TTL = 0.8
THINKING = 0.03


@contextlib.contextmanager
def books(path: str | Path) -> Generator[sqlite3.Connection]:
    """The database; each statement outside of BEGIN and COMMIT stands for itself."""
    connection = sqlite3.connect(path, timeout=60, isolation_level=None)
    # Processes are killed here, not machines.
    connection.execute("PRAGMA synchronous = OFF")
    try:
        yield connection
    finally:
        connection.close()


def open_books(path: Path, choose: random.Random) -> list[int]:
    """Makes the accounts and the transfers that are to be done; returns what the accounts must hold in the end."""
    balances = [EACH] * ACCOUNTS
    with books(path) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER, fence INTEGER DEFAULT 0)")
        connection.execute(
            "CREATE TABLE transfer (id INTEGER PRIMARY KEY, source INTEGER, target INTEGER, amount INTEGER, "
            "done INTEGER DEFAULT 0)"
        )
        connection.execute("BEGIN")
        for number in range(ACCOUNTS):
            connection.execute("INSERT INTO account (id, balance) VALUES (?, ?)", (number, EACH))
        for number in range(TRANSFERS):
            source, target = choose.sample(range(ACCOUNTS), 2)
            amount = choose.randint(1, 9)
            balances[source] -= amount
            balances[target] += amount
            connection.execute(
                "INSERT INTO transfer (id, source, target, amount) VALUES (?, ?, ?, ?)",
                (number, source, target, amount),
            )
        connection.execute("COMMIT")
    return balances


def see(connection: sqlite3.Connection, account: int, fence: int) -> int:
    """A balance, seen under a fence: whoever comes with an older one from now on is refused."""
    row = connection.execute(
        "UPDATE account SET fence = ? WHERE id = ? AND fence <= ? RETURNING balance", (fence, account, fence)
    ).fetchone()
    if row is None:
        raise StaleFence(f"account {account} has seen a newer fence than {fence}", fence=fence)
    return row[0]


def write(
    connection: sqlite3.Connection, transfer: int, balances: Mapping[int, int], fences: Mapping[int, int]
) -> None:
    """Both balances and the note that it is done, together or not at all."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        for account, balance in balances.items():
            see(connection, account, fences[account])
            connection.execute("UPDATE account SET balance = ? WHERE id = ?", (balance, account))
        connection.execute("UPDATE transfer SET done = done + 1 WHERE id = ?", (transfer,))
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def transfer_money(number: int, flavour: Flavour, url: str, namespace: str, path: str) -> None:
    """Worker: does its share of the transfers that are not done yet, the two names in whatever order."""
    choose = random.Random()
    with Calls(flavour, url, namespace) as call, books(path) as connection:
        say("ready")
        while True:
            left: list[Any] = connection.execute(
                "SELECT id, source, target, amount FROM transfer WHERE NOT done AND id % ? = ?", (PROCESSES, number)
            ).fetchall()
            if not left:
                break
            transfer, source, target, amount = choose.choice(left)
            names = [f"account:{source}", f"account:{target}"]
            choose.shuffle(names)
            try:
                lease = call(call.locks.lock(*names, ttl=TTL).acquire)
            except NotAcquired:
                # The machine stood still again and again: each time one of the two was lost while it waited.
                continue
            try:
                fences = {account: lease.fences[f"account:{account}"] for account in (source, target)}
                before = {account: see(connection, account, fence) for account, fence in fences.items()}
                time.sleep(choose.uniform(0, THINKING))
                write(connection, transfer, {source: before[source] - amount, target: before[target] + amount}, fences)
                time.sleep(choose.uniform(0, THINKING))
            except StaleFence:
                # The machine stood still for longer than the ttl: the next holder has come, and nothing was written.
                if lease.valid:
                    raise
            with contextlib.suppress(LeaseLost):
                call(lease.release)
    say("done")


def test_two_hundred_transfers_by_eight_processes_that_are_killed_in_between(
    valkey_server: Server, namespace: str, tmp_path: Path
) -> None:
    path = tmp_path / "books"
    choose = random.Random(namespace)
    expected = open_books(path, choose)

    def start(number: int) -> Worker:
        return Worker.start(transfer_money, number, FLAVOURS[number % 2], valkey_server.url, namespace, str(path))

    workers: list[Worker] = []
    with Locks(valkey_server.url, namespace=namespace, server_timeout=30) as locks:

        def one_inside() -> Worker | None:
            """A worker that holds accounts now."""
            pids = {holder.pid for holder in locks.list("account:")}
            inside = [worker for worker in workers if worker.running and worker.pid in pids]
            return choose.choice(inside) if inside else None

        try:
            workers.extend(map(start, range(PROCESSES)))
            together(workers)
            for _ in range(KILLS):
                # Those that are done hold nothing: when all are, this waits in vain.
                victim = wait_until(one_inside, 30, "somebody to kill: they were done before")
                assert victim is not None
                number = workers.index(victim)
                victim.close()
                workers[number] = start(number)
            for worker in workers:
                worker.wait_for("done", 90)
                assert worker.wait(30) == 0, worker.errors()
        finally:
            for worker in workers:
                worker.close()
    with books(path) as connection:
        balances = [row[0] for row in connection.execute("SELECT balance FROM account ORDER BY id")]
        times = [row[0] for row in connection.execute("SELECT done FROM transfer ORDER BY id")]
    assert sum(balances) == ACCOUNTS * EACH
    assert times == [1] * TRANSFERS
    assert balances == expected
    wait_until(lambda: not traces(valkey_server, namespace), TTL + 10, "the leases of the dead to end")
