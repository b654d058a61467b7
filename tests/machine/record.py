"""What must be true of all leases of a machine: a plain record of who holds which name, and what the server says."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from hypothesis.stateful import invariant

import tenure
from tests.conformance.flavours import KINDS
from tests.machine.sides import CLIENTS, TTL, Sides

if TYPE_CHECKING:
    from tests.conformance.flavours import AnyLease, Kind

LOCKS, PLACES, ONCE = ("1", "2"), "s", "o"
NAMES = (*LOCKS, PLACES)


@dataclasses.dataclass
class Pair:
    """One lease as the machine knows it: a handle of each flavour, and what must be true of both."""

    client: int
    names: tuple[str, ...]
    mode: str
    handles: dict[Kind, AnyLease]
    states: dict[str, str]
    """Name -> held, released, moved, or why it was lost."""
    has: set[str]
    """Names for which the server has this lease."""
    here: bool = True
    """Counts as that of the machine's own thread."""
    depth: int = 0
    asked: bool = False
    info: Any = None
    seen: dict[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    """Name -> the info that others see, where it is another one: of a lease that was lost for some of its names."""

    @property
    def alive(self) -> bool:
        """Held, as far as the holder can know."""
        return all(state == "held" for state in self.states.values())

    @property
    def lost(self) -> str | None:
        """Why the lease was lost."""
        return next((s for s in self.states.values() if s not in ("held", "released", "moved")), None)

    def refused(self) -> Any:  # noqa: ANN401 - an outcome
        """What `check` says; None when nothing is wrong."""
        state = next((state for state in self.states.values() if state != "held"), None)
        if state is None:
            return None
        return tenure.NotHeld if state in ("released", "moved") else (tenure.LeaseLost, state)


class Record(Sides):
    """Two locks, a semaphore and a name for `once`, and who has which of them."""

    def __init__(self) -> None:
        super().__init__()
        self.pairs: list[Pair] = []
        self.limit = 0
        self.runs = 0
        self.ran = False
        """`once` has run with a distance that never passes here."""

    def teardown(self) -> None:
        super().teardown()
        self.pairs.clear()
        for side in self.sides:
            self.server.command("DEL", *map(side.key, (*NAMES, ONCE)))

    # Helpers

    def holders(self, name: str) -> list[Pair]:
        """Whose leases the server has for a name."""
        return [pair for pair in self.pairs if name in pair.has]

    def nested(self, client: int, names: tuple[str, ...]) -> Pair | None:
        """The lease in whose use a take of these names by the machine's thread would be nested."""
        return next(
            (
                pair
                for name in names
                for pair in self.pairs
                if pair.client == client and pair.here and pair.states.get(name) == "held"
            ),
            None,
        )

    def free(self, names: tuple[str, ...], mode: str) -> bool:
        """Whether nobody is in the way."""
        others = [pair for name in names for pair in self.holders(name)]
        if mode == "semaphore":
            return len(others) < self.limit or not others
        return not others or (mode == "shared" and all(pair.mode == "shared" for pair in others))

    def granted(
        self, client: int, names: tuple[str, ...], mode: str, handles: dict[Kind, AnyLease], *, here: bool = True
    ) -> None:
        """Both sides have a new lease: its fences rise, or are those of the others who share."""
        assert len(handles) == len(KINDS)
        for side in self.sides:
            for name in names:
                lease = handles[side.kind]
                fence, others = lease.fences[side.name(name)], self.holders(name)
                if mode == "shared" and others:
                    assert fence == others[0].handles[side.kind].fences[side.name(name)]
                else:
                    assert fence > side.last_fences.get(name, 0)
                side.last_fences[name] = fence
                assert 0 < lease.remaining() <= TTL
        self.pairs.append(Pair(client, names, mode, handles, dict.fromkeys(names, "held"), set(names), here))

    def in_use(self) -> list[str]:
        """Names that somebody holds on the server."""
        return [name for name in NAMES if self.holders(name)]

    def pick_name(self, number: int) -> str:
        """One of them."""
        names = self.in_use()
        return names[number % len(names)]

    def pick(self, number: int) -> Pair:
        """One of the leases, old ones included."""
        return self.pairs[-1 - number % len(self.pairs)]

    def missing(self, pair: Pair, name: str, *, releasing: bool = False) -> str:
        """What the server answers to a lease that it does not have any more: deleted or taken."""
        others = self.holders(name)
        if not others:
            return "deleted"
        # A member that is missing among others was deleted; only a release is content with somebody being there.
        beside = pair.mode != "exclusive" and others[0].mode != "exclusive"
        return "deleted" if beside and not releasing else "taken"

    def found_missing(self, pair: Pair) -> None:
        """A request tells the holder which of its names are lost."""
        for name in pair.names:
            if name not in pair.has:
                pair.states[name] = self.missing(pair, name)

    # What is true at any time

    @invariant()
    def handles_say_what_is_known(self) -> None:
        for pair in self.pairs:
            for side in self.sides:
                lease = pair.handles[side.kind]
                assert (lease.valid, lease.lost, lease.mode) == (pair.alive, pair.lost, pair.mode)
                assert (lease.names, lease.info) == (tuple(map(side.name, pair.names)), pair.info)
                assert (lease.asked is not None) is pair.asked

    @invariant()
    def everybody_finds_their_own(self) -> None:
        for side in self.sides:
            for client in CLIENTS:
                for name in NAMES:
                    pair = self.nested(client, (name,))
                    expected = None if pair is None else pair.handles[side.kind].raw
                    assert side.locks[client].current(side.name(name)) is expected

    @invariant()
    def the_server_knows_the_holders(self) -> None:
        assert self.as_the_server_says()

    def as_the_server_says(self) -> bool:
        """Whether the server's holders are those of the record."""
        for side in self.sides:
            for name in NAMES:
                known = [
                    (pair.handles[side.kind].fences[side.name(name)], pair.mode, pair.seen.get(name, pair.info))
                    for pair in self.holders(name)
                ]
                seen = [(h.fence, h.mode, h.info) for h in side.locks[0].holders(side.name(name))]
                if sorted(map(repr, known)) != sorted(map(repr, seen)):
                    return False
        return True
