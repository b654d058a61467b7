"""What a holder tells about itself while it holds, and watching who holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import tenure
from tenure import looking
from tests.harness.commands import CallCounter
from tests.harness.leases import age_waiters, renew_now
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from tests.conformance.flavours import AnyLocks, Flavour
    from tests.harness.servers import Server


class TestSetInfo:
    def test_replaces_what_others_can_read(self, locks: AnyLocks, others: AnyLocks) -> None:
        lease = locks.lock("a", ttl=60, info="begun").acquire()
        infos: list[Any] = ["half done", {"rows": 7, "of": 9.5, "last": None, "ok": True}, "", "ü {%} \\ \" '", None]
        for info in infos:
            lease.set_info(info)
            holder = others.holder("a")
            assert holder is not None
            assert holder.info == lease.info == info
            assert holder.fence == lease.fence
        lease.renew()
        assert [holder.info for holder in others.holders("a")] == [None]
        lease.release()

    def test_leaves_the_end_of_the_lease_as_it_is(self, locks: AnyLocks, any_server: Server, namespace: str) -> None:
        lease = locks.lock("a", ttl=60).acquire()
        any_server.command("PEXPIRE", f"{namespace}:a", 30_000)
        before = lease.raw._hold.deadline
        lease.set_info("x")
        assert any_server.command("PTTL", f"{namespace}:a") <= 30_000
        assert lease.raw._hold.deadline == before
        lease.release()

    @pytest.mark.parametrize("mode", ["shared", "semaphore"])
    def test_is_each_holders_own(self, locks: AnyLocks, others: AnyLocks, mode: str) -> None:
        leases = [
            (
                client.lock("a", ttl=ttl, shared=True) if mode == "shared" else client.semaphore("a", 2, ttl=ttl)
            ).acquire()
            for client, ttl in ((locks, 60), (others, 90))
        ]
        leases[1].set_info("second")
        leases[0].set_info("first")
        assert [holder.info for holder in locks.holders("a")] == ["first", "second"]
        for lease in leases:
            lease.renew()
            assert lease.release() is tenure.Released.RELEASED

    def test_of_a_lease_that_is_over_is_refused(self, locks: AnyLocks, any_server: Server, namespace: str) -> None:
        lease = locks.lock("a", ttl=60).acquire()
        any_server.command("DEL", f"{namespace}:a")
        with pytest.raises(tenure.LeaseLost, match="'a' was lost"):
            lease.set_info("x")
        assert lease.lost == "deleted"
        assert lease.info is None
        lease = locks.lock("a", ttl=60).acquire()
        lease.release()
        with pytest.raises(tenure.NotHeld):
            lease.set_info("x")

    @pytest.mark.parametrize("info", [5, ["x"], {"a": {}}, {1: 2}, "x" * 1025, "a\nb", {"x": float("nan")}])
    def test_checks_what_it_is_given(self, locks: AnyLocks, others: AnyLocks, info: Any) -> None:  # noqa: ANN401
        with locks.lock("a", ttl=60, info="kept").block() as lease:
            with pytest.raises(tenure.ConfigError, match="info"):
                lease.set_info(info)
            assert [holder.info for holder in others.holders("a")] == [lease.info] == ["kept"]

    def test_is_one_request(self, flavour: Flavour, any_url: str, namespace: str, any_server: Server) -> None:
        locks = flavour.locks(any_url, namespace=namespace, server_timeout=30)
        locks.warm()
        lease = locks.lock("a", ttl=60).acquire()
        lease.set_info("x")
        with CallCounter(any_server.admin) as counter:
            lease.set_info("y")
        assert counter.scripts == 1
        lease.release()


class TestWatch:
    @pytest.fixture(autouse=True)
    def quick(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Looks more often than twice a second."""
        monkeypatch.setattr(looking, "WATCH_EVERY", 0.02)

    def test_tells_who_holds_now_and_after_each_change(self, locks: AnyLocks, others: AnyLocks) -> None:
        with others.watch("a") as following:
            assert following() is None
            lease = locks.lock("a", ttl=60, info="first").acquire()
            holder = following()
            assert holder is not None
            assert (holder.fence, holder.info) == (lease.fence, "first")
            lease.release()
            assert following() is None
        with locks.lock("a", ttl=60).block() as again, others.watch("a") as following:
            holder = following()
            assert holder is not None
            assert holder.fence == again.fence

    def test_says_nothing_while_nothing_changes(self, locks: AnyLocks, others: AnyLocks, flavour: Flavour) -> None:
        lease = locks.lock("a", ttl=60, info="first").acquire()
        with others.watch("a") as following:
            assert following() is not None
            before = others.statistics().requests
            change = flavour.spawn(following)
            # It looks, and sees the same lease: renewed, and with other words.
            lease.renew()
            lease.set_info("second")
            wait_until(lambda: others.statistics().requests >= before + 2, 30, "two looks")
            assert not change.done()
            lease.release()
            assert change.result(30) is None

    def test_tells_when_one_of_many_comes_or_goes(self, locks: AnyLocks, others: AnyLocks, flavour: Flavour) -> None:
        shared = locks.lock("a", ttl=60, shared=True)
        first = shared.acquire()
        with others.watch("a") as following:
            assert following() is not None
            second = flavour.spawn(shared.acquire).result(30)
            assert following() is not None
            first.release()
            assert following() is not None
            second.release()
            assert following() is None

    def test_of_something_else_raises(self, others: AnyLocks, any_server: Server, namespace: str) -> None:
        any_server.command("RPUSH", f"{namespace}:a", "x")
        any_server.command("PEXPIRE", f"{namespace}:a", 20_000)
        with others.watch("a") as following, pytest.raises(tenure.NameConflict):
            following()


