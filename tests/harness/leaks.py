"""What a test must not leave behind: threads, sockets, child processes, and keys that would stay for ever."""

from __future__ import annotations

import contextlib
import gc
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from tests.harness.servers import Server

if TYPE_CHECKING:
    import redis

HUB_THREAD_PREFIX = "tenure-"
"""Names of the library's own threads begin like this; they are daemons, but must be gone after `close` all the same."""

OWN_DATA_PREFIX = b"testdata:"
"""Keys that a test writes for itself, without a TTL, begin like this."""

_SCAN_COUNT = 1000


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The threads, sockets and child processes of this process at one moment."""

    threads: frozenset[threading.Thread]
    sockets: frozenset[str]
    children: frozenset[int]

    @classmethod
    def take(cls) -> Snapshot:
        """Look now; the harness's own connections for looking at servers are closed first, and not counted."""
        for server in Server.living():
            server.close_clients()
        return cls(frozenset(_threads()), frozenset(_sockets()), frozenset(_children()))

    def leaks_since(self, earlier: Snapshot) -> list[str]:
        """Describe what is here and was not there earlier."""
        return [
            *(f"thread {thread.name!r}" for thread in self.threads - earlier.threads),
            *(f"open {link}" for link in self._sockets_more_than(earlier)),
            *(f"child process {pid}: {_command_line(pid)}" for pid in self.children - earlier.children),
        ]

    def _sockets_more_than(self, earlier: Snapshot) -> list[str]:
        """A connection that outlives the test may be another one now: when its server stood still, it was made anew."""
        opened, closed = self.sockets - earlier.sockets, earlier.sockets - self.sockets
        return sorted(opened)[len(closed) :]


def wait_for_no_leaks(earlier: Snapshot, timeout: float = 2.0) -> list[str]:
    """Return what is still leaked after `timeout` seconds; returns at once when nothing is."""
    give_up = time.monotonic() + timeout
    while leaks := Snapshot.take().leaks_since(earlier):
        # Objects in reference cycles close what they own only when they are collected.
        gc.collect()
        if time.monotonic() >= give_up:
            return leaks
        time.sleep(0.02)
    return []


def keys_without_ttl(client: redis.Redis, prefix: str = "") -> list[bytes]:
    """List the keys that begin with `prefix`, or with `{` and `prefix`, and would stay for ever."""
    keys = leftover_keys(client, prefix)
    raw: Any = client
    return [key for key in keys if raw.execute_command("PTTL", key) == -1]


def leftover_keys(client: redis.Redis, prefix: str = "") -> list[bytes]:
    """List the keys that begin with `prefix`, or with `{` and `prefix`, except a test's own `testdata:` keys."""
    raw = cast("Any", client)
    begin = prefix.encode()
    found: set[bytes] = {
        key if isinstance(key, bytes) else key.encode() for key in raw.scan_iter(match="*", count=_SCAN_COUNT)
    }
    return sorted(key for key in found if key.removeprefix(b"{").startswith(begin) and not _own_data(key))


def _own_data(key: bytes) -> bool:
    return key.startswith(OWN_DATA_PREFIX)


def _threads() -> list[threading.Thread]:
    return [
        thread for thread in threading.enumerate() if not thread.daemon or thread.name.startswith(HUB_THREAD_PREFIX)
    ]


def _sockets() -> list[str]:
    links: list[str] = []
    for descriptor in _listing("/proc/self/fd"):
        # One of them is the descriptor that listed the folder, which is closed by now.
        with contextlib.suppress(OSError):
            links.append(str(descriptor.readlink()))
    return [link for link in links if link.startswith("socket:")]


def _children() -> list[int]:
    shared = {server.pid for server in Server.living() if server.shared}
    pids: list[int] = []
    for thread in _listing("/proc/self/task"):
        with contextlib.suppress(OSError):  # a thread that has just ended
            pids += [int(pid) for pid in (thread / "children").read_text().split()]
    return [pid for pid in pids if pid not in shared and not _is_multiprocessing_helper(pid)]


def _is_multiprocessing_helper(pid: int) -> bool:
    """Tell the standard library's resource tracker and fork server, which live as long as this process."""
    command = _command_line(pid)
    return "multiprocessing.resource_tracker" in command or "multiprocessing.forkserver" in command


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return "(gone)"


def _listing(folder: str) -> list[Path]:
    """List a folder of /proc; empty on systems without it, where only threads and keys are checked."""
    return list(Path(folder).iterdir()) if Path(folder).exists() else []
