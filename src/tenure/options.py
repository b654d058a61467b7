"""Arguments, checked once and before any I/O; what passes here is in seconds, finite and in range."""

from __future__ import annotations

import functools
import json
import math
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Literal, TypedDict, cast

from .errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

Seconds = float | timedelta
Mode = Literal["exclusive", "shared", "semaphore"]
"""How a lock is held: by one alone, by all who share it, or by as many as a semaphore's limit says."""

MAX_NAME = 512
MAX_NAMES = 100
MAX_LIMIT = 100_000
MAX_NAMESPACE = 64
MAX_IDENTITY = 128
MAX_INFO = 1024
MIN_TTL = 0.01
MAX_DRIFT = 0.2
MAX_GRACE = 0.5
MAX_APART = 366 * 86400.0
_SHOWN = 60


def to_ms(seconds: float) -> int:
    """Milliseconds, rounded up: 0.0005 s must not become 0, which the server takes for no ttl at all."""
    whole = int(seconds * 1000)
    # Binary fractions (0.3 * 1000 is 300.00000000000006 at times) must not cost a millisecond.
    return whole if seconds * 1000 - whole < 1e-6 else whole + 1  # noqa: PLR2004


@dataclass(frozen=True, slots=True)
class Terms:
    """What a lease was asked for: times in seconds, checked by options.py."""

    ttl: float
    grace: float
    drift: float
    renew: bool
    max_hold: float | None
    warn_after: float | None
    mode: Mode = "exclusive"
    limit: int = 1
    """How many may hold at a time, for a semaphore."""

    ttl_ms: int = field(init=False)
    """The ttl as the server wants it."""
    grace_ms: int = field(init=False)
    """The grace as the server wants it."""

    packed: bytes = field(init=False)
    """Ttl and grace as two words of a command."""

    word: str = field(init=False)
    """The mode as the server wants it: x, s, or n and the limit."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "ttl_ms", to_ms(self.ttl))
        object.__setattr__(self, "grace_ms", to_ms(self.grace))
        object.__setattr__(
            self, "word", f"n{self.limit}" if self.mode == "semaphore" else self.mode[0].replace("e", "x")
        )
        ttl, grace = b"%d" % self.ttl_ms, b"%d" % self.grace_ms
        object.__setattr__(self, "packed", b"$%d\r\n%b\r\n$%d\r\n%b\r\n" % (len(ttl), ttl, len(grace), grace))


# Most locks of a program have the same few: kept once, not per lock.
_terms = functools.lru_cache(maxsize=64)(Terms)


def shown(value: object) -> str:
    """A value for an error message: its repr, cut."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - a value that cannot even be shown (an int of 5,000 digits, say) is still refused
        text = f"a {type(value).__name__}"
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def seconds(value: object, what: str, *, least: float = 0.0, above: bool = False, most: float = math.inf) -> float:
    """A duration as finite seconds in [least, most] (without `least` itself when `above`), or a `ConfigError`."""
    # bool is an int, and `ttl=True` is always a mistake.
    if isinstance(value, bool) or not isinstance(value, int | float | timedelta):
        msg = f"{what} must be a number of seconds or a timedelta, not {shown(value)}"
        raise ConfigError(msg)
    try:
        number = value.total_seconds() if isinstance(value, timedelta) else float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        msg = f"{what} must be a finite number of seconds, not {shown(value)}"
        raise ConfigError(msg)
    if number < least or (above and number == least) or number > most:
        low = f"more than {least:g}" if above else f"at least {least:g}"
        high = "" if most == math.inf else f" and at most {most:g}"
        msg = f"{what} must be {low}{high} seconds, not {shown(value)}"
        raise ConfigError(msg)
    return number


def flag(value: object, what: str) -> bool:
    """A bool and nothing that merely looks like one."""
    if not isinstance(value, bool):
        msg = f"{what} must be True or False, not {shown(value)}"
        raise ConfigError(msg)
    return value


def _text(value: object, what: str, most: int) -> str:
    if not isinstance(value, str):
        msg = f"{what} must be a str, not {shown(value)}"
        raise ConfigError(msg)
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        msg = f"{what} {shown(value)} cannot be encoded as UTF-8 (a lone surrogate)"
        raise ConfigError(msg) from None
    if size > most:
        msg = f"{what} has {size} bytes; at most {most} are allowed"
        raise ConfigError(msg)
    if any(unicodedata.category(char) == "Cc" for char in value):
        msg = f"{what} {shown(value)} contains a control character"
        raise ConfigError(msg)
    return value


