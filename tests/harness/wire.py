"""One client's connection through the fault proxy, and the faults that can strike it; see `proxy.py`."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import socket
import struct
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from tests.harness import resp

if TYPE_CHECKING:
    from collections.abc import Callable

End = Literal["rst", "close", "silence"]
"""What happens to a connection after a fault: reset, closed in order, or left open without ever another byte."""

_SEEN = 10_000
_CHUNK = 65_536


def matches(request: tuple[bytes, ...], match: bytes) -> bool:
    """Tell whether a request contains `match`; the command's name counts as upper case."""
    return match in b" ".join((request[0].upper(), *request[1:])) if request else not match


@dataclass(eq=False)
class Fault:
    """A fault that waits for its request: passes over `skip` matching ones, then strikes `times` (`None`: all)."""

    match: bytes
    skip: int
    times: int | None
    strikes: int = 0
    fired: threading.Event = field(default_factory=threading.Event)

    def wait(self, timeout: float = 30.0) -> None:
        """Block until the fault has struck; AssertionError when it has not after `timeout` seconds."""
        if not self.fired.wait(timeout):
            raise AssertionError(f"no request matching {self.match!r} came within {timeout:g} s")

    def takes(self, request: tuple[bytes, ...]) -> bool:
        """Count a request against this fault and tell whether it is to be hit."""
        if self.times == 0 or not matches(request, self.match):
            return False
        if self.skip:
            self.skip -= 1
            return False
        if self.times is not None:
            self.times -= 1
        self.strikes += 1
        return True


def _same(reply: bytes) -> bytes:
    return reply


@dataclass(eq=False)
class ReplyFault(Fault):
    """Changes a reply and, with `end`, ends the connection after it."""

    change: Callable[[bytes], bytes] = _same
    end: End | None = None


@dataclass(eq=False)
class RequestFault(Fault):
    """Loses a request before it reaches the server."""

    end: End = "rst"


@dataclass(eq=False)
class Wire:
    """The state of the wire that all connections of one proxy share; touched on the proxy's thread only."""

    seen: collections.deque[tuple[bytes, ...]] = field(default_factory=lambda: collections.deque(maxlen=_SEEN))
    faults: list[Fault] = field(default_factory=list[Fault])
    delay: float = 0.0
    silent: bool = False
    hold_replies: bytes | None = None
    hold_requests: bytes | None = None
    pushes: Literal["pass", "drop", "hold", "twice"] = "pass"
    pushes_dropped: int = 0
    released: asyncio.Event = field(default_factory=asyncio.Event)

    def release(self) -> None:
        """Let everything pass that was held."""
        self.hold_replies = self.hold_requests = None
        self.pushes = "pass"
        self.released.set()
        self.released = asyncio.Event()


@dataclass(eq=False)
class _Awaited:
    """A request whose reply (or replies, in the case of a subscription to several channels) have not come yet."""

    request: tuple[bytes, ...]
    confirmations: int
    fault: ReplyFault | None


