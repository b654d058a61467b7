"""Looking at locks, and taking them away."""

from __future__ import annotations

import os
import socket
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

import tenure
from tests.harness.leases import renew_now
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from tests.conformance.flavours import AnyLocks, Flavour
    from tests.harness.servers import Server


class TestHolder:
    def test_is_none_for_a_free_lock(self, locks: AnyLocks) -> None:
        assert locks.holder("a") is None
        assert locks.holders("a") == []
        assert locks.lock("a").holder() is None

    def test_tells_who_and_since_when(
        self, flavour: Flavour, any_url: str, any_server: Server, namespace: str, others: AnyLocks
    ) -> None:
        locks = flavour.locks(any_url, namespace=namespace, identity="worker 7, köln")
        began = time.monotonic()
        lease = locks.lock("a", ttl=60, info={"for": "invoice", "n": 3, "done": False, "none": None}).acquire()
        holder = others.holder("a")
        took = time.monotonic() - began
        assert holder is not None
        assert [again.id for again in others.holders("a")] == [holder.id]
        assert (holder.name, holder.fence, holder.foreign) == ("a", lease.fence, False)
        assert (holder.host, holder.pid) == (socket.gethostname(), os.getpid())
        assert holder.identity == "worker 7, köln"
        assert holder.info == {"for": "invoice", "n": 3, "done": False, "none": None}
        seconds, micros = any_server.command("TIME")
        now = datetime.fromtimestamp(seconds, UTC) + timedelta(microseconds=micros)
        assert holder.since is not None
        assert timedelta(0) <= now - holder.since < timedelta(seconds=time.monotonic() - began + 0.1)
        assert holder.expires_in is not None
        # The key lives as long as the lease and its grace, 1 % of the ttl + 20 ms, but half a second at most.
        assert 60.5 - took - 0.01 <= holder.expires_in <= 60.5
        assert holder.id in repr(lease.raw)
        assert str(holder) == f"{holder.program} (pid {os.getpid()} on {socket.gethostname()}), worker 7, köln"
        lease.release()

    @pytest.mark.parametrize("info", [None, "", "a word", "ü {%} \\ \" '", {}, {"k": 1.5}])
    def test_shows_info_as_it_was_given(self, locks: AnyLocks, others: AnyLocks, info: Any) -> None:  # noqa: ANN401
        with locks.lock("a", info=info).block() as lease:
            holder = others.holder("a")
            assert holder is not None
            assert holder.info == lease.info == info

    def test_never_shows_the_token(self, locks: AnyLocks, others: AnyLocks, any_server: Server, namespace: str) -> None:
        lease = locks.lock("a").acquire()
        assert lease.token.encode() in any_server.command("GET", f"{namespace}:a")
        assert lease.token not in repr([others.holder("a"), others.list(), others.break_lock("a")])
        lease.release()


class TestWaiters:
    def test_are_shown_in_order(self, flavour: Flavour, any_url: str, namespace: str, locks: AnyLocks) -> None:
        lease = locks.lock("a", ttl=5).acquire()
        clients = [flavour.locks(any_url, namespace=namespace, identity=name) for name in ("x", "y")]
        waiting = [client.queue("a", ttl=5, info=f"i{number}") for number, client in enumerate(clients)]
        seen = locks.waiters("a")
        assert [(waiter.position, waiter.identity, waiter.info) for waiter in seen] == [(0, "x", "i0"), (1, "y", "i1")]
        assert [waiter.pid for waiter in seen] == [os.getpid()] * 2
        assert seen[0].since <= seen[1].since
        assert all(waiter.name == "a" and len(waiter.id) == 8 for waiter in seen)
        assert locks.waiters("b") == []
        lease.release()
        for future in waiting:
            future.result(30).release()

    def test_are_not_counted_as_holders(self, locks: AnyLocks) -> None:
        lease = locks.lock("a", ttl=5).acquire()
        waiting = locks.queue("a", ttl=5)
        assert [holder.fence for holder in locks.list()] == [lease.fence]
        statistics = locks.statistics()
        assert (statistics.held, statistics.waiting) == (1, 1)
        lease.release()
        waiting.result(30).release()


class TestList:
    def test_names_all_that_are_held_by_name(self, locks: AnyLocks, others: AnyLocks) -> None:
        leases = [locks.lock(name).acquire() for name in ("b", "a:1", "a:2")]
        leases.append(others.lock("a").acquire())
        assert [holder.name for holder in locks.list()] == ["a", "a:1", "a:2", "b"]
        assert [holder.name for holder in locks.list("a:")] == ["a:1", "a:2"]
        assert locks.list("c") == []
        for lease in leases:
            lease.release()
        assert locks.list() == []

    @pytest.mark.parametrize("prefix", ["*", "?", "[a]", "\\", "a*", "{x}", "%7B", "^", "-", "a\\*"])
    def test_takes_its_prefix_literally(self, locks: AnyLocks, prefix: str) -> None:
        leases = [locks.lock(name).acquire() for name in (f"{prefix}1", "a", "x", "plain")]
        assert [holder.name for holder in locks.list(prefix)] == [f"{prefix}1"]
        for lease in leases:
            lease.release()

    def test_leaves_out_what_is_no_lock_and_other_namespaces(
        self, locks: AnyLocks, any_server: Server, namespace: str
    ) -> None:
        for name in (f"{namespace}x:a", "a", f"{{{namespace}:a}}:other"):
            any_server.command("SET", name, "tenure", "PX", 20000)
        any_server.command("RPUSH", f"{namespace}:list", "x")
        any_server.command("PEXPIRE", f"{namespace}:list", 20000)
        with locks.lock("a").block():
            assert [holder.name for holder in locks.list()] == ["a"]

    def test_shows_a_foreign_key_as_such(self, locks: AnyLocks, any_server: Server, namespace: str) -> None:
        any_server.command("SET", f"{namespace}:a", "theirs", "PX", 20000)
        (holder,) = locks.list()
        assert holder.foreign
        assert "theirs" not in repr(holder)


