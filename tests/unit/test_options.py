# ruff: noqa: ANN401 - whatever a caller may pass
"""Arguments are refused before anything has happened, with an error that names them and what is allowed."""

from __future__ import annotations

import asyncio
import math
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tenure
from tenure import options
from tenure.options import to_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FEW = settings(max_examples=60)


class Untouchable:
    """A client of which nobody may want a connection."""

    node = "nowhere"

    def connect(self, timeout: float) -> NoReturn:
        pytest.fail("a connection was asked for")

    async def connect_async(self, timeout: float, **_: object) -> NoReturn:
        pytest.fail("a connection was asked for")

    def forked(self) -> None: ...

    def close(self) -> None: ...


class Unshowable:
    def __repr__(self) -> str:
        raise ZeroDivisionError


@pytest.fixture(params=[tenure.Locks, tenure.AsyncLocks])
def locks(request: pytest.FixtureRequest) -> Iterator[Any]:
    made: Any = request.param(Untouchable())
    yield made
    if request.param is tenure.Locks:
        made.close()
    else:
        asyncio.run(made.close())


async def coroutine(_: object) -> None: ...


class CallableCoroutine:
    async def __call__(self, _: object) -> None: ...


NOT_SECONDS: list[tuple[Any, str]] = [
    (True, "must be a number of seconds or a timedelta, not True"),
    (False, "must be a number of seconds or a timedelta, not False"),
    ("5", "must be a number of seconds or a timedelta, not '5'"),
    ([5], r"must be a number of seconds or a timedelta, not \[5\]"),
    (b"5", "must be a number of seconds"),
    ({}, "must be a number of seconds"),
    (5j, "must be a number of seconds"),
    (math.nan, "must be a finite number of seconds, not nan"),
    (math.inf, "must be a finite number of seconds, not inf"),
    (-math.inf, "must be a finite number of seconds, not -inf"),
    (10**400, "must be a finite number of seconds"),
    (10**5000, "must be a finite number of seconds, not a int"),
    (Unshowable(), "must be a number of seconds or a timedelta, not a Unshowable"),
    ("x" * 100, r"x{20,60}…$"),
]
NAMES: list[tuple[tuple[Any, ...], str]] = [
    ((), "a lock needs a name"),
    (("",), "must not be empty"),
    (("  \t ",), "must not be empty or only spaces"),
    ((b"",), "must not be empty"),
    ((b"  ",), "must not be empty or only spaces"),
    (("x" * 513,), "has 513 bytes; at most 512"),
    (("ü" * 257,), "has 514 bytes; at most 512"),
    ((b"x" * 513,), "has 513 bytes; at most 512"),
    (("\ud800",), "lone surrogate"),
    (("a\0",), "control character"),
    (("a\r\nb",), "control character"),
    (("a\x7f",), "control character"),
    (("a\x85",), "control character"),
    ((b"a\n",), "control character"),
    ((True,), "must be a str or bytes, not True"),
    ((5,), "must be a str or bytes, not 5"),
    ((None,), "must be a str or bytes, not None"),
    ((Path("a"),), "must be a str or bytes"),
    ((["a"],), "must be a str or bytes"),
    ((bytearray(b"a"),), "must be a str or bytes"),
    (("a", 5), "5 is not the name of a lock; durations are given by keyword"),
    (("a", 5.5), "5.5 is not the name of a lock"),
    (("a", None), "None is not the name of a lock"),
    (("a", timedelta(1)), "is not the name of a lock"),
    (("a", ""), "must not be empty"),
    (("a", "b", "c\n"), "contains a control character"),
    (tuple(map(str, range(101))), "101 names in one lock; at most 100 are allowed"),
]
OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"ttl": 0}, "ttl must be at least 0.01 and at most 86400 seconds, not 0"),
    ({"ttl": -1}, "ttl must be at least 0.01"),
    ({"ttl": 0.005}, "ttl must be at least 0.01"),
    ({"ttl": 86401}, "at most 86400 seconds, not 86401"),
    ({"ttl": timedelta(seconds=-1)}, "ttl must be at least"),
    ({"ttl": timedelta(days=2)}, "ttl must be at least 0.01 and at most 86400"),
    ({"ttl": None}, "ttl must be a number of seconds"),
    ({"wait": -1}, "wait must be at least 0 seconds, not -1"),
    ({"wait": timedelta(seconds=-1)}, "wait must be at least 0"),
    ({"max_hold": 0}, "max_hold must be more than 0"),
    ({"max_hold": -1}, "max_hold must be more than 0"),
    ({"warn_after": 0}, "warn_after must be more than 0"),
    ({"renew": 1}, "renew must be True or False, not 1"),
    ({"renew": None}, "renew must be True or False, not None"),
    ({"renew": "no"}, "renew must be True or False"),
    ({"info": 5}, "info must be a str or a flat mapping, not 5"),
    ({"info": ["a"]}, "info must be a str or a flat mapping"),
    ({"info": b"a"}, "info must be a str or a flat mapping"),
    ({"info": {5: "a"}}, "info: the key 5 must be a str"),
    ({"info": {"a": {}}}, "info: the value of 'a' must be.*nothing nested"),
    ({"info": {"a": [1]}}, "nothing nested"),
    ({"info": {"a": math.nan}}, "info: 'a' must be finite"),
    ({"info": {"a": 10**5000}}, "info cannot be encoded"),
    ({"info": {"a": "\ud800"}}, "info cannot be encoded"),
    ({"info": "\ud800"}, "info .*lone surrogate"),
    ({"info": "a\nb"}, "info .*control character"),
    ({"info": "x" * 1025}, "info has 1025 bytes; at most 1024"),
    ({"info": {"a": "ü" * 600}}, "info has 12.. bytes as JSON; at most 1024"),
    ({"on_lost": 5}, "on_lost must be callable, not 5"),
    ({"on_lost": coroutine}, "on_lost must be a plain function, not a coroutine function"),
    ({"on_lost": CallableCoroutine()}, "on_lost must be a plain function"),
    ({"on_exit_lost": "ignore"}, "on_exit_lost must be 'raise' or 'note', not 'ignore'"),
    ({"on_exit_lost": None}, "on_exit_lost must be"),
    ({"on_exit_lost": True}, "on_exit_lost must be"),
]
SETTINGS: list[tuple[dict[str, Any], str]] = [
    ({"namespace": None}, "namespace must be a str, not None"),
    ({"namespace": b"a"}, "namespace must be a str"),
    ({"namespace": "a:b"}, "namespace 'a:b' must not contain ':'"),
    ({"namespace": "{a}"}, "must not contain"),
    ({"namespace": "a}"}, "must not contain"),
    ({"namespace": "x" * 65}, "namespace has 65 bytes; at most 64"),
    ({"namespace": "a\n"}, "control character"),
    ({"namespace": "\ud800"}, "lone surrogate"),
    ({"server_timeout": 0}, "server_timeout must be more than 0"),
    ({"server_timeout": None}, "server_timeout must be a number"),
    ({"server_timeout": 3601}, "at most 3600"),
    ({"grace": -1}, "grace must be at least 0"),
    ({"max_ttl": 0}, "max_ttl must be at least 0.01"),
    ({"max_ttl": None}, "max_ttl must be a number"),
    ({"drift": -0.01}, "drift must be a number from 0 to 0.2"),
    ({"drift": 0.21}, "drift must be a number from 0 to 0.2"),
    ({"drift": math.nan}, "drift must be a number from 0 to 0.2"),
    ({"drift": True}, "drift must be a number"),
    ({"drift": "0.1"}, "drift must be a number"),
    ({"identity": 5}, "identity must be a str, not 5"),
    ({"identity": "x" * 129}, "identity has 129 bytes; at most 128"),
    ({"identity": "a\tb"}, "identity .*control character"),
    ({"hooks": 5}, "hooks must be a list of functions, not 5"),
    ({"hooks": print}, "hooks must be a list of functions"),
    ({"hooks": [None]}, "each of hooks must be callable, not None"),
    ({"hooks": [print, coroutine]}, "each of hooks must be a plain function"),
    ({"embedded": 1}, "embedded must be True or False"),
    ({"embedded": None}, "embedded must be True or False"),
]
SERVERS: list[tuple[Any, str]] = [
    (5, "must be a URL or a client of redis-py, valkey-py or coredis, not int"),
    (True, "must be a URL or a client"),
    (object(), "must be a URL or a client of redis-py, valkey-py or coredis, not object"),
    (["redis://a", "redis://b"], "quorum of several servers is not supported by this version"),
    (("redis://a",), "quorum of several servers"),
    ("", "the server URL is empty"),
    ("  ", "the server URL is empty"),
]
USES: list[tuple[Callable[[Any], Any], str]] = [
    (lambda locks: locks.lock("a").try_acquire(-1), "wait must be at least 0"),
    (lambda locks: locks.lock("a").try_acquire(True), "wait must be a number"),
    (lambda locks: locks.holder(5), "the name of a lock must be a str"),
    (lambda locks: locks.holders(""), "must not be empty"),
    (lambda locks: locks.waiters("a\n"), "control character"),
    (lambda locks: locks.break_lock(None), "the name of a lock must be a str"),
    (lambda locks: locks.break_lock("a", "5"), "fence must be a whole number"),
    (lambda locks: locks.break_lock("a", True), "fence must be a whole number"),
    (lambda locks: locks.break_lock("a", 1.0), "fence must be a whole number"),
    (lambda locks: locks.break_lock("a", -1), "that is not negative, not -1"),
    (lambda locks: locks.break_lock("a", force=1), "force must be True or False"),
    (lambda locks: locks.list(5), "prefix must be a str, not 5"),
    (lambda locks: locks.list("\ud800"), "prefix .*lone surrogate"),
    (lambda locks: locks.close(-1), "wait must be at least 0"),
]


