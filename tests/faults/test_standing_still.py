"""A thread or task that stands still while its locks are closed, a renewal fails, or the server is not usable."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

import tenure
from tenure.clients.sockets import SocketConnection
from tenure.clients.streams import StreamConnection
from tenure.clients.url import client_of
from tenure.core.ports import NotSent
from tenure.runtime import hub
from tenure.runtime.blocking import Connections
from tests.faults.support import FLAVOURS, UNHURRIED, Driver, key_of, traces, wait_clean
from tests.harness.aio import run_async
from tests.harness.leases import wait_for_inbox
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tenure.clients.base import AsyncConnection
    from tenure.core.lease_state import Hold
    from tenure.core.ports import Port
    from tests.faults.support import Flavour
    from tests.harness.servers import Server

NAME = "slow"
TTL = 120.0
BOTH = pytest.mark.parametrize("flavour", FLAVOURS)


class Late:
    """Replies about one lock that have arrived, and are looked at only when `go` is set."""

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.here = threading.Event()
        self.go = threading.Event()

    def hold_back(self, packed: bytes) -> bool:
        return self.key in packed and threading.current_thread().name in ("driver-call", "driver-loop")


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch, namespace: str) -> Iterator[Late]:
    held = Late(f"{namespace}:{NAME}".encode())
    call, submit = SocketConnection.call, StreamConnection.submit

    def called(self: SocketConnection, packed: bytes, timeout: float) -> Any:  # noqa: ANN401
        reply = call(self, packed, timeout)
        if held.hold_back(packed):
            held.here.set()
            held.go.wait(60)
        return reply

    def submitted(self: StreamConnection, packed: bytes, timeout: float) -> asyncio.Future[Any]:
        future = submit(self, packed, timeout)
        if not held.hold_back(packed) or held.go.is_set():
            return future

        async def later() -> Any:  # noqa: ANN401
            reply = await future
            held.here.set()
            await asyncio.to_thread(held.go.wait, 60)
            return reply

        return asyncio.ensure_future(later())

    monkeypatch.setattr(SocketConnection, "call", called)
    monkeypatch.setattr(StreamConnection, "submit", submitted)
    yield held
    held.go.set()


@BOTH
@pytest.mark.usefixtures("patient_close")
def test_a_grant_that_is_seen_when_its_locks_are_closed_is_no_lease(
    valkey_server: Server, namespace: str, flavour: Flavour, late: Late
) -> None:
    """Closing has given it back already: two would hold the lock."""
    with Driver(flavour, valkey_server.url, namespace, **UNHURRIED) as driver:
        other = driver.acquire("other", ttl=TTL)
        taking = driver.soon(driver.lock(NAME, ttl=TTL).acquire)
        assert late.here.wait(60)
        assert key_of(valkey_server, namespace, NAME)
        driver.soon(driver.locks.close).result(60)
        wait_clean(valkey_server, namespace, 60)
        late.go.set()
        with pytest.raises(tenure.NotAcquired, match="being closed"):
            taking.result(60)
        assert other.lost == "closed"
        wait_clean(valkey_server, namespace, 60)


@pytest.mark.usefixtures("patient_close")
@pytest.mark.parametrize("first", [True, False], ids=["the first of all", "a later one"])
def test_a_request_that_leaves_when_its_locks_are_closed_leaves_nothing(
    valkey_server: Server, namespace: str, monkeypatch: pytest.MonkeyPatch, first: bool
) -> None:
    """Its thread has its connection, and stands still; nobody but itself can give back what it gets."""
    here, go = threading.Event(), threading.Event()
    take = Connections.take

    def taken(self: Connections, timeout: float) -> Any:  # noqa: ANN401
        connection = take(self, timeout)
        if threading.current_thread().name == "driver-call":
            here.set()
            go.wait(60)
        return connection

    with Driver("blocking", valkey_server.url, namespace, **UNHURRIED) as driver:
        if not first:
            driver.release(driver.acquire("other", ttl=TTL))
        monkeypatch.setattr(Connections, "take", taken)
        taking = driver.soon(driver.lock(NAME, ttl=TTL).acquire)
        assert here.wait(60)
        driver.soon(driver.locks.close).result(60)
        go.set()
        with pytest.raises(tenure.NotAcquired, match="being closed"):
            taking.result(60)
        assert not traces(valkey_server, namespace)


ENDS_IN_BETWEEN = """
import atexit, sys, threading
seen, go, settled = threading.Event(), threading.Event(), threading.Event()

def last():
    go.set()
    settled.wait(60)

# Before that of tenure: so it is called after it.
atexit.register(last)
import tenure
from tenure import manager_base
from tenure.clients.sockets import SocketConnection
from tenure.runtime.blocking import ThreadSignal
manager_base.EXIT_TIMEOUT = 30.0
call, wait = SocketConnection.call, ThreadSignal.wait
thread = None

def called(self, packed, timeout):
    reply = call(self, packed, timeout)
    if threading.current_thread() is thread and b":slow" in packed:
        if seen.is_set():
            settled.set()
        seen.set()
        go.wait()
    return reply

def waited(self, until):
    if threading.current_thread() is thread:
        settled.set()
    wait(self, until)

