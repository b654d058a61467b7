"""Greenlets that hold and wait, in processes that gevent has patched; see `holding.py` for what each program does."""

from __future__ import annotations

import concurrent.futures
from typing import TYPE_CHECKING

import pytest

import tenure
from tests.contrib.for_gevent.worker import start
from tests.faults.support import wait_clean

if TYPE_CHECKING:
    from tests.harness.certs import Certificates
    from tests.harness.servers import Server

PATIENCE = 100


def passes(program: str, url: str, namespace: str, **env: str) -> list[str]:
    """Runs a program to its end, which is a good one, and returns its lines."""
    with start(program, url, namespace, **env) as worker:
        code = worker.wait(PATIENCE)
        assert (code, worker.lines[-1:]) == (0, ["done"]), worker.errors()
        assert "Exception ignored" not in worker.errors()
        return worker.lines


@pytest.mark.parametrize(
    "program", ["in_order", "owners", "busy", "asked", "killed", "in_threads", "logs", "callback_alone"]
)
def test_greenlets(program: str, valkey_server: Server, namespace: str) -> None:
    passes(program, valkey_server.url, namespace)
    wait_clean(valkey_server, namespace)


@pytest.mark.parametrize("program", ["in_order", "busy", "killed", "two"])
def test_greenlets_on_the_other_loop_of_gevent(program: str, valkey_server: Server, namespace: str) -> None:
    passes(program, valkey_server.url, namespace, GEVENT_LOOP="libuv")
    wait_clean(valkey_server, namespace)


def test_greenlets_that_are_killed_at_any_moment(valkey_server: Server, namespace: str) -> None:
    # redis-py leaves a socket on which a connect is broken off to the collector, which closes it at once.
    passes("storm", valkey_server.url, namespace, PYTHONWARNINGS="error,ignore::ResourceWarning")
    wait_clean(valkey_server, namespace)


def test_locks_that_are_closed_leave_no_thread(valkey_server: Server, namespace: str) -> None:
    passes("two", valkey_server.url, namespace)
    wait_clean(valkey_server, namespace)


def test_a_forked_child_has_nothing_of_what_its_greenlets_waited_for(valkey_server: Server, namespace: str) -> None:
    passes("forks", valkey_server.url, namespace)
    wait_clean(valkey_server, namespace)


def test_processes_of_greenlets_and_of_threads_exclude_each_other(valkey_server: Server, namespace: str) -> None:
    inside = f"testdata:{namespace}"
    with (
        start("share", valkey_server.url, namespace) as one,
        start("share", valkey_server.url, namespace) as two,
        tenure.Locks(valkey_server.url, namespace=namespace) as locks,
    ):

        def work() -> list[int]:
            fences: list[int] = []
            for _ in range(4):
                with locks.lock("n", ttl=120, wait=PATIENCE) as lease:
                    assert valkey_server.command("INCR", inside) == 1
                    assert valkey_server.command("DECR", inside) == 0
                    fences.append(lease.fence)
            return fences

        with concurrent.futures.ThreadPoolExecutor(3) as executor:
            fences = [fence for done in [executor.submit(work) for _ in range(3)] for fence in done.result(PATIENCE)]
        for worker in (one, two):
            assert worker.wait(PATIENCE) == 0, worker.errors()
            said = next(line for line in worker.lines if line.startswith("fences "))
            fences += [int(fence) for fence in said.split()[1:]]
    assert len(set(fences)) == len(fences) == 3 * 4 + 2 * 10 * 4
    wait_clean(valkey_server, namespace)
    valkey_server.command("DEL", inside)


@pytest.mark.parametrize("way", ["name", "unix", "tls"])
def test_the_hub_reaches_the_server_by_each_way(
    way: str, valkey_server: Server, tls_server: Server, certificates: Certificates, namespace: str
) -> None:
    server = tls_server if way == "tls" else valkey_server
    if way == "name":
        url = server.url.replace("127.0.0.1", "localhost")
        assert "localhost" in url
    else:
        url = server.tls_url if way == "tls" else server.unix_url
    passes("renewed", url, namespace)
    wait_clean(server, namespace)
