"""A guard for a resource that lives in this process: a device, a file that is open, an object in memory."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ..errors import AlreadyHeld, ConfigError
from ..options import shown
from .fence import MAX_FENCE, fence_of, stale

if TYPE_CHECKING:
    from collections.abc import Generator

    from .fence import Fence


class FenceGuard:
    """Remembers the highest fence that has come, and refuses lower ones; threads may share it.

    Args:
        resource: what is guarded, for messages.
        seen: the highest fence so far, when the resource has outlived an earlier guard.

    Safety: it knows what came through it, in this process. A resource that several processes reach directly, or that
    outlives this one, has to remember the fence itself.
    """

    def __init__(self, resource: str = "this resource", *, seen: int = 0) -> None:
        if isinstance(seen, bool) or not isinstance(seen, int) or not 0 <= seen <= MAX_FENCE:  # pyright: ignore[reportUnnecessaryIsInstance] - for those without a type checker
            msg = f"seen must be a fence or 0, not {shown(seen)}"
            raise ConfigError(msg)
        self._resource = resource
        self._seen = seen
        self._turn = threading.Lock()
        self._owner: int | None = None

    @property
    def seen(self) -> int:
        """The highest fence that has come, 0 before the first."""
        return self._seen

    def check(self, fence: Fence, *, name: str | None = None) -> int:
        """Remembers the fence and returns it as a number; call it on each read.

        Args:
            fence: a lease, or its fence.
            name: of a lease of several names, the one that stands for this resource.

        Raises `StaleFence` when a higher one has come before, `ConfigError` for what is no fence. May block while
        another thread is in `admit`.

        Safety: a write needs `admit`. Between this call and the next line a newer holder may come.
        """
        with self.admit(fence, name=name) as number:
            return number

    @contextmanager
    def admit(self, fence: Fence, *, name: str | None = None) -> Generator[int]:
        """Lets the block run as one step with the comparison: nobody else is checked or admitted until its end.

        Args:
            fence: a lease, or its fence.
            name: of a lease of several names, the one that stands for this resource.

        Raises `StaleFence` when a higher one has come before, `ConfigError` for what is no fence, `AlreadyHeld` when
        this thread is inside already. May block while another thread is inside.

        Safety: the block is the effect alone, and awaits nothing: another task of the same thread is refused meanwhile.
        """
        number = fence_of(fence, name=name)
        # Only this thread can have written its own number there.
        if self._owner == threading.get_ident():
            msg = f"{self._resource}: this thread is inside the guard already, and would wait for itself"
            raise AlreadyHeld(msg)
        with self._turn:
            try:
                self._owner = threading.get_ident()
                if number < self._seen:
                    raise stale(self._resource, number, self._seen)
                self._seen = number
                yield number
            finally:
                self._owner = None

    def __repr__(self) -> str:
        return f"<FenceGuard {self._resource!r} seen={self._seen}>"
