"""The server with one sentence taken out: shared locks, semaphores, several names, asking, once, handing over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.model.server_model import Grant, Lock, ModelServer
from tests.model.server_words import lease_of, marker_of, mine, mode_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.model.server_model import Budget, Own
    from tests.model.server_steering import Reply
    from tests.model.server_words import Record

# --- Readers and writers -------------------------------------------------------------------------------------------


class ReaderOvertakes(ModelServer):
    def acquire(self, lock: Lock, words: list[bytes], prefix: bytes) -> Reply:
        grant = Grant(words[0], int(words[1]), int(words[2]), words[5], words[6])
        marker = marker_of(self.read(lock.main))
        if mode_of(grant.flags) == b"s" and marker is not None and self.holds(lock, grant.token) is None:
            return self.grant(lock, grant)
        return super().acquire(lock, words, prefix)


class WriterBesideReaders(ModelServer):
    def room(self, lock: Lock, flags: bytes) -> bool:
        marker = marker_of(self.read(lock.main))
        return super().room(lock, flags) or (marker is not None and marker.mode == b"s")


class OneReaderAtATime(ModelServer):
    def advance(self, lock: Lock, budget: Budget, prefix: bytes, own: Own | None = None) -> str | None:
        before = len(self.live(lock))
        self._served = before
        return super().advance(lock, budget, prefix, own)

    def room(self, lock: Lock, flags: bytes) -> bool:
        return super().room(lock, flags) and len(self.live(lock)) <= getattr(self, "_served", 0)


class JoinerLeavesTheEnd(ModelServer):
    def store(self, lock: Lock, grant: Grant, fence: bytes) -> None:
        end = self.ends.get(lock.main) if marker_of(self.read(lock.main)) is not None else None
        super().store(lock, grant, fence)
        if end is not None:
            self.ends[lock.main] = end


class RenewalLeavesTheMarker(ModelServer):
    def prolong_member(self, lock: Lock, token: bytes, life: int) -> None:
        end = self.ends[lock.main]
        super().prolong_member(lock, token, life)
        self.ends[lock.main] = end


class LastRenewalCounts(ModelServer):
    def last_all_until(self, lock: Lock, end: int) -> None:
        super().last_all_until(lock, end)
        self.ends[lock.main] = end


class SettleDeletes(ModelServer):
    def settle(self, lock: Lock) -> None:
        self.delete(lock.main)
        self.forget_all(lock)


class SettleLeavesTheEnd(ModelServer):
    def settle(self, lock: Lock) -> None:
        end = self.ends.get(lock.main)
        super().settle(lock)
        if end is not None and self.type(lock.main) != "none":
            self.ends[lock.main] = end


class LastOneLeavesTheKey(ModelServer):
    def settle(self, lock: Lock) -> None:
        self.purge(lock)


class LeavingHandsNothingOver(ModelServer):
    def release(self, lock: Lock, token: bytes, budget: Budget, prefix: bytes) -> bytes:
        if marker_of(self.read(lock.main)) is None:
            return super().release(lock, token, budget, prefix)
        how = b"released" if token in self.live(lock) else b"taken"
        self.drop_holder(lock, token)
        self.settle(lock)
        return how


class AnybodyLeaves(ModelServer):
    def drop_holder(self, lock: Lock, token: bytes) -> None:
        super().drop_holder(lock, token)
        for other in self.live(lock)[:1]:
            super().drop_holder(lock, other)


class PurgeTakesTheLiving(ModelServer):
    def purge(self, lock: Lock) -> None:
        for _, token in self.ranked(lock.shared)[:1]:
            self.drop_holder(lock, token)


class RecordsAreLeft(ModelServer):
    def drop_holder(self, lock: Lock, token: bytes) -> None:
        self.drop_member(lock.shared, token)


class NextInLineIsForgotten(ModelServer):
    """A waiter that is granted by the reply to its poll lets those behind it wait for their own polls."""

    def acquire(self, lock: Lock, words: list[bytes], prefix: bytes) -> Reply:
        self._alone = True
        try:
            return super().acquire(lock, words, prefix)
        finally:
            self._alone = False

    def hand_over(self, lock: Lock, budget: Budget, prefix: bytes) -> None:
        if not getattr(self, "_alone", False):
            super().hand_over(lock, budget, prefix)


class LateLastTryIsNone(ModelServer):
    """Whoever gives up when its entry has ended has not stood in anybody's way."""

    def last_try(self, lock: Lock, token: bytes, budget: Budget, prefix: bytes, score: int | None) -> int:
        return super().last_try(lock, token, budget, prefix, None)


