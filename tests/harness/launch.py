"""Run a program that dies with its parent: `python launch.py PARENT_PID BINARY ARGUMENTS…`.

A launcher instead of `preexec_fn`: the latter runs Python code between fork and exec, in a process with threads, and
would also run the fork hooks of the library under test.
"""

from __future__ import annotations

import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """Have the kernel send SIGKILL to this process when the thread that started it ends (Linux only)."""
    if not sys.platform.startswith("linux"):
        return
    import ctypes  # noqa: PLC0415 - costs 10 ms that other systems need not pay

    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        # The parent ended before the request was made; nobody would ever send the signal.
        os._exit(1)


if __name__ == "__main__":
    if sys.argv[1] != "0":
        die_with_parent(int(sys.argv[1]))
    os.execv(sys.argv[2], sys.argv[2:])  # noqa: S606 - the caller chose the program
