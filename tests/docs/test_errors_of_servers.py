"""The tables of docs/errors.md about use and servers are true: every row is brought about, in both flavours."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

import tenure
from tests.docs import conditions_of_servers
from tests.docs.conditions import CASES, SHORT, World
from tests.docs.pages import ROOT, code, rows
from tests.docs.test_errors_of_arguments import matches
from tests.harness.servers import Server

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = ROOT / "docs" / "errors.md"
USE = [(row[0], "", code(row[1]), code(row[2])) for row in rows(PAGE, "## Use")]
SERVERS = [(row[0], row[1], code(row[2]), code(row[3])) for row in rows(PAGE, "## Servers")]
LATE = 15.0
"""Seconds that a busy machine may add to a budget."""


@pytest.fixture(scope="module")
def spoiled() -> Iterator[Server]:
    """A server of this module's own, since its settings are changed."""
    with Server.start() as server:
        server.shared = True
        yield server


def contents(server: Server) -> dict[bytes, Any]:
    return {key: server.command("DUMP", key) for key in server.command("KEYS", "*")}


# Importing it has filled the table.
assert conditions_of_servers.__name__
FLAVOURS = {"blocking": False, "asyncio": True}
ROWS = [
    pytest.param(*row, asynchronous, id=f"{row[0]}-{flavour}")
    for row in USE + SERVERS
    for flavour, asynchronous in FLAVOURS.items()
    # What needs no server is in the base of both flavours, and runs once.
    if row in SERVERS or not asynchronous
]


@pytest.mark.parametrize(("what", "when", "error", "shape", "asynchronous"), ROWS)
def test_the_error_is_as_the_page_says(
    what: str, when: str, error: str, shape: str, spoiled: Server, request: pytest.FixtureRequest, *, asynchronous: bool
) -> None:
    told: list[BaseException] = []
    # With more patience where the last try of a short budget may have run out of time on a busy machine.
    for budget in (SHORT, 10 * SHORT, 40 * SHORT) if when == "within the budget" else (30.0,):
        spoiled.command("FLUSHALL")
        world = World(spoiled, asynchronous, budget, request)
        started = time.monotonic()
        with pytest.raises((tenure.TenureError, TypeError)) as caught:
            CASES[what](world)
        # The scripts, the settings and the server's own pauses are in it, so only the order of magnitude can be told.
        assert time.monotonic() - started < budget + LATE
        told.append(caught.value)
        if matches(str(caught.value), shape):
            break
    assert type(told[-1]).__name__ == error
    assert matches(str(told[-1]), shape), f"{told[-1]}\nis not\n{shape}"
    queue = {b"{tenure:n}:queue", b"{tenure:n}:entry"} & set(contents(spoiled))
    assert not queue or what == "the queue key holds a string"


@pytest.mark.parametrize(
    ("what", "key"), [("the key holds a list", "tenure:n"), ("the queue key holds a string", "{tenure:n}:queue")]
)
def test_what_is_no_lock_is_left_as_it_is(what: str, key: str, spoiled: Server, request: pytest.FixtureRequest) -> None:
    spoiled.command("FLUSHALL")
    with pytest.raises(tenure.NameConflict):
        CASES[what](World(spoiled, asynchronous=False, budget=30.0, request=request))
    assert list(contents(spoiled)) == [key.encode()]


def test_every_condition_is_on_the_page() -> None:
    assert set(CASES) == {row[0] for row in USE + SERVERS}


def test_the_overview_names_every_error_with_its_fields() -> None:
    listed = {code(row[0]): row for row in rows(PAGE, "# Errors")}
    public = {name for name in tenure.__all__ if isinstance(getattr(tenure, name), type)}
    assert set(listed) == {name for name in public if issubclass(getattr(tenure, name), tenure.TenureError)} - {
        "TenureError"
    }
    for name, row in listed.items():
        builtins = {base.__name__ for base in getattr(tenure, name).__mro__ if base.__module__ == "builtins"}
        assert not row[1] or code(row[1]) in builtins
        fields = {code(field.strip()) for field in row[2].split(",") if field}
        error: Exception = getattr(tenure, name)("x")
        assert set(vars(error)) == fields
