"""The command `tenure`: its subcommands, and the options of those that run something."""

from __future__ import annotations

import importlib
import importlib.util

import click

import tenure
from tenure.options import MAX_LIMIT

from .look import ls, show, top, watch
from .options import COMMAND, AskAction, Duration, Wrapper, exclude_each_other, server_options
from .server import server
from .steer import ask, break_command
from .steps import acquire, release_command, renew_command


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(tenure.__version__, prog_name="tenure", message="%(prog)s %(version)s")
def app() -> None:
    """Locks and leases on Redis and Valkey, from the command line."""


@app.command(cls=Wrapper)
@click.argument("name")
@click.option("--ttl", type=Duration(), default="30", show_default=True, help="How long a lease lasts unless renewed.")
@click.option("--wait", type=Duration(), help="How long to wait for the lock [default: until it is free].")
@click.option("--no-wait", is_flag=True, help="Do not wait at all.")
@click.option("--shared", is_flag=True, help="Hold the lock together with all others who share it.")
@click.option(
    "--limit",
    type=click.IntRange(1, MAX_LIMIT),
    metavar="N",
    help="N may hold the lock at a time; the same N for all who use it.",
)
@click.option(
    "--once",
    is_flag=True,
    help="Do not wait, and do not run if another --once has run less than --at-least ago.",
)
@click.option(
    "--at-least",
    type=Duration(),
    help="With --once: the time from the beginning of a run to that of the next one [default: none].",
)
@click.option(
    "--ask-after",
    type=Duration(),
    help="Ask who holds the lock to release it, after waiting that long [default: never].",
)
@click.option(
    "--on-ask",
    type=AskAction(),
    default="ignore",
    show_default=True,
    help="What COMMAND gets, once, when somebody asks for the lock: nothing, SIGTERM or another signal.",
)
@click.option(
    "--max-hold", type=Duration(), help="How long COMMAND may hold the lock: then it is stopped [default: no limit]."
)
@click.option(
    "--on-lost",
    type=click.Choice(["term", "ignore"]),
    default="term",
    show_default=True,
    help="What happens to COMMAND when its lease is lost: it gets SIGTERM and then SIGKILL, or nothing.",
)
@click.option(
    "--grace",
    type=Duration(),
    help="How long COMMAND has from SIGTERM to SIGKILL, at most 3/8 of the ttl [default: about a tenth of the ttl; "
    "half a second at most if the lease is gone all of a sudden].",
)
@click.option("--info", metavar="TEXT", help="What others see as the purpose [default: the name of COMMAND].")
@click.option("--warn-after", type=Duration(), help="Tell on standard error when COMMAND takes longer than this.")
@click.option(
    "--conflict-exit-code",
    type=click.IntRange(0, 255),
    metavar="N",
    default=75,
    show_default=True,
    help="The exit code when somebody else holds the lock.",
)
@click.option("--quiet", "-q", is_flag=True, help="Tell nothing but errors: not who holds the lock, and no warnings.")
@server_options
@click.pass_context
def run(  # noqa: PLR0913 - the options
    ctx: click.Context,
    *,
    name: str,
    ttl: float,
    wait: float | None,
    no_wait: bool,
    shared: bool,
    limit: int | None,
    once: bool,
    at_least: float | None,
    ask_after: float | None,
    on_ask: int | None,
    max_hold: float | None,
    on_lost: str,
    grace: float | None,
    info: str | None,
    warn_after: float | None,
    conflict_exit_code: int,
    quiet: bool,
    url: str | None,
    namespace: str,
) -> None:
    r"""Run COMMAND while holding the lock NAME, and return its exit code.

    \b
      tenure run nightly-backup --no-wait -- ./backup.sh --full
      tenure run deploy --wait 10m -- make deploy
      tenure run thumbnails --limit 3 -- ./render.sh
      tenure run report --once --at-least 1h -- ./report.sh

    COMMAND runs without a shell, reads our standard input and finds TENURE_NAME and TENURE_FENCE (a number that rises
    with every new holder) in its environment, and TENURE_LEASE, with which a Python program can adopt the lease.
    Signals are handed on to it. When the lease cannot be renewed it gets SIGTERM, and SIGKILL before somebody else can
    have the lock.

    \b
    Exit codes of our own:
      75   busy, or run not long ago: standard error says by whom
      76   the lease was lost or held for --max-hold, and COMMAND stopped
      69   no usable server
      126  COMMAND is not executable
      127  COMMAND was not found
      128+n  signal n came while we waited, or killed COMMAND
      2    wrong usage

    Times are seconds, or have a unit: 500ms, 30s, 10m, 1h.
    """
    from .run import LONGEST_GRACE, Job  # noqa: PLC0415 - `--help` needs no client library
    from .run import run as run_job  # noqa: PLC0415

    command: tuple[str, ...] = ctx.meta[COMMAND]
    if not command:
        raise click.UsageError(f"Say which command to run, after two dashes: tenure run {name} -- COMMAND")
    for chosen in (
        {"--wait": wait is not None, "--no-wait": no_wait, "--once": once},
        {"--shared": shared, "--limit": limit is not None, "--once": once},
        {"--ask-after": ask_after is not None, "--once": once},
        {"--warn-after": warn_after is not None, "--quiet": quiet},
    ):
        exclude_each_other(chosen)
    if at_least is not None and not once:
        raise click.UsageError("--at-least goes with --once.")
    if grace is not None and grace > ttl * LONGEST_GRACE:
        raise click.UsageError(f"--grace {grace:g}s needs a --ttl of at least {grace / LONGEST_GRACE:.3g}s.")
    job = Job(
        name,
        command,
        ttl,
        0.0 if no_wait or once else wait,
        url,
        namespace,
        max_hold=max_hold,
        info=info,
        on_lost=on_lost,
        grace=grace,
        busy_code=conflict_exit_code,
        warn_after=warn_after,
        quiet=quiet,
        shared=shared,
        limit=limit,
        ask_after=ask_after,
        on_ask=on_ask,
        at_least=at_least or 0.0,
    )
    ctx.exit(run_job(job))


@app.command()
@click.option("--workers", type=click.IntRange(1, 32), default=4, show_default=True, help="Processes that take turns.")
@click.option("--turns", type=click.IntRange(1, 10_000), default=25, show_default=True, help="Turns of each.")
@click.option("--seconds", type=Duration(), default="5", show_default=True, help="About how long all turns take.")
@click.option("--without-lock", is_flag=True, hidden=True, help="Leave out the lock: the check at the end must fail.")
@server_options
@click.pass_context
def demo(  # noqa: PLR0913 - the options
    ctx: click.Context,
    *,
    workers: int,
    turns: int,
    seconds: float,
    url: str | None,
    namespace: str,
    without_lock: bool,
) -> None:
    """Show several processes taking turns under one lock, and check that they did.

    The exit code is 0 only if no two of them held the lock at the same time, none of their updates was lost, and every
    turn had a higher fence than the one before.
    """
    from .demo import Plan, show  # noqa: PLC0415 - rich takes a while to load

    ctx.exit(show(Plan(workers, turns, seconds, url, namespace, locked=not without_lock)))


for _command in (acquire, renew_command, release_command, ls, show, top, watch, ask, break_command, server):
    app.add_command(_command)
if importlib.util.find_spec("tenure.cli.doctor") is not None:
    app.add_command(importlib.import_module("tenure.cli.doctor").doctor)
for _command in app.commands.values():
    # Docstrings with a backslash are raw ones, and click wants the character itself before what it must not wrap.
    _command.help = (_command.help or "").replace("\\b\n", "\b\n")
