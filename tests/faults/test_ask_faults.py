"""Asking holders in other processes, over a wire that loses, doubles and delays what is said."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

import pytest

from tenure import NotAcquired, Released
from tests.faults.crowds import Calls
from tests.faults.support import FLAVOURS, SLACK, UNHURRIED, Driver, Stopwatch, traces, wait_queued
from tests.harness.leases import age_waiters
from tests.harness.processes import Worker, say
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    import tenure
    from tests.faults.support import Flavour
    from tests.harness.proxy import FaultProxy
    from tests.harness.servers import Server

NAME = "precious"
LONG = 60.0
BOTH = pytest.mark.parametrize("flavour", FLAVOURS)


class Holder(Driver):
    """Holds the lock, can be reached, and counts how often it is told that somebody asks."""

    def __init__(self, flavour: Flavour, url: str, namespace: str) -> None:
        super().__init__(flavour, url, namespace, **UNHURRIED)
        self.warm()
        self.told: list[Any] = []
        self.lease: Any = self.acquire(NAME, ttl=LONG, on_ask=self.told.append)

    def wait_asked(self, timeout: float = 30.0) -> tenure.AskedEvent:
        """The first one who asked, once somebody has."""
        event = wait_until(lambda: self.lease.asked, timeout, "somebody to ask")
        wait_until(lambda: self.told, 30, "the callback")
        return event

    def catch_up(self, asking: Driver) -> None:
        """Returns when all that was sent to this client until now has been read: what is sent now comes last."""
        lease: Any = self.acquire("last", ttl=LONG)
        assert asking.soon(lambda: asking.locks.ask("last")).result(30) is not None
        wait_until(lambda: lease.asked, 30, "the message that was sent last")
        self.release(lease)


def ask(driver: Driver) -> tenure.Holder | None:
    """Asks once, by hand."""
    return driver.soon(lambda: driver.locks.ask(NAME)).result(60)


# Holders in other processes


def hold_until_asked(flavour: Flavour, url: str, namespace: str) -> None:
    """Worker: holds the lock until it hears that somebody asks, and then gives it back."""
    asked = threading.Event()

    def on_ask(lease: object) -> None:
        del lease
        asked.set()

    with Calls(flavour, url, namespace) as call:
        lease = call(call.locks.lock(NAME, ttl=LONG, on_ask=on_ask).acquire)
        say("ready", lease.fence)
        assert asked.wait(60)
        say("asked", lease.asked.pid, lease.asked.fence)
        say("released", call(lease.release).value)


@BOTH
def test_a_holder_in_another_process_reacts_and_the_one_who_asks_goes_on(
    valkey_server: Server, namespace: str, flavour: Flavour
) -> None:
    other: Flavour = "asyncio" if flavour == "blocking" else "blocking"
    with (
        Worker.start(hold_until_asked, flavour, valkey_server.url, namespace) as worker,
        Driver(other, valkey_server.url, namespace, **UNHURRIED) as driver,
    ):
        fence = int(worker.wait_for("ready", 60).split()[1])
        lease = driver.acquire(NAME, ttl=LONG, wait=50, ask_after=0)
        assert worker.wait_for("asked", 30).split() == ["asked", str(os.getpid()), str(fence)]
        assert worker.wait_for("released", 30) == "released released"
        assert worker.wait(30) == 0, worker.errors()
        assert lease.fence > fence
        driver.release(lease)
    assert not traces(valkey_server, namespace)


@BOTH
def test_a_holder_that_was_killed_hears_nothing_and_its_lease_ends(
    valkey_server: Server, namespace: str, flavour: Flavour
) -> None:
    with (
        Driver(flavour, valkey_server.url, namespace, **UNHURRIED) as driver,
        Worker.start(hold_until_asked, "blocking", valkey_server.url, namespace) as worker,
    ):
        driver.warm()
        worker.wait_for("ready", 60)
        worker.kill9()
        # The server notices the end of the connection a moment later; from then on it knows that nobody hears.
        wait_until(lambda: ask(driver) is None, 30, "nobody to be there")
        with pytest.raises(NotAcquired, match="was asked to release, and did not hear it") as caught:
            driver.acquire(NAME, ttl=LONG, wait=0, ask_after=0)
        assert caught.value.heard is False
        waiting = driver.soon(driver.lock(NAME, ttl=LONG, wait=50, ask_after=0).acquire)
        wait_queued(valkey_server, namespace, NAME)
        # The lease of the dead ends now, not in a minute.
        assert valkey_server.command("PEXPIRE", f"{namespace}:{NAME}", 10)
        age_waiters(driver.locks, 10)
        driver.release(waiting.result(30))
    assert not traces(valkey_server, namespace)


# Messages that are doubled, late or lost


@BOTH
def test_a_message_that_comes_twice_is_told_once(
    valkey_server: Server, proxy: FaultProxy, namespace: str, flavour: Flavour
) -> None:
    with (
        Holder(flavour, proxy.url, namespace) as holder,
        Driver("blocking", valkey_server.url, namespace, **UNHURRIED) as asking,
    ):
        proxy.duplicate_pushes()
        for _ in range(3):
            assert ask(asking) is not None
        event = holder.wait_asked()
        holder.catch_up(asking)
        assert holder.lease.asked is event
        assert holder.told == [holder.lease]
        holder.renew(holder.lease)
        assert holder.release(holder.lease) is Released.RELEASED
    assert not traces(valkey_server, namespace)


@BOTH
@pytest.mark.parametrize("again", [False, True], ids=["released", "taken again"])
def test_a_message_that_comes_after_the_release_is_about_nothing(
    valkey_server: Server, proxy: FaultProxy, namespace: str, flavour: Flavour, again: bool
) -> None:
    with (
        Holder(flavour, proxy.url, namespace) as holder,
        Driver("blocking", valkey_server.url, namespace, **UNHURRIED) as asking,
    ):
        proxy.hold_pushes()
        heard = ask(asking)
        assert heard is not None
        assert heard.fence == holder.lease.fence
        old = holder.lease
        assert holder.release(old) is Released.RELEASED
        if again:
            holder.lease = holder.acquire(NAME, ttl=LONG, on_ask=holder.told.append)
        proxy.release()
        holder.catch_up(asking)
        assert old.asked is None
        assert not holder.told
        if again:
            assert holder.lease.asked is None
            # This one can be asked as any other.
            assert ask(asking) is not None
            assert holder.wait_asked().fence == holder.lease.fence
            holder.release(holder.lease)
    assert not traces(valkey_server, namespace)


@BOTH
def test_a_message_that_was_lost_is_sent_again_with_the_next_poll(
    valkey_server: Server, proxy: FaultProxy, namespace: str, flavour: Flavour
) -> None:
    ttl = 4.0
    with (
        Holder(flavour, proxy.url, namespace) as holder,
        Driver("blocking", valkey_server.url, namespace, **UNHURRIED) as asking,
    ):
        asking.warm()
        proxy.drop_pushes()
        lost = Stopwatch()
        waiting = asking.soon(asking.lock(NAME, ttl=ttl, ask_after=0).acquire)
        wait_until(lambda: proxy.pushes_dropped, 30, "the message to be lost")
        assert holder.lease.asked is None
        proxy.heal()
        holder.wait_asked()
        # The waiter in front asks every five seconds, or twice in its ttl.
        assert lost.seconds < ttl / 2 + SLACK
        holder.release(holder.lease)
        lease = waiting.result(30)
        asking.release(lease)
    assert not traces(valkey_server, namespace)


@BOTH
def test_a_holder_whose_subscription_broke_hears_the_next_one(
    valkey_server: Server, proxy: FaultProxy, namespace: str, flavour: Flavour
) -> None:
    with (
        Holder(flavour, proxy.url, namespace) as holder,
        Driver("blocking", valkey_server.url, namespace, **UNHURRIED) as asking,
    ):
        proxy.cut_all()
        # What is sent into the dying connection counts as heard, and is not.
        wait_until(lambda: ask(asking) is not None and holder.lease.asked, 30, "the holder to be told")
        wait_until(lambda: holder.told, 30, "the callback")
        assert holder.told == [holder.lease]
        holder.release(holder.lease)
    assert not traces(valkey_server, namespace)


@BOTH
def test_an_asking_request_whose_reply_was_lost_asks_again_and_takes_one_place(
    valkey_server: Server, proxy: FaultProxy, namespace: str, flavour: Flavour
) -> None:
    with (
        Holder("blocking", valkey_server.url, namespace) as holder,
        Driver(flavour, proxy.url, namespace) as asking,
    ):
        asking.warm()
        fault = proxy.drop_next_reply(f":{NAME}".encode())
        waiting = asking.soon(asking.lock(NAME, ttl=LONG, wait=50, ask_after=0).acquire)
        fault.wait(30)
        holder.wait_asked()
        wait_queued(valkey_server, namespace, NAME, 1)
        holder.catch_up(asking)
        assert holder.told == [holder.lease]
        holder.release(holder.lease)
        asking.release(waiting.result(30))
    assert not traces(valkey_server, namespace)


# Many who ask


@BOTH
def test_three_who_ask_at_once_are_told_as_one_and_served_in_turn(
    valkey_server: Server, namespace: str, flavour: Flavour
) -> None:
    """Each next holder is asked by those who still wait; the last one by nobody."""
    askers = [Driver(flavour, valkey_server.url, namespace, **UNHURRIED) for _ in range(3)]
    try:
        with Holder(flavour, valkey_server.url, namespace) as holder:
            waiting: list[Any] = []
            for number, driver in enumerate(askers, 1):
                driver.warm()
                waiting.append(driver.soon(driver.lock(NAME, ttl=LONG, wait=90, ask_after=0).acquire))
                wait_queued(valkey_server, namespace, NAME, number)
            event = holder.wait_asked()
            holder.catch_up(askers[0])
            assert holder.told == [holder.lease]
            assert event.pid == os.getpid()
            holder.release(holder.lease)
            for number, (driver, future) in enumerate(zip(askers, waiting, strict=True)):
                lease = future.result(30)
                assert not any(later.done() for later in waiting[number + 1 :])
                if number < 2:
                    for other in askers[number + 1 :]:
                        age_waiters(other.locks, 10)
                    wait_until(lambda lease=lease: lease.asked, 30, "the next holder to be asked")
                else:
                    assert lease.asked is None
                driver.release(lease)
    finally:
        for driver in askers:
            driver.close()
    assert not traces(valkey_server, namespace)
