"""Rows 49 and 50: messages that are lost, late or doubled, and subscriptions that break."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from tenure import Released
from tenure.core import requests
from tenure.core.keys import channel_prefix, keys_of
from tenure.core.scripts import WITHDRAW
from tenure.runtime import clock
from tests.cases.server_side import Keys
from tests.faults.support import (
    FLAVOURS,
    SELDOM,
    SLACK,
    UNHURRIED,
    Driver,
    FencedRegister,
    Stopwatch,
    key_fence,
    key_of,
    queue_length,
    traces,
    wait_clean,
    wait_queued,
)
from tests.harness.commands import CallCounter
from tests.harness.leases import age, age_waiters
from tests.harness.waiting import wait_until
from tests.lua.inboxes import Inboxes

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence
    from concurrent.futures import Future

    from tenure import AsyncLease, Lease
    from tenure.core.ticket import Ticket
    from tests.faults.support import Flavour
    from tests.harness.proxy import FaultProxy
    from tests.harness.servers import Server

NAME = "precious"
TTL = 0.5
GRACE = 0.01 * TTL + 0.02
LONG = 120.0
"""A ttl that no test waits for."""
TOLD = 0.5 * SELDOM
"""Sooner than a poll: whoever was served within this time was told, or asked because its subscription was new."""

BOTH = pytest.mark.parametrize("flavour", FLAVOURS)
pytestmark = pytest.mark.usefixtures("seldom_polled")


def start_waiting(
    driver: Driver, server: Server, namespace: str, count: int = 1, ttl: float = LONG
) -> list[Future[Lease | AsyncLease]]:
    """Queue `count` waiters one after another; returns them in their order."""
    tickets = driver.locks.session().hub.tickets
    waiting: list[Future[Lease | AsyncLease]] = []
    for _ in range(count):
        before = queue_length(server, namespace, NAME)
        waiting.append(driver.soon(driver.lock(NAME, ttl=ttl, wait=60).acquire))
        wait_queued(server, namespace, NAME, before + 1)
    # The server knows them first: who has not seen its answer yet has no poll that could be due.
    wait_until(lambda: all(ticket.next_poll is not None for ticket in list(tickets.values())), 30, "all to know it")
    return waiting


def inbox_of(driver: Driver) -> str:
    """The channel of a client's inbox."""
    state = driver.locks.session().state
    return state.prefix.decode() + state.inbox_id


def subscribers(server: Server, channel: str) -> int:
    return server.command("PUBSUB", "SHARDNUMSUB", channel)[1]


def limit_disconnections(server: Server) -> int:
    """How many clients the server has cut off because of their output buffers."""
    stats: dict[str, int] = cast("Any", server.admin).info("stats")
    return stats["client_output_buffer_limit_disconnections"]


# Row 49: the message is lost, or late


@BOTH
def test_row_49_a_late_message_about_a_lease_that_was_written_down(
    valkey_server: Server, proxy: FaultProxy, namespace: str, flavour: Flavour
) -> None:
    """It was granted by a poll, and handed over at once: it belongs to whoever takes it over by now."""
    with (
        Driver(flavour, valkey_server.url, namespace, **UNHURRIED) as outside,
        Driver(flavour, proxy.url, namespace, **UNHURRIED) as driver,
    ):
        driver.warm()
        later = driver.acquire("another", ttl=LONG)
        lease = outside.acquire(NAME, ttl=LONG)
        (waiter,) = start_waiting(driver, valkey_server, namespace)
        proxy.hold_pushes()
        outside.release(lease)
        age_waiters(driver.locks, LONG)
        exported = waiter.result(SLACK).export()
        proxy.release()
        # A message that comes behind it tells that it has arrived.
        outside.soon(lambda: outside.locks.break_lock("another")).result(30)
        hub = driver.locks.session().hub
        wait_until(lambda: later.lost == "revoked" and not hub._tasks, 30, "the message to have had its effect")
        adopted = outside.soon(lambda: outside.locks.adopt(exported)).result(30)
        outside.release(adopted)
        driver.release(later)
        assert key_of(valkey_server, namespace, NAME) is None


