"""Celery: one task at a time by key, and tasks that are queued once.

Locks are taken in the process that runs the task: prefork, gevent, threads and solo pools. A task that is revoked while
it runs frees its lock at once: in a gevent pool by itself, being a greenlet that is killed; in a prefork pool because
the worker's main process sees that nobody holds it any more, also when a process of the pool is lost. A worker that is
lost as a whole leaves its locks to their ttl. An eventlet pool is refused by `Locks` itself.
"""

# pyright: basic
# ruff: noqa: ANN401
# Celery has no types of its own, and its tasks take anything.

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from billiard.exceptions import WorkerLostError
from celery import Task, signals
from celery.exceptions import Ignore

from .. import patches
from ..errors import ConfigError, LeaseLost, NotAcquired, TenureError
from ..instrument.logs import logger
from ..template import Template

if TYPE_CHECKING:
    from collections.abc import Sequence

    from celery.result import AsyncResult

    from ..lease import Lease
    from ..manager import Locks

__all__ = ["LockedTask", "UniqueTask"]

HEADER = "tenure_lease"


class _Running(threading.local):
    """The lease of each task, by name, that runs in this thread or greenlet: a task object is shared by all of them."""

    def __init__(self) -> None:
        self.leases: dict[str, Lease | None] = {}


_running = _Running()


