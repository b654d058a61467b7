"""Become another program: `python -I -S launcher.py PARENT SIGNALS PATH ARGV0 ARGUMENTS…`, with no other import.

A program of its own rather than `preexec_fn`, which would run Python between fork and exec of a process with threads.
It has the kernel kill the program when PARENT, a process id, dies (Linux), and lets through SIGNALS, comma-separated
numbers that were blocked until now: one that comes earlier ends the program as it would have ended PATH itself.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
NOT_EXECUTABLE = 126
NOT_FOUND = 127


def _die_with(parent: int) -> None:
    if sys.platform != "linux":
        return
    with contextlib.suppress(ImportError):  # a Python built without libffi has no ctypes
        import ctypes  # noqa: PLC0415 - takes longer to load than all the rest

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        # It had died before the request was made.
        os.kill(os.getpid(), signal.SIGKILL)


def main(parent: str, blocked: str, path: str, *argv: str) -> int:
    """Replace this process by the program at `path`; returns an exit code only if that cannot be done."""
    _die_with(int(parent))
    # Python ignores the first two and handles the third at start-up; ignored signals would stay so in the program.
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
        if number != signal.SIGINT or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {int(number) for number in blocked.split(",")})
    try:
        os.execv(path, argv)  # noqa: S606 - the user chose the program, and wants no shell
    except FileNotFoundError:  # also a script whose interpreter does not exist
        reason, code = "no such program, or its interpreter is missing", NOT_FOUND
    except OSError as error:
        reason, code = error.strerror or str(error), NOT_EXECUTABLE
    sys.stderr.write(f"tenure: {path} cannot be run: {reason}\n")
    return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
