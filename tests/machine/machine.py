"""Two flavours of one library in lockstep: whatever is done to one is done to the other, and both answer alike.

The blocking flavour works on the lock `b`, asyncio on `a`, both on one real server through one fault proxy. Each has
two clients, as two processes would have. A plain record of who holds what, kept by the machine, says beforehand what
the answer has to be; after each step the server's keys are compared with it.
"""

from __future__ import annotations

import dataclasses
import gc
import warnings
from typing import TYPE_CHECKING, cast

import hypothesis.strategies as st
from hypothesis.stateful import invariant, precondition, rule

import tenure
from tests.conformance.flavours import KINDS
from tests.harness.leaks import leftover_keys
from tests.harness.leases import age
from tests.harness.waiting import wait_until
from tests.machine.sides import CLIENTS, TTL, Sides, told

if TYPE_CHECKING:
    from concurrent.futures import Future

    from tests.conformance.flavours import AnyLease, Kind
    from tests.machine.sides import Side

SHORT = TTL / 4
SOON = 20

clients = st.sampled_from(CLIENTS)
picks = st.sampled_from([0, 0, 0, 1, 2, 3])
"""Which lease, counted from the latest."""
meddlings = st.sampled_from(["release", "renew", "nothing"])


@dataclasses.dataclass
class Pair:
    """One lease as the machine knows it: a handle of each flavour, and what must be true of both."""

    client: int
    handles: dict[Kind, AnyLease]
    alive: bool = True
    """Held, as far as the holder can know."""
    has_key: bool = True
    """The server's key is this lease's."""
    lost: str | None = None
    renewed: bool = False
    """In the background."""
    by_main: bool = True
    """Taken by the machine's own thread, for which a nested try is an error."""


