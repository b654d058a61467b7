"""What the specification promises, whatever the order of calls: on the model alone, without a server beside it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import pytest

from tests.lua.steps import LOCKS, Pair
from tests.lua.strategies import MODES
from tests.lua.virtual import PREFIX, lock_keys
from tests.lua.walks import walk
from tests.model.server_model import Lock, ModelServer
from tests.model.server_words import marker_of, mode_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.lua.inboxes import Inboxes
    from tests.lua.virtual import VirtualServer, Word

ENDING = ("release", "withdraw")
WALKS = 60
LENGTH = 60


class Held(NamedTuple):
    """One lease on the server."""

    mode: bytes
    fence: int
    end: int


@dataclass
class Nobody:
    """Stands where a real server and its inboxes would; steps ask it for the time, and subscribe."""

    now_us: int = 1_700_000_000_000_000

    @property
    def now(self) -> int:
        """The clock in whole milliseconds."""
        return self.now_us // 1000

    def subscribe(self, channel: bytes, *, kind: bytes) -> None:
        """Listens to nothing."""

    def unsubscribe(self, channel: bytes, *, kind: bytes) -> None:
        """Listens no more."""


@dataclass
class Promises(Pair):
    """Runs calls on the model alone, remembers what was promised, and looks whether it is kept."""

    known: dict[tuple[bytes, bytes], Held] = field(default_factory=dict[tuple[bytes, bytes], Held])
    """Leases by lock and token, as they were after the last step."""
    highest: dict[bytes, int] = field(default_factory=dict[bytes, int])
    """The highest fence that each lock has given."""

    def call(self, script: str, keys: Sequence[bytes], args: Sequence[Word]) -> None:
        """Runs one script, and looks at what it has done to each lock."""
        self.model.now_us = self.real.now_us
        words = [word if isinstance(word, bytes) else str(word).encode() for word in args]
        touched = [lock for lock in LOCKS if lock in keys]
        before = {lock: (self.held(lock), self.waiting(lock)) for lock in touched}
        answers: list[Any] = self.model.run(script, keys, args, b"e", PREFIX)[2:]
        for lock in touched:
            held, waiting = before[lock]
            new = {who: lease for who, lease in self.held(lock).items() if who not in held}
            if script != "adopt":
                self.fences_rise(lock, new)
                self.nobody_is_passed(lock, new, waiting, words)
                self.who_is_served_knows(new, waiting, words)
            self.nobody_vanishes(lock, waiting, words)
            if len(touched) == 1 and self.serves(script, answers, new):
                self.nobody_waits_for_nothing(lock, words)
        self.forget_what_was_given_up(script, touched, words, answers)

    def compare(self) -> None:
        """Every lease is there up to its end, and nobody beside it who must not be."""
        self.model.now_us = self.real.now_us
        present = {(lock, who): lease for lock in LOCKS for who, lease in self.held(lock).items()}
        for key, lease in self.known.items():
            if lease.end >= self.model.now:
                assert key in present, f"{key} was lost before its end"
                assert present[key].end >= lease.end, f"the end of {key} has moved back"
                assert present[key].fence == lease.fence
        self.known = present
        for lock in LOCKS:
            self.company(lock)

    # --- What there is -------------------------------------------------------------------------------------------

    def held(self, lock: bytes) -> dict[bytes, Held]:
        """The leases that live on the server."""
        keys = Lock(*lock_keys(lock))
        ends = self.model.queue(keys.shared)
        return {
            who: Held(mode_of(record.flags), int(record.fence), ends.get(who, self.model.ends[keys.main]))
            for who, record in self.model.holders(keys)
        }

    def waiting(self, lock: bytes) -> dict[bytes, tuple[int, bytes]]:
        """The waiters whose entries live: place and flags."""
        keys = Lock(*lock_keys(lock))
        entries = {who: text.split(b" ") for who, text in self.model.entries(keys.entry).items()}
        return {
            who: (score, entries[who][3])
            for score, who in self.model.ranked(keys.queue)
            if who in entries and int(entries[who][0]) >= self.model.now
        }

    # --- What must be true ---------------------------------------------------------------------------------------

    def company(self, lock: bytes) -> None:
        """One writer alone, or readers alone, or as many as the semaphore has places; the key ends with the last."""
        keys = Lock(*lock_keys(lock))
        leases = [lease for (key, _), lease in self.known.items() if key == lock]
        marker = marker_of(self.model.read(keys.main))
        if marker is None:
            assert [lease.mode for lease in leases] in ([], [b"x"])
        else:
            assert leases, "the key is there, and nobody holds"
            assert self.model.ends[keys.main] == max(lease.end for lease in leases), "the key outlives its holders"
            assert {lease.mode[:1] for lease in leases} == {marker.mode[:1]}
            assert len(leases) <= (marker.limit or len(leases))
            assert marker.limit or {lease.fence for lease in leases} == {int(marker.fence)}, "readers differ in fence"
        records = {who for who, text in self.model.entries(keys.entry).items() if text.startswith(b"h ")}
        assert records <= self.model.queue(keys.shared).keys(), "a record that nobody will clean up"

    def fences_rise(self, lock: bytes, new: dict[bytes, Held]) -> None:
        """Each grant has a higher fence than all before it; readers that join have that of the first of them."""
        highest = self.highest.get(lock, 0)
        fences = [lease.fence for lease in new.values() if lease.mode != b"s"]
        assert len(set(fences)) == len(fences)
        for lease in new.values():
            assert lease.fence > highest or (lease.mode == b"s" and lease.fence == highest)
        self.highest[lock] = max([highest, *(lease.fence for lease in new.values())])

    def nobody_is_passed(
        self, lock: bytes, new: dict[bytes, Held], before: dict[bytes, tuple[int, bytes]], words: list[bytes]
    ) -> None:
        """Nobody was served while somebody stood in front who stands there still."""
        still = self.waiting(lock)
        front = min((score for who, (score, _) in before.items() if who in still), default=None)
        for who in new:
            if front is None or words.count(who) > 1:
                continue
            place = before[who][0] if who in before else None
            if place is None and who in words and words[words.index(who) + 4].isdigit():
                place = int(words[words.index(who) + 4])
            assert place is not None, f"{who!r} has passed"
            assert place < front, f"{who!r} has passed"

    def who_is_served_knows(
        self, new: dict[bytes, Held], before: dict[bytes, tuple[int, bytes]], words: list[bytes]
    ) -> None:
        """Whoever did not ask in this very call can be told by message."""
        for who in new.keys() - set(words):
            assert self.reachable(before[who][1]), f"{who!r} holds and does not know"

    def nobody_vanishes(self, lock: bytes, before: dict[bytes, tuple[int, bytes]], words: list[bytes]) -> None:
        """A waiter that lives and can be told is served or stays, unless it leaves itself."""
        there = self.waiting(lock).keys() | self.held(lock).keys() | set(words)
        for who, (_, flags) in before.items():
            assert who in there or not self.reachable(flags), f"{who!r} has been forgotten"

    @staticmethod
    def serves(script: str, answers: list[Any], new: dict[bytes, Held]) -> bool:
        """Whether this was a call that serves waiters."""
        if script in ("release", "withdraw"):
            return True
        return script == "acquire" and (bool(new) or answers[0][0] in (b"queued", b"busy"))

    def nobody_waits_for_nothing(self, lock: bytes, words: list[bytes]) -> None:
        """After a call that serves waiters there is no room for the first who is there: who asks, or can be told."""
        for who, (_, flags) in self.waiting(lock).items():
            if who in words or self.reachable(flags):
                assert not self.model.room(Lock(*lock_keys(lock)), flags), f"{who!r} waits although there is room"
                return

    def reachable(self, flags: bytes) -> bool:
        """Whether somebody listens to the inbox of these flags."""
        return self.model.subscribers(flags, PREFIX) > 0

    def forget_what_was_given_up(self, script: str, locks: list[bytes], words: list[bytes], answers: list[Any]) -> None:
        """A release, an adoption or an operator may end a lease before its time: that of the token that is named."""
        gone = words[:1] if script in ENDING else []
        if script == "adopt" and answers[0][0] == b"adopted":
            gone = words[1:2]
        for lock, who in list(self.known):
            broken = (
                script == "break"
                and answers[0] == b"deleted"
                and words[0] in (b"", b"%d" % self.known[lock, who].fence)
            )
            if lock in locks and (who in gone or broken):
                del self.known[lock, who]


def first_broken(server: type[ModelServer], steps: Sequence[Callable[[Pair], None]]) -> str | None:
    """Takes the steps, and tells which promise was broken first."""
    nobody = Nobody()
    pair = Promises(cast("VirtualServer", nobody), server(nobody.now_us), cast("Inboxes", nobody))
    for number, step in enumerate(steps):
        try:
            step(pair)
            pair.compare()
        except AssertionError as broken:
            return "\n".join([str(broken), *map(str, steps[: number + 1])])
    return None


@pytest.mark.parametrize("modes", MODES, ids=lambda modes: b"-".join(modes).decode())
def test_every_promise_is_kept(modes: tuple[bytes, ...]) -> None:
    for seed in range(WALKS):
        broken = first_broken(ModelServer, walk(modes, seed, LENGTH))
        assert broken is None, f"walk({modes}, {seed}): {broken}"
