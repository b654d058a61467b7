"""Looking at the embedded server and ending it, without joining it."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass

from . import reaper
from .directory import base_directory, socket_path
from .joining import probe

_POLL = 0.01


@dataclass(frozen=True, slots=True)
class Status:
    """The embedded server at one moment; everything but `path` is None while none runs."""

    running: bool
    path: str
    pid: int | None = None
    version: str | None = None
    binary: str | None = None
    clients: int | None = None
    """Open connections, the one that asked not counted."""


def status(timeout: float = 1.0) -> Status:
    """What runs at this user's address; starts and creates nothing.

    May block up to `timeout` seconds. Raises `ServerUnavailable` if a server is there and does not answer.
    """
    path = socket_path(base_directory())
    answer = probe(path, time.monotonic() + timeout)
    if answer is None:
        return Status(running=False, path=path)
    return Status(
        running=True, path=path, pid=answer.pid, version=answer.version, binary=answer.binary, clients=answer.clients
    )


def stop(timeout: float = 5.0) -> bool:
    """End the embedded server although it may be in use; whether there was one.

    Safety: every lock on it is gone with it, while its holders go on until their next renewal fails. The next `join`
    starts a new one. May block up to `timeout` seconds, then raises `ServerUnavailable`.
    """
    deadline = time.monotonic() + timeout
    path = socket_path(base_directory())
    first = probe(path, deadline)
    if first is None:
        return False
    with contextlib.suppress(OSError):  # it hangs up instead of answering
        reaper.exchange(path, b"SHUTDOWN NOSAVE", deadline)
    while (now := probe(path, deadline)) is not None and now.pid == first.pid:  # probe ends this at the deadline
        time.sleep(_POLL)
    return True
