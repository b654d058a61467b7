"""Signals of a program that first waits and then looks after another one.

While it waits, a signal ends the wait with an exception; afterwards signals are only collected, and wake `wait`.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Generator

FORWARDED = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
)


class Interrupted(BaseException):
    """A signal has ended a wait. Not an `Exception`: only what cleans up may stop it on its way out."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number

    @property
    def exit_code(self) -> int:
        """What a shell would report had the signal ended the process."""
        return 128 + self.number


class Signals:
    """Catches the signals of `FORWARDED`, as a context manager; only on the main thread.

    A signal that this process was started to ignore (`nohup`, a background job) stays ignored.
    """

    def __init__(self) -> None:
        self._received: list[int] = []
        self._ends_wait = False
        self._before: dict[int, Any] = {}
        self._wakeup_before = -1
        self._reader = self._writer = -1

    def __enter__(self) -> Self:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)
        self._wakeup_before = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        for number in FORWARDED:
            self.catch(number)
        # Nothing to do for it but to wake `wait`, which only happens for signals that have a handler.
        self._before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, _ignore)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup_before)
        os.close(self._reader)
        os.close(self._writer)

    def catch(self, number: int) -> None:
        """Catch one more signal until the context ends, unless it is ignored."""
        handler = signal.getsignal(number)
        if handler is not signal.SIG_IGN:
            self._before[number] = handler
            signal.signal(number, self._caught)

    @contextlib.contextmanager
    def ending_wait(self) -> Generator[None]:
        """Have the first signal, also one that came before, raise `Interrupted` in this block; later ones do not."""
        self._ends_wait = True
        try:
            if self._received:
                raise Interrupted(self._received[0])
            yield
        finally:
            self._ends_wait = False

    def take(self) -> list[int]:
        """Return the signals that came since the last call, in order."""
        taken = self._received[:]
        del self._received[: len(taken)]
        return taken

    def put(self, number: int) -> None:
        """Have `take` return a signal that nobody has sent; from any thread."""
        self._received.append(number)
        os.kill(os.getpid(), signal.SIGCHLD)  # only wakes `wait`

    def wait(self, timeout: float | None) -> None:
        """Block until a signal comes (SIGCHLD counts), for at most `timeout` seconds."""
        poll = select.poll()
        poll.register(self._reader, select.POLLIN)
        poll.poll(None if timeout is None else max(0.0, timeout) * 1000)
        with contextlib.suppress(BlockingIOError):
            os.read(self._reader, 4096)

    def _caught(self, number: int, _frame: object) -> None:
        self._received.append(number)
        if self._ends_wait:
            self._ends_wait = False
            raise Interrupted(number)


def _ignore(_number: int, _frame: object) -> None:
    pass
