"""Celery with a real worker whose pool is greenlets: the same promises, kept by the greenlets themselves."""

# pyright: basic

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from tests.contrib.for_celery.worker import PATIENCE, open_shop, shop_fixture

if TYPE_CHECKING:
    from tests.contrib.for_celery.worker import Shop


shop = shop_fixture("gevent", 10)


def test_one_at_a_time_for_each_key(shop: Shop) -> None:
    first = shop.tasks.report.delay(7, "seven")
    shop.wait_for("begin 7 ")
    second = shop.tasks.report.delay(7, "seven")
    other = shop.tasks.report.delay(8, "eight")
    shop.wait_for("begin 8 ")
    seven, eight = shop.locks.holder("report:7"), shop.locks.holder("report:8")
    assert seven is not None
    assert eight is not None
    assert seven.pid == eight.pid == shop.worker.pid
    shop.go_on("eight")
    assert other.get(timeout=PATIENCE) == eight.fence, "each has its own lease, although both run in one process"
    assert len(shop.lines("begin 7 ")) == 1, "the second one has come back to the queue"
    shop.go_on("seven")
    assert seven.fence == first.get(timeout=PATIENCE) < second.get(timeout=PATIENCE)
    begun = [line.split()[0] for line in shop.lines("begin 7 ") + shop.lines("end 7 ")]
    assert begun == ["begin", "begin", "end", "end"]


def test_it_is_queued_once(shop: Shop) -> None:
    first = shop.tasks.index.delay("a", "a")
    shop.wait_for(f"index a {first.id}")
    assert shop.tasks.index.delay("a", "a").id == first.id
    shop.go_on("a")
    fence = first.get(timeout=PATIENCE)
    shop.wait_free("index:a")
    later = shop.tasks.index.delay("a", "a")
    assert later.id != first.id
    assert later.get(timeout=PATIENCE) > fence


@pytest.mark.parametrize(
    ("task", "key", "begins"), [("report", "report:9", "begin 9 "), ("index", "index:9", "index 9 ")]
)
def test_a_task_that_is_revoked_while_it_runs_frees_its_key(shop: Shop, task: str, key: str, begins: str) -> None:
    running = getattr(shop.tasks, task).delay("9", "never")
    shop.wait_for(begins)
    assert shop.locks.holder(key) is not None
    running.revoke(terminate=True)
    shop.wait_free(key)
    assert not shop.lines(f"end 9 {running.id}")
    shop.go_on("after")
    assert getattr(shop.tasks, task).delay("9", "after").get(timeout=PATIENCE) > 0


def test_a_task_that_takes_too_long_frees_its_key(shop: Shop) -> None:
    late = shop.tasks.report.apply_async((10, "never"), time_limit=1)
    with pytest.raises(Exception, match="TimeLimitExceeded"):
        late.get(timeout=PATIENCE)
    shop.wait_free("report:10")
    assert not shop.lines(f"end 10 {late.id}")


@pytest.mark.allow_leaks("Celery keeps its connections to the broker and the results")
def test_a_worker_that_is_killed_leaves_its_key_to_the_ttl(tmp_path_factory: pytest.TempPathFactory) -> None:
    with open_shop(tmp_path_factory.mktemp("celery") / "journal", "gevent", 10) as shop:
        shop.tasks.report.delay(11, "never")
        shop.wait_for("begin 11 ")
        shop.worker.send_signal(signal.SIGKILL)
        shop.worker.wait()
        holder = shop.locks.holder("report:11")
        assert holder is not None, "nobody was left to free it"
        assert holder.expires_in is not None
        assert holder.expires_in <= 5 + 5
        shop.wait_free("report:11")
