"""The server's side of the protocol as plain Python: the specification of the Lua scripts, and the explorer's server.

One `ModelServer` is one standalone server with a clock of its own. `run` executes one script call as the Lua files do,
atomically, and answers what the client library would hand on: bytes, integers and lists. Nothing here imports the
core: two independent descriptions of the same thing are what makes comparing them worth anything.
"""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, NamedTuple

from tests.model.server_holders import Holders
from tests.model.server_steering import Steering
from tests.model.server_store import Conflict
from tests.model.server_words import (
    MARK,
    TOKEN_WIDTH,
    Grant,
    Lock,
    marker_of,
    mine,
    mode_of,
    other_use,
    ours,
    seen,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.model.server_steering import Reply
    from tests.model.server_words import Record

__all__ = ["MARK", "POPS", "TOKEN_WIDTH", "Budget", "Grant", "Lock", "ModelServer", "Own", "mine", "ours"]

POPS = 100
HOUR = 3_600_000
WORDS = 9
"""Arguments per waiter of an acquire."""

_ENTRY = re.compile(rb"(\d+) (\d+) (\d+) (\S+) (.*)", re.DOTALL)


class Budget:
    """What one script call may still do, and what it has to tell its caller."""

    def __init__(self) -> None:
        self.pops = 0
        self.more = False
        self.refused = False


class Own(NamedTuple):
    """The caller that wants the lock itself; `score` is the place of one that is not in the queue."""

    token: bytes
    score: int | None
    flags: bytes


class ModelServer(Steering, Holders):
    """One server that runs our scripts; `published` holds what it told whom, `state()` what it keeps."""

    def run(
        self, name: str, keys: Sequence[bytes], args: Sequence[bytes | str | int], echo: bytes, prefix: bytes
    ) -> Reply:
        """One script call: `name` is a script's file name, `args` are those after echo and channel prefix."""
        words = [a if isinstance(a, bytes) else str(a).encode() for a in args]
        script: dict[str, Callable[[Sequence[bytes], list[bytes], bytes], Reply]] = {
            "acquire": self._run_acquire,
            "once": self._run_once,
            "several": self._run_several,
            "release": self._run_release,
            "withdraw": self._run_withdraw,
            "renew": self._run_renew,
            "announce": self._run_announce,
            "adopt": self._run_adopt,
            "ask": self._run_ask,
            "inspect": self._run_inspect,
            "break": self._run_break,
        }
        # A release that finds nobody waiting does not ask for the time.
        quick = name == "release" and self.held_by(keys[0], words[0]) and self.type(keys[1]) == "none"
        return [echo, 0 if quick else self.now, *script[name](keys, words, prefix)]

    def too_late(self, not_after: bytes) -> bool:
        """Whether a request comes after the server time up to which it was meant to work; 0 is no limit."""
        return 0 < int(not_after) < self.now

    # --- The queue -----------------------------------------------------------------------------------------------

    def leave(self, lock: Lock, token: bytes) -> None:
        """Takes a token out of the queue."""
        self.drop_member(lock.queue, token)
        self.drop_field(lock.entry, token)

    def head(self, lock: Lock, budget: Budget) -> tuple[int, Grant] | None:
        """The first waiter whose entry still lives; drops the expired ones in front of it."""
        while budget.pops < POPS:
            ranked = self.ranked(lock.queue)
            if not ranked:
                return None
            score, token = ranked[0]
            entry = _ENTRY.fullmatch(self.entries(lock.entry).get(token, b""))
            if entry is not None and int(entry[1]) >= self.now:
                return score, Grant(token, int(entry[2]), int(entry[3]), entry[4], entry[5])
            self.leave(lock, token)
            budget.pops += 1
        budget.more = True
        return None

    def advance(self, lock: Lock, budget: Budget, prefix: bytes, own: Own | None = None) -> str | None:
        """Grants to the waiters at the head whatever the lock can take; 'own' or 'empty' when it is the caller's turn.

        An exclusive lease fills the lock; shared and semaphore leases let the next waiter have its turn as well.
        """
        while True:
            first = self.head(lock, budget)
            if budget.more:
                return None
            turn = self.turn_of(own, first)
            if turn is not None and own is not None:
                return turn if self.room(lock, own.flags) else None
            if first is None:
                return None
            grant = first[1]
            if not self.room(lock, grant.flags):
                if self.subscribers(grant.flags, prefix) > 0:
                    return None
                # It is gone, and would stop those behind it who could be served.
                self.leave(lock, grant.token)
                budget.pops += 1
                continue
            fence = self.fence_for(lock, grant.flags)
            self.leave(lock, grant.token)
            budget.pops += 1
            self.store(lock, grant, fence)
            message = b"granted %b %d %b 1 %b" % (grant.token, self.now_us, fence, lock.main)
            reached = self.tell(grant.flags, prefix, message)
            if reached is None:
                budget.refused = True
            if reached == 0:
                self.drop(lock, grant.token)
            elif mode_of(grant.flags) == b"x":
                return None

    @staticmethod
    def turn_of(own: Own | None, first: tuple[int, Grant] | None) -> str | None:
        """How it comes to be the caller's turn: its own entry is the first, or nobody living stands before it."""
        if own is None:
            return None
        if first is not None and first[1].token == own.token:
            return "own"
        if first is None or (own.score is not None and own.score < first[0]):
            return "empty"
        return None

    def hand_over(self, lock: Lock, budget: Budget, prefix: bytes) -> None:
        """Advances for a caller that wants nothing; without a fence the lock stays free, and acquire says why."""
        with contextlib.suppress(Conflict):
            self.advance(lock, budget, prefix)

    # --- acquire -------------------------------------------------------------------------------------------------

    def _run_acquire(self, keys: Sequence[bytes], args: list[bytes], prefix: bytes) -> Reply:
        late = self.too_late(args[0])
        reply: Reply = []
        for first in range(1, len(args), WORDS):
            base = (int(args[first]) - 1) * 5
            words = args[first + 1 : first + WORDS]
            reply.append([b"late"] if late else self.acquire(Lock(*keys[base : base + 5]), words, prefix))
        return reply

    def acquire(self, lock: Lock, words: list[bytes], prefix: bytes) -> Reply:
        """Takes a lock that has room, else queues (life > 0) or answers who is in the way."""
        grant = Grant(words[0], int(words[1]), int(words[2]), words[5], words[6])
        score = int(words[4]) if words[4] else None
        budget = Budget()
        try:
            record = self.holds(lock, grant.token)
            if record is not None:
                return self.granted_before(lock, record, grant)
            obstacle = other_use(self.read(lock.main), grant.flags)
            if obstacle is not None:
                return [*obstacle]
            if self.turn_comes(lock, budget, prefix, Own(grant.token, score, grant.flags)):
                answer = self.grant(lock, grant)
                if mode_of(grant.flags) != b"x":
                    # Those behind may have room as well, and nobody else would tell them soon.
                    self.hand_over(lock, budget, prefix)
                return answer
        except Conflict as problem:
            return [b"conflict", str(problem).encode()]
        # Those in front may have been granted another mode meanwhile.
        obstacle = other_use(self.read(lock.main), grant.flags)
        if obstacle is not None:
            return [*obstacle]

        ahead = self.last_try(lock, grant.token, budget, prefix, score) if int(words[3]) <= 0 else None
        asks = words[7] == b"1" and self.read(lock.main) is not None
        heard = self.ask_holders(lock, grant.info, prefix) if asks else -1
        left, holder = self.in_the_way(lock)
        if ahead is not None:
            return [b"busy", ahead, left, holder, int(budget.more), heard]
        if grant.token not in self.queue(lock.queue) and self.subscribers(grant.flags, prefix) == 0:
            return [b"subscribe"]
        place = b"%d" % self.enqueue(lock, grant, int(words[3]), score)
        rank = self.rank(lock.queue, grant.token) or 0
        return [b"queued", place, rank, left, holder, int(budget.more), b"%d" % self.now_us, heard]

    def turn_comes(self, lock: Lock, budget: Budget, prefix: bytes, own: Own) -> bool:
        """Serves those in front of the caller, unless nothing can be free; whether the caller can be served then."""
        value = self.read(lock.main)
        if value is not None and marker_of(value) is None:
            return False
        return self.advance(lock, budget, prefix, own) is not None

    def granted_before(self, lock: Lock, record: Record, grant: Grant) -> Reply:
        """The same grant again, for a token that holds already: same fence, never a shorter life."""
        if record.revoked:
            return [b"revoked"]
        if self.held_by(lock.main, grant.token):
            self.prolong(lock.main, grant.life)
        else:
            self.prolong_member(lock, grant.token, grant.life)
        return [b"granted", record.fence, 1, grant.ttl]

    def grant(self, lock: Lock, grant: Grant) -> Reply:
        """The caller is next: it holds."""
        fence = self.fence_for(lock, grant.flags)
        self.leave(lock, grant.token)
        self.store(lock, grant, fence)
        return [b"granted", fence, 1, grant.ttl]

    def last_try(self, lock: Lock, token: bytes, budget: Budget, prefix: bytes, score: int | None) -> int:
        """Leaves no entry; how many stand in front, the whole queue for one that does not stand in it."""
        ahead = self.rank(lock.queue, token)
        if ahead is not None:
            self.leave(lock, token)
        if (ahead is not None or score is not None) and marker_of(self.read(lock.main)) is not None:
            # Those behind had no room only because they may not overtake.
            self.hand_over(lock, budget, prefix)
        return len(self.queue(lock.queue)) if ahead is None else ahead

    def enqueue(self, lock: Lock, grant: Grant, life: int, score: int | None) -> int:
        """Joins the queue, at the place that it had if it presents one, or refreshes its entry; its place."""
        place = self.queue(lock.queue).get(grant.token)
        if place is None:
            # An earlier lease of the token is over: cleaning up behind it must not take the entry.
            self.drop_holder(lock, grant.token)
            place = self.new_score(lock) if score is None else score
            self.put_member(lock.queue, grant.token, place)
        entry = b"%d %d %d %b %b" % (self.now + life, grant.ttl, grant.grace, grant.flags, grant.info)
        self.put_field(lock.entry, grant.token, entry)
        self.last_until(lock.entry, self.now + 2 * life)
        # Records of holders keep the entries alive; the queue has to be there to name those that are to be dropped.
        beside = marker_of(self.read(lock.main)) is not None
        self.last_until(lock.queue, self.now + max(2 * life, HOUR if beside else 0))
        return place

    def new_score(self, lock: Lock) -> int:
        """A place behind everybody: also when the clock has stepped back."""
        ranked = self.ranked(lock.queue)
        return max(ranked[-1][0] + 1, self.now_us) if ranked else self.now_us

    # --- once and several ----------------------------------------------------------------------------------------

    def _run_once(self, keys: Sequence[bytes], args: list[bytes], prefix: bytes) -> Reply:
        if self.too_late(args[0]):
            return [[b"late"]]
        return [self.once(Lock(*keys[:5]), keys[5], args[2 : 1 + WORDS], int(args[1 + WORDS]), prefix)]

    def once(self, lock: Lock, again: bytes, words: list[bytes], at_least: int, prefix: bytes) -> Reply:
        """One try to take the lock, unless somebody took it less than `at_least` milliseconds ago."""
        try:
            holds_already = self.holds(lock, words[0]) is not None
        except Conflict:
            holds_already = False
        if holds_already or at_least <= 0:
            return self.acquire(lock, words, prefix)
        last = self.read(again)
        if last is not None:
            return [b"again", self.pttl(again), last]
        answer = self.acquire(lock, words, prefix)
        if answer[0] == b"granted":
            record = self.holds(lock, words[0])
            assert record is not None
            self.put(again, seen(words[0], record), end=self.now + at_least)
        return answer

    def _run_several(self, keys: Sequence[bytes], args: list[bytes], prefix: bytes) -> Reply:
        not_after, ttl, grace, flags, info, *tokens = args
        if self.too_late(not_after):
            return [[b"late"]]
        wanted = [
            (Lock(*keys[5 * i : 5 * i + 5]), Grant(token, int(ttl), int(grace), flags, info))
            for i, token in enumerate(tokens)
        ]
        for i, (lock, grant) in enumerate(wanted):
            try:
                if not self.can_have(lock, grant):
                    return [[b"held", i]]
            except Conflict as problem:
                return [[b"conflict", i, str(problem).encode()]]
        fences: Reply = []
        for lock, grant in wanted:
            record = self.holds(lock, grant.token)
            fences.append((self.grant(lock, grant) if record is None else self.granted_before(lock, record, grant))[1])
        return [[b"granted", *fences]]

    def can_have(self, lock: Lock, grant: Grant) -> bool:
        """Whether one of several locks can be had at once, without passing anybody; raises `Conflict`."""
        marker = marker_of(self.read_lease(lock.main))
        if marker is not None and marker.limit is not None:
            raise Conflict("the name is in use as a semaphore")
        record = self.holds(lock, grant.token)
        if record is not None:
            return not record.revoked
        if self.type(lock.queue) != "none" or not self.room(lock, grant.flags):
            return False
        self.fence_for(lock, grant.flags)
        return True

    # --- release and withdraw ------------------------------------------------------------------------------------

    def release(self, lock: Lock, token: bytes, budget: Budget, prefix: bytes) -> bytes:
        """Ends the token's lease and hands the lock over."""
        try:
            value = self.read(lock.main)
        except Conflict:
            return b"taken"
        how = b"gone"
        if marker_of(value) is not None:
            how = b"released" if token in self.live(lock) else b"taken"
            self.drop_holder(lock, token)
            self.settle(lock)
        elif value is not None:
            if not mine(value, token):
                return self.not_mine(value, token)
            self.delete(lock.main)
            how = b"released"
        self.hand_over(lock, budget, prefix)
        return how

    def _run_release(self, keys: Sequence[bytes], args: list[bytes], prefix: bytes) -> Reply:
        budget = Budget()
        how = self.release(Lock(*keys), args[0], budget, prefix)
        return [how, int(budget.more), int(budget.refused)]

    def _run_withdraw(self, keys: Sequence[bytes], args: list[bytes], prefix: bytes) -> Reply:
        self.leave(Lock(*keys), args[0])
        return self._run_release(keys, args, prefix)

    # --- break ---------------------------------------------------------------------------------------------------

    def _run_break(self, keys: Sequence[bytes], args: list[bytes], prefix: bytes) -> Reply:
        lock, wanted, force = Lock(*keys), args[0], args[1] == b"1"
        try:
            how, who = self.break_lease(lock, wanted, prefix, force=force)
        except Conflict as problem:
            return [b"conflict", str(problem).encode()]
        if how == b"deleted":
            self.hand_over(lock, Budget(), prefix)
        return [how, who]
