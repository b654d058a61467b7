"""Errors: what they are, what they carry, that they travel between processes, and that they keep secrets."""

from __future__ import annotations

import copy
import pickle
from typing import TYPE_CHECKING, Any, cast

import pytest

import tenure
from tenure import errors

if TYPE_CHECKING:
    from collections.abc import Callable

HOLDER = tenure.Holder("n", 7, "0a1b2c3d", "host", 42, "job", "me", {"k": 1}, None, 2.5)
ERRORS: list[tuple[tenure.TenureError, dict[str, object], type[Exception]]] = [
    (
        tenure.NotAcquired("m", names=("n",), waited=1.5, holder=HOLDER, position=3, retry_after=2.5),
        {"names": ("n",), "waited": 1.5, "holder": HOLDER, "position": 3, "retry_after": 2.5},
        TimeoutError,
    ),
    (tenure.NotAcquired("m"), {"names": (), "waited": 0.0, "holder": None, "retry_after": 1.0}, TimeoutError),
    (
        tenure.LeaseLost("m", names=("n",), reason="taken", held_for=2.0),
        {"names": ("n",), "reason": "taken", "held_for": 2.0},
        tenure.TenureError,
    ),
    (tenure.NotHeld("m", names=("n",)), {"names": ("n",)}, tenure.TenureError),
    (tenure.AlreadyHeld("m", names=("n",)), {"names": ("n",)}, tenure.TenureError),
    (tenure.StaleFence("m", fence=3, seen=4), {"fence": 3, "seen": 4}, tenure.TenureError),
    (tenure.NameConflict("m", names=("n",)), {"names": ("n",)}, tenure.TenureError),
    (tenure.ServerError("m", node="h:7", cause="c"), {"node": "h:7", "cause": "c"}, tenure.TenureError),
    (tenure.ServerUnavailable("m", node="h:7", cause="c"), {"node": "h:7", "cause": "c"}, ConnectionError),
    (tenure.ServerReadOnly("m", node="h:7", cause="c"), {"node": "h:7", "cause": "c"}, tenure.ServerError),
    (tenure.PermissionDenied("m", node="h:7", cause="c"), {"node": "h:7", "cause": "c"}, PermissionError),
    (tenure.QuorumFailed("m", nodes={"h:7": "down"}), {"nodes": {"h:7": "down"}}, tenure.ServerError),
    (tenure.ConfigError("m"), {}, ValueError),
]
IDS = [f"{type(error).__name__}{number}" for number, (error, _, _) in enumerate(ERRORS)]


def pickled(error: tenure.TenureError) -> tenure.TenureError:
    return pickle.loads(pickle.dumps(error))  # noqa: S301 - our own


@pytest.mark.parametrize(("error", "fields", "base"), ERRORS, ids=IDS)
def test_an_error_carries_its_facts_and_is_what_one_would_catch(
    error: tenure.TenureError, fields: dict[str, object], base: type[Exception]
) -> None:
    assert isinstance(error, base)
    assert isinstance(error, tenure.TenureError)
    assert str(error) == "m"
    assert {name: getattr(error, name) for name in fields} == fields


@pytest.mark.parametrize(("error", "fields", "base"), ERRORS, ids=IDS)
@pytest.mark.parametrize("way", [pickled, copy.copy, copy.deepcopy])
def test_an_error_survives_the_way_to_another_process(
    error: tenure.TenureError,
    fields: dict[str, object],
    base: type[Exception],
    way: Callable[[tenure.TenureError], tenure.TenureError],
) -> None:
    again = way(error)
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert {name: getattr(again, name) for name in fields} == fields
    assert again.args == error.args


def test_every_error_is_in_the_table() -> None:
    mine = {value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, Exception)}
    assert mine == {type(error) for error, _, _ in ERRORS} | {tenure.TenureError}


@pytest.mark.parametrize(
    ("holder", "words"),
    [
        (HOLDER, "job (pid 42 on host), me"),
        (tenure.Holder("n", 7, "0a1b2c3d", "host", 42, "job", None, None, None, 2.5), "job (pid 42 on host)"),
        (
            tenure.Holder("n", None, "0a1b2c3d", "?", None, "?", None, None, None, None, foreign=True),
            "a client of another library (value #0a1b2c3d)",
        ),
    ],
)
def test_a_holder_is_shown_in_words(holder: tenure.Holder, words: str) -> None:
    assert str(holder) == words


def test_records_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        cast("Any", HOLDER).name = "other"
