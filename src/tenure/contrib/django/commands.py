"""Management commands that run in one place at a time."""

# pyright: basic
# Django has no types of its own.

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from ...errors import NotAcquired
from .settings import locks

BUSY = 75


class LockedCommand(BaseCommand):
    """A management command that holds a lock while it runs, so that it runs once on all machines together.

    `lock_name` is the name; None: the module of the command. `lock_options` are those of `Locks.lock`; `wait` is 0
    unless it is given: a command that finds another one running ends with the exit code 75 and says who that is.

    Safety: what the command does is protected by a lease: `self.lease.check()` before each effect.
    """

    lock_name: str | None = None
    lock_options: dict[str, Any] = {}  # noqa: RUF012 - replaced by subclasses, as Django's own attributes are

    def execute(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as Django has it
        """Runs the command under its lock."""
        name = self.lock_name or type(self).__module__.rpartition(".")[2]
        lock = locks().lock(name, **({"wait": 0, "info": "manage.py"} | self.lock_options))
        try:
            self.lease = lock.acquire()
        except NotAcquired as busy:
            msg = f"not run: {busy.holder} is at it" if busy.holder is not None else f"not run: {busy}"
            raise CommandError(msg, returncode=BUSY) from busy
        with self.lease:
            return super().execute(*args, **kwargs)
