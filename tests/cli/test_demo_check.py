from __future__ import annotations

import pytest

from tenure.cli.demo_board import Board, Row, WorkerFailed
from tenure.cli.demo_check import Turn, check, hand_overs


def turn(worker: int, fence: int, began: float, ended: float, *, asked: float = 0.0, deadline: float = 1e9) -> Turn:
    return Turn(worker, fence, asked, began, ended, deadline)


def verdicts(turns: list[Turn], counter: int, expected: int) -> list[bool]:
    return [finding.good for finding in check(turns, counter, expected)]


GOOD = [turn(0, 10, 1.0, 2.0), turn(1, 11, 2.0, 3.0), turn(0, 15, 3.5, 4.0)]


def test_turns_one_after_the_other_are_fine_in_whatever_order_they_were_told() -> None:
    assert verdicts(GOOD[::-1], 3, 3) == [True, True, True]


def test_an_overlap_is_found() -> None:
    assert verdicts([*GOOD, turn(1, 16, 3.9, 4.5)], 4, 4) == [False, True, True]


def test_an_overlap_with_other_than_the_one_before_is_found() -> None:
    assert verdicts([turn(0, 1, 1, 10), turn(1, 2, 20, 30), turn(2, 3, 21, 22), turn(3, 4, 25, 26)], 4, 4)[0] is False


def test_a_holder_past_its_deadline_holds_no_more() -> None:
    assert verdicts([turn(0, 1, 1.0, 9.0, deadline=3.0), turn(1, 2, 3.0, 4.0)], 2, 2)[0] is True


def test_a_lost_update_is_found() -> None:
    assert verdicts(GOOD, 2, 3) == [True, False, True]


def test_a_missing_turn_is_found() -> None:
    assert verdicts(GOOD[:2], 2, 3) == [False, False, True]


@pytest.mark.parametrize("fence", [11, 10])
def test_a_fence_that_does_not_rise_is_found(fence: int) -> None:
    assert verdicts([*GOOD[:2], turn(1, fence, 3.5, 4.0)], 3, 3) == [True, True, False]


def test_no_turns_prove_nothing() -> None:
    assert not any(verdicts([], 0, 1))


def test_a_hand_over_counts_when_somebody_waited_for_it() -> None:
    turns = [turn(0, 1, 1.0, 2.0), turn(1, 2, 2.25, 3.0, asked=1.5), turn(0, 3, 9.0, 9.5, asked=8.0)]
    assert hand_overs(turns) == [0.25]


def test_the_board_follows_the_workers() -> None:
    board = Board(1, [Row(100), Row(101), Row(102)])
    for index in (0, 2, 1):
        board.apply(index, {"at": "ready"})
        board.apply(index, {"at": "asked", "time": float(index == 1)})
    board.apply(0, {"at": "began", "time": 2.0, "deadline": 9.0, "fence": 7})
    assert (board.holders, board.queue, board.total) == ([0], [2, 1], 3)
    board.apply(0, {"at": "ended", "time": 3.0})
    assert (board.holders, board.rows[0].phase, board.turns) == ([], "done", [Turn(0, 7, 0.0, 2.0, 3.0, 9.0)])


@pytest.mark.parametrize("event", [{"at": "failed", "why": "no server"}, {"at": "ended"}, {}])
def test_the_board_takes_no_failure_for_an_event(event: dict[str, object]) -> None:
    with pytest.raises(WorkerFailed, match="worker 1"):
        Board(1, [Row(100)]).apply(0, event)
