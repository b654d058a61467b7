"""What is done to leases that exist: renewing, announcing, adopting, asking, looking and breaking."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tests.model.server_holders import MOST_TOLD, Holders
from tests.model.server_store import Conflict
from tests.model.server_words import (
    Lock,
    Record,
    adopted_from,
    lease_of,
    marker_of,
    mine,
    mode_of,
    newer,
    ours,
    public,
    record_of,
    revoked,
    seen,
    sha8,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

Reply = list["bytes | int | Reply"]

_WAITS_UNTIL = re.compile(rb"(\d+) \d+ \d+ \S+ ", re.DOTALL)
_LIKE_A_LEASE = re.compile(rb"[0-9A-Za-z]+:([0-9A-Za-z]+) \d+ \d+ (\S+) ", re.DOTALL)


class Steering(Holders):
    """The scripts that never take a lock."""

    def too_late(self, not_after: bytes) -> bool:
        """Whether a request comes after the server time up to which it was meant to work."""
        raise NotImplementedError

    # --- renew and announce --------------------------------------------------------------------------------------

    @staticmethod
    def not_mine(value: bytes, token: bytes) -> bytes:
        """How the lease of a token has ended, now that its lock has this value."""
        moved = ours(value) and adopted_from(lease_of(value).flags, token)
        return b"moved" if moved else b"taken"

    def ended(self, key: bytes, token: bytes) -> bytes | None:
        """How the token's exclusive lease has ended, or None while it lives."""
        try:
            value = self.read(key)
        except Conflict:
            return b"taken"
        if value is None:
            return b"gone"
        if not mine(value, token):
            return self.not_mine(value, token)
        return b"revoked" if revoked(value) else None

    def _run_renew(self, keys: Sequence[bytes], args: list[bytes], prefix: bytes) -> Reply:
        late, exclusive = self.too_late(args[0]), int(args[1])
        reply: Reply = []
        for i, at in enumerate(range(2, len(args), 3)):
            token, ttl, grace = args[at], int(args[at + 1]), int(args[at + 2])
            if late:
                reply.append(b"late")
            elif i < exclusive:
                reply.append(self.renew(keys[i], token, ttl, grace))
            else:
                first = exclusive + 3 * (i - exclusive)
                reply.append(self.renew_member(part_of(*keys[first : first + 3]), token, ttl, grace))
        return reply

    def renew(self, key: bytes, token: bytes, ttl: int, grace: int) -> bytes:
        """Moves the end of an exclusive lease; never creates one."""
        over = self.ended(key, token)
        if over is not None:
            return over
        self.prolong(key, ttl + grace)
        return b"renewed"

    def renew_member(self, lock: Lock, token: bytes, ttl: int, grace: int) -> bytes:
        """Moves the end of a shared or semaphore lease; never creates one."""
        try:
            value = self.read(lock.main)
        except Conflict:
            return b"taken"
        marker = marker_of(value)
        if value is not None and marker is None:
            return b"taken"
        if marker is None or token not in self.live(lock):
            return b"gone"
        if self.record(lock, marker, token).revoked:
            return b"revoked"
        self.prolong_member(lock, token, ttl + grace)
        return b"renewed"

    def _run_announce(self, keys: Sequence[bytes], args: list[bytes], prefix: bytes) -> Reply:
        return [
            self.announce(part_of(keys[2 * i], keys[2 * i + 1]), *args[3 * i : 3 * i + 3])
            for i in range(len(args) // 3)
        ]

    def announce(self, lock: Lock, token: bytes, tail: bytes, info: bytes) -> bytes:
        """Gives a lease that was granted without an inbox one, and what others may read; its end stays."""
        if marker_of(self.read(lock.main) if self.type(lock.main) == "string" else None) is not None:
            record = record_of(self.entries(lock.entry).get(token))
            if record is None:
                return b"gone"
            if record.revoked:
                return b"revoked"
            self.put_record(lock, token, announced(record, tail, info))
            return b"announced"
        over = self.ended(lock.main, token)
        if over is not None:
            return over
        value = self.read(lock.main)
        if value is not None and ours(value):
            self.put_lease(lock, token, announced(lease_of(value), tail, info))
        return b"announced"

    # --- adopt ---------------------------------------------------------------------------------------------------

    def _run_adopt(self, keys: Sequence[bytes], args: list[bytes], prefix: bytes) -> Reply:
        not_after, old, new, ttl, grace, tail, info = args
        if self.too_late(not_after):
            return [[b"late"]]
        answer = self.adopt(Lock(*keys[:5]), old, new, int(ttl) + int(grace), tail, info)
        if answer[0] == b"adopted" and len(keys) > 5:
            # Whoever handed the lease down may look for it when it is over already.
            self.put(keys[5], sha8(new), end=self.now + int(ttl) + int(grace))
        return [answer]

    def adopt(self, lock: Lock, old: bytes, new: bytes, life: int, tail: bytes, info: bytes) -> Reply:
        """The lease goes on under another token, with its fence and since."""
        try:
            value = self.read_lease(lock.main)
            before, after = self.holds(lock, old), self.holds(lock, new)
        except Conflict:
            return [b"taken"]
        record = after or before
        if record is None:
            return [b"gone" if value is None or marker_of(value) is not None else b"taken"]
        if record.revoked:
            return [b"revoked"]
        mode = mode_of(record.flags)
        if after is None:
            record = Record(record.fence, record.since, mode + b"<" + sha8(old) + tail, info)
        if marker_of(value) is None:
            self.put_lease(lock, new, record)
            self.prolong(lock.main, life)
        else:
            ends = self.queue(lock.shared)
            self.put_record(lock, new, record)
            self.put_member(lock.shared, new, ends[old] if after is None else ends[new])
            self.drop_holder(lock, old)
            self.prolong_member(lock, new, life)
        return [b"adopted", record.fence, mode]

    # --- ask and inspect -----------------------------------------------------------------------------------------

    def _run_ask(self, keys: Sequence[bytes], args: list[bytes], prefix: bytes) -> Reply:
        lock = part_of(*keys)
        try:
            value = self.read_lease(lock.main)
        except Conflict as problem:
            return [b"conflict", 0, str(problem).encode()]
        if value is None:
            return [b"none", 0, b""]
        if not ours(value) and marker_of(value) is None:
            return [b"foreign", 0, public(value)]
        holders = self.holders(lock)
        return [b"told", self.ask_holders(lock, args[0], prefix), seen(*holders[0]) if holders else b""]

    def _run_inspect(self, keys: Sequence[bytes], args: list[bytes], prefix: bytes) -> Reply:
        lock = Lock(*keys)
        most_waiters, most_holders = map(int, args)
        kind = self.type(lock.main).encode()
        mode, holders = self.seen_holders(lock, most_holders) if kind == b"string" else (b"", [])
        waiting: Reply = []
        for score, token in self.ranked(lock.queue)[:most_waiters]:
            entry = self.entries(lock.entry).get(token, b"")
            found = _WAITS_UNTIL.match(entry)
            if found is not None and int(found[1]) >= self.now:
                waiting += [sha8(token), b"%d" % score, entry]
        return [kind, mode, holders, waiting]

    def seen_holders(self, lock: Lock, most: int) -> tuple[bytes, Reply]:
        """The mode of a lock, and who hold it with the milliseconds that are left to each."""
        value = self.read(lock.main)
        marker = marker_of(value)
        if value is None or newer(value):
            return b"newer", []
        if marker is None:
            return b"x" if ours(value) else b"foreign", [public(value), self.pttl(lock.main)]
        ends, rows = self.queue(lock.shared), list[bytes | int | Reply]()
        for token, record in self.holders(lock)[:most]:
            rows += [seen(token, record), ends[token] - self.now]
        return marker.mode, rows

    # --- break ---------------------------------------------------------------------------------------------------

    def break_lease(self, lock: Lock, wanted: bytes, prefix: bytes, *, force: bool) -> tuple[bytes, bytes]:
        """Revokes the lease of the fence `wanted` (empty: any), or with force deletes it at once."""
        value = self.read_lease(lock.main)
        if value is None:
            return b"none", b""
        if marker_of(value) is None and not ours(value):
            return self.break_foreign(lock, value, wanted, prefix, force=force)
        holders = self.holders(lock)
        broken = [(token, record) for token, record in holders if wanted in (b"", record.fence)][:MOST_TOLD]
        if not broken:
            return b"other", seen(*holders[0]) if holders else b""
        for token, record in broken:
            if force and ours(value):
                self.delete(lock.main)
            elif force:
                self.drop_holder(lock, token)
            elif not record.revoked:
                put = self.put_lease if ours(value) else self.put_record
                put(lock, token, record._replace(flags=b"!" + record.flags))
                self.last_until(lock.entry, self.queue(lock.shared).get(token, 0))
            self.tell(record.flags, prefix, b"revoked " + token)
        if force and not ours(value):
            self.settle(lock)
        return b"deleted" if force else b"revoked", seen(*broken[0])

    def break_foreign(
        self, lock: Lock, value: bytes, wanted: bytes, prefix: bytes, *, force: bool
    ) -> tuple[bytes, bytes]:
        """Only force takes another library's key, and only if no lease of ours was meant."""
        if wanted:
            return b"other", public(value)
        if not force:
            return b"foreign", public(value)
        self.delete(lock.main)
        like = _LIKE_A_LEASE.match(value)
        if like is not None:
            self.tell(like[2], prefix, b"revoked " + like[1])
        return b"deleted", public(value)


def part_of(main: bytes, entry: bytes, shared: bytes = b"") -> Lock:
    """A lock of which a script declares some keys only."""
    return Lock(main, b"", entry, b"", shared)


def announced(record: Record, tail: bytes, info: bytes) -> Record:
    """The record with an inbox if it had none, and with other info if there is some."""
    flags = record.flags if b"@" in record.flags else record.flags + tail
    return record._replace(flags=flags, info=info or record.info)
