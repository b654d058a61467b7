"""What all callers of one `Locks` object share: the way to the server, its clock, token and request numbers."""

from __future__ import annotations

import itertools
import random
import secrets
from typing import TYPE_CHECKING, Any, cast

from ..clients.resp import pack
from ..core import requests, scripts
from ..core.keys import channel_prefix, name_of, word
from ..core.ports import Unanswered
from ..core.requests import Reply
from ..core.server_time import ServerTime
from . import clock

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..clients.base import Client
    from ..core.requests import Request
    from ..options import Defaults

# A single request may not eat the whole budget for finding a usable server.
REQUEST_SHARE = 3
TIME = pack(b"TIME")


class ClientState:
    """Lives as long as one process's use of a `Locks` object; a forked child gets a new one."""

    def __init__(self, client: Client, defaults: Defaults) -> None:
        self.client = client
        self.defaults = defaults
        self.server_timeout = defaults.server_timeout
        self.request_timeout = defaults.server_timeout / REQUEST_SHARE
        self.server_time = ServerTime()
        self.prefix = channel_prefix(defaults.namespace)
        self._packed_prefix = word(self.prefix)
        self.random = random.Random(secrets.randbits(64)).random  # noqa: S311 - jitter, no secret
        self.inbox_id = secrets.token_hex(8)
        self.inbox = ""
        """The inbox id with its kind in front while the subscription is confirmed, else empty."""
        self.epoch = 0
        self.requests = 0
        self.broken_connections = 0
        self.unanswered_count = 0
        self.on_unanswered: Callable[[str, str], None] | None = None
        """Told the name of the lock and of the script."""
        self._client_token = secrets.token_hex(16).encode()
        self._counter = itertools.count(1)

    def new_token(self) -> bytes:
        """A token that no other acquisition of any client has."""
        return b"%b%012x" % (self._client_token, next(self._counter))

    def connection_lost(self) -> None:
        """A connection broke: there may be another server behind the address now."""
        self.epoch += 1
        self.broken_connections += 1

    def unanswered(self, request: Request) -> None:
        """A request had no answer: unless it only reads, its outcome is unknown."""
        if isinstance(request, requests.Plain) or request.script in (scripts.INSPECT, scripts.ASK):
            return
        self.unanswered_count += 1
        if self.on_unanswered is not None:
            self.on_unanswered(name_of(self.defaults.namespace, request.keys[0]) or "", request.script.name)

    def pack(self, request: Request, *, full: bool) -> bytes:
        """The bytes of a request."""
        self.requests += 1
        if request.timed and request.args[0] == 0:
            # The server's time was not known before this connection was opened.
            request.stamp(self.server_time, clock.now(), self.request_timeout)
        return (None if full else request.packed(self._packed_prefix)) or pack(*request.command(self.prefix, full=full))

    def learn_time(self, sent_at: float, raw: Any) -> None:
        """The answer to a TIME that a fresh connection was asked, so that even the first request has a not-after."""
        seconds, micros = raw
        self.server_time.learn(sent_at, int(seconds) * 1000 + int(micros) // 1000)


def reply_of(raw: list[Any] | bytes | str | int | None, request: Request) -> Reply:
    """The reply of `request`; raises `Unanswered` when `raw` belongs to another one."""
    # The fast paths answer in one string.
    words: list[Any] = raw.split(b" ") if isinstance(raw, bytes) else raw if isinstance(raw, list) else []
    if requests.is_reply_to(words, request):
        return Reply(request.sent_at, int(words[1]), words[2:])
    if isinstance(request, requests.Plain):
        return Reply(request.sent_at, 0, cast("list[Any]", raw))
    msg = "the reply belongs to another request: the connection was out of step"
    raise Unanswered(msg)
