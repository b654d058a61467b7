"""A token that waits: where grants by reply, grants by message and giving up meet; and the server's clock."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tenure
from tenure.core.requests import Busy, Granted, Other, Queued, Reply
from tenure.core.server_time import ServerTime
from tenure.core.ticket import Phase
from tests.unit.leases import KEYS, TOKEN, hold, ticket

QUEUED = Queued(b"123", 0, 5.0, b"0a1b2c3d 6 1 x", more=False, at_ms=50_000, heard=-1)
GRANTED = Granted(7, 1, 10.0)
REPLY = Reply(100.0, 50_000, [])


class TestAGrantByReply:
    def test_is_taken_once(self) -> None:
        mine, flag = ticket()
        assert mine.answered(GRANTED, REPLY, 1, 0.5)
        assert (mine.phase, mine.fence, mine.granted_at) == (Phase.GRANTED, 7, 100.0)
        assert mine.deadline == pytest.approx(100 + 10 - 0.1 - 0.002)
        assert flag.sets == 1

    def test_after_giving_up_is_wanted_by_nobody(self) -> None:
        mine, _ = ticket()
        mine.withdraw()
        assert not mine.answered(GRANTED, REPLY, 1, 0.5)
        assert not mine.answered(QUEUED, REPLY, 1, 0.5)
        assert mine.answered(Other.LATE, REPLY, 1, 0.5)
        assert mine.phase is Phase.WITHDRAWN

    def test_of_a_lease_that_is_over_is_wanted_by_nobody(self) -> None:
        mine, _ = ticket()
        mine.answered(GRANTED, REPLY, 1, 0.5)
        lease = hold()
        mine.held(lease)
        assert mine.answered(GRANTED, REPLY, 1, 0.5)
        lease.begin_release(101)
        # Which came first the release itself finds out, by the server's time.
        assert mine.answered(GRANTED, REPLY, 1, 0.5)
        assert lease.stray_until == 50_000
        lease.end_release(102)
        assert not mine.answered(GRANTED, REPLY, 1, 0.5)

    def test_that_was_handed_over_stands_and_another_one_is_wanted_by_nobody(self) -> None:
        mine, _ = ticket()
        mine.answered(GRANTED, REPLY, 1, 0.5)
        lease = hold()
        mine.held(lease)
        lease.move(101)
        assert mine.answered(Granted(lease.fence, 1, 10.0), REPLY, 1, 0.5)
        assert mine.answered(QUEUED, REPLY, 1, 0.5), "asked before it was granted"
        assert mine.offered(50_100, lease.fence, 100.2, 1)
        assert mine.strayed(1)
        assert not mine.answered(Granted(lease.fence + 1, 1, 10.0), REPLY, 1, 0.5)
        assert not mine.offered(50_100, lease.fence + 1, 100.2, 1)


class TestAGrantByMessage:
    def test_is_proof_when_it_is_later_than_the_reply_that_said_queued(self) -> None:
        mine, flag = ticket()
        mine.answered(QUEUED, REPLY, 1, 0.5)
        assert mine.offered(50_100, 8, 100.2, 1)
        assert (mine.phase, mine.fence) == (Phase.GRANTED, 8)
        assert mine.deadline == pytest.approx(100.1 + 10 - 0.01 * 10.1 - 0.002)
        assert flag.sets == 1

    @pytest.mark.parametrize(("granted_ms", "epoch"), [(50_000, 1), (49_999, 1), (50_100, 2)])
    def test_of_another_time_or_connection_has_to_be_checked(self, granted_ms: int, epoch: int) -> None:
        mine, flag = ticket()
        mine.answered(QUEUED, REPLY, 1, 0.5)
        assert mine.offered(granted_ms, 8, 100.2, epoch)
        assert (mine.phase, mine.check, flag.sets) == (Phase.WAITING, True, 1)

    def test_that_has_overtaken_the_reply_is_kept_until_then(self) -> None:
        mine, flag = ticket()
        assert mine.offered(50_100, 8, 100.2, 1)
        assert (mine.phase, flag.sets) == (Phase.WAITING, 0)
        mine.answered(QUEUED, REPLY, 1, 0.5)
        assert (mine.phase, mine.fence, flag.sets) == (Phase.GRANTED, 8, 1)

    def test_after_giving_up_is_wanted_by_nobody(self) -> None:
        mine, flag = ticket()
        mine.answered(QUEUED, REPLY, 1, 0.5)
        mine.withdraw()
        assert not mine.offered(50_100, 8, 100.2, 1)
        assert flag.sets == 0


class TestWaiting:
    def test_remembers_its_place_and_when_to_ask_again(self) -> None:
        mine, flag = ticket()
        assert mine.item(100.0, last_try=False).score == b""
        mine.answered(QUEUED, REPLY, 1, 0.5)
        assert (mine.position, mine.left, mine.score) == (0, 5.0, b"123")
        # Half its ttl, which comes before the end of the holder's key.
        assert mine.next_poll == pytest.approx(105.0)
        again = mine.item(100.0, last_try=False)
        assert (again.keys, again.token, again.score, again.ttl_ms, again.grace_ms) == (
            KEYS,
            TOKEN,
            b"123",
            10_000,
            100,
        )
        # Three poll intervals, and the millisecond that rounds up.
        assert again.life_ms == 15_001
        assert flag.sets == 0

    def test_with_a_budget_leaves_an_entry_no_longer_than_that(self) -> None:
        mine, _ = ticket(give_up=102.0)
        assert mine.item(100.0, last_try=False).life_ms == 2_001
        assert mine.item(103.0, last_try=False).life_ms == 1
        assert mine.item(103.0, last_try=True).life_ms == 0

    @pytest.mark.parametrize(
        "answer", [Busy(0, None, b"", more=True, heard=-1), Other.SUBSCRIBE, Other.LATE, Other.REVOKED]
    )
    def test_that_a_poll_cannot_settle_is_checked_by_its_owner(self, answer: Busy | Other) -> None:
        mine, flag = ticket()
        mine.answered(QUEUED, REPLY, 1, 0.5)
        assert mine.answered(answer, REPLY, 1, 0.5)
        assert (mine.phase, mine.check, flag.sets) == (Phase.WAITING, True, 1)

    def test_ends_with_the_servers_error(self) -> None:
        mine, flag = ticket()
        error = tenure.ServerUnavailable("gone")
        mine.failed(error)
        assert (mine.error, flag.sets) == (error, 1)

    def test_that_has_succeeded_is_not_failed_any_more(self) -> None:
        mine, _ = ticket()
        mine.answered(GRANTED, REPLY, 1, 0.5)
        mine.failed(tenure.ServerUnavailable("gone"))
        assert mine.error is None


class TestStrayRequests:
    def test_are_remembered_by_the_lease(self) -> None:
        mine, _ = ticket()
        assert mine.strayed(60_000)
        assert mine.strayed(55_000)
        lease = hold()
        mine.answered(GRANTED, REPLY, 1, 0.5)
        mine.held(lease)
        assert lease.stray_until == 60_000
        assert mine.strayed(70_000)
        assert lease.stray_until == 70_000

    def test_of_an_ended_token_are_undone_by_whoever_finds_them(self) -> None:
        mine, _ = ticket()
        mine.withdraw()
        assert not mine.strayed(60_000)


class TestServerTime:
    def test_is_unknown_before_the_first_reply(self) -> None:
        clock = ServerTime()
        assert clock.at(100.0) is None
        assert clock.not_after(100.0) == 0
        assert clock.latest == 0

    def test_goes_on_from_the_newest_reply(self) -> None:
        clock = ServerTime()
        clock.learn(100.0, 50_000)
        assert clock.at(102.0) == 52_001
        clock.learn(101.0, 40_000)
        assert clock.at(102.0) == 41_001

    def test_remembers_the_latest_limit_that_it_gave_out(self) -> None:
        clock = ServerTime()
        clock.learn(100.0, 50_000)
        assert clock.not_after(105.0) == 55_001
        assert clock.not_after(101.0) == 51_001
        assert clock.latest == 55_001

    @settings(max_examples=60)
    @given(st.floats(0, 1e6), st.floats(0, 5), st.floats(0, 5), st.floats(0, 100))
    def test_never_runs_behind_the_server(self, sent: float, there: float, back: float, later: float) -> None:
        """A not-after that is too early would refuse requests that are in time."""
        clock = ServerTime()
        # The server's clock is the local one here; it reads it when the request has arrived, and rounds down.
        clock.learn(sent, int((sent + there) * 1000))
        now = sent + there + back + later
        at = clock.at(now)
        assert at is not None
        assert at >= now * 1000 - 1
        assert at <= (now + there) * 1000 + 2
