"""Delays between tries, with the random source passed in."""

from __future__ import annotations

FIRST = 0.01
LONGEST = 0.5


def delay(attempt: int, random: float) -> float:
    """Seconds before try number `attempt` + 1: doubling, at most half a second, with up to half of it jitter."""
    full: float = min(FIRST * 2 ** min(attempt, 10), LONGEST)
    return full * (0.5 + random / 2)
