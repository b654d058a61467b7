# ruff: noqa: ANN401 - the types of ASGI are wide
"""The middleware with raw ASGI: who is locked, what the others are told, and that nothing is left behind."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

import tenure
from tenure.contrib.asgi import LockMiddleware, Rule
from tenure.contrib.asgi.middleware import request_lease
from tests.contrib.asgi.raw import Echo, Request, call
from tests.faults.support import queue_length
from tests.harness.aio import run_async
from tests.harness.leases import age
from tests.harness.waiting import wait_until_async

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.harness.servers import Server

RULES = (
    Rule("/archives/{id}", ["archive:{id}"]),
    Rule("/archives/{id}/categories/{category}", ["archive:{id}", "category:{category}"], ["PUT"], "add to category"),
    Rule("/files/{name:path}", ["file:{name}"], ["put", "GET"]),
    Rule("/admin/*", ["admin"], ["POST"]),
)


def middleware(app: Any, locks: tenure.AsyncLocks, **options: Any) -> LockMiddleware:
    return LockMiddleware(app, locks=locks, rules=RULES, **options)


def run(url: str, namespace: str, body: Callable[[tenure.AsyncLocks], Awaitable[None]], **options: Any) -> None:
    """Runs a test, and fails it for a key that somebody still holds, or a task that is left."""

    async def main() -> None:
        async with tenure.AsyncLocks(url, namespace=namespace, **options) as locks:
            await body(locks)
            await wait_until_async(lambda: locks.statistics().held == 0, 30, "all leases to be given back")

    run_async(main)


async def queued(server: Server, namespace: str, number: int) -> None:
    """Waits until so many wait for archive 7, as the server has them: who is only about to ask has no place yet."""
    await wait_until_async(
        lambda: queue_length(server, namespace, "archive:7") == number, 30, f"{number} to be in the queue"
    )


def test_a_request_holds_the_lock_and_finds_its_lease(url: str, namespace: str) -> None:
    async def body(locks: tenure.AsyncLocks) -> None:
        seen: list[Any] = []

        async def app(scope: Any, receive: Any, send: Any) -> None:
            seen.append((scope["tenure.lease"].names, request_lease.get() is scope["tenure.lease"]))
            holder = await locks.holder("archive:7")
            assert holder is not None
            seen.append(holder.info)
            with pytest.raises(tenure.AlreadyHeld):
                await locks.lock("archive:7").acquire()
            await Echo()(scope, receive, send)

        done = await call(middleware(app, locks), "PUT", "/archives/7", b"a", b"b")
        assert (done.status, done.content) == (200, b"ab")
        assert seen == [(("archive:7",), True), {"operation": "put"}]
        assert await locks.holder("archive:7") is None
        assert request_lease.get() is None

    run(url, namespace, body)


def test_busy_is_423_with_a_body_and_retry_after(url: str, namespace: str) -> None:
    async def body(locks: tenure.AsyncLocks) -> None:
        echo = Echo()
        path = "/archives/7/categories/z"
        async with (
            tenure.AsyncLocks(url, namespace=namespace) as others,
            others.lock("category:z", ttl=60, info={"job": "nightly"}),
        ):
            plain = await call(middleware(echo, locks), "PUT", path)
            told = await call(middleware(echo, locks, show_holder=True), "PUT", path)
        assert plain.status == told.status == 423
        assert plain.json == {
            "error": "locked", "operation": "add to category", "resource": "category:z",
            "resources": ["archive:7", "category:z"],
        }  # fmt: skip
        assert told.json["holder"]["info"] == {"job": "nightly"}
        assert told.json["holder"]["since"]
        assert 1 <= int(plain.headers["retry-after"]) <= 61
        assert plain.headers["content-type"] == "application/json"
        assert int(plain.headers["content-length"]) == len(plain.content)
        assert echo.calls == 0, "a request that is refused never reaches the application"
        assert await locks.holder("archive:7") is None, "all or nothing"

    run(url, namespace, body)


def test_one_try_is_one_request(url: str, namespace: str) -> None:
    async def body(locks: tenure.AsyncLocks) -> None:
        app = middleware(Echo(), locks, wait=0)
        await call(app, "PUT", "/archives/1")
        async with tenure.AsyncLocks(url, namespace=namespace) as others, others.lock("archive:7"):
            before = locks.statistics().requests
            assert (await call(app, "PUT", "/archives/7")).status == 423
            assert locks.statistics().requests == before + 1

    # Without an answer for a third of it the request is sent again.
    run(url, namespace, body, server_timeout=90)


def test_no_server_is_503_and_not_423(namespace: str) -> None:
    async def body(locks: tenure.AsyncLocks) -> None:
        for wait in (0, 30):
            refused = await call(middleware(Echo(), locks, wait=wait), "PUT", "/archives/7")
            assert refused.status == 503
            assert refused.json["error"] == "unavailable"
            assert refused.headers["retry-after"] == "1"

    run("redis://127.0.0.1:1", namespace, body, server_timeout=0.3)


def test_mistakes_are_no_answer(valkey_server: Server, namespace: str) -> None:
    """A key that is no lock, or a lock that the request has already: whoever runs the program must see that."""

    async def body(locks: tenure.AsyncLocks) -> None:
        valkey_server.command("RPUSH", f"{namespace}:archive:7", "a")
        valkey_server.command("PEXPIRE", f"{namespace}:archive:7", 60_000)
        with pytest.raises(tenure.NameConflict):
            await call(middleware(Echo(), locks), "PUT", "/archives/7")
        with pytest.raises(tenure.AlreadyHeld):
            await call(middleware(middleware(Echo(), locks), locks), "PUT", "/archives/8")

    run(valkey_server.url, namespace, body)


def test_readers_share_and_a_writer_excludes_them(url: str, namespace: str) -> None:
    async def body(locks: tenure.AsyncLocks) -> None:
        echo = Echo(stays=True)
        app = middleware(echo, locks)
        readers = [Request(app, method, "/archives/7") for method in ("GET", "HEAD", "GET")]
        await echo.entered(3)
        assert (await call(app, "DELETE", "/archives/7")).status == 423
        echo.let_go.set()
        for reader in readers:
            assert (await reader.done()).status == 200
        apart = Echo(stays=True)
        alone = middleware(apart, locks, shared=False)
        first = Request(alone, "GET", "/archives/7")
        await apart.entered()
        assert (await call(alone, "GET", "/archives/7")).status == 423
        apart.let_go.set()
        assert (await first.done()).status == 200

    run(url, namespace, body)


def test_a_writer_waits_for_its_turn_with_its_whole_body(url: str, valkey_server: Server, namespace: str) -> None:
    """What had arrived while it waited, in parts, is the application's."""

    async def body(locks: tenure.AsyncLocks) -> None:
        echo = Echo()
        app = middleware(echo, locks, wait=30)
        async with tenure.AsyncLocks(url, namespace=namespace) as others:
            lease = await others.lock("archive:7").acquire()
            whole = Request(app, "PUT", "/archives/7", b"all of it")
            await queued(valkey_server, namespace, 1)
            parts = Request(app, "PUT", "/archives/7", b"a", b"b", open_end=True)
            await queued(valkey_server, namespace, 2)
            await lease.release()
            assert (await whole.done()).content == b"all of it"
            parts.arrive(b"c", more=False)
            assert (await parts.done()).content == b"abc"
        assert echo.most == 1

    run(url, namespace, body)


