"""Single needs of resumable uploads, each on real servers: holders that do not answer, lose, are asked, go away."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import pytest
from click.testing import CliRunner

import tenure
from examples.uploads.parts import Bucket
from examples.uploads.world import World
from tenure.cli.app import app
from tests.examples import figures, raw_tus
from tests.harness.servers import Server
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Generator, Iterator

    from examples.uploads.parts import Part

T = TypeVar("T")
TTL = 20.0
BODY = random.Random(5).randbytes(600_000)
SENT = 200_000


@dataclass
class Servers:
    """Three upload servers, and the means to have more."""

    runner: asyncio.Runner
    world: World
    locks: tenure.Locks
    url: str
    """Of the lock server."""

    @property
    def ports(self) -> list[int]:
        return list(self.world.servers)[:3]

    @contextlib.contextmanager
    def more(self, **env: str) -> Generator[Part]:
        """One more server, with settings of its own."""
        server = self.runner.run(self.world.add_server(**env))
        try:
            yield server
        finally:
            self.runner.run(server.end(signal.SIGKILL))
            del self.world.servers[server.port]

    def half_patched(self, port: int) -> tuple[str, str, socket.socket]:
        """An upload whose PATCH has stopped in the middle: its path, the name of its lock, and the connection."""
        path = raw_tus.create(port, len(BODY))
        return path, "upload:" + path.rpartition("/")[2], raw_tus.half_patch(port, path, 0, BODY, SENT)

    def finish(self, port: int, path: str) -> bytes | None:
        """Sends the rest; returns what is in the bucket."""
        at = raw_tus.offset(port, path)
        assert raw_tus.patch(port, path, at, BODY[at:]).status == 204
        assert raw_tus.offset(port, path) == len(BODY)
        return self.bucket(lambda bucket: bucket.read(path.rpartition("/")[2]))

    def bucket(self, look: Callable[[Bucket], T]) -> T:
        """Looks at the bucket, and leaves no connection."""
        try:
            return look(self.world.bucket)
        finally:
            self.world.bucket.close()


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with (
        Server.start() as server,
        asyncio.Runner() as runner,
        tenure.Locks(server.url) as locks,
    ):
        # Its connection stays, and was not left behind by the first test.
        locks.holder("any")
        world = World(tmp_path_factory.mktemp("uploads"), "", url=server.url, ttl=TTL, sizes=())
        opened = world.open()
        runner.run(opened.__aenter__())
        try:
            yield Servers(runner, world, locks, server.url)
        finally:
            runner.run(opened.__aexit__(None, None, None))


def test_the_next_server_asks_and_goes_on_where_the_first_one_has_saved(servers: Servers) -> None:
    first, second, _ = servers.ports
    path, _, connection = servers.half_patched(first)
    with connection:
        began = time.monotonic()
        assert raw_tus.offset(second, path) == SENT, (
            "the first server saves what has arrived, while its client is silent"
        )
        seconds = time.monotonic() - began
        assert servers.finish(second, path) == BODY
        assert raw_tus.answered(connection) == 204, "the request that was handed over is over, and not in error"
    figures.write("uploads-hand-over", {"seconds_to_hand_over": round(seconds, 3)})


@pytest.mark.parametrize("with_lock", [True, False])
def test_what_comes_late_does_no_damage_and_without_the_lock_it_does(servers: Servers, *, with_lock: bool) -> None:
    """The old connection is cut when its upload has gone on elsewhere; its server saves what it has got, if it may."""
    env = {} if with_lock else {"UPLOADS_WITHOUT_LOCK": "1"}
    with servers.more(**env) as first, servers.more(**env) as second:
        path, _, connection = servers.half_patched(first.port)
        with connection:
            at = raw_tus.offset(second.port, path)
            assert at == (SENT if with_lock else 0), "without the lock nothing was saved, and all is sent again"
            assert raw_tus.patch(second.port, path, at, BODY[at : 2 * SENT]).status == 204
        stored = 2 * SENT if with_lock else 3 * SENT
        key = f"tus/{path.rpartition('/')[2]}.part"
        wait_until(lambda: servers.bucket(lambda bucket: bucket.size(key)) == stored, 60, "what comes late")
        at = raw_tus.offset(second.port, path)
        raw_tus.patch(second.port, path, at, BODY[at:])
        content = servers.bucket(lambda bucket: bucket.read(path.rpartition("/")[2]))
        assert (content == BODY) is with_lock, "the test would not see what the lock prevents"


def test_so_it_is_when_the_client_comes_back_to_the_same_server(servers: Servers) -> None:
    first, *_ = servers.ports
    path, _, connection = servers.half_patched(first)
    with connection:
        assert raw_tus.offset(first, path) == SENT
        assert servers.finish(first, path) == BODY


def test_a_patch_without_a_head_before_it_goes_on_as_well(servers: Servers) -> None:
    first, second, _ = servers.ports
    path, _, connection = servers.half_patched(first)
    with connection:
        reply = raw_tus.patch(second, path, SENT, BODY[SENT:])
        assert (reply.status, reply.headers["upload-offset"]) == (204, str(len(BODY))), "no 409: the offset is right"


def test_a_holder_that_does_not_answer_costs_no_more_than_the_budget(servers: Servers) -> None:
    """The first server is stopped, so it neither saves nor renews; the second one is not ready to wait for its end."""
    first, second, _ = servers.ports
    pid = servers.world.servers[first].process.pid
    path, _, connection = servers.half_patched(first)
    with connection, servers.more(UPLOADS_WAIT="1") as impatient:
        os.kill(pid, signal.SIGSTOP)
        try:
            began = time.monotonic()
            reply = raw_tus.ask(impatient.port, "HEAD", path)
            seconds = time.monotonic() - began
        finally:
            os.kill(pid, signal.SIGCONT)
        assert reply.status == 423, "an error, which clients take as: try again"
        assert 1 <= seconds < TTL, "within the requester's budget, and not after the holder's"
        assert int(reply.headers["retry-after"]) >= 1
        assert servers.finish(second, path) == BODY, "awake again, it hands over"


def test_a_holder_that_has_lost_its_lease_is_told_in_the_same_way(servers: Servers) -> None:
    first, second, _ = servers.ports
    path, name, connection = servers.half_patched(first)
    with connection:
        assert servers.locks.break_lock(name) is not None
        assert raw_tus.answered(connection) == 500, "its request has ended, though its client says nothing"
        assert raw_tus.offset(second, path) == 0, "what it has no right to write is not written"
        assert servers.finish(second, path) == BODY


def test_a_server_that_was_paused_for_longer_than_its_lease_writes_nothing_when_it_wakes(servers: Servers) -> None:
    second, *_ = servers.ports
    # Not shorter, or a machine that stands still for a moment loses the lease before the pause.
    with servers.more(UPLOADS_TTL="5") as first:
        path, _, connection = servers.half_patched(first.port)
        os.kill(first.process.pid, signal.SIGSTOP)
        try:
            assert servers.finish(second, path) == BODY, "the second one waits for the end of the lease, and goes on"
        finally:
            os.kill(first.process.pid, signal.SIGCONT)
        with connection:
            raw_tus.answered(connection)
        assert raw_tus.offset(second, path) == len(BODY), "what the first one had is refused"
        uid = path.rpartition("/")[2]
        assert {key for key in servers.bucket(Bucket.keys) if uid in key} == {f"tus/{uid}", f"tus/{uid}.info"}


def test_a_server_that_is_taken_away_hands_over_at_once(servers: Servers) -> None:
    second, *_ = servers.ports
    with servers.more() as first:
        path, _, connection = servers.half_patched(first.port)
        os.kill(first.process.pid, signal.SIGTERM)
        with connection:
            assert raw_tus.answered(connection) == 204, "saved, before anybody has asked"
        assert raw_tus.offset(second, path) == SENT
        assert servers.finish(second, path) == BODY


def test_the_command_line_asks_too(servers: Servers) -> None:
    first, *_ = servers.ports
    path, name, connection = servers.half_patched(first)
    with connection:
        url = servers.url
        shown = CliRunner().invoke(app, ["show", name, "--json"], env={"TENURE_URL": url})
        assert shown.exit_code == 0
        assert str(servers.world.servers[first].process.pid) in shown.output, "who holds it"
        wait_until(lambda: CliRunner().invoke(app, ["ask", name], env={"TENURE_URL": url}).exit_code == 0)
        assert raw_tus.answered(connection) == 204
        assert raw_tus.offset(first, path) == SENT


def test_a_delete_ends_an_upload_in_progress(servers: Servers) -> None:
    first, second, _ = servers.ports
    path, _, connection = servers.half_patched(first)
    with connection:
        assert raw_tus.ask(second, "DELETE", path).status == 204
        assert raw_tus.ask(first, "HEAD", path).status == 404, "and nothing of it comes back"
