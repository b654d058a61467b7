"""From a lock's name to its keys: one hash tag, so that all keys of a lock share a cluster slot."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import lru_cache

_ESCAPES = {ord("%"): "%25", ord("{"): "%7B", ord("}"): "%7D"}


@dataclass(frozen=True, slots=True)
class Keys:
    """All keys of the lock whose main key is `main`, encoded.

    Only what every request needs is kept, since one of these is kept per lease.
    """

    name: str
    main: bytes
    packed: bytes = field(init=False)
    """The number of keys and the keys, as words of a command."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "packed", b"$1\r\n5\r\n" + b"".join(map(word, self.all)))

    @property
    def queue(self) -> bytes:
        """The tokens of those who wait."""
        return companion(self.main, b"queue")

    @property
    def entry(self) -> bytes:
        """What is known of those who wait, or hold beside others."""
        return companion(self.main, b"entry")

    @property
    def fence(self) -> bytes:
        """The highest fence that was given."""
        return companion(self.main, b"fence")

    @property
    def shared(self) -> bytes:
        """The tokens of those who hold beside others."""
        return companion(self.main, b"shared")

    @property
    def all(self) -> tuple[bytes, bytes, bytes, bytes, bytes]:
        """The keys in the order in which every script wants them."""
        return self.main, self.queue, self.entry, self.fence, self.shared


def companion(main: bytes, part: bytes) -> bytes:
    """A key beside the main one, in the same slot."""
    return b"{%b}:%b" % (main, part)


def word(text: bytes) -> bytes:
    """One word of a command, as it is sent."""
    return b"$%d\r\n%b\r\n" % (len(text), text)


def main_key(namespace: str, name: str) -> str:
    """The key that exists while somebody holds `name`; braces are escaped, so it contains none."""
    escaped = name.translate(_ESCAPES)
    return f"{namespace}:{escaped}" if namespace else escaped


@lru_cache(maxsize=4096)
def keys_of(namespace: str, name: str) -> Keys:
    """All keys of the lock `name`."""
    return Keys(name, main_key(namespace, name).encode("utf-8", "surrogateescape"))


def short_id(token: bytes) -> str:
    """8 hex digits that identify a token without giving it away; the scripts compute the same."""
    return hashlib.sha1(token, usedforsecurity=False).hexdigest()[:8]


def moved_key(keys: Keys, lease: str) -> bytes:
    """The key that tells, for a ttl, the id of the lease that this one, given by its id, became by adoption."""
    return companion(keys.main, b"moved:" + lease.encode())


def again_key(keys: Keys) -> bytes:
    """The key that exists while a lock that was taken by `once` must not be taken by it again."""
    return companion(keys.main, b"again")


def name_of(namespace: str, key: bytes) -> str | None:
    """The lock's name of a main key, or None when the key is a companion key or of another namespace."""
    text = key.decode("utf-8", "surrogateescape")
    prefix = f"{namespace}:" if namespace else ""
    if text.startswith("{") or not text.startswith(prefix):
        return None
    name = text[len(prefix) :]
    return name.replace("%7D", "}").replace("%7B", "{").replace("%25", "%")


_GLOB = str.maketrans({char: f"\\{char}" for char in "*?[]\\^-"})


def pattern_of(namespace: str, prefix: str) -> bytes:
    """The pattern of all main keys whose names begin with `prefix`, taken literally."""
    return main_key(namespace, prefix).translate(_GLOB).encode("utf-8", "surrogateescape") + b"*"


def channel_prefix(namespace: str) -> bytes:
    """What stands in front of an inbox id in the channel's name."""
    return f"{namespace}:@".encode() if namespace else b"@"
