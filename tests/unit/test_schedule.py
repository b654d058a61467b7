"""What is due when: polls of waiters, renewals, losses, warnings, and the pauses between tries."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenure.core import backoff, schedule
from tests.unit.leases import hold

FEW = settings(max_examples=60)


class TestPolls:
    def test_of_the_first_four_follow_the_holders_end_50_ms_apart(self) -> None:
        times = [schedule.next_poll(place, 1.0, 30, foreign=False, random=0.5) for place in range(4)]
        assert times == pytest.approx([1.001, 1.051, 1.101, 1.151])

    @pytest.mark.parametrize(("ttl", "cap"), [(30, 5.0), (4, 2.0), (0.3, 0.15)])
    def test_of_the_first_four_are_capped(self, ttl: float, cap: float) -> None:
        for place in range(4):
            assert schedule.next_poll(place, 1000, ttl, foreign=False, random=0) == cap
            assert schedule.next_poll(place, None, ttl, foreign=False, random=0) == cap

    def test_of_all_others_are_rare(self) -> None:
        for place in (4, 5, 1000):
            assert schedule.next_poll(place, 0.1, 1, foreign=False, random=0) == 15

    def test_of_the_first_behind_a_foreign_holder_are_frequent(self) -> None:
        assert schedule.next_poll(0, 20, 30, foreign=True, random=0.0) == pytest.approx(0.1)
        assert schedule.next_poll(0, None, 30, foreign=True, random=0.999) == pytest.approx(0.2, abs=0.001)
        assert schedule.next_poll(1, 20, 30, foreign=True, random=0.5) == 5

    @FEW
    @given(
        st.one_of(st.none(), st.integers(0, 50)), st.floats(0.01, 1000), st.one_of(st.none(), st.floats(0.001, 1000))
    )
    def test_come_well_within_the_life_of_an_entry(self, place: int | None, ttl: float, wait: float | None) -> None:
        life = schedule.entry_life(place, ttl, wait)
        if wait is not None:
            assert life <= wait
        if wait is None and place is not None:
            assert schedule.next_poll(place, None, ttl, foreign=False, random=0) * 3 <= life + 1e-9


class TestLeases:
    def test_are_renewed_at_a_third_of_their_ttl(self) -> None:
        lease = hold(9.0, granted_at=100, deadline=109)
        early = schedule.due([lease], 102.5)
        assert not early.renew
        assert early.next_at == pytest.approx(103)
        # A thirtieth of the ttl early is in time, to fill a batch.
        assert schedule.due([lease], 102.71).renew == [lease]

    def test_whose_deadline_has_come_are_not_renewed(self) -> None:
        lease = hold(9.0, granted_at=100, deadline=109)
        late = schedule.due([lease], 109)
        assert (late.expired, late.renew) == ([lease], [])
        assert not schedule.due([lease], 108.999).expired

    def test_that_nobody_renews_wake_at_their_deadline(self) -> None:
        plan = schedule.due([hold(renew=False)], 105)
        assert (plan.renew, plan.expired, plan.next_at) == ([], [], 110)

    def test_are_not_renewed_after_max_hold(self) -> None:
        lease = hold(9.0, granted_at=100, deadline=109, max_hold=5.0)
        assert schedule.due([lease], 104).renew == [lease]
        after = schedule.due([lease], 105)
        assert (after.renew, after.next_at) == ([], 109)

    def test_held_too_long_are_told_once(self) -> None:
        lease = hold(9.0, granted_at=100, deadline=109, warn=2.0)
        assert schedule.due([lease], 101).next_at == pytest.approx(102)
        assert schedule.due([lease], 102).overheld == [lease]
        lease.warned = True
        assert not schedule.due([lease], 103).overheld

    def test_that_ended_are_left_alone(self) -> None:
        lost, released = hold(), hold()
        lost.lose("taken", 101)
        released.begin_release(101)
        plan = schedule.due([lost, released], 200)
        assert (plan.renew, plan.expired, plan.next_at) == ([], [], None)

    @pytest.mark.parametrize(
        ("options", "first"),
        [({}, 100 + 10 / 3), ({"renew": False}, 110), ({"warn": 1.0}, 101), ({"renew": False, "warn": 2.0}, 102)],
    )
    def test_that_are_new_are_first_looked_at(self, options: dict[str, object], first: float) -> None:
        assert schedule.first_due(hold(**options)) == pytest.approx(first)  # type: ignore[arg-type]

    def test_that_failed_to_renew_are_tried_several_times_before_their_end(self) -> None:
        # Renewed first with two thirds of the ttl left.
        assert 30 * 2 / 3 / schedule.retry_renew_in(30, 1.0) >= 8
        assert schedule.retry_renew_in(30, 0.0) > 0


class TestPauses:
    def test_double_up_to_half_a_second(self) -> None:
        longest = [backoff.delay(attempt, 1.0) for attempt in range(12)]
        assert longest[:3] == pytest.approx([0.01, 0.02, 0.04])
        assert longest == sorted(longest)
        assert longest[-1] == 0.5

    @FEW
    @given(st.integers(0, 10**9), st.floats(0, 1, exclude_max=True))
    def test_are_never_a_busy_loop_and_never_long(self, attempt: int, random: float) -> None:
        assert 0.005 <= backoff.delay(attempt, random) <= 0.5
