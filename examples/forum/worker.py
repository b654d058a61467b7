"""A process of the forum: several threads that want thumbnails, over one `Locks` object."""

from __future__ import annotations

import argparse
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .site import Site


def main() -> None:
    """Asks for every thumbnail of the site, each thread in an order of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("site")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--url")
    parser.add_argument("--posts", type=int, default=8)
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--without-lock", action="store_true")
    chosen = parser.parse_args()
    site = Site(chosen.site, chosen.folder, chosen.url, with_lock=not chosen.without_lock)

    def visit(number: int) -> None:
        posts = list(range(chosen.posts))
        # The same order for the same threads of all processes: they meet at every post.
        random.Random(number).shuffle(posts)  # noqa: S311 - an order, no secret
        for post in posts:
            site.thumbnail(post)

    def all_look() -> None:
        site.looked = lambda: None
        print("ready", flush=True)
        input()

    # Begins when the processes of all have looked for the same one and found nothing: what bad luck does at times.
    site.looked = all_look
    site.thumbnail(0)
    with ThreadPoolExecutor(chosen.threads) as threads:
        list(threads.map(visit, range(chosen.threads)))
    site.close()
    # What is there costs no request at all; by locks that have nothing else to tell the server.
    later = Site(chosen.site, chosen.folder, chosen.url, with_lock=not chosen.without_lock)
    for post in range(chosen.posts):
        later.thumbnail(post)
    print("fast path", later.locks.statistics().requests, flush=True)
    later.close()


if __name__ == "__main__":
    main()
