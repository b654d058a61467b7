"""What a runtime must offer to the procedures, and how its transport may fail.

A port is small on purpose: the blocking runtime, the asyncio runtime, the hub and the model explorer each implement it,
and the procedures cannot tell which one they run on. Under the blocking runtime no method ever suspends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from .keys import Keys
    from .lease_state import Hold
    from .requests import Reply, Request
    from .server_time import ServerTime
    from .ticket import Signal, Ticket


class NotSent(Exception):
    """The request never left: no connection could be had. It certainly has no effect."""

    def __init__(self, cause: str, *, fatal: bool = False) -> None:
        super().__init__(cause)
        self.cause = cause
        self.fatal = fatal


class Unanswered(Exception):
    """The request left, or may have, and no reply came: its effect is unknown."""

    def __init__(self, cause: str) -> None:
        super().__init__(cause)
        self.cause = cause


class Refused(Exception):
    """The server answered with an error."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


class Port(Protocol):
    """One caller's way to the server, the clock and the inbox."""

    node: str
    """The server's address for messages, without secrets."""
    server_timeout: float
    """Seconds that a call goes on without a usable server."""
    request_timeout: float
    """Seconds after which a single request counts as unanswered."""
    server_time: ServerTime
    """What is known of the server's clock; one for all ports of a client."""

    def now(self) -> float:
        """Seconds on a local clock that counts suspended time and never steps."""
        ...

    def random(self) -> float:
        """A number in [0, 1) for jitter."""
        ...

    def epoch(self) -> int:
        """A number that rises whenever a connection was lost: server times of different epochs cannot be compared."""
        ...

    async def send(self, request: Request, *, full: bool, timeout: float) -> Reply:
        """Sends one script call and returns its reply; raises `NotSent`, `Unanswered` or `Refused`.

        `full` sends the script's text instead of its hash. Never sends twice.
        """
        ...

    def reconnect(self) -> None:
        """Drops idle connections, so that the next request asks anew who the master is."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Waits, for back-off."""
        ...

    def signal(self) -> Signal:
        """A signal that wakes this caller from `wait`."""
        ...

    def inbox(self) -> str:
        """The id under which messages reach this client now, with its kind in front; empty before `subscribe`."""
        ...

    async def subscribe(self, until: float, unknown: tuple[str, int]) -> bool:
        """Waits until the inbox is confirmed; False when it is not by the local instant `until`.

        `unknown` is the inbox, with its epoch, that the server has just said it has no subscriber for: if that is the
        confirmed one, it is given up and subscribed anew. Raises a `ServerError` when the server refuses one.
        """
        ...

    def register(self, ticket: Ticket) -> None:
        """From now on messages for the ticket's token are given to it, and its polls are made."""
        ...

    def unregister(self, ticket: Ticket) -> None:
        """The ticket's token waits no longer."""
        ...

    async def wait(self, ticket: Ticket, until: float | None) -> None:
        """Sleeps until the ticket is signalled, or the local instant `until`."""
        ...

    def keep(self, hold: Hold) -> None:
        """A lease that waits for others of the same call is renewed from now on."""
        ...

    def forget(self, hold: Hold) -> None:
        """The lease is renewed no longer."""
        ...

    def undo(self, keys: Keys, token: bytes) -> None:
        """Sees to it that `token` neither holds nor waits, now and after its last late request; does not block."""
        ...
