"""The history checkers: good and bad histories made by hand, and brute force over small ones."""

from __future__ import annotations

import math
import random
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.harness.checkers import (
    check_all,
    check_arrival_order,
    check_fence_order,
    check_linearizable,
    check_overlap,
    check_register,
)
from tests.harness.history import Hold, Record, Recorder, deadline_now, hash_token, holds, read, summary
from tests.harness.processes import Worker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.harness.history import Op


def rec(op: Op, token: str, invoke: float, complete: float, **facts: Any) -> Record:  # noqa: ANN401 - any field
    return Record("w", op, "lock", invoke, complete, token=token, **facts)


def turn(token: str, begin: float, fence: int) -> list[Record]:
    """One acquire and release of 1 s; the holder trusts itself for 2 s."""
    return [
        rec("acquire", token, begin, begin + 0.1, fence=fence, deadline=begin + 2, ttl=2),
        rec("release", token, begin + 1, begin + 1.1),
    ]


GOOD = [*turn("a", 0, 1), *turn("b", 1.1, 2), *turn("c", 5, 7)]


# Records


def write_records(path: str, worker: str, count: int) -> None:
    with Recorder(Path(path), worker) as recorder:
        for number in range(count):
            recorder.add("acquire", "lock", time.monotonic(), token=f"{worker}{number}", fence=number)


def test_records_of_several_processes_share_a_file(tmp_path: Path) -> None:
    path = tmp_path / "history"
    workers = [Worker.start(write_records, str(path), name, 200) for name in "ab"]
    for worker in workers:
        with worker:
            assert worker.wait() == 0
    with path.open("ab") as file:
        file.write(b'{"worker": "cut o')
    records = read(path)
    assert len(records) == 400
    assert sorted(records, key=lambda record: record.invoke) == records
    assert summary(records) == {"acquire ok": 400}
    assert {record.token for record in records if record.worker == "a"} == {f"a{number}" for number in range(200)}


def test_a_record_comes_back_as_it_was_written(tmp_path: Path) -> None:
    with Recorder(tmp_path / "history", "w") as recorder:
        facts: dict[str, Any] = {"outcome": "unknown", "token": hash_token(b"t"), "ttl": 1.5, "score": 3, "effect": "e"}
        written = recorder.add("acquire", "l", 1.25, complete=math.inf, **facts)
    assert read(tmp_path / "history") == [written]
    assert len(written.token) == 8
    assert deadline_now(10, 2.5) == 12.5


def test_a_hold_ends_with_the_release_the_loss_or_the_last_deadline() -> None:
    renewed = [rec("acquire", "a", 0, 1, fence=1, deadline=3), rec("renew", "a", 2, 2.5, deadline=5)]
    assert holds(renewed) == [Hold("w", "lock", "a", 1, 1, 5)]
    failed = rec("renew", "a", 4, 4.5, deadline=9, outcome="unknown")
    assert holds([*renewed, failed])[0].end == 5
    assert holds([*renewed, rec("release", "a", 2.75, 9, outcome="fail")])[0].end == 2.75
    assert holds([*renewed, rec("lost", "a", 4, 4)])[0].end == 4
    assert holds([rec("acquire", "a", 0, 1, deadline=0.5)])[0].end == 1
    assert holds([rec("acquire", "a", 0, 1, outcome="unknown")]) == []


# Overlap, fences, order, register


def test_a_good_history_passes_all() -> None:
    assert check_all(GOOD) == []
    assert check_all([]) == []


def test_an_overlap_is_found() -> None:
    late = rec("acquire", "b", 0.2, 0.9, fence=2, deadline=3)
    (violation,) = check_overlap([*turn("a", 0, 1), late])
    assert violation.rule == "overlap"
    assert "0.100000 s" in str(violation)
    assert check_overlap([*turn("a", 0, 1), rec("acquire", "b", 0.2, 1.0, fence=2, deadline=3)]) == []
    # A long hold is not forgotten behind a short one.
    nested = [rec("acquire", token, at, at, deadline=end) for token, at, end in [("a", 0, 9), ("b", 1, 2), ("c", 3, 4)]]
    assert len(check_overlap(nested)) == 2


def test_holders_past_their_deadline_do_not_overlap() -> None:
    paused = [rec("acquire", "a", 0, 0.1, deadline=2), rec("release", "a", 9, 9.1, outcome="fail")]
    assert check_overlap([*paused, rec("acquire", "b", 2, 2.1, deadline=4)]) == []


