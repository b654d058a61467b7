"""`get_or_create` from fifty processes at once: one creation, also when the one who creates fails or is killed."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
import traceback
from typing import TYPE_CHECKING, Any, Literal

import pytest

from tenure import AsyncLocks, Locks
from tests.faults.crowds import PATIENT
from tests.faults.support import wait_clean
from tests.harness.processes import Worker, say
from tests.harness.servers import connect

if TYPE_CHECKING:
    from tests.harness.servers import Server

NAME = "report:2026"
PROCESSES = 50
FEW = 12
TTL = 30.0
"""Longer than one who creates stands still: the next would create as well."""
CREATING = 0.3

Mishap = Literal["none", "fails", "is killed"]


class FailedError(Exception):
    """What the first creation raises."""


def ask_in_many_processes(count: int, url: str, namespace: str, mishap: Mishap) -> None:
    """Worker: forks processes that all want the same value at the same moment; tells their exit codes."""
    start, go = os.pipe()
    children: list[int] = []
    for number in range(count):
        child = os.fork()
        if not child:
            os.close(go)
            code = 1
            try:
                # Blocks until the other end is closed: then all of them go on.
                os.read(start, 1)
                code = ask(number, url, namespace, mishap)
            except BaseException:  # noqa: BLE001 - a child must not go on with its parent's program
                traceback.print_exc()
            finally:
                os._exit(code)
        children.append(child)
    os.close(start)
    say("ready")
    sys.stdin.readline()
    os.close(go)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    say("codes", *codes)


class Store:
    """Where the value is kept: on the server, beside the lock and without its help."""

    def __init__(self, url: str, namespace: str, mishap: Mishap) -> None:
        self._client: Any = connect(url)
        self._key = f"testdata:{namespace}"
        self._lock = f"{namespace}:{NAME}"
        self._mishap = mishap

    def get(self) -> str | None:
        value = self._client.get(f"{self._key}:value")
        return None if value is None else value.decode()

    def create(self) -> str:
        attempt = self._client.incr(f"{self._key}:attempts")
        time.sleep(CREATING)
        if attempt == 1 and self._mishap == "fails":
            raise FailedError
        if attempt == 1 and self._mishap == "is killed":
            # The lease that nobody gives back ends now, not in half a minute.
            assert self._client.pexpire(self._lock, 10)
            os.kill(os.getpid(), signal.SIGKILL)
        value = f"made by {os.getpid()}"
        self._client.set(f"{self._key}:value", value)
        self._client.incr(f"{self._key}:created")
        return value


def ask(number: int, url: str, namespace: str, mishap: Mishap) -> int:
    """In a forked process of either flavour: gets the value; 0 when it is the one that all have, 7 when it failed."""
    store = Store(url, namespace, mishap)

    async def main() -> str:
        async def get() -> str | None:
            return store.get()

        async def create() -> str:
            return await asyncio.to_thread(store.create)

        async with AsyncLocks(url, namespace=namespace, server_timeout=PATIENT) as locks:
            return await locks.get_or_create(NAME, get, create, ttl=TTL)

    try:
        if number % 2:
            value = asyncio.run(main())
        else:
            with Locks(url, namespace=namespace, server_timeout=PATIENT) as locks:
                value = locks.get_or_create(NAME, store.get, store.create, ttl=TTL)
    except FailedError:
        return 7
    return 0 if value == store.get() else 3


@pytest.mark.parametrize(("mishap", "count"), [("none", PROCESSES), ("fails", FEW), ("is killed", FEW)])
def test_many_processes_want_one_value_and_one_creates_it(
    valkey_server: Server, namespace: str, mishap: Mishap, count: int
) -> None:
    with Worker.start(ask_in_many_processes, count, valkey_server.url, namespace, mishap) as worker:
        worker.wait_for("ready", 60)
        worker.write_line()
        codes = [int(code) for code in worker.wait_for("codes", 100).split()[1:]]
        assert worker.wait(30) == 0, worker.errors()
        assert not worker.errors()
    failed = {"none": [], "fails": [7], "is killed": [-signal.SIGKILL]}[mishap]
    assert sorted(code for code in codes if code) == failed
    assert len(codes) == count
    created = valkey_server.command("GET", f"testdata:{namespace}:created")
    attempts = valkey_server.command("GET", f"testdata:{namespace}:attempts")
    assert (int(created), int(attempts)) == (1, 1 + len(failed))
    wait_clean(valkey_server, namespace, 30)


def test_a_value_that_is_there_is_given_to_all_without_a_lock(valkey_server: Server, namespace: str) -> None:
    valkey_server.command("SET", f"testdata:{namespace}:value", "old")
    with Worker.start(ask_in_many_processes, FEW, valkey_server.url, namespace, "none") as worker:
        worker.wait_for("ready", 60)
        worker.write_line()
        assert set(worker.wait_for("codes", 100).split()[1:]) == {"0"}
        assert worker.wait(30) == 0, worker.errors()
    assert valkey_server.command("KEYS", f"*{namespace}:{NAME}*") == []
    assert valkey_server.command("GET", f"testdata:{namespace}:attempts") is None
