"""One request until it is answered: which failures are tried again, for how long, and what the rest means to a user."""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING

from ..errors import (
    ConfigError,
    NameConflict,
    PermissionDenied,
    ServerError,
    ServerReadOnly,
    ServerUnavailable,
    TenureError,
)
from . import backoff
from .ports import NotSent, Refused, Unanswered

if TYPE_CHECKING:
    from collections.abc import Callable

    from .ports import Port
    from .requests import Reply, Request


class Kind(Enum):
    """What an error reply of the server means for us."""

    NOSCRIPT = auto()
    RETRY = auto()
    READONLY = auto()
    DENIED = auto()
    CONFIG = auto()
    CONFLICT = auto()
    FATAL = auto()


_CODES = {
    "NOSCRIPT": Kind.NOSCRIPT,
    "LOADING": Kind.RETRY,
    "MASTERDOWN": Kind.RETRY,
    "TRYAGAIN": Kind.RETRY,
    "CLUSTERDOWN": Kind.RETRY,
    "BUSY": Kind.RETRY,
    "NOREPLICAS": Kind.RETRY,
    "READONLY": Kind.READONLY,
    "NOPERM": Kind.DENIED,
    "NOAUTH": Kind.CONFIG,
    "WRONGPASS": Kind.CONFIG,
    "WRONGTYPE": Kind.CONFLICT,
}

# Inside a script the server wraps the real error into a plain ERR: only the text tells.
_PHRASES = (
    ("max number of clients", Kind.RETRY),
    ("ACL failure", Kind.DENIED),
    ("The user executing the script can't", Kind.DENIED),
    ("no permissions", Kind.DENIED),
    ("-READONLY", Kind.READONLY),
    ("against a read only replica", Kind.READONLY),
    ("WRONGTYPE", Kind.CONFLICT),
    ("-NOREPLICAS", Kind.RETRY),
    ("DB index is out of range", Kind.CONFIG),
    ("Client sent AUTH, but no password is set", Kind.CONFIG),
    ("without any password configured", Kind.CONFIG),
)


def classify(text: str) -> Kind:
    """What an error text of the server means."""
    kind = _CODES.get(text.split(" ", 1)[0])
    if kind is not None:
        return kind
    return next((kind for phrase, kind in _PHRASES if phrase in text), Kind.FATAL)


_ADVICE = {
    "OOM": "the server has reached its maxmemory; give it memory or remove keys",
    "MISCONF": "the server cannot write its snapshot and refuses writes; look at its log and disk",
}


def explain(text: str, kind: Kind, node: str) -> TenureError:
    """The error that a user gets for an error reply."""
    if kind is Kind.READONLY:
        msg = (
            f"the server at {node} is read-only (a replica, or a failover in progress): nothing was locked; "
            f"connect to the primary"
        )
        return ServerReadOnly(msg, node=node, cause=text)
    if kind is Kind.DENIED:
        msg = f"the server at {node} does not permit what locks need: {text}; docs/permissions.md lists what that is"
        return PermissionDenied(msg, node=node, cause=text)
    if kind is Kind.CONFIG:
        return ConfigError(
            f"the server at {node} refuses this client's settings: {text}; check user, password and database"
        )
    if kind is Kind.CONFLICT:
        return NameConflict(
            f"a key of this lock at {node} holds something that is no lock: {text}; choose another name or namespace"
        )
    if kind is Kind.RETRY:
        return ServerUnavailable(f"the server at {node} was not ready in time: {text}", node=node, cause=text)
    advice = next((a for code, a in _ADVICE.items() if code in text), "see the server's documentation for this error")
    return ServerError(f"the server at {node} refused: {text}; {advice}", node=node, cause=text)


async def exchange(
    port: Port, request: Request, *, give_up: float | None = None, wanted: Callable[[], bool] | None = None
) -> Reply:
    """Sends `request` until it is answered, the local instant `give_up` has come, or it is not `wanted` any more.

    Without a `give_up` it goes on for `server_timeout` seconds.
    Raises a `TenureError` that says what is wrong with the server. `request.unanswered` tells afterwards whether the
    request may have had an effect that nobody has seen: then the caller resolves it or undoes it.
    """
    attempt = 0
    full = False
    reconnected = False
    while True:
        request.sent_at = sent_at = port.now()
        timeout = port.request_timeout
        if request.timed:
            request.stamp(port.server_time, sent_at, timeout)
        if give_up is None:
            give_up = sent_at + port.server_timeout
        if give_up - sent_at < timeout:
            timeout = max(give_up - sent_at, 0.01)
        try:
            reply = await port.send(request, full=full, timeout=timeout)
        except Refused as refused:
            kind = classify(refused.text)
            if kind is Kind.NOSCRIPT and not full:
                full = True
                continue
            # One look for a new primary; a server that stays read-only is told at once, not after a busy loop.
            if kind is Kind.READONLY and not reconnected:
                reconnected = True
                port.reconnect()
                continue
            error = explain(refused.text, kind, port.node)
            if kind is not Kind.RETRY:
                raise error from None
        except NotSent as failure:
            error = ServerUnavailable(
                f"cannot reach the server at {port.node}: {failure.cause}", node=port.node, cause=failure.cause
            )
            if failure.fatal:
                raise error from None
        except Unanswered as failure:
            request.unanswered = True
            error = ServerUnavailable(
                f"no answer from the server at {port.node}: {failure.cause}", node=port.node, cause=failure.cause
            )
        except TenureError:
            # The client's own words (no embedded server to be had, say): nothing was sent.
            raise
        except BaseException:
            # Cancelled or interrupted while the reply was on its way.
            request.unanswered = True
            raise
        else:
            if reply.now_ms:
                port.server_time.learn(reply.sent_at, reply.now_ms)
            return reply
        pause = backoff.delay(attempt, port.random())
        attempt += 1
        if port.now() + pause >= give_up:
            raise error from None
        await port.sleep(pause)
        if wanted is not None and not wanted():
            raise error from None