class LockedTask(Task):
    """A task of which one runs at a time for each key: `@app.task(base=LockedTask, locks=locks, lock="report:{user}")`.

    Attributes, to be given to the decorator:
        locks: where the locks are; made at import, used in each worker process.
        lock: the name, or several, with the arguments of the task as fields.
        lock_options: those of `Locks.lock`; `wait` is 0 unless it is given, so that the worker is free for others.
        when_busy: "retry" comes back when the holder's lease ends, up to `max_retries` times; "skip" ends ignored.

    In the task `self.lease` is the lease (with `bind=True`), for its fence.

    Safety: what the task does is protected by a lease; Celery may deliver a task twice. See `Lease`.
    """

    abstract = True
    locks: ClassVar[Locks | None] = None
    lock: ClassVar[str | Sequence[str]] = ""
    lock_options: ClassVar[dict[str, Any]] = {}
    when_busy: ClassVar[Literal["retry", "skip"]] = "retry"

    @property
    def lease(self) -> Lease | None:
        """The lease under which this task runs here; None while it does not."""
        return _running.leases.get(str(self.name))

    def names_for(self, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[str, ...]:
        """The names of the locks of a call; raises `ConfigError` when they cannot be made."""
        names = (self.lock,) if isinstance(self.lock, str) else tuple(self.lock)
        if self.locks is None or not all(names):
            msg = f"the task {self.name} needs locks=… and lock=… in its decorator"
            raise ConfigError(msg)
        return Template(names, self.run).filled(tuple(args), dict(kwargs))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the task under its lock."""
        names = self.names_for(args, kwargs)
        try:
            lease = self._taken(names)
        except NotAcquired as busy:
            if self.when_busy == "skip":
                raise Ignore(str(busy)) from busy
            raise self.retry(exc=busy, countdown=busy.retry_after) from busy
        leases, name, former = _running.leases, str(self.name), self.lease
        leases[name] = lease
        try:
            with lease:
                return super().__call__(*args, **kwargs)
        finally:
            # None, unless the task has called itself with another key.
            leases[name] = former

    def _taken(self, names: tuple[str, ...]) -> Lease:
        assert self.locks is not None  # noqa: S101 - names_for has looked
        wishes: dict[str, Any] = {"wait": 0} | self.lock_options | {"info": {"task": self.request.id or ""}}
        return self.locks.lock(*names, **wishes).acquire()


class UniqueTask(LockedTask):
    """A task that is queued once for each key, from the moment it is sent to its end.

    Sending it again meanwhile returns the result of the one that is queued or runs. The lock is taken by who sends, and
    handed over to the worker that runs it (`export` and `adopt`), with the same fence.

    Attributes besides those of `LockedTask`:
        unique_for: seconds that it may stand in the queue; then it counts as lost, and another one may be sent.

    Safety: a task that has stood in the queue for longer runs all the same, when nobody else has the lock.
    """

    abstract = True
    unique_for: ClassVar[float] = 3600.0

    def apply_async(
        self, args: Any = None, kwargs: Any = None, task_id: str | None = None, *rest: Any, **options: Any
    ) -> AsyncResult:
        """Sends the task, unless one with the same key is queued or runs: then the result is that one's."""
        from celery import uuid  # noqa: PLC0415 - only who sends needs it

        if self.app.conf.task_always_eager:
            return super().apply_async(args, kwargs, task_id, *rest, **options)
        names = self.names_for(args or (), kwargs or {})
        assert self.locks is not None  # noqa: S101 - names_for has looked
        ident = task_id or uuid()
        current = self.lease
        if current is not None and self.request.id == ident:
            # A retry of the task that runs now: it keeps its lease.
            current.renew(self.unique_for)
            lease = current
        else:
            wishes: dict[str, Any] = {"wait": 0, "ttl": self.unique_for, "renew": False, "info": {"task": ident}}
            try:
                lease = self.locks.lock(*names, **wishes).acquire()
            except NotAcquired as queued:
                info = queued.holder.info if queued.holder is not None else None
                return self.AsyncResult(str(info["task"]) if isinstance(info, dict) and "task" in info else ident)
        headers = {**(options.pop("headers", None) or {}), HEADER: lease.export()}
        return super().apply_async(args, kwargs, ident, *rest, headers=headers, **options)

    def _taken(self, names: tuple[str, ...]) -> Lease:
        assert self.locks is not None  # noqa: S101 - names_for has looked
        exported = _header(self.request)
        if exported is not None:
            try:
                return self.locks.adopt(exported, info={"task": self.request.id or ""})
            except LeaseLost:
                logger.info("task %s has stood in the queue for longer than its lease", self.request.id)
        return super()._taken(names)


def _header(request: Any) -> str | None:
    found = getattr(request, HEADER, None) or (getattr(request, "headers", None) or {}).get(HEADER)
    return found if isinstance(found, str) else None


def _free(task: Any, task_id: str, args: Any, kwargs: Any) -> None:
    """In the worker's main process: the process that ran the task is gone, and nobody holds its lock any more."""
    if not isinstance(task, LockedTask) or task.locks is None:
        return
    try:
        for name in task.names_for(args or (), kwargs or {}):
            holder = task.locks.holder(name)
            info = holder.info if holder is not None else None
            if holder is not None and isinstance(info, dict) and info.get("task") == task_id:
                task.locks.break_lock(name, holder.fence, force=True)
    except TenureError as error:
        logger.warning("the lock of task %s could not be freed (%s); its ttl takes over", task_id, error)


@signals.task_revoked.connect
def _revoked(sender: Any = None, request: Any = None, terminated: bool = False, **_: Any) -> None:  # noqa: FBT001, FBT002
    exported = _header(request)
    # A greenlet that is killed leaves its block, and may be about to: nobody else must free what it holds meanwhile.
    green = patches.green()
    alive = green or not terminated
    if alive and isinstance(sender, LockedTask) and sender.locks is not None and exported is not None:
        try:
            sender.locks.adopt(exported).release()
        except TenureError as error:
            logger.info("the lease of the revoked task %s is over (%s)", request.id, error)
        return
    if request is not None and not green:
        _free(sender, request.id, request.args, request.kwargs)


@signals.task_failure.connect
def _failed(sender: Any = None, task_id: str = "", exception: Any = None, **facts: Any) -> None:
    if isinstance(exception, WorkerLostError):
        _free(sender, task_id, facts.get("args"), facts.get("kwargs"))
