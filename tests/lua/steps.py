"""One step of a sequence that is done to a real server and to the model alike, and compared afterwards."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.lua.virtual import PREFIX, again_key, lock_keys, member_keys, moved_key, token

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.lua.inboxes import Inboxes
    from tests.lua.virtual import VirtualServer, Word
    from tests.model.server_model import ModelServer

LOCKS = (b"ns:a", b"ns:b")
UNLIMITED = 99
"""A not-after of none, where others are relative to the present."""
CROWD = 1000
"""The first of the tokens that belong to crowds."""


@dataclass
class Pair:
    """A real server and the model, kept at the same time."""

    real: VirtualServer
    model: ModelServer
    inboxes: Inboxes
    endless: set[bytes] = field(default_factory=set[bytes])
    """Keys without an end that others have written."""

    def call(self, script: str, keys: Sequence[bytes], args: Sequence[Word]) -> None:
        """Runs one script on both and compares all that can be seen afterwards."""
        self.model.now_us = self.real.now_us
        told = len(self.model.published)
        expected = self.model.run(script, keys, args, self.real.echo, PREFIX)
        answer = self.real.run(script, keys, args)
        if script == "release" and answer[1] == 0:
            # A release that nobody waits for asks for no time.
            expected[1] = 0
        assert answer == expected, f"{script} {keys} {args}"
        assert self.inboxes.received() == self.model.published[told:], f"messages of {script} {args}"

    def compare(self) -> None:
        """The whole keyspace, to the millisecond; whatever we write has an end."""
        self.model.now_us = self.real.now_us
        state = self.real.state()
        assert state == self.model.state()
        assert {key for key, (_, _, end) in state.items() if end is None} <= self.endless

    def instants(self) -> list[int]:
        """All milliseconds at which something is going to end."""
        ends = list(self.model.ends.values())
        for lock in LOCKS:
            _, _, entry, _, shared = lock_keys(lock)
            ends += [int(text.split(b" ")[0]) for text in self.model.entries(entry).values() if text[:1].isdigit()]
            ends += self.model.queue(shared).values()
        return sorted({end for end in ends if 0 <= end - self.model.now < 100_000_000})


@dataclass(frozen=True)
class Call:
    """A script call; `not_after` is relative to the present, `None` leaves it out."""

    script: str
    locks: tuple[int, ...]
    args: tuple[Word, ...]
    not_after: int | None = None

    def __call__(self, pair: Pair) -> None:
        """Runs it."""
        keys = [key for number in self.locks for key in self.keys(LOCKS[number])]
        if self.script == "adopt":
            keys.append(moved_key(LOCKS[self.locks[0]], self.args[0]))
        args = self.args
        if self.not_after is not None:
            args = (0 if self.not_after == UNLIMITED else pair.real.now + self.not_after, *args)
        pair.call(self.script, keys, args)

    def keys(self, lock: bytes) -> tuple[bytes, ...]:
        """What the script wants to know of one lock."""
        if self.script == "announce":
            return member_keys(lock)[:2]
        if self.script == "ask":
            return member_keys(lock)
        return (*lock_keys(lock), again_key(lock)) if self.script == "once" else lock_keys(lock)


@dataclass(frozen=True)
class Renew:
    """Renews some leases as exclusive ones, and others as shared ones: lock, token, ttl, grace."""

    exclusive: tuple[tuple[int, bytes, int, int], ...]
    others: tuple[tuple[int, bytes, int, int], ...]
    not_after: int = UNLIMITED

    def __call__(self, pair: Pair) -> None:
        """Runs it."""
        keys = [LOCKS[lock] for lock, *_ in self.exclusive]
        keys += [key for lock, *_ in self.others for key in member_keys(LOCKS[lock])]
        limit = 0 if self.not_after == UNLIMITED else pair.real.now + self.not_after
        leases = [word for _, *words in (*self.exclusive, *self.others) for word in words]
        pair.call("renew", keys, (limit, len(self.exclusive), *leases))


@dataclass(frozen=True)
class Tick:
    """The clock goes on; or to the moment at which something ends, or just past it; or back."""

    micros: int
    to_end: int | None = None

    def __call__(self, pair: Pair) -> None:
        """Moves the virtual clock."""
        ends = pair.instants()
        if self.to_end is not None and ends:
            pair.real.now_us = ends[self.to_end % len(ends)] * 1000 + self.micros
        elif self.to_end is None:
            pair.real.now_us += self.micros


@dataclass(frozen=True)
class Meddle:
    """Somebody else writes a key: a string, a list, or nothing at all."""

    lock: int
    which: int
    value: bytes | None
    kind: str = "string"
    life: int | None = None

    def __call__(self, pair: Pair) -> None:
        """Writes on both sides."""
        key = lock_keys(LOCKS[self.lock])[self.which]
        end = None if self.life is None else pair.real.now + self.life
        pair.real.command("DEL", key)
        pair.model.delete(key)
        if self.value is None:
            return
        if self.kind == "list":
            pair.real.command("RPUSH", key, self.value)
            pair.model.put(key, self.value, kind="list", end=end)
        else:
            pair.real.command("SET", key, self.value)
            pair.model.put(key, self.value, end=end)
        if end is None:
            pair.endless.add(key)
        else:
            pair.real.command("PEXPIREAT", key, end)


@dataclass(frozen=True)
class Fence:
    """The fence key holds a number relative to the clock."""

    lock: int
    ahead_us: int

    def __call__(self, pair: Pair) -> None:
        """Writes it on both sides."""
        key = lock_keys(LOCKS[self.lock])[3]
        number = b"%d" % (pair.real.now_us + self.ahead_us)
        pair.real.command("SET", key, number, "PXAT", pair.real.now + 1_000_000)
        pair.model.put(key, number, end=pair.real.now + 1_000_000)


@dataclass(frozen=True)
class Forget:
    """The record of a token is lost."""

    lock: int
    who: bytes

    def __call__(self, pair: Pair) -> None:
        """Takes it away on both sides."""
        key = lock_keys(LOCKS[self.lock])[2]
        pair.real.command("HDEL", key, self.who)
        pair.model.drop_field(key, self.who)


@dataclass(frozen=True)
class Crowd:
    """Many more members of the shared set, alive for `left_ms` from now or dead."""

    lock: int
    count: int
    left_ms: int
    flags: bytes = b"s@s0"

    def __call__(self, pair: Pair) -> None:
        """Writes them on both sides."""
        now = pair.real.now
        _, _, entry, _, shared = lock_keys(LOCKS[self.lock])
        members = {token(CROWD + i): now + self.left_ms for i in range(self.count)}
        records = dict.fromkeys(members, b"h 7 %d %b {}" % (now, self.flags))
        pair.model.set_fields(shared, pair.model.queue(shared) | members)
        pair.model.set_fields(entry, pair.model.entries(entry) | records)
        pair.real.command("ZADD", shared, *(word for member, end in members.items() for word in (end, member)))
        pair.real.command("HSET", entry, *(word for row in records.items() for word in row))
        for key in (shared, entry):
            pair.model.ends[key] = now + 30_000
            pair.real.command("PEXPIREAT", key, now + 30_000)


@dataclass(frozen=True)
class Line:
    """Many more waiters at the end of the queue, whose entries live for `life` milliseconds."""

    lock: int
    count: int
    life: int
    flags: bytes = b"s@s0"

    def __call__(self, pair: Pair) -> None:
        """Writes them on both sides."""
        now, model = pair.real.now, pair.model
        _, queue, entry, _, _ = lock_keys(LOCKS[self.lock])
        first = max([pair.real.now_us, *model.queue(queue).values()]) + 1
        scores = {token(2 * CROWD + i): first + i for i in range(self.count)}
        entries = dict.fromkeys(scores, b"%d 1000 20 %b {}" % (now + self.life, self.flags))
        model.set_fields(queue, model.queue(queue) | scores)
        model.set_fields(entry, model.entries(entry) | entries)
        pair.real.command("ZADD", queue, *(word for member, score in scores.items() for word in (score, member)))
        pair.real.command("HSET", entry, *(word for row in entries.items() for word in row))
        for key in (queue, entry):
            model.ends[key] = now + 30_000
            pair.real.command("PEXPIREAT", key, now + 30_000)


@dataclass(frozen=True)
class Listen:
    """An inbox is subscribed to, or not any more."""

    inbox: bytes
    on: bool

    def __call__(self, pair: Pair) -> None:
        """Subscribes or unsubscribes on both sides."""
        kind, channel = self.inbox[:1], PREFIX + self.inbox[1:]
        now_on = pair.model.listeners.get((kind == b"s", channel), 0) > 0
        if now_on == self.on:
            return
        if self.on:
            pair.inboxes.subscribe(channel, kind=kind)
            pair.model.subscribe(channel, shard=kind == b"s")
        else:
            pair.inboxes.unsubscribe(channel, kind=kind)
            pair.model.unsubscribe(channel, shard=kind == b"s")


@dataclass(frozen=True)
class Break:
    """An operator breaks a lock: any lease, or by a fence: the newest one, the first holder's, or a wrong one."""

    lock: int
    fence: str
    force: bool

    def __call__(self, pair: Pair) -> None:
        """Reads the present fences."""
        _, _, entry, fence, shared = lock_keys(LOCKS[self.lock])
        stored = pair.model.data.get(fence)
        newest = stored if isinstance(stored, bytes) else b"1"
        living = [member for end, member in pair.model.ranked(shared) if end >= pair.real.now]
        record = pair.model.entries(entry).get(living[0], b"h 1") if living else b"h 1"
        fences = {"any": b"", "newest": newest, "first": record.split(b" ")[1], "wrong": b"12"}
        pair.call("break", lock_keys(LOCKS[self.lock]), (fences[self.fence], int(self.force)))
