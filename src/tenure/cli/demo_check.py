"""What the demo proves: pure functions over what its workers wrote down."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of one worker; times in seconds on a clock that all processes of the machine share."""

    worker: int
    fence: int
    asked: float
    """Before it asked for the lock."""
    began: float
    """After it was granted the lock."""
    ended: float
    """Before it released the lock."""
    deadline: float
    """When its lease would have ended, had it not released it."""

    @property
    def held_until(self) -> float:
        """The end of what the lock promised for this turn."""
        return min(self.ended, self.deadline)


class Finding(NamedTuple):
    """One thing that was checked."""

    good: bool
    what: str
    detail: str


def check(turns: Sequence[Turn], counter: int, expected: int) -> list[Finding]:
    """Check that no two turns overlap, that no update of the counter was lost, and that fences rise.

    Args:
        turns: in any order.
        counter: what the file holds at the end; each turn should have added one.
        expected: how many turns there should have been.
    """
    in_order = sorted(turns, key=lambda turn: turn.began)
    pairs = list(pairwise(in_order))
    # Not only neighbours: a long hold may overlap several that come after it.
    latest = 0.0
    overlaps = 0
    for turn in in_order:
        overlaps += turn.began < latest
        latest = max(latest, turn.held_until)
    steps_back = sum(later.fence <= earlier.fence for earlier, later in pairs)
    return [
        Finding(
            len(turns) == expected and not overlaps,
            "never two holders at once",
            f"{len(turns)} turns, {overlaps or 'none'} of them began while another one lasted"
            + ("" if len(turns) == expected else f"; {expected} were expected"),
        ),
        Finding(
            counter == expected,
            "no update lost",
            f"the counter says {counter} after {expected} turns"
            + (f": {expected - counter} lost" if counter < expected else ""),
        ),
        Finding(
            bool(turns) and not steps_back,
            "fences strictly rising",
            f"{steps_back} of {len(pairs)} were not higher than the one before"
            if steps_back
            else f"from {in_order[0].fence} to {in_order[-1].fence}"
            if in_order
            else "no turns",
        ),
    ]


def hand_overs(turns: Sequence[Turn]) -> list[float]:
    """Seconds from each release to the grant that followed, in order, where somebody was waiting for it."""
    in_order = sorted(turns, key=lambda turn: turn.began)
    return [later.began - earlier.ended for earlier, later in pairwise(in_order) if later.asked < earlier.ended]
