"""How processes of greenlets end: at their own end, by a signal, and by force."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

import pytest

from tests.contrib.for_gevent.worker import start
from tests.faults.programs import EXIT
from tests.faults.support import SLACK, traces

if TYPE_CHECKING:
    from tests.harness.servers import Server


def test_a_program_that_ends_gives_everything_back(valkey_server: Server, namespace: str) -> None:
    with start("ends", valkey_server.url, namespace) as worker:
        worker.wait_for("done", 60)
        told_at = time.monotonic()
        assert worker.wait() == 0, worker.errors()
        assert time.monotonic() - told_at < EXIT + SLACK
        assert worker.errors() == ""
    assert not traces(valkey_server, namespace)


@pytest.mark.parametrize("program", ["told_to_end", "told_to_end_while_busy"])
def test_a_program_that_is_told_to_end_gives_everything_back(
    program: str, valkey_server: Server, namespace: str
) -> None:
    with start(program, valkey_server.url, namespace) as worker:
        worker.wait_for("ready", 60)
        told_at = time.monotonic()
        worker.signal(signal.SIGTERM)
        assert worker.wait() == -signal.SIGTERM, worker.errors()
        assert time.monotonic() - told_at < EXIT + SLACK
        assert worker.errors() == ""
    assert not traces(valkey_server, namespace)


def test_an_exit_in_a_callback_ends_the_program(valkey_server: Server, namespace: str) -> None:
    with start("exits_in_a_callback", valkey_server.url, namespace) as worker:
        assert worker.wait() == 7, worker.errors()