def test_who_waits_in_vain_is_told_423(url: str, namespace: str) -> None:
    async def body(locks: tenure.AsyncLocks) -> None:
        async with tenure.AsyncLocks(url, namespace=namespace) as others, others.lock("archive:7"):
            refused = await call(middleware(Echo(), locks, wait=0.2), "PUT", "/archives/7")
        assert refused.status == 423

    run(url, namespace, body)


@pytest.mark.parametrize("sends", ["", "half"])
def test_a_client_that_goes_leaves_the_queue(url: str, valkey_server: Server, namespace: str, sends: str) -> None:
    async def body(locks: tenure.AsyncLocks) -> None:
        echo = Echo()
        app = middleware(echo, locks, wait=0.5 if sends else 60)
        async with tenure.AsyncLocks(url, namespace=namespace) as others, others.lock("archive:7"):
            waiting = Request(app, "PUT", "/archives/7", sends.encode(), open_end=bool(sends))
            # Where the wait is short it may be over before it is seen.
            await wait_until_async(lambda: locks.statistics().waiting == 1 or waiting.task.done(), 30, "it to wait")
            waiting.go_away()
            await waiting.done()
            # While a body comes in, it is not read further: the wait has its end all the same.
            assert waiting.status == (423 if sends else 0)
            await queued(valkey_server, namespace, 0)
        assert echo.calls == 0

    run(url, namespace, body)