class Link:
    """One client connection and its own connection to the server."""

    def __init__(self, wire: Wire, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self.client_gone = False
        self.lost_bytes = False
        self._wire = wire
        self._client = client
        self._server = server
        self._awaited: collections.deque[_Awaited] = collections.deque()
        self._held_pushes: list[bytes] = []
        self._deaf = self._silenced = False
        self._ended = False
        self._task = asyncio.current_task()

    async def carry(self, from_client: asyncio.StreamReader, from_server: asyncio.StreamReader) -> None:
        """Pass requests and replies on until both sides are done or a fault has ended the connection."""
        try:
            await asyncio.gather(self._carry_requests(from_client), self._carry_replies(from_server))
        except (OSError, asyncio.CancelledError):
            if not self._ended:
                self.end("rst")
        finally:
            self._server.close()
            self._client.close()

    def end(self, how: End) -> None:
        """End the connection for the client's eyes; the server's side is closed, except by silence."""
        if how == "silence":
            self._deaf = self._silenced = self.lost_bytes = True
            return
        self._ended = True
        if how == "rst":
            reset(self._client)
        else:
            self._client.close()
        self._server.transport.abort()
        if self._task is not None:
            self._task.cancel()

    def send_eof(self) -> None:
        """Close the direction towards the client only; what the client sends still reaches the server."""
        self._deaf = self.lost_bytes = True
        if self._client.can_write_eof():
            self._client.write_eof()
        else:
            self._client.close()

    def flush_pushes(self) -> None:
        """Deliver the messages that were kept back."""
        for frame in self._held_pushes:
            self._client.write(frame)
        self._held_pushes.clear()

    # From the client to the server

    async def _carry_requests(self, reader: asyncio.StreamReader) -> None:
        buffer = bytearray()
        with contextlib.suppress(ConnectionError):
            while chunk := await reader.read(_CHUNK):
                buffer += chunk
                for frame in resp.split_frames(buffer):
                    await self._request(frame)
        self.client_gone = True
        if self._server.can_write_eof() and not self._server.is_closing():
            self._server.write_eof()

    async def _request(self, frame: bytes) -> None:
        wire, request = self._wire, resp.parse_request(frame)
        wire.seen.append(request)
        while wire.hold_requests is not None and matches(request, wire.hold_requests):
            await wire.released.wait()
        if wire.silent or self._silenced:
            self.lost_bytes = True
            return
        fault = next((fault for fault in wire.faults if fault.takes(request)), None)
        if isinstance(fault, RequestFault):
            self.end(fault.end)
            fault.fired.set()
            return
        confirmations = max(len(request) - 1, 1) if request and request[0].lower() in resp.CONFIRMATIONS else 0
        self._awaited.append(_Awaited(request, confirmations, fault if isinstance(fault, ReplyFault) else None))
        self._server.write(frame)
        await self._server.drain()

    # From the server to the client

    async def _carry_replies(self, reader: asyncio.StreamReader) -> None:
        buffer = bytearray()
        while chunk := await reader.read(_CHUNK):
            buffer += chunk
            frames = resp.split_frames(buffer)
            if frames and self._wire.delay:
                await asyncio.sleep(self._wire.delay)
            for frame in frames:
                await self._reply(frame)
        self._client.close()

    async def _reply(self, frame: bytes) -> None:
        wire, kind = self._wire, resp.frame_kind(frame)
        awaited = None if kind == "push" else self._answered(kind)
        request = awaited.request if awaited else ()
        while wire.hold_replies is not None and matches(request, wire.hold_replies):
            await wire.released.wait()
        if wire.silent or self._deaf:
            self.lost_bytes = True
        elif kind == "push":
            self._push(frame)
        elif awaited is None or awaited.fault is None:
            self._client.write(frame)
        else:
            await self._spoil(frame, awaited.fault)

    def _answered(self, kind: resp.FrameKind) -> _Awaited | None:
        """Find the request that a reply belongs to: the server answers in order."""
        if not self._awaited:
            return None
        first = self._awaited[0]
        if kind == "confirmation":
            if not first.confirmations:
                return None
            first.confirmations -= 1
        if kind == "reply" or not first.confirmations:
            self._awaited.popleft()
        return first

    async def _spoil(self, frame: bytes, fault: ReplyFault) -> None:
        self._client.write(fault.change(frame))
        if fault.end is not None:
            if not self._client.is_closing():
                await self._client.drain()
            self.end(fault.end)
        fault.fired.set()

    def _push(self, frame: bytes) -> None:
        match self._wire.pushes:
            case "drop":
                self._wire.pushes_dropped += 1
            case "hold":
                self._held_pushes.append(frame)
            case "twice":
                self._client.write(frame + frame)
            case "pass":
                self._client.write(frame)


def reset(writer: asyncio.StreamWriter) -> None:
    """Close a connection with a TCP reset, so that the peer sees an error and not an orderly end."""
    connection = writer.get_extra_info("socket")
    # Both sides may have ended it meanwhile.
    if connection is not None and connection.fileno() >= 0:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
