"""What if a thread or task stands still between two lines: the other side, forced to come just then."""

from __future__ import annotations

import asyncio
import sys
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

import tenure
from tenure import embedded
from tenure.clients.embedded import EmbeddedClient
from tenure.clients.streams import StreamConnection
from tenure.core.lease_state import Hold
from tenure.core.ports import NotSent, Unanswered
from tenure.core.renew import renew
from tenure.core.server_time import ServerTime
from tenure.runtime.aio import HubPort, LoopSignal, Node
from tenure.runtime.blocking import Connections, run
from tenure.runtime.callbacks import THREADS, Callbacks, in_thread
from tenure.runtime.hub import Hub
from tenure.runtime.threads import Threads
from tests.harness.aio import run_async
from tests.harness.waiting import wait_until
from tests.unit.leases import KEYS, TOKEN, hold, terms, ticket

if TYPE_CHECKING:
    from collections.abc import Callable

    from tenure.options import Terms
    from tenure.runtime.threads import Joinable

NOWHERE = "redis://127.0.0.1:1"
CLOSED = tenure.NotAcquired("closed", names=("n",))


class TestATicketThatSomebodyElseEnds:
    def test_while_it_waits_ends_its_owners_wait(self) -> None:
        mine, flag = ticket()
        assert mine.end(CLOSED) is None
        assert (mine.error, mine.wanted(), flag.sets) == (CLOSED, False, 1)
        assert not mine.held(hold()), "a grant that came meanwhile is given back already"

    def test_when_it_is_held_tells_the_lease(self) -> None:
        mine, _ = ticket()
        lease = hold()
        assert mine.held(lease)
        assert mine.end(CLOSED) is lease
        assert mine.error is None

    def test_that_its_owner_has_given_up_stays_as_it_is(self) -> None:
        mine, flag = ticket()
        mine.withdraw()
        assert mine.end(CLOSED) is None
        assert (mine.error, flag.sets) == (None, 0)


def test_nobody_begins_to_wait_when_nobody_listens_any_more() -> None:
    locks = tenure.Locks(NOWHERE)
    session = locks.session()
    locks.close()
    mine, _ = ticket()
    with pytest.raises(tenure.NotAcquired, match="being closed"):
        session.port.register(mine)
    assert session.hub.tickets == {}


def test_locks_that_are_closed_while_they_make_their_session_make_none() -> None:
    locks = tenure.Locks(NOWHERE)
    real = locks._mutex

    class Closing:
        def __enter__(self) -> None:
            locks._mutex = real
            locks.close()
            real.__enter__()

        def __exit__(self, *error: object) -> None:
            real.__exit__(*cast("tuple[Any, Any, Any]", error))

    cast("Any", locks)._mutex = Closing()
    with pytest.raises(tenure.NotAcquired, match="closed"):
        locks.session()
    assert locks._current is None


class Shortened(Hold):
    """A lease that its holder renews with a shorter ttl as soon as somebody else has read the one that it had."""

    armed = False

    @property
    def terms(self) -> Terms:
        found: Terms = _TERMS.__get__(self)
        if self.armed and not cast("Any", self.mutex).locked():
            self.armed = False
            self.begin_renewal(terms(4), 103)
        return found

    @terms.setter
    def terms(self, value: Terms) -> None:
        _TERMS.__set__(self, value)


_TERMS = cast("Any", Hold).terms


def test_a_renewal_on_schedule_does_not_bring_back_a_ttl_that_was_shortened_meanwhile() -> None:
    async def never(*_: object, **__: object) -> None:
        raise NotSent("never", fatal=True)

    lease = Shortened(KEYS, TOKEN, 7, terms(10), granted_at=100.0, deadline=110.0, mutex=threading.Lock())
    lease.armed = True
    port = SimpleNamespace(
        now=lambda: 103.0, random=lambda: 0.5, request_timeout=1.0, server_timeout=1.0, server_time=ServerTime(),
        node="h:7", send=never,
    )  # fmt: skip
    with pytest.raises(tenure.ServerUnavailable):
        run(renew(cast("Any", port), [lease]))
    assert not lease.armed
    assert lease.terms.ttl == 4


