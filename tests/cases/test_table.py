"""Failures of other lock libraries, from public bug reports: which test shows that ours does not have them.

The numbers are those of the list of cases; a case that is not tested here says why.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
LAST = 47
QUORUM = "a quorum of servers is not in this version"

CASES: dict[int, tuple[str, ...] | str] = {
    1: ("test_lost_replies.py::test_a_try_whose_reply_was_lost_is_not_called_busy",),
    2: (
        "test_lost_replies.py::test_a_release_whose_reply_was_lost_raises_nothing",
        "test_lost_replies.py::test_a_renewal_whose_reply_was_lost_does_not_add_twice",
    ),
    3: (
        "test_lost_replies.py::test_a_cancelled_acquire_leaves_no_key",
        "test_lost_replies.py::test_an_interrupted_acquire_leaves_no_key",
    ),
    4: (
        "test_lost_replies.py::test_a_release_that_failed_can_be_tried_again",
        "test_lost_replies.py::test_a_release_that_was_cancelled_can_be_tried_again",
    ),
    5: (
        "test_lost_replies.py::test_an_acquire_that_ran_out_of_time_leaves_no_key",
        "test_lost_replies.py::test_a_timeout_around_an_acquire_leaves_no_key",
    ),
    6: ("test_possession.py::test_a_late_release_leaves_the_lease_of_the_next_user_of_the_same_object",),
    7: ("test_possession.py::test_a_lease_can_be_released_by_another_thread_or_task",),
    8: ("test_waiting.py::test_a_release_between_the_try_and_the_sleep_wakes_the_waiter",),
    9: ("test_waiting.py::test_release_and_wake_up_are_one_step",),
    10: (
        "test_waiting.py::test_the_last_waiter_wakes_after_its_connections_were_cut",
        "test_waiting.py::test_a_lost_message_costs_a_poll_and_not_the_ttl",
    ),
    11: ("test_waiting.py::test_dead_waiters_in_front_cost_nothing",),
    12: (
        "test_waiting.py::test_a_waiter_that_was_dropped_from_the_queue_comes_back",
        "test_waiting.py::test_the_first_waiter_wakes_when_the_holder_just_expires",
    ),
    13: ("test_waiting.py::test_late_comers_do_not_win",),
    14: ("test_possession.py::test_nothing_is_renewed_after_the_release",),
    15: ("test_lost_replies.py::test_a_failed_renewal_is_tried_again_before_the_deadline",),
    16: (
        "test_losing.py::test_a_holder_is_told_of_its_loss",
        "test_losing.py::test_a_loss_cancels_the_body_of_an_async_block",
    ),
    17: ("test_waiting.py::test_a_grant_that_comes_after_its_own_end_is_not_handed_out",),
    18: ("test_waiting.py::test_a_lease_is_counted_from_the_try_that_won",),
    19: QUORUM,
    20: ("test_possession.py::test_the_release_of_an_expired_lease_answers_at_once",),
    21: ("test_possession.py::test_errors_tell_busy_from_lost_from_misused",),
    22: (
        "test_possession.py::test_a_release_says_what_it_found",
        "test_possession.py::test_a_renewal_renews",
    ),
    23: ("test_possession.py::test_no_verb_touches_the_key_of_another",),
    24: ("test_possession.py::test_a_renewal_does_not_bring_a_lease_back_to_life",),
    25: ("test_possession.py::test_a_renewal_by_nothing_or_less_is_refused",),
    26: (
        "test_possession.py::test_times_that_cannot_work_are_refused_before_any_request",
        "test_possession.py::test_fractions_of_a_second_are_taken_as_they_are",
    ),
    27: ("test_possession.py::test_renewing_often_does_not_add_up",),
    28: (
        "test_modes.py::test_names_in_different_orders_do_not_wait_for_each_other",
        "test_modes.py::test_giving_up_on_several_leaves_none_of_them_held",
    ),
    29: (
        "test_modes.py::test_one_try_at_several_free_locks_is_a_try",
        "test_modes.py::test_several_have_one_budget_of_waiting",
        "test_modes.py::test_the_reason_of_a_failure_is_not_hidden_by_the_rollback",
    ),
    30: (
        "test_modes.py::test_a_reader_that_died_does_not_keep_writers_out",
        "test_modes.py::test_a_reader_renews_its_own_place_alone",
    ),
    31: (
        "test_modes.py::test_places_of_a_semaphore_neither_multiply_nor_vanish",
        "test_modes.py::test_a_release_wakes_who_waits_for_a_place",
    ),
    32: ("test_keys.py::test_every_key_has_an_end_and_only_fences_stay",),
    33: ("test_keys.py::test_all_keys_of_a_lock_share_a_slot_whatever_braces_its_name_has",),
    34: ("test_keys.py::test_every_script_call_declares_its_keys",),
    35: ("test_keys.py::test_scripts_are_sent_again_when_the_server_has_forgotten_them",),
    36: ("test_keys.py::test_a_client_that_decodes_replies_can_release",),
    37: (
        "test_losing.py::test_no_lock_no_body",
        "test_losing.py::test_the_error_of_the_body_is_not_hidden_by_the_loss",
        "test_losing.py::test_an_error_in_the_body_releases_the_lock",
    ),
    38: ("test_possession.py::test_a_forked_child_cannot_end_the_lease_of_its_parent",),
    # Under gevent: tests/contrib/for_gevent.
    39: (
        "test_losing.py::test_a_busy_main_thread_does_not_lose_the_lease",
        "test_losing.py::test_a_blocked_event_loop_does_not_lose_the_lease",
    ),
    40: ("test_waiting.py::test_the_event_loop_runs_while_a_task_waits",),
    41: (
        "test_lost_replies.py::test_without_a_server_nobody_gets_a_lease",
        "test_lost_replies.py::test_a_holder_without_a_server_stops_at_its_own_deadline",
    ),
    # A check of the server's settings before anything is lost (`doctor`): not in this version.
    42: ("test_losing.py::test_a_full_cache_server_that_evicts_locks_is_noticed",),
    43: ("test_losing.py::test_the_lock_of_a_killed_process_ends_by_itself",),
    44: ("test_losing.py::test_a_command_is_stopped_when_its_lease_is_lost",),
    45: ("test_waiting.py::test_a_wait_ends_in_time_though_the_clock_is_set",),
    46: (
        "test_losing.py::test_killed_connections_neither_free_the_lock_nor_let_two_hold_it",
        "test_losing.py::test_a_loss_is_told_to_its_holder_alone",
    ),
    47: ("test_waiting.py::test_waiting_without_messages_is_not_a_busy_loop",),
}


def symptoms_in(file: str) -> dict[str, str | None]:
    """The test functions of a file and their docstrings."""
    tree = ast.parse((FOLDER / file).read_text("utf-8"))
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]
    return {function.name: ast.get_docstring(function) for function in functions}


FILES = {path.name: symptoms_in(path.name) for path in FOLDER.glob("test_*.py") if path.name != Path(__file__).name}


def test_no_case_is_forgotten() -> None:
    assert list(CASES) == list(range(1, LAST + 1))


@pytest.mark.parametrize("number", CASES)
def test_each_case_has_a_test_that_tells_its_symptom_or_a_reason(number: int) -> None:
    case = CASES[number]
    if isinstance(case, str):
        assert "not in this version" in case
        return
    assert case
    for name in case:
        file, _, function = name.partition("::")
        symptom = FILES[file].get(function)
        assert symptom, f"{name} is gone, or its docstring"
        assert "\n" not in symptom


def test_every_test_tells_the_symptom_in_one_line() -> None:
    for file, functions in FILES.items():
        for function, symptom in functions.items():
            assert symptom, f"{file}::{function}"
            assert len(symptom.splitlines()) == 1
