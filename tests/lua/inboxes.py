"""Subscribers on real connections, which can tell exactly what has been sent to them until now."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any, Self, cast

import hiredis

from tests.harness import resp

if TYPE_CHECKING:
    from tests.harness.servers import Server


class Inboxes:
    """One connection that listens to any number of channels, plain and sharded."""

    def __init__(self, server: Server) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(30)
        self._socket.connect(server.socket_path)
        self._reader = hiredis.Reader()
        self._listening: set[tuple[bytes, bytes]] = set()

    def subscribe(self, channel: bytes, *, kind: bytes = b"s") -> None:
        """Listens to a channel; `kind` is s (sharded), p (plain) or * (a pattern)."""
        self._ask({b"s": b"SSUBSCRIBE", b"p": b"SUBSCRIBE", b"*": b"PSUBSCRIBE"}[kind], channel)
        self._listening.add((kind, channel))

    def unsubscribe(self, channel: bytes, *, kind: bytes = b"s") -> None:
        """Listens no more."""
        self._ask({b"s": b"SUNSUBSCRIBE", b"p": b"UNSUBSCRIBE", b"*": b"PUNSUBSCRIBE"}[kind], channel)
        self._listening.discard((kind, channel))

    def clear(self) -> None:
        """Listens to nothing, and forgets what has come."""
        for kind, channel in list(self._listening):
            self.unsubscribe(channel, kind=kind)

    def received(self) -> list[tuple[bytes, bytes]]:
        """(channel, message) of all that was sent until now and not told before."""
        if not self._listening:
            return []
        self._send(b"PING")
        messages: list[tuple[bytes, bytes]] = []
        while (words := self._next())[0] != b"pong":
            if words[0] in (b"message", b"smessage"):
                messages.append((words[1], words[2]))
        return messages

    def close(self) -> None:
        """Ends all subscriptions."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, command: bytes, channel: bytes) -> None:
        self._send(command, channel)
        while self._next()[0] != command.lower():
            pass

    def _send(self, *words: bytes) -> None:
        self._socket.sendall(resp.encode_request(*words))

    def _next(self) -> list[Any]:
        while (reply := self._reader.gets()) is False:
            data = self._socket.recv(65536)
            assert data, "the server closed the subscriber's connection"
            self._reader.feed(data)
        assert isinstance(reply, list), reply
        return cast("list[Any]", reply)
