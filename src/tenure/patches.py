"""What has patched this process: whether greenlets stand for its threads, and how things were before."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from .errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

_NEEDED = ("threading", "socket")
_LOOKED_AT = (*_NEEDED, "select", "selectors")


def _question(module: str, name: str) -> Callable[[str], bool] | None:
    # Never imported here: who has not imported it has not patched anything with it.
    return getattr(sys.modules.get(module), name, None)


def _patched() -> list[str]:
    """The modules that gevent has patched, of those that matter."""
    patched = _question("gevent.monkey", "is_module_patched")
    return [] if patched is None else [name for name in _LOOKED_AT if patched(name)]


def green() -> bool:
    """Whether gevent's greenlets stand for threads in this process."""
    return set(_NEEDED) <= set(_patched())


def original(module: str, name: str) -> Any:  # noqa: ANN401 - whatever it is
    """An attribute of a standard module as it was before gevent patched it."""
    saved = getattr(sys.modules.get("gevent.monkey"), "get_original", None)
    return getattr(importlib.import_module(module), name) if saved is None else saved(module, name)


def refuse(*, asynchronous: bool) -> None:
    """Raises `ConfigError` in a process that is patched in a way in which leases would not be safe."""
    patched = _question("eventlet.patcher", "is_monkey_patched")
    if patched is not None and any(patched(name) for name in ("thread", "socket")):
        msg = "eventlet has patched threads or sockets; renewal needs a real thread: unsupported, as eventlet itself is"
        raise ConfigError(msg)
    found = _patched()
    if not found:
        return
    missing = [name for name in _NEEDED if name not in found]
    if missing:
        msg = (
            f"gevent has patched {', '.join(found)} and not {', '.join(missing)}: "
            f"call gevent.monkey.patch_all(), or leave them all as they are"
        )
        raise ConfigError(msg)
    if asynchronous:
        msg = "gevent has patched threads and sockets: AsyncLocks needs an ordinary event loop; use Locks in greenlets"
        raise ConfigError(msg)
