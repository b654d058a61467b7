"""`tenure doctor`: is this server fit for locks?"""

from __future__ import annotations

import dataclasses
import textwrap
from typing import TYPE_CHECKING

import click

from .options import json_option, server_options
from .report import NO_SERVER, exit_code_of, only_errors, print_json, printable, tell

if TYPE_CHECKING:
    from tenure.doctor import Finding, Severity

_COLOURS: dict[Severity, str] = {"ok": "green", "info": "blue", "warning": "yellow", "error": "red"}
_WIDTH = 100
_INDENT = " " * 24


@click.command()
@server_options
@json_option
@click.option("--strict", is_flag=True, help="Count warnings as errors.")
@click.pass_context
def doctor(ctx: click.Context, *, url: str | None, namespace: str, as_json: bool, strict: bool) -> None:
    r"""Examine a server, and try a lock of our own on it.

    Says first what is examined: one server, or this machine only. Then for each finding what was seen, what it means
    for locks, and what to do. Settings are only read.

    \b
    Exit codes:
      0   no errors (warnings count only with --strict)
      1   at least one error: locks do not work, or two clients can hold the same one
      69  no usable server
      2   wrong usage
    """
    from tenure.doctor import diagnose  # noqa: PLC0415 - `--help` needs no client library
    from tenure.errors import TenureError  # noqa: PLC0415

    only_errors()
    try:
        findings = diagnose(url, namespace=namespace)
    except TenureError as error:
        tell(str(error))
        ctx.exit(exit_code_of(error))
    if as_json:
        print_json([dataclasses.asdict(finding) for finding in findings])
    else:
        for finding in findings:
            _show(finding)
    ctx.exit(_exit_code(findings, strict=strict))


def _exit_code(findings: list[Finding], *, strict: bool) -> int:
    if any(finding.id == "server" for finding in findings):
        return NO_SERVER
    bad = {"error", "warning"} if strict else {"error"}
    return int(any(finding.severity in bad for finding in findings))


def _show(finding: Finding) -> None:
    word = click.style(f"{finding.severity:8}", fg=_COLOURS[finding.severity])
    # A server's words are among them.
    lines = [printable(text) for text in (finding.seen, finding.means, finding.do) if text]
    click.echo(f"  {word}  {finding.id:12}{_wrapped(lines[0])}")
    for text in lines[1:]:
        click.echo(f"{_INDENT}{_wrapped(text)}")


def _wrapped(text: str) -> str:
    return textwrap.fill(text, _WIDTH, subsequent_indent=_INDENT, initial_indent=_INDENT).strip()
