"""The procedures of the core in every order of every event, within each scenario's bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.model.explorer import explore
from tests.model.scenarios import SCENARIOS
from tests.model.walks import KINDS, walk

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize("name", SCENARIOS)
def test_no_schedule_breaks_a_promise(name: str, record_property: Callable[[str, object], None]) -> None:
    result = explore(SCENARIOS[name])
    record_property("schedules", result.schedules)
    record_property("states", result.states)
    assert not result.violations, result.report()
    assert result.complete, f"the bounds of {name!r} are too wide: {result.steps} steps were not enough"
    # A search that saw no end and no fault has shown nothing.
    assert result.ends
    assert bool(result.faults) == bool(SCENARIOS[name].budget)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("block", range(3))
def test_random_walks_break_no_promise(kind: str, block: int) -> None:
    for seed in range(block * 150, block * 150 + 150):
        violations, schedule = walk(seed, kind)
        assert not violations, "\n".join([f"walk({seed}, {kind!r}): {violations}", *schedule])


def test_the_same_search_twice_sees_the_same() -> None:
    first, second = (explore(SCENARIOS["lost twice"]) for _ in range(2))
    assert (first.schedules, first.states, first.faults) == (second.schedules, second.states, second.faults)


def test_a_violation_is_told_with_its_schedule() -> None:
    result = explore(SCENARIOS["three clients"], limit=10_000)
    result.note("order", "B was served before A", ["    0.000  request A.main acquire"])
    assert result.report() == "order: B was served before A\n        0.000  request A.main acquire"
