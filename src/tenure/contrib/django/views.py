"""Locks around views: 423 Locked when somebody else has them."""

# pyright: basic
# Django has no types of its own.

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

from django.http import JsonResponse

from ... import options
from ...errors import NotAcquired, ServerError
from .commits import hold_until_commit
from .settings import locks

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.http import HttpRequest, HttpResponse

    View = Callable[..., HttpResponse]

READING = frozenset({"GET", "HEAD"})


def locked(
    *names: str,
    ttl: options.Seconds = 30,
    wait: options.Seconds = 0,
    shared: bool | None = None,
    until_commit: bool = True,
    show_holder: bool = False,
) -> Callable[[View], View]:
    """Decorates a view: each request holds the locks, with the arguments of its URL in the fields of their names.

    Args:
        names: one or more: `order:{order_id}`.
        ttl: see `Locks.lock`.
        wait: how long a request waits for its locks before it is answered 423.
        shared: held together with others who share them; None: for GET and HEAD.
        until_commit: inside a transaction (`ATOMIC_REQUESTS`) the locks are held until it is committed or rolled back,
            not only to the end of the view.
        show_holder: 423 tells the holder's `info`.

    Answers 423 Locked with Retry-After and a JSON body (operation, resource, resources, error), or 503 without a usable
    server. For plain views, whose workers are threads or processes.

    Safety: what the view does is protected by a lease. See `Lease`.
    """
    for name in names:
        options.lock_name(name)
    patience = options.seconds(wait, "wait")

    def decorate(view: View) -> View:
        @functools.wraps(view)
        def wrapper(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:  # noqa: ANN401
            filled = tuple(name.format_map(kwargs) for name in names)
            method = request.method or "GET"
            lock = locks().lock(
                *filled,
                ttl=ttl,
                wait=patience,
                shared=method in READING if shared is None else shared,
                info={"operation": method.lower(), "path": request.path[:200]},
            )
            try:
                lease = lock.acquire()
            except NotAcquired as error:
                return _refused(423, "locked", method, filled, error if show_holder else None, error.retry_after)
            except ServerError:
                return _refused(503, "unavailable", method, filled, None, 1)
            if until_commit and hold_until_commit(lease):
                return view(request, *args, **kwargs)
            with lease:
                return view(request, *args, **kwargs)

        return wrapper

    return decorate


def _refused(  # noqa: PLR0913 - one response
    status: int, word: str, method: str, names: tuple[str, ...], error: NotAcquired | None, retry_after: float
) -> JsonResponse:
    body: dict[str, Any] = {
        "operation": method.lower(), "resource": names[0], "resources": list(names), "error": word,
    }  # fmt: skip
    if error is not None and error.holder is not None:
        since = error.holder.since
        body["holder"] = {"info": error.holder.info, "since": None if since is None else since.isoformat()}
    return JsonResponse(body, status=status, headers={"Retry-After": str(math.ceil(retry_after))})
