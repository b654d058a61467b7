"""Commands as bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import hiredis

if TYPE_CHECKING:
    from collections.abc import Callable

# hiredis declares a tuple of one word; any number of words is right.
_pack_command = cast("Callable[[tuple[Any, ...]], bytes]", hiredis.pack_command)  # pyright: ignore[reportUnknownMemberType]


def pack(*words: bytes | str | int) -> bytes:
    """One command in the server's protocol."""
    # No numbers: hiredis 3.5 takes their repr, which looks for signals, and crashes the interpreter if one is there.
    return _pack_command(tuple([b"%d" % word if isinstance(word, int) else word for word in words]))
