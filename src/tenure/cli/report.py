"""What the commands say: messages, holders and waiters as text and as JSON; and how errors end a command."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import signal
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

import click

from tenure import Locks
from tenure.errors import ConfigError, NameConflict, PermissionDenied, ServerError, TenureError

from .durations import format_duration
from .signals import Interrupted, Signals

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping

    from tenure import AskedEvent, Holder, Waiter

USAGE = 2
NO_SERVER = 69


def log_to_stderr(level: int = logging.WARNING) -> None:
    """Hand what the library logs, a loss for one, to whoever reads our standard error."""
    logging.basicConfig(format="tenure: %(message)s", level=level)


def only_errors() -> None:
    """Keep the library's warnings from standard error, for commands whose output says which server they look at."""
    logging.getLogger("tenure").setLevel(logging.ERROR)


@contextlib.contextmanager
def ending_well(*, until_interrupted: bool = False) -> Generator[None]:
    """Have a signal or an error of the library in this block end the process with its message and exit code.

    A block that goes on until it is interrupted ends well by SIGINT. On the main thread only.
    """
    log_to_stderr()
    try:
        with Signals() as signals, signals.ending_wait():
            yield
    except Interrupted as interrupted:
        sys.exit(0 if until_interrupted and interrupted.number == signal.SIGINT else interrupted.exit_code)
    except TenureError as error:
        tell(str(error))
        sys.exit(exit_code_of(error))


@contextlib.contextmanager
def operating(url: str | None, namespace: str, *, until_interrupted: bool = False) -> Generator[Locks]:
    """The locks of a server, to look at and to steer; what goes wrong in this block ends the process as above."""
    only_errors()
    with (
        ending_well(until_interrupted=until_interrupted),
        contextlib.closing(Locks(url, namespace=namespace)) as locks,
    ):
        yield locks


def lock_name(typed: str) -> str:
    """The name of a lock as the library takes it: one that is no text, as bytes."""
    try:
        typed.encode()
    except UnicodeEncodeError:
        return cast("str", typed.encode("utf-8", "surrogateescape"))
    return typed


def where(locks: Locks) -> str:
    """Which locks these are, for messages."""
    return f"in namespace {locks.namespace!r} of {locks.statistics().scope}"


def tell(message: str) -> None:
    """Write a line to standard error."""
    click.echo(f"tenure: {printable(message)}", err=True)  # which knows what to do when standard error is closed


def printable(text: str) -> str:
    """The text with everything escaped that could steer a terminal: others have written parts of it."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def exit_code_of(error: TenureError) -> int:
    """The exit code that tells a script what kind of error it was."""
    if isinstance(error, ServerError):
        return NO_SERVER
    return USAGE if isinstance(error, ConfigError | NameConflict) else 1


def mode_of(whose: Holder | Waiter) -> str:
    """How a lock is held or wanted, if not by one alone."""
    if whose.mode == "semaphore":
        limit = getattr(whose, "limit", None)
        return "semaphore" if limit is None else f"semaphore of {limit}"
    return "" if whose.mode == "exclusive" else whose.mode


def describe(holder: Holder) -> str:
    """Who holds a lock, how, for what, since when, and until when."""
    parts = [str(holder)]
    if mode := mode_of(holder):
        parts.append(mode)
    if holder.info:
        parts.append(f"for {info_of(holder)}")
    if holder.since is not None:
        parts.append(f"since {local(holder.since)} ({format_duration(age(holder.since))})")
    if holder.expires_in is not None:
        parts.append(f"its lease ends in {ends_in(holder)}")
    return ", ".join(parts)


def ends_in(holder: Holder) -> str:
    """How long a lease lasts, and what that depends on."""
    if holder.expires_in is None:
        return "never by itself"
    until = "at the latest: the lock was broken" if holder.revoked else "unless renewed"
    return f"{format_duration(holder.expires_in)} {until}"


def info_of(whose: Holder | Waiter | AskedEvent) -> str:
    """What a client tells of itself, on one line."""
    if whose.info is None:
        return ""
    if isinstance(whose.info, str):
        return whose.info
    return " ".join(f"{name}={value}" for name, value in whose.info.items())


def age(since: datetime) -> float:
    """Seconds from a time of the server's until now by this machine's clock, at least 0."""
    return max(0.0, (datetime.now(UTC) - since).total_seconds())


def local(when: datetime) -> str:
    """A time as the user's clock shows it."""
    return f"{when.astimezone():%Y-%m-%d %H:%M:%S}"


def deadlocks_of(locks: Locks, concerns: Callable[[str], bool]) -> list[tuple[Waiter, ...]] | None:
    """The circles of waiters in which there is a lock that `concerns` us; None if we may not look for them."""
    try:
        return [circle for circle in locks.deadlocks() if any(concerns(waiter.name) for waiter in circle)]
    except PermissionDenied:  # SCAN, which only looking around needs
        return None


def as_dicts(records: Iterable[Holder | Waiter]) -> list[dict[str, Any] | None]:
    """Records for programs, one after the other."""
    return [as_dict(record) for record in records]


def as_dict(record: Holder | Waiter | None) -> dict[str, Any] | None:
    """A record with the fields that `docs/cli.md` promises, of types that JSON has."""
    if record is None:
        return None
    fields = dataclasses.asdict(record)
    fields["since"] = stamp(record.since) if record.since is not None else None
    return fields


def stamp(when: datetime) -> str:
    """A time for programs: ISO 8601 with milliseconds, in UTC."""
    return when.astimezone(UTC).isoformat(timespec="milliseconds")


def print_json(value: Mapping[str, Any] | list[Any]) -> None:
    """Print one line of JSON; ASCII, so that no name or info can steer a terminal."""
    click.echo(json.dumps(value, separators=(", ", ": ")))
