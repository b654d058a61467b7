"""`tenure acquire`, `renew` and `release`: a lease that the steps of a shell script hold, with no process behind it."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from typing import TYPE_CHECKING, Any

import click

from tenure import options
from tenure.core import release as release_procedure
from tenure.core.adopt import parse
from tenure.core.keys import keys_of
from tenure.core.lease_state import Hold
from tenure.core.renew import renew_now
from tenure.errors import ConfigError, NotAcquired, ServerError, ServerUnavailable
from tenure.runtime import clock
from tenure.runtime.blocking import run

from .options import Duration, exclude_each_other, json_option, server_options, url_option
from .report import USAGE, describe, lock_name, operating, print_json, tell
from .run import BUSY, LOST
from .telling import telling_who_holds

if TYPE_CHECKING:
    from collections.abc import Generator

    from tenure import Locks
    from tenure.core.adopt import Exported
    from tenure.options import Terms
    from tenure.runtime.session import Session

VARIABLE = "TENURE_LEASE"
_MOST = 1_000_000

_WHY = {
    "gone": "it has ended",
    "taken": "it has ended, and somebody else holds the lock",
    "moved": "another process has adopted it",
    "revoked": "an operator broke it",
}


@click.command()
@click.argument("name")
@click.option(
    "--ttl", type=Duration(), default="30", show_default=True, help="How long the lease lasts unless renewed."
)
@click.option("--wait", type=Duration(), help="How long to wait for the lock [default: until it is free].")
@click.option("--no-wait", is_flag=True, help="Do not wait at all.")
@click.option("--shared", is_flag=True, help="Hold the lock together with all others who share it.")
@click.option(
    "--limit",
    type=click.IntRange(1, options.MAX_LIMIT),
    metavar="N",
    help="N may hold the lock at a time; the same N for all who use it.",
)
@click.option("--info", metavar="TEXT", help="What others see as the purpose [default: the process that called us].")
@json_option
@server_options
@click.pass_context
def acquire(  # noqa: PLR0913 - the options
    ctx: click.Context,
    *,
    name: str,
    ttl: float,
    wait: float | None,
    no_wait: bool,
    shared: bool,
    limit: int | None,
    info: str | None,
    as_json: bool,
    url: str | None,
    namespace: str,
) -> None:
    r"""Take the lock NAME, print the lease, and end: for the steps of a shell script, which hold it until it ends.

    \b
      TENURE_LEASE=$(tenure acquire deploy --ttl 10m) || exit
      export TENURE_LEASE
      ./step1 && tenure renew && ./step2
      tenure release

    Nothing runs in the background and nobody renews the lease, so --ttl has to be longer than each step. The line that
    is printed is a secret: whoever has it can release the lock. It stays the same when the lease is renewed.

    \b
    Exit codes:
      0    the lease is held, and printed
      75   busy: somebody else holds the lock (standard error says who)
      69   no usable server
      128+n  signal n came while we waited
      2    wrong usage; no server but the embedded one, which would end with us
    """
    exclude_each_other({"--wait": wait is not None, "--no-wait": no_wait})
    exclude_each_other({"--shared": shared, "--limit": limit is not None})
    with _lasting(url, namespace) as locks:
        wishes: dict[str, Any] = {
            "ttl": ttl,
            "wait": 0 if no_wait else wait,
            "renew": False,
            # Our own process, which others are shown, has ended by then.
            "info": f"steps of process {os.getppid()}" if info is None else info,
        }
        typed = lock_name(name)
        lock = locks.lock(typed, shared=shared, **wishes) if limit is None else locks.semaphore(typed, limit, **wishes)
        try:
            with telling_who_holds(name, locks):
                lease = lock.acquire()
        except NotAcquired as error:
            tell(f"busy: {name!r} is held by {describe(error.holder) if error.holder else 'somebody else'}")
            ctx.exit(BUSY)
        text = lease.written()
        if as_json:
            print_json({"name": name, "lease": text, "fence": lease.fence, "remaining": round(lease.remaining(), 3)})
        else:
            click.echo(text)
        # Before this line the lease is given back, whatever happens: nobody may have read it.
        lease.export()


@click.command("renew")
@click.argument("lease", required=False)
@click.option("--ttl", type=Duration(), help="How long it lasts from now on unless renewed [default: as it was taken].")
@url_option
@click.pass_context
def renew_command(ctx: click.Context, *, lease: str | None, ttl: float | None, url: str | None) -> None:
    r"""Extend a lease that `tenure acquire` has printed to its full ttl from now.

    LEASE is what it printed, `-` to read that from standard input, or left out: then it is taken from TENURE_LEASE.
    That is the better way, since every user of the machine can read the arguments of every process.

    \b
    Exit codes:
      0    renewed
      76   the lease was lost: what it protected has to stop
      69   no usable server
      2    wrong usage
    """
    with _written(lease, url, ttl) as (session, written, terms):
        port = session.port
        holds = _holds(written, terms)
        outcomes = run(renew_now(port, holds))
        for hold, outcome in zip(holds, outcomes, strict=True):
            if outcome in _WHY:
                tell(f"the lease of {hold.keys.name!r} was lost: {_WHY[outcome]}")
        if "late" in outcomes:
            raise ServerUnavailable(f"the renewal reached the server at {port.node} too late to count", node=port.node)
    ctx.exit(LOST if any(outcome in _WHY for outcome in outcomes) else 0)


@click.command("release")
@click.argument("lease", required=False)
@url_option
@click.pass_context
def release_command(ctx: click.Context, *, lease: str | None, url: str | None) -> None:
    r"""Give a lock back with the lease that `tenure acquire` has printed.

    LEASE is what it printed, `-` to read that from standard input, or left out: then it is taken from TENURE_LEASE.
    That is the better way, since every user of the machine can read the arguments of every process.

    \b
    Exit codes:
      0    released
      76   the lease had ended before, and somebody else may have held the lock since
      69   no usable server
      2    wrong usage
    """
    with _written(lease, url) as (session, written, terms):
        lost: list[str] = []
        for hold in reversed(_holds(written, terms)):
            how = run(release_procedure.release(session.port, hold))
            if how != "released":
                lost.append(how)
                tell(f"the lease of {hold.keys.name!r} was lost before: {_WHY[how]}")
            # It is given back, whatever comes of this: then its ttl takes over.
            with contextlib.suppress(ServerError):
                run(release_procedure.settle(session.port, hold.keys, hold.token, written.stray_until))
    ctx.exit(LOST if lost else 0)


@contextlib.contextmanager
def _lasting(url: str | None, namespace: str) -> Generator[Locks]:
    """The locks of a server that goes on when this command has ended."""
    if url is None and "TENURE_URL" not in os.environ:
        raise click.UsageError(
            "A lease between two commands needs a server that outlives them: name it with --url or in TENURE_URL. "
            "The embedded server ends with its last user."
        )
    with operating(url, namespace) as locks:
        yield locks


@contextlib.contextmanager
def _written(
    given: str | None, url: str | None, ttl: float | None = None
) -> Generator[tuple[Session, Exported, Terms]]:
    """The server, what is known of a lease, and its terms, with another ttl if one is given."""
    try:
        written = parse(_read(given))
    except ConfigError as error:
        tell(str(error))
        sys.exit(USAGE)
    with _lasting(url, written.namespace) as locks:
        session = locks.session()
        chosen = options.lock_options(
            session.state.defaults,
            ttl=written.ttl if ttl is None else ttl,
            wait_for=0,
            renew=False,
            max_hold=None,
            note=None,
            warn_after=None,
            on_lost=None,
            on_exit_lost="raise",
            shared=written.mode == "shared",
            places=written.limit if written.mode == "semaphore" else None,
        )
        yield session, written, chosen.terms


def _read(given: str | None) -> str:
    if given == "-":
        return sys.stdin.read(_MOST).strip()
    text = os.environ.get(VARIABLE) if given is None else given
    if text is None:
        raise click.UsageError(f"Which lease? Set {VARIABLE} to what `tenure acquire` has printed.")
    return text


def _holds(written: Exported, terms: Terms) -> list[Hold]:
    """The leases as the procedures want them: how much is left of each is known to the server alone."""
    now = clock.now()
    return [
        Hold(
            keys_of(written.namespace, name),
            token.encode(),
            fence,
            terms,
            granted_at=now,
            deadline=now + terms.ttl,
            mutex=threading.Lock(),
        )
        for name, token, fence in written.leases
    ]
