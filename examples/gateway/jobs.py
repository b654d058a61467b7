"""A scheduled job that every server tries, and one of them runs: not again within some seconds, whoever had it last."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import tenure

if TYPE_CHECKING:
    from .records import Records

logger = logging.getLogger(__name__)

TRY_EVERY = 0.5
"""Seconds; a cron job would be tried by all servers at the same minute."""


class Sweep:
    """Marks devices offline whose server died before it could say so."""

    def __init__(self, locks: tenure.AsyncLocks, records: Records, server: str, *, every: float, once: bool) -> None:
        self._locks = locks
        self._records = records
        self._server = server
        self._every = every
        self._once = once
        self.ran = 0
        self.skipped = 0
        self.last_skip = ""

    async def repeat(self) -> None:
        """Tries for as long as the server lives."""
        while True:
            try:
                await self._try()
            except tenure.TenureError as error:
                logger.warning("sweep: %s", error)
            await asyncio.sleep(TRY_EVERY if self._once else self._every)

    async def _try(self) -> None:
        if not self._once:
            await self._records.ran("sweep", self._server)
            return
        match await self._locks.once("job:sweep", self._sweep, at_least=self._every):
            case tenure.Ran():
                self.ran += 1
            case tenure.Skipped(holder, until):
                self.skipped += 1
                self.last_skip = f"sweep skipped: {holder or 'somebody'} has it or ran it last; not before {until}"
                logger.debug("%s", self.last_skip)

    async def _sweep(self) -> None:
        await self._records.ran("sweep", self._server)
        for record in await self._records.said_to_be_online():
            device = record["id"]
            lease = await self._locks.lock(f"device:{device}", ttl=10).try_acquire()
            if lease is None:
                continue
            # Given back before the write, which may be slow: the fence alone decides whether it still counts.
            await lease.release()
            await self._records.offline(device, "sweep", lease.fence)
