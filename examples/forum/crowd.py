"""Two sites, several processes for each, and what came of it."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .site import Site

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SITES = ("cats", "dogs")


@dataclass(frozen=True)
class Outcome:
    """What the processes of all sites have done."""

    thumbnails: int
    made: int
    made_more_than_once: int
    requests_on_the_fast_path: int

    @property
    def fine(self) -> bool:
        """Whether each thumbnail was made, and made once, and cost nothing afterwards."""
        return self.made == self.thumbnails and not self.made_more_than_once and not self.requests_on_the_fast_path


def _line_of(worker: subprocess.Popen[str]) -> str:
    return "" if worker.stdout is None else worker.stdout.readline()


def _go(worker: subprocess.Popen[str]) -> None:
    if worker.stdin is not None:
        worker.stdin.write("\n")
        worker.stdin.flush()


def run(  # noqa: PLR0913 - all by keyword
    folder: Path,
    url: str | None,
    *,
    posts: int = 8,
    processes: int = 3,
    threads: int = 4,
    with_lock: bool = True,
    watch: Callable[[list[Site]], None] | None = None,
    seconds: float = 120,
) -> Outcome:
    """Has processes of two sites ask for the same thumbnails at the same time; `watch` is called while they do."""
    sites = [Site(name, folder, url) for name in SITES]
    for site in sites:
        for post in range(posts):
            site.upload(post)
    extra = [*(["--url", url] if url else []), *([] if with_lock else ["--without-lock"])]
    workers = [
        subprocess.Popen(
            [
                sys.executable, "-m", "examples.forum.worker", name, str(folder),
                "--posts", str(posts), "--threads", str(threads), *extra,
            ],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for name in SITES
        for _ in range(processes)
    ]  # fmt: skip
    lines: list[str] = []
    try:
        for worker in workers:
            _line_of(worker)
        for worker in workers:
            _go(worker)
        while watch is not None and any(worker.poll() is None for worker in workers):
            watch(sites)
        for worker in workers:
            out, _ = worker.communicate(timeout=seconds)
            lines += out.splitlines()
            if worker.returncode:
                msg = f"a worker of the forum has ended with {worker.returncode}"
                raise RuntimeError(msg)
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
        for site in sites:
            site.close()
    made = [(site.name, post) for site in sites for post in site.journal.read_text(encoding="utf-8").split()]
    return Outcome(
        thumbnails=len(SITES) * posts,
        made=len(set(made)),
        made_more_than_once=len(made) - len(set(made)),
        requests_on_the_fast_path=sum(int(line.split()[-1]) for line in lines if line.startswith("fast path")),
    )
