"""One request to an ASGI application, with the server played by the test: what arrives, what is sent, who goes away."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from tests.harness.waiting import wait_until_async

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping

    Message = MutableMapping[str, Any]
    App = Callable[
        [MutableMapping[str, Any], Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Any
    ]


class Request:
    """A request that has begun; its body is `body` in parts, and not ended when `open_end`."""

    def __init__(
        self,
        app: App,
        method: str,
        path: str,
        *body: bytes,
        root_path: str = "",
        open_end: bool = False,
        stuck: bool = False,
    ) -> None:
        self.sent: list[Message] = []
        self.reading = asyncio.Event()
        """Cleared, the client reads nothing, and what is sent to it blocks."""
        if not stuck:
            self.reading.set()
        self.scope: dict[str, Any] = {"type": "http", "method": method, "path": path, "root_path": root_path}
        self.scope |= {"headers": [], "query_string": b"", "asgi": {"version": "3.0", "spec_version": "2.3"}}
        self._arriving: asyncio.Queue[Message] = asyncio.Queue()
        self._gone = False
        parts = list(body) or [b""]
        for number, part in enumerate(parts, 1):
            self.arrive(part, more=open_end or number < len(parts))
        self.task = asyncio.ensure_future(app(self.scope, self._receive, self._send))

    def arrive(self, part: bytes, *, more: bool) -> None:
        """A part of the body comes in."""
        self._arriving.put_nowait({"type": "http.request", "body": part, "more_body": more})

    def go_away(self) -> None:
        """The client disconnects."""
        self._gone = True
        self._arriving.put_nowait({"type": "http.disconnect"})

    async def _receive(self) -> Message:
        if self._gone and self._arriving.empty():
            return {"type": "http.disconnect"}
        return await self._arriving.get()

    async def _send(self, message: Message) -> None:
        await self.reading.wait()
        self.sent.append(message)

    async def done(self, seconds: float = 30) -> Request:
        """Waits until the application has returned; raises what it raised."""
        async with asyncio.timeout(seconds):
            await self.task
        return self

    @property
    def status(self) -> int:
        """The status of the response; 0 without one."""
        return next((message["status"] for message in self.sent if message["type"] == "http.response.start"), 0)

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the response."""
        start = next(message for message in self.sent if message["type"] == "http.response.start")
        return {name.decode().lower(): value.decode() for name, value in start["headers"]}

    @property
    def content(self) -> bytes:
        """The body of the response."""
        return b"".join(message.get("body", b"") for message in self.sent if message["type"] == "http.response.body")

    @property
    def json(self) -> dict[str, Any]:
        """The body of the response as JSON."""
        return json.loads(self.content)


async def call(app: App, method: str, path: str, *body: bytes, root_path: str = "") -> Request:
    """A whole request."""
    return await Request(app, method, path, *body, root_path=root_path).done()


class Echo:
    """An application that answers with the body; told to, it stays until it is let go or its client has gone."""

    def __init__(self, *, stays: bool = False) -> None:
        self.stays = stays
        self.inside: list[dict[str, Any]] = []
        self.most = 0
        self.calls = 0
        self.got: list[bytes] = []
        self.saw_disconnect = 0
        self.let_go = asyncio.Event()

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:  # noqa: ANN401 - ASGI
        self.calls += 1
        self.inside.append(dict(scope))
        self.most = max(self.most, len(self.inside))
        try:
            body = await self._body(receive)
            if self.stays:
                await self._stay(receive)
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": body})
        finally:
            self.inside.pop()

    async def _body(self, receive: Any) -> bytes:  # noqa: ANN401 - ASGI
        body = b""
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                self.saw_disconnect += 1
                return body
            body += message.get("body", b"")
            self.got.append(message.get("body", b""))
            if not message.get("more_body"):
                return body

    async def _stay(self, receive: Any) -> None:  # noqa: ANN401 - ASGI
        gone = asyncio.ensure_future(receive())
        let_go = asyncio.ensure_future(self.let_go.wait())
        try:
            await asyncio.wait({gone, let_go}, return_when=asyncio.FIRST_COMPLETED)
            if gone.done() and gone.result()["type"] == "http.disconnect":
                self.saw_disconnect += 1
        finally:
            gone.cancel()
            let_go.cancel()

    async def entered(self, number: int = 1) -> None:
        """Waits until so many requests are inside."""
        await wait_until_async(lambda: len(self.inside) >= number, 30, f"{number} requests inside")
