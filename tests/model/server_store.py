"""The bare server under the model: keys with their ends, a clock, and who listens to which channel."""

from __future__ import annotations

import re

_INBOX = re.compile(rb"@([A-Za-z])([0-9A-Za-z]+)")

Data = bytes | dict[bytes, bytes] | dict[bytes, int]


class Conflict(Exception):
    """A key holds something that is no lock of ours; the text says what."""


class Store:
    """One server: its keys, its clock, who listens, and what was published."""

    def __init__(self, now_us: int = 1_700_000_000_000_000) -> None:
        self.now_us = now_us
        self.data: dict[bytes, Data] = {}
        """Strings as bytes, sorted sets as member -> score, hashes as field -> value."""
        self.kinds: dict[bytes, str] = {}
        """Type of a key where it is not plain from its data: anything that is no string, set or hash of ours."""
        self.ends: dict[bytes, int] = {}
        """Last millisecond in which a key exists; none: it lives for ever."""
        self.listeners: dict[tuple[bool, bytes], int] = {}
        """(sharded, channel) -> number of subscribers."""
        self.pattern_listeners = 0
        """Clients that `PSUBSCRIBE *`: PUBLISH counts them, although they are nobody's inbox."""
        self.refuse_publish = False
        """The access rules forbid publishing: the script's pcall gets an error."""
        self.published: list[tuple[bytes, bytes]] = []
        """(channel, message) in the order of sending; the explorer takes them from here."""

    # --- The outside ---------------------------------------------------------------------------------------------

    @property
    def now(self) -> int:
        """The server's clock in whole milliseconds."""
        return self.now_us // 1000

    def subscribe(self, channel: bytes, *, shard: bool = False) -> None:
        """One more client listens to a channel."""
        self.listeners[shard, channel] = self.listeners.get((shard, channel), 0) + 1

    def unsubscribe(self, channel: bytes, *, shard: bool = False) -> None:
        """One client fewer listens to a channel."""
        self.listeners[shard, channel] -= 1

    def put(self, key: bytes, value: Data, *, kind: str | None = None, end: int | None = None) -> None:
        """Writes a key as somebody else would: a foreign string, or a key of another type (`kind`)."""
        self.data[key] = value
        self._forget(key)
        if kind is not None:
            self.kinds[key] = kind
        if end is not None:
            self.ends[key] = end

    def delete(self, key: bytes) -> None:
        """DEL."""
        self.data.pop(key, None)
        self._forget(key)

    def state(self) -> dict[bytes, tuple[str, object, int | None]]:
        """Every living key: type, value (a sorted set as a list in its order), last millisecond or None."""
        dump: dict[bytes, tuple[str, object, int | None]] = {}
        for key in sorted(self.data):
            kind = self.type(key)
            if kind != "none":
                value = self.ranked(key) if kind == "zset" else self.data[key]
                dump[key] = (kind, dict(value) if isinstance(value, dict) else value, self.ends.get(key))
        return dump

    # --- Keys ----------------------------------------------------------------------------------------------------

    def _forget(self, key: bytes) -> None:
        self.kinds.pop(key, None)
        self.ends.pop(key, None)

    def type(self, key: bytes) -> str:
        """TYPE; a key exists up to and including its last millisecond."""
        end = self.ends.get(key)
        if end is not None and self.now > end:
            self.delete(key)
        value = self.data.get(key)
        if value is None:
            return "none"
        if key in self.kinds:
            return self.kinds[key]
        if isinstance(value, bytes):
            return "string"
        return "zset" if all(isinstance(v, int) for v in value.values()) else "hash"

    def read(self, key: bytes) -> bytes | None:
        """GET; raises `Conflict` for another type."""
        kind = self.type(key)
        if kind == "none":
            return None
        value = self.data[key]
        if kind != "string" or not isinstance(value, bytes):
            raise Conflict(f"holds a {kind}")
        return value

    def pttl(self, key: bytes) -> int:
        """PTTL."""
        if self.type(key) == "none":
            return -2
        end = self.ends.get(key)
        return -1 if end is None else end - self.now

    def queue(self, key: bytes) -> dict[bytes, int]:
        """The members of a sorted set and their scores; empty when there is no such key."""
        value = self.data.get(key) if self.type(key) == "zset" else None
        return {m: s for m, s in value.items() if isinstance(s, int)} if isinstance(value, dict) else {}

    def ranked(self, key: bytes) -> list[tuple[int, bytes]]:
        """A sorted set in its order: by score, equal scores by member."""
        return sorted((score, member) for member, score in self.queue(key).items())

    def rank(self, key: bytes, token: bytes) -> int | None:
        """ZRANK."""
        return next((i for i, (_, member) in enumerate(self.ranked(key)) if member == token), None)

    def entries(self, key: bytes) -> dict[bytes, bytes]:
        """The fields of a hash; empty when there is no such key."""
        value = self.data.get(key) if self.type(key) == "hash" else None
        return {f: v for f, v in value.items() if isinstance(v, bytes)} if isinstance(value, dict) else {}

    def set_fields(self, key: bytes, fields: dict[bytes, int] | dict[bytes, bytes]) -> None:
        """Replaces the members of a set or hash; an empty one does not exist."""
        if fields:
            self.data[key] = fields
        else:
            self.delete(key)

    def put_member(self, key: bytes, member: bytes, score: int) -> None:
        """ZADD."""
        self.set_fields(key, self.queue(key) | {member: score})

    def drop_member(self, key: bytes, member: bytes) -> None:
        """ZREM."""
        self.set_fields(key, {m: s for m, s in self.queue(key).items() if m != member})

    def put_field(self, key: bytes, field: bytes, value: bytes) -> None:
        """HSET."""
        self.set_fields(key, self.entries(key) | {field: value})

    def drop_field(self, key: bytes, field: bytes) -> None:
        """HDEL."""
        self.set_fields(key, {f: v for f, v in self.entries(key).items() if f != field})

    def last_until(self, key: bytes, end: int) -> None:
        """Lets a key that exists live up to `end` at the least."""
        if self.type(key) != "none" and self.ends.get(key, 0) < end:
            self.ends[key] = end

    # --- Messages ------------------------------------------------------------------------------------------------

    def _channel(self, flags: bytes, prefix: bytes) -> tuple[bool, bytes] | None:
        found = _INBOX.search(flags)
        return None if found is None else (found[1] == b"s", prefix + found[2])

    def subscribers(self, flags: bytes, prefix: bytes) -> int:
        """How many clients listen to the inbox that the flags name."""
        channel = self._channel(flags, prefix)
        return 0 if channel is None else self.listeners.get(channel, 0)

    def tell(self, flags: bytes, prefix: bytes, message: bytes) -> int | None:
        """Publishes to an inbox; how many were reached, None when the server refused."""
        channel = self._channel(flags, prefix)
        if channel is None or (not channel[0] and self.subscribers(flags, prefix) == 0):
            return 0
        if self.refuse_publish:
            return None
        reached = self.listeners.get(channel, 0)
        if reached:
            self.published.append((channel[1], message))
        return reached if channel[0] else reached + self.pattern_listeners