def refused(call: Callable[[], object], words: str) -> None:
    with pytest.raises(tenure.ConfigError, match=words) as caught:
        call()
    assert isinstance(caught.value, ValueError)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(("names", "words"), NAMES)
def test_bad_names(locks: Any, names: tuple[Any, ...], words: str) -> None:
    refused(lambda: locks.lock(*names), words)


@pytest.mark.parametrize(("wrong", "words"), OPTIONS)
def test_bad_options(locks: Any, wrong: dict[str, Any], words: str) -> None:
    refused(lambda: locks.lock("a", **wrong), words)


@pytest.mark.parametrize("name", ["ttl", "wait", "max_hold", "warn_after"])
@pytest.mark.parametrize(("wrong", "words"), NOT_SECONDS, ids=range(len(NOT_SECONDS)))
def test_bad_durations(locks: Any, name: str, wrong: Any, words: str) -> None:
    refused(lambda: locks.lock("a", **{name: wrong}), words)
    refused(lambda: locks.lock("a", **{name: wrong}), f"^{name} must be")


@pytest.mark.parametrize(("wrong", "words"), SETTINGS)
@pytest.mark.parametrize("cls", [tenure.Locks, tenure.AsyncLocks])
def test_bad_settings(cls: Any, wrong: dict[str, Any], words: str) -> None:
    refused(lambda: cls(Untouchable(), **wrong), words)


