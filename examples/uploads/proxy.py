"""A small load balancer for HTTP/1.1 that can cut connections while an upload streams through it.

Each request goes to the next server, on a connection of its own. A cut either closes both sides, or is half-open: the
client's side ends, while the server's stays as it is and gets no byte more, until the proxy's own time-out.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import re
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from .parts import unread

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator

Kind = Literal["cut", "half-open"]
CHUNK = 32 * 1024
CONNECT_SECONDS = 10.0
ARRIVE_SECONDS = 10.0
_UPLOAD = re.compile(r"(\w+) \S*/files/([\w-]+) ")
_HEADER = re.compile(r"^([\w-]+):[ \t]*(.*?)[ \t]*$", re.MULTILINE)


@dataclass(frozen=True)
class Cut:
    """To be done to an upload once this part of it (0 to 1) has been sent."""

    at: float
    kind: Kind
    linger: float = 20.0
    """How long the server's side of a half-open connection stays; a TCP time-out may take minutes."""


@dataclass
class Piece:
    """One PATCH request: where it began, what was sent of it, and how it ended."""

    began: int
    sent: int
    end: Kind | Literal["complete", "server"] | None = None
    """`server`: the server ended it before all was sent."""


@dataclass
class Upload:
    """What the proxy knows of one upload."""

    uid: str
    cuts: list[Cut]
    length: int = 0
    sent: int = 0
    """The highest offset that was sent to a server."""
    server: int = 0
    """The port of the server that got the last byte."""
    interrupted: float | None = None
    """When it was cut, until the first byte after that."""
    pieces: list[Piece] = field(default_factory=list[Piece])


@dataclass(eq=False)
class Exchange:
    """One request and its response."""

    method: str
    server: int
    upload: Upload | None
    left: int
    """Bytes of the body that were not sent yet."""
    client: asyncio.StreamWriter
    half_open: bool = False
    timed_out: bool = False
    """Whether it was half-open until its time-out."""
    piece: Piece | None = None


