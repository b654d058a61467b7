"""Checkers of histories: each returns the violations that it found, none when the history is as it must be."""

from __future__ import annotations

import collections
import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.harness.history import holds

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from tests.harness.history import Hold, Record

_MOST_STEPS = 2_000_000


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken promise, in words, and the records or holds that show it."""

    rule: str
    lock: str
    text: str
    evidence: tuple[Record | Hold, ...] = ()

    def __str__(self) -> str:
        return f"{self.rule} of {self.lock!r}: {self.text}" + "".join(f"\n    {item}" for item in self.evidence)


def check_all(records: Sequence[Record]) -> list[Violation]:
    """Run the checkers of overlap, fences, arrival order and linearizability."""
    return [
        *check_overlap(records),
        *check_fence_order(records),
        *check_arrival_order(records),
        *check_linearizable(records),
    ]


def check_overlap(records: Iterable[Record]) -> list[Violation]:
    """Find two leases of one lock whose holders trusted themselves at the same time (`holds` says when)."""
    found: list[Violation] = []
    latest: dict[str, Hold] = {}
    for hold in holds(records):
        last = latest.get(hold.lock)
        if last is not None and hold.start < last.end:
            together = min(hold.end, last.end) - hold.start
            found.append(Violation("overlap", hold.lock, f"held twice for {together:.6f} s", (last, hold)))
        if last is None or hold.end > last.end:
            latest[hold.lock] = hold
    return found


def check_fence_order(records: Iterable[Record]) -> list[Violation]:
    """Find a grant whose fence is not above that of every grant that was complete before it was asked for."""
    found: list[Violation] = []
    for lock, grants in _by_lock(record for record in records if _granted(record)).items():
        by_completion = sorted(grants, key=lambda record: record.complete)
        before: Record | None = None
        done = 0
        for grant in sorted(grants, key=lambda record: record.invoke):
            while by_completion[done].complete < grant.invoke:
                if before is None or _fence(by_completion[done]) > _fence(before):
                    before = by_completion[done]
                done += 1
            if before is not None and _fence(grant) <= _fence(before):
                found.append(Violation("fence order", lock, "a later grant has no higher fence", (before, grant)))
        twice = [fence for fence, count in collections.Counter(map(_fence, grants)).items() if count > 1]
        found += [
            Violation("fence order", lock, f"fence {fence} was given twice", _with_fence(grants, fence))
            for fence in twice
        ]
    return found


def check_arrival_order(records: Iterable[Record], exempt: Collection[str] = ()) -> list[Violation]:
    """Find a waiter that was served before one with a lower queue score; grants count in the order of their fences.

    Args:
        records: the history; acquires without a `score` did not wait and are not looked at.
        exempt: tokens that may be served late: their place lapsed, or they gave up and came back.
    """
    found: list[Violation] = []
    queued = (record for record in records if _granted(record) and record.score is not None)
    for lock, grants in _by_lock(record for record in queued if record.token not in exempt).items():
        first: Record | None = None
        for grant in sorted(grants, key=_fence):
            if first is not None and (grant.score or 0) < (first.score or 0):
                found.append(Violation("arrival order", lock, "served after one that came later", (first, grant)))
            else:
                first = grant
    return found


def check_register(
    records: Iterable[Record], final: Mapping[str, Sequence[str]], *, fenced: bool = True
) -> list[Violation]:
    """Compare the writes that were acknowledged with what the store holds at the end.

    Args:
        records: the history; its `write` records name their effect and their fence.
        final: per lock, the effects in the order in which the store has them.
        fenced: also demand that this order is that of their fences.
    """
    found: list[Violation] = []
    for lock, writes in _by_lock(record for record in records if record.op == "write").items():
        stored = final.get(lock, ())
        counts = collections.Counter(stored)
        for write in writes:
            if write.outcome == "ok" and not counts[write.effect]:
                found.append(Violation("register", lock, "an acknowledged write was lost", (write,)))
            if write.outcome == "fail" and counts[write.effect]:
                found.append(Violation("register", lock, "a refused write took effect", (write,)))
        found += [Violation("register", lock, f"{effect!r} stored twice") for effect, n in counts.items() if n > 1]
        by_effect = {write.effect: write for write in writes}
        in_store = [by_effect[effect] for effect in stored if effect in by_effect]
        found += [
            Violation("register", lock, "stored after a write with a higher fence", (earlier, later))
            for earlier, later in itertools.pairwise(in_store)
            if fenced and _fence(later) < _fence(earlier)
        ]
    return found


# Linearizability


def check_linearizable(records: Iterable[Record], most_steps: int = _MOST_STEPS) -> list[Violation]:
    """Check that each lock's operations fit one order in which each took effect at one instant of its own.

    The instant lies between call and return. The model knows the owner and the highest fence: a grant needs a free lock
    and a higher fence; a release or renewal that worked needs its own lease to be the owner, one that failed needs that
    it is not. Operations with an unknown outcome may take effect at any time after their call, or never. A lease may
    end by itself from `ttl` after its acquire's or last successful renewal's call on; without a `ttl` it does not.
    An acquire that failed may fail for any reason. There is one acquire record per token, retries included.

    Raises:
        AssertionError: the search took more than `most_steps` steps, so that nothing is known.
    """
    found: list[Violation] = []
    for lock, ops in _by_lock(record for record in records if record.op in {"acquire", "renew", "release"}).items():
        stuck = _Search(ops, most_steps).find_stuck()
        if stuck:
            found.append(Violation("linearizability", lock, "no order explains these operations", tuple(stuck)))
    return found


def possible_ends(ops: Iterable[Record]) -> dict[str, float]:
    """Tell from when on each token's lease may have ended without a release that worked.

    It may have expired; or a release with an unknown outcome may have worked.
    """
    expiries: dict[str, float] = {}
    released: dict[str, float] = {}
    for record in ops:
        if record.op == "release":
            if record.outcome == "unknown":
                released[record.token] = min(released.get(record.token, math.inf), record.invoke)
        elif record.ttl is not None and (
            record.outcome == "ok" or (record.op, record.outcome) == ("acquire", "unknown")
        ):
            expiries[record.token] = max(expiries.get(record.token, -math.inf), record.invoke + record.ttl)
    return {
        token: min(expiries.get(token, math.inf), released.get(token, math.inf)) for token in expiries.keys() | released
    }


def step(record: Record, owner: str, highest: int) -> tuple[str, int] | None:
    """Let an operation take effect on the model's state, owner and highest fence; `None` when it cannot."""
    if record.op == "acquire":
        fits = not owner and (record.fence is None or record.fence > highest)
        return (record.token, max(highest, _fence(record))) if fits else None
    mine = owner == record.token
    if record.outcome == "fail":
        return None if mine else (owner, highest)
    if not mine:
        return None
    return ("" if record.op == "release" else owner), highest


