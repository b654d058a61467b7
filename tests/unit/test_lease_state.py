"""The life of a lease: its transitions, its deadline, and that whoever makes a transition is told so, once."""

from __future__ import annotations

import itertools
import threading
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenure.core.lease_state import TRANSITIONS, State, deadline_of_message, deadline_of_reply, margin
from tests.unit.leases import hold, terms

if TYPE_CHECKING:
    from collections.abc import Callable

    from tenure.core.lease_state import Hold
    from tenure.errors import LossReason

FEW = settings(max_examples=60)
MOVES: dict[str, tuple[Callable[[Hold], bool], State]] = {
    "lose": (lambda lease: lease.lose("deleted", 105), State.LOST),
    "lose by its release": (lambda lease: lease.lose("deleted", 105, releasing=True), State.LOST),
    "expire": (lambda lease: lease.expire(110), State.LOST),
    "begin release": (lambda lease: lease.begin_release(105), State.RELEASING),
    "end release": (lambda lease: lease.end_release(105), State.RELEASED),
    "move": (lambda lease: lease.move(105), State.MOVED),
}
ALLOWED = {
    (State.HELD, "lose"),
    (State.HELD, "expire"),
    (State.HELD, "begin release"),
    (State.HELD, "move"),
    (State.RELEASING, "move"),
    (State.RELEASING, "lose by its release"),
    (State.RELEASING, "begin release"),
    (State.RELEASING, "end release"),
}


def in_state(state: State) -> Hold:
    lease = hold()
    if state in {State.RELEASING, State.RELEASED}:
        assert lease.begin_release(104)
    if state is State.RELEASED:
        assert lease.end_release(104)
    if state is State.LOST:
        assert lease.lose("taken", 104)
    if state is State.MOVED:
        assert lease.move(104)
    return lease


@pytest.mark.parametrize(("state", "move"), list(itertools.product(State, MOVES)), ids=str)
def test_the_table_of_transitions(state: State, move: str) -> None:
    lease = in_state(state)
    act, to = MOVES[move]
    made = act(lease)
    assert made is ((state, move) in ALLOWED)
    assert lease.state is (to if made else state)
    if made:
        assert to in TRANSITIONS[state]


def test_what_has_ended_stays_ended() -> None:
    for state in (State.RELEASED, State.LOST, State.MOVED):
        assert not TRANSITIONS[state]
        lease = in_state(state)
        ended_at, reason = lease.ended_at, lease.reason
        assert ended_at == 104
        for act, _ in MOVES.values():
            assert not act(lease)
        assert (lease.ended_at, lease.reason, lease.remaining(104)) == (ended_at, reason, 0)


def test_of_many_who_see_a_loss_one_reports_it() -> None:
    lease = hold()
    reasons: list[LossReason] = ["expired", "deleted", "taken", "revoked"]
    together, reports = threading.Barrier(len(reasons)), list[str]()

    def see(reason: LossReason) -> None:
        together.wait(30)
        if lease.lose(reason, 105):
            reports.append(reason)

    threads = [threading.Thread(target=see, args=(reason,)) for reason in reasons]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert reports == [lease.reason]


class TestTheDeadline:
    def test_is_lost_at_that_very_instant(self) -> None:
        lease = hold(deadline=110)
        assert not lease.expire(109.999)
        assert lease.remaining(109.999) == pytest.approx(0.001)
        assert lease.remaining(110) == 0
        assert lease.expire(110)
        assert lease.reason == "expired"

    def test_of_a_lease_that_is_being_released_still_counts(self) -> None:
        lease = in_state(State.RELEASING)
        assert lease.remaining(105) == 5
        assert not lease.expire(110)

    def test_of_a_reply_counts_from_before_the_request_was_sent(self) -> None:
        # 10.5 s + 5 s: renewed 5 s after the grant, the lease ends at 15.5 s less 1 % and 2 ms, not at 21 s.
        assert deadline_of_reply(100, 10.5, 10.5, 0.01) == pytest.approx(100 + 10.5 - 0.105 - 0.002)
        assert deadline_of_reply(105, 10.5, 10.5, 0) == pytest.approx(115.5 - 0.002)
        # What the server says is left may be less (never more) than what was asked for.
        assert deadline_of_reply(100, 3, 10, 0) == pytest.approx(102.998)
        assert deadline_of_reply(100, 30, 10, 0) == pytest.approx(109.998)

    def test_of_a_message_counts_from_the_last_request_by_the_servers_clock(self) -> None:
        # Asked at 100 when the server's clock showed 50 s; granted by it 4 s later.
        args = (100.0, 50_000, 54_000)
        assert deadline_of_message(*args, 104.5, 10, 0) == pytest.approx(113.998)
        # A message that seems to arrive before it was sent: the local clock is slow, and its instant counts.
        assert deadline_of_message(*args, 103.0, 10, 0) == pytest.approx(112.998)
        assert deadline_of_message(*args, 104.5, 10, 0.01) == pytest.approx(114 - margin(0.01, 14))

    @FEW
    @given(st.floats(0.01, 86400), st.floats(0, 0.2), st.floats(0, 1000), st.floats(0, 100), st.floats(-0.2, 0.2))
    def test_comes_before_the_servers_end_whatever_the_clocks_do(
        self, ttl: float, drift: float, wait: float, travel: float, rate: float
    ) -> None:
        """The server grants `wait` of its seconds after its reply, and its key ends a ttl later, grace not counted.

        The local clock runs by `rate` faster than the server's, within the drift that was allowed for.
        """
        rate = max(-drift, min(drift, rate)) * 0.999
        end = (wait + ttl) * (1 + rate)  # in local seconds after the reply's server time
        granted_ms = 1000 + int(wait * 1000)
        received = (wait + travel) * (1 + rate)
        assert deadline_of_message(0.0, 1000, granted_ms, received, ttl, drift) <= end + 1e-6
        assert deadline_of_reply(0.0, ttl, ttl, drift) <= ttl * (1 + rate) + 1e-6


class TestRenewal:
    def test_moves_the_deadline_only_with_the_last_ones_reply(self) -> None:
        lease = hold()
        older = lease.begin_renewal(lease.terms, 103)
        newer = lease.begin_renewal(terms(4), 104)
        assert lease.renewed(newer, 104, 104.1)
        assert lease.deadline == pytest.approx(deadline_of_reply(104, 4, 4, 0.01))
        assert lease.next_renew == pytest.approx(104 + 4 / 3)
        deadline = lease.deadline
        assert not lease.renewed(older, 103, 104.2)
        assert lease.deadline == deadline

    def test_that_is_only_on_its_way_moves_nothing(self) -> None:
        lease = hold()
        lease.begin_renewal(lease.terms, 103)
        assert lease.deadline == 110
        # And nobody else renews meanwhile.
        assert lease.next_renew >= 110

    @pytest.mark.parametrize("state", [State.RELEASING, State.RELEASED, State.LOST])
    def test_never_revives(self, state: State) -> None:
        lease = hold()
        number = lease.begin_renewal(lease.terms, 103)
        ended = in_state(state)
        ended.renewal = number
        assert not ended.renewed(number, 103, 104)
        assert ended.state is state
        assert ended.deadline == 110

    def test_whose_reply_comes_at_the_deadline_is_too_late(self) -> None:
        lease = hold(deadline=110)
        number = lease.begin_renewal(lease.terms, 109)
        assert not lease.renewed(number, 109, 110)
        assert lease.expire(110)