class Proxy:
    """Spreads requests over servers; `port` is where clients connect.

    Args:
        rate: bytes per second and connection, so that there is something to cut.
        plans: the cuts of each upload, in the order in which uploads begin; without an end.
    """

    def __init__(self, rate: float, plans: Iterator[list[Cut]]) -> None:
        self._rate = rate
        self._plans = plans
        self._turn = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._lingering: dict[Exchange, asyncio.Event] = {}
        self.servers: list[int] = []
        self.spared = 0
        """The port of a server that gets no new requests, and whose connections are not cut."""
        self.exchanges: set[Exchange] = set()
        self.uploads: dict[str, Upload] = {}
        self.statuses: collections.Counter[tuple[str, int]] = collections.Counter()
        """Responses that reached clients: how many of each method and status."""
        self.cuts: collections.Counter[Kind] = collections.Counter()
        self.resumed: list[float] = []
        """Seconds from each interruption to the first byte that was sent after it."""

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncGenerator[int]:
        """A block in which clients are served at the port that it gives."""
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0, limit=CHUNK)
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            server.close()
            while self._tasks:
                for task in self._tasks:
                    task.cancel()
                await asyncio.wait(self._tasks)
            await server.wait_closed()
            # Transports that were aborted close in the next round of the loop.
            await asyncio.sleep(0)

    def receiving(self) -> list[int]:
        """The servers that receive a body of which much is still to come, first those of which most is."""
        bodies = [
            exchange
            for exchange in self.exchanges
            if exchange.method == "PATCH" and exchange.left > 4 * CHUNK and not exchange.half_open
        ]
        return [exchange.server for exchange in sorted(bodies, key=lambda exchange: -exchange.left)]

    def only_receives(self, server: int) -> bool:
        """Whether a server does nothing else than that."""
        # What was interrupted and has not gone on elsewhere is perhaps being saved.
        saving = any(upload.server == server and upload.interrupted is not None for upload in self.uploads.values())
        busy = sum(exchange.server == server for exchange in self.exchanges)
        return not saving and 0 < busy == self.receiving().count(server)

    def time_out(self) -> None:
        """Ends what is half-open, as TCP does in the end."""
        for ended in self._lingering.values():
            ended.set()

    # One request

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._served(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _served(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                head = await reader.readuntil(b"\r\n\r\n")
                await self._exchanged(head, reader, client, *await self._connect())
        except asyncio.CancelledError:
            client.transport.abort()
            raise
        finally:
            client.close()

    async def _exchanged(  # noqa: PLR0913 - both ends of two connections
        self,
        head: bytes,
        reader: asyncio.StreamReader,
        client: asyncio.StreamWriter,
        port: int,
        answers: asyncio.StreamReader,
        server: asyncio.StreamWriter,
    ) -> None:
        text = head.decode("latin-1")
        headers = {name.lower(): value for name, value in _HEADER.findall(text.replace("\r", ""))}
        found = _UPLOAD.match(text)
        upload = self._upload(found[2]) if found else None
        exchange = Exchange(text.split(" ", 1)[0], port, upload, int(headers.get("content-length", "0")), client)
        self.exchanges.add(exchange)
        sending = asyncio.ensure_future(self._send(exchange, head, headers, reader, server))
        try:
            await self._answer(exchange, answers)
        finally:
            server.transport.abort()
            self.exchanges.discard(exchange)
            self._ended(exchange)
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)

    @staticmethod
    def _ended(exchange: Exchange) -> None:
        piece, upload = exchange.piece, exchange.upload
        if piece is None or upload is None or piece.end is not None:
            return
        piece.end = "server" if exchange.left else "complete"
        if exchange.left:
            upload.interrupted = time.monotonic()

    async def _connect(self) -> tuple[int, asyncio.StreamReader, asyncio.StreamWriter]:
        """The next server that takes a connection."""
        refused: OSError = ConnectionRefusedError("no server")
        for _ in range(2 * len(self.servers)):
            self._turn += 1
            port = self.servers[self._turn % len(self.servers)]
            if port == self.spared:
                continue
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    return port, *await asyncio.open_connection("127.0.0.1", port, limit=CHUNK)
            except OSError as error:
                refused = error
        raise refused

    def _upload(self, uid: str) -> Upload:
        if uid not in self.uploads:
            self.uploads[uid] = Upload(uid, next(self._plans))
        return self.uploads[uid]

    async def _send(
        self,
        exchange: Exchange,
        head: bytes,
        headers: dict[str, str],
        reader: asyncio.StreamReader,
        server: asyncio.StreamWriter,
    ) -> None:
        """The request to the server, until it is complete or cut."""
        upload = exchange.upload if exchange.method == "PATCH" else None
        offset = int(headers.get("upload-offset", "0"))
        if upload is not None:
            upload.length = offset + exchange.left
            upload.server = exchange.server
            exchange.piece = Piece(offset, offset)
            upload.pieces.append(exchange.piece)
        kept = re.sub(rb"(?i)\r\nconnection:[^\r]*", b"", head)
        server.write(kept[:-2] + b"Connection: close\r\n\r\n")
        while exchange.left:
            chunk = await reader.read(min(CHUNK, exchange.left))
            if not chunk:
                server.transport.abort()
                return
            server.write(chunk)
            await server.drain()
            exchange.left -= len(chunk)
            if upload is None or exchange.piece is None:
                continue
            if upload.interrupted is not None:
                self.resumed.append(time.monotonic() - upload.interrupted)
                upload.interrupted = None
            offset += len(chunk)
            upload.sent = max(upload.sent, offset)
            exchange.piece.sent = offset
            due = upload.cuts and exchange.left and offset >= upload.cuts[0].at * upload.length
            if due:
                await self._arrived(server)
            if due and exchange.server != self.spared:
                exchange.piece.end = upload.cuts[0].kind
                self._cut(exchange, upload, upload.cuts.pop(0), server)
                return
            await asyncio.sleep(len(chunk) / self._rate)

    @staticmethod
    async def _arrived(server: asyncio.StreamWriter) -> None:
        """Waits until a server has read all that was sent to it: what is still on its way nobody can save."""
        ours, theirs = (server.get_extra_info(name)[1] for name in ("sockname", "peername"))
        give_up = time.monotonic() + ARRIVE_SECONDS
        while server.transport.get_write_buffer_size() or unread(ours, theirs):
            if time.monotonic() > give_up:
                return
            await asyncio.sleep(0.01)

    def _cut(self, exchange: Exchange, upload: Upload, cut: Cut, server: asyncio.StreamWriter) -> None:
        self.cuts[cut.kind] += 1
        upload.interrupted = time.monotonic()
        exchange.client.transport.abort()
        if cut.kind == "cut":
            server.transport.abort()
            return
        exchange.half_open = True
        ended = self._lingering[exchange] = asyncio.Event()
        task = asyncio.ensure_future(self._linger(exchange, cut, ended, server))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    @staticmethod
    async def _linger(exchange: Exchange, cut: Cut, ended: asyncio.Event, server: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(cut.linger):
                await ended.wait()
        except TimeoutError:
            exchange.timed_out = True
        server.transport.abort()

    # Its response

    async def _answer(self, exchange: Exchange, answers: asyncio.StreamReader) -> None:
        """The response to the client, until the server closes the connection."""
        try:
            status = await answers.readline()
            if status and not exchange.client.is_closing():
                self.statuses[exchange.method, int(status.split(b" ", 2)[1])] += 1
            data = status
            while data:
                if not exchange.client.is_closing():
                    exchange.client.write(data)
                    await exchange.client.drain()
                data = await answers.read(CHUNK)
            if not status:
                exchange.client.transport.abort()
        except OSError:
            exchange.client.transport.abort()
        finally:
            ended = self._lingering.pop(exchange, None)
            if ended is not None:
                ended.set()