class DeadWriterStopsReaders(ModelServer):
    def advance(self, lock: Lock, budget: Budget, prefix: bytes, own: Own | None = None) -> str | None:
        self._advancing = True
        try:
            return super().advance(lock, budget, prefix, own)
        finally:
            self._advancing = False

    def subscribers(self, flags: bytes, prefix: bytes) -> int:
        return super().subscribers(flags, prefix) or int(getattr(self, "_advancing", False))


class JoinerGetsAnotherFence(ModelServer):
    def fence_for(self, lock: Lock, flags: bytes) -> bytes:
        return self.next_fence(lock.fence)


class FirstReaderKeepsTheFence(ModelServer):
    def fence_for(self, lock: Lock, flags: bytes) -> bytes:
        stored = self.read(lock.fence)
        return stored if stored is not None and mode_of(flags) == b"s" else super().fence_for(lock, flags)


# --- Semaphores ------------------------------------------------------------------------------------------------------


class PlacesShareAFence(ModelServer):
    def fence_for(self, lock: Lock, flags: bytes) -> bytes:
        marker = marker_of(self.read(lock.main))
        return super().fence_for(lock, flags) if marker is None else marker.fence


class LimitIsIgnored(ModelServer):
    def room(self, lock: Lock, flags: bytes) -> bool:
        marker = marker_of(self.read(lock.main))
        return super().room(lock, flags) if marker is None else marker.mode == mode_of(flags)


class DeadTakePlaces(ModelServer):
    def live(self, lock: Lock) -> list[bytes]:
        return [token for _, token in self.ranked(lock.shared)]


class PlacesEndTogether(ModelServer):
    """One expiry for all: a place is free when the last one ends."""

    def prolong_member(self, lock: Lock, token: bytes, life: int) -> None:
        for other in self.live(lock):
            super().prolong_member(lock, other, life)


class LimitOfTheCaller(ModelServer):
    def room(self, lock: Lock, flags: bytes) -> bool:
        marker = marker_of(self.read(lock.main))
        if marker is None or marker.limit is None:
            return super().room(lock, flags)
        return len(self.live(lock)) < int(mode_of(flags)[1:])


# --- Several names, once ---------------------------------------------------------------------------------------------


class SomeOfSeveral(ModelServer):
    def _run_several(self, keys: Sequence[bytes], args: list[bytes], prefix: bytes) -> Reply:
        for i, token in enumerate(args[5:]):
            if not self.can_have(Lock(*keys[5 * i : 5 * i + 5]), self.wish(args, token)):
                return [[b"held", i]]
            super()._run_several(keys[5 * i : 5 * i + 5], [*args[:5], token], prefix)
        return super()._run_several(keys, args, prefix)

    @staticmethod
    def wish(args: list[bytes], token: bytes) -> Grant:
        """What is asked for one of the locks."""
        return Grant(token, int(args[1]), int(args[2]), args[3], args[4])


class SeveralOvertake(ModelServer):
    def can_have(self, lock: Lock, grant: Grant) -> bool:
        return self.room(lock, grant.flags)


class SeveralAreTakenTwice(ModelServer):
    """A retry of the same tokens finds the locks held."""

    def can_have(self, lock: Lock, grant: Grant) -> bool:
        return self.holds(lock, grant.token) is None and super().can_have(lock, grant)


class SeveralIgnoreNotAfter(ModelServer):
    def _run_several(self, keys: Sequence[bytes], args: list[bytes], prefix: bytes) -> Reply:
        return super()._run_several(keys, [b"0", *args[1:]], prefix)


class AgainWithoutAGrant(ModelServer):
    def once(self, lock: Lock, again: bytes, words: list[bytes], at_least: int, prefix: bytes) -> Reply:
        answer = super().once(lock, again, words, at_least, prefix)
        if answer[0] == b"busy":
            self.put(again, b"", end=self.now + at_least)
        return answer


class NotAgainIsForgotten(ModelServer):
    def once(self, lock: Lock, again: bytes, words: list[bytes], at_least: int, prefix: bytes) -> Reply:
        answer = super().once(lock, again, words, at_least, prefix)
        if answer[0] == b"granted":
            self.delete(again)
        return answer


