"""Taking and giving back: leases, blocks, decorators, handles."""

from __future__ import annotations

import copy
import pickle
import time
from typing import TYPE_CHECKING, Any

import pytest

import tenure
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from tests.conformance.flavours import AnyLocks, Flavour
    from tests.harness.servers import Server


class TestALease:
    def test_is_held_until_it_is_released(self, locks: AnyLocks, others: AnyLocks) -> None:
        lock = locks.lock("a", ttl=5)
        assert not lock.locked()
        lease = lock.acquire()
        assert lock.locked()
        assert others.lock("a").try_acquire() is None
        assert lease.valid
        assert lease.lost is None
        lease.check()
        assert lease.release() is tenure.Released.RELEASED
        assert not lock.locked()
        assert not lease.valid
        assert lease.remaining() == 0
        taken = others.lock("a").try_acquire()
        assert taken is not None
        taken.release()

    def test_tells_what_it_is(self, locks: AnyLocks) -> None:
        began = time.monotonic()
        lease = locks.lock("a", ttl=30, info={"for": "tests"}).acquire()
        remaining, held_for, took = lease.remaining(), lease.held_for(), time.monotonic() - began
        assert lease.names == ("a",)
        assert lease.fences == {"a": lease.fence}
        assert lease.info == {"for": "tests"}
        assert len(lease.token) >= 40
        # 1 % drift and 2 ms of rounding, and what has passed since the request was sent.
        full = 30 * 0.99 - 0.002
        assert full - took - 0.001 < remaining <= full
        assert 0 <= held_for < took + 0.001
        lease.release()

    def test_fences_rise_and_tokens_differ(self, locks: AnyLocks) -> None:
        fences: list[int] = []
        tokens: set[str] = set()
        for _ in range(20):
            lease = locks.lock("a").acquire()
            fences.append(lease.fence)
            tokens.add(lease.token)
            lease.release()
        assert fences == sorted(set(fences))
        assert len(tokens) == 20

    def test_names_are_independent(self, locks: AnyLocks) -> None:
        first, second = locks.lock("a").acquire(), locks.lock("b").acquire()
        assert first.release() is second.release() is tenure.Released.RELEASED

    def test_a_lock_is_a_description_and_may_be_used_again(self, locks: AnyLocks) -> None:
        lock = locks.lock("a")
        for _ in range(3):
            with lock.block() as lease:
                assert lease.valid
        assert lock.raw.names == ("a",)

    def test_bytes_and_text_name_the_same_lock(self, locks: AnyLocks) -> None:
        with locks.lock("größe").block():
            assert locks.lock("größe".encode()).locked()

    def test_releasing_twice_does_nothing(self, locks: AnyLocks, others: AnyLocks) -> None:
        lease = locks.lock("a").acquire()
        lease.release()
        other = others.lock("a").acquire()
        assert lease.release() is tenure.Released.GONE
        assert others.lock("a").locked()
        assert other.release() is tenure.Released.RELEASED

    def test_may_be_released_by_another_thread_or_task(self, locks: AnyLocks, flavour: Flavour) -> None:
        lease = locks.lock("a").acquire()
        assert flavour.spawn(lease.release).result() is tenure.Released.RELEASED
        assert not locks.lock("a").locked()
        # And its first holder may take the lock again: nothing of it is left behind.
        locks.lock("a", wait=0).acquire().release()

    def test_after_a_release_refuses_use_as_not_held(self, locks: AnyLocks) -> None:
        lease = locks.lock("a").acquire()
        lease.release()
        with pytest.raises(tenure.NotHeld, match=r"'a'.*released") as caught:
            lease.check()
        assert caught.value.names == ("a",)
        with pytest.raises(tenure.NotHeld):
            lease.renew()
        with pytest.raises(tenure.NotHeld), lease.block():
            pytest.fail("entered a lease that was released")

    @pytest.mark.parametrize("duplicate", [pickle.dumps, copy.copy, copy.deepcopy], ids=["pickle", "copy", "deepcopy"])
    def test_cannot_be_pickled_or_copied(self, locks: AnyLocks, duplicate: Callable[[object], object]) -> None:
        lease = locks.lock("a").acquire()
        with pytest.raises(TypeError, match="cannot be pickled or copied"):
            duplicate(lease.raw)
        lease.release()

    def test_hides_its_token_in_its_repr(self, locks: AnyLocks) -> None:
        lease = locks.lock("a").acquire()
        holder = locks.holder("a")
        assert holder is not None
        assert lease.token not in repr(lease.raw)
        assert f"#{holder.id}" in repr(lease.raw)
        assert "held" in repr(lease.raw)
        lease.release()
        assert "released" in repr(lease.raw)

    def test_that_was_dropped_is_given_back_with_a_warning(self, locks: AnyLocks, others: AnyLocks) -> None:
        lease = locks.lock("a", ttl=120).acquire()
        with pytest.warns(ResourceWarning, match=r"'a'.*dropped while held"):
            del lease
        wait_until(lambda: not others.lock("a").locked(), 30, "the hub to give it back")
        assert locks.statistics().held == 0

    def test_min_remaining_is_checked_against_the_deadline(self, locks: AnyLocks) -> None:
        lease = locks.lock("a", ttl=30).acquire()
        lease.check(3)
        with pytest.raises(tenure.LeaseLost, match="60 s are needed"):
            lease.check(60)
        # It was a question, not a loss.
        assert lease.lost is None
        lease.release()


