"""Rows 31 to 35 for everything but one exclusive lock: replies that are lost, requests that arrive late, roll back."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, cast

import pytest

from tenure import LeaseLost, NotAcquired, Ran, Released, ServerError, ServerUnavailable
from tenure.core.scripts import ADOPT, ONCE, RELEASE, SEVERAL
from tests.faults.support import FLAVOURS, UNHURRIED, Driver, traces
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.faults.support import Flavour
    from tests.harness.proxy import FaultProxy
    from tests.harness.servers import Server
    from tests.harness.wire import End

BOTH = pytest.mark.parametrize("flavour", FLAVOURS)
NAMES = ("a", "b", "c")


def call(driver: Driver, function: Callable[..., Any], *args: Any, **options: Any) -> Any:  # noqa: ANN401
    """Calls something of either flavour in its own place."""
    return driver.soon(lambda: function(*args, **options)).result(60)


def left(server: Server, namespace: str) -> list[bytes]:
    """What is there besides fences, and besides the notes that a lease was adopted or that something ran."""
    return [key for key in traces(server, namespace) if b":moved:" not in key and not key.endswith(b":again")]


def wait_left(server: Server, namespace: str) -> None:
    wait_until(lambda: not left(server, namespace), 30, f"nothing left, but {left(server, namespace)}")


def several(driver: Driver, **options: Any) -> Any:  # noqa: ANN401 - a lock of either flavour
    return cast("Any", driver.locks).lock(*NAMES, ttl=30, **options)


def fences_on_the_server(outside: Driver) -> dict[str, int | None]:
    return {name: outside.holder_fence(name) for name in NAMES}


@pytest.fixture
def outside(valkey_server: Server, namespace: str) -> Any:  # noqa: ANN401 - a generator
    """Looks from elsewhere, over a sound wire."""
    with Driver("blocking", valkey_server.url, namespace, **UNHURRIED) as driver:
        yield driver


def warm(driver: Driver) -> None:
    """As `Driver.warm`, and for several names, `adopt` and `once` too: whichever test ran before this one."""
    driver.warm()
    text = call(driver, several(driver).acquire).export()
    call(driver, call(driver, driver.locks.adopt, text).release)
    call(driver, cast("Any", driver.locks).once, "warm", _nothing if driver.flavour == "blocking" else _async_nothing)


def _nothing() -> None:
    pass


async def _async_nothing() -> None:
    pass


# A reply is lost


@BOTH
@pytest.mark.parametrize("then", ["rst", "silence"])
def test_several_whose_reply_is_lost_are_had_with_the_same_fences(
    valkey_server: Server, proxy: FaultProxy, namespace: str, flavour: Flavour, outside: Driver, then: End
) -> None:
    with Driver(flavour, proxy.url, namespace) as driver:
        warm(driver)
        lost = proxy.drop_next_reply(SEVERAL.sha, then=then)
        lease = call(driver, several(driver).acquire)
        lost.wait(30)
        assert lease.fences == fences_on_the_server(outside)
        call(driver, lease.renew)
        assert call(driver, lease.release) is Released.RELEASED
    wait_left(valkey_server, namespace)


@BOTH
def test_several_that_never_get_a_reply_leave_nothing(
    valkey_server: Server, proxy: FaultProxy, namespace: str, flavour: Flavour
) -> None:
    with Driver(flavour, proxy.url, namespace) as driver:
        warm(driver)
        proxy.drop_next_reply(SEVERAL.sha, times=None, then="silence")
        with driver.hurried(), pytest.raises(ServerUnavailable):
            call(driver, several(driver).acquire)
        wait_left(valkey_server, namespace)
        proxy.heal()
    assert not left(valkey_server, namespace), "something came late"


@BOTH
def test_a_release_of_several_whose_reply_is_lost_shows_no_error(
    valkey_server: Server, proxy: FaultProxy, namespace: str, flavour: Flavour
) -> None:
    with Driver(flavour, proxy.url, namespace) as driver:
        warm(driver)
        for number in range(1, len(NAMES) + 1):
            lease = call(driver, several(driver).acquire)
            lost = proxy.drop_next_reply(RELEASE.sha, nth=number)
            assert call(driver, lease.release) is Released.RELEASED
            lost.wait(30)
            wait_left(valkey_server, namespace)


@BOTH
def test_an_adoption_whose_reply_is_lost_is_made_once(
    valkey_server: Server, proxy: FaultProxy, namespace: str, flavour: Flavour, outside: Driver
) -> None:
    with Driver(flavour, proxy.url, namespace) as driver:
        warm(driver)
        for number in range(1, len(NAMES) + 1):
            old = call(outside, several(outside).acquire)
            fences = dict(old.fences)
            lost = proxy.drop_next_reply(ADOPT.sha, nth=number)
            lease = call(driver, driver.locks.adopt, old.export())
            lost.wait(30)
            assert lease.fences == fences == fences_on_the_server(outside)
            assert call(driver, lease.release) is Released.RELEASED
            wait_left(valkey_server, namespace)


@BOTH
def test_an_adoption_that_never_gets_a_reply_is_nobodys_for_long(
    valkey_server: Server, proxy: FaultProxy, namespace: str, flavour: Flavour, outside: Driver
) -> None:
    """The one who tried may have it, and cannot know: it is given back rather than renewed by nobody."""
    with Driver(flavour, proxy.url, namespace) as driver:
        warm(driver)
        text = call(outside, outside.lock("a", ttl=600).acquire).export()
        proxy.drop_next_reply(ADOPT.sha, times=None, then="silence")
        with driver.hurried(), pytest.raises(ServerUnavailable):
            call(driver, driver.locks.adopt, text)
        wait_left(valkey_server, namespace)
        with pytest.raises(LeaseLost):
            call(outside, outside.locks.adopt, text)
        proxy.heal()


@BOTH
def test_once_whose_reply_is_lost_runs_once(
    valkey_server: Server, proxy: FaultProxy, namespace: str, flavour: Flavour
) -> None:
    ran: list[int] = []

    def job() -> int:
        ran.append(1)
        return len(ran)

    async def async_job() -> int:
        return job()

    with Driver(flavour, proxy.url, namespace) as driver:
        warm(driver)
        chosen = job if flavour == "blocking" else async_job
        lost = proxy.drop_next_reply(ONCE.sha)
        assert call(driver, cast("Any", driver.locks).once, "a", chosen, at_least=600) == Ran(1)
        lost.wait(30)
        assert ran == [1]
    wait_left(valkey_server, namespace)


# A request arrives late


@BOTH
@pytest.mark.parametrize("what", ["several", "shared", "semaphore", "adopt"])
def test_a_request_that_was_given_up_arrives_late_and_takes_nothing(
    valkey_server: Server, proxy: FaultProxy, namespace: str, flavour: Flavour, outside: Driver, what: str
) -> None:
    with Driver(flavour, proxy.url, namespace) as driver:
        warm(driver)
        text = call(outside, outside.lock("a", ttl=600).acquire).export() if what == "adopt" else ""
        locks: Any = driver.locks
        take = {
            "several": several(driver).acquire,
            "shared": locks.lock("a", shared=True).acquire,
            "semaphore": locks.semaphore("a", 2).acquire,
            "adopt": lambda: locks.adopt(text),
        }[what]
        proxy.hold_requests(b"EVALSHA")
        with driver.hurried(), pytest.raises(ServerUnavailable):
            call(driver, take)
        proxy.release()
        if what == "adopt":
            # Refused when it came, and the text is as good as before; or taken back, and the lock is free.
            with contextlib.suppress(LeaseLost):
                call(outside, call(outside, outside.locks.adopt, text).release)
        wait_left(valkey_server, namespace)
        driver.warm()
    assert not left(valkey_server, namespace), "something came late"


# Roll back


@BOTH
def test_an_error_of_the_roll_back_does_not_hide_why_it_was_needed(
    valkey_server: Server, proxy: FaultProxy, namespace: str, flavour: Flavour, outside: Driver
) -> None:
    with Driver(flavour, proxy.url, namespace) as driver:
        warm(driver)
        held = call(outside, outside.lock("c", ttl=60).acquire)
        proxy.replace_next_reply(RELEASE.sha, b"-ERR something is wrong\r\n", times=None)
        with pytest.raises(NotAcquired, match="'c' not acquired") as caught:
            call(driver, several(driver, wait=0.2).acquire)
        assert not isinstance(caught.value.__cause__, ServerError)
        # What could not be released is undone behind it.
        wait_until(
            lambda: [key for key in left(valkey_server, namespace) if b":c" not in key] == [], 30, "a and b free"
        )
        proxy.heal()
        assert call(outside, held.release) is Released.RELEASED
    wait_left(valkey_server, namespace)


@BOTH
def test_a_release_of_several_tells_the_error_of_one_and_ends_all(
    valkey_server: Server, proxy: FaultProxy, namespace: str, flavour: Flavour
) -> None:
    with Driver(flavour, proxy.url, namespace) as driver:
        warm(driver)
        lease = call(driver, several(driver).acquire)
        proxy.replace_next_reply(RELEASE.sha, b"-ERR something is wrong\r\n", nth=2)
        with pytest.raises(ServerError, match="something is wrong"):
            call(driver, lease.release)
        wait_left(valkey_server, namespace)
        assert not lease.valid
