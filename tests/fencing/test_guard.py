# ruff: noqa: ANN401 - arguments are wrong on purpose
"""A guard for a resource in this process."""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING, Any

import pytest

import tenure
from tenure.fencing import FenceGuard
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from tests.fencing.conftest import Holders


def test_without_a_guard_the_newer_holders_write_is_lost(holders: Holders) -> None:
    shelf = {"boxes": 0}
    late = shelf["boxes"] + 1
    shelf["boxes"] += 10  # the newer holder
    shelf["boxes"] = late  # the older one, after its pause
    assert shelf == {"boxes": 1}


def test_a_stale_write_is_refused_and_changes_nothing(holders: Holders) -> None:
    guard, shelf = FenceGuard("shelf 1"), {"boxes": 0}
    late = shelf["boxes"] + 1
    with guard.admit(holders.newer) as number:
        shelf["boxes"] += 10
    with pytest.raises(tenure.StaleFence, match="shelf 1") as caught, guard.admit(holders.older):
        shelf["boxes"] = late
    assert (caught.value.fence, caught.value.seen) == (holders.older.fence, holders.newer.fence)
    assert number == guard.seen == holders.newer.fence
    assert shelf == {"boxes": 10}


def test_after_a_newer_holders_read_the_stale_write_is_refused(holders: Holders) -> None:
    guard = FenceGuard()
    assert guard.check(holders.newer) == holders.newer.fence
    with pytest.raises(tenure.StaleFence), guard.admit(holders.older):
        pytest.fail("the stale holder was admitted")
    with pytest.raises(tenure.StaleFence):
        guard.check(holders.older)


def test_the_same_fence_may_come_again(holders: Holders) -> None:
    guard = FenceGuard()
    for fence in (holders.older, holders.older.fence, holders.newer, holders.newer):
        guard.check(fence)
    assert guard.seen == holders.newer.fence


def test_a_guard_that_follows_another_one_begins_where_that_ended() -> None:
    guard = FenceGuard(seen=8)
    with pytest.raises(tenure.StaleFence):
        guard.check(7)
    assert guard.check(8) == 8


@pytest.mark.parametrize("fence", [True, 0, -1, math.nan, "7", None])
def test_what_is_no_fence_changes_nothing(fence: Any) -> None:
    guard = FenceGuard()
    with pytest.raises(tenure.ConfigError):
        guard.check(fence)
    with pytest.raises(tenure.ConfigError), guard.admit(fence):
        pytest.fail("admitted")
    assert guard.seen == 0


@pytest.mark.parametrize("seen", [True, -1, math.nan, "7", None, 2**63])
def test_what_cannot_have_been_seen_is_refused(seen: Any) -> None:
    with pytest.raises(tenure.ConfigError, match="seen"):
        FenceGuard(seen=seen)


def test_a_newer_holder_waits_until_the_older_one_is_out() -> None:
    guard, done = FenceGuard(), list[str]()
    inside, leave = threading.Event(), threading.Event()

    def older() -> None:
        with guard.admit(7):
            inside.set()
            assert leave.wait(20)
            done.append("older")

    def newer() -> None:
        guard.check(8)
        done.append("newer")

    threads = [threading.Thread(target=older), threading.Thread(target=newer)]
    threads[0].start()
    assert inside.wait(20)
    threads[1].start()
    # It stands at the door: the number is remembered once the older one's effect is done, and not before.
    assert not _ends(threads[1], 0.2)
    assert guard.seen == 7
    leave.set()
    wait_until(lambda: not any(thread.is_alive() for thread in threads), 20, "both to be through")
    assert done == ["older", "newer"]


def _ends(thread: threading.Thread, seconds: float) -> bool:
    thread.join(seconds)
    return not thread.is_alive()


def test_a_thread_does_not_wait_for_itself() -> None:
    guard = FenceGuard("shelf 1")
    with guard.admit(7):
        with pytest.raises(tenure.AlreadyHeld, match="shelf 1"):
            guard.check(8)
        with pytest.raises(tenure.AlreadyHeld), guard.admit(7):
            pytest.fail("admitted twice")
    assert guard.check(8) == 8


def test_the_guard_is_free_again_after_an_error_inside() -> None:
    guard = FenceGuard()
    with pytest.raises(ZeroDivisionError), guard.admit(7):
        _ = 1 / 0
    assert guard.check(7) == 7


def test_many_threads_never_take_the_number_back() -> None:
    guard, written = FenceGuard(), list[int]()

    def work(first: int) -> None:
        for number in range(first, 2000, 4):
            try:
                with guard.admit(number):
                    written.append(number)
            except tenure.StaleFence:
                continue

    threads = [threading.Thread(target=work, args=(first,)) for first in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert written == sorted(written)
    assert guard.seen == written[-1] >= 1996


def test_a_lease_of_several_names_needs_to_know_which(several: tenure.Lease) -> None:
    guard = FenceGuard()
    with pytest.raises(tenure.ConfigError, match="name="):
        guard.check(several)
    with guard.admit(several, name="shelf:2") as number:
        assert number == several.fences["shelf:2"]
    with pytest.raises(tenure.StaleFence):
        guard.check(several, name="shelf:1")


def test_a_semaphores_lease_is_refused(place: tenure.Lease) -> None:
    with pytest.raises(tenure.ConfigError, match="semaphore"):
        FenceGuard().check(place)


def test_it_shows_what_it_guards_and_has_seen() -> None:
    assert repr(FenceGuard("shelf 1", seen=7)) == "<FenceGuard 'shelf 1' seen=7>"
