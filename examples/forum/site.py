"""One site of the forum: its images, its thumbnails, and the locks that keep two workers from making one twice."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

import redis
from PIL import Image, ImageFilter

import tenure
from tenure.contrib.redis_py import namespaced

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SIZE = (96, 96)
LARGEST_HOLD = 600.0
"""Seconds that a post with very many images may take."""


class Site:
    """Many sites share one Redis: each has its name as the namespace of its locks and of all its keys."""

    def __init__(self, name: str, folder: Path, url: str | None = None, *, with_lock: bool = True) -> None:
        self.name = name
        self.locks = tenure.Locks(url, namespace=name)
        self.images = folder / name / "images"
        self.thumbnails = folder / name / "thumbnails"
        self.journal = folder / name / "made.log"
        self.looked: Callable[[], None] = lambda: None
        """Called by whoever has looked for a thumbnail that is not there yet."""
        self._with_lock = with_lock
        for path in (self.images, self.thumbnails):
            path.mkdir(parents=True, exist_ok=True)

    def counters(self, url: str) -> Any:  # noqa: ANN401 - a client of redis-py whose keys stay in this site
        """A client for the site's own data: every key of every command gets the site's name in front."""
        return namespaced(redis.Redis.from_url(url), self.name)  # pyright: ignore[reportUnknownMemberType]

    def upload(self, post: int, *, pixels: int = 900) -> None:
        """Stores the image of a post."""
        Image.effect_mandelbrot((pixels, pixels), (-1.5, -1.0, 0.5, 1.0), 60).save(self.images / f"{post}.png")

    def thumbnail(self, post: int) -> Path:
        """The thumbnail of a post, made by the first who asks for it.

        Without a lock, and without any request to the server, when it is there. On a server that is read-only what
        exists is served, and nothing is made.
        """

        def get() -> Path | None:
            path = self.thumbnails / f"{post}.png"
            if path.exists():
                return path
            self.looked()
            return None

        def create() -> Path:
            return self._make(post)

        if not self._with_lock:
            return get() or create()
        return self.locks.get_or_create(f"thumbnail:{post}", get, create, ttl=20)

    def _make(self, post: int) -> Path:
        with Image.open(self.images / f"{post}.png") as image:
            small = image.convert("RGB").filter(ImageFilter.GaussianBlur(4))
            small.thumbnail(SIZE)
        path = self.thumbnails / f"{post}.png"
        # Under a name of its own first: whoever looks must not find half of it.
        unfinished = path.with_suffix(f".{os.getpid()}.{threading.get_ident()}")
        small.save(unfinished, format="png")
        unfinished.rename(path)
        with self.journal.open("a", encoding="utf-8") as journal:
            journal.write(f"{post}\n")
        return path

    def rebake(self, post: int, steps: int, step: Any) -> int:  # noqa: ANN401 - a function without arguments
        """Works on a post with many images: as long as it takes, with a warning when that is longer than it should be.

        `check()` before each step: if the lease is gone, somebody else may be at it.
        """
        lock = self.locks.lock(f"post:{post}", ttl=20, wait=30, max_hold=LARGEST_HOLD, warn_after=5)
        with lock as lease:
            for _ in range(steps):
                lease.check()
                step()
            return lease.fence

    def close(self) -> None:
        """Gives back what is held."""
        self.locks.close()
