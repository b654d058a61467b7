"""The connection of one transaction: not shared with anybody, opened when first needed, closed with the block."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..clients.base import AsyncConnection, Client, Connection


class Link:
    """The transaction's own blocking connection, opened when first needed."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._connection: Connection | None = None

    async def call(self, packed: bytes, timeout: float) -> Any:  # noqa: ANN401 - any reply
        """The reply to one packed command."""
        if self._connection is None:
            self._connection = self._client.connect(timeout)
        return self._connection.call(packed, timeout)

    def close(self, *, forked: bool = False) -> None:
        """Closes it, in a forked child without a word to the server."""
        connection, self._connection = self._connection, None
        if connection is not None:
            (connection.abandon if forked else connection.close)()


class AioLink:
    """The transaction's own connection in an event loop, opened when first needed."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._connection: AsyncConnection | None = None

    async def call(self, packed: bytes, timeout: float) -> Any:  # noqa: ANN401 - any reply
        """The reply to one packed command."""
        if self._connection is None:
            self._connection = await self._opened(timeout)
        return await self._connection.submit(packed, timeout)

    async def _opened(self, timeout: float) -> AsyncConnection:
        # In a task of its own: `wait_for` of Python 3.11, by which client libraries connect, swallows a cancellation
        # that comes with its result.
        opening = asyncio.get_running_loop().create_task(self._connect(timeout))
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            opening.add_done_callback(_unwanted)
            opening.cancel()
            raise

    async def _connect(self, timeout: float) -> AsyncConnection:
        return await self._client.connect_async(timeout, on_lost=lambda: None)

    def close(self, *, forked: bool = False) -> None:
        """Closes it, in a forked child without a word to the server."""
        connection, self._connection = self._connection, None
        if connection is not None:
            (connection.abandon if forked else connection.close)()


def _unwanted(opening: asyncio.Task[AsyncConnection]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()
