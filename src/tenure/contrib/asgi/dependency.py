"""Locks for one endpoint of FastAPI or Starlette: a dependency, and a block."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from starlette.exceptions import HTTPException, WebSocketException
from starlette.requests import HTTPConnection  # noqa: TC002 - FastAPI reads the annotations when it runs
from starlette.responses import JSONResponse

from ...errors import ConfigError, LeaseLost, NotAcquired, ServerError
from .answers import answer, unusable
from .rules import READING, WAIT, filled

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable

    from starlette.requests import Request
    from starlette.responses import Response

    from ... import options
    from ...lease import AsyncLease
    from ...manager import AsyncLocks
    from .answers import Answer

TRY_AGAIN_LATER = 1013
"""What a WebSocket that cannot have its locks is closed with."""


class Refused(HTTPException):
    """A request that cannot have its locks: 423, or 503 without a usable server; `answer` is the whole response."""

    def __init__(self, refusal: Answer) -> None:
        what = ", ".join(refusal.body.get("resources", ["lock"]))
        super().__init__(refusal.status, f"{what}: {refusal.body['error']}", refusal.headers)
        self.answer = refusal


def respond(_request: Request, refused: Exception) -> Response:
    """Answers a `Refused` with its JSON body: `app.add_exception_handler(Refused, respond)`."""
    if not isinstance(refused, Refused):
        raise refused
    return JSONResponse(refused.answer.body, refused.answer.status, refused.answer.headers)


def _refused(connection: HTTPConnection, refusal: Answer) -> HTTPException | WebSocketException:
    refused = Refused(refusal)
    if connection.scope["type"] == "websocket":
        return WebSocketException(TRY_AGAIN_LATER, refused.detail)
    return refused


@contextlib.asynccontextmanager
async def held(  # noqa: PLR0913 - all by keyword
    connection: HTTPConnection,
    *names: str,
    locks: AsyncLocks,
    ttl: options.Seconds = 30,
    wait: options.Seconds = WAIT,
    max_hold: options.Seconds | None = None,
    shared: bool | None = None,
    operation: str | None = None,
    show_holder: bool = False,
) -> AsyncGenerator[AsyncLease]:
    """A block of an endpoint that holds locks, named after the path's parameters.

    Args:
        connection: the request, or a WebSocket.
        names: one or more, with parameters of the path as fields: `archive:{id}`.
        locks: where the locks are.
        ttl: see `AsyncLocks.lock`.
        wait: how long the request waits for its locks before it is answered 423.
        max_hold: see `AsyncLocks.lock`.
        shared: held together with others who share them; None: for GET and HEAD.
        operation: what the request does, for the answer; None is its method in lower case.
        show_holder: 423 tells the holder's `info`.

    Raises `Refused`, which is an `HTTPException`: 423 with Retry-After, 503 without a usable server or when the lease
    was lost, 400 when no name can be made of the path; with `respond` as its handler the response has a JSON body. For
    a WebSocket a `WebSocketException` with the code 1013. Raises `ConfigError` for a field that the path does not have.

    Safety: what the block does is protected by a lease. See `AsyncLease`.
    """
    method: str = connection.scope.get("method", connection.scope["type"])
    wanted = filled(names, connection.path_params)
    what = operation or method.lower()
    wishes: dict[str, Any] = {
        "ttl": ttl,
        "wait": wait,
        "max_hold": max_hold,
        "shared": method in READING if shared is None else shared,
        "info": {"operation": what},
    }
    try:
        lock = locks.lock(*wanted, **wishes)
    except ConfigError as error:
        # The names as they were written can be used, so it is what the request has put into them.
        locks.lock(*names, **wishes)
        raise _refused(connection, unusable(what)) from error
    try:
        lease = await lock.acquire()
    except (NotAcquired, ServerError) as error:
        raise _refused(connection, answer(error, what, wanted, show_holder=show_holder)) from error
    try:
        async with lease:
            yield lease
    except LeaseLost as lost:
        if lease.lost is None:
            raise
        raise _refused(connection, answer(lost, what, wanted)) from lost


def locked(  # noqa: PLR0913 - all by keyword
    *names: str,
    locks: AsyncLocks,
    ttl: options.Seconds = 30,
    wait: options.Seconds = WAIT,
    max_hold: options.Seconds | None = None,
    shared: bool | None = None,
    operation: str | None = None,
    show_holder: bool = False,
) -> Callable[[HTTPConnection], AsyncIterator[AsyncLease]]:
    """A dependency of FastAPI whose endpoint holds locks: `Depends(locked("archive:{id}", locks=locks))`.

    Its arguments and errors are those of `held`. The lease is given back when the response has been sent, or before
    that with `Depends(..., scope="function")`.

    Safety: what the endpoint does is protected by a lease. See `AsyncLease`.
    """

    # A function: FastAPI finds the names in its annotations through the globals of its module.
    async def dependency(connection: HTTPConnection) -> AsyncIterator[AsyncLease]:
        async with held(
            connection,
            *names,
            locks=locks,
            ttl=ttl,
            wait=wait,
            max_hold=max_hold,
            shared=shared,
            operation=operation,
            show_holder=show_holder,
        ) as lease:
            yield lease

    return dependency
