"""A Celery application on the test's server: its tasks write down what they do."""

# pyright: basic
# ruff: noqa: ANN401
# Celery has no types of its own.

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import redis
from celery import Celery

import tenure
from tenure.contrib.celery import LockedTask, UniqueTask

URL = os.environ["SHOP_URL"]
SPACE = os.environ["SHOP_SPACE"]
JOURNAL = Path(os.environ["SHOP_JOURNAL"])

app = Celery("shop", broker=URL, backend=URL)
app.conf.update(
    task_default_queue=f"queue-{SPACE}",
    result_expires=300,
    broker_transport_options={"global_keyprefix": f"celery-{SPACE}:"},
    result_backend_transport_options={"global_keyprefix": f"celery-{SPACE}:"},
    worker_prefetch_multiplier=1,
)
locks = tenure.Locks(URL, namespace=SPACE)


def note(line: str) -> None:
    """Writes a line that everybody sees whole."""
    with JOURNAL.open("a", encoding="utf-8") as journal:
        journal.write(line + "\n")


def until_told(word: str) -> None:
    """Works until the test says that it is enough."""
    with redis.Redis.from_url(URL) as client:
        for _ in range(6000):
            if client.exists(f"{SPACE}-go-on:{word}"):
                return
            time.sleep(0.02)


@app.task(base=LockedTask, bind=True, locks=locks, lock="report:{user}", lock_options={"ttl": 5}, max_retries=50)
def report(self: Any, user: int, word: str) -> int:
    note(f"begin {user} {self.request.id}")
    until_told(word)
    note(f"end {user} {self.request.id}")
    return self.lease.fence


@app.task(base=UniqueTask, bind=True, locks=locks, lock="index:{shelf}", lock_options={"ttl": 5}, unique_for=120)
def index(self: Any, shelf: str, word: str) -> int:
    note(f"index {shelf} {self.request.id}")
    until_told(word)
    return self.lease.fence
