"""Resumable uploads on several servers: a tus server whose uploads go on wherever their client comes back.

A client whose connection has gone comes back on another server while the first one still waits for the rest of the old
request. The middleware makes the second server ask, and the first one's application see a disconnect: it saves what has
arrived, the lock is handed over, and the second server goes on at the right offset. For `tuspyserver` and any other
ASGI application that handles a disconnect in this way.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from .. import options
from ..errors import ConfigError
from .asgi.middleware import LockMiddleware, Rule, request_lease

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from contextlib import AbstractAsyncContextManager

    from ..manager import AsyncLocks
    from .asgi.middleware import App

__all__ = ["TusMiddleware", "guard_s3", "lock_factory"]

NAME = "upload:{uid}"
# Where only POST gets through, a client sends PATCH and DELETE as POST with X-HTTP-Method-Override.
METHODS = ("HEAD", "PATCH", "DELETE", "POST")


class TusMiddleware(LockMiddleware):
    """An ASGI application around a tus server: one request at a time for each upload, on all servers together.

    Args:
        app: the application with the tus routes.
        locks: where the locks are; the same server and namespace for all.
        prefix: the path of the uploads: an upload is at `<prefix>/<uid>`.
        name: the name of the lock, with `{uid}` in it.
        ttl: how long an upload stays locked when its server dies.
        wait: how long a request waits for the one in progress to save and end, before it is answered 423; longer than
            the ttl, so that the death of a server is only a wait.

    HEAD, PATCH and DELETE of an upload take its lock, asking whoever has it; all others pass by. `hand_over()` before
    a server is taken away: its uploads go on elsewhere. Raises `ConfigError`.

    Safety: a server that was paused for longer than the ttl would save what it had when it wakes up: let the storage
    check the lease (`guard_s3`), or the fence (`tenure.lease` of the scope).
    """

    def __init__(  # noqa: PLR0913 - all by keyword
        self,
        app: App,
        *,
        locks: AsyncLocks,
        prefix: str = "/files",
        name: str = NAME,
        ttl: options.Seconds = 10,
        wait: options.Seconds = 20,
    ) -> None:
        rule = Rule(f"/{prefix.strip('/')}/{{uid}}", [_checked(name)], METHODS)
        super().__init__(app, locks=locks, rules=[rule], ttl=ttl, wait=wait, shared=False, takeover=True)


def lock_factory(
    locks: AsyncLocks, *, name: str = NAME, ttl: options.Seconds = 10, wait: options.Seconds = 20
) -> Callable[[str], AbstractAsyncContextManager[None]]:
    """What a storage of `tuspyserver` wants as its `lock_factory`: a block that holds the lock of one upload.

    Args:
        locks: where the locks are.
        name: the name of the lock, with `{uid}` in it; the same as that of the middleware.
        ttl: see `AsyncLocks.lock`.
        wait: how long to wait for whoever has it, who is asked; `tuspyserver` answers 503 when the time is up.

    Under `TusMiddleware` the request holds the lock already, and the block only makes sure that it still does: raises
    `LeaseLost` when it does not. Raises what `acquire` raises.

    Safety: the block is not cancelled when its lease is lost, since `tuspyserver` would keep the bytes that it has for
    the next request; it ends with `LeaseLost`. Let `guard_s3` refuse what is written meanwhile.
    """
    _checked(name)
    options.seconds(wait, "wait")

    @contextlib.asynccontextmanager
    async def locked(uid: str) -> AsyncGenerator[None]:
        wanted = name.format(uid=uid)
        lease = request_lease.get()
        if lease is not None and wanted in lease.names:
            lease.check()
            yield
            return
        async with locks.lock(wanted, ttl=ttl, wait=wait, ask_after=0, cancel_on_lost=False) as lease:
            inside = request_lease.set(lease)
            try:
                yield
            finally:
                request_lease.reset(inside)

    return locked


def guard_s3(client: Any, *, takes: options.Seconds = 0) -> None:  # noqa: ANN401 - boto3 makes its classes when it runs
    """Makes an S3 client of boto3 refuse to write for a request whose lease is lost.

    Args:
        client: `boto3.client("s3")`; changed for good.
        takes: how many seconds of the lease have to be left: as long as a write may take.

    Each write of a request that has a lease of `TusMiddleware`, `LockMiddleware` or `lock_factory` raises `LeaseLost`
    instead of being sent when that lease is over; so do its retries. Other writes, and reads, are as before.

    Safety: a write that was sent already arrives all the same.
    """
    least = options.seconds(takes, "takes")

    def check(request: Any, **_: object) -> None:  # noqa: ANN401 - as above
        lease = request_lease.get()
        if lease is not None and request.method not in ("GET", "HEAD"):
            lease.check(least)

    client.meta.events.register("before-send.s3", check)


def _checked(name: str) -> str:
    if "{uid}" not in name:
        msg = f"the name of an upload's lock needs '{{uid}}', not {options.shown(name)}"
        raise ConfigError(msg)
    return name
