"""The private directory that all processes of one user on one machine agree on. Its mode is all the access control."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from pathlib import Path

from tenure.errors import ConfigError, ServerUnavailable

from .reaper import SOCKET_NAME

PROTOCOL = "v1"
"""Names how processes share the server (this directory, its locks, its socket): every tenure that agrees shares it."""
SHARED_TMP = "/tmp"  # noqa: S108 - not TMPDIR, which differs between processes of one user; see open_private
_SOCKET_PATH_LIMIT = 103
"""Bytes in sockaddr_un.sun_path: 107 usable on Linux, 103 on macOS; the smaller, so that a path works on both."""
_POLL = 0.01


def base_directory() -> Path:
    """Where this user's files go: `tenure` in the user's runtime directory, else `tenure-<uid>` in /tmp.

    Creates nothing. A process without XDG_RUNTIME_DIR (cron, su) still finds the usual /run/user/<uid> of the user's
    sessions.
    """
    uid = os.geteuid()
    for parent in (os.environ.get("XDG_RUNTIME_DIR", ""), f"/run/user/{uid}"):
        if Path(parent).is_absolute() and _is_usable(parent, uid):
            return Path(parent, "tenure")
    return Path(SHARED_TMP, f"tenure-{uid}")


def socket_path(base: Path) -> str:
    """The server's socket below `base`; `ConfigError` if the operating system could not bind it."""
    path = str(base / PROTOCOL / SOCKET_NAME)
    length = len(os.fsencode(path))
    if length > _SOCKET_PATH_LIMIT:
        msg = (
            f"The embedded server's socket {path} would have {length} bytes in its path, but a unix socket can have "
            f"{_SOCKET_PATH_LIMIT}. Set XDG_RUNTIME_DIR to a shorter directory, or name a server in TENURE_URL."
        )
        raise ConfigError(msg)
    return path


def open_private(path: Path) -> int:
    """Create `path` if need be and open it: the descriptor of a directory that only we can enter.

    The descriptor is above 2 and closed on exec.
    Raises `ConfigError` for a symbolic link, for what is no directory, and for one that belongs to somebody else or
    stays open to others: in a directory that another user prepared, that user would own our locks. Raises
    `ServerUnavailable` if the file system refuses.
    """
    try:
        path.mkdir(mode=0o700, exist_ok=True)
        low = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            # A daemon with closed standard streams gets 0, 1 or 2 here, and somebody's dup2 would drop the lock.
            fd = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, 3)
        finally:
            os.close(low)
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENOTDIR, errno.EEXIST}:
            msg = f"The embedded server needs a real directory at {path}; something else is there: {error.strerror}."
            raise ConfigError(msg) from error
        msg = f"The embedded server's directory {path} cannot be used: {error.strerror}."
        raise ServerUnavailable(msg, node=str(path), cause=str(error)) from error
    try:
        _require_private(fd, path)
    except BaseException:
        os.close(fd)
        raise
    return fd


def lock(fd: int, operation: int, deadline: float, path: Path) -> None:
    """Take the `flock` on `fd`, or raise `ServerUnavailable` once the monotonic `deadline` has passed.

    Blocks until then. Directories are locked, not lock files, since that is what keeps systemd-tmpfiles from ageing
    them out of /tmp.
    """
    while True:
        try:
            fcntl.flock(fd, operation | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                msg = f"The embedded server in {path} is being started or ended by another process, for too long."
                raise ServerUnavailable(msg, node=str(path)) from None
            time.sleep(_POLL)
        except OSError as error:
            msg = f"The embedded server's directory {path} cannot be locked: {error.strerror}."
            raise ServerUnavailable(msg, node=str(path), cause=str(error)) from error
        else:
            return


def _is_usable(parent: str, uid: int) -> bool:
    try:
        found = os.stat(parent)  # noqa: PTH116 - follows links, as the session manager may use them
    except OSError:
        return False
    # In a directory that others may write to, only the sticky bit keeps them from replacing ours.
    exposed = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not found.st_mode & stat.S_ISVTX
    return stat.S_ISDIR(found.st_mode) and found.st_uid == uid and not exposed


def _require_private(fd: int, path: Path) -> None:
    found = os.fstat(fd)
    if found.st_uid != os.geteuid():
        msg = (
            f"The embedded server's directory {path} belongs to uid {found.st_uid}, not to you (uid {os.geteuid()}), "
            "so it was not used. Remove it, set XDG_RUNTIME_DIR to a directory of your own, or name a server in "
            "TENURE_URL."
        )
        raise ConfigError(msg)
    if stat.S_IMODE(found.st_mode) & 0o077:
        refused = ""
        try:
            os.fchmod(fd, 0o700)
        except OSError as error:
            refused = f" ({error.strerror})"
        if stat.S_IMODE(os.fstat(fd).st_mode) & 0o077:
            msg = f"The embedded server's directory {path} is open to other users and stays so{refused}: chmod 700 it."
            raise ConfigError(msg)
