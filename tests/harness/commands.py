"""Counting what clients ask of a server: script calls, commands, and whole requests by MONITOR."""

from __future__ import annotations

import re
import secrets
import socket
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, cast

from tests.harness import resp
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    import redis

    from tests.harness.servers import Server

SCRIPT_COMMANDS = ("eval", "evalsha", "eval_ro", "evalsha_ro", "fcall", "fcall_ro")


def command_counts(client: redis.Redis) -> dict[str, int]:
    """Return how often each command ran since the server's start, those that scripts called included."""
    stats: dict[str, dict[str, int]] = cast("Any", client).info("commandstats")
    return {name.removeprefix("cmdstat_"): entry["calls"] for name, entry in stats.items()}


def script_calls(client: redis.Redis) -> int:
    """Return how many script calls (EVAL, EVALSHA, FCALL) the server has run since its start."""
    counts = command_counts(client)
    return sum(counts.get(name, 0) for name in SCRIPT_COMMANDS)


class CallCounter:
    """Counts what the server runs between the block's begin and its end; the numbers are there after the block.

    A script that was tried by EVALSHA, was not there and went by EVAL counts as two calls.
    """

    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        self._before: dict[str, int] = {}
        self.commands: dict[str, int] = {}
        """Command name (lower case, subcommands as `script|load`) → calls, those from inside scripts included."""

    @property
    def scripts(self) -> int:
        """How many script calls there were."""
        return sum(self.commands.get(name, 0) for name in SCRIPT_COMMANDS)

    @property
    def total(self) -> int:
        """How many commands there were, those from inside scripts included; for requests alone take `Monitor`."""
        return sum(self.commands.values())

    def __enter__(self) -> Self:
        self._before = command_counts(self._client)
        # The look itself is counted after it has answered.
        self._before["info"] = self._before.get("info", 0) + 1
        return self

    def __exit__(self, *_: object) -> None:
        after = command_counts(self._client)
        grown = {name: calls - self._before.get(name, 0) for name, calls in after.items()}
        self.commands = {name: calls for name, calls in grown.items() if calls}


@dataclass(frozen=True, slots=True)
class Seen:
    """One request as MONITOR shows it."""

    client: str
    """The client's address, or the socket's path for one on the unix socket."""
    args: tuple[bytes, ...]


class Monitor:
    """Records every request that clients send to a server, by MONITOR on a connection of its own.

    Commands that scripts call are left out. Slows the server down: for counting, not for measuring time.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._seen: list[Seen] = []
        self._marker = b""
        self._marked = threading.Event()
        self._socket = socket.socket(socket.AF_UNIX)
        self._thread = threading.Thread(target=self._record, name="monitor", daemon=True)

    def requests(self, match: bytes = b"") -> list[Seen]:
        """Return what was sent until now, in the server's order: the requests that contain `match`."""
        self._catch_up()
        return [seen for seen in list(self._seen) if match in b" ".join(seen.args) and seen.args[0] != _MARKER_COMMAND]

    def __enter__(self) -> Self:
        self._server.command("PING")  # connected before, or its handshake would be recorded
        self._socket.settimeout(30)
        self._socket.connect(self._server.socket_path)
        if self._server.password:
            self._socket.sendall(resp.encode_request("AUTH", self._server.password))
            self._socket.recv(16)
        self._socket.sendall(resp.encode_request("MONITOR"))
        assert self._socket.recv(5, socket.MSG_WAITALL) == b"+OK\r\n"
        self._socket.settimeout(None)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._catch_up()
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(timeout=30)
        self._socket.close()

    def _catch_up(self) -> None:
        """Wait until a marker that was sent just now has come through."""
        if not self._thread.is_alive():
            return
        self._marker = secrets.token_hex(8).encode()
        self._marked.clear()
        self._server.command(_MARKER_COMMAND, self._marker)
        wait_until(self._marked.is_set, 30, "MONITOR to show the marker")

    def _record(self) -> None:
        with self._socket.makefile("rb") as lines:
            for line in lines:
                shown = _LINE.match(line)
                if shown is None or shown["client"] == b"lua":
                    continue
                args = tuple(_unquote(arg) for arg in _ARGUMENT.findall(shown["args"]))
                self._seen.append(Seen(shown["client"].decode(), args))
                if args == (_MARKER_COMMAND, self._marker):
                    self._marked.set()


_MARKER_COMMAND = b"ECHO"
_LINE = re.compile(rb"\+[0-9.]+ \[[0-9]+ (?P<client>[^\]]+)\] (?P<args>.*)\r\n")
_ARGUMENT = re.compile(rb'"((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(rb"\\(x[0-9a-f]{2}|.)")
_SHORT = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"a": b"\a", b"b": b"\b"}


def _unquote(text: bytes) -> bytes:
    def plain(escape: re.Match[bytes]) -> bytes:
        code = escape[1]
        return bytes([int(code[1:], 16)]) if len(code) > 1 else _SHORT.get(code, code)

    return _ESCAPE.sub(plain, text)
