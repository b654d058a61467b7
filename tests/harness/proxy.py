"""A TCP proxy that stands between a client and a real server, knows requests from replies, and fails on command.

All of the proxy runs on an event loop in one thread of its own. Its methods may be called from any other thread; each
returns when its effect is in place. Faults stay until `heal` unless they name a number of times.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Protocol, Self, TypeVar
from urllib.parse import quote

from tests.harness.wire import Link, ReplyFault, RequestFault, Wire, matches, reset

if TYPE_CHECKING:
    import collections
    from collections.abc import Callable, Coroutine

    from tests.harness.certs import Certificates
    from tests.harness.wire import End, Fault

T = TypeVar("T")
_F = TypeVar("_F", bound="Fault")

_CONTROL_SECONDS = 30.0


class Upstream(Protocol):
    """What the proxy needs to know of the server behind it."""

    port: int
    password: str | None


class FaultProxy:
    """A loopback TCP proxy in front of `upstream`, by default passing everything on.

    Args:
        upstream: a `Server`, or its TCP port on 127.0.0.1.
        tls: answer clients with TLS and this server certificate.
    """

    def __init__(self, upstream: Upstream | int, *, tls: Certificates | None = None) -> None:
        self.connections_made = 0
        """How many connections clients have made so far."""
        self.port = 0
        self._upstream = upstream
        self._tls = tls
        self._wire = Wire()
        self._links: set[Link] = set()
        self._listener: asyncio.Server | None = None
        self._refusing = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault-proxy", daemon=True)
        self._thread.start()
        self._await(self._listen())

    @property
    def url(self) -> str:
        """The address for clients, with the upstream server's password if it has one."""
        password = None if isinstance(self._upstream, int) else self._upstream.password
        credentials = f":{quote(password, safe='')}@" if password else ""
        scheme = "redis" if self._tls is None else "rediss"
        return f"{scheme}://{credentials}127.0.0.1:{self.port}/0"

    @property
    def seen(self) -> collections.deque[tuple[bytes, ...]]:
        """The requests that reached the proxy, oldest first (the last 10,000), as tuples of bytes."""
        return self._call(self._wire.seen.copy)

    @property
    def pushes_dropped(self) -> int:
        """How many pub/sub messages `drop_pushes` has lost so far."""
        return self._wire.pushes_dropped

    @property
    def connections(self) -> int:
        """How many client connections are open now."""
        return self._call(lambda: sum(not link.client_gone for link in self._links))

    def count(self, match: bytes) -> int:
        """Count the requests seen so far that contain `match`."""
        return sum(matches(request, match) for request in self.seen)

    # Faults that strike single requests

    def drop_next_reply(
        self, match: bytes = b"", *, nth: int = 1, times: int | None = 1, then: End = "rst"
    ) -> ReplyFault:
        """Lose the reply to the `nth` next request that contains `match`, after the server has run it.

        Args:
            match: bytes of the request, such as `b"EVALSHA"` or part of a key.
            nth: 1 for the next matching request.
            times: how many replies from there on; `None` for all until `heal`.
            then: what happens to that connection.

        Returns:
            The fault; its `wait` blocks until the reply was lost.
        """
        return self._add(ReplyFault(match, nth - 1, times, change=lambda _: b"", end=then))

    def cut_next_reply(self, match: bytes = b"", *, nth: int = 1, keep: int | None = None) -> ReplyFault:
        """Pass on only the first `keep` bytes (default: half) of a reply, then reset the connection."""

        def cut(reply: bytes) -> bytes:
            return reply[: len(reply) // 2 if keep is None else keep]

        return self._add(ReplyFault(match, nth - 1, 1, change=cut, end="close"))

    def replace_next_reply(
        self, match: bytes, reply: bytes | Callable[[bytes], bytes], *, nth: int = 1, times: int | None = 1
    ) -> ReplyFault:
        r"""Answer with other bytes (`b"-LOADING busy\r\n"`), or with what a function makes of the real reply.

        The server still runs the request. `times=None` goes on until `heal`.
        """

        def change(real: bytes) -> bytes:
            return reply(real) if callable(reply) else reply

        return self._add(ReplyFault(match, nth - 1, times, change=change))

    def drop_next_request(self, match: bytes = b"", *, nth: int = 1, then: End = "rst") -> RequestFault:
        """Lose a request before the server sees it."""
        return self._add(RequestFault(match, nth - 1, 1, end=then))

    # Faults of the whole wire

    def delay(self, seconds: float) -> None:
        """Deliver all that the server sends `seconds` later."""
        self._set(delay=seconds)

    def hold(self, match: bytes = b"") -> None:
        """Keep back the replies to matching requests, and all after them on the same connection, until `release`."""
        self._set(hold_replies=match)

    def hold_requests(self, match: bytes = b"") -> None:
        """Keep matching requests, and all after them on the same connection, from the server until `release`.

        They are delivered even when their client has closed its connection meanwhile: bytes stuck in a partition.
        """
        self._set(hold_requests=match)

    def release(self) -> None:
        """Deliver what `hold`, `hold_requests`, `hold_pushes` and `partition` kept back, and hold no more."""
        self._call(self._release)

    def partition(self) -> None:
        """Hold everything in both directions; `heal` delivers it late, as TCP does after a network partition."""
        self._set(hold_replies=b"", hold_requests=b"")

    def blackhole(self) -> None:
        """Swallow everything in silence, connections stay open; `heal` resets those that lost bytes."""
        self._set(silent=True)

    def refuse(self) -> None:
        """Reset new connections at once; those that are open live on."""
        # Not by ending the listener: asyncio drops, without closing it, what was accepted in the same moment.
        self._refusing = True

    def cut_all(self) -> None:
        """Reset all connections now; new ones are accepted."""
        self._call(lambda: [link.end("rst") for link in list(self._links)])

    def half_close(self) -> None:
        """Send end-of-file to all clients, go on reading from them."""
        self._call(lambda: [link.send_eof() for link in list(self._links)])

    def drop_pushes(self) -> None:
        """Lose pub/sub messages (never replies or subscription confirmations); `pushes_dropped` counts them."""
        self._set(pushes="drop")

    def hold_pushes(self) -> None:
        """Keep pub/sub messages back until `release`."""
        self._set(pushes="hold")

    def duplicate_pushes(self) -> None:
        """Deliver each pub/sub message twice."""
        self._set(pushes="twice")

    def heal(self) -> None:
        """End all faults: release what is held, accept again, reset connections that a blackhole made deaf."""
        self._refusing = False
        self._call(self._heal)

    # Life

    def close(self) -> None:
        """Reset all connections and end the proxy's thread; harmless when repeated."""
        if self._loop.is_closed():
            return
        self._await(self._shut_down())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=30)
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # On the proxy's own thread

    def _call(self, do: Callable[[], T]) -> T:
        async def run() -> T:
            return do()

        return self._await(run())

    def _await(self, work: Coroutine[object, object, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_CONTROL_SECONDS)

    def _add(self, fault: _F) -> _F:
        self._call(lambda: self._wire.faults.append(fault))
        return fault

    def _set(self, **state: object) -> None:
        def change() -> None:
            for name, value in state.items():
                setattr(self._wire, name, value)

        self._call(change)

    async def _listen(self) -> None:
        context = self._tls.server_context() if self._tls else None
        self._listener = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=context)
        self.port = self._listener.sockets[0].getsockname()[1]

    async def _stop_listening(self) -> None:
        if self._listener is not None:
            # Not awaited to the end: from Python 3.12 on that waits for open connections too.
            self._listener.close()
            self._listener = None

    async def _shut_down(self) -> None:
        await self._stop_listening()
        for link in list(self._links):
            link.end("rst")
        self._release()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _heal(self) -> None:
        self._wire.faults.clear()
        self._wire.silent, self._wire.delay = False, 0.0
        self._release()
        for link in [link for link in self._links if link.lost_bytes]:
            link.end("rst")

    def _release(self) -> None:
        self._wire.release()
        for link in self._links:
            link.flush_pushes()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refusing:
            reset(writer)
            return
        self.connections_made += 1
        port = self._upstream if isinstance(self._upstream, int) else self._upstream.port
        try:
            from_server, to_server = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            reset(writer)
            return
        link = Link(self._wire, writer, to_server)
        self._links.add(link)
        try:
            await link.carry(reader, from_server)
        finally:
            self._links.discard(link)
