"""The server with one sentence of the protocol taken out: each class is one mutant of the scripts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.model.server_model import Grant, Lock, ModelServer, mine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.model.server_model import Budget, Own
    from tests.model.server_steering import Reply
    from tests.model.server_words import Record


class NotAfterIgnored(ModelServer):
    def too_late(self, not_after: bytes) -> bool:
        return False


class RetryGetsAnotherFence(ModelServer):
    def granted_before(self, lock: Lock, record: Record, grant: Grant) -> Reply:
        return self.grant(lock, grant)


class RetryLeavesTheEnd(ModelServer):
    def granted_before(self, lock: Lock, record: Record, grant: Grant) -> Reply:
        end = self.ends[lock.main]
        reply = super().granted_before(lock, record, grant)
        self.ends[lock.main] = end
        return reply


class RetryLosesItsPlace(ModelServer):
    def acquire(self, lock: Lock, words: list[bytes], prefix: bytes) -> Reply:
        if int(words[3]) > 0:
            self.leave(lock, words[0])
        return super().acquire(lock, words, prefix)


class RetryDoesNotRefresh(ModelServer):
    def acquire(self, lock: Lock, words: list[bytes], prefix: bytes) -> Reply:
        before = self.entries(lock.entry).get(words[0])
        reply = super().acquire(lock, words, prefix)
        if before is not None and words[0] in self.entries(lock.entry):
            self.set_fields(lock.entry, self.entries(lock.entry) | {words[0]: before})
        return reply


class PlaceIsForgotten(ModelServer):
    def acquire(self, lock: Lock, words: list[bytes], prefix: bytes) -> Reply:
        return super().acquire(lock, [*words[:4], b"", *words[5:]], prefix)


class PlaceByTheClockAlone(ModelServer):
    def new_score(self, lock: Lock) -> int:
        return self.now_us


class TryOvertakes(ModelServer):
    def acquire(self, lock: Lock, words: list[bytes], prefix: bytes) -> Reply:
        if int(words[3]) <= 0 and self.read(lock.main) is None:
            return self.grant(lock, Grant(words[0], int(words[1]), int(words[2]), words[5], words[6]))
        return super().acquire(lock, words, prefix)


class TryDoesNotAdvance(ModelServer):
    def acquire(self, lock: Lock, words: list[bytes], prefix: bytes) -> Reply:
        if int(words[3]) <= 0 and self.read(lock.main) is None and words[0] not in self.queue(lock.queue):
            return [b"busy", len(self.queue(lock.queue)), -1, b"", 0, -1]
        return super().acquire(lock, words, prefix)


class TryLeavesAnEntry(ModelServer):
    def last_try(self, lock: Lock, token: bytes, budget: Budget, prefix: bytes, score: int | None) -> int:
        queue, entries = self.queue(lock.queue), self.entries(lock.entry)
        ahead = super().last_try(lock, token, budget, prefix, score)
        if token in queue:
            self.set_fields(lock.queue, queue)
            self.set_fields(lock.entry, entries)
        return ahead


class OwnEntryByMessage(ModelServer):
    def advance(self, lock: Lock, budget: Budget, prefix: bytes, own: Own | None = None) -> str | None:
        return super().advance(lock, budget, prefix, own and own._replace(token=b""))


class DeafAreQueued(ModelServer):
    def subscribers(self, flags: bytes, prefix: bytes) -> int:
        return 1


class UnreachedCountAsReached(ModelServer):
    def tell(self, flags: bytes, prefix: bytes, message: bytes) -> int | None:
        return super().tell(flags, prefix, message) or 1


class PatternSubscribersCount(ModelServer):
    def tell(self, flags: bytes, prefix: bytes, message: bytes) -> int | None:
        return (super().tell(flags, prefix, message) or 0) + self.pattern_listeners


class RefusedCountAsUnreached(ModelServer):
    def tell(self, flags: bytes, prefix: bytes, message: bytes) -> int | None:
        return super().tell(flags, prefix, message) or 0


class ExpiredHeadsAreServed(ModelServer):
    def head(self, lock: Lock, budget: Budget) -> tuple[int, Grant] | None:
        now_us, self.now_us = self.now_us, 0
        found = super().head(lock, budget)
        self.now_us = now_us
        return found


class LastComesFirst(ModelServer):
    def ranked(self, key: bytes) -> list[tuple[int, bytes]]:
        return super().ranked(key)[::-1]


class NothingIsHandedOver(ModelServer):
    def hand_over(self, lock: Lock, budget: Budget, prefix: bytes) -> None:
        return


class GoneHandsNothingOver(ModelServer):
    def release(self, lock: Lock, token: bytes, budget: Budget, prefix: bytes) -> bytes:
        return b"gone" if self.read(lock.main) is None else super().release(lock, token, budget, prefix)


class AnybodyReleases(ModelServer):
    def release(self, lock: Lock, token: bytes, budget: Budget, prefix: bytes) -> bytes:
        self.delete(lock.main)
        self.hand_over(lock, budget, prefix)
        return b"released"


class RenewCreates(ModelServer):
    def renew(self, key: bytes, token: bytes, ttl: int, grace: int) -> bytes:
        if self.read(key) is None:
            lock = Lock(key, *(b"{%b}:%b" % (key, part) for part in (b"queue", b"entry", b"fence", b"shared")))
            self.store(lock, Grant(token, ttl, grace, b"x", b"{}"), self.next_fence(lock.fence))
        return super().renew(key, token, ttl, grace)


class RenewShortens(ModelServer):
    def prolong(self, key: bytes, life: int) -> None:
        self.ends[key] = self.now + life


class RenewKeepsTheRevoked(ModelServer):
    def renew(self, key: bytes, token: bytes, ttl: int, grace: int) -> bytes:
        value = self.read(key)
        if value is not None and mine(value, token):
            self.prolong(key, ttl + grace)
            return b"renewed"
        return super().renew(key, token, ttl, grace)


class BreakTellsNobody(ModelServer):
    def tell(self, flags: bytes, prefix: bytes, message: bytes) -> int | None:
        return 1 if message.startswith(b"revoked") else super().tell(flags, prefix, message)


class WithdrawKeepsTheGrant(ModelServer):
    def _run_withdraw(self, keys: Sequence[bytes], args: list[bytes], prefix: bytes) -> Reply:
        self.leave(Lock(*keys), args[0])
        return [b"gone", 0, 0]


class WithdrawKeepsThePlace(ModelServer):
    def _run_withdraw(self, keys: Sequence[bytes], args: list[bytes], prefix: bytes) -> Reply:
        return self._run_release(keys, args, prefix)


class FenceCounts(ModelServer):
    def next_fence(self, key: bytes) -> bytes:
        return b"%d" % (int(self.read(key) or b"0") + 1)


class FenceByTheClockAlone(ModelServer):
    def next_fence(self, key: bytes) -> bytes:
        return b"%d" % self.now_us


class EndsTooEarly(ModelServer):
    def type(self, key: bytes) -> str:
        if self.ends.get(key) == self.now:
            self.delete(key)
        return super().type(key)
