"""Who holds a lock on the model's server, exclusively or beside others: granting, looking, dropping, settling."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.model.server_store import Conflict, Store
from tests.model.server_words import (
    MARK,
    Record,
    lease_of,
    marker_of,
    mine,
    mode_of,
    newer,
    ours,
    public,
    record_of,
    seen,
    token_of,
)

if TYPE_CHECKING:
    from tests.model.server_words import Grant, Lock, Marker

FENCE_LIFE = 86_400_000
FENCE_AHEAD = 86_400_000_000
LINGER = 120_000
"""Milliseconds that the shared set outlives its lock: the next lease cleans up behind those who died together."""
PURGE = 100
MOST_TOLD = 100


class Holders(Store):
    """The holders of locks: one in the main key, or any number in the shared set behind a marker."""

    # --- Looking -------------------------------------------------------------------------------------------------

    def read_lease(self, key: bytes) -> bytes | None:
        """The value of a main key; raises `Conflict` when it is none that this version may judge."""
        try:
            value = self.read(key)
        except Conflict as problem:
            raise Conflict(f"the key {problem}") from None
        if value is not None and newer(value):
            raise Conflict("the key holds a lock of a newer format")
        return value

    def held_by(self, key: bytes, token: bytes) -> bool:
        """Whether the token holds exclusively."""
        value = self.read(key) if self.type(key) == "string" else None
        return value is not None and mine(value, token)

    def live(self, lock: Lock) -> list[bytes]:
        """The tokens of the shared set whose leases live, in the order of their ends."""
        return [token for end, token in self.ranked(lock.shared) if end >= self.now]

    def record(self, lock: Lock, marker: Marker, token: bytes) -> Record:
        """What is known of a live holder; one whose record was lost counts as granted with the marker."""
        known = record_of(self.entries(lock.entry).get(token))
        return known or Record(marker.fence, marker.since, marker.mode, b"{}")

    def holds(self, lock: Lock, token: bytes) -> Record | None:
        """The living lease of a token, revoked or not; None when it has none."""
        value = self.read_lease(lock.main)
        if value is not None and mine(value, token) and ours(value):
            return lease_of(value)
        marker = marker_of(value)
        return self.record(lock, marker, token) if marker is not None and token in self.live(lock) else None

    def holders(self, lock: Lock) -> list[tuple[bytes, Record]]:
        """All who hold a lease of ours, in the order of their ends."""
        value = self.read_lease(lock.main)
        if value is not None and ours(value):
            return [(token_of(value), lease_of(value))]
        marker = marker_of(value)
        return [] if marker is None else [(token, self.record(lock, marker, token)) for token in self.live(lock)]

    def in_the_way(self, lock: Lock) -> tuple[int, bytes]:
        """Milliseconds until something may become free (-1: unknown), and who holds until then."""
        value = self.read(lock.main)
        if value is None:
            return -1, b""
        marker = marker_of(value)
        if marker is None:
            return self.pttl(lock.main), public(value)
        holders = self.holders(lock)
        if not holders:
            return self.pttl(lock.main), b""
        # A semaphore has a place as soon as its first holder ends, the others when the last one does.
        token, record = holders[-1 if marker.limit is None else 0]
        left = self.pttl(lock.main) if marker.limit is None else self.queue(lock.shared)[token] - self.now
        return left, seen(token, record)

    def room(self, lock: Lock, flags: bytes) -> bool:
        """Whether the lock can take one more lease of these flags now."""
        value, mode = self.read(lock.main), mode_of(flags)
        if value is None:
            return True
        marker = marker_of(value)
        if marker is None:
            return False
        if marker.limit is None:
            return mode == b"s"
        return mode.startswith(b"n") and len(self.live(lock)) < marker.limit

    # --- Granting ------------------------------------------------------------------------------------------------

    def next_fence(self, key: bytes) -> bytes:
        """max(stored + 1, microseconds); raises `Conflict` rather than give a fence that would stop rising."""
        try:
            stored = self.read(key)
        except Conflict as problem:
            raise Conflict(f"the fence key {problem}") from None
        if stored is None:
            return b"%d" % self.now_us
        if not stored.isdigit() or int(stored) > self.now_us + FENCE_AHEAD:
            raise Conflict("the fence key is unreadable or more than a day ahead of the clock")
        return b"%d" % max(int(stored) + 1, self.now_us)

    def joins(self, lock: Lock, flags: bytes) -> Marker | None:
        """The marker whose fence a new shared lease gets, when there are others already."""
        return marker_of(self.read(lock.main)) if mode_of(flags) == b"s" else None

    def fence_for(self, lock: Lock, flags: bytes) -> bytes:
        """The fence of a lease that is about to be granted; raises `Conflict`."""
        others = self.joins(lock, flags)
        return self.next_fence(lock.fence) if others is None else others.fence

    def store(self, lock: Lock, grant: Grant, fence: bytes) -> None:
        """Writes the fence, then the grant: its token holds from now on."""
        if self.joins(lock, grant.flags) is None:
            self.put(lock.fence, fence, end=self.now + max(FENCE_LIFE, 10 * grant.ttl))
        mode, end = mode_of(grant.flags), self.now + grant.life
        if mode == b"x":
            value = MARK + b"%b %b %d %b %b" % (grant.token, fence, self.now, grant.flags, grant.info)
            self.put(lock.main, value, end=end)
            return
        if self.read(lock.main) is None:
            self.forget_all(lock)
        else:
            self.purge(lock)
        self.put_record(lock, grant.token, Record(fence, b"%d" % self.now, grant.flags, grant.info))
        self.put_member(lock.shared, grant.token, end)
        if self.read(lock.main) is None:
            self.put(lock.main, MARK + b"%b %b %d" % (mode, fence, self.now))
        self.last_all_until(lock, end)

    def put_lease(self, lock: Lock, token: bytes, record: Record) -> None:
        """Rewrites the exclusive lease; its end stays."""
        self.data[lock.main] = MARK + token + b" " + record.text

    def put_record(self, lock: Lock, token: bytes, record: Record) -> None:
        """Writes what is known of a holder."""
        self.put_field(lock.entry, token, b"h " + record.text)

    def last_all_until(self, lock: Lock, end: int) -> None:
        """Lets everything that a shared or semaphore lease consists of live up to its end."""
        self.last_until(lock.entry, end)
        self.last_until(lock.shared, end + LINGER)
        self.last_until(lock.main, end)

    def prolong(self, key: bytes, life: int) -> None:
        """Moves the end of an exclusive lease to a full life from now, never back."""
        self.last_until(key, self.now + life)

    def prolong_member(self, lock: Lock, token: bytes, life: int) -> None:
        """The same for a shared or semaphore lease."""
        end = self.now + life
        self.put_member(lock.shared, token, max(self.queue(lock.shared)[token], end))
        self.last_all_until(lock, end)

    # --- Dropping ------------------------------------------------------------------------------------------------

    def drop(self, lock: Lock, token: bytes) -> None:
        """Ends the lease of a holder."""
        if self.held_by(lock.main, token):
            self.delete(lock.main)
        else:
            self.drop_holder(lock, token)
            self.settle(lock)

    def drop_holder(self, lock: Lock, token: bytes) -> None:
        """Takes one out of the shared set, with what is known of it."""
        if token in self.queue(lock.shared):
            self.drop_member(lock.shared, token)
            self.drop_field(lock.entry, token)

    def purge(self, lock: Lock) -> None:
        """Takes out leases that are over, so many that a call stays short."""
        over = [token for end, token in self.ranked(lock.shared) if end < self.now]
        for token in over[:PURGE]:
            self.drop_holder(lock, token)

    def forget_all(self, lock: Lock) -> None:
        """Nobody is left in the shared set, and no record of anybody who was."""
        for token in self.queue(lock.shared):
            self.drop_holder(lock, token)

    def settle(self, lock: Lock) -> None:
        """After somebody has left: the key ends with the last holder, at once when there is none."""
        self.purge(lock)
        last = max(self.queue(lock.shared).values(), default=0)
        if last < self.now:
            self.delete(lock.main)
            self.forget_all(lock)
        else:
            self.ends[lock.main] = last

    # --- Telling -------------------------------------------------------------------------------------------------

    def ask_holders(self, lock: Lock, info: bytes, prefix: bytes) -> int:
        """Tells those who hold who asks; how many heard it, -1 when nobody is known to have and one may have."""
        answers = [
            self.tell(record.flags, prefix, b"asked %b %b" % (token, info))
            for token, record in self.holders(lock)[:MOST_TOLD]
        ]
        heard = sum(bool(answer) for answer in answers)
        return -1 if heard == 0 and None in answers else heard