@pytest.mark.parametrize("when", ["waits", "runs"])
def test_a_cancelled_request_leaves_nothing(url: str, namespace: str, when: str) -> None:
    async def body(locks: tenure.AsyncLocks) -> None:
        echo = Echo(stays=True)
        app = middleware(echo, locks, wait=60)
        async with tenure.AsyncLocks(url, namespace=namespace) as others:
            lease = await others.lock("archive:7").acquire() if when == "waits" else None
            request = Request(app, "PUT", "/archives/7")
            if lease is None:
                await echo.entered()
            else:
                await wait_until_async(lambda: locks.statistics().waiting == 1, 30, "it to wait")
            request.task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await request.done()
            if lease is not None:
                await lease.release()
            await (await others.lock("archive:7", wait=30).acquire()).release()

    run(url, namespace, body)


def test_a_lease_that_is_lost_before_the_response_is_503(url: str, namespace: str) -> None:
    async def body(locks: tenure.AsyncLocks) -> None:
        echo = Echo(stays=True)
        request = Request(middleware(echo, locks), "PUT", "/archives/7")
        await echo.entered()
        age(echo.inside[0]["tenure.lease"], 100)
        assert (await request.done()).status == 503
        assert request.json["error"] == "lost"

    run(url, namespace, body)


def test_a_lease_that_is_lost_after_the_response_began_cuts_it(url: str, namespace: str) -> None:
    async def body(locks: tenure.AsyncLocks) -> None:
        async def app(scope: Any, receive: Any, send: Any) -> None:
            del receive
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"half", "more_body": True})
            age(scope["tenure.lease"], 100)
            await asyncio.get_running_loop().create_future()

        request = Request(middleware(app, locks), "PUT", "/archives/7")
        with pytest.raises(tenure.LeaseLost):
            await request.done()
        assert [message["type"] for message in request.sent] == ["http.response.start", "http.response.body"]

    run(url, namespace, body)


def test_errors_of_the_application_are_its_own(url: str, namespace: str) -> None:
    async def body(locks: tenure.AsyncLocks) -> None:
        for error in (KeyError("x"), tenure.LeaseLost("another one"), tenure.NotAcquired("another one")):

            async def app(*_: Any, error: Exception = error) -> None:
                raise error

            with pytest.raises(type(error)):
                await call(middleware(app, locks), "PUT", "/archives/7")
            assert await locks.holder("archive:7") is None

    run(url, namespace, body)