def lock_name(value: object) -> str:
    """The name of a lock, as text; bytes are taken as they are."""
    if isinstance(value, bytes):
        if not value.strip():
            msg = "the name of a lock must not be empty or only spaces"
            raise ConfigError(msg)
        if len(value) > MAX_NAME:
            msg = f"the name of a lock has {len(value)} bytes; at most {MAX_NAME} are allowed"
            raise ConfigError(msg)
        text = value.decode("utf-8", "surrogateescape")
        if any(unicodedata.category(char) == "Cc" for char in text):
            msg = f"the name {shown(value)} contains a control character"
            raise ConfigError(msg)
        return text
    if not isinstance(value, str):
        msg = f"the name of a lock must be a str or bytes, not {shown(value)}"
        raise ConfigError(msg)
    if not value.strip():
        msg = "the name of a lock must not be empty or only spaces"
        raise ConfigError(msg)
    return _text(value, "the name of a lock", MAX_NAME)


def lock_names(names: tuple[object, ...]) -> tuple[str, ...]:
    """The names that were given: at least one, and no durations among them."""
    if not names:
        msg = "a lock needs a name: locks.lock('invoice:42')"
        raise ConfigError(msg)
    if len(names) > MAX_NAMES:
        msg = f"{len(names)} names in one lock; at most {MAX_NAMES} are allowed"
        raise ConfigError(msg)
    for second in names[1:]:
        if isinstance(second, int | float | timedelta) or second is None:
            msg = f"{shown(second)} is not the name of a lock; durations are given by keyword: ttl=…, wait=…"
            raise ConfigError(msg)
    return tuple([lock_name(name) for name in names])


def limit(value: object) -> int:
    """How many may hold a semaphore at a time."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_LIMIT:
        msg = f"limit must be a whole number from 1 to {MAX_LIMIT}, not {shown(value)}"
        raise ConfigError(msg)
    return value


def prefix(value: object) -> str:
    """What the names to list begin with; may be empty."""
    return _text(value, "prefix", MAX_NAME)


def fence(value: object) -> int | None:
    """A fence that was seen, or None for any."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
        msg = f"fence must be a whole number that is not negative, not {shown(value)}"
        raise ConfigError(msg)
    return value


def namespace(value: object) -> str:
    """A namespace: short, and without the characters that structure keys."""
    text = _text(value, "namespace", MAX_NAMESPACE)
    if any(char in text for char in ":{}"):
        msg = f"namespace {shown(text)} must not contain ':', '{{' or '}}'"
        raise ConfigError(msg)
    return text


def identity(value: object) -> str | None:
    """What a holder shows besides host, pid and program."""
    return None if value is None else _text(value, "identity", MAX_IDENTITY)


def info(value: object) -> str | dict[str, Any] | None:
    """What others may read about a lease: a short string or a flat mapping."""
    if value is None:
        return None
    if isinstance(value, str):
        return _text(value, "info", MAX_INFO)
    if not isinstance(value, Mapping):
        msg = f"info must be a str or a flat mapping, not {shown(value)}"
        raise ConfigError(msg)
    flat: dict[str, Any] = {}
    for key, item in cast("Mapping[object, object]", value).items():
        if not isinstance(key, str):
            msg = f"info: the key {shown(key)} must be a str"
            raise ConfigError(msg)
        if isinstance(item, float) and not math.isfinite(item):
            msg = f"info: {key!r} must be finite, not {shown(item)}"
            raise ConfigError(msg)
        if item is not None and not isinstance(item, str | int | float | bool):
            msg = (
                f"info: the value of {key!r} must be a str, a number, a bool or None, not {shown(item)}: nothing nested"
            )
            raise ConfigError(msg)
        flat[key] = item
    try:
        size = len(json.dumps(flat, ensure_ascii=False).encode())
    except ValueError:
        msg = "info cannot be encoded as JSON in UTF-8 (a lone surrogate, or a number of thousands of digits)"
        raise ConfigError(msg) from None
    if size > MAX_INFO:
        msg = f"info has {size} bytes as JSON; at most {MAX_INFO} are allowed"
        raise ConfigError(msg)
    return flat


def callback(value: object, what: str) -> Callable[..., object]:
    """A synchronous callable."""
    if not callable(value):
        msg = f"{what} must be callable, not {shown(value)}"
        raise ConfigError(msg)
    if iscoroutinefunction(value) or iscoroutinefunction(getattr(value, "__call__", None)):  # noqa: B004 - the method
        msg = f"{what} must be a plain function, not a coroutine function: it is called from the event loop or a thread"
        raise ConfigError(msg)
    return value


def hooks(value: object) -> tuple[Callable[..., Any], ...]:
    """Functions that are told of every event."""
    if not isinstance(value, Iterable):
        msg = f"hooks must be a list of functions, not {shown(value)}"
        raise ConfigError(msg)
    return tuple(callback(hook, "each of hooks") for hook in cast("Iterable[object]", value))


