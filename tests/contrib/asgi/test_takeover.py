# ruff: noqa: ANN401 - the types of ASGI are wide
"""Takeover: the request in progress sees its client go, saves what has arrived, and the one that waits goes on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request as StarletteRequest  # noqa: TC002 - beside what is used at run time
from starlette.responses import PlainTextResponse
from starlette.routing import Route

import tenure
from tenure.contrib.asgi import LockMiddleware, Rule
from tests.contrib.asgi.raw import Echo, Request, call
from tests.harness.aio import run_async
from tests.harness.leases import age, wait_for_inbox
from tests.harness.waiting import wait_until_async

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

RULES = [Rule("/archives/{id}", ["archive:{id}"])]


def run(url: str, namespace: str, body: Callable[[Callable[[Any], LockMiddleware]], Awaitable[None]]) -> None:
    async def main() -> None:
        async with tenure.AsyncLocks(url, namespace=namespace) as locks:
            # So that the first ask finds an inbox, and need not wait for the next poll.
            async with locks.lock("first", on_ask=id):
                await asyncio.to_thread(wait_for_inbox, locks)
            await body(lambda app: LockMiddleware(app, locks=locks, rules=RULES, wait=60, takeover=True))
            await wait_until_async(lambda: locks.statistics().held == 0, 30, "all leases to be given back")

    run_async(main)


def test_the_old_request_saves_what_has_arrived_and_the_new_one_goes_on(url: str, namespace: str) -> None:
    async def body(make: Callable[[Any], LockMiddleware]) -> None:
        echo = Echo()
        app = make(echo)
        old = Request(app, "PUT", "/archives/7", b"ab", b"cd", open_end=True)
        await echo.entered()
        old.arrive(b"ef", more=True)
        assert (await call(app, "PUT", "/archives/7", b"new")).content == b"new"
        assert (await old.done()).content == b"abcdef", "no byte that had arrived is lost; its answer goes out as it is"
        assert (echo.most, echo.saw_disconnect) == (1, 1)

    run(url, namespace, body)


@pytest.mark.parametrize("pause", [0, 0.005])
def test_a_client_that_goes_on_sending_is_cut_off(url: str, namespace: str, pause: float) -> None:
    async def body(make: Callable[[Any], LockMiddleware]) -> None:
        echo = Echo()
        app = make(echo)
        old = Request(app, "PUT", "/archives/7", b"x", open_end=True)
        await echo.entered()

        async def babble() -> None:
            while not old.task.done():
                old.arrive(b"x", more=True)
                await asyncio.sleep(pause)

        babbling = asyncio.ensure_future(babble())
        assert (await call(app, "PUT", "/archives/7", b"new")).content == b"new"
        await old.done()
        await babbling
        assert echo.saw_disconnect == 1

    run(url, namespace, body)


def test_starlettes_look_for_a_disconnect_sees_it(url: str, namespace: str) -> None:
    """It never waits: `receive` is called in a scope that is cancelled already."""

    async def body(make: Callable[[Any], LockMiddleware]) -> None:
        looks: list[bool] = []

        async def edit(request: StarletteRequest) -> PlainTextResponse:
            looks.append(False)
            while not looks[-1]:
                await asyncio.sleep(0.005)
                looks.append(await request.is_disconnected())
            return PlainTextResponse("saved")

        async def read(_request: StarletteRequest) -> PlainTextResponse:
            return PlainTextResponse("read")

        app = make(Starlette(routes=[Route("/archives/{id}", edit, methods=["PUT"]), Route("/archives/{id}", read)]))
        old = Request(app, "PUT", "/archives/7")
        await wait_until_async(lambda: len(looks) > 3, 30, "it to look")
        assert (await call(app, "GET", "/archives/7")).content == b"read"
        assert (await old.done()).content == b"saved"
        alone = Request(app, "PUT", "/archives/7")
        await wait_until_async(lambda: not looks[-1], 30, "it to begin")
        alone.go_away()
        assert (await alone.done()).content == b"saved", "a real disconnect is seen as well"

    run(url, namespace, body)


def test_an_application_that_says_nothing_has_the_client_told(url: str, namespace: str) -> None:
    async def body(make: Callable[[Any], LockMiddleware]) -> None:
        inside = asyncio.Event()

        async def silent(scope: Any, receive: Any, send: Any) -> None:
            if scope["method"] == "GET":
                await Echo()(scope, receive, send)
                return
            inside.set()
            while (await receive())["type"] != "http.disconnect":
                pass

        app = make(silent)
        old = Request(app, "PUT", "/archives/7")
        await inside.wait()
        assert (await call(app, "GET", "/archives/7")).status == 200
        assert (await old.done()).status == 423
        assert old.json["error"] == "handed over"
        assert old.headers["retry-after"] == "1"

    run(url, namespace, body)


def test_a_client_that_does_not_read_keeps_nobody_waiting(url: str, namespace: str) -> None:
    """A download whose connection is half-open: its application never looks at `receive`, and is stuck in `send`."""

    async def body(make: Callable[[Any], LockMiddleware]) -> None:
        sent: list[int] = []

        async def download(scope: Any, receive: Any, send: Any) -> None:
            if scope["method"] == "PUT":
                await Echo()(scope, receive, send)
                return
            await send({"type": "http.response.start", "status": 200, "headers": []})
            for number in range(1000):
                await send({"type": "http.response.body", "body": b"x", "more_body": True})
                sent.append(number)
                if number == 2:
                    old.reading.clear()
            await send({"type": "http.response.body", "body": b""})

        app = make(download)
        old = Request(app, "GET", "/archives/7")
        await wait_until_async(lambda: len(sent) == 3, 30, "the download to be stuck")
        assert (await call(app, "PUT", "/archives/7", b"new")).content == b"new"
        with pytest.raises(OSError, match="has to be given up"):
            await old.done()

    run(url, namespace, body)


def test_a_lease_that_is_lost_is_a_disconnect_at_once(url: str, namespace: str) -> None:
    async def body(make: Callable[[Any], LockMiddleware]) -> None:
        echo = Echo(stays=True)
        request = Request(make(echo), "PUT", "/archives/7")
        await echo.entered()
        age(echo.inside[0]["tenure.lease"], 100)
        with pytest.raises(tenure.LeaseLost):
            # It has answered as if all was well; the server has to cut that off.
            await request.done()
        assert echo.saw_disconnect == 1

    run(url, namespace, body)


def test_nobody_asks_and_nothing_changes(url: str, namespace: str) -> None:
    async def body(make: Callable[[Any], LockMiddleware]) -> None:
        echo = Echo()
        done = await call(make(echo), "PUT", "/archives/7", b"a", b"b")
        assert (done.status, done.content, echo.got) == (200, b"ab", [b"a", b"b"])
        half = Request(make(echo), "PUT", "/archives/7", b"a", open_end=True)
        await echo.entered()
        half.go_away()
        assert (await half.done()).content == b"a", "a real disconnect is one"

    run(url, namespace, body)


def test_a_look_that_is_cancelled_at_once_loses_nothing(url: str, namespace: str) -> None:
    """`Request.is_disconnected()` of Starlette cancels its `receive` at the first switch."""

    async def body(make: Callable[[Any], LockMiddleware]) -> None:
        seen: list[Any] = []

        async def app(scope: Any, receive: Any, send: Any) -> None:
            for _ in range(3):
                look = asyncio.ensure_future(receive())
                await asyncio.sleep(0)
                look.cancel()
                await asyncio.wait({look})
                seen.append(None if look.cancelled() else look.result()["body"])
            await Echo()(scope, receive, send)

        request = Request(make(app), "PUT", "/archives/7", b"a", b"b", b"c")
        content = (await request.done()).content
        assert b"".join(part for part in seen if part) + content == b"abc"

    run(url, namespace, body)


def test_two_who_receive_at_a_time_get_each_part_once(url: str, namespace: str) -> None:
    async def body(make: Callable[[Any], LockMiddleware]) -> None:
        seen: list[bytes] = []

        async def app(scope: Any, receive: Any, send: Any) -> None:
            del scope, send
            pair = [asyncio.ensure_future(receive()) for _ in range(2)]
            await asyncio.sleep(0.01)
            request.arrive(b"a", more=True)
            request.arrive(b"b", more=False)
            seen.extend([(await each)["body"] for each in pair])

        request = Request(make(app), "PUT", "/archives/7", b"", open_end=True)
        request._arriving.get_nowait()
        await request.done()
        assert sorted(seen) == [b"a", b"b"]

    run(url, namespace, body)


def test_requests_take_over_from_each_other_in_the_order_of_arrival(url: str, namespace: str) -> None:
    async def body(make: Callable[[Any], LockMiddleware]) -> None:
        echo = Echo()
        app = make(echo)
        requests = [Request(app, "PUT", "/archives/7", b"%d" % number, open_end=True) for number in range(3)]
        await wait_until_async(lambda: all(request.task.done() for request in requests[:2]), 60, "two to hand over")
        requests[2].go_away()
        for number, request in enumerate(requests):
            assert (await request.done()).content == b"%d" % number
        assert echo.most == 1
        assert echo.got == [b"0", b"1", b"2"]

    run(url, namespace, body)


def test_a_server_without_takeover_cannot_hand_over(url: str, namespace: str) -> None:
    async def main() -> None:
        async with tenure.AsyncLocks(url, namespace=namespace) as locks:
            with pytest.raises(tenure.ConfigError, match="needs takeover=True"):
                LockMiddleware(Echo(), locks=locks, rules=RULES).hand_over()

    run_async(main)
