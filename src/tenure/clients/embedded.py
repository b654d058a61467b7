"""The way to the embedded server: joined when a connection is needed, and again when it is not there any more."""

from __future__ import annotations

import asyncio
from _thread import RLock
from typing import TYPE_CHECKING, Any

from ..core.ports import NotSent
from . import url

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..embedded import Membership
    from .base import AsyncConnection, Connection
    from .redis_py import RedisPyClient

JOIN_TIMEOUT = 5.0
"""Seconds; more for locks that are patient with their server."""


class EmbeddedClient:
    """Connections to the one embedded server of this user on this machine.

    The membership keeps the server alive; it is taken by the first connection, since a constructor does no I/O.
    """

    def __init__(self, server_timeout: float = JOIN_TIMEOUT) -> None:
        self._patience = max(JOIN_TIMEOUT, server_timeout)
        self.node = "the embedded server of this user on this machine"
        # Reentrant: a signal handler that closes everything may interrupt the call that joins the server.
        self._mutex = RLock()
        self._membership: Membership | None = None
        self._inner: RedisPyClient | None = None

    def _join(self, stale: RedisPyClient | None) -> RedisPyClient:
        with self._mutex:
            if self._inner is None or self._inner is stale:
                from .. import embedded  # noqa: PLC0415 - not on every platform, and not when a URL is used

                old, self._membership = self._membership, embedded.join(self._patience)
                self._inner = url.client_of(self._membership.url)
                if old is not None:
                    old.close()
            return self._inner

    def connect(self, timeout: float) -> Connection:
        """Opens a blocking connection, joining the server first if need be."""
        inner = self._join(None)
        try:
            return inner.connect(timeout)
        except NotSent:
            # It has crashed, or was stopped: whoever needs it next starts it anew.
            return self._join(inner).connect(timeout)

    async def connect_async(
        self,
        timeout: float,
        *,
        on_lost: Callable[[], None],
        on_push: Callable[[Any], None] | None = None,
    ) -> AsyncConnection:
        """Opens a connection of the running loop, joining the server first, in a thread, if need be."""
        inner = self._inner or await asyncio.to_thread(self._join, None)
        try:
            return await inner.connect_async(timeout, on_lost=on_lost, on_push=on_push)
        except NotSent:
            inner = await asyncio.to_thread(self._join, inner)
            return await inner.connect_async(timeout, on_lost=on_lost, on_push=on_push)

    def forked(self) -> None:
        """The inherited share stays the parent's; this process takes one of its own when it needs it."""
        self._mutex = RLock()
        self._membership = None
        self._inner = None

    def close(self) -> None:
        """Gives up this process's share of the server."""
        with self._mutex:
            membership, self._membership = self._membership, None
            self._inner = None
        if membership is not None:
            membership.close()
