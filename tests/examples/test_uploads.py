"""Resumable uploads, end to end: what the application needs, one assertion each; and what happens without the lock."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import pytest

from examples.uploads.parts import ROOT, install_tus_js
from examples.uploads.world import CLIENTS, World
from tests.examples import figures
from tests.harness.servers import Server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import redis

    from examples.uploads.world import Result

# Beyond the deadlines of the run itself, which tell what was waited for.
pytestmark = pytest.mark.timeout(400)
MODULES = ROOT / "build" / "examples" / "node"
_SUBSCRIBED = re.compile(r"\b(?:sub|psub|ssub)=(\d+)")
_OUTPUT = re.compile(r"\bomem=(\d+)")


@dataclass
class Subscriptions:
    """What the lock server has seen of inboxes during a run."""

    seen: int = 0
    """The most at one moment."""
    too_many: list[str] = field(default_factory=list[str])
    """Moments at which there were more than one for each server process, or one that fills up."""


@dataclass
class Run:
    """A run of the example with locks."""

    result: Result
    subscriptions: Subscriptions
    news: list[str]
    clients: set[str]


@pytest.fixture(scope="module")
def modules() -> str:
    """Where tus-js-client is; "" when it cannot be had."""
    MODULES.mkdir(parents=True, exist_ok=True)
    return asyncio.run(install_tus_js(MODULES))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, modules: str) -> Iterator[Run]:
    with Server.start() as server:
        yield asyncio.run(_run(tmp_path_factory.mktemp("uploads"), server, modules))


async def _run(folder: Path, server: Server, modules: str) -> Run:
    world = World(folder, modules, url=server.url)
    subscriptions = Subscriptions()
    async with world.open():
        sampling = asyncio.ensure_future(_sample(world, server, subscriptions))
        try:
            result = await world.run()
        finally:
            sampling.cancel()
            await asyncio.gather(sampling, return_exceptions=True)
    figures.write("uploads", result.figures())
    return Run(result, subscriptions, world.news, {sent.client.name.rsplit("-", 1)[0] for sent in world.sent})


async def _sample(world: World, server: Server, subscriptions: Subscriptions) -> None:
    admin = server.client()
    while True:
        before = world.running
        raw = await asyncio.to_thread(_client_list, admin)
        lines = raw.splitlines()
        counts = [sum(map(int, _SUBSCRIBED.findall(line))) for line in lines]
        subscriptions.seen = max(subscriptions.seen, sum(counts))
        most = max(before, world.running)
        if sum(counts) > most or any(int(found) > 65_536 for found in _OUTPUT.findall("\n".join(lines))):
            subscriptions.too_many.append(f"{most} servers:\n{raw}")
        await asyncio.sleep(0.1)


def _client_list(admin: redis.Redis) -> str:
    raw: Any = cast("Any", admin)
    raw.set_response_callback("CLIENT LIST", bytes.decode)
    return raw.execute_command("CLIENT LIST")


def test_every_upload_is_finished_and_byte_identical(run: Run) -> None:
    assert not run.result.damage
    assert run.result.identical == run.result.finished == run.result.uploads, "no byte is lost or doubled"


def test_uploads_were_cut_and_left_half_open_in_mid_patch(run: Run) -> None:
    assert run.result.half_open >= run.result.uploads, "uploads were left half-open"
    assert run.result.cuts, "and cut"


def test_users_see_no_423_and_no_409_and_no_503(run: Run) -> None:
    assert [run.result.seen(status) for status in (423, 409, 503)] == [0, 0, 0], "handed over, and not refused"


def test_what_has_arrived_is_saved_when_the_next_server_asks(run: Run) -> None:
    assert run.result.sent_twice < run.result.size / 10, "the first server saves what has come, the next goes on there"


def test_nobody_waits_for_a_time_out_of_tcp(run: Run) -> None:
    assert run.result.timed_out == 0, "half-open connections were ended by their servers"


def test_servers_were_added_and_taken_away_meanwhile(run: Run) -> None:
    counts = (run.result.servers_added, run.result.servers_killed, run.result.servers_removed)
    assert counts == (2, 1, 1), "scales with servers that come and go while uploads run"


def test_one_subscription_for_each_server_process_and_none_fills_up(run: Run) -> None:
    assert run.subscriptions.seen, "somebody waited"
    assert not run.subscriptions.too_many, "never a channel that fills up"


def test_servers_got_their_client_in_three_ways(run: Run) -> None:
    added = {line.partition("(")[2].rstrip(")") for line in run.news if " added " in line}
    assert added == {"url", "redis", "valkey"}, "a client object can be passed in, the library can be swapped"


def test_nothing_else_was_wrong(run: Run) -> None:
    assert not run.result.problems


def test_both_clients_took_part_unmodified(run: Run, modules: str) -> None:
    if not modules:
        pytest.skip("tus-js-client cannot be installed here (npm and a network are needed)")
    assert run.clients == set(CLIENTS)


def test_without_the_lock_it_is_not_so(tmp_path: Path, private_server: Server, modules: str) -> None:
    async def damaged() -> Result:
        world = World(tmp_path, modules, url=private_server.url, without_lock=True)
        async with world.open():
            return await world.run()

    result = asyncio.run(damaged())
    figures.write("uploads-without-lock", result.figures())
    # Which uploads are damaged as well is a matter of luck: test_uploads_needs.py has that one, step by step.
    assert result.sent_twice >= result.size / 10, "the test would not see what the lock prevents: nothing was saved"
    assert result.problems