def exit_lost(value: object) -> Literal["raise", "note"]:
    """What leaving a block does about a lease that was lost meanwhile."""
    if value == "raise":
        return "raise"
    if value == "note":
        return "note"
    msg = f"on_exit_lost must be 'raise' or 'note', not {shown(value)}"
    raise ConfigError(msg)


@dataclass(frozen=True, slots=True)
class Defaults:
    """What all locks of one `Locks` object share."""

    namespace: str
    server_timeout: float
    grace: float | None
    max_ttl: float
    drift: float
    identity: str | None

    def grace_for(self, ttl: float) -> float:
        """How long the key outlives the lease: time for the holder's clock to be a little slow."""
        return self.grace if self.grace is not None else min(ttl * 0.01 + 0.02, MAX_GRACE)

    def ttl(self, value: object) -> float:
        """A checked ttl that leaves some usable validity."""
        return seconds(value, "ttl", least=MIN_TTL, most=self.max_ttl)


@dataclass(frozen=True, slots=True)
class LockOptions:
    """Everything that describes a lock besides its name."""

    terms: Terms
    wait: float | None
    info: str | dict[str, Any] | None
    on_lost: Callable[..., object] | None
    on_exit_lost: Literal["raise", "note"]
    ask_after: float | None = None
    on_ask: Callable[..., object] | None = None
    reentrant: bool = False
    apart: float = 0.0
    """Seconds between two grants, for `once`."""


class LockKeywords(TypedDict, total=False):
    """The options of a lock, for those who hand them on."""

    ttl: Seconds
    wait: Seconds | None
    renew: bool
    max_hold: Seconds | None
    shared: bool
    ask_after: Seconds | None
    info: str | dict[str, Any] | None
    reentrant: bool
    warn_after: Seconds | None
    on_lost: Callable[..., object] | None
    on_ask: Callable[..., object] | None
    on_exit_lost: Literal["raise", "note"]


def wait(value: object) -> float | None:
    """How long to wait for a holder: None for ever, 0 one try."""
    return None if value is None else seconds(value, "wait")


def lock_options(  # noqa: PLR0913 - the options of a lock, all by keyword
    defaults: Defaults,
    *,
    ttl: object,
    wait_for: object,
    renew: object,
    max_hold: object,
    note: object,
    warn_after: object,
    on_lost: object,
    on_exit_lost: object,
    shared: object = False,
    places: object = None,
    ask_after: object = None,
    on_ask: object = None,
    reentrant: object = False,
    apart: object = 0,
) -> LockOptions:
    """All options of a lock, checked together."""
    term = defaults.ttl(ttl)
    renewing = flag(renew, "renew")
    longest = None if max_hold is None else seconds(max_hold, "max_hold", above=True)
    warn = None if warn_after is None else seconds(warn_after, "warn_after", above=True)
    if warn is None:
        warn = longest if renewing else term
    mode: Mode = "shared" if flag(shared, "shared") else "exclusive"
    if places is not None:
        mode = "semaphore"
    terms = _terms(
        mode=mode,
        limit=1 if places is None else limit(places),
        ttl=term,
        grace=defaults.grace_for(term),
        drift=defaults.drift,
        renew=renewing,
        max_hold=longest,
        warn_after=warn,
    )
    return LockOptions(
        terms=terms,
        wait=wait(wait_for),
        info=info(note),
        on_lost=None if on_lost is None else callback(on_lost, "on_lost"),
        on_exit_lost=exit_lost(on_exit_lost),
        ask_after=None if ask_after is None else seconds(ask_after, "ask_after"),
        on_ask=None if on_ask is None else callback(on_ask, "on_ask"),
        reentrant=flag(reentrant, "reentrant"),
        apart=seconds(apart, "at_least", most=MAX_APART),
    )


def defaults(  # noqa: PLR0913
    *, space: object, server_timeout: object, grace: object, max_ttl: object, drift: object, who: object
) -> Defaults:
    """The arguments of `Locks`, checked."""
    if isinstance(drift, bool) or not isinstance(drift, int | float) or not 0 <= drift <= MAX_DRIFT:
        msg = f"drift must be a number from 0 to {MAX_DRIFT}, not {shown(drift)}"
        raise ConfigError(msg)
    return Defaults(
        namespace=namespace(space),
        server_timeout=seconds(server_timeout, "server_timeout", above=True, most=3600),
        grace=None if grace is None else seconds(grace, "grace", most=3600),
        max_ttl=seconds(max_ttl, "max_ttl", least=MIN_TTL),
        drift=float(drift),
        identity=identity(who),
    )