class Transport:
    """A wire on which nothing comes back but what a test puts there."""

    def set_protocol(self, protocol: object) -> None: ...

    def write(self, data: bytes) -> None: ...

    def abort(self) -> None: ...


def test_a_request_with_less_time_than_one_before_it_is_not_given_up_later() -> None:
    async def main() -> None:
        lost: list[int] = []
        transport = cast("Any", Transport())
        line = StreamConnection(transport, None, on_lost=lambda: lost.append(1), on_push=None)
        answered = line.submit(b"", 3600)
        line.data_received(b"+OK\r\n")
        assert await answered == b"OK"
        with pytest.raises(Unanswered, match="in time"):
            await line.submit(b"", 0.01)
        assert (line.closed, lost) == (True, [1])

        line = StreamConnection(transport, None, on_lost=lambda: lost.append(2), on_push=None)
        patient, hurried = line.submit(b"", 3600), line.submit(b"", 0.01)
        for future in (hurried, patient):
            with pytest.raises(Unanswered, match="in time"):
                await future

    run_async(main)


def test_a_loop_that_is_closed_between_two_lines_does_not_hurt_who_wakes_it() -> None:
    class Closed:
        def is_closed(self) -> bool:
            return False

        def call_soon_threadsafe(self, *_: object) -> None:
            raise RuntimeError("Event loop is closed")

    async def main() -> None:
        signal = LoopSignal()
        waiting = asyncio.create_task(signal.wait(None))
        await asyncio.sleep(0)
        signal._loop = cast("Any", Closed())
        with signal.mutex:
            signal.set()
        waiting.cancel()
        await asyncio.wait({waiting})

    run_async(main)


class Slow:
    """A client whose connections take their time; `stubborn` ones are opened although they were cancelled."""

    def __init__(self, *, stubborn: bool) -> None:
        self.stubborn = stubborn
        self.opening = asyncio.Event()
        self.opened: list[StreamConnection] = []

    async def connect_async(self, timeout: float, *, on_lost: Callable[[], None]) -> StreamConnection:
        del timeout
        self.opening.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if not self.stubborn:
                raise
        line = StreamConnection(cast("Any", Transport()), None, on_lost=on_lost, on_push=None)
        self.opened.append(line)
        asyncio.get_running_loop().call_soon(line.data_received, b"*2\r\n$1\r\n1\r\n$1\r\n1\r\n")
        return line


def _node(client: Slow) -> Node:
    state = tenure.AsyncLocks(NOWHERE).session().state
    state.client = cast("Any", client)
    return Node(state)


def test_a_connection_that_is_given_up_while_it_is_opened_cancels_nobody() -> None:
    async def main() -> None:
        client = Slow(stubborn=False)
        node = _node(client)
        callers = [asyncio.create_task(node._connected(60)) for _ in range(3)]
        await client.opening.wait()
        node.close()
        for result in await asyncio.gather(*callers, return_exceptions=True):
            assert isinstance(result, NotSent)
            assert not result.fatal

    run_async(main)


def test_a_caller_that_is_cancelled_leaves_the_connection_to_the_others() -> None:
    async def main() -> None:
        client = Slow(stubborn=True)
        node = _node(client)
        gone, other = (asyncio.create_task(node._connected(60)) for _ in range(2))
        await client.opening.wait()
        gone.cancel()
        await asyncio.wait({gone})
        assert gone.cancelled()
        assert node._opening is not None
        assert not node._opening.cancelling()
        node._opening.cancel()
        assert await other is client.opened[0]
        await node.end()

    run_async(main)


def test_a_connection_that_is_opened_in_spite_of_the_end_is_closed() -> None:
    async def main() -> None:
        client = Slow(stubborn=True)
        node = _node(client)
        caller = asyncio.create_task(node._connected(60))
        await client.opening.wait()
        await node.end()
        assert [line.closed for line in client.opened] == [True]
        await asyncio.wait({caller})

    run_async(main)


