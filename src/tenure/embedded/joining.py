"""Finding or starting the one server of this user on this machine, and holding on to it."""

from __future__ import annotations

import fcntl
import os
import stat
import subprocess
import time
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self
from urllib.parse import quote

from tenure.errors import ServerUnavailable

from . import reaper
from .binary import find_python, find_server
from .directory import PROTOCOL, base_directory, lock, open_private, socket_path

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

_REAPER = os.path.abspath(reaper.__file__)  # noqa: PTH100 - resolve() would follow links out of the environment
_POLL = 0.01
_PASSED_ON = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "DYLD_FALLBACK_LIBRARY_PATH")
"""All of the user's environment that the server gets: what its loader may need, and none of the user's secrets."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a live server says about itself."""

    pid: int
    version: str
    binary: str
    clients: int


class Membership:
    """This process's share of the embedded server, which lives at least as long as the membership does.

    A fork shares it: the server lives until parent and child have both closed it or died. It also ends with the
    process, however that dies, and when it is garbage-collected. Safe to use and close from any thread.
    """

    def __init__(self, fd: int, path: str, server_pid: int) -> None:
        self.path = path
        self.url = f"unix://{quote(os.fsencode(path))}"
        self.server_pid = server_pid
        self._finalizer = weakref.finalize(self, os.close, fd)
        # Leases are still to be released while the interpreter exits; the kernel closes what is left right after.
        self._finalizer.atexit = False

    @property
    def closed(self) -> bool:
        """Whether this process has given up its share."""
        return not self._finalizer.alive

    def close(self) -> None:
        """Give up this process's share; the server ends soon after the last one. Does nothing a second time.

        Never unlocks, only closes: unlocking would take the share away from forks of this process too.
        """
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Membership {self.url} pid={self.server_pid}{' closed' if self.closed else ''}>"


def join(timeout: float = 5.0) -> Membership:
    """Find or start the one embedded server of this user on this machine; it answers when this returns.

    A server that has crashed is replaced at the same address by the next `join`, also by one from a process that still
    has a membership. May block up to `timeout` seconds. Raises `ConfigError` if there is no server binary or the
    runtime directory must not be trusted, `ServerUnavailable` if the server could not be started or does not answer
    in time.
    """
    deadline = time.monotonic() + timeout
    base = base_directory()
    path = socket_path(base)
    os.close(open_private(base))
    directory = base / PROTOCOL
    users = open_private(directory)
    try:
        # From here on no reaper ends the server, so one that answers is ours to use.
        lock(users, fcntl.LOCK_SH, deadline, directory)
        answer = probe(path, deadline) or _start(base, path, deadline)
        return Membership(users, path, answer.pid)
    except BaseException:
        os.close(users)
        raise


def probe(path: str, deadline: float) -> Answer | None:
    """What the server at `path` says about itself; None exactly when nobody listens there.

    Raises `ServerUnavailable` if somebody listens and does not answer before the monotonic `deadline`: starting a
    second server beside a busy or stopped one would let two clients hold the same lock.
    """
    trouble = "no reply"
    while True:
        # At least once, also by a caller that comes late: where there is no socket nobody has to be waited for.
        try:
            if not _is_our_socket(path):
                return None
            text = reaper.exchange(path, b"INFO", deadline).decode(errors="replace")
        except (FileNotFoundError, ConnectionRefusedError):
            return None
        except OSError as error:
            # The last try ends with the time: what the server has said before tells more.
            if not isinstance(error, TimeoutError):
                trouble = str(error) or trouble
            if time.monotonic() >= deadline:
                break
            time.sleep(_POLL)
        else:
            facts = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
            return Answer(
                pid=int(facts["process_id"]),
                version=facts.get("valkey_version") or facts["redis_version"],
                binary=facts.get("executable", ""),
                clients=int(facts["connected_clients"]) - 1,
            )
    msg = f"The embedded server at {path} is there but does not answer: {trouble}. `stop` it, or end its process."
    raise ServerUnavailable(msg, node=path, cause=trouble)


def _is_our_socket(path: str) -> bool:
    # The directory may have been open to others before we narrowed it, and anybody may have put a socket there.
    found = os.lstat(path)
    return stat.S_ISSOCK(found.st_mode) and found.st_uid == os.geteuid()


def _start(base: Path, path: str, deadline: float) -> Answer:
    """Start the server unless another process has done so by the time that it is our turn."""
    start = open_private(base)
    in_use_by_reaper = False
    try:
        lock(start, fcntl.LOCK_EX, deadline, base)
        answer = probe(path, deadline)
        if answer is None:
            in_use_by_reaper = True
            _spawn_reaper(start, base / PROTOCOL, deadline)
            in_use_by_reaper = False
            answer = probe(path, deadline)
        if answer is None:
            msg = f"The embedded server at {path} died as soon as it had started."
            raise ServerUnavailable(msg, node=path)
        return answer
    finally:
        # Closing alone would not do: another thread's fork may have copied the descriptor, and hold the lock for ever.
        if not in_use_by_reaper:
            fcntl.flock(start, fcntl.LOCK_UN)
        os.close(start)


def _spawn_reaper(start: int, directory: Path, deadline: float) -> None:
    binary = find_server()
    command = [find_python(), "-I", "-S", _REAPER, binary, str(directory), str(start)]
    environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd="/",
            env=environment,
            start_new_session=True,
            pass_fds=(start,),
        )
    except OSError as error:
        msg = f"The embedded server could not be started: {command[0]}: {error.strerror}."
        raise ServerUnavailable(msg, node=str(directory), cause=str(error)) from error
    try:
        report, _ = process.communicate(timeout=max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        msg = f"The embedded server {binary} in {directory} was not ready in time."
        raise ServerUnavailable(msg, node=str(directory)) from None
    finally:
        # The program that was started forks the reaper and exits at once: only one that never got there is still alive.
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
    if report != reaper.READY:
        reason = report.decode(errors="replace").strip()[-600:] or "it ended without a word"
        msg = f"The embedded server {binary} in {directory} did not start: {reason}"
        raise ServerUnavailable(msg, node=str(directory), cause=reason)