def test_what_no_rule_names_passes_untouched(url: str, namespace: str) -> None:
    async def body(locks: tenure.AsyncLocks) -> None:
        seen: list[Any] = []

        async def app(scope: Any, receive: Any, send: Any) -> None:
            seen.append((scope, receive, send))

        app_with_locks = middleware(app, locks)
        for kind in ("websocket", "lifespan"):
            triple = ({"type": kind, "path": "/archives/7"}, object(), object())
            await app_with_locks(*triple)  # type: ignore[arg-type]
            assert seen.pop() == triple
        others = [
            ("OPTIONS", "/archives/7"),
            ("GET", "/admin/x"),
            ("GET", "/"),
            ("PUT", "/archives/"),
            ("PUT", "/x/archives/7"),
        ]
        for method, path in others:
            await call(app_with_locks, method, path)
            assert "tenure.lease" not in seen.pop()[0], (method, path)
        assert locks.statistics().granted == 0

    run(url, namespace, body)


@pytest.mark.parametrize(
    ("method", "path", "root", "names"),
    [
        ("PUT", "/files/a/b c/ü", "", ["file:a/b c/ü"]),
        ("PUT", "/api/archives/7", "/api", ["archive:7"]),
        ("PUT", "/archives/archives/7", "/archives", ["archive:7"]),
        ("PUT", "/archives/7", "/archives", None),
        ("PUT", "/archives", "/archives", None),
        ("PUT", "/archivesx/7", "/archives", None),
        ("POST", "/admin/users/3", "", ["admin"]),
        ("PUT", "/archives/{7}", "", ["archive:{7}"]),
        ("PUT", "/archives/7/categories/7", "", ["archive:7", "category:7"]),
        ("DELETE", "/archives/7/categories/7", "", None),
    ],
)
def test_paths(url: str, namespace: str, method: str, path: str, root: str, names: list[str] | None) -> None:
    async def body(locks: tenure.AsyncLocks) -> None:
        seen: list[Any] = []

        async def app(scope: Any, *_: Any) -> None:
            seen.append(list(scope["tenure.lease"].names) if "tenure.lease" in scope else None)

        await call(middleware(app, locks), method, path, root_path=root)
        assert seen == [names]

    run(url, namespace, body)


@pytest.mark.parametrize("segment", ["\0", "x" * 600, "\n"])
def test_a_path_of_which_no_name_can_be_made_is_the_clients_fault(url: str, namespace: str, segment: str) -> None:
    async def body(locks: tenure.AsyncLocks) -> None:
        refused = await call(middleware(Echo(), locks), "PUT", f"/archives/{segment}")
        assert (refused.status, refused.json["error"]) == (400, "name")
        assert "retry-after" not in refused.headers

    run(url, namespace, body)


WRONG_RULES: tuple[tuple[Any, ...], ...] = (
    ("archives", ["a"]),
    (7, ["a"]),
    ("/a", "archive"),
    ("/a", []),
    ("/a", [7]),
    ("/{id}", ["a:{other}"]),
    ("/{id}", ["a:{id.x}"]),
    ("/{id:int}", ["a:{id}"]),
    ("/{id}/{id}", ["a:{id}"]),
    ("/*/x", ["a"]),
    ("/a", ["a"], "GET"),
    ("/a", ["a"], []),
)


@pytest.mark.parametrize("wrong", WRONG_RULES, ids=repr)
def test_a_rule_that_could_never_match_is_refused(wrong: tuple[Any, ...]) -> None:
    with pytest.raises(tenure.ConfigError):
        Rule(*wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"wait": -1},
        {"ttl": 0},
        {"max_hold": 0},
        {"takeover": True, "wait": 0},
        {"shared": 1},
        {"rules": ["/a"]},
        {"rules": [Rule("/a", ["a"], operation="x" * 2000)]},
        {"rules": [Rule("/a", ["a\n"])]},
    ],
    ids=["wait", "ttl", "max_hold", "takeover", "shared", "rules", "operation", "name"],
)
def test_arguments_that_cannot_work_are_refused_at_once(wrong: dict[str, Any]) -> None:
    locks = tenure.AsyncLocks("redis://127.0.0.1:1")
    with pytest.raises(tenure.ConfigError):
        LockMiddleware(Echo.__call__, **{"locks": locks, "rules": RULES} | wrong)  # type: ignore[arg-type]
