"""Holding a lease until the transaction around it is over.

With `ATOMIC_REQUESTS` the commit comes after the view: a lock that is given back at the end of the view lets the next
one read what has not been committed yet, and one of the two updates is lost.
"""

# pyright: basic
# Django has no types of its own.

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import DEFAULT_DB_ALIAS, transaction

from ...errors import TenureError
from ...instrument.logs import logger

if TYPE_CHECKING:
    from ...lease import Lease


class _UntilTheEnd:
    """Goes with the transaction's list of what to do on commit: called by a commit, dropped by a rollback."""

    def __init__(self, lease: Lease) -> None:
        self._lease: Lease | None = lease

    def __call__(self) -> None:
        lease, self._lease = self._lease, None
        if lease is None:
            return
        try:
            lease.release()
        except TenureError as error:
            logger.warning("a lock could not be released after the commit (%s); its ttl takes over", error)

    def __del__(self) -> None:
        lease, self._lease = getattr(self, "_lease", None), None
        if lease is not None:
            # Rolled back. Not released here: a finaliser may run in the middle of anything, and must not block.
            lease.give_back()


def hold_until_commit(lease: Lease, using: str = DEFAULT_DB_ALIAS) -> bool:
    """Gives a lease back when the transaction that is open now has been committed or rolled back.

    Args:
        lease: held; from now on it is the transaction's, and must not be released by hand.
        using: the database.

    Returns False, and does nothing, when no transaction is open: then use it as a block.

    Safety: the lease may be lost before the commit; let `lease.check()` be the last line before it.
    """
    if not transaction.get_connection(using).in_atomic_block:
        return False
    transaction.on_commit(_UntilTheEnd(lease), using=using, robust=True)
    return True
