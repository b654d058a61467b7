"""What a client library has to offer to be used by tenure: authenticated connections, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable


class Connection(Protocol):
    """One blocking connection, used by one thread at a time."""

    def call(self, packed: bytes, timeout: float) -> Any:
        """Sends one packed command and returns its reply; closed after any failure.

        Raises `core.ports.Unanswered` when the reply did not come whole within `timeout` seconds, and
        `core.ports.Refused` for an error reply, after which the connection is still good.
        """
        ...

    def usable(self) -> bool:
        """Whether it is open, and nothing has arrived that nobody asked for."""
        ...

    def close(self) -> None:
        """Closes it; may be called twice."""
        ...

    def abandon(self) -> None:
        """Lets go of the socket in a forked child without telling the server."""
        ...


class AsyncConnection(Protocol):
    """One multiplexed connection of one event loop."""

    closed: bool

    def submit(self, packed: bytes, timeout: float) -> asyncio.Future[Any]:
        """Sends one packed command; commands of one tick of the loop share a write, replies come in order."""
        ...

    def close(self) -> None:
        """Closes it at once; pending replies fail with `core.ports.Unanswered`."""
        ...

    def abandon(self) -> None:
        """Lets go of the socket in a forked child without telling the server."""
        ...


class Client(Protocol):
    """Opens connections to one server, with all its settings (address, credentials, TLS, database)."""

    node: str
    """The server's address for messages, without secrets."""

    def connect(self, timeout: float) -> Connection:
        """Opens and authenticates a blocking connection.

        Raises `core.ports.NotSent` when there is no way to the server, `core.ports.Refused` when it says no.
        """
        ...

    async def connect_async(
        self,
        timeout: float,
        *,
        on_lost: Callable[[], None],
        on_push: Callable[[Any], None] | None = None,
    ) -> AsyncConnection:
        """The same for the running event loop.

        `on_lost` is called when it breaks without `close`; with `on_push` it is a subscriber's connection, and all that
        arrives is given to `on_push` instead of to pending commands.
        """
        ...

    def forked(self) -> None:
        """This process is a fork: forget what belongs to the parent."""
        ...

    def close(self) -> None:
        """Gives up what the adapter itself holds; never closes an injected client."""
        ...
