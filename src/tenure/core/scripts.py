"""The Lua scripts: their texts, put together from their parts, and the hashes under which servers know them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib.resources import files

TOKEN_WIDTH = 44
PARTS = ("prelude", "common", "take")


@dataclass(frozen=True, slots=True)
class Script:
    """One Lua script: its text and the hash under which a server that has seen it runs it."""

    name: str
    text: bytes
    sha: bytes
    call: bytes
    """The first two words of its call by hash, packed."""


def _load(name: str) -> Script:
    def read(part: str) -> bytes:
        return (files("tenure.core") / "lua" / f"{part}.lua").read_bytes()

    text = read(name)
    for part in PARTS:
        text = text.replace(f"-- include: {part}\n".encode(), read(part))
    sha = hashlib.sha1(text, usedforsecurity=False).hexdigest().encode()
    return Script(name, text, sha, b"$7\r\nEVALSHA\r\n$40\r\n%b\r\n" % sha)


ACQUIRE, ONCE, SEVERAL, ADOPT = map(_load, ("acquire", "once", "several", "adopt"))
RELEASE, WITHDRAW, RENEW, ANNOUNCE = map(_load, ("release", "withdraw", "renew", "announce"))
INSPECT, ASK, BREAK = map(_load, ("inspect", "ask", "break"))
