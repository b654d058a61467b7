"""Handing a lease to another process: export, adopt, and what becomes of the old handle."""

from __future__ import annotations

import gc
import os
from typing import TYPE_CHECKING, Any

import pytest

import tenure
from tests.harness.commands import CallCounter
from tests.harness.leases import renew_now
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from tests.conformance.flavours import AnyLease, AnyLocks, Flavour
    from tests.harness.servers import Server


def over(locks: AnyLocks, exported: str) -> str:
    """Try to adopt what has ended; the reason that is given."""
    with pytest.raises(tenure.LeaseLost, match="'a': this lease cannot be taken over") as caught:
        locks.adopt(exported)
    assert caught.value.names == ("a",)
    return caught.value.reason


class TestExport:
    def test_is_one_word_that_can_be_put_into_an_environment(self, locks: AnyLocks) -> None:
        text = locks.lock("ü b", "ä\U0001f600", b"\xff", ttl=60).acquire().export()
        assert text.isascii()
        assert text.isprintable()
        assert " " not in text

    def test_ends_the_handle_and_not_the_lease(
        self, locks: AnyLocks, others: AnyLocks, events: list[tenure.Event]
    ) -> None:
        told: list[Any] = []
        lease = locks.lock("a", ttl=60, on_lost=told.append).acquire()
        lease.export()
        assert others.lock("a").try_acquire() is None
        assert not lease.valid
        assert lease.remaining() == 0
        assert lease.lost is None
        for use in (lease.check, lease.renew, lease.export, lambda: lease.set_info("x")):
            with pytest.raises(tenure.NotHeld, match="'a': this lease was handed over to another process"):
                use()
        assert lease.release() is tenure.Released.GONE
        assert others.lock("a").locked()
        assert not lease.wait_lost(0)
        wait_until(lambda: any(isinstance(event, tenure.MovedEvent) for event in events), 30, "the event")
        assert not any(isinstance(event, tenure.LostEvent | tenure.ReleasedEvent) for event in events)
        assert not told
        assert "moved" in repr(lease.raw)
        assert locks.statistics().held == 0

    def test_inside_a_block_lets_it_end_quietly(self, locks: AnyLocks, others: AnyLocks) -> None:
        with locks.lock("a", ttl=60).block() as lease:
            text = lease.export()
        assert others.lock("a").locked()
        others.adopt(text).release()
        assert not locks.lock("a").locked()

    def test_outlives_its_handle_and_its_locks(
        self, flavour: Flavour, any_url: str, namespace: str, others: AnyLocks
    ) -> None:
        locks = flavour.locks(any_url, namespace=namespace)
        text = locks.lock("a", ttl=60).acquire().export()
        gc.collect()
        locks.close()
        assert others.lock("a").locked()
        others.adopt(text).release()

    def test_that_nobody_adopts_ends_with_the_rest_of_its_ttl(
        self, locks: AnyLocks, others: AnyLocks, any_server: Server, namespace: str
    ) -> None:
        lease = locks.lock("a", ttl=60).acquire()
        text = lease.export()
        # The rest is made short here: a short ttl may be over before the export.
        assert any_server.command("PEXPIRE", f"{namespace}:a", 300)
        taken = others.queue("a", ttl=60).result(30)
        assert taken.fence > lease.raw.fence
        assert over(locks, text) == "taken"
        taken.check()
        taken.renew()
        taken.release()
        assert over(locks, text) == "deleted"

    def test_of_what_is_not_held_is_refused(self, locks: AnyLocks, any_server: Server, namespace: str) -> None:
        lease = locks.lock("a").acquire()
        lease.release()
        with pytest.raises(tenure.NotHeld, match="was released"):
            lease.export()
        lease = locks.lock("a", ttl=60).acquire()
        any_server.command("DEL", f"{namespace}:a")
        with pytest.raises(tenure.LeaseLost):
            lease.renew()
        with pytest.raises(tenure.LeaseLost):
            lease.export()

    def test_frees_the_thread_or_task_for_another_lease(self, locks: AnyLocks) -> None:
        text = locks.lock("a", ttl=60).acquire().export()
        assert locks.current("a") is None
        # No nested use any more: just a lock that somebody holds.
        assert locks.lock("a").try_acquire() is None
        locks.adopt(text).release()