class TestNamespaces:
    def test_keep_locks_apart(self, flavour: Flavour, any_url: str, namespace: str, locks: AnyLocks) -> None:
        elsewhere = flavour.locks(any_url, namespace=f"{namespace}2")
        with locks.lock("a").block():
            assert elsewhere.holder("a") is None
            assert elsewhere.list() == []
            with elsewhere.lock("a", wait=0).block():
                assert len(elsewhere.list()) == 1

    def test_may_be_empty(self, flavour: Flavour, any_url: str, any_server: Server) -> None:
        locks = flavour.locks(any_url, namespace="")
        with locks.lock("plain").block():
            assert any_server.command("EXISTS", "plain")
            assert [holder.name for holder in locks.list("pl")] == ["plain"]
            waiting = locks.queue("plain", ttl=5)
        waiting.result(30).release()


class TestBreaking:
    def test_ends_the_lease_that_was_seen(self, locks: AnyLocks, others: AnyLocks) -> None:
        lease = locks.lock("a", ttl=120).acquire()
        seen = others.holder("a")
        assert seen is not None
        assert not seen.revoked
        broken = others.break_lock("a", seen.fence)
        assert broken is not None
        assert (broken.fence, broken.id) == (seen.fence, seen.id)
        # Not before its holder knows, by its next renewal at the latest.
        renew_now(lease.raw)
        assert lease.wait_lost(30)
        assert lease.lost == "revoked"
        lease.release()
        wait_until(lambda: not others.lock("a").locked(), 30, "the acknowledgement")

    def test_leaves_another_lease_alone(self, locks: AnyLocks, others: AnyLocks) -> None:
        old = locks.lock("a").acquire()
        old.release()
        lease = locks.lock("a", ttl=5).acquire()
        assert others.break_lock("a", old.fence) is None
        lease.renew()
        assert lease.release() is tenure.Released.RELEASED

    def test_of_a_free_lock_does_nothing(self, locks: AnyLocks) -> None:
        assert locks.break_lock("a") is None
        assert locks.break_lock("a", 1, force=True) is None
        assert locks.list() == []

    def test_without_force_never_makes_two_holders(self, locks: AnyLocks, others: AnyLocks) -> None:
        lease = locks.lock("a", ttl=60, renew=False).acquire()
        assert others.break_lock("a") is not None
        # Until it has let go the lock is not free, whether it knows or not.
        with pytest.raises(tenure.NotAcquired, match=r"ends in \d+\.\d s at the latest, for it was broken") as refused:
            others.lock("a", wait=0).acquire()
        assert refused.value.holder is not None
        assert refused.value.holder.revoked
        with pytest.raises(tenure.LeaseLost, match="operator"):
            lease.renew()
        assert others.lock("a").try_acquire() is None
        assert lease.release() is tenure.Released.GONE
        others.lock("a", wait=30).acquire().release()

    def test_with_force_hands_over_at_once(self, locks: AnyLocks, others: AnyLocks) -> None:
        lease = locks.lock("a", ttl=20).acquire()
        waiting = others.queue("a", ttl=5)
        broken = others.break_lock("a", lease.fence, force=True)
        assert broken is not None
        assert broken.fence == lease.fence
        next_one = waiting.result(30)
        assert next_one.fence > lease.fence
        assert lease.release() in {tenure.Released.TAKEN, tenure.Released.GONE}
        next_one.check()
        next_one.renew()
        assert next_one.release() is tenure.Released.RELEASED

    def test_a_foreign_key_needs_force(self, locks: AnyLocks, any_server: Server, namespace: str) -> None:
        any_server.command("SET", f"{namespace}:a", "theirs", "PX", 20000)
        with pytest.raises(tenure.NameConflict, match=r"another library.*force=True"):
            locks.break_lock("a")
        assert locks.break_lock("a", 5, force=True) is None
        assert any_server.command("GET", f"{namespace}:a") == b"theirs"
        broken = locks.break_lock("a", force=True)
        assert broken is not None
        assert broken.foreign
        assert not any_server.command("EXISTS", f"{namespace}:a")


def test_statistics_count(flavour: Flavour, any_url: str, namespace: str, any_server: Server) -> None:
    # Patient: a request that is given up and sent again takes its connection along.
    locks = flavour.locks(any_url, namespace=namespace, server_timeout=30)
    lock = locks.lock("a", ttl=60)
    lock.acquire().release()
    lease = lock.acquire()
    assert flavour.spawn(lock.try_acquire).result() is None
    waiting = locks.queue("a", ttl=5)
    before = locks.statistics()
    assert before.scope == f"127.0.0.1:{any_server.port}"
    assert (before.granted, before.released, before.gave_up, before.lost) == (2, 1, 1, 0)
    assert (before.held, before.waiting) == (1, 1)
    assert before.requests >= 5
    assert before.broken_connections == 0
    lease.release()
    waiting.result(30).release()
    after = locks.statistics()
    assert (after.granted, after.released, after.held, after.waiting) == (3, 3, 0, 0)
