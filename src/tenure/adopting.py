"""Taking a lease over from another process, and finding the one that is held here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import options
from .core.adopt import adopt
from .lease import AsyncLease, Lease
from .lock import watch
from .manager_base import LocksBase
from .runtime.blocking import run
from .runtime.session import context

if TYPE_CHECKING:
    from .core.lease_state import Hold


class Adopting(LocksBase):
    """Leases that are held already."""

    def adopt(
        self,
        exported: str,
        *,
        renew: bool = True,
        info: str | dict[str, Any] | None = None,
        max_hold: options.Seconds | None = None,
    ) -> Lease:
        """Takes over a lease that was exported: the same fences, a full ttl from now; one request for each name.

        Args:
            exported: what `lease.export()` or `tenure acquire` gave, or `TENURE_LEASE` in the environment of a command
                of `tenure run`; it can be used once.
            renew: see `lock`.
            info: see `lock`.
            max_hold: see `lock`.

        Raises `ConfigError` for any other text or another namespace, `LeaseLost` when the lease has ended or somebody
        else has adopted it, or a `ServerError`. May block.

        Safety: the old handle, if its process still lives, ends as handed over, not as lost.
        """
        written, chosen = self._adopted(exported, renew=renew, info=info, max_hold=max_hold)
        session, owner = self.session(), context()

        def build(holds: list[Hold]) -> Lease:
            lease = Lease(session, self, tuple(holds), chosen)
            watch(session, tuple(holds), lease, owner)
            return lease

        return run(adopt(session.port, *self._adopting(session, written, chosen, owner), build))

    def current(self, name: str) -> Lease | None:
        """The lease of the lock `name` that the running task, else this thread, holds, or None. No I/O."""
        return self._lease_here(name)


class AsyncAdopting(LocksBase):
    """Leases that are held already."""

    async def adopt(
        self,
        exported: str,
        *,
        renew: bool = True,
        info: str | dict[str, Any] | None = None,
        max_hold: options.Seconds | None = None,
        cancel_on_lost: bool = True,
    ) -> AsyncLease:
        """Takes over a lease that was exported: the same fences, a full ttl from now; one request for each name.

        Args:
            exported: what `lease.export()` or `tenure acquire` gave, or `TENURE_LEASE` in the environment of a command
                of `tenure run`; it can be used once.
            renew: see `lock`.
            info: see `lock`.
            max_hold: see `lock`.
            cancel_on_lost: see `lock`.

        Raises `ConfigError` for any other text or another namespace, `LeaseLost` when the lease has ended or somebody
        else has adopted it, or a `ServerError`. May block.

        Safety: the old handle, if its process still lives, ends as handed over, not as lost.
        """
        written, chosen = self._adopted(exported, renew=renew, info=info, max_hold=max_hold)
        session, owner = self.session(), context()
        cancelled = options.flag(cancel_on_lost, "cancel_on_lost")

        def build(holds: list[Hold]) -> AsyncLease:
            lease = AsyncLease(session, self, tuple(holds), chosen, cancel_on_lost=cancelled)
            watch(session, tuple(holds), lease, owner)
            return lease

        return await adopt(session.aio_port(), *self._adopting(session, written, chosen, owner), build)

    def current(self, name: str) -> AsyncLease | None:
        """The lease of the lock `name` that the running task, else this thread, holds, or None. No I/O."""
        return self._lease_here(name)
