"""Two web servers, a watcher, a plugin and batch jobs at the same archives; and what came of it."""

from __future__ import annotations

import contextlib
import http.client
import json
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import tenure

from . import plugin
from .library import Library, archive_lock

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path

PLUGIN_STEPS = 200
SECONDS = 60.0
"""After which whatever is waited for is a failure."""


@dataclass
class Outcome:
    """What has happened, as figures."""

    acknowledged: int = 0
    """Changes of metadata and categories that somebody was told have been made."""
    lost: int = 0
    """Those of them that are not there."""
    statuses: dict[int, int] = field(default_factory=dict[int, int])
    """How many answers of the web API had which status."""
    refusal: dict[str, Any] = field(default_factory=dict[str, Any])
    """One answer 423, with its Retry-After."""
    batch: dict[str, str] = field(default_factory=dict[str, str])
    """What the batch job reported of each archive while the plugin was at one of them."""
    plugin_held: float = 0.0
    """Seconds that the plugin's job took, whose ttl is shorter."""
    deletes_raced: int = 0
    """Archives that vanished while the watcher waited for them."""
    warnings: int = 0
    errors: int = 0
    """Of the watcher's log."""
    ghosts: int = 0
    """Archives of which something is known although they were deleted."""

    @property
    def refused_by_a_job(self) -> bool:
        """Whether that answer was given because a job held the lock."""
        return "job" in self.refusal.get("holder", {}).get("info", {})

    @property
    def fine(self) -> bool:
        """Whether nothing was lost, and every deletion that raced was one warning and no error."""
        return not self.lost and not self.errors and not self.ghosts and self.warnings == self.deletes_raced


