"""All ways to hold, in lockstep: shared, places of a semaphore, several names, nested, detached, exported, asked for.

What the answers have to be is said beforehand by a plain record of who holds which name; after each step the server's
holders are compared with it.
"""

from __future__ import annotations

import gc
import warnings
from typing import TYPE_CHECKING, Any

import hypothesis.strategies as st
from hypothesis.stateful import precondition, rule

import tenure
from tenure.outcomes import worst
from tests.conformance.flavours import KINDS
from tests.harness.waiting import wait_until
from tests.machine.record import ONCE, PLACES, Pair, Record
from tests.machine.sides import CLIENTS, TTL, told

if TYPE_CHECKING:
    from concurrent.futures import Future

    from tests.conformance.flavours import AnyLease, Kind
    from tests.machine.sides import Side

SOON = 20
MOST_RUNS = 3
"""So often `once` is tried: it depends on nothing else, and would crowd out what does."""

clients = st.sampled_from(CLIENTS)
picks = st.sampled_from([0, 0, 0, 1, 2, 3])
"""Which lease, counted from the latest."""
names_of_locks = st.sampled_from([("1",), ("2",), ("1", "2"), ("2", "1", "2")])
infos = st.sampled_from(["halfway", {"step": 2}, None])


class Modes(Record):
    """What can happen to all this, in any order."""

    # Taking

    @rule(client=clients, names=names_of_locks, shared=st.booleans(), reentrant=st.booleans())
    def take(self, client: int, names: tuple[str, ...], shared: bool, reentrant: bool) -> None:
        handles: dict[Kind, AnyLease] = {}

        def take(side: Side) -> str:
            lock = side.locks[client].lock(*map(side.name, names), ttl=TTL, shared=shared, reentrant=reentrant)
            lease = lock.try_acquire()
            if lease is None:
                return "busy"
            handles[side.kind] = lease
            return "granted"

        mode, names = "shared" if shared else "exclusive", tuple(sorted(set(names)))
        outer = self.nested(client, names)
        if outer is None:
            expected = "granted" if self.free(names, mode) else "busy"
        else:
            fits = outer.names == names and outer.alive and (outer.mode, mode) != ("shared", "exclusive")
            expected = "granted" if reentrant and fits else tenure.AlreadyHeld
        assert self.both(take) == expected
        if outer is None and expected == "granted":
            self.granted(client, names, mode, handles)
        elif outer is not None and expected == "granted":
            assert all(handles[kind].raw is outer.handles[kind].raw for kind in KINDS)
            outer.depth += 1

    @rule(client=clients, names=names_of_locks)
    def share(self, client: int, names: tuple[str, ...]) -> None:
        self.take(client, names, shared=True, reentrant=False)

    @rule(client=clients, limit=st.sampled_from([2, 2, 2, 3]))
    def take_a_place(self, client: int, limit: int) -> None:
        handles: dict[Kind, AnyLease] = {}

        def take(side: Side) -> str:
            lease = side.locks[client].semaphore(side.name(PLACES), limit, ttl=TTL).try_acquire()
            if lease is None:
                return "busy"
            handles[side.kind] = lease
            return "granted"

        if not self.holders(PLACES):
            self.limit = limit
        expected: Any = "granted" if self.free((PLACES,), "semaphore") else "busy"
        if self.nested(client, (PLACES,)) is not None:
            expected = tenure.AlreadyHeld
        elif limit != self.limit:
            expected = tenure.ConfigError
        assert self.both(take) == expected
        if expected == "granted":
            self.granted(client, (PLACES,), "semaphore", handles)

    @precondition(lambda self: self.in_use())
    @rule(client=clients, place=st.booleans())
    def mistake_its_kind(self, client: int, place: bool) -> None:
        """A semaphore is taken as a lock, or a lock as a semaphore, while somebody uses it as what it is."""
        name = PLACES if place else "1"
        if not self.holders(name):
            return

        def take(side: Side) -> None:
            locks = side.locks[client]
            lock = locks.lock(side.name(name)) if place else locks.semaphore(side.name(name), 2)
            lock.try_acquire()

        nested = self.nested(client, (name,)) is not None
        assert self.both(take) is (tenure.AlreadyHeld if nested else tenure.NameConflict)

    def writers(self) -> list[Pair]:
        """Leases that somebody could wait for who wants to share."""
        alone = [p for p in self.pairs if p.alive and p.mode == "exclusive" and len(p.names) == 1 and not p.depth]
        return [pair for pair in alone if pair.has]

    @precondition(lambda self: self.writers())
    @rule()
    def hand_over_to_readers(self) -> None:
        writer = self.writers()[-1]
        (name,) = writer.names
        waiting: dict[Kind, list[Future[AnyLease]]] = {
            side.kind: [locks.queue(side.name(name), ttl=TTL, shared=True, wait=60) for locks in reversed(side.locks)]
            for side in self.sides
        }
        assert self.both(lambda side: writer.handles[side.kind].release()) is tenure.Released.RELEASED
        writer.states[name], writer.has = "released", set()
        for client in CLIENTS:
            handles: dict[Kind, AnyLease] = {kind: futures[client].result(SOON) for kind, futures in waiting.items()}
            self.granted(1 - client, (name,), "shared", handles, here=False)

    @precondition(lambda self: self.in_use())
    @rule(client=clients, names=names_of_locks, shared=st.booleans())
    def run(self, client: int, names: tuple[str, ...], shared: bool) -> None:
        def run(side: Side) -> str:
            return how(side.locks[client].run(*map(side.name, names), call=str, ttl=TTL, shared=shared))

        names = tuple(sorted(set(names)))
        free = self.free(names, "shared" if shared else "exclusive")
        nested = self.nested(client, names) is not None
        assert self.both(run) == (tenure.AlreadyHeld if nested else "ran" if free else "skipped")

    @precondition(lambda self: self.runs < MOST_RUNS)
    @rule(client=clients, at_least=st.sampled_from([0, 600]))
    def once(self, client: int, at_least: float) -> None:
        def once(side: Side) -> str:
            return how(side.locks[client].once(side.name(ONCE), str, at_least=at_least, ttl=TTL))

        assert self.both(once) == ("skipped" if self.ran and at_least else "ran")
        self.ran |= at_least > 0
        self.runs += 1

    # A lease's own verbs

    @precondition(lambda self: self.pairs)
    @rule(number=picks)
    def renew(self, number: int) -> None:
        pair = self.pick(number)
        expected = pair.refused()
        if expected is None:
            self.found_missing(pair)
            expected = pair.refused()
        assert self.both(lambda side: pair.handles[side.kind].renew()) == expected

    @precondition(lambda self: self.pairs)
    @rule(number=picks, info=infos)
    def set_info(self, number: int, info: Any) -> None:  # noqa: ANN401 - what users may pass
        pair = self.pick(number)
        expected = pair.refused()
        if expected is None:
            pair.seen.update(dict.fromkeys(pair.has, info))
            self.found_missing(pair)
            expected = pair.refused()
        assert self.both(lambda side: pair.handles[side.kind].set_info(info)) == expected
        if expected is None:
            pair.info = info

    @precondition(lambda self: self.pairs)
    @rule(number=picks)
    def release(self, number: int) -> None:
        self.given_back(self.pick(number))

    def given_back(self, pair: Pair) -> None:
        lossy, self.drop_replies = self.drop_replies, self.drop_replies and not pair.depth
        answers: list[tenure.Released] = []
        for name in reversed(pair.names if not pair.depth else ()):
            state = pair.states[name]
            if state != "held":
                answers.append(tenure.Released.TAKEN if state == "taken" else tenure.Released.GONE)
            elif name in pair.has or lossy:
                # After a lost reply nobody can tell whether the key was still there the first time.
                answers.append(tenure.Released.RELEASED)
                pair.states[name] = "released"
                lossy = False
            else:
                pair.states[name] = self.missing(pair, name, releasing=True)
                taken = pair.states[name] == "taken"
                answers.append(tenure.Released.TAKEN if taken else tenure.Released.GONE)
        expected = tenure.Released.RELEASED if pair.depth else worst(answers)
        if pair.depth:
            pair.depth -= 1
        else:
            pair.has = {name for name in pair.has if pair.states[name] != "released"}
        assert self.both(lambda side: pair.handles[side.kind].release()) is expected

    @precondition(lambda self: self.pairs)
    @rule(number=picks)
    def detach(self, number: int) -> None:
        pair = self.pick(number)
        assert self.both(lambda side: pair.handles[side.kind].detach()) is None
        pair.here = False

    @precondition(lambda self: self.pairs)
    @rule(number=picks, client=clients)
    def export_and_adopt(self, number: int, client: int) -> None:
        """Handed to a client that has none of its names; handed to a second one as well, who comes too late."""
        pair = self.pick(number)
        if pair.has != set(pair.names) or not pair.alive or pair.depth:
            return
        pair.states, here = dict.fromkeys(pair.names, "moved"), pair.here
        if self.nested(client, pair.names) is not None:
            pair.states, pair.here = dict.fromkeys(pair.names, "held"), here
            return
        texts: dict[Kind, str] = {side.kind: pair.handles[side.kind].export() for side in self.sides}
        handles: dict[Kind, AnyLease] = {}

        def adopt(side: Side) -> None:
            handles[side.kind] = side.locks[client].adopt(texts[side.kind])

        assert self.both(adopt) is None
        for kind, lease in handles.items():
            assert lease.fences == pair.handles[kind].fences
        again = "taken" if pair.mode == "exclusive" else "deleted"
        assert self.both(adopt) == (tenure.LeaseLost, again)
        pair.has = set()
        self.pairs.append(
            Pair(client, pair.names, pair.mode, handles, dict.fromkeys(pair.names, "held"), set(pair.names))
        )

    @precondition(lambda self: any(pair.alive and not pair.depth for pair in self.pairs))
    @rule(number=picks)
    def drop_handle(self, number: int) -> None:
        """A lease that nobody can use any more is given back, with a warning for each name."""
        alive = [pair for pair in self.pairs if pair.alive and not pair.depth]
        pair = alive[-1 - number % len(alive)]
        self.pairs.remove(pair)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", ResourceWarning)
            pair.handles.clear()
            gc.collect()
            expected = len(KINDS) * len(pair.names)
            wait_until(lambda: len(told(caught)) == expected, SOON, f"{expected} warnings, not {told(caught)}")
        wait_until(self.as_the_server_says, SOON, "the dropped lease to be given back")

    # What others do

    @precondition(lambda self: self.in_use())
    @rule(client=clients, number=picks)
    def ask(self, client: int, number: int) -> None:
        name = self.pick_name(number)

        def ask(side: Side) -> str:
            return "nobody" if side.locks[client].ask(side.name(name)) is None else "told"

        holders = self.holders(name)
        assert self.both(ask) == "told"
        for pair in holders:
            if pair.states[name] == "held":
                assert self.both(lambda side, pair=pair: pair.handles[side.kind].wait_asked(SOON)) is True
                pair.asked = True

    @precondition(lambda self: self.in_use())
    @rule(number=picks)
    def delete_key(self, number: int) -> None:
        name = self.pick_name(number)
        self.both(lambda side: self.server.command("DEL", side.key(name)))
        for pair in self.holders(name):
            pair.has.discard(name)

    @precondition(lambda self: self.in_use())
    @rule(number=picks, force=st.booleans())
    def break_lock(self, number: int, force: bool) -> None:
        name = self.pick_name(number)
        holders = self.holders(name)
        # A second request of the same kind tells what the first one has left.
        self.drop_replies = False
        assert self.both(lambda side: side.locks[0].break_lock(side.name(name), force=force) is not None) is True
        for pair in holders:
            pair.has.discard(name)
            if pair.states[name] == "held":
                assert self.both(lambda side, pair=pair: pair.handles[side.kind].wait_lost(SOON)) is True
                pair.states[name] = "revoked"
                # The holder is told, and the lock is free once it has let go.
                for _ in range(pair.depth + 1):
                    self.given_back(pair)
        wait_until(self.as_the_server_says, SOON, "the broken lock to be let go")


def how(done: object) -> str:
    """Whether something ran."""
    return "ran" if isinstance(done, tenure.Ran) else "skipped"
