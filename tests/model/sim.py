"""The real procedures as coroutines in virtual time: what they are given instead of a runtime.

Every suspension of a procedure is an operation (`Send`, `Sleep`, `Wait`, `Subscribe`) that the world completes, fails
or leaves hanging; nothing here decides when.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tenure.core import release, requests
from tenure.core.ports import Unanswered
from tenure.core.server_time import ServerTime

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator

    from tenure.core.keys import Keys
    from tenure.core.lease_state import Hold
    from tenure.core.requests import Request
    from tenure.core.ticket import Ticket
    from tenure.options import Mode
    from tests.model.client import Client

PREFIX = b"ns:@"
START = 1000.0
"""Local clocks begin here, so that none of them can be taken for another or for the server's."""


class Cancelled(BaseException):
    """What a cancelled task, or an interrupted thread, sees at its suspension point."""


class Op:
    """A suspension point; what the world sends in is the result."""

    def __await__(self) -> Generator[Any, Any, Any]:
        return (yield self)


@dataclass(eq=False)
class Send(Op):
    """A request is on its way; the local instant of its sending and of its time-out."""

    request: Request
    sent_at: float
    until: float


@dataclass(eq=False)
class Sleep(Op):
    """Waits for a local instant."""

    until: float


@dataclass(eq=False)
class Wait(Op):
    """Waits for a signal, or for a local instant."""

    signal: Signal
    until: float | None


@dataclass(eq=False)
class Subscribe(Op):
    """Waits for the inbox, or for a local instant."""

    until: float


class Signal:
    """Remembers a `set` that came first."""

    def __init__(self) -> None:
        self.mutex = contextlib.nullcontext()
        self.is_set = False

    def set(self) -> None:
        self.is_set = True


@dataclass(eq=False)
class Task:
    """One coroutine of a client, and the operation that it is suspended in."""

    name: str
    coroutine: Coroutine[Any, Any, object]
    op: Op | None = None
    tokens: frozenset[bytes] = frozenset()
    """Those of the last request that it sent."""


@dataclass(frozen=True)
class Spec:
    """What one client of a scenario does, and how fast its clock runs against true time."""

    ttl: float = 6.0
    grace: float = 0.08
    drift: float = 0.01
    hold: float = 1.0
    wait: float | None = None
    renew: bool = True
    start: float = 0.0
    turns: int = 1
    pause: float = 0.0
    """Seconds between two turns."""
    rate: float = 1.0
    subscribed: bool = True
    knows_server_time: bool = True
    mode: Mode = "exclusive"
    limit: int = 1
    names: tuple[str, ...] = ("lock",)
    """The locks that it takes, all or none."""
    ask_after: float | None = None
    yields: bool = False
    """Releases when it is asked to."""
    apart: float = 0.0
    """Takes the lock as `once` does, with this distance between two grants."""
    program: Callable[[Client], Coroutine[Any, Any, object]] | None = None
    """Something else than taking the lock `turns` times."""


class SimPort:
    """The port of every procedure of one client."""

    node = "model"
    server_timeout = 5.0
    request_timeout = 2.0

    def __init__(self, client: Client) -> None:
        self.client = client
        self.server_time = ServerTime()

    def now(self) -> float:
        return self.client.now()

    def random(self) -> float:
        return 0.5

    def epoch(self) -> int:
        return self.client.epoch

    def stamp(self, sent_at: float) -> float:
        """The local instant that a reply counts from."""
        return sent_at

    def own(self, raw: list[Any], request: Request) -> bool:
        """Whether this is the request's own reply."""
        return requests.is_reply_to(raw, request)

    async def send(self, request: Request, *, full: bool, timeout: float) -> requests.Reply:
        sent_at = self.now()
        raw = await Send(request, sent_at, sent_at + timeout)
        if not self.own(raw, request):
            raise Unanswered("the reply belongs to another request")
        return requests.Reply(self.stamp(sent_at), raw[1], raw[2:])

    def reconnect(self) -> None:
        self.client.epoch += 1

    async def sleep(self, seconds: float) -> None:
        await Sleep(self.now() + seconds)

    def signal(self) -> Signal:
        return Signal()

    def inbox(self) -> str:
        return f"p{self.client.name}" if self.client.subscribed else ""

    async def subscribe(self, until: float, unknown: tuple[str, int]) -> bool:
        if self.client.subscribed and unknown == (self.inbox(), self.epoch()):
            # The server does not know the inbox that was confirmed: it is another server, or has lost the connection.
            self.client.unsubscribe()
        return self.client.subscribed or await Subscribe(until)

    def register(self, ticket: Ticket) -> None:
        if len(self.client.spec.names) > 1 and not ticket.score:
            self.client.places += 1
            self.client.world.monitor.turns[ticket.token] = (self.client.name, self.client.turn, self.client.places)
        self.client.tickets[ticket.token] = ticket

    def unregister(self, ticket: Ticket) -> None:
        del self.client.tickets[ticket.token]

    async def wait(self, ticket: Ticket, until: float | None) -> None:
        signal = ticket.signal
        assert isinstance(signal, Signal)
        if not signal.is_set:
            await Wait(signal, until)
        signal.is_set = False

    def keep(self, hold: Hold) -> None:
        self.client.holds[hold.token] = hold

    def forget(self, hold: Hold) -> None:
        self.client.holds.pop(hold.token, None)

    def undo(self, keys: Keys, token: bytes) -> None:
        self.client.spawn(f"undo{token[:2].decode()}", release.undo(self, keys, token))