class TestAdopt:
    def test_takes_the_lease_over_with_the_same_fence_and_a_full_ttl(
        self, locks: AnyLocks, others: AnyLocks, any_server: Server, namespace: str
    ) -> None:
        lease = locks.lock("a", ttl=60, info="first").acquire()
        token, fence = lease.token, lease.fence
        any_server.command("PEXPIRE", f"{namespace}:a", 30_000)
        mine = others.adopt(lease.export(), info="second")
        assert (mine.names, mine.fence, mine.mode) == (("a",), fence, "exclusive")
        assert mine.token != token
        assert mine.remaining() > 40
        assert any_server.command("PTTL", f"{namespace}:a") > 40_000
        holder = locks.holder("a")
        assert holder is not None
        assert (holder.fence, holder.info, holder.pid) == (fence, "second", os.getpid())
        assert holder.id in repr(mine.raw)
        mine.renew()
        assert mine.release() is tenure.Released.RELEASED
        assert others.list() == []

    def test_is_renewed_from_then_on(self, locks: AnyLocks, others: AnyLocks) -> None:
        mine = others.adopt(locks.lock("a", ttl=60).acquire().export())
        before = mine.raw._hold.deadline
        renew_now(mine.raw)
        wait_until(lambda: mine.raw._hold.deadline > before, 30, "the renewal")
        mine.release()

    def test_works_once(self, locks: AnyLocks, others: AnyLocks) -> None:
        text = locks.lock("a", ttl=60).acquire().export()
        mine = others.adopt(text)
        for client in (locks, others):
            assert over(client, text) == "taken"
        mine.check()
        mine.renew()
        again = locks.adopt(mine.export())
        assert over(others, text) == "taken"
        assert again.fence == mine.raw.fence
        assert again.release() is tenure.Released.RELEASED
        assert over(others, text) == "deleted"

    def test_by_the_same_thread_or_task_counts_as_its_own(self, locks: AnyLocks) -> None:
        mine = locks.adopt(locks.lock("a", ttl=60).acquire().export())
        assert locks.current("a") is mine.raw
        with pytest.raises(tenure.AlreadyHeld):
            locks.lock("a").acquire()
        mine.release()

    def test_waiters_keep_their_places_and_are_served(self, locks: AnyLocks, others: AnyLocks) -> None:
        lease = locks.lock("a", ttl=60).acquire()
        waiting = [client.queue("a", ttl=60) for client in (others, locks)]
        mine = others.adopt(lease.export())
        assert not any(future.done() for future in waiting)
        mine.release()
        first = waiting[0].result(30)
        assert first.fence > mine.fence
        first.release()
        waiting[1].result(30).release()

    def test_is_asked_and_broken_where_it_is_now(self, locks: AnyLocks, others: AnyLocks) -> None:
        for client in (locks, others):
            client.warm()
        lease = locks.lock("a", ttl=60).acquire()
        mine = others.adopt(lease.export())
        assert locks.ask("a") is not None
        assert mine.wait_asked(30)
        assert locks.break_lock("a", mine.fence) is not None
        assert mine.wait_lost(30)
        assert mine.lost == "revoked"
        assert lease.asked is None
        assert lease.lost is None
        mine.release()

    def test_of_a_lease_that_was_broken_is_refused(self, locks: AnyLocks, others: AnyLocks) -> None:
        text = locks.lock("a", ttl=60).acquire().export()
        assert others.break_lock("a") is not None
        assert over(others, text) == "revoked"

    def test_of_a_released_lease_is_refused(self, locks: AnyLocks, others: AnyLocks) -> None:
        lease = locks.lock("a", ttl=60).acquire()
        text = lease.written()
        lease.release()
        assert over(others, text) == "deleted"

    def test_behind_the_back_of_a_handle_that_goes_on_is_no_loss(
        self, locks: AnyLocks, others: AnyLocks, events: list[tenure.Event]
    ) -> None:
        """As the command of `tenure run` does, whose parent holds on until it hears of it."""
        lease = locks.lock("a", ttl=60).acquire()
        text = lease.written()
        lease.check()
        mine = others.adopt(text)
        with pytest.raises(tenure.NotHeld, match="handed over"):
            lease.renew()
        assert lease.lost is None
        assert lease.release() is tenure.Released.GONE
        mine.check()
        wait_until(lambda: any(isinstance(event, tenure.MovedEvent) for event in events), 30, "the event")
        assert mine.release() is tenure.Released.RELEASED

    def test_behind_the_back_of_one_that_releases_is_no_loss(self, locks: AnyLocks, others: AnyLocks) -> None:
        with locks.lock("a", ttl=60).block() as lease:
            mine = others.adopt(lease.written())
        mine.check()
        mine.renew()
        assert mine.release() is tenure.Released.RELEASED

    def test_behind_the_back_of_the_hub_is_no_loss(self, locks: AnyLocks, others: AnyLocks) -> None:
        lease = locks.lock("a", ttl=60).acquire()
        mine = others.adopt(lease.written())
        renew_now(lease.raw)
        wait_until(lambda: not lease.valid, 30, "the hub to notice")
        assert lease.lost is None
        mine.release()

    def test_is_one_request_for_each_name(
        self, flavour: Flavour, any_url: str, namespace: str, any_server: Server
    ) -> None:
        locks = flavour.locks(any_url, namespace=namespace, server_timeout=30)
        locks.warm()
        locks.adopt(locks.lock("warm", ttl=60).acquire().export()).release()
        for names in ("a", "abc"):
            text = locks.lock(*names, ttl=60).acquire().export()
            with CallCounter(any_server.admin) as counter:
                mine = locks.adopt(text)
            assert counter.scripts == len(names)
            mine.release()