@pytest.mark.parametrize(("server", "words"), SERVERS)
@pytest.mark.parametrize("cls", [tenure.Locks, tenure.AsyncLocks])
def test_bad_servers(cls: Any, server: Any, words: str) -> None:
    refused(lambda: cls(server), words)


@pytest.mark.parametrize(("use", "words"), USES, ids=range(len(USES)))
def test_bad_arguments_of_calls(locks: Any, use: Callable[[Any], Any], words: str) -> None:
    def call() -> None:
        result = use(locks)
        if asyncio.iscoroutine(result):
            asyncio.run(result)

    refused(call, words)


@pytest.mark.parametrize("wrong", [1, None, "yes"])
def test_cancel_on_lost_is_a_flag(wrong: Any) -> None:
    refused(lambda: tenure.AsyncLocks(Untouchable()).lock("a", cancel_on_lost=wrong), "cancel_on_lost must be True or")


def test_the_environment_names_a_server_or_forbids_the_embedded_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENURE_URL", "")
    refused(tenure.Locks, "the server URL is empty; set TENURE_URL")
    monkeypatch.setenv("TENURE_URL", "redis://h:7")
    assert "h:7" in repr(tenure.Locks())
    monkeypatch.delenv("TENURE_URL")
    refused(lambda: tenure.Locks(embedded=False), "embedded server is forbidden here")
    monkeypatch.setenv("TENURE_EMBEDDED", "0")
    refused(tenure.AsyncLocks, "no server: pass a URL or a client, or set TENURE_URL")


