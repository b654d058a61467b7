"""Telling who holds a lock while somebody waits for it."""

from __future__ import annotations

import contextlib
import os
import threading
from typing import TYPE_CHECKING

from tenure.errors import TenureError

from .report import describe, lock_name, tell

if TYPE_CHECKING:
    from collections.abc import Generator

    from tenure import Locks

_TELL_AFTER = 0.3
_TELL_A_LOG_AFTER = 5.0
_LOOK_AGAIN = 5.0


@contextlib.contextmanager
def telling_who_holds(name: str, locks: Locks) -> Generator[None]:
    """Say who holds the lock if the block takes long, soon at a terminal and later in a log, and again who holds next.

    Of several holders one is told, and another one when that has gone. Looks every few seconds, from a thread of its
    own.
    """

    def look() -> None:
        told = None
        pause = _TELL_AFTER if os.isatty(2) else _TELL_A_LOG_AFTER
        while not over.wait(pause):
            pause = _LOOK_AGAIN
            with contextlib.suppress(TenureError):  # the acquire meets the same error, and reports it
                holders = {holder.id: holder for holder in locks.holders(lock_name(name))}
                if holders and told not in holders and not over.is_set():
                    told = next(iter(holders))
                    tell(f"waiting for {name!r}, held by {describe(holders[told])}")

    over = threading.Event()
    threading.Thread(target=look, name="tenure-look", daemon=True).start()
    try:
        yield
    finally:
        over.set()
