"""The forum, end to end: what the application needs, one assertion each; and what happens without the lock."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, cast

import pytest
import redis

import tenure
from examples.forum import crowd
from examples.forum.site import Site
from tests.examples import figures
from tests.harness.commands import CallCounter
from tests.harness.leases import renew_now, wait_for_inbox
from tests.harness.servers import Server
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

POSTS = 6


@pytest.fixture
def site(tmp_path: Path, valkey_server: Server, namespace: str) -> Iterator[Site]:
    made = Site(namespace, tmp_path, valkey_server.url)
    yield made
    made.close()


@pytest.fixture
def replica(private_server: Server) -> Iterator[Server]:
    """A server that follows another one and refuses to be written to."""
    with Server.start(private_server.kind) as follower:
        follower.command("REPLICAOF", "127.0.0.1", private_server.port)
        yield follower


def test_each_thumbnail_is_made_once(tmp_path: Path, private_server: Server) -> None:
    outcome = crowd.run(tmp_path, private_server.url, posts=POSTS, processes=2, threads=3)
    figures.write("forum", vars(outcome) | {"seconds_to_the_read_only_error": None})
    assert outcome.made == outcome.thumbnails, "every thumbnail was made"
    assert outcome.made_more_than_once == 0, "only the first request makes it, after it has looked again"
    assert outcome.requests_on_the_fast_path == 0, "what exists costs no lock at all"
    keys = {key.decode().lstrip("{").partition(":")[0] for key in private_server.command("KEYS", "*")}
    assert keys <= set(crowd.SITES), "every key stays in its site's namespace"


def test_without_the_lock_they_are_made_again_and_again(tmp_path: Path, private_server: Server) -> None:
    outcome = crowd.run(tmp_path, private_server.url, posts=POSTS, processes=2, threads=3, with_lock=False)
    assert outcome.made_more_than_once > 0, "the test would not see what the lock prevents"


def test_a_read_only_server_serves_what_exists_and_makes_nothing(tmp_path: Path, replica: Server) -> None:
    site = Site("cats", tmp_path, replica.url)
    # Longer than a machine that stands still takes for the right answer, which does not wait for the end of the budget.
    site.locks = tenure.Locks(replica.url, namespace=site.name, server_timeout=60)
    try:
        site.upload(1, pixels=40)
        site.upload(2, pixels=40)
        (site.thumbnails / "1.png").write_bytes(b"made before")
        assert site.thumbnail(1).read_bytes() == b"made before", "what exists is served"
        with CallCounter(replica.admin) as calls:
            began = time.monotonic()
            with pytest.raises(tenure.ServerReadOnly):
                site.thumbnail(2)
            seconds = time.monotonic() - began
        # Within the caller's budget for finding a server; here one reconnect and an answer.
        assert seconds < 30, "a distinct error, within the budget"
        assert calls.scripts <= 4, "no busy polling"
        assert not list(site.thumbnails.glob("2*")), "nothing was run"
        figures.write("forum-read-only", {"seconds_to_the_read_only_error": round(seconds, 3)})
    finally:
        site.close()


def test_a_post_takes_as_long_as_it_takes(site: Site) -> None:
    """Longer than its ttl: the lease is renewed meanwhile, and nobody else gets the post."""
    # Not shorter, or a machine that stands still between two renewals loses it.
    lock = site.locks.lock("post:7", ttl=6, wait=0)
    with lock as lease:
        wait_until(lambda: lease.held_for() > 7, 30, "the ttl to pass")
        with tenure.Locks(site.locks.session().state.client, namespace=site.name) as others:
            assert others.lock("post:7").try_acquire() is None, "it is held for as long as it takes"
    steps: list[int] = []
    assert site.rebake(7, 3, lambda: steps.append(1)) > lease.fence, "the next one has a higher fence"
    assert len(steps) == 3


def test_held_too_long_and_tampered_with_are_told_once_and_as_different_things(
    tmp_path: Path, valkey_server: Server, namespace: str
) -> None:
    told: list[tenure.Event] = []
    with tenure.Locks(valkey_server.url, namespace=namespace, hooks=[told.append]) as locks:
        lease = locks.lock("post:7", ttl=120, warn_after=0.2, on_exit_lost="note").acquire()
        wait_until(lambda: any(isinstance(event, tenure.OverheldEvent) for event in told), 30, "a warning")
        valkey_server.command("DEL", f"{namespace}:post:7")
        renew_now(lease)
        assert lease.wait_lost(30)
        wait_until(lambda: any(isinstance(event, tenure.TamperedEvent) for event in told), 30, "the loss to be told")
        lease.release()
    overheld = [event for event in told if isinstance(event, tenure.OverheldEvent)]
    assert len(overheld) == 1, "reported once"
    assert overheld[0].over >= 0, "with how much too long"
    assert [type(event) for event in told if isinstance(event, tenure.LostEvent)] == [tenure.TamperedEvent]


def test_ten_and_a_half_seconds_and_five_more_end_at_fifteen_and_a_half(valkey_server: Server, namespace: str) -> None:
    """Sub-second times are kept: the key ends when the lease does, and the grace is what was asked for."""
    with tenure.Locks(valkey_server.url, namespace=namespace, grace=0) as locks:
        before = _server_ms(valkey_server)
        with locks.lock("post:7", ttl=15.5, renew=False):
            ends = int(valkey_server.command("PEXPIRETIME", f"{namespace}:post:7"))
            after = _server_ms(valkey_server)
    assert before + 15_500 <= ends <= after + 15_500, "to the millisecond, and not to the next full second"


def test_nested_use_is_an_error_at_once(site: Site) -> None:
    with site.locks.lock("post:7"), pytest.raises(tenure.AlreadyHeld):
        site.rebake(7, 1, lambda: None)


def test_a_shared_connection_with_watch_state_is_not_disturbed(
    tmp_path: Path, valkey_server: Server, namespace: str
) -> None:
    client: Any = cast("Any", redis.Redis).from_url(valkey_server.url)
    with tenure.Locks(client, namespace=namespace) as locks, client.pipeline() as pipeline:
        pipeline.watch(f"{namespace}:counter")
        threads = [threading.Thread(target=_take, args=(locks, number)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        pipeline.multi()
        pipeline.set(f"{namespace}:counter", 1, px=60_000)
        assert pipeline.execute() == [True], "neither disturbs the other"
    client.close()


def test_every_command_of_a_site_stays_in_it(site: Site, tmp_path: Path, valkey_server: Server) -> None:
    counters = site.counters(valkey_server.url)
    with counters.pipeline(transaction=True) as block:
        block.set("views", 5, px=60_000)
        block.incr("views")
        assert block.execute() == [True, 6]
    assert valkey_server.command("GET", f"{site.name}:views") == b"6", "a block-form transaction stays in the site"
    counters.close()


def test_waiters_do_not_poll(site: Site, valkey_server: Server) -> None:
    with tenure.Locks(valkey_server.url, namespace=site.name) as holder:
        # Nobody announces an inbox or asks again because of a new one later on.
        for locks in (holder, site.locks):
            with locks.lock("post:6"):
                wait_for_inbox(locks)
        lease = holder.lock("post:7", ttl=600).acquire()
        before = time.monotonic()
        threads = [threading.Thread(target=site.rebake, args=(7, 1, int)) for _ in range(5)]
        for thread in threads:
            thread.start()
        wait_until(lambda: len(site.locks.waiters("post:7")) == 5, 30, "all to wait")
        began = time.monotonic()
        with CallCounter(valkey_server.admin) as calls:
            wait_until(lambda: time.monotonic() - began > 1, 30, "a second to pass")
        # None before five seconds have passed; then one for each waiter, sent twice if its script is not there.
        allowed = 10 * ((time.monotonic() - before) // 5)
        assert calls.scripts <= allowed, "polls only repair lost messages"
        lease.release()
        for thread in threads:
            thread.join(60)


def _take(locks: tenure.Locks, number: int) -> None:
    for _ in range(10):
        with locks.lock(f"post:{number}"):
            pass


def _server_ms(server: Server) -> int:
    seconds, micros = server.command("TIME")
    return int(seconds) * 1000 + int(micros) // 1000