@pytest.mark.parametrize(
    ("fence", "begin", "expected"),
    [(2, 0.05, []), (2, 1, []), (0, 0.05, []), (0, 1, ["higher"]), (1, 1, ["higher", "twice"]), (1, 0.05, ["twice"])],
)
def test_a_fence_must_rise_only_over_grants_that_were_complete(fence: int, begin: float, expected: list[str]) -> None:
    first = rec("acquire", "a", 0, 0.1, fence=1)
    violations = check_fence_order([rec("acquire", "b", begin, begin + 1, fence=fence), first])
    assert len(violations) == len(expected)
    for violation, words in zip(violations, expected, strict=True):
        assert words in violation.text


def test_arrival_order() -> None:
    def served(*scores: int | None) -> list[Record]:
        return [rec("acquire", f"t{fence}", 0, 9, fence=fence, score=score) for fence, score in enumerate(scores)]

    assert check_arrival_order(served(1, None, 2, 5)) == []
    assert [str(violation.evidence[1].token) for violation in check_arrival_order(served(1, 5, 2, 3, 6))] == [
        "t2",
        "t3",
    ]
    assert check_arrival_order(served(5, 2), exempt={"t1"}) == []


def test_the_register_holds_what_was_acknowledged_in_the_order_of_fences() -> None:
    writes = [rec("write", "", at, at + 1, fence=at, effect=f"e{at}") for at in range(3)]
    refused = rec("write", "", 5, 6, fence=0, effect="late", outcome="fail")
    maybe = rec("write", "", 5, 6, fence=3, effect="maybe", outcome="unknown")
    history = [*writes, refused, maybe]
    assert check_register(history, {"lock": ["e0", "e1", "e2"]}) == []
    assert check_register(history, {"lock": ["e0", "e1", "e2", "maybe"]}) == []

    def texts(stored: list[str], *, fenced: bool = True) -> list[str]:
        return [violation.text for violation in check_register(history, {"lock": stored}, fenced=fenced)]

    assert texts(["e0", "e2"]) == ["an acknowledged write was lost"]
    assert texts(["e0", "e2", "e1"]) == ["stored after a write with a higher fence"]
    assert texts(["e0", "e2", "e1"], fenced=False) == []
    assert texts(["e0", "e1", "e2", "late"]) == [
        "a refused write took effect",
        "stored after a write with a higher fence",
    ]
    assert texts(["e0", "e1", "e1", "e2"]) == ["'e1' stored twice"]


# Linearizability


UNKNOWN_RELEASE = rec("release", "a", 1, 1.1, outcome="unknown")
GRANT_A = rec("acquire", "a", 0, 0.1, fence=1, ttl=2)


@pytest.mark.parametrize(
    ("history", "fine"),
    [
        pytest.param(GOOD, True, id="good"),
        pytest.param([GRANT_A, rec("acquire", "b", 1, 1.5, fence=2)], False, id="granted twice"),
        pytest.param([GRANT_A, rec("acquire", "b", 1, 2, fence=2)], True, id="granted at the end of the ttl"),
        pytest.param(
            [GRANT_A, rec("renew", "a", 1, 1.1, ttl=2), rec("acquire", "b", 1.2, 2.9, fence=2)], False, id="renewed"
        ),
        pytest.param([GRANT_A, rec("renew", "a", 3, 3.1)], True, id="renewed late, still there"),
        pytest.param(
            [GRANT_A, rec("acquire", "b", 2, 2.1, fence=2), rec("renew", "a", 3, 3.1)], False, id="back from the dead"
        ),
        pytest.param([GRANT_A, rec("acquire", "b", 3, 3.1, fence=1)], False, id="stale fence"),
        pytest.param([GRANT_A, UNKNOWN_RELEASE, rec("acquire", "b", 1.2, 1.3, fence=2)], True, id="unknown release"),
        pytest.param([GRANT_A, UNKNOWN_RELEASE, rec("renew", "a", 1.2, 1.3)], True, id="unknown release, no effect"),
        pytest.param(
            [GRANT_A, rec("acquire", "b", 0.3, 0.4, fence=2), UNKNOWN_RELEASE], False, id="unknown release too late"
        ),
        pytest.param([rec("release", "a", 0, 1)], False, id="released what was not held"),
        pytest.param([GRANT_A, rec("release", "a", 1, 1.1, outcome="fail")], False, id="refused to the owner"),
        pytest.param([GRANT_A, rec("release", "a", 1, 2.1, outcome="fail")], True, id="refused after the end"),
        pytest.param(
            [rec("acquire", "a", 0, 1, outcome="unknown"), rec("release", "a", 2, 3)], True, id="unknown acquire worked"
        ),
        pytest.param(
            [rec("acquire", "a", 2, 3, outcome="unknown"), rec("release", "a", 0, 1)], False, id="not before its call"
        ),
        pytest.param(
            [rec("acquire", "a", 0, 1, outcome="unknown"), *turn("b", 2, 1)], True, id="unknown acquire never worked"
        ),
    ],
)
def test_histories_made_by_hand(history: list[Record], fine: bool) -> None:
    assert (check_linearizable(history) == []) is fine
    assert brute_force(history) is fine


