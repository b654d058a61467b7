"""The tables of docs/errors.md about arguments are true: every row is run, without a server."""

from __future__ import annotations

import asyncio
import re
import sys
import types
from typing import TYPE_CHECKING, Any, NoReturn

import pytest
import redis

import tenure
from tests.docs.pages import ROOT, code, rows

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

PAGE = ROOT / "docs" / "errors.md"
SECTIONS = ("Names", "Durations and options", "Decorators", "Settings", "Servers")
ROWS = [[code(cell) for cell in row[:3]] for heading in SECTIONS for row in rows(PAGE, f"### {heading}")]


def matches(message: str, shape: str) -> bool:
    """Whether a message has one of the shapes that the page shows; `…` stands for anything."""
    patterns = [".*".join(re.escape(part) for part in one.split("…")) for one in shape.split("` or `")]
    return any(re.fullmatch(pattern, message, re.DOTALL) for pattern in patterns)


class Unreachable:
    """A client that is never to be used: what is raised before any I/O does not come here."""

    node = "nowhere"

    def connect(self, timeout: float) -> NoReturn:
        raise AssertionError("a connection was asked for")

    async def connect_async(
        self, timeout: float, *, on_lost: Callable[[], None], on_push: Callable[[Any], None] | None = None
    ) -> NoReturn:
        raise AssertionError("a connection was asked for")

    def forked(self) -> None:
        raise AssertionError

    def close(self) -> None:
        """Nothing is open."""


def plain(user: str) -> str:
    return user


async def coroutine() -> None:
    await asyncio.sleep(0)


def generator() -> Generator[None]:
    yield


@pytest.fixture
def names() -> Iterator[dict[str, Any]]:
    client = Unreachable()
    with tenure.Locks(client) as locks:
        async_locks = tenure.AsyncLocks(client)
        yield {
            "tenure": tenure,
            "redis": redis,  # with its submodule asyncio
            "client": client,
            "locks": locks,
            "async_locks": async_locks,
            "plain": plain,
            "coroutine": coroutine,
            "generator": generator,
        }
        asyncio.run(async_locks.close())


@pytest.mark.parametrize(("what", "error", "shape"), ROWS, ids=[row[0] for row in ROWS])
def test_the_error_is_as_the_page_says(what: str, error: str, shape: str, names: dict[str, Any]) -> None:
    with pytest.raises((tenure.TenureError, TypeError)) as caught:
        eval(what, names)  # noqa: S307 - an expression of our own page
    assert type(caught.value).__name__ == error
    assert matches(str(caught.value), shape), f"{caught.value}\nis not\n{shape}"


def test_no_table_was_lost() -> None:
    assert len(ROWS) > 70


@pytest.mark.parametrize("value", [True, float("nan"), [1], "1"])
@pytest.mark.parametrize("option", ["ttl", "wait", "max_hold", "warn_after"])
def test_every_duration_is_checked_alike(option: str, value: object, names: dict[str, Any]) -> None:
    wishes: dict[str, Any] = {option: value}
    with pytest.raises(tenure.ConfigError, match=option):
        names["locks"].lock("a", **wishes)


def test_patched_threads_are_refused_as_the_page_says(monkeypatch: pytest.MonkeyPatch) -> None:
    patched = types.SimpleNamespace(is_module_patched="threading".__eq__, get_original=None)
    monkeypatch.setitem(sys.modules, "gevent.monkey", patched)
    with pytest.raises(tenure.ConfigError) as caught:
        tenure.Locks(Unreachable())
    assert f"`{caught.value}`" in PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("what", ["thread", "socket"])
@pytest.mark.parametrize("flavour", [tenure.Locks, tenure.AsyncLocks])
def test_eventlet_is_refused_as_the_page_says(
    what: str, flavour: type[tenure.Locks | tenure.AsyncLocks], monkeypatch: pytest.MonkeyPatch
) -> None:
    patched = types.SimpleNamespace(is_monkey_patched=what.__eq__)
    monkeypatch.setitem(sys.modules, "eventlet.patcher", patched)
    with pytest.raises(tenure.ConfigError) as caught:
        flavour(Unreachable())
    assert f"`{caught.value}`" in PAGE.read_text(encoding="utf-8")


def test_a_shape_is_compared_as_a_whole() -> None:
    assert matches("held by a, 3 s left", "held by …, … s left")
    assert not matches("held by a, 3 s left", "held by …, … s")
