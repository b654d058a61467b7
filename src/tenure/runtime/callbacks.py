"""Runs users' callbacks away from the hub: they may raise or block without delaying a renewal."""

from __future__ import annotations

import logging
import threading
from _thread import RLock
from collections import deque
from typing import TYPE_CHECKING

from .. import patches

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger("tenure")

THREADS = 4


def quietly(call: Callable[[], object]) -> None:
    """Runs a callback; what it raises is logged and goes no further."""
    try:
        call()
    except Exception:
        logger.exception("a callback raised; it was ignored")


def in_thread(call: Callable[[], object]) -> None:
    """Has a function run in a daemon thread of its own."""
    threading.Thread(target=call, name="tenure-callback", daemon=True).start()


class Callbacks:
    """A few daemon threads that live only while there is something to run, in order of arrival."""

    def __init__(self, spawn: Callable[[Callable[[], object]], None] = in_thread) -> None:
        self._spawn = spawn
        self._mutex = RLock()
        self._waiting: deque[Callable[[], object]] = deque()
        self._threads = 0

    def submit(self, call: Callable[[], object]) -> None:
        """Runs `call` soon on another thread."""
        with self._mutex:
            self._waiting.append(call)
        self._more()

    def _more(self) -> None:
        with self._mutex:
            if not self._waiting or self._threads >= THREADS:
                return
            self._threads += 1
        try:
            self._spawn(self._work)
        except RuntimeError as error:
            # It stays in the queue, for a thread that runs already or the next one. The caller may be the hub, which
            # has leases to renew. After an interrupt, which strikes while a thread is started, the thread runs.
            with self._mutex:
                self._threads -= 1
            # From Python 3.12 on there are none any more at the interpreter's end: nothing to complain about.
            level = logging.DEBUG if "shutdown" in str(error) else logging.WARNING
            logger.log(level, "no thread for a callback (%s); it is called when there is one", error)

    def _work(self) -> None:
        while True:
            with self._mutex:
                if not self._waiting:
                    self._threads -= 1
                    return
                call = self._waiting.popleft()
            try:
                quietly(call)
            except BaseException:
                if patches.green():
                    # A greenlet of the main thread: Ctrl-C, or an exit, that strikes here is meant for the program.
                    with self._mutex:
                        self._threads -= 1
                    self._more()
                    raise
                # sys.exit() most likely. It would end this thread alone, and leave the other callbacks behind.
                logger.exception("a callback ended its thread; it was ignored")
