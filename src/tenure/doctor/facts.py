"""What a server tells of itself, read once; whatever it does not tell is absent."""

from __future__ import annotations

import ipaddress
import socket
import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..clients.embedded import EmbeddedClient
from ..core import requests
from ..core.exchange import exchange
from ..errors import ServerError, ServerUnavailable
from ..runtime.blocking import run

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..manager import Locks

SETTINGS = (
    "save",
    "appendonly",
    "appendfsync",
    "min-replicas-to-write",
    "timeout",
    "client-output-buffer-limit",
    "stop-writes-on-bgsave-error",
)
SAMPLES = 9
TYPICAL_TTL = 30.0


@dataclass(frozen=True, slots=True)
class Facts:
    """What the checks look at."""

    node: str
    namespace: str
    embedded: bool
    local: bool
    """Nothing between this process and the server leaves this machine."""
    tls: bool | None
    """None when the client does not tell."""
    grace: float
    """Seconds that a key outlives a lease of the usual length."""
    skew: float
    """Seconds by which the server's clock is ahead of this machine's."""
    round_trip: float
    """Seconds that a request takes: the median of several."""
    info: Mapping[str, str]
    """What INFO tells; empty when it is not permitted."""
    settings: Mapping[str, str]
    """Those of SETTINGS that CONFIG GET tells; empty when it is not permitted."""

    def number(self, name: str) -> int | None:
        """A number that INFO tells, or CONFIG."""
        text = self.info.get(name, self.settings.get(name, ""))
        return int(text) if text.isdigit() else None


def ask(locks: Locks, *words: str | bytes | int) -> Any:  # noqa: ANN401 - as many types as there are commands
    """The reply to a plain command; raises a `TenureError`."""
    port = locks.session().port
    request = requests.Plain(*words)
    return run(exchange(port, request)).answers


def gather(locks: Locks) -> Facts:
    """Asks the server; raises a `ServerError` when it cannot be used at all."""
    state = locks.session().state
    client = state.client
    embedded = isinstance(client, EmbeddedClient)
    skew, round_trip = _clock(locks)
    info = _permitted(locks, "INFO")
    settings: dict[str, str] = {}
    for name in SETTINGS:
        # One by one: servers before 7.0 take one name only.
        pairs = _permitted(locks, "CONFIG", "GET", name)
        settings |= dict(zip(map(_text, pairs[::2]), map(_text, pairs[1::2]), strict=False)) if pairs else {}
    return Facts(
        node=client.node,
        namespace=locks.namespace,
        embedded=embedded,
        local=embedded or is_local(client.node),
        tls=getattr(client, "tls", None),
        grace=state.defaults.grace_for(TYPICAL_TTL),
        skew=skew,
        round_trip=round_trip,
        info=_parsed(_text(info)) if info else {},
        settings=settings,
    )


def _permitted(locks: Locks, *words: str) -> Any:  # noqa: ANN401 - see ask
    """The reply, or None where the server does not permit the command: many that are rented do not."""
    try:
        return ask(locks, *words)
    except ServerUnavailable:
        raise
    except ServerError:
        return None


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _parsed(info: str) -> dict[str, str]:
    return dict(line.split(":", 1) for line in info.splitlines() if ":" in line)


def _clock(locks: Locks) -> tuple[float, float]:
    """By how much the server's clock is ahead, and how long a round trip takes: medians, since any one may be late."""
    ask(locks, "TIME")
    skews: list[float] = []
    trips: list[float] = []
    for _ in range(SAMPLES):
        before, began = time.time(), time.perf_counter()
        seconds, micros = ask(locks, "TIME")
        trip = time.perf_counter() - began
        trips.append(trip)
        skews.append(int(seconds) + int(micros) / 1e6 - (before + trip / 2))
    return statistics.median(skews), statistics.median(trips)


def is_local(node: str) -> bool:
    """Whether an address (`host:port`, or the path of a socket) is this machine's own; asks the name service."""
    if node.startswith("/"):
        return True
    host = node.rpartition(":")[0].strip("[]")
    try:
        found = socket.getaddrinfo(host, None)
    except OSError:
        return False
    return all(ipaddress.ip_address(str(entry[4][0]).partition("%")[0]).is_loopback for entry in found)