def test_a_connection_that_is_given_back_while_all_are_closed_is_closed_too() -> None:
    state = tenure.Locks(NOWHERE).session().state
    connections = Connections(state)
    closed: list[int] = []

    class Idle(list[Any]):
        def append(self, item: object) -> None:
            connections.close()
            super().append(item)

    class Line:
        def close(self) -> None:
            closed.append(1)

    connections._idle = Idle()
    connections.give(cast("Any", Line()))
    assert (closed, connections._idle) == ([1], [])


def test_loops_of_other_threads_may_come_while_one_looks_for_closed_ones() -> None:
    locks = tenure.AsyncLocks(NOWHERE)
    session = locks.session()
    loops = cast("dict[Any, Any]", session._loops)

    class Loop:
        def is_closed(self) -> bool:
            # Another thread takes this one out as well, and brings its own.
            loops.pop(self, None)
            loops[object()] = loops[cast("Any", Loop())] = None
            return True

    loops[Loop()] = None

    async def main() -> None:
        assert session.aio_port() is session.aio_port()

    run_async(main)
    loops.clear()


class TestCallbacks:
    def test_for_which_there_is_no_thread_are_called_by_the_next_one(self) -> None:
        """The caller is the hub: it must live on, though no thread can be started for a while."""
        threads = [False] * (THREADS + 1)

        def spawn(call: Callable[[], object]) -> None:
            if threads and not threads.pop():
                raise RuntimeError("can't start new thread")
            in_thread(call)

        callbacks = Callbacks(spawn)
        told: list[int] = []
        for number in range(THREADS + 2):
            callbacks.submit(lambda number=number: told.append(number))
        wait_until(lambda: len(told) == THREADS + 2, 30, "all of them")
        assert told == list(range(THREADS + 2))

    def test_that_end_their_thread_leave_the_others_theirs(self) -> None:
        callbacks = Callbacks()
        for _ in range(THREADS + 1):
            callbacks.submit(sys.exit)
        told = threading.Event()
        callbacks.submit(told.set)
        assert told.wait(30)
        wait_until(lambda: callbacks._threads == 0, 30, "their threads to end")


def test_a_hub_that_ends_asks_a_server_that_is_away_again_and_again_and_not_all_the_time() -> None:
    async def main() -> None:
        session = tenure.Locks(NOWHERE).session()
        port = HubPort(session.state, session.hub)
        session.hub.stopping.set()
        loop = asyncio.get_running_loop()
        began = loop.time()
        for _ in range(20):
            await port.sleep(60)
        assert loop.time() - began > 0.19, "less than a hundred tries in a second"

    run_async(main)


def test_a_hub_that_is_stopped_before_its_thread_has_come_ends_all_the_same() -> None:
    """A signal handler that closes everything may interrupt the call that starts the thread."""
    stopped, started = threading.Event(), list[threading.Thread]()

    class Interrupted(Threads):
        def start(self, run: Callable[[Joinable], None], name: str) -> Joinable:
            def late() -> None:
                stopped.wait()
                run(threading.current_thread())

            thread = threading.Thread(target=late, name=name, daemon=True)
            thread.start()
            started.append(thread)
            hub.stop(release=True, within=30)
            stopped.set()
            return thread

    session = tenure.Locks(NOWHERE).session()
    hub = Hub(session.state, session.notifier, Interrupted())
    hub.start()
    started[0].join(30)
    assert not started[0].is_alive()


def test_a_signal_handler_may_close_locks_that_are_just_joining_the_embedded_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = EmbeddedClient()

    def join(timeout: float) -> None:
        del timeout
        client.close()
        raise NotSent("as an interrupt would")

    monkeypatch.setattr(embedded, "join", join)
    ended: list[BaseException] = []

    def connect() -> None:
        try:
            client.connect(1)
        except NotSent as error:
            ended.append(error)

    thread = threading.Thread(target=connect, daemon=True)
    thread.start()
    thread.join(30)
    assert ended, "it waits for itself"
