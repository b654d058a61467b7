"""What several commands take: lengths of time, a server and a namespace, JSON, a command of the user's."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

import click

from .durations import parse_duration

if TYPE_CHECKING:
    from collections.abc import Callable

COMMAND = "tenure.command"
_MOST_URL = 8192


class Duration(click.ParamType[float]):
    """A length of time, in seconds."""

    name = "time"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Parse what was typed."""
        try:
            return value if isinstance(value, float) else parse_duration(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class AskAction(click.ParamType["int | None"]):
    """What a command gets when somebody asks for its lock: a signal's number, or None for nothing."""

    name = "action"

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """Show what can be typed."""
        del param, ctx
        return "[ignore|term|signal:NAME]"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int | None:
        """Parse what was typed."""
        kind, colon, name = str(value).partition(":")
        if (kind, colon) == ("ignore", ""):
            return None
        if (kind, colon) == ("term", ""):
            return signal.SIGTERM
        if kind != "signal":
            self.fail(f"{value!r} is not one of ignore, term, signal:NAME", param, ctx)
        try:
            return signal.Signals["SIG" + name.upper().removeprefix("SIG")]
        except KeyError:
            self.fail(f"there is no signal {name!r} on this system", param, ctx)


class Wrapper(click.Command):
    """A command whose arguments after the first `--` are a command of the user's, taken as they are."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Cut at the first `--`; a second one belongs to the user's command."""
        own, command = _partition(args)
        ctx.meta[COMMAND] = command
        # Told here, with what is missing, and not by click.
        ctx.allow_extra_args = True
        left = super().parse_args(ctx, own)
        if left and not ctx.resilient_parsing:
            ctx.fail(f"{left[0]!r} is one argument too many: the command to run comes after two dashes: -- {left[0]}")
        return left

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Show the user's command in the usage line."""
        return [*super().collect_usage_pieces(ctx), "-- COMMAND [ARG]..."]


def _partition(args: list[str]) -> tuple[list[str], tuple[str, ...]]:
    at = args.index("--") if "--" in args else len(args)
    return args[:at], tuple(args[at + 1 :])


def server_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds `--url` and `--namespace`, which arrive as `url` (None: as the library decides) and `namespace`."""
    function = click.option(
        "--namespace",
        metavar="NS",
        callback=_namespace,
        help="Prefix of all keys [default: $TENURE_NAMESPACE, else 'tenure'].",
    )(function)
    return url_option(function)


def url_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds `--url` alone."""
    return click.option(
        "--url",
        metavar="URL",
        callback=_url,
        help="The server, redis://HOST:PORT/0 for one [default: $TENURE_URL, else what the file $TENURE_URL_FILE "
        "contains, else the embedded server of this user on this machine]. Without a password, which others could see.",
    )(function)


def exclude_each_other(chosen: dict[str, bool]) -> None:
    """Refuse two options of which only one makes sense; says which."""
    names = [name for name, given in chosen.items() if given]
    if len(names) > 1:
        raise click.UsageError(f"{names[0]} and {names[1]} exclude each other.")


def json_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds `--json`, which arrives as `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(function)


def _namespace(_ctx: click.Context, _parameter: click.Parameter, given: str | None) -> str:
    return given if given is not None else os.environ.get("TENURE_NAMESPACE", "tenure")


def _url(_ctx: click.Context, _parameter: click.Parameter, given: str | None) -> str | None:
    if given is not None:
        if _has_password(given):
            raise click.UsageError(
                "--url must not contain a password, which every user of this machine could read in the list of "
                "processes: set TENURE_URL, or TENURE_URL_FILE to the name of a file that contains the URL."
            )
        return given
    file = os.environ.get("TENURE_URL_FILE")
    if file is None:
        return None  # the library looks at TENURE_URL itself
    if "TENURE_URL" in os.environ:
        # Whichever we chose, another program could choose the other one, and they would not exclude each other.
        raise click.UsageError("Both TENURE_URL and TENURE_URL_FILE are set: unset one of them.")
    return _read(file)


def _read(file: str) -> str:
    try:
        with Path(file).open(encoding="utf-8") as opened:
            lines = opened.read(_MOST_URL).split()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise click.UsageError(f"TENURE_URL_FILE: {file!r} cannot be read: {reason}") from None
    if len(lines) != 1:
        raise click.UsageError(f"TENURE_URL_FILE: {file!r} must contain one URL and nothing else")
    return lines[0]


def _has_password(url: str) -> bool:
    rest, _, query = url.partition("://")[2].partition("?")
    user = rest.partition("/")[0].rpartition("@")[0]
    return bool(user.partition(":")[2]) or any("password" in name.lower() for name, _ in parse_qsl(query))
