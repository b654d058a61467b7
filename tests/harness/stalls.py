"""Noticing that the machine stands still: what has to happen in time is late then, whoever has to do it."""

from __future__ import annotations

import threading
import time
from typing import Self

_TICK = 0.005


class Stalls:
    """Measures within its block for how long at the most a thread of this process was not let run."""

    def __init__(self) -> None:
        self.longest = 0.0
        """Seconds beyond those that the thread wanted to sleep."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="stalls", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        last = time.monotonic()
        while not self._over.wait(_TICK):
            now = time.monotonic()
            self.longest = max(self.longest, now - last - _TICK)
            last = now