class World:
    """All processes of the library."""

    def __init__(self, folder: Path, url: str | None, *, with_lock: bool = True) -> None:
        self.library = Library(folder)
        self.locks = tenure.Locks(url, namespace="library") if with_lock else None
        self.ports: list[int] = []
        self.statuses: list[int] = []
        """Of all answers of the web API so far."""
        self._folder = folder
        self._extra = [*(["--url", url] if url else []), *([] if with_lock else ["--without-lock"])]
        self._children: list[subprocess.Popen[str]] = []

    def start(self, program: str, *arguments: str) -> subprocess.Popen[str]:
        """Starts one of the programs of this folder."""
        child = subprocess.Popen(
            [sys.executable, "-m", f"examples.library.{program}", str(self._folder), *arguments, *self._extra],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._children.append(child)
        return child

    def open(self, servers: int = 2) -> None:
        """Starts the web servers and the watcher, and waits for them."""
        started = [self.start("web") for _ in range(servers)]
        self.start("watcher")
        self.ports = [int(line_of(server)) for server in started]
        # The first archive tells when the watcher has begun: it is stored again until it is seen. It stays: the watcher
        # may still be about to look into it once more.
        wait_until(self._seen, "the watcher")

    def _seen(self) -> bool:
        self.library.add("first")
        time.sleep(0.3)
        return "pages" in self.library.read("first")

    def call(self, number: int, method: str, path: str) -> tuple[int, dict[str, Any], str | None]:
        """One request to one of the servers: status, body, Retry-After."""
        connection = http.client.HTTPConnection("127.0.0.1", self.ports[number % len(self.ports)], timeout=SECONDS)
        with contextlib.closing(connection):
            connection.request(method, path)
            answer = connection.getresponse()
            body: Any = json.loads(answer.read())
            return answer.status, body, answer.getheader("Retry-After")

    def log(self) -> list[str]:
        """The watcher's log."""
        return (self._folder / "watcher.log").read_text(encoding="utf-8").splitlines()

    def close(self) -> None:
        """Ends all processes."""
        for child in self._children:
            child.terminate()
        for child in self._children:
            try:
                child.wait(10)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
            for stream in (child.stdin, child.stdout):
                if stream is not None:
                    stream.close()
        if self.locks is not None:
            self.locks.close()


def line_of(child: subprocess.Popen[str]) -> str:
    """The next line that a program prints."""
    return "" if child.stdout is None else child.stdout.readline().strip()


def wait_until(met: Callable[[], object], what: str) -> None:
    """Waits for a condition, or raises TimeoutError."""
    until = time.monotonic() + SECONDS
    while not met():
        if time.monotonic() > until:
            raise TimeoutError(what)
        time.sleep(0.02)


@contextlib.contextmanager
def opened(folder: Path, url: str | None, *, with_lock: bool = True) -> Generator[World]:
    """The running library for the length of a block."""
    world = World(folder, url, with_lock=with_lock)
    try:
        world.open()
        yield world
    finally:
        world.close()


def busy_day(world: World, *, archives: int = 4, people: int = 4, fleeting: int = 3) -> Outcome:
    """Everybody changes the same archives at the same time, and some vanish."""
    names = [f"a{number}" for number in range(archives)]
    outcome = Outcome(deletes_raced=fleeting)
    for name in names:
        world.library.add(name)
    wait_until(lambda: all("pages" in world.library.read(name) for name in names), "all archives to be looked into")
    # What is written is there before its lock is given back, and the batch job waits for nobody.
    wait_until(lambda: world.locks is None or not world.locks.list(), "the watcher to have done with them")
    job = world.start("plugin", names[0], "--steps", str(PLUGIN_STEPS))
    line_of(job)
    began = time.monotonic()
    out, _ = world.start("batch", "tag", *names).communicate(timeout=SECONDS)
    items = [json.loads(line) for line in out.splitlines()]
    outcome.batch = {item["name"]: item["result"] for item in items}
    wanted = [(item["name"], "batch") for item in items if item["result"] == "done"]
    with ThreadPoolExecutor(people) as threads:
        at_work = [threads.submit(_person, world, number, names, outcome) for number in range(people)]

        def enough() -> bool:
            met = outcome.refused_by_a_job or all(person.done() for person in at_work)
            return met and time.monotonic() - began > 1.5 * plugin.TTL

        wait_until(enough, "the plugin to be in the way")
        job.communicate("enough\n", timeout=SECONDS)
        outcome.plugin_held = round(time.monotonic() - began, 1)
        wanted += [change for person in at_work for change in person.result()]
    if job.returncode == 0:
        wanted.append((names[0], "plugin"))
    outcome.statuses = dict(Counter(world.statuses))
    for number in range(fleeting):
        _vanish(world, f"fleeting{number}")
    # The watcher is through with everything that came before this one.
    world.library.add("last")
    wait_until(lambda: "pages" in world.library.read("last"), "the watcher to come to the end")
    _look(world, outcome, wanted)
    return outcome


def _person(world: World, number: int, names: list[str], outcome: Outcome) -> list[tuple[str, str]]:
    """Tags all archives and puts them into a category, trying again when one is busy; what was acknowledged."""
    done: list[tuple[str, str]] = []
    give_up = time.monotonic() + SECONDS
    left = [(name, way) for name in names for way in (f"p{number}", "category")]
    while left and time.monotonic() < give_up:
        name, way = left.pop(0)
        path = f"/categories/favourites/archives/{name}" if way == "category" else f"/archives/{name}/tags/{way}"
        status, body, retry_after = world.call(number, "PUT", path)
        world.statuses.append(status)
        if status == http.client.OK:
            done.append((name, way))
            continue
        if status == http.client.LOCKED and "job" in body.get("holder", {}).get("info", {}):
            outcome.refusal = body | {"retry_after": int(retry_after or 0)}
        left.append((name, way))
        time.sleep(0.1)
    return done


def _vanish(world: World, name: str) -> None:
    """An archive that appears and is deleted before the watcher has had its turn."""
    if world.locks is None:
        world.library.add(name)
        world.library.delete(name)
        return
    with world.locks.lock(archive_lock(name), ttl=20, wait=30, info={"job": "delete"}):
        world.library.add(name)
        locks = world.locks
        wait_until(lambda: locks.waiters(archive_lock(name)), "the watcher to wait")
        world.library.delete(name)
    # One of its threads has its turn now, while another one may be faster with what comes next.
    wait_until(lambda: any(f" {name} " in line for line in world.log()), "the watcher to tell of it")


def _look(world: World, outcome: Outcome, wanted: list[tuple[str, str]]) -> None:
    def there(name: str, way: str) -> bool:
        if way == "category":
            return name in world.library.category("favourites")
        metadata = world.library.read(name)
        return "plugin" in metadata if way == "plugin" else way in metadata["tags"]

    outcome.acknowledged = len(wanted)
    outcome.lost = sum(not there(*change) for change in wanted)
    log = world.log()
    outcome.warnings = sum(line.startswith("WARNING library") for line in log)
    outcome.errors = sum(line.startswith("ERROR") for line in log)
    outcome.ghosts = len(world.library.known() - set(world.library.names()))