SocketConnection.call, ThreadSignal.wait = called, waited
locks = tenure.Locks(sys.argv[1], namespace=sys.argv[2], server_timeout=30)
lease = locks.lock("other", ttl=120).acquire()
thread = threading.Thread(target=locks.lock("slow", ttl=120).acquire, daemon=True)
thread.start()
seen.wait()
"""


def test_a_grant_that_a_daemon_thread_sees_at_exit_is_not_asked_for_again(
    valkey_server: Server, namespace: str
) -> None:
    """It was given back, and nobody would do so a second time."""
    command = [sys.executable, "-c", ENDS_IN_BETWEEN, valkey_server.url, namespace]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert traces(valkey_server, namespace) == []


@BOTH
def test_a_renewal_by_hand_that_fails_is_made_up_for_in_time(
    valkey_server: Server, namespace: str, flavour: Flavour, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hub, which had left it to the holder, does not sleep until the lease is lost."""
    with Driver(flavour, valkey_server.url, namespace, **UNHURRIED) as driver:
        driver.warm()
        lease = driver.acquire(NAME, ttl=TTL)
        session, hold = lease._session, lease._hold
        port = session.port if flavour == "blocking" else next(iter(session._loops.values()))

        async def fails(*_: object, **__: object) -> None:
            session.hub.wake()
            wait_until(lambda: session.hub.wake_at == hold.deadline, 60, "the hub to sleep until the deadline")
            raise NotSent("never", fatal=True)

        with monkeypatch.context() as patched:
            patched.setattr(port, "send", fails)
            with pytest.raises(tenure.ServerUnavailable):
                driver.renew(lease)
        assert hold.next_renew < hold.deadline
        wait_until(lambda: session.hub.wake_at <= hold.next_renew, 60, "the hub to be up when it is due")
        driver.release(lease)


def test_two_tasks_that_meet_a_replica_are_not_cancelled(private_server: Server, namespace: str) -> None:
    """The first one opens a new connection, which the second one gives up."""

    async def main() -> None:
        async with tenure.AsyncLocks(private_server.url, namespace=namespace, server_timeout=60) as locks:
            await (await locks.lock("other").acquire()).release()
            private_server.command("REPLICAOF", "127.0.0.1", "1")
            taking = (locks.lock(f"{NAME} {number}").try_acquire() for number in range(4))
            for result in await asyncio.gather(*taking, return_exceptions=True):
                assert isinstance(result, tenure.ServerReadOnly), repr(result)
            private_server.command("REPLICAOF", "NO", "ONE")
            async with locks.lock(NAME):
                pass

    run_async(main)


@BOTH
def test_a_holder_whose_inbox_could_not_be_announced_is_asked_all_the_same(
    valkey_server: Server, namespace: str, flavour: Flavour, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, failed = hub.announce, threading.Event()

    async def announce(port: Port, holds: Sequence[Hold]) -> list[str]:
        if failed.is_set():
            return await real(port, holds)
        failed.set()
        raise tenure.ServerUnavailable("away", node=port.node)

    monkeypatch.setattr(hub, "announce", announce)
    told: list[object] = []
    with tenure.Locks(valkey_server.url, namespace=namespace) as others:
        with Driver(flavour, valkey_server.url, namespace, **UNHURRIED) as driver:
            lease = driver.acquire(NAME, ttl=TTL, on_ask=told.append)
            assert failed.wait(60)
            wait_until(lambda: others.ask(NAME), 60, "the holder to hear of it")
            wait_until(lambda: told, 60, "the callback")
            driver.release(lease)
        assert told == [lease]


class Away:
    """A client that has no connection for an inbox, and says so in its own words, until it is back."""

    def __init__(self, url: str, error: tenure.TenureError) -> None:
        self._real = client_of(url)
        self._error = error
        self.node = self._real.node
        self.connect = self._real.connect
        self.tried = threading.Event()
        self.back = False

    async def connect_async(
        self, timeout: float, *, on_lost: Callable[[], None], on_push: Callable[[Any], None] | None = None
    ) -> AsyncConnection:
        if on_push is not None and not self.back:
            self.tried.set()
            raise self._error
        return await self._real.connect_async(timeout, on_lost=on_lost, on_push=on_push)

    def forked(self) -> None: ...

    def close(self) -> None: ...


@pytest.mark.parametrize("error", [tenure.ServerUnavailable("away", node="n"), tenure.ConfigError("no server at all")])
def test_an_inbox_that_its_client_could_not_connect_is_made_later(
    valkey_server: Server, namespace: str, error: tenure.TenureError
) -> None:
    client = Away(valkey_server.url, error)
    with tenure.Locks(client, namespace=namespace, server_timeout=30) as locks:
        with locks.lock(NAME, ttl=TTL):
            assert client.tried.wait(60)
            if isinstance(error, tenure.ConfigError):
                waiting = Driver("blocking", valkey_server.url, namespace).soon(locks.lock(NAME, wait=60).acquire)
                with pytest.raises(tenure.ConfigError, match="no server at all"):
                    waiting.result(60)
        client.back = True
        wait_for_inbox(locks)
