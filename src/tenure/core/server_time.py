"""What this client knows of the server's clock."""

from __future__ import annotations


class ServerTime:
    """The newest reply's server time, carried forward by the local clock.

    The server read its clock after the request had been sent, so counting from that local instant never runs behind
    the server: a not-after computed from it is late by a round trip at the most, never early.
    """

    __slots__ = ("_known", "latest")

    def __init__(self) -> None:
        self._known: tuple[float, int] | None = None
        self.latest = 0
        """The largest not-after that was ever given out: nothing that was sent until now takes effect after it."""

    def learn(self, sent_at: float, now_ms: int) -> None:
        """A request sent at the local instant `sent_at` was answered with this server time."""
        self._known = (sent_at, now_ms)

    def at(self, instant: float) -> int | None:
        """The server's milliseconds at a local instant, or None before the first reply."""
        known = self._known
        if known is None:
            return None
        return known[1] + int((instant - known[0]) * 1000) + 1

    def not_after(self, instant: float) -> int:
        """The server time from which a request must have no effect; 0, which is none, before the first reply."""
        limit = self.at(instant) or 0
        self.heed(limit)
        return limit

    def heed(self, not_after: int) -> None:
        """A request may take effect until then: one of ours, or of the process that a lease came from."""
        self.latest = max(self.latest, not_after)
