"""`tenure run`: a command that runs while its lock is held."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tenure import Locks, options
from tenure.errors import NotAcquired, ServerError, TenureError
from tenure.lock import Lock
from tenure.runtime import clock

from .child import CannotRun, Limits, find_program, supervise
from .durations import format_duration
from .following import Followed, wake, wake_when_adopted
from .report import NO_SERVER, USAGE, age, describe, exit_code_of, info_of, local, lock_name, log_to_stderr, tell
from .signals import Interrupted, Signals
from .telling import telling_who_holds

if TYPE_CHECKING:
    from collections.abc import Callable

    from tenure import Lease

    from .child import Outcome

__all__ = ["BUSY", "LOST", "NO_SERVER", "USAGE", "Job", "run"]

BUSY = 75
LOST = 76
LONGEST_GRACE = 3 / 8
"""Of the ttl: a healthy lease has two thirds of it left, and one that is renewed late a little less."""


class Job(NamedTuple):
    """What `tenure run` was asked for; times in seconds."""

    name: str
    command: tuple[str, ...]
    ttl: float
    wait: float | None
    url: str | None
    namespace: str
    max_hold: float | None = None
    info: str | None = None
    on_lost: str = "term"
    grace: float | None = None
    busy_code: int = BUSY
    warn_after: float | None = None
    quiet: bool = False
    shared: bool = False
    limit: int | None = None
    ask_after: float | None = None
    on_ask: int | None = None
    """The signal that the command gets when somebody asks for the lock."""
    at_least: float = 0.0
    """Between the beginnings of two runs."""

    @property
    def limits(self) -> Limits:
        """When the command is stopped for the sake of its lease."""
        # As the library reckons a key's life after the end of its lease.
        overtime = min(0.5, 0.02 + self.ttl / 100)
        margin = self.ttl / 32
        if self.grace is None:
            return Limits(3 * margin, margin, overtime, overtime)
        return Limits(self.grace, margin, self.grace, overtime)


def run(job: Job) -> int:
    """Wait for the lock, run the command, and return the exit code.

    That is the command's own; 75 when somebody else has the lock, or has run it not long ago, 69 without a usable
    server, 76 when the lease was lost, 2 for arguments that cannot work, 126 or 127 for a command that cannot be run,
    and 128 plus the number of the signal that ended the wait for the lock. Blocks; on the main thread only.

    Safety: a command that has escaped its process group, or is not Linux' to kill with us, may outlive the lease; it
    should hand TENURE_FENCE to what it writes to.
    """
    log_to_stderr(logging.ERROR if job.quiet else logging.WARNING)
    try:
        find_program(job.command[0])
        with (
            Signals() as signals,
            contextlib.closing(Locks(job.url, namespace=job.namespace, hooks=[wake_when_adopted])) as locks,
        ):
            return _run(job, signals, locks)
    except Interrupted as interrupted:
        return interrupted.exit_code
    except NotAcquired as error:
        if not job.quiet:
            tell(_why_not(job.name, error))
        return job.busy_code
    except CannotRun as error:
        tell(str(error))
        return error.exit_code
    except TenureError as error:
        tell(str(error))
        return exit_code_of(error)


def _run(job: Job, signals: Signals, locks: Locks) -> int:
    def asked(lease: Lease) -> None:
        if job.on_ask is not None:
            by = lease.asked
            if by is not None and not job.quiet:
                who = f"{by.program} (pid {by.pid} on {by.host})" + (f", for {info_of(by)}," if by.info else "")
                tell(f"{who} asks for {job.name!r}: {signal.Signals(job.on_ask).name} to the command")
            signals.put(job.on_ask)

    lock = _lock(job, locks, asked)
    with signals.ending_wait(), contextlib.nullcontext() if job.quiet else telling_who_holds(job.name, locks):
        lease = lock.acquire()
    followed = Followed(locks, lease)
    logging.getLogger("tenure").addFilter(followed)
    # The supervisor then sees for itself.
    lease.on_lost(lambda _: wake())
    environment = os.environ | {
        "TENURE_NAME": job.name,
        "TENURE_FENCE": str(lease.fence),
        "TENURE_LEASE": lease.written(),
    }
    limits = job.limits
    if job.max_hold is not None:
        limits = limits._replace(most=max(0.0, job.max_hold - lease.held_for()))
    began = clock.now() - lease.held_for()
    outcome = supervise(job.command, environment, signals, followed if job.on_lost == "term" else None, limits)
    return LOST if _was_lost(job, followed, outcome, clock.now() - began) else outcome.exit_code


def _lock(job: Job, locks: Locks, asked: Callable[[Lease], None]) -> Lock:
    chosen = options.lock_options(
        locks.session().state.defaults,
        ttl=job.ttl,
        wait_for=job.wait,
        renew=True,
        max_hold=job.max_hold,
        # The program's name alone: arguments may be secrets, and everybody can read `info`.
        note=Path(job.command[0]).name[:200] if job.info is None else job.info,
        warn_after=job.warn_after,
        on_lost=None,
        on_exit_lost="raise",
        shared=job.shared,
        places=job.limit,
        ask_after=job.ask_after,
        on_ask=None if job.on_ask is None else asked,
        apart=job.at_least,
    )
    return Lock(locks, options.lock_names((lock_name(job.name),)), chosen)


_HEARD = {
    None: "",
    True: "; it heard that it was asked to release",
    False: "; it did not hear that it was asked to release",
}


def _why_not(name: str, error: NotAcquired) -> str:
    """Who holds the lock, or has run the command not long ago and when it may run again."""
    holder = error.holder
    if holder is None:
        return f"busy: {name!r} is held by somebody else"
    if holder.foreign or holder.expires_in is not None:
        return f"busy: {name!r} is held by {describe(holder)}{_HEARD[error.heard]}"
    ago = f" at {local(holder.since)} ({format_duration(age(holder.since))} ago)" if holder.since is not None else ""
    again = local(datetime.now().astimezone() + timedelta(seconds=error.retry_after))
    return (
        f"skipped: {name!r} ran{ago}, by {holder}; it may run again in {format_duration(error.retry_after)}, at {again}"
    )


def _was_lost(job: Job, followed: Followed, outcome: Outcome, held_for: float) -> bool:
    """Give the lease back; whether it had ended before the command did, which is told unless that is to be ignored."""
    try:
        followed.finish()
    except ServerError as error:
        tell(f"{job.name!r} could not be released and ends by itself within {format_duration(job.ttl)}: {error}")
    if job.on_lost == "ignore" or (followed.adopted and not outcome.stopped):
        return False
    end = "was stopped" if outcome.stopped else "had ended"
    # A command that was stopped in time may have ended before the lease did.
    reason = followed.lost or ("not renewed in time" if outcome.stopped else None)
    if reason is None:
        return False
    if followed.lost is None and job.max_hold is not None and held_for >= job.max_hold:
        what = f"{job.name!r} was held for {format_duration(job.max_hold)}, the longest that --max-hold allows"
    else:
        what = f"the lease of {job.name!r} was lost ({reason})"
    tell(f"{what}: the command {end} with exit code {outcome.exit_code}")
    return True