class TestOptions:
    def test_are_checked(self, locks: AnyLocks) -> None:
        text = locks.lock("a", ttl=60).acquire().export()
        bad: dict[str, Any] = {"renew": 1, "max_hold": 0, "info": 5}
        for option, value in bad.items():
            with pytest.raises(tenure.ConfigError, match=option):
                locks.adopt(text, **{option: value})
        locks.adopt(text).release()

    def test_say_how_it_goes_on(self, locks: AnyLocks) -> None:
        mine = locks.adopt(locks.lock("a", ttl=60).acquire().export(), renew=False, max_hold=7)
        terms = mine.raw._hold.terms
        assert (terms.ttl, terms.renew, terms.max_hold) == (60, False, 7)
        mine.release()

    def test_of_locks_that_accept_no_such_ttl_refuse_it(
        self, flavour: Flavour, any_url: str, namespace: str, locks: AnyLocks
    ) -> None:
        strict = flavour.locks(any_url, namespace=namespace, max_ttl=10)
        text = locks.lock("a", ttl=60).acquire().export()
        with pytest.raises(tenure.ConfigError, match=r"ttl must be at least 0\.01 and at most 10 seconds"):
            strict.adopt(text)
        locks.adopt(text).release()


class TestOtherModes:
    @pytest.mark.parametrize("mode", ["shared", "semaphore"])
    def test_keep_their_place_beside_others(
        self, locks: AnyLocks, others: AnyLocks, flavour: Flavour, mode: str
    ) -> None:
        def take(client: AnyLocks) -> AnyLease:
            lock = client.lock("a", ttl=60, shared=True) if mode == "shared" else client.semaphore("a", 2, ttl=60)
            return lock.acquire()

        lease, beside = take(locks), flavour.spawn(take, locks).result(30)
        text = lease.export()
        assert len(others.holders("a")) == 2
        mine = others.adopt(text)
        assert (mine.mode, mine.fence) == (mode, lease.raw.fence)
        assert {holder.mode for holder in others.holders("a")} == {mode}
        assert len(others.holders("a")) == 2
        assert over(others, text) in {"deleted", "taken"}
        for one in (mine, beside):
            one.renew()
            assert one.release() is tenure.Released.RELEASED
        assert others.list() == []

    def test_of_several_names_are_taken_over_together(self, locks: AnyLocks, others: AnyLocks) -> None:
        lease = locks.lock("a", "b", ttl=60).acquire()
        fences = lease.fences
        mine = others.adopt(lease.export())
        assert (mine.names, mine.fences) == (("a", "b"), fences)
        mine.check()
        assert mine.release() is tenure.Released.RELEASED

    def test_of_several_names_of_which_one_has_ended_are_given_back(
        self, locks: AnyLocks, others: AnyLocks, any_server: Server, namespace: str
    ) -> None:
        for gone in "abc":
            text = locks.lock("a", "b", "c", ttl=60).acquire().export()
            any_server.command("DEL", f"{namespace}:{gone}")
            with pytest.raises(tenure.LeaseLost, match=f"'{gone}'"):
                others.adopt(text)
            # Those that were not reached yet are as the text left them: its reader may release them, or their ttl does.
            reached = "abc"[: "abc".index(gone)]
            wait_until(
                lambda reached=reached: not any(others.lock(name).locked() for name in reached), 30, "what was taken"
            )
            any_server.command("DEL", *(f"{namespace}:{name}" for name in "abc"))
            assert others.statistics().held == 0