def test_good_values_become_seconds() -> None:
    defaults = options.defaults(space="n", server_timeout=5, grace=None, max_ttl=86400, drift=0.01, who=None)
    chosen = options.lock_options(
        defaults,
        ttl=timedelta(milliseconds=1500),
        wait_for=timedelta(0),
        renew=False,
        max_hold=None,
        note={"a": 1, "b": None, "c": True, "d": 1.5, "e": "x"},
        warn_after=None,
        on_lost=print,
        on_exit_lost="note",
    )
    assert (chosen.terms.ttl, chosen.terms.ttl_ms, chosen.wait, chosen.terms.renew) == (1.5, 1500, 0.0, False)
    # Nobody renews it, so by its ttl it is held too long.
    assert chosen.terms.warn_after == 1.5
    assert chosen.info == {"a": 1, "b": None, "c": True, "d": 1.5, "e": "x"}
    assert chosen.on_lost is print
    assert chosen.on_exit_lost == "note"


@pytest.mark.parametrize(
    ("renew", "max_hold", "warn_after", "result"),
    [(True, None, None, None), (True, 7, None, 7), (True, 7, 3, 3), (False, None, None, 30), (False, 7, 3, 3)],
)
def test_when_held_too_long_by_default(renew: bool, max_hold: Any, warn_after: Any, result: Any) -> None:
    lock = tenure.Locks(Untouchable()).lock("a", renew=renew, max_hold=max_hold, warn_after=warn_after)
    assert lock._options.terms.warn_after == result


@pytest.mark.parametrize(("ttl", "grace"), [(0.1, 0.021), (1, 0.03), (30, 0.32), (48, 0.5), (3600, 0.5)])
def test_the_grace_is_a_hundredth_and_20_ms_and_at_most_half_a_second(ttl: float, grace: float) -> None:
    assert tenure.Locks(Untouchable()).lock("a", ttl=ttl)._options.terms.grace == pytest.approx(grace)
    # Any length may be chosen instead: it is the lock-delay.
    assert tenure.Locks(Untouchable(), grace=60).lock("a", ttl=ttl)._options.terms.grace == 60


def test_the_longest_ttl_can_be_chosen() -> None:
    locks = tenure.Locks(Untouchable(), max_ttl=5)
    locks.lock("a", ttl=5)
    refused(lambda: locks.lock("a", ttl=5.001), "at most 5 seconds")
    # The default of 30 s is no exception.
    refused(lambda: locks.lock("a"), "at most 5 seconds")


@pytest.mark.parametrize(
    ("seconds", "ms"),
    [(0.0005, 1), (0.001, 1), (0.0011, 2), (0.3, 300), (1.1, 1100), (2.675, 2675), (10.5, 10500), (86400, 86400000)],
)
def test_milliseconds_are_rounded_up_but_not_for_binary_fractions(seconds: float, ms: int) -> None:
    assert to_ms(seconds) == ms


@FEW
@given(st.floats(min_value=1e-9, max_value=1e9))
def test_milliseconds_are_never_too_few(seconds: float) -> None:
    ms = to_ms(seconds)
    assert ms >= 1 or seconds < 1e-8
    assert seconds * 1000 - 1e-5 <= ms < seconds * 1000 + 1


@FEW
@given(st.one_of(st.text(max_size=30), st.binary(max_size=30), st.integers(), st.none(), st.floats()))
def test_any_name_is_taken_or_refused_as_such(name: Any) -> None:
    try:
        taken = options.lock_name(name)
    except tenure.ConfigError:
        return
    assert taken.encode("utf-8", "surrogateescape") == (name if isinstance(name, bytes) else name.encode())
