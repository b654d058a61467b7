"""`tenure server`: the embedded server of this user on this machine."""

from __future__ import annotations

import dataclasses
import importlib
import sys
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from .options import json_option
from .report import ending_well, print_json, tell

if TYPE_CHECKING:
    from tenure.embedded import Status

NOT_RUNNING = 1


@click.group()
def server() -> None:
    """Look at the embedded server, and end it.

    It is the one that all programs of this user on this machine share when no server is named, and lives only while
    one of them uses it.
    """


@server.command("status")
@json_option
@click.pass_context
def status_command(ctx: click.Context, *, as_json: bool) -> None:
    """Show whether the embedded server runs, and which; exit code 1 if it does not."""
    with ending_well():
        found = _embedded().status()
        if as_json:
            print_json({**dataclasses.asdict(found), "url": _url(found)})
        elif found.running:
            click.echo(
                f"running  {_url(found)}\npid      {found.pid}\nversion  {found.version}\nprogram  {found.binary}\n"
                f"clients  {found.clients}"
            )
        else:
            click.echo(f"not running; it would be at {found.path}")
    ctx.exit(0 if found.running else NOT_RUNNING)


@server.command()
@json_option
@click.pass_context
def url(ctx: click.Context, *, as_json: bool) -> None:
    """Print the URL of the embedded server, for clients of other kinds; exit code 1 if it does not run.

    A client that only knows the URL does not keep the server alive.
    """
    with ending_well():
        found = _embedded().status()
        if as_json:
            print_json({"url": _url(found) if found.running else None})
        elif found.running:
            click.echo(_url(found))
        else:
            tell("the embedded server does not run: it starts with the first program that uses it")
    ctx.exit(0 if found.running else NOT_RUNNING)


@server.command()
@click.option("--yes", "-y", is_flag=True, help="Do not ask, although it is in use.")
@json_option
def stop(*, yes: bool, as_json: bool) -> None:
    """End the embedded server; every lock on it is gone with it.

    It ends by itself soon after its last user. While it has users, this command asks first.
    """
    with ending_well():
        embedded = _embedded()
        found = embedded.status()
        if found.clients and not yes:
            tell(f"the embedded server is in use: {found.clients} connections, whose locks would be lost")
            if not sys.stdin.isatty():
                raise click.UsageError("There is no terminal to ask at: add --yes to stop it all the same.")
            click.confirm("Stop it?", abort=True, err=True)
        stopped = embedded.stop()
        if as_json:
            print_json({"stopped": stopped})
        else:
            click.echo("stopped" if stopped else "it was not running")


def _embedded() -> Any:  # noqa: ANN401 - the module, which not every platform has
    return importlib.import_module("tenure.embedded")


def _url(found: Status) -> str:
    return f"unix://{quote(found.path)}"
