"""Handing the terminal to a child's process group and taking it back, as a shell does for its jobs."""

from __future__ import annotations

import contextlib
import os
import signal


class Terminal:
    """The controlling terminal of this process, if there is one; without one nothing happens."""

    def __init__(self) -> None:
        self._fd: int | None = None
        self._given = False
        # /dev/tty, not stdin: `producer | tenure run NAME -- less` reads its keys from the terminal all the same.
        with contextlib.suppress(OSError):
            self._fd = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)

    def give(self, group: int) -> bool:
        """Make `group` the one that may read and gets Ctrl-C; false if the terminal is not ours to give."""
        try:
            if self._fd is None or os.tcgetpgrp(self._fd) != os.getpgrp():
                return False
            self._set_foreground(self._fd, group)
        except OSError:  # it was hung up, or the group has ended
            return False
        self._given = True
        return True

    def take_back(self) -> None:
        """Make our own group the foreground one again, if we gave that away."""
        if self._given and self._fd is not None:
            self._given = False
            with contextlib.suppress(OSError):
                self._set_foreground(self._fd, os.getpgrp())

    def close(self) -> None:
        """Take the terminal back and forget it."""
        self.take_back()
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    @staticmethod
    def _set_foreground(fd: int, group: int) -> None:
        # A background process that does this is stopped by SIGTTOU unless it blocks that signal.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
        try:
            os.tcsetpgrp(fd, group)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