def brute_force(history: Sequence[Record]) -> bool:
    """Try every order of the operations' effects and of the leases' own ends: the definition, no cleverness."""
    required = {index for index, record in enumerate(history) if record.outcome != "unknown"}

    def expiry(token: str) -> float:
        proofs = [
            record.invoke + record.ttl
            for record in history
            if record.token == token
            and record.ttl is not None
            and (record.outcome == "ok" or (record.outcome == "unknown" and record.op == "acquire"))
        ]
        return max(proofs, default=math.inf)

    def effect(record: Record, owner: str, highest: int) -> tuple[str, int] | None:
        mine = owner == record.token
        match record.op, record.outcome:
            case "acquire", "fail":
                return owner, highest
            case "acquire", _:
                if owner or (record.fence is not None and record.fence <= highest):
                    return None
                return record.token, highest if record.fence is None else record.fence
            case _, "fail":
                return None if mine else (owner, highest)
            case "release", _:
                return ("", highest) if mine else None
            case _:
                return (owner, highest) if mine else None

    def search(done: frozenset[int], owner: str, highest: int, now: float) -> bool:
        if required <= done:
            return True
        if owner and expiry(owner) < math.inf and search(done, "", highest, max(now, expiry(owner))):
            return True
        for index in set(range(len(history))) - done:
            record = history[index]
            at = max(now, record.invoke)
            if at > (math.inf if record.outcome == "unknown" else record.complete):
                continue
            after = effect(record, owner, highest)
            if after is not None and search(done | {index}, *after, at):
                return True
        return False

    return search(frozenset(), "", -1, -math.inf)


def random_history(rng: random.Random) -> list[Record]:
    acquired: set[str] = set()
    history: list[Record] = []
    for _ in range(rng.randint(1, 4)):
        token = rng.choice("ab")
        op: Op = "acquire" if token not in acquired and rng.random() < 0.8 else rng.choice(["release", "renew"])
        acquired |= {token} if op == "acquire" else set()
        begin = rng.randint(0, 6)
        outcome = rng.choices(["ok", "fail", "unknown"], [6, 2, 3])[0]
        facts: dict[str, Any] = {"outcome": outcome, "ttl": rng.choice([None, 1, 2]) if op != "release" else None}
        if op == "acquire" and outcome == "ok":
            facts["fence"] = rng.randint(0, 2)
        history.append(rec(op, token, begin, begin + rng.randint(0, 4), **facts))
    return history


def test_the_checker_agrees_with_brute_force_on_small_histories() -> None:
    rng = random.Random(20)
    verdicts = {True: 0, False: 0}
    for _ in range(6000):
        history = random_history(rng)
        fine = brute_force(history)
        assert (check_linearizable(history) == []) is fine, history
        verdicts[fine] += 1
    assert min(verdicts.values()) > 1000, verdicts


def long_history(grants: int, rng: random.Random) -> list[Record]:
    """Eight workers take turns; their calls overlap; some replies are lost."""
    history: list[Record] = []
    now = 0.0
    for number in range(grants):
        token, begin = f"t{number}", now
        lost = rng.random() < 0.02
        outcome = {"outcome": "unknown"} if lost else {"fence": number}
        history.append(rec("acquire", token, max(begin - rng.random() * 8, 0), begin + 0.5, ttl=30, **outcome))
        end = begin + 0.4 + rng.random()
        unknown = {"outcome": "unknown"} if rng.random() < 0.02 else {}
        history += [rec("renew", token, end, end + 0.2, ttl=30), rec("release", token, end + 0.2, end + 0.7, **unknown)]
        now = end + 0.3
    return history


def test_a_long_history_is_decided_and_one_planted_error_found() -> None:
    history = long_history(2000, random.Random(1))
    assert check_linearizable(history) == []
    broken = [record for record in history if (record.op, record.token) != ("release", "t1500")]
    (violation,) = check_linearizable(broken)
    assert "t1501" in {record.token for record in violation.evidence}


def test_a_search_that_is_too_long_is_no_verdict() -> None:
    with pytest.raises(AssertionError, match="undecided"):
        check_linearizable(GOOD, most_steps=2)
