"""House rules about the public interface: its names, its docstrings, and that both flavours are the same."""

from __future__ import annotations

import inspect
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

import tenure
from tenure import errors, events, manager_base

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

NAMES = {
    *("Locks", "AsyncLocks", "Lock", "AsyncLock", "Lease", "AsyncLease", "Holder", "Waiter", "Released"),
    *("Ran", "Skipped"),
    *("TenureError", "ConfigError", "NotAcquired", "LeaseLost", "NotHeld", "AlreadyHeld", "StaleFence", "NameConflict"),
    *("ServerError", "ServerUnavailable", "ServerReadOnly", "PermissionDenied", "QuorumFailed"),
    "__version__",
}

PAIRS = [("Locks", "AsyncLocks"), ("Lock", "AsyncLock"), ("Lease", "AsyncLease")]

ALLOWED_DIFFERENCES = {"cancel_on_lost"}
"""Parameters of the asyncio flavour alone: only a task can be cancelled from outside."""

ASYNC_SPELLINGS = {"__aenter__": "__enter__", "__aexit__": "__exit__", "__aiter__": "__iter__", "__anext__": "__next__"}


def public_classes(module: ModuleType) -> dict[str, type]:
    """Return the classes that a module defines and does not hide."""
    return {
        name: value
        for name, value in vars(module).items()
        if inspect.isclass(value) and value.__module__ == module.__name__ and not name.startswith("_")
    }


def members(cls: type) -> dict[str, object]:
    """Return a class's own interface: public names and the methods of protocols, inherited ones of ours included."""
    found: dict[str, object] = {}
    for base in reversed(cls.__mro__):
        if base.__module__.partition(".")[0] == "tenure":
            found |= vars(base)
    spoken = {"__call__", *ASYNC_SPELLINGS, *ASYNC_SPELLINGS.values()}
    return {
        ASYNC_SPELLINGS.get(name, name): value
        for name, value in found.items()
        if (not name.startswith("_") or name in spoken)
        and (callable(value) or isinstance(value, property | classmethod | staticmethod))
    }


def function(member: object) -> Callable[..., object]:
    """Return what carries the signature and the docstring of a member."""
    if isinstance(member, property):
        member = member.fget
    elif isinstance(member, classmethod | staticmethod):
        member = cast("classmethod[object, ..., object]", member).__func__
    return cast("Callable[..., object]", member)


def without_async(text: str) -> str:
    """Spell asyncio's way of saying something in the blocking flavour's words."""
    # A decorator takes and returns coroutine functions where the other takes and returns plain ones.
    text = re.sub(r"\bCoroutine\[Any, Any, (\w+)\]", r"\1", text)
    # A function that is called under a lock may wait, in the flavour where waiting is not blocking.
    text = re.sub(r"\bAwaitable\[([^][]+)\]", r"\1", text)
    return re.sub(r"\b(?:await|async) |\bAsync(?=[A-Z])", "", text)


def signature(member: object) -> list[tuple[str, ...]]:
    """Return a member's parameters and result as comparable text."""
    taken = inspect.signature(function(member))
    parameters = [
        (name, str(p.kind), without_async(str(p.annotation)), without_async(repr(p.default)))
        for name, p in taken.parameters.items()
        if name not in ALLOWED_DIFFERENCES
    ]
    result = without_async(str(taken.return_annotation))
    # `def f() -> Coroutine[Any, Any, X]` is another spelling of `async def f() -> X`.
    result = re.sub(r"^(?:Coroutine\[Any, Any, (.*)\]|Awaitable\[(.*)\])$", lambda m: m[1] or m[2], result)
    return [*parameters, (result,)]


def docstring(member: object) -> str:
    """Return a member's docstring without what an allowed difference adds, in the blocking flavour's words."""
    text = f"{inspect.getdoc(function(member)) or ''}\n"
    for name in ALLOWED_DIFFERENCES:
        text = re.sub(rf"^( +){name}:.*\n(?:\1 +.*\n)*", "", text, flags=re.MULTILINE)
    return without_async(text)


def test_the_public_names_are_these_and_no_others() -> None:
    assert set(tenure.__all__) == NAMES | set(public_classes(events))
    assert len(tenure.__all__) == len(set(tenure.__all__))
    visible = {n for n, v in vars(tenure).items() if not n.startswith("_") and not inspect.ismodule(v)}
    assert visible <= set(tenure.__all__) | {"annotations"}


def test_every_error_is_public() -> None:
    assert set(public_classes(errors)) <= set(tenure.__all__)


def test_the_version_is_the_packages() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert tenure.__version__ == project["version"]


@pytest.mark.parametrize("name", sorted(set(tenure.__all__) - {"__version__"}))
def test_everything_public_has_a_docstring(name: str) -> None:
    thing = getattr(tenure, name)
    silent = [m for m, value in members(thing).items() if not m.startswith("__") and not docstring(value).strip()]
    # A dataclass without a docstring gets its signature for one.
    assert (thing.__doc__ or "").strip()
    assert not thing.__doc__.startswith(f"{name}("), f"{name} has no docstring"
    assert not silent, f"no docstring: {', '.join(f'{name}.{m}' for m in silent)}"


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair[0])
class TestBothFlavoursAreTheSame:
    def test_members(self, pair: tuple[str, str]) -> None:
        blocking, aio = (members(getattr(tenure, name)) for name in pair)
        assert set(blocking) == set(aio)

    def test_signatures(self, pair: tuple[str, str]) -> None:
        blocking, aio = (members(getattr(tenure, name)) for name in pair)
        for name in blocking.keys() & aio.keys():
            assert signature(blocking[name]) == signature(aio[name]), f"{pair[0]}.{name}"
        classes = [getattr(tenure, name) for name in pair]
        assert signature(classes[0].__init__) == signature(classes[1].__init__), f"{pair[0]}()"

    def test_docstrings(self, pair: tuple[str, str]) -> None:
        blocking, aio = (members(getattr(tenure, name)) for name in pair)
        for name in blocking.keys() & aio.keys():
            assert docstring(blocking[name]) == docstring(aio[name]), f"{pair[0]}.{name}"
        classes = [getattr(tenure, name) for name in pair]
        assert docstring(classes[0]) == docstring(classes[1]), pair[0]


def test_the_one_allowed_difference_is_real() -> None:
    assert {"cancel_on_lost"} == ALLOWED_DIFFERENCES
    assert "cancel_on_lost" in inspect.signature(tenure.AsyncLocks.lock).parameters
    assert "cancel_on_lost" not in inspect.signature(tenure.Locks.lock).parameters


def test_whatever_runs_under_a_lock_has_the_defaults_of_lock() -> None:
    """`run`, `once` and others pass options through: what they do not name must be what `lock()` takes."""
    described = inspect.signature(tenure.Locks.lock).parameters
    defaults = {name: parameter.default for name, parameter in described.items() if name not in ("self", "names")}
    ours = dict(manager_base._DEFAULTS)
    assert ours.pop("apart") == 0, "of once() alone"
    assert ours == defaults | {"wait": 0}, "one try, unless they say otherwise"
