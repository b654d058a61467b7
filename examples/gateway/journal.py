"""Who owned a device from when to when, for the check at the end: two owners at any moment would show here."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tenure.contrib.socketio import Connection, DeviceLeases

    from .naive import NaiveConnection, NaiveDevices

SAMPLE_SECONDS = 0.2


class Journal:
    """One line for each beginning and each end, by a clock that all processes of a machine share."""

    def __init__(self, path: str, server: str) -> None:
        self._file = Path(path).open("a", encoding="utf-8")  # noqa: SIM115 - for the life of the process
        self._server = server
        self._deadlines: dict[str, float] = {}
        self.open = 0
        """How many connections have begun, and not yet ended."""

    def began(self, connection: Connection | NaiveConnection) -> None:
        """The connection owns its device from now on."""
        self.open += 1
        fence = connection.lease.fence if connection.lease is not None else 0
        self._add(connection, "from", time.monotonic(), server=self._server, fence=fence)
        self._remember(connection)

    def ended(self, connection: Connection | NaiveConnection) -> None:
        """It does no more, since its lease was given back or lost."""
        self.open -= 1
        at = connection.ended_at or time.monotonic()
        # A process that stood still notices the loss late, and has done nothing in between.
        at = min(at, self._deadlines.pop(connection.sid, at))
        lost = connection.lease is not None and connection.lease.lost is not None
        self._add(connection, "to", at, why=connection.ending, lost=lost)

    async def sample(self, leases: DeviceLeases | NaiveDevices) -> None:
        """Remembers the deadlines, which renewals move."""
        while True:
            for connection in leases.connections:
                self._remember(connection)
            await asyncio.sleep(SAMPLE_SECONDS)

    def _remember(self, connection: Connection | NaiveConnection) -> None:
        if connection.lease is not None and connection.lease.valid:
            # In this order: stopped in between, the process must not be taken for one that owned for longer.
            now = time.monotonic()
            self._deadlines[connection.sid] = now + connection.lease.remaining()

    def _add(self, connection: Connection | NaiveConnection, what: str, at: float, **more: Any) -> None:  # noqa: ANN401 - JSON
        line = {"device": connection.device, "sid": connection.sid, what: at, **more}
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()