class Lockstep(Sides):
    """What can happen to one lock, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.pairs: list[Pair] = []
        self.foreign = False

    def teardown(self) -> None:
        super().teardown()
        self.pairs.clear()
        for side in self.sides:
            self.server.command("DEL", side.key())

    # Helpers

    @property
    def holding(self) -> Pair | None:
        """The lease whose key the server has."""
        return next((pair for pair in self.pairs if pair.has_key), None)

    @property
    def busy(self) -> bool:
        """Whether a try has to fail."""
        return self.foreign or self.holding is not None

    def nested(self, client: int) -> bool:
        """Whether a try of this client would wait for itself."""
        return any(pair.alive and pair.by_main and pair.client == client for pair in self.pairs)

    def granted(self, client: int, handles: dict[Kind, AnyLease], *, renewed: bool, by_main: bool = True) -> None:
        """Both sides have a new lease: its fence is higher than all before."""
        assert len(handles) == len(KINDS)
        for side in self.sides:
            lease = handles[side.kind]
            assert lease.fence > side.last_fences.get("", 0)
            side.last_fences[""] = lease.fence
            assert 0 < lease.remaining() <= TTL
        self.pairs.append(Pair(client, handles, renewed=renewed, by_main=by_main))

    def pick(self, number: int) -> Pair:
        """One of the leases, old ones included."""
        return self.pairs[-1 - number % len(self.pairs)]

    # Taking

    @rule(client=clients, renew=st.booleans(), wait=st.sampled_from([0, 0, 0.03]))
    def try_to_take(self, client: int, renew: bool, wait: float) -> None:
        handles: dict[Kind, AnyLease] = {}

        def take(side: Side) -> str:
            lease = side.locks[client].lock(side.kind[0], ttl=TTL, renew=renew).try_acquire(wait)
            if lease is None:
                return "busy"
            handles[side.kind] = lease
            return "granted"

        expected = tenure.AlreadyHeld if self.nested(client) else "busy" if self.busy else "granted"
        assert self.both(take) == expected
        if expected == "granted":
            self.granted(client, handles, renewed=renew)

    @precondition(lambda self: self.holding is not None and self.holding.alive)
    @rule(renew=st.booleans())
    def hand_over(self, renew: bool) -> None:
        holding = cast("Pair", self.holding)
        client = 1 - holding.client
        if self.nested(client):
            return
        waiting: dict[Kind, Future[AnyLease]] = {
            side.kind: side.locks[client].queue(side.kind[0], ttl=TTL, renew=renew, wait=60) for side in self.sides
        }
        assert self.both(lambda side: holding.handles[side.kind].release()) is tenure.Released.RELEASED
        holding.alive = holding.has_key = False
        handles: dict[Kind, AnyLease] = {kind: future.result(SOON) for kind, future in waiting.items()}
        self.granted(client, handles, renewed=renew, by_main=False)

    # A lease's own verbs

    @precondition(lambda self: self.pairs)
    @rule(number=picks)
    def renew(self, number: int) -> None:
        pair = self.pick(number)
        before: dict[Kind, float] = {side.kind: pair.handles[side.kind].raw._hold.deadline for side in self.sides}
        outcome = self.both(lambda side: pair.handles[side.kind].renew())
        if pair.lost:
            assert outcome == (tenure.LeaseLost, pair.lost)
        elif not pair.alive:
            assert outcome is tenure.NotHeld
        elif pair.has_key:
            assert outcome is None
            assert all(pair.handles[kind].raw._hold.deadline > deadline for kind, deadline in before.items())
        else:
            pair.lost = "taken" if self.busy else "deleted"
            pair.alive = False
            assert outcome == (tenure.LeaseLost, pair.lost)

    @precondition(lambda self: self.pairs)
    @rule(number=picks)
    def release(self, number: int) -> None:
        pair = self.pick(number)
        lossy = self.drop_replies
        outcome = self.both(lambda side: pair.handles[side.kind].release())
        if not pair.alive:
            assert outcome is (tenure.Released.TAKEN if pair.lost == "taken" else tenure.Released.GONE)
            return
        pair.alive = False
        if pair.has_key or lossy:
            # After a lost reply nobody can tell whether the key was still there the first time.
            assert outcome is tenure.Released.RELEASED
            pair.has_key = False
        else:
            pair.lost = "taken" if self.busy else "deleted"
            assert outcome is (tenure.Released.TAKEN if self.busy else tenure.Released.GONE)

    @precondition(lambda self: self.pairs)
    @rule(number=picks)
    def look(self, number: int) -> None:
        pair = self.pick(number)
        outcome = self.both(lambda side: pair.handles[side.kind].check())
        if pair.lost:
            assert outcome == (tenure.LeaseLost, pair.lost)
        else:
            assert outcome is (None if pair.alive else tenure.NotHeld)
        assert self.both(lambda side: side.locks[pair.client].lock(side.kind[0]).locked()) is self.busy

    @precondition(lambda self: self.holding is not None and self.holding.alive and not self.holding.renewed)
    @rule()
    def let_it_expire(self) -> None:
        """Asking for less shortens the local deadline; the hub then gives the key back."""
        pair = cast("Pair", self.holding)
        assert self.both(lambda side: pair.handles[side.kind].renew(SHORT)) is None
        for lease in pair.handles.values():
            age(lease.raw, SHORT)
        assert self.both(lambda side: pair.handles[side.kind].wait_lost(SOON)) is True
        pair.alive, pair.has_key, pair.lost = False, False, "expired"
        self.wait_free()

    @precondition(lambda self: any(pair.alive for pair in self.pairs))
    @rule(number=picks)
    def drop_handle(self, number: int) -> None:
        """A lease that nobody can use any more is given back, with a warning."""
        alive = [pair for pair in self.pairs if pair.alive]
        pair = alive[-1 - number % len(alive)]
        self.pairs.remove(pair)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", ResourceWarning)
            pair.handles.clear()
            gc.collect()
            wait_until(lambda: len(told(caught)) == len(KINDS), SOON, f"two warnings, not {told(caught)}")
        if pair.has_key:
            self.wait_free()

    # What others do

    @precondition(lambda self: self.busy)
    @rule(then=meddlings)
    def delete_key(self, then: str) -> None:
        self.both(lambda side: self.server.command("DEL", side.key()))
        self.foreign = False
        self.taken_away(then)

    @precondition(lambda self: self.holding is not None)
    @rule(then=meddlings)
    def overwrite_key(self, then: str) -> None:
        self.both(lambda side: self.server.command("SET", side.key(), "their token", "PX", 600_000))
        self.foreign = True
        self.taken_away(then)

    @precondition(lambda self: self.busy)
    @rule(force=st.booleans(), right=st.sampled_from([True, True, False]))
    def break_lock(self, force: bool, right: bool) -> None:
        pair = self.holding

        def break_it(side: Side) -> str:
            fence = None if right else side.last_fences.get("", 0) + 1
            found = side.locks[0].break_lock(side.kind[0], fence, force=force)
            return "none" if found is None else "foreign" if found.foreign else "told"

        # A second request of the same kind tells what the first one has left.
        self.drop_replies = False
        outcome = self.both(break_it)
        if not right:
            assert outcome == "none"
        elif self.foreign:
            assert outcome == ("foreign" if force else tenure.NameConflict)
            self.foreign = not force
        else:
            assert outcome == "told"
            assert pair is not None
            self.told_of_break(pair, force=force)

    def told_of_break(self, pair: Pair, *, force: bool) -> None:
        if pair.alive:
            assert self.both(lambda side: pair.handles[side.kind].wait_lost(SOON)) is True
            pair.lost = "revoked"
            if not force:
                # The holder is told, and the lock is free once it has let go.
                assert self.both(lambda side: pair.handles[side.kind].release()) is tenure.Released.GONE
        pair.alive = pair.has_key = False
        self.wait_free()

    @precondition(lambda self: self.holding is not None)
    @rule()
    def kill_inboxes(self) -> None:
        for state in self.client_states():
            state.inbox = ""
        self.server.command("CLIENT", "KILL", "TYPE", "pubsub")
        self.wait_for_inboxes()

    def taken_away(self, then: str) -> None:
        """The holder's key is not its own any more; what it may do next."""
        pair = self.holding
        if pair is None:
            return
        pair.has_key = False
        number = len(self.pairs) - 1 - self.pairs.index(pair)
        if then == "release":
            self.release(number)
        elif then == "renew":
            self.renew(number)

    def wait_free(self) -> None:
        for side in self.sides:
            wait_until(
                lambda side=side: not self.server.command("EXISTS", side.key()), SOON, f"{side.key()} to be free"
            )

    # What is true at any time

    @invariant()
    def at_most_one_can_believe_and_be_right(self) -> None:
        assert sum(pair.has_key for pair in self.pairs) + self.foreign <= 1

    @invariant()
    def handles_say_what_is_known(self) -> None:
        for pair in self.pairs:
            for lease in pair.handles.values():
                assert (lease.valid, lease.lost) == (pair.alive, pair.lost)

    @invariant()
    def keys_are_those_of_the_leases(self) -> None:
        pair = self.holding
        for side in self.sides:
            value: bytes | None = self.server.command("GET", side.key())
            if self.foreign:
                assert value == b"their token"
            elif pair is None:
                assert value is None
            elif pair.handles:
                assert value is not None
                words = value.decode().removeprefix("tenure1:").split(" ")
                assert words[:2] == [pair.handles[side.kind].token, str(pair.handles[side.kind].fence)]

    @invariant()
    def no_entry_is_left(self) -> None:
        left = leftover_keys(self.server.admin, f"{self.namespace}:")
        assert not [key for key in left if key.endswith(b":entry")]
