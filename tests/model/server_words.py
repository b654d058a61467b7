"""The texts in which the protocol keeps its state: values of a main key, markers, records of holders, flags."""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple

MARK = b"tenure1:"
TOKEN_WIDTH = 44
AFTER_TOKEN = len(MARK) + TOKEN_WIDTH + 1

_NEWER = re.compile(rb"tenure(\d+):")
_OURS = re.compile(rb"tenure1:[0-9A-Za-z]{44} \d+ \d+ \S+ ")
_REVOKED = re.compile(rb"\S+ \S+ !")
_MARKER = re.compile(rb"tenure1:(s|n(\d+)) (\d+) (\d+)")
_RECORD = re.compile(rb"h (\d+) (\d+) (\S+) (.*)", re.DOTALL)
_MODE = re.compile(rb"!?([^<@]*)")


class Lock(NamedTuple):
    """The five keys of one lock."""

    main: bytes
    queue: bytes
    entry: bytes
    fence: bytes
    shared: bytes


class Grant(NamedTuple):
    """Who is to hold, on which terms (milliseconds)."""

    token: bytes
    ttl: int
    grace: int
    flags: bytes
    info: bytes

    @property
    def life(self) -> int:
        """How long its key lives without renewal."""
        return self.ttl + self.grace


class Marker(NamedTuple):
    """The value of a main key while shared or semaphore holders live."""

    mode: bytes
    limit: int | None
    """How many may hold; None: any number (shared)."""
    fence: bytes
    since: bytes


class Record(NamedTuple):
    """What is known of one lease besides its token and its end."""

    fence: bytes
    since: bytes
    flags: bytes
    info: bytes

    @property
    def text(self) -> bytes:
        """What others may see of it, behind the token's hash; in a record it stands behind `h `."""
        return b" ".join(self)

    @property
    def revoked(self) -> bool:
        """Whether an operator has broken the lease."""
        return self.flags.startswith(b"!")


def sha8(data: bytes) -> bytes:
    """The 8 hex digits by which others know a token or a foreign value."""
    return hashlib.sha1(data, usedforsecurity=False).hexdigest()[:8].encode()


def ours(value: bytes) -> bool:
    """Whether the value is an exclusive lease of this version's format, whole: a part of one counts as foreign."""
    return _OURS.match(value) is not None


def mine(value: bytes, token: bytes) -> bool:
    """Whether the value is the lease of `token`: compared together with the separator."""
    return len(token) == TOKEN_WIDTH and value.startswith(MARK + token + b" ")


def newer(value: bytes) -> bool:
    """Whether the value was written by another version of the library."""
    mark = _NEWER.match(value)
    return mark is not None and mark[1] != b"1"


def revoked(value: bytes) -> bool:
    """Whether an operator has broken this exclusive lease."""
    return _REVOKED.match(value[AFTER_TOKEN:]) is not None


def marker_of(value: bytes | None) -> Marker | None:
    """The value as a marker, or None when it is none."""
    found = None if value is None else _MARKER.fullmatch(value)
    if found is None:
        return None
    return Marker(found[1], None if found[2] is None else int(found[2]), found[3], found[4])


def record_of(field: bytes | None) -> Record | None:
    """A field of the entry hash as a holder's record; None when there is none, or when it is a waiter's entry."""
    found = None if field is None else _RECORD.fullmatch(field)
    return None if found is None else Record(*found.groups())


def lease_of(value: bytes) -> Record:
    """The exclusive lease that a value of ours holds."""
    return Record(*value[AFTER_TOKEN:].split(b" ", 3))


def token_of(value: bytes) -> bytes:
    """The token of a value of ours."""
    return value[len(MARK) : AFTER_TOKEN - 1]


def public(value: bytes) -> bytes:
    """What others may see of an exclusive or foreign holder."""
    if ours(value):
        return sha8(token_of(value)) + b" " + value[AFTER_TOKEN:]
    return b"foreign " + sha8(value)


def seen(token: bytes, record: Record) -> bytes:
    """What others may see of any holder of ours."""
    return sha8(token) + b" " + record.text


def mode_of(flags: bytes) -> bytes:
    """How a lease is held: x, s, or n and a limit."""
    found = _MODE.match(flags)
    return b"" if found is None else found[1]


def adopted_from(flags: bytes, token: bytes) -> bool:
    """Whether a lease was taken over from this token."""
    return b"<" + sha8(token) in flags


def other_use(value: bytes | None, flags: bytes) -> list[bytes | int] | None:
    """Why a lease of these flags can never be had while the key has this value; None when it only has to wait."""
    semaphore = mode_of(flags).startswith(b"n")
    marker = marker_of(value)
    if marker is not None and marker.limit is not None:
        if not semaphore:
            return [b"conflict", b"the name is in use as a semaphore"]
        if int(mode_of(flags)[1:]) != marker.limit:
            return [b"limit", marker.limit]
    elif semaphore and value is not None and (marker is not None or ours(value)):
        return [b"conflict", b"the name is in use as an exclusive or shared lock"]
    return None