class TestBadText:
    @pytest.mark.parametrize(
        "text",
        [
            "",
            "tenure1.",
            "tenure1.!!!!",
            "tenure2.e30",
            "tenure1.e30",
            "tenure1.bnVsbA",
            "tenure1.W10",
            5,
            None,
            b"tenure1",
        ],
    )
    def test_is_refused(self, locks: AnyLocks, text: Any) -> None:  # noqa: ANN401
        with pytest.raises(tenure.ConfigError, match="no exported lease"):
            locks.adopt(text)

    def test_that_was_cut_anywhere_is_refused_and_not_shown(self, locks: AnyLocks) -> None:
        text = locks.lock("a", "b", ttl=60).acquire().export()
        for end in range(len(text)):
            with pytest.raises(tenure.ConfigError, match="no exported lease") as caught:
                locks.adopt(text[:end])
            assert text[20:30] not in str(caught.value)
        locks.adopt(text).release()

    def test_that_was_damaged_anywhere_takes_nothing_over(self, locks: AnyLocks) -> None:
        lease = locks.lock("a", ttl=60).acquire()
        text = lease.written()
        for at in range(len(text)):
            damaged = text[:at] + ("B" if text[at] == "A" else "A") + text[at + 1 :]
            # The token or the name is another one, or it is no text of ours at all; a number may still mean the same.
            try:
                mine = locks.adopt(damaged)
            except (tenure.ConfigError, tenure.LeaseLost):
                lease.renew()
            else:
                assert (mine.names, mine.fence) == (("a",), lease.fence)
                assert lease.release() is tenure.Released.GONE
                lease, text = mine, mine.written()
        assert lease.release() is tenure.Released.RELEASED

    def test_of_another_namespace_is_refused_and_both_are_named(
        self, flavour: Flavour, any_url: str, locks: AnyLocks, namespace: str
    ) -> None:
        elsewhere = flavour.locks(any_url, namespace="elsewhere")
        text = locks.lock("a", ttl=60).acquire().export()
        with pytest.raises(tenure.ConfigError, match=f"of the namespace '{namespace}'.* of 'elsewhere'"):
            elsewhere.adopt(text)
        locks.adopt(text).release()
