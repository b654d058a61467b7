"""Lengths of time as people type them: `30`, `30s`, `500ms`, `10m`, `1h`."""

from __future__ import annotations

import re

_UNITS = {"ms": 0.001, "s": 1.0, "": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_FORM = re.compile(r"(\d+(?:\.\d+)?|\.\d+)\s*(ms|s|m|h|d|)", re.ASCII | re.IGNORECASE)


def parse_duration(text: str) -> float:
    """Turn a number with an optional unit (ms, s, m, h, d; seconds without one) into seconds.

    Raises `ValueError` with a message for the user.
    """
    match = _FORM.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a length of time: write 30, 30s, 500ms, 10m or 1h")
    return float(match[1]) * _UNITS[match[2].lower()]


def format_duration(seconds: float) -> str:
    """Write a length of time briefly, for messages: `450 ms`, `12 s`, `3 min 20 s`, `2 h 5 min`."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    whole = round(seconds)
    if whole < 60:  # noqa: PLR2004
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:  # noqa: PLR2004
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"
