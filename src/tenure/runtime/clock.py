"""The local clock: it counts the time that a machine was suspended, and never steps."""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

# Linux's CLOCK_MONOTONIC stops while the machine sleeps: a lease that ended meanwhile would look alive.
# macOS's monotonic clock stops too, but its CLOCK_MONOTONIC (clock_gettime) goes on.
_ID = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))

now: Callable[[], float] = time.monotonic if _ID is None else functools.partial(time.clock_gettime, _ID)
"""Seconds since some fixed instant of this boot; always called as `clock.now()`, so that a test can make it jump."""
