"""What a request is told that cannot go on: 423 when the resource is locked, 503 when there is no usable server."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...errors import LeaseLost, NotAcquired

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping

    from ...errors import ServerError

    Message = MutableMapping[str, Any]
    Send = Callable[[Message], Awaitable[None]]

BAD_REQUEST = 400
LOCKED = 423
UNAVAILABLE = 503
RETRY_SERVER = 1


@dataclass(frozen=True, slots=True)
class Answer:
    """A response that is complete: status, Retry-After in whole seconds if it makes sense, a JSON body."""

    status: int
    retry_after: int | None
    body: dict[str, Any]

    @property
    def headers(self) -> dict[str, str]:
        """The headers besides those of the body."""
        return {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}

    async def send(self, send: Send) -> None:
        """Sends the whole response."""
        body = json.dumps(self.body).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        headers += [(name.lower().encode(), value.encode()) for name, value in self.headers.items()]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def answer(
    error: NotAcquired | LeaseLost | ServerError,
    operation: str,
    resources: tuple[str, ...],
    *,
    show_holder: bool = False,
) -> Answer:
    """The response for an error of a lock.

    Args:
        error: what acquiring, or the end of the block, has raised.
        operation: what the request wanted to do, for the body.
        resources: the names of the locks, for the body.
        show_holder: the body has what the holder tells others of itself as its `info`, and since when it holds.
    """
    facts: dict[str, Any] = {"operation": operation, "resource": resources[0], "resources": list(resources)}
    if isinstance(error, NotAcquired):
        # Of several names the one that is in the way.
        facts |= {"resource": error.names[0] if error.names else resources[0], "error": "locked"}
        holder = error.holder
        if show_holder and holder is not None:
            since = None if holder.since is None else holder.since.isoformat()
            facts["holder"] = {"info": holder.info, "since": since}
        return Answer(LOCKED, math.ceil(error.retry_after), facts)
    facts["error"] = "lost" if isinstance(error, LeaseLost) else "unavailable"
    return Answer(UNAVAILABLE, RETRY_SERVER, facts)


def handed_over(operation: str, resources: tuple[str, ...]) -> Answer:
    """The response of a request whose application has ended without one, because another request took its locks."""
    facts = {"operation": operation, "resource": resources[0], "resources": list(resources), "error": "handed over"}
    return Answer(LOCKED, RETRY_SERVER, facts)


def unusable(operation: str) -> Answer:
    """The response for a path of which no name of a lock can be made: too long, or with control characters."""
    return Answer(BAD_REQUEST, None, {"operation": operation, "error": "name"})
