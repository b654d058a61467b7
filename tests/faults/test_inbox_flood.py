"""Ten thousand messages to one inbox with a tiny output buffer: no memory grows, and nobody waits for long."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.faults.crowds import Calls
from tests.faults.support import FLAVOURS, SLACK, UNHURRIED, Driver, wait_clean, wait_queued
from tests.harness.leases import wait_for_inbox
from tests.harness.processes import Worker, say
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from tests.faults.support import Flavour
    from tests.harness.servers import Server

HELD = "held"
WANTED = "wanted"
LONG = 60.0
MESSAGES = 10_000
SIZE = 4000
BATCH = 500
POLL_CAP = 5.0
MOST_GROWTH = 20_000_000
"""Half of what the messages weigh."""
BOTH = pytest.mark.parametrize("flavour", FLAVOURS)


def resident() -> int:
    """How many bytes of memory this process has now; on Linux."""
    status = Path("/proc/self/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmRSS:")]
    return 1024 * int(line.split()[1])


def be_flooded(flavour: Flavour, url: str, namespace: str) -> None:
    """Worker: holds one lock, for which it is asked again and again, and waits for others as often as it is told."""
    told: list[object] = []
    with Calls(flavour, url, namespace) as call:
        call(call(call.locks.lock("warm").acquire).release)
        wait_for_inbox(call.locks)
        held = call(call.locks.lock(HELD, ttl=LONG, on_ask=told.append).acquire)
        say("holds", held.token, f"{namespace}:@{call.locks.session().state.inbox_id}")
        for line in sys.stdin:
            if line.strip() == "wait":
                lease = call(call.locks.lock(WANTED, ttl=LONG, wait=LONG).acquire)
                say("granted", time.monotonic(), lease.fence)
                call(lease.release)
            elif line.strip() == "weigh":
                say("weighs", resident())
            else:
                break
        held.check()
        say("told", len(told))
        call(held.release)


def weigh(worker: Worker) -> int:
    worker.write_line("weigh")
    return int(worker.wait_for("weighs", 60).split()[1])


def flood(server: Server, inbox: str, token: str, count: int) -> int:
    """Asks so many times by message, each as long as a letter; returns how many found a subscriber."""
    heard = 0
    for _ in range(count // BATCH):
        pipeline: Any = cast("Any", server.admin).pipeline(transaction=False)
        for _ in range(BATCH):
            pipeline.execute_command("SPUBLISH", inbox, f'asked {token} {{"h":"{"x" * SIZE}"}}')
        heard += sum(pipeline.execute())
    return heard


def memory(server: Server) -> int:
    """How many bytes the server uses."""
    facts: dict[str, Any] = cast("Any", server.admin).info("memory")
    return facts["used_memory"]


def cut_off(server: Server) -> int:
    """How many clients were cut off because of their output buffers."""
    stats: dict[str, int] = cast("Any", server.admin).info("stats")
    return stats["client_output_buffer_limit_disconnections"]


@BOTH
def test_ten_thousand_messages_to_an_inbox_with_a_tiny_output_buffer(
    private_server: Server, namespace: str, flavour: Flavour
) -> None:
    private_server.command("CONFIG", "SET", "client-output-buffer-limit", "pubsub 64kb 32kb 5")
    with (
        Driver("blocking", private_server.url, namespace, **UNHURRIED) as outside,
        Worker.start(be_flooded, flavour, private_server.url, namespace) as worker,
    ):
        _, token, inbox = worker.wait_for("holds", 60).split()
        flood(private_server, inbox, token, BATCH)
        small, server_small = weigh(worker), memory(private_server)

        def handed_over(*, frozen: bool) -> float:
            """Floods the client while it waits, and hands it the lock in the middle; for how long it waited on."""
            lease = outside.acquire(WANTED, ttl=LONG)
            worker.write_line("wait")
            wait_queued(private_server, namespace, WANTED, timeout=30)
            if frozen:
                worker.pause()
            flood(private_server, inbox, token, MESSAGES // 4)
            outside.release(lease)
            released = time.monotonic()
            flood(private_server, inbox, token, MESSAGES // 4)
            if frozen:
                worker.resume()
                released = time.monotonic()
            _, granted, fence = worker.wait_for("granted", LONG).split()
            assert int(fence) > lease.fence
            return float(granted) - released

        assert handed_over(frozen=False) < POLL_CAP + SLACK
        # It reads nothing now, so that the server cuts it off, with its grant among what is thrown away.
        before = cut_off(private_server)
        assert handed_over(frozen=True) < POLL_CAP + SLACK
        assert cut_off(private_server) > before
        assert weigh(worker) - small < MOST_GROWTH
        assert memory(private_server) - server_small < MOST_GROWTH
        worker.write_line("enough")
        assert worker.wait_for("told", 30) == "told 1"
        assert worker.wait(30) == 0, worker.errors()
    wait_clean(private_server, namespace)


@BOTH
def test_messages_that_mean_nothing_are_passed_over(valkey_server: Server, namespace: str, flavour: Flavour) -> None:
    """Somebody publishes by hand, or a newer version says something new: what is on its way besides is not lost."""
    with (
        Driver("blocking", valkey_server.url, namespace, **UNHURRIED) as outside,
        Driver(flavour, valkey_server.url, namespace, **UNHURRIED) as driver,
    ):
        driver.warm()
        held: Any = driver.acquire(HELD, ttl=LONG)
        state = driver.locks.session().state
        before = state.epoch
        channel = f"{namespace}:@{state.inbox_id}"
        token = held.token
        junk: list[str | bytes] = [
            "", " ", "junk", "junk of two words", "granted", "granted x", "granted x y z", f"granted {token}",
            f"granted {token} x y", "asked", "asked x", "revoked", "moved", b"granted \xff\xfe", b"\x00",
            f"renamed {token} 5",
        ]  # fmt: skip
        for message in junk:
            assert valkey_server.command("SPUBLISH", channel, message) == 1, f"{message!r} found nobody: cut off before"
        assert outside.soon(lambda: outside.locks.ask(HELD)).result(30) is not None
        wait_until(lambda: held.asked, 30, "the message that was sent last")
        assert state.epoch == before, "the subscription was given up"
        held.check()
        driver.release(held)
    wait_clean(valkey_server, namespace)
