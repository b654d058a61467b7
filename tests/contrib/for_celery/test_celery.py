"""Celery with a real worker: one at a time, queued once, and freed when a task or its process is ended."""

# pyright: basic

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from tests.contrib.for_celery.worker import PATIENCE, shop_fixture

if TYPE_CHECKING:
    from tests.contrib.for_celery.worker import Shop


shop = shop_fixture("prefork", 2)


def test_one_at_a_time_for_each_key(shop: Shop) -> None:
    first = shop.tasks.report.delay(7, "seven")
    shop.wait_for("begin 7 ")
    second = shop.tasks.report.delay(7, "seven")
    other = shop.tasks.report.delay(8, "eight")
    shop.go_on("eight")
    assert other.get(timeout=PATIENCE) > 0
    assert len(shop.lines("begin 7 ")) == 1, "the second one has come back to the queue"
    shop.go_on("seven")
    assert first.get(timeout=PATIENCE) < second.get(timeout=PATIENCE)
    begun = [line.split()[0] for line in shop.lines("begin 7 ") + shop.lines("end 7 ")]
    assert begun == ["begin", "begin", "end", "end"]


def test_it_is_queued_once(shop: Shop) -> None:
    first = shop.tasks.index.delay("a", "a")
    again = shop.tasks.index.delay("a", "a")
    assert again.id == first.id
    shop.wait_for(f"index a {first.id}")
    assert shop.tasks.index.delay("a", "a").id == first.id, "also while it runs"
    shop.go_on("a")
    fence = first.get(timeout=PATIENCE)
    shop.wait_free("index:a")
    later = shop.tasks.index.delay("a", "a")
    assert later.id != first.id
    assert later.get(timeout=PATIENCE) > fence


def test_a_task_that_is_revoked_in_the_queue_frees_its_key(shop: Shop) -> None:
    blockers = [shop.tasks.report.delay(number, "block") for number in (101, 102)]
    shop.wait_for("begin 101 ")
    shop.wait_for("begin 102 ")
    queued = shop.tasks.index.delay("b", "b")
    assert shop.locks.holder("index:b") is not None
    queued.revoke()
    shop.go_on("block")
    for blocker in blockers:
        blocker.get(timeout=PATIENCE)
    shop.wait_free("index:b")
    assert not shop.lines("index b")


def test_a_task_that_is_revoked_while_it_runs_frees_its_key(shop: Shop) -> None:
    running = shop.tasks.report.delay(9, "never")
    shop.wait_for("begin 9 ")
    holder = shop.locks.holder("report:9")
    assert holder is not None
    running.revoke(terminate=True, signal="SIGKILL")
    shop.wait_free("report:9")


def test_a_process_that_is_lost_frees_its_key(shop: Shop) -> None:
    lost = shop.tasks.report.delay(10, "never")
    shop.wait_for("begin 10 ")
    holder = shop.locks.holder("report:10")
    assert holder is not None
    assert holder.pid is not None
    os.kill(holder.pid, signal.SIGKILL)
    with pytest.raises(Exception, match="exited prematurely"):
        lost.get(timeout=PATIENCE)
    shop.wait_free("report:10")
    # And the pool goes on.
    shop.go_on("after")
    assert shop.tasks.report.delay(10, "after").get(timeout=PATIENCE) > (holder.fence or 0)