class TestABlock:
    def test_holds_inside_and_releases_at_its_end(self, locks: AnyLocks, others: AnyLocks) -> None:
        with locks.lock("a").block() as lease:
            assert lease.valid
            assert others.lock("a").locked()
        assert not others.lock("a").locked()

    def test_releases_when_the_body_raises_and_lets_the_error_through(self, locks: AnyLocks, others: AnyLocks) -> None:
        with pytest.raises(ZeroDivisionError) as caught, locks.lock("a").block():
            raise ZeroDivisionError
        assert not getattr(caught.value, "__notes__", [])
        assert not others.lock("a").locked()

    def test_of_a_lease_releases_it(self, locks: AnyLocks) -> None:
        with locks.lock("a").acquire().block():
            assert locks.lock("a").locked()
        assert not locks.lock("a").locked()

    def test_whose_lease_was_released_inside_ends_quietly(self, locks: AnyLocks) -> None:
        with locks.lock("a").block() as lease:
            lease.release()

    def test_of_one_lock_may_be_entered_by_many_threads_in_turn(self, locks: AnyLocks, flavour: Flavour) -> None:
        lock = locks.lock("a", ttl=5)
        inside: list[int] = []

        def turn(number: int) -> None:
            for _ in range(5):
                with lock.block():
                    inside.append(number)
                    assert inside == [number]
                    inside.pop()

        for done in [flavour.spawn(turn, number) for number in range(4)]:
            done.result()


class TestADecorator:
    def test_takes_the_lock_for_each_call(self, locks: AnyLocks) -> None:
        seen: list[bool] = []

        def job(value: int) -> int:
            seen.append(locks.lock("job").locked())
            return value + 1

        wrapped = locks.lock("job").decorate(job)
        assert [wrapped(1), wrapped(value=2)] == [2, 3]
        assert seen == [True, True]
        assert not locks.lock("job").locked()

    def test_fills_plain_fields_from_the_calls_arguments(self, locks: AnyLocks) -> None:
        def report(user_id: int, kind: str = "day", **more: str) -> list[str]:
            return [holder.name for holder in locks.list()]

        wrapped = locks.lock("report:{user_id}:{kind}").decorate(report)
        assert wrapped(7) == ["report:7:day"]
        assert wrapped(user_id=8, kind="wéek") == ["report:8:wéek"]
        by_keyword = locks.lock("report:{extra}").decorate(report)
        assert by_keyword(7, extra="x") == ["report:x"]
        with pytest.raises(tenure.ConfigError, match="needs the argument 'extra'"):
            by_keyword(7)

    def test_knows_doubled_braces(self, locks: AnyLocks) -> None:
        wrapped = locks.lock("{{literal}}").decorate(lambda: [holder.name for holder in locks.list()])
        assert wrapped() == ["{literal}"]

    @pytest.mark.parametrize(
        ("template", "fragment"),
        [
            ("r:{user.password}", "no attributes"),
            ("r:{user[0]}", "no attributes, indexes"),
            ("r:{user!r}", "no attributes, indexes or formats"),
            ("r:{user:>9}", "no attributes, indexes or formats"),
            ("r:{}", "plain arguments"),
            ("r:{nobody}", "'nobody', which is no argument"),
            ("r:{user", "is no template"),
        ],
    )
    def test_refuses_other_templates_when_decorating(self, locks: AnyLocks, template: str, fragment: str) -> None:
        def job(user: str) -> None:
            del user

        with pytest.raises(tenure.ConfigError, match=fragment):
            locks.lock(template).decorate(job)

    def test_refuses_an_argument_that_makes_a_bad_name(self, locks: AnyLocks) -> None:
        def job(user: str) -> None:
            del user

        wrapped = locks.lock("{user}").decorate(job)
        with pytest.raises(tenure.ConfigError, match="control character"):
            wrapped("a\nb")

    def test_refuses_functions_of_the_other_flavour_and_generators(self, locks: AnyLocks, flavour: Flavour) -> None:
        lock: Any = locks.lock("a").raw

        def plain() -> None: ...

        async def coroutine() -> None: ...

        def generator() -> Iterator[None]:
            yield

        async def async_generator() -> AsyncIterator[None]:
            yield

        wrong, words = (coroutine, "AsyncLocks") if flavour.kind == "blocking" else (plain, "a lock of Locks")
        with pytest.raises(tenure.ConfigError, match=words):
            lock(wrong)
        for function in (generator, async_generator):
            with pytest.raises(tenure.ConfigError, match=r"generator|coroutine"):
                lock(function)

    def test_keeps_the_functions_name_and_documentation(self, locks: AnyLocks, flavour: Flavour) -> None:
        async def coroutine() -> None:
            """Words."""

        def plain() -> None:
            """Words."""

        wrapped = locks.lock("a").raw(plain if flavour.kind == "blocking" else coroutine)  # type: ignore[arg-type]
        assert wrapped.__doc__ == "Words."
        assert wrapped.__name__ in {"plain", "coroutine"}


def test_every_key_has_a_ttl_and_only_the_fence_outlives_the_lease(
    locks: AnyLocks, any_server: Server, namespace: str
) -> None:
    began = time.monotonic()
    lease = locks.lock("a", ttl=30).acquire()
    waiter = locks.queue("a", ttl=30)
    keys = {key.decode(): any_server.command("PTTL", key) for key in any_server.command("KEYS", f"*{namespace}*")}
    took_ms = (time.monotonic() - began) * 1000
    main, tag = f"{namespace}:a", f"{{{namespace}:a}}"
    assert set(keys) == {main, f"{tag}:queue", f"{tag}:entry", f"{tag}:fence"}
    assert all(left > 0 for left in keys.values())
    # 30 s and the grace, 1 % of the ttl + 20 ms.
    assert 30_320 - took_ms - 2 < keys[main] <= 30_320
    assert keys[f"{tag}:fence"] > 86_000_000
    lease.release()
    waiter.result().release()
    assert any_server.command("KEYS", f"*{namespace}*") == [f"{tag}:fence".encode()]