@dataclass(frozen=True, slots=True)
class _State:
    """How far an attempt has come: the operations before `base` and those of `mask` above it have taken effect."""

    base: int
    mask: int
    owner: str
    highest: int
    now: float

    def has(self, index: int) -> bool:
        return index < self.base or bool(self.mask >> (index - self.base) & 1)

    def after(self, index: int, owner: str, highest: int, now: float) -> _State:
        base, mask = self.base, self.mask | 1 << (index - self.base)
        while mask & 1:
            base, mask = base + 1, mask >> 1
        return _State(base, mask, owner, highest, now)


class _Search:
    """Wing and Gong's search with Lowe's memory of the states that led nowhere, for one lock."""

    def __init__(self, ops: Sequence[Record], most_steps: int) -> None:
        self._ops = sorted(filter(_Needed(ops).is_needed, ops), key=lambda record: (record.invoke, record.complete))
        self._complete = [math.inf if record.outcome == "unknown" else record.complete for record in self._ops]
        self._ends = possible_ends(ops)
        self._most_steps = most_steps

    def find_stuck(self) -> list[Record]:
        """Return nothing if there is an order, else the operations among which the longest attempt got stuck."""
        seen: dict[tuple[int, int, str], float] = {}
        stack = [_State(0, 0, "", -1, -math.inf)]
        longest = -1
        stuck: list[Record] = []
        for _ in range(self._most_steps):
            if not stack:
                return stuck
            state = stack.pop()
            if state.base == len(self._ops):
                return []
            key = (state.base, state.mask, state.owner)
            if seen.get(key, math.inf) <= state.now:
                continue
            seen[key] = state.now
            candidates = self._candidates(state)
            if state.base + state.mask.bit_count() > longest:
                longest = state.base + state.mask.bit_count()
                stuck = [self._ops[index] for index in candidates]
            stack += self._successors(state, candidates)
        raise AssertionError(f"undecided after {self._most_steps} steps over {len(self._ops)} operations")

    def _candidates(self, state: _State) -> list[int]:
        """List the operations that may come next: those called before the first return of any that is left."""
        found: list[int] = []
        first_return = math.inf
        for index in range(state.base, len(self._ops)):
            if self._ops[index].invoke > first_return:
                break
            if not state.has(index):
                found.append(index)
                first_return = min(first_return, self._complete[index])
        return found

    def _successors(self, state: _State, candidates: list[int]) -> list[_State]:
        """Take each candidate next, with the owner as it is and, where time allows, with its lease ended before."""
        owners = [(state.owner, state.now)]
        if state.owner in self._ends:
            owners.append(("", max(state.now, self._ends[state.owner])))
        return [
            state.after(index, *effect, at)
            # The stack's top is tried first: the earliest to return, with the owner's lease still there.
            for index in sorted(candidates, key=lambda index: -self._complete[index])
            for owner, since in reversed(owners)
            if (at := max(since, self._ops[index].invoke)) <= self._complete[index]
            and (effect := step(self._ops[index], owner, state.highest)) is not None
        ]


class _Needed:
    """Tells which operations have to take effect; the others need not be searched.

    A failed acquire fits everywhere. A release or renewal with an unknown outcome does no more than the end of its
    lease does (see `possible_ends`), or nothing. An unknown acquire worked exactly if its lease was used later.
    """

    def __init__(self, ops: Iterable[Record]) -> None:
        self._used = {record.token for record in ops if record.op != "acquire" and record.outcome == "ok"}

    def is_needed(self, record: Record) -> bool:
        if record.op == "acquire":
            return record.outcome == "ok" or (record.outcome == "unknown" and record.token in self._used)
        return record.outcome != "unknown"


def _granted(record: Record) -> bool:
    return record.op == "acquire" and record.outcome == "ok" and record.fence is not None


def _fence(record: Record) -> int:
    return -1 if record.fence is None else record.fence


def _with_fence(grants: Iterable[Record], fence: int) -> tuple[Record, ...]:
    return tuple(grant for grant in grants if grant.fence == fence)


def _by_lock(records: Iterable[Record]) -> dict[str, list[Record]]:
    grouped: dict[str, list[Record]] = collections.defaultdict(list)
    for record in records:
        grouped[record.lock].append(record)
    return grouped
