# ruff: noqa: ANN401 - options are handed on, and what a middleware returns has any type
"""The block and the dependency in Starlette and FastAPI, and the middleware around them."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any

import pytest
from fastapi import Depends, FastAPI
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.testclient import TestClient
from starlette.websockets import WebSocket, WebSocketDisconnect

import tenure
from tenure.contrib.asgi import LockMiddleware, Refused, Rule, held, locked, respond
from tests.harness.leases import age


@pytest.fixture
def locks(url: str, namespace: str) -> Iterator[tenure.AsyncLocks]:
    made = tenure.AsyncLocks(url, namespace=namespace)
    yield made
    asyncio.run(made.close())


@pytest.fixture
def others(url: str, namespace: str) -> Iterator[tenure.Locks]:
    with tenure.Locks(url, namespace=namespace) as made:
        yield made


def fastapi(locks: tenure.AsyncLocks, **options: Any) -> FastAPI:
    app = FastAPI()
    app.add_exception_handler(Refused, respond)
    names = ("archive:{number}", "category:{category}")
    adding = locked(*names, locks=locks, operation="add", **options)
    archive = locked("archive:{number}", locks=locks, **options)

    @app.put("/archives/{number}/categories/{category}")
    async def add(
        number: int, category: str, lease: Annotated[tenure.AsyncLease, Depends(adding, scope="function")]
    ) -> dict[str, Any]:
        return {"number": number, "category": category, "fences": lease.fences}

    @app.get("/archives/{number}")
    def read(number: int, lease: Annotated[tenure.AsyncLease, Depends(archive)]) -> dict[str, Any]:
        return {"number": number, "mode": lease.mode}

    @app.delete("/archives/{number}")
    async def lose(number: int, lease: Annotated[tenure.AsyncLease, Depends(archive)]) -> dict[str, Any]:
        age(lease, 100)
        await asyncio.get_running_loop().create_future()
        return {"number": number}

    @app.post("/archives/{number}", dependencies=[Depends(locked("archive:{other}", locks=locks))])
    async def mistaken(number: int) -> dict[str, Any]:
        return {"number": number}

    return app


def test_the_dependency_holds_and_gives_back(locks: tenure.AsyncLocks, others: tenure.Locks) -> None:
    with TestClient(fastapi(locks)) as browser:
        answer = browser.put("/archives/7/categories/z")
        assert answer.status_code == 200
        assert answer.json()["fences"].keys() == {"archive:7", "category:z"}
        assert browser.get("/archives/7").json() == {"number": 7, "mode": "shared"}, "in a plain function as well"
        assert others.list() == []


def test_the_dependency_refuses(locks: tenure.AsyncLocks, others: tenure.Locks) -> None:
    with TestClient(fastapi(locks, show_holder=True)) as browser:
        with others.lock("category:z", ttl=60, info="nightly"):
            answer = browser.put("/archives/7/categories/z")
        assert answer.status_code == 423
        assert 1 <= int(answer.headers["Retry-After"]) <= 61
        body = answer.json()
        assert (body["operation"], body["resource"], body["holder"]["info"]) == ("add", "category:z", "nightly")
        assert body["resources"] == ["archive:7", "category:z"]
        refused = browser.put("/archives/7/categories/" + "x" * 600)
        assert (refused.status_code, refused.json()["error"]) == (400, "name")


def test_without_the_handler_it_is_an_http_exception(locks: tenure.AsyncLocks, others: tenure.Locks) -> None:
    app = fastapi(locks)
    del app.exception_handlers[Refused]
    with TestClient(app) as browser, others.lock("archive:7"):
        answer = browser.get("/archives/7")
        assert (answer.status_code, answer.json()) == (423, {"detail": "archive:7: locked"})
        assert int(answer.headers["Retry-After"]) >= 1


def test_a_lease_that_is_lost_is_503(locks: tenure.AsyncLocks) -> None:
    with TestClient(fastapi(locks)) as browser:
        answer = browser.delete("/archives/7")
    assert (answer.status_code, answer.json()["error"]) == (503, "lost")


def test_no_server_is_503(namespace: str) -> None:
    nowhere = tenure.AsyncLocks("redis://127.0.0.1:1", namespace=namespace, server_timeout=0.3)
    with TestClient(fastapi(nowhere)) as browser:
        answer = browser.get("/archives/7")
    assert (answer.status_code, answer.json()["error"], answer.headers["Retry-After"]) == (503, "unavailable", "1")
    asyncio.run(nowhere.close())


def test_a_field_that_the_path_does_not_have_is_a_mistake(locks: tenure.AsyncLocks) -> None:
    with TestClient(fastapi(locks)) as browser, pytest.raises(tenure.ConfigError, match="other"):
        browser.post("/archives/7")


def test_wrong_arguments_are_a_mistake_and_not_the_clients_fault(locks: tenure.AsyncLocks) -> None:
    with TestClient(fastapi(locks, ttl=-1)) as browser, pytest.raises(tenure.ConfigError, match="ttl"):
        browser.get("/archives/7")


def test_a_block_in_starlette_and_websockets(locks: tenure.AsyncLocks, others: tenure.Locks) -> None:
    async def edit(request: Request) -> PlainTextResponse:
        async with held(request, "archive:{id}", locks=locks) as lease:
            return PlainTextResponse(lease.mode)

    async def editing(socket: WebSocket) -> None:
        async with held(socket, "archive:{id}", locks=locks) as lease:
            await socket.accept()
            await socket.send_text(lease.mode)
            await socket.close()

    app = Starlette(
        routes=[
            Route("/archives/{id}", edit, methods=["GET", "PUT"]),
            WebSocketRoute("/archives/{id}/editing", editing),
        ],
        exception_handlers={Refused: respond},
    )
    with TestClient(app) as browser:
        assert browser.put("/archives/7").text == "exclusive"
        assert browser.get("/archives/7").text == "shared"
        with browser.websocket_connect("/archives/7/editing") as socket:
            assert socket.receive_text() == "exclusive", "a connection that stays is no look"
        with others.lock("archive:7"):
            assert browser.put("/archives/7").json()["resource"] == "archive:7"
            with pytest.raises(WebSocketDisconnect) as refused, browser.websocket_connect("/archives/7/editing"):
                pass
            assert refused.value.code == 1013


def test_the_middleware_around_and_inside_an_application(locks: tenure.AsyncLocks, others: tenure.Locks) -> None:
    """Mounted below a path; beside a middleware with a scope of its own, and with a response that is streamed."""

    async def parts() -> AsyncIterator[bytes]:
        for part in (b"a", b"b"):
            holder = await locks.holder("archive:7")
            yield part if holder is not None else b"not held"

    async def download(_request: Request) -> StreamingResponse:
        return StreamingResponse(parts())

    async def put(request: Request) -> PlainTextResponse:
        return PlainTextResponse((await request.body()) + request.scope["tenure.lease"].mode.encode())

    async def passing(request: Request, proceed: Any) -> Any:
        return await proceed(request)

    inner = Starlette(
        routes=[Route("/archives/{id}", download), Route("/archives/{id}", put, methods=["PUT"])],
        middleware=[
            Middleware(BaseHTTPMiddleware, dispatch=passing),
            Middleware(LockMiddleware, locks=locks, rules=[Rule("/archives/{id}", ["archive:{id}"])], wait=30),
        ],
    )
    with TestClient(Starlette(routes=[Mount("/api", inner)])) as browser:
        assert browser.get("/api/archives/7").content == b"ab"
        lease = others.lock("archive:7", ttl=60).acquire()
        freed = threading.Timer(0.2, lease.release)
        freed.start()
        assert browser.put("/api/archives/7", content=b"x" * 200_000).content == b"x" * 200_000 + b"exclusive"
        freed.join()