class RetryIsNotAgain(ModelServer):
    """A try whose reply was lost finds its own grant, and is told to wait."""

    def once(self, lock: Lock, again: bytes, words: list[bytes], at_least: int, prefix: bytes) -> Reply:
        last = self.read(again)
        if last is not None:
            return [b"again", self.pttl(again), last]
        return super().once(lock, again, words, at_least, prefix)


class DistanceFromTheEnd(ModelServer):
    """Counted from the release, not from the grant."""

    def release(self, lock: Lock, token: bytes, budget: Budget, prefix: bytes) -> bytes:
        again = b"{%b}:again" % lock.main
        if self.held_by(lock.main, token) and self.read(again) is not None:
            self.ends[again] = self.now + 1000
        return super().release(lock, token, budget, prefix)


# --- Asking ----------------------------------------------------------------------------------------------------------


class NobodyIsAsked(ModelServer):
    def ask_holders(self, lock: Lock, info: bytes, prefix: bytes) -> int:
        return 0


class OneHolderIsAsked(ModelServer):
    def holders(self, lock: Lock) -> list[tuple[bytes, Record]]:
        return super().holders(lock)[:1]


class HeardByAnybody(ModelServer):
    def ask_holders(self, lock: Lock, info: bytes, prefix: bytes) -> int:
        super().ask_holders(lock, info, prefix)
        return 0


# --- Handing over ----------------------------------------------------------------------------------------------------


class OldTokenStays(ModelServer):
    def adopt(self, lock: Lock, old: bytes, new: bytes, life: int, tail: bytes, info: bytes) -> Reply:
        value = self.read(lock.main)
        if value is not None and mine(value, old):
            self.prolong(lock.main, life)
            return [b"adopted", lease_of(value).fence, b"x"]
        return super().adopt(lock, old, new, life, tail, info)


class OldMemberStays(ModelServer):
    def adopt(self, lock: Lock, old: bytes, new: bytes, life: int, tail: bytes, info: bytes) -> Reply:
        end, record = self.queue(lock.shared).get(old), self.entries(lock.entry).get(old)
        answer = super().adopt(lock, old, new, life, tail, info)
        if answer[0] == b"adopted" and end is not None and record is not None:
            self.put_member(lock.shared, old, end)
            self.put_field(lock.entry, old, record)
        return answer


class AdoptedAnew(ModelServer):
    """The one that takes over gets a fence of its own."""

    def adopt(self, lock: Lock, old: bytes, new: bytes, life: int, tail: bytes, info: bytes) -> Reply:
        answer = super().adopt(lock, old, new, life, tail, info)
        record = self.holds(lock, new)
        if answer[0] == b"adopted" and record is not None and marker_of(self.read(lock.main)) is None:
            fence = self.next_fence(lock.fence)
            self.put(lock.fence, fence)
            self.put_lease(lock, new, record._replace(fence=fence))
            return [answer[0], fence, *answer[2:]]
        return answer


class AdoptedToTheOldEnd(ModelServer):
    def adopt(self, lock: Lock, old: bytes, new: bytes, life: int, tail: bytes, info: bytes) -> Reply:
        return super().adopt(lock, old, new, -(10**9), tail, info)


class AdoptedOnce(ModelServer):
    """A retry of the same adoption finds the lease taken."""

    def adopt(self, lock: Lock, old: bytes, new: bytes, life: int, tail: bytes, info: bytes) -> Reply:
        if self.holds(lock, new) is not None:
            return [b"taken"]
        return super().adopt(lock, old, new, life, tail, info)


class AdoptedByAnybody(ModelServer):
    """Whatever the old token was, whoever holds now is robbed."""

    def adopt(self, lock: Lock, old: bytes, new: bytes, life: int, tail: bytes, info: bytes) -> Reply:
        value = self.read(lock.main)
        holder = next((token for token, _ in self.holders(lock)), old) if value is not None else old
        return super().adopt(lock, old if self.holds(lock, old) is not None else holder, new, life, tail, info)


class AdoptionIgnoresNotAfter(ModelServer):
    def _run_adopt(self, keys: Sequence[bytes], args: list[bytes], prefix: bytes) -> Reply:
        return super()._run_adopt(keys, [b"0", *args[1:]], prefix)


class MovedIsTaken(ModelServer):
    @staticmethod
    def not_mine(value: bytes, token: bytes) -> bytes:
        del value, token
        return b"taken"