@BOTH
def test_row_49_a_lost_message_costs_one_poll(
    valkey_server: Server, proxy: FaultProxy, namespace: str, flavour: Flavour
) -> None:
    """Row 49: without any message each waiter in turn finds out by its poll, at half its ttl at the latest."""
    ttl = 20
    with (
        Driver("blocking", valkey_server.url, namespace) as outside,
        Driver(flavour, proxy.url, namespace) as driver,
    ):
        lease = outside.acquire(NAME)
        waiting = start_waiting(driver, valkey_server, namespace, 3, ttl)
        proxy.drop_pushes()
        outside.release(lease)
        for number, waiter in enumerate(waiting, 1):
            wait_until(lambda number=number: proxy.pushes_dropped == number, 30, "the message to be lost")
            assert not waiter.done()
            age_waiters(driver.locks, ttl / 2)
            lease = waiter.result(TOLD)
            lease.check()
            assert lease.fence == key_fence(valkey_server, namespace, NAME)
            driver.release(lease)
        assert not traces(valkey_server, namespace)


@BOTH
@pytest.mark.parametrize("place", [0, 1, 3])
def test_row_49_nobody_tells_that_a_holder_died(
    valkey_server: Server, namespace: str, flavour: Flavour, place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row 49: the first waiters ask when the holder's key ends, 50 ms apart, though all in front are dead."""
    keys = Keys(valkey_server, namespace, NAME)
    with Driver(flavour, valkey_server.url, namespace, **UNHURRIED) as driver:
        driver.warm()
        after: list[float] = []
        hub = driver.locks.session().hub
        poll = hub._poll

        def note(tickets: Sequence[Ticket]) -> Coroutine[Any, Any, None]:
            after.extend(clock.now() - ticket.sent_at - (ticket.left or 0) for ticket in tickets)
            return poll(tickets)

        monkeypatch.setattr(hub, "_poll", note)
        for life_ms in (500, 3000, 12_000):
            keys.dead_holder(60_000)
            keys.dead_waiters(place)
            valkey_server.command("PEXPIRE", keys.main, life_ms)
            ends_ms = valkey_server.command("PEXPIRETIME", f"{namespace}:{NAME}")
            with CallCounter(valkey_server.admin) as calls:
                lease = driver.soon(driver.lock(NAME, ttl=LONG).acquire).result(TOLD)
            if calls.scripts > 1:
                break
            # The machine stood still for the whole life of the holder: once more, with a longer one.
            driver.release(lease)
        value = key_of(valkey_server, namespace, NAME)
        assert value is not None
        granted_ms = int(value.split(b" ")[2])
        assert 0 <= granted_ms - ends_ms < 50 * place + 1000 * SLACK
        assert calls.scripts == 1 + len(after) > 1, "somebody else has asked"
        # It reckons from before it has asked: by as long as that request was on its way it may come early, and again.
        assert min(after) >= 0.05 * place, "it has asked before there was anything to know"
        assert lease.fence == key_fence(valkey_server, namespace, NAME)
        driver.release(lease)
        assert not traces(valkey_server, namespace)


@pytest.mark.parametrize("kind", ["sharded", "plain"])
def test_row_49_an_operator_who_listens_to_everything_is_no_waiter(
    valkey_server: Server, namespace: str, kind: str
) -> None:
    """Row 49: `PSUBSCRIBE *` receives what is published to the dead; they are skipped in the same release."""
    keys = Keys(valkey_server, namespace, NAME)
    with (
        Inboxes(valkey_server) as operator,
        Driver("blocking", valkey_server.url, namespace, **UNHURRIED) as outside,
        Driver("blocking", valkey_server.url, namespace, **UNHURRIED) as driver,
    ):
        operator.subscribe(b"*", kind=b"*")
        outside.warm()
        driver.warm()
        lease = outside.acquire(NAME)
        keys.dead_waiters(3)
        if kind == "plain":
            # As a client of a server without sharded messages has queued.
            for token, entry in list(valkey_server.command("HGETALL", keys.entry).items()):
                valkey_server.command("HSET", keys.entry, token, entry.replace(b"@s", b"@p"))
        (waiting,) = start_waiting(driver, valkey_server, namespace)
        with CallCounter(valkey_server.admin) as calls:
            outside.release(lease)
            lease = waiting.result(TOLD)
        assert calls.scripts == 1, "the dead were served, and somebody had to ask"
        driver.release(lease)
        assert not traces(valkey_server, namespace)


# Row 49: the message comes twice, or late


@BOTH
def test_row_49_a_message_that_comes_twice_is_one_grant(
    valkey_server: Server, proxy: FaultProxy, namespace: str, flavour: Flavour
) -> None:
    """Row 49: the second one neither makes a lease nor gives the one that is held back."""
    proxy.duplicate_pushes()
    with (
        Driver("blocking", valkey_server.url, namespace) as outside,
        Driver(flavour, proxy.url, namespace) as driver,
    ):
        lease = outside.acquire(NAME)
        (waiting,) = start_waiting(driver, valkey_server, namespace)
        outside.release(lease)
        lease = waiting.result(TOLD)
        # Both messages have come before the answers to these.
        for _ in range(2):
            age(lease, LONG / 2 + 1)
            wait_until(lambda: lease.remaining() > LONG / 2, 30, "a renewal by the same hub")
            assert key_fence(valkey_server, namespace, NAME) == lease.fence
        lease.check()
        assert driver.locks.statistics().granted == 1
        assert proxy.count(WITHDRAW.sha) == 0, "it was given back while it was held"
        assert driver.release(lease) is Released.RELEASED
        assert not traces(valkey_server, namespace)


@BOTH
def test_row_49_a_message_about_a_lease_that_is_over_hurts_nobody(
    valkey_server: Server, proxy: FaultProxy, namespace: str, flavour: Flavour
) -> None:
    """Row 49: delivered when the waiter had long been served by its poll and had released, and another holds."""
    with (
        Driver("blocking", valkey_server.url, namespace) as outside,
        Driver(flavour, proxy.url, namespace) as driver,
    ):
        # A lease that is taken without an inbox is announced a second later, which changes what its key holds.
        outside.warm()
        lease = outside.acquire(NAME)
        (waiting,) = start_waiting(driver, valkey_server, namespace)
        proxy.hold_pushes()
        outside.release(lease)
        age_waiters(driver.locks, SELDOM)
        lease = waiting.result(TOLD)
        assert driver.release(lease) is Released.RELEASED
        lease = outside.acquire(NAME)
        before = key_of(valkey_server, namespace, NAME)
        proxy.release()
        # Nobody wants what the message brings, so it is given back.
        wait_until(lambda: proxy.count(WITHDRAW.sha), 30, "the late message to be answered")
        # The next request of the same hub comes behind it.
        assert driver.holder_fence(NAME) == lease.fence
        assert key_of(valkey_server, namespace, NAME) == before
        assert driver.locks.statistics().held == 0
        lease.check()
        assert outside.release(lease) is Released.RELEASED
        wait_clean(valkey_server, namespace)


@BOTH
def test_row_49_a_message_that_comes_after_its_lease_has_ended_grants_nothing(
    valkey_server: Server, proxy: FaultProxy, namespace: str, flavour: Flavour
) -> None:
    """Row 49: a grant stuck in a partition blocks the lock for its ttl and grace, and is worth nothing afterwards."""
    with (
        Driver("blocking", valkey_server.url, namespace) as outside,
        Driver(flavour, proxy.url, namespace, server_timeout=30) as driver,
        FencedRegister(valkey_server, namespace) as register,
    ):
        lease = outside.acquire(NAME)
        (waiting,) = start_waiting(driver, valkey_server, namespace, ttl=TTL)
        proxy.partition()
        released = Stopwatch()
        outside.release(lease)
        between = outside.acquire(NAME)
        assert TTL < released.seconds < TTL + GRACE + SLACK
        assert register.write(between.fence, "by the one in between")
        proxy.heal()
        with pytest.raises(TimeoutError):
            waiting.result(0.3)
        between.check()
        assert key_fence(valkey_server, namespace, NAME) == between.fence
        outside.release(between)
        lease = waiting.result(TOLD)
        assert lease.fence > between.fence
        assert register.write(lease.fence, "by the late one")
        driver.release(lease)
        wait_clean(valkey_server, namespace)


# Row 50: the subscription breaks


@BOTH
@pytest.mark.parametrize("gap", [False, True], ids=["released later", "released in the gap"])
@pytest.mark.parametrize("how", ["killed by the server", "reset on the way"])
def test_row_50_waiters_whose_subscription_breaks_are_served_all_the_same(
    valkey_server: Server, proxy: FaultProxy, namespace: str, flavour: Flavour, gap: bool, how: str
) -> None:
    """Row 50: subscribed anew, all ask; also those far back, whose next poll is fifteen seconds away."""
    with (
        Driver("blocking", valkey_server.url, namespace) as outside,
        Driver(flavour, proxy.url, namespace) as driver,
    ):
        lease = outside.acquire(NAME)
        waiting = start_waiting(driver, valkey_server, namespace, 6)
        inbox = inbox_of(driver)
        asked = proxy.count(inbox.encode())
        if how == "reset on the way":
            proxy.cut_all()
        else:
            assert valkey_server.command("CLIENT", "KILL", "TYPE", "pubsub") >= 1
        if not gap:
            wait_until(lambda: proxy.count(inbox.encode()) > asked, 30, "a new subscription")
            wait_until(lambda: subscribers(valkey_server, inbox) == 1, 30, "the new subscription")
        outside.release(lease)
        fences = [lease.fence]
        for waiter in waiting:
            lease = waiter.result(TOLD)
            fences.append(lease.fence)
            driver.release(lease)
        assert fences == sorted(set(fences)), "they have lost their order"
        wait_clean(valkey_server, namespace)


@BOTH
@pytest.mark.parametrize("gap", [False, True], ids=["released later", "released in the gap"])
def test_row_50_a_subscriber_that_was_too_slow_for_its_output_buffer(
    private_server: Server, namespace: str, flavour: Flavour, gap: bool
) -> None:
    """Row 50: cut off with a message in its buffer; what was sent on the dying connection counts as heard."""
    private_server.command("CONFIG", "SET", "client-output-buffer-limit", "pubsub 1 0 0")
    with (
        Driver("blocking", private_server.url, namespace) as outside,
        Driver(flavour, private_server.url, namespace) as driver,
    ):
        holding = outside.acquire(NAME)
        (waiting,) = start_waiting(driver, private_server, namespace)
        inbox = inbox_of(driver)
        cut_off = limit_disconnections(private_server)
        # In one transaction the server has no moment to close the connection before the release publishes the grant.
        together: Any = cast("Any", private_server.admin).pipeline(transaction=True)
        together.execute_command("SPUBLISH", inbox, "noise " + "x" * 1_000_000)
        if gap:
            release = requests.release(keys_of(namespace, NAME), holding.token.encode())
            together.execute_command(*release.command(channel_prefix(namespace), full=True))
        assert together.execute()[0] == 1
        if not gap:
            wait_until(lambda: limit_disconnections(private_server) > cut_off, 30, "the subscriber to be cut off")
            wait_until(lambda: subscribers(private_server, inbox) == 1, 30, "the new subscription")
            outside.release(holding)
        lease = waiting.result(TOLD)
        assert limit_disconnections(private_server) > cut_off
        assert lease.fence == key_fence(private_server, namespace, NAME)
        driver.release(lease)
        outside.release(holding)
        wait_clean(private_server, namespace)
