"""`tenure ask` and `tenure break`: having a lock given back, and taking it away from its holders."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import click

from tenure import options
from tenure.core import inspect as inspection
from tenure.core.keys import keys_of
from tenure.runtime.blocking import run

from .durations import format_duration
from .options import json_option, server_options
from .report import as_dict, as_dicts, describe, lock_name, operating, print_json, printable, tell

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tenure import Holder, Locks
    from tenure.core.inspect import Asked

NOT_BROKEN = 1
NOBODY = 1
UNHEARD = 75

_ACKNOWLEDGED_WITHIN = 1.0
_LOOK_EVERY = 0.02


@click.command()
@click.argument("name")
@click.option("--info", metavar="TEXT", help="What the holder is told as the reason.")
@json_option
@server_options
@click.pass_context
def ask(  # noqa: PLR0913 - the options
    ctx: click.Context, *, name: str, info: str | None, as_json: bool, url: str | None, namespace: str
) -> None:
    r"""Ask whoever holds the lock NAME to release it, and say whether they heard it.

    What a holder does about it is up to the holder: `tenure run` does what its --on-ask says, a Python program what
    its lease's `on_ask` says. Of a lock that several hold all are asked.

    \b
    Exit codes:
      0    the holder heard it (of several at least one)
      1    nobody holds it
      75   somebody holds it, and nobody heard: a program that is stopped or cut off, or one of another library
      69   no usable server
      2    wrong usage
    """
    with operating(url, namespace) as locks:
        session = locks.session()
        keys = keys_of(locks.namespace, options.lock_name(lock_name(name)))
        asked = run(inspection.ask(session.port, keys, session.describe(options.info(info))))
        if as_json:
            print_json({"name": name, "holder": as_dict(asked.holder), "heard": asked.heard})
        elif asked.heard:
            click.echo(printable(_what_was_heard(name, asked)))
        else:
            tell(_what_was_heard(name, asked))
    ctx.exit(0 if asked.heard else NOBODY if asked.holder is None else UNHEARD)


def _what_was_heard(name: str, asked: Asked) -> str:
    holder = asked.holder
    if holder is None:
        return f"nobody holds {name!r}"
    if holder.foreign:
        return f"{name!r} is held by {holder}, which cannot be asked"
    if asked.heard is None:
        return f"{name!r} is held by {describe(holder)}; the server does not let us tell it (docs/permissions.md)"
    if not asked.heard:
        return f"{name!r} is held by {describe(holder)}, which did not hear it"
    others = "" if asked.heard == 1 else f", and {asked.heard - 1} more"
    return f"asked: {describe(holder)}{others}"


@click.command("break")
@click.argument("name")
@click.option("--fence", type=click.IntRange(min=0), metavar="N", help="Only the lease that has this fence.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.option(
    "--force",
    is_flag=True,
    help="Delete the lock at once, without waiting for its holder: two may then believe that they hold it.",
)
@json_option
@server_options
@click.pass_context
def break_command(  # noqa: PLR0913 - the options
    ctx: click.Context,
    *,
    name: str,
    fence: int | None,
    yes: bool,
    force: bool,
    as_json: bool,
    url: str | None,
    namespace: str,
) -> None:
    r"""Take the lock NAME away from whoever holds it now, after asking.

    The holder is told; `tenure run` then stops its command. The lock is free as soon as the holder has acknowledged
    that, or else when its lease ends. Only the leases that were shown are broken, not one that follows meanwhile.

    \b
    Exit codes:
      0    broken
      1    nobody holds it, another lease than --fence, or you said no
      69   no usable server
      2    wrong usage; a holder of another library, which only --force takes the lock from
    """
    with operating(url, namespace) as locks:
        held = locks.holders(lock_name(name))
        if held and held[0].foreign and not force:
            raise click.UsageError(
                f"{name!r} is held by {held[0]}, which cannot be told that it lost the lock: "
                f"only --force takes it away."
            )
        meant = [holder for holder in held if fence is None or fence == holder.fence]
        broken = False
        if meant:
            _ask(name, meant, yes=yes, force=force)
            broken = _break(locks, name, meant, force=force)
        elif held:
            tell(f"{name!r} is held by another lease, fence {held[0].fence}: {describe(held[0])}")
        else:
            tell(f"nobody holds {name!r}")
        after = _holders_after(locks, name, meant) if broken else held
        if as_json:
            shown = (meant or held)[:1]
            print_json(
                {
                    "name": name,
                    "broken": broken,
                    "holder": as_dict(shown[0] if shown else None),
                    "holders": as_dicts(meant or held),
                    "now": as_dict(after[0] if after else None),
                }
            )
        elif broken:
            click.echo(printable(_what_next(name, meant, held, after)))
    ctx.exit(0 if broken else NOT_BROKEN)


def _ask(name: str, holders: Sequence[Holder], *, yes: bool, force: bool) -> None:
    """Have the user confirm; does not return if they do not."""
    for holder in holders:
        tell(f"{name!r} is held by {describe(holder)}, fence {holder.fence}")
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError("There is no terminal to ask at: add --yes to break it, with --fence for only this one.")
    if force:
        tell("its holder will not be waited for: two may then believe that they hold it")
    click.confirm("Break it?", abort=True, err=True)


def _break(locks: Locks, name: str, seen: Sequence[Holder], *, force: bool) -> bool:
    told = False
    # Those who share a lock have the same fence, and are broken together.
    for holder in {holder.fence: holder for holder in seen}.values():
        # Without a fence the server cannot tell which lease is meant.
        now = locks.holder(lock_name(name)) if holder.fence is None else holder
        if now is not None and now.id == holder.id:
            told |= locks.break_lock(lock_name(name), holder.fence, force=force) is not None
    if not told:
        tell(f"that lease of {name!r} has ended meanwhile; nothing was broken")
    return told


def _holders_after(locks: Locks, name: str, broken: Sequence[Holder]) -> list[Holder]:
    """Who holds the lock once all have acknowledged, or a second later at the most."""
    gone = {holder.id for holder in broken}
    until = time.monotonic() + _ACKNOWLEDGED_WITHIN
    while True:
        now = locks.holders(lock_name(name))
        if all(holder.id not in gone for holder in now) or time.monotonic() >= until:
            return now
        time.sleep(_LOOK_EVERY)


def _what_next(name: str, broken: Sequence[Holder], before: Sequence[Holder], now: Sequence[Holder]) -> str:
    ids = {holder.id for holder in broken}
    left = [holder for holder in now if holder.id in ids]
    if left:
        ends = [holder.expires_in for holder in left]
        longest = max((end for end in ends if end is not None), default=0.0)
        free = "never by itself" if None in ends else f"within {format_duration(longest)}"
        return (
            f"broken: its holder was told and has not acknowledged yet; it cannot renew its lease any more, "
            f"so {name!r} is free {free}"
        )
    if not now:
        return f"broken: {name!r} is free now"
    known = {holder.id for holder in before}
    for holder in now:
        if holder.id not in known:
            return f"broken: {name!r} went to the next one, {describe(holder)}"
    return f"broken: {name!r} is still held by {describe(now[0])}"
