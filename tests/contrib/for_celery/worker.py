"""The shop of `shop.py` with a real worker: the application in this process, its worker in another one."""

# pyright: basic

from __future__ import annotations

import contextlib
import importlib
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import tenure
from tests.harness.servers import Server
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[3]
PATIENCE = 60
LAUNCHED = f"""
from tests.harness.launch import die_with_parent
die_with_parent({os.getpid()})
from celery.__main__ import main
main()
"""
SPACE = "shop"
MODULE = "tests.contrib.for_celery.shop"


class Shop(NamedTuple):
    """The application in this process, its worker in another one, and what its tasks have written."""

    tasks: Any
    journal: Path
    locks: tenure.Locks
    server: Server
    worker: subprocess.Popen[bytes]

    def lines(self, word: str) -> list[str]:
        if not self.journal.exists():
            return []
        return [line for line in self.journal.read_text(encoding="utf-8").splitlines() if line.startswith(word)]

    def go_on(self, word: str) -> None:
        self.server.command("SET", f"{SPACE}-go-on:{word}", 1, "PX", 120_000)

    def wait_for(self, word: str, count: int = 1) -> list[str]:
        wait_until(lambda: len(self.lines(word)) >= count, PATIENCE, f"{count} lines that begin with {word!r}")
        return self.lines(word)

    def wait_free(self, name: str) -> None:
        wait_until(lambda: self.locks.holder(name) is None, PATIENCE, f"the lock {name} to be free")


@contextlib.contextmanager
def open_shop(journal: Path, pool: str, concurrency: int) -> Iterator[Shop]:
    """Starts a server and a worker with a pool of that kind; both are gone at the end."""
    with Server.start("valkey") as server, pytest.MonkeyPatch.context() as patch:
        server.shared = True
        patch.setenv("SHOP_URL", server.url)
        patch.setenv("SHOP_SPACE", SPACE)
        patch.setenv("SHOP_JOURNAL", str(journal))
        # Another shop has another server, and may be open.
        former = sys.modules.pop(MODULE, None)
        tasks = importlib.import_module(MODULE)
        path = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
        worker = subprocess.Popen(
            [
                sys.executable, "-c", LAUNCHED, "-A", MODULE, "worker",
                "--pool", pool, "--concurrency", str(concurrency), "--loglevel", "WARNING",
                "--without-gossip", "--without-mingle", "--without-heartbeat",
            ],
            env=os.environ | {"PYTHONPATH": path}, cwd=ROOT,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            with tenure.Locks(server.url, namespace=SPACE) as locks:
                wait_until(lambda: bool(tasks.app.control.ping(timeout=1)), PATIENCE, "the worker to answer")
                shop = Shop(tasks, journal, locks, server, worker)
                # What is kept open for good is open before the first test.
                assert locks.holder("warm") is None
                shop.go_on("warm")
                tasks.report.delay(1, "warm").get(timeout=PATIENCE)
                tasks.index.delay("warm", "warm").get(timeout=PATIENCE)
                yield shop
        finally:
            tasks.locks.close()
            tasks.app.close()
            del sys.modules[MODULE]
            if former is not None:
                sys.modules[MODULE] = former
            worker.terminate()
            try:
                worker.wait(30)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()


def shop_fixture(pool: str, concurrency: int) -> Any:  # noqa: ANN401 - pytest has no public type for it
    """A fixture `shop` for a module: one worker with a pool of that kind for all its tests."""

    @pytest.fixture(scope="module")
    def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
        with open_shop(tmp_path_factory.mktemp("celery") / "journal", pool, concurrency) as opened:
            yield opened

    return shop
