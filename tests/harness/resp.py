"""Cutting a RESP byte stream into requests and replies, as much of the protocol as the fault proxy needs."""

from __future__ import annotations

from typing import Literal

FrameKind = Literal["reply", "confirmation", "push"]

CRLF = b"\r\n"

_BULK = b"$!="
_AGGREGATE = b"*~>"
_PAIRS = b"%|"

PUSHES = frozenset({b"message", b"pmessage", b"smessage", b"invalidate"})
CONFIRMATIONS = frozenset(
    {b"subscribe", b"unsubscribe", b"psubscribe", b"punsubscribe", b"ssubscribe", b"sunsubscribe"}
)


def frame_end(data: bytes | bytearray, start: int = 0) -> int | None:
    """Find where the RESP value (or inline command) that begins at `start` ends; `None` while it is incomplete."""
    outstanding, position = 1, start
    while outstanding:
        line_end = data.find(CRLF, position)
        if line_end < 0:
            return None
        kind, count = data[position : position + 1], data[position + 1 : line_end]
        position = line_end + 2
        outstanding -= 1
        if kind and kind in _BULK and int(count) >= 0:
            position += int(count) + 2
            if position > len(data):
                return None
        elif kind and kind in _AGGREGATE:
            outstanding += max(int(count), 0)
        elif kind and kind in _PAIRS:
            # Attributes (`|`) stand before the value that they describe, which still has to come.
            outstanding += 2 * int(count) + (kind == b"|")
    return position


def split_frames(buffer: bytearray) -> list[bytes]:
    """Take all complete values off the front of `buffer`."""
    frames: list[bytes] = []
    while buffer:
        end = frame_end(buffer)
        if end is None:
            break
        frames.append(bytes(buffer[:end]))
        del buffer[:end]
    return frames


def parse_request(frame: bytes) -> tuple[bytes, ...]:
    """Return the arguments of a request: an array of bulk strings, or an inline command."""
    if not frame.startswith(b"*"):
        return tuple(frame.split())
    return tuple(_bulk_strings(frame))


def frame_kind(frame: bytes) -> FrameKind:
    """Tell a reply from a pub/sub message and from the confirmation of a subscription, in RESP2 and RESP3.

    RESP2 has no mark for messages, so an array whose first element is one of their names counts as one.
    """
    if frame[:1] not in (b"*", b">"):
        return "reply"
    first = next(iter(_bulk_strings(frame, limit=1)), b"")
    if first in PUSHES:
        return "push"
    if first in CONFIRMATIONS:
        return "confirmation"
    return "push" if frame.startswith(b">") else "reply"


def encode_request(*args: bytes | str) -> bytes:
    """Write a request as an array of bulk strings."""
    encoded = [arg if isinstance(arg, bytes) else arg.encode() for arg in args]
    return b"*%d\r\n" % len(encoded) + b"".join(b"$%d\r\n%s\r\n" % (len(arg), arg) for arg in encoded)


def _bulk_strings(frame: bytes, limit: int | None = None) -> list[bytes]:
    """Collect the bulk strings at the start of a flat array; stops at the first element of another kind."""
    found: list[bytes] = []
    position = frame.find(CRLF) + 2
    while position < len(frame) and frame[position : position + 1] == b"$" and (limit is None or len(found) < limit):
        line_end = frame.find(CRLF, position)
        length = int(frame[position + 1 : line_end])
        if length < 0:
            break
        found.append(frame[line_end + 2 : line_end + 2 + length])
        position = line_end + 2 + length + 2
    return found
