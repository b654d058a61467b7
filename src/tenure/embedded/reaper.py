"""The embedded server's parent: starts it, outlives whoever asked for it, ends it once nobody uses it any more.

Run as a program of its own, `python -I -S reaper.py BINARY DIRECTORY START_FD`: isolated from the user's environment
and without `site`, so that it is up in milliseconds and stays small. It therefore cannot import its neighbours; what
they share with it, `SOCKET_NAME`, `READY` and `exchange`, lives here.

Who may do what is decided by two `flock`s, which the kernel takes back from any process that dies, however it dies:

- START_FD, locked exclusively by the process that asks for the server and inherited from it: whoever has it may start
  a server. The reaper unlocks it only once the server answers: a starter killed half-way lets nobody start a second.
- DIRECTORY, locked shared by every user of the server for as long as it uses it, and exclusively by the reaper from the
  moment when the last user is gone until the server is gone too. So nobody can join a server that is being ended.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import sys
import time

SOCKET_NAME = "server.sock"
READY = b"ready\n"
START_LIMIT = 30.0
_PR_SET_PDEATHSIG = 1


def exchange(path: str, command: bytes, deadline: float) -> bytes:
    """Send one command to the server at `path` and return its raw reply, closed by the reply to a PING.

    Raises `FileNotFoundError` or `ConnectionRefusedError` exactly when nobody listens at `path`, `TimeoutError` once
    the monotonic `deadline` has passed, another `OSError` when a listener was there but hung up. Blocks until then.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_remaining(deadline))
        connection.connect(path)
        reply = b""
        try:
            connection.sendall(command + b"\r\nPING\r\n")
            while not reply.endswith(b"+PONG\r\n"):
                connection.settimeout(_remaining(deadline))
                chunk = connection.recv(65536)
                if not chunk:
                    break
                reply += chunk
        except ConnectionError as error:
            raise OSError(str(error)) from error
    if not reply.endswith(b"+PONG\r\n"):
        raise OSError(reply.decode(errors="replace").strip() or "the server hung up")
    return reply


def _remaining(deadline: float) -> float:
    remaining = deadline - time.monotonic()
    if remaining <= 0:
        raise TimeoutError
    return remaining


def _exec_server(binary: str, path: str, log: int, reaper: int) -> None:
    """Turn this fresh fork of the reaper into the server; dies with the reaper where the kernel can arrange that."""
    if sys.platform == "linux":
        with contextlib.suppress(ImportError, OSError, AttributeError):  # some builds of Python have no ctypes
            import ctypes  # noqa: PLC0415 - see above

            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != reaper:
            return
    os.dup2(log, 1)
    os.dup2(log, 2)
    settings = {
        "port": "0",
        "unixsocket": path,
        "unixsocketperm": "700",
        "protected-mode": "yes",
        "save": "",
        "appendonly": "no",
        "maxmemory-policy": "noeviction",
        "daemonize": "no",
        "loglevel": "warning",
    }
    arguments = [text for name, value in settings.items() for text in (f"--{name}", value)]
    os.execv(binary, [binary, *arguments])  # noqa: S606 - no shell is what we want


def _wait_ready(server: int, path: str, log: int) -> str | None:
    """Wait until the server answers; the reason, in the server's own words where it has any, when it never will."""
    deadline = time.monotonic() + START_LIMIT
    while time.monotonic() < deadline:
        if os.waitpid(server, os.WNOHANG)[0]:
            return os.read(log, 65536).decode(errors="replace").strip()[-600:] or "it exited at once and said nothing"
        try:
            exchange(path, b"PING", deadline)
        except OSError:
            time.sleep(0.002)
        else:
            return None
    os.kill(server, signal.SIGKILL)
    return f"it did not answer within {START_LIMIT:g} s"


def _tell(message: bytes) -> None:
    """Report to the starter, and let go of the pipe: its end of file is what the starter waits for."""
    with contextlib.suppress(BrokenPipeError):  # the starter may have died: that is why this process exists
        os.write(1, message)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 1)
    os.dup2(null, 2)
    os.close(null)


def _reap(binary: str, directory: str, start: int) -> None:
    os.set_inheritable(start, False)  # noqa: FBT003 - the standard library's signature
    os.umask(0o077)
    # Both survive exec: a user's thread that blocks signals, or ignores its children, must not make this process deaf.
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    path = os.path.join(directory, SOCKET_NAME)  # noqa: PTH118 - pathlib would triple this program's start
    users = os.open(directory, os.O_RDONLY)
    log_reader, log = os.pipe()
    os.set_blocking(log, False)  # a server must not wait for somebody to read its log
    reaper = os.getpid()
    server = os.fork()
    if server == 0:
        try:
            _exec_server(binary, path, log, reaper)
        except OSError as error:
            os.write(log, str(error).encode())
        finally:
            os._exit(127)
    os.close(log)

    def child_changed(*_: object) -> None:
        # Also sent for a server that was stopped or continued: that one is still somebody's.
        if os.waitpid(server, os.WNOHANG)[0]:
            os._exit(0)

    def end(*_: object) -> None:
        try:
            # SIGKILL, for there is nothing to save. The pid cannot be a stranger's: only the next line gives it back.
            os.kill(server, signal.SIGKILL)
            os.waitpid(server, 0)
        finally:
            os._exit(0)

    failure = _wait_ready(server, path, log_reader)
    fcntl.flock(start, fcntl.LOCK_UN)
    os.close(start)
    os.close(log_reader)
    if failure is not None:
        _tell(failure.encode())
        os._exit(1)
    try:
        signal.signal(signal.SIGCHLD, child_changed)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, end)
        child_changed()  # it may have died before the handler was in place
        _tell(READY)
        fcntl.flock(users, fcntl.LOCK_EX)
        with contextlib.suppress(OSError):  # a socket file that nobody listens on is harmless
            os.unlink(path)  # noqa: PTH108 - pathlib would triple this program's start
    finally:
        end()


if __name__ == "__main__":
    # Forked twice, so that it is no child of the user's program: no zombie, no SIGCHLD, no surprise for `os.wait()`.
    if os.fork() == 0:
        _reap(sys.argv[1], sys.argv[2], int(sys.argv[3]))
