"""The archive library, end to end: what the application needs, one assertion each; and what happens without locks."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest
from starlette.testclient import TestClient

import tenure
from examples.library import batch, plugin, watcher, web, world
from examples.library.library import Library
from tenure.core.scripts import RELEASE
from tests.examples import figures
from tests.harness.commands import Monitor
from tests.harness.leases import age
from tests.harness.proxy import FaultProxy
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.harness.servers import Server

SPACE = "library"
SERVER_SECONDS = 4
"""Not shorter, or a machine that stands still for a moment looks like a server that is not there."""


@pytest.fixture
def library(tmp_path: Path) -> Library:
    made = Library(tmp_path)
    for name in ("a", "b", "c"):
        made.add(name)
    return made


@pytest.fixture
def locks(private_server: Server) -> Iterator[tenure.Locks]:
    with tenure.Locks(private_server.url, namespace=SPACE) as made:
        yield made


@pytest.fixture
def others(private_server: Server) -> Iterator[tenure.Locks]:
    """Another process, as far as the server can tell."""
    with tenure.Locks(private_server.url, namespace=SPACE) as made:
        yield made


@pytest.fixture
def far(private_server: Server) -> Iterator[tuple[FaultProxy, tenure.Locks]]:
    """Locks whose way to the server can be broken."""
    with (
        FaultProxy(private_server) as proxy,
        tenure.Locks(proxy.url, namespace=SPACE, server_timeout=SERVER_SECONDS) as made,
    ):
        made.run("first", call=int)
        yield proxy, made


def test_a_busy_day(tmp_path: Path, private_server: Server) -> None:
    with world.opened(tmp_path, private_server.url) as library:
        outcome = world.busy_day(library)
    figures.write("library", vars(outcome))
    assert outcome.lost == 0, "no update of metadata that was acknowledged is lost, whoever else writes"
    assert outcome.statuses.keys() == {200, 423}, "busy is 423 and nothing else"
    assert outcome.refusal["resource"] == "archive:a0", "423 names the resource"
    assert outcome.refusal["operation"] in {"add a tag", "add to a category"}, "423 names the operation"
    assert outcome.refusal["holder"]["info"]["job"] == "plugin", "423 says who has it, where that is allowed"
    assert outcome.refusal["retry_after"] >= 1, "423 has a Retry-After"
    assert outcome.batch == {"a0": "busy", "a1": "done", "a2": "done", "a3": "done"}, (
        "busy ones are reported, others go on"
    )
    assert outcome.plugin_held > plugin.TTL, "a job that is longer than its ttl is renewed"
    assert outcome.warnings == outcome.deletes_raced == 3, "a file that has vanished is one warning"
    assert outcome.errors == 0, "and no error record"
    assert outcome.ghosts == 0, "what was deleted stays deleted"


def test_without_locks_updates_are_lost(tmp_path: Path, private_server: Server) -> None:
    with world.opened(tmp_path, private_server.url, with_lock=False) as library:
        outcome = world.busy_day(library)
    figures.write("library-without-lock", vars(outcome))
    assert outcome.lost > 0, "the test would not see what the locks prevent"


def test_one_core_call_that_knows_no_web_framework(
    locks: tenure.Locks, others: tenure.Locks, private_server: Server, library: Library
) -> None:
    done = locks.run("archive:a", call=lambda: library.tag("a", "x"), ttl=5)
    assert done == tenure.Ran({"tags": ["x"]}), "names, function, ttl: acquired, and the result"
    with others.lock("archive:a", ttl=60):
        refused = locks.run("archive:a", call=lambda: library.tag("a", "y"))
    assert isinstance(refused, tenure.Skipped), "not acquired"
    assert refused.holder is not None
    assert library.read("a")["tags"] == ["x"], "and nothing was done"
    with private_server.client() as client, tenure.Locks(client, namespace=SPACE) as own:
        assert own.run("archive:a", call=lambda: 7) == tenure.Ran(7), "on a connection of the caller's"


def test_several_resources_in_one_order_with_rollback_in_reverse(
    locks: tenure.Locks, others: tenure.Locks, private_server: Server
) -> None:
    names = ("category:z", "archive:b", "archive:a")
    ran = locks.run(*names, call=lambda: [holder.name for holder in others.list()])
    assert ran == tenure.Ran(["archive:a", "archive:b", "category:z"]), (
        "all of them, whatever order they are written in"
    )
    with others.lock("category:z", ttl=60), Monitor(private_server) as monitor:
        refused = locks.run(*names, call=int, wait=0.3)
        assert isinstance(refused, tenure.Skipped)
        assert not others.lock("archive:a").locked(), "all or nothing"
        assert not others.lock("archive:b").locked(), "all or nothing"
        given_back = [seen.args[3].decode() for seen in monitor.requests(RELEASE.sha)]
    assert given_back[:2] == [f"{SPACE}:archive:b", f"{SPACE}:archive:a"], "given back in reverse"


def test_another_worker_never_releases_it(locks: tenure.Locks, others: tenure.Locks) -> None:
    late = locks.lock("archive:a", ttl=2, renew=False, on_exit_lost="note").acquire()
    age(late, 100)
    mine = others.lock("archive:a", ttl=60, wait=30).acquire()
    assert late.release() is not tenure.Released.RELEASED, "the one that was late is told so"
    holder = locks.holder("archive:a")
    assert holder is not None, "and has not released the other one's"
    assert holder.fence == mine.fence
    assert mine.release() is tenure.Released.RELEASED


def test_connection_lost_while_acquiring(
    far: tuple[FaultProxy, tenure.Locks], others: tenure.Locks, library: Library
) -> None:
    proxy, locks = far
    # The server grants it; nobody hears of that.
    proxy.drop_next_reply(b"archive:a", times=None)
    with pytest.raises(tenure.ServerUnavailable):
        locks.run("archive:a", "category:z", call=lambda: library.tag("a", "x"), ttl=60)
    assert library.read("a")["tags"] == [], "nothing was done"
    proxy.heal()
    wait_until(lambda: not others.list(), 30, "what was taken to be rolled back, long before its ttl is over")


def test_no_server_is_503_in_the_web_and_busy_is_423(
    private_server: Server, others: tenure.Locks, library: Library
) -> None:
    with FaultProxy(private_server) as proxy:
        locks = tenure.AsyncLocks(proxy.url, namespace=SPACE, server_timeout=SERVER_SECONDS)
        with TestClient(web.application(library, locks)) as browser:
            assert browser.put("/archives/a/tags/x").json()["tags"] == ["x"]
            with others.lock("archive:a", ttl=60):
                assert browser.put("/archives/a/tags/y").status_code == 423, "busy"
                assert browser.delete("/archives/b").status_code == 200, "another one is not"
            assert browser.get("/archives/b").status_code == 404
            proxy.refuse()
            proxy.cut_all()
            refused = browser.put("/archives/a/tags/y")
            assert (refused.status_code, refused.json()["error"]) == (503, "unavailable"), (
                "a server problem is not busy"
            )
            assert library.read("a")["tags"] == ["x"]
            proxy.heal()


def test_a_release_that_fails_changes_nothing_for_the_work(
    far: tuple[FaultProxy, tenure.Locks], others: tenure.Locks, caplog: pytest.LogCaptureFixture
) -> None:
    proxy, locks = far

    def work(error: Exception | None = None) -> int:
        proxy.refuse()
        proxy.cut_all()
        if error is not None:
            raise error
        return 42

    with caplog.at_level(logging.WARNING, logger="tenure"):
        assert locks.run("archive:a", call=work, ttl=2 * SERVER_SECONDS) == tenure.Ran(42), (
            "the result reaches the caller"
        )
    assert any("its ttl takes over" in record.getMessage() for record in caplog.records)
    wait_until(lambda: not others.lock("archive:a").locked(), 30, "the ttl to take over: the connection is still cut")
    proxy.heal()
    with pytest.raises(KeyError, match="of the work"):
        locks.run("archive:a", call=lambda: work(KeyError("of the work")), ttl=2, wait=30)
    proxy.heal()


def test_a_file_that_vanishes_is_one_warning(
    locks: tenure.Locks, others: tenure.Locks, library: Library, caplog: pytest.LogCaptureFixture
) -> None:
    watcher.index(library, locks, "a")
    assert library.read("a")["pages"] == 3
    with caplog.at_level(logging.INFO, logger="library.watcher"):
        library.delete("a")
        watcher.index(library, locks, "a")
    (record,) = [record for record in caplog.records if record.name == "library.watcher"]
    assert record.levelno == logging.WARNING, "one warning, and no error record"
    assert "a has vanished" in record.getMessage()
    assert library.known() == set(), "nothing comes back"


def test_a_batch_that_deletes_reports_each(locks: tenure.Locks, others: tenure.Locks, library: Library) -> None:
    with others.lock("archive:b", ttl=60):
        items = batch.each(locks, ["a", "b", "c", "gone"], library.delete)
    assert [item.result for item in items] == ["done", "busy", "done", "missing"], "one after the other"
    assert items[1].holder is not None, "with who keeps it busy"
    assert library.names() == ["b"]


def test_a_job_is_renewed_up_to_a_bound(tmp_path: Path, locks: tenure.Locks, library: Library, url: str) -> None:
    """A plugin that hangs loses its archive; it notices before it writes, and the next job gets its turn."""
    watcher.index(library, locks, "a")
    before = library.read("a")
    code = plugin.run(library, locks, "a", steps=1000, enough=threading.Event(), max_hold=0.5)
    assert code == plugin.LOST, "it ends within the bound and one ttl"
    assert library.read("a") == before, "what it had read long ago is not written"
    assert plugin.run(library, locks, "a", steps=1, enough=threading.Event()) == 0, "and the next one has its turn"


def test_the_programs_say_what_they_do(tmp_path: Path, private_server: Server, others: tenure.Locks) -> None:
    library = Library(tmp_path)
    library.add("a")
    library.add("b")
    with others.lock("archive:b", ttl=60):
        done = _program("batch", str(tmp_path), "delete", "a", "b", "--url", private_server.url)
    assert [json.loads(line)["result"] for line in done] == ["done", "busy"]
    assert _program("plugin", str(tmp_path), "b", "--steps", "1", "--url", private_server.url)[-1] == "done"


def _program(name: str, *arguments: str) -> list[str]:
    command = [sys.executable, "-m", f"examples.library.{name}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.splitlines()