class TestMode:
    def test_is_seen_of_holders_and_waiters(self, locks: AnyLocks, others: AnyLocks) -> None:
        made = {
            "exclusive": locks.lock("exclusive", ttl=60),
            "shared": locks.lock("shared", ttl=60, shared=True),
            "semaphore": locks.semaphore("semaphore", 1, ttl=60),
        }
        for name, lock in made.items():
            with lock.block() as lease:
                assert lease.mode == name
                holder = others.holder(name)
                assert holder is not None
                assert (holder.mode, holder.limit) == (name, 1 if name == "semaphore" else None)
                waiting = others.queue(name, 1 if name == "semaphore" else None, ttl=60) if name != "shared" else None
                if waiting is not None:
                    assert [waiter.mode for waiter in locks.waiters(name)] == [name]
                    age_waiters(others.raw, -600)
            if waiting is not None:
                waiting.result(14).release()

    def test_a_context_is_the_same_for_all_of_one_thread_or_task(
        self, locks: AnyLocks, others: AnyLocks, flavour: Flavour
    ) -> None:
        locks.warm()
        mine = [locks.lock(name, ttl=60).acquire() for name in "ab"]
        theirs = flavour.spawn(locks.lock("c", ttl=60).acquire).result(30)
        contexts = [holder.context for holder in others.list()]
        assert contexts[0] == contexts[1] != contexts[2]
        assert None not in contexts
        for lease in [*mine, theirs]:
            renew_now(lease.raw)
            lease.release()


def test_leases_of_all_modes_are_renewed_together(
    locks: AnyLocks, any_server: Server, namespace: str, flavour: Flavour
) -> None:
    """More than fit into one request, so that batches mix them."""
    leases = [
        lock.acquire()
        for number in range(50)
        for lock in (
            locks.lock(f"x{number}", ttl=60),
            locks.lock(f"s{number}", ttl=60, shared=True),
            locks.semaphore(f"n{number}", 2, ttl=60),
        )
    ]
    before = {lease.token: lease.raw._hold.deadline for lease in leases}
    gone = leases[1:9]
    for lease in gone:
        any_server.command("DEL", f"{namespace}:{lease.names[0]}")
    for lease in leases:
        lease.raw._hold.next_renew = 0.0
    locks.raw.session().hub.wake()
    kept = [lease for lease in leases if lease not in gone]
    wait_until(lambda: all(lease.raw._hold.deadline > before[lease.token] for lease in kept), 30, "all renewals")
    wait_until(lambda: all(lease.lost == "deleted" for lease in gone), 30, "the losses of those that are gone")
    assert [lease.release() for lease in kept] == [tenure.Released.RELEASED] * len(kept)
    assert flavour.call(locks.raw.list) == []
