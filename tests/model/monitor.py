"""What is checked at every step of a run: each check is a metric with a name, and mutants are caught by that name.

overlap     leases valid at once, in true time, that exclude each other; or one valid that the server does not know
fence       a grant whose fence does not rise (or differs, among those who share), or a lease with another one
again       a retried request that changed the fence of a lease or the place of a waiter, or was refused what it has
order       somebody was served while one who came earlier was waiting, alive and reachable
orphan      seconds for which a living waiter waited while no living lease stood in its way
left        a key, queue entry or hash entry at the end that no living lease owns
token       a request to acquire with a token for which a release or withdraw was sent; a token that holds and waits
foreign     a request that changed another token's lease
revive      a renewal that created a lease, handed it on or kept a revoked one; a lease that was over and came back
told        time passed over a lease whose deadline had come, or which was revoked, and its holder did not know
lost        a lease ended by its deadline although it could have been kept
cost        requests and messages of a hand-over, or the work of one script call
validity    a lease handed out with less than a third of its ttl left, or a turn given up that could be kept
blocked     a caller that never came back, or came back with an error without a reason; callers in a circle
partial     a request for several locks that got some of them
twice       a lease that was handed over and goes on under both tokens, or both handles
apart       two grants of `once` that are too close, or nobody allowed although nobody was
early       a holder was asked before the time
late        a caller waited longer than the scenario allows
heard       a caller was told that a holder had heard it, and none had
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tenure.core.lease_state import State
from tenure.core.ticket import Phase
from tenure.errors import NotAcquired
from tests.model.monitor_lock import ENDING, ROUNDING, LockMonitor, room, tokens_of
from tests.model.sim import PREFIX, Send, Sleep

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tenure.core.lease_state import Hold
    from tenure.core.requests import Request
    from tenure.core.ticket import Ticket
    from tenure.errors import TenureError
    from tests.model.client import Client
    from tests.model.monitor_lock import Owner
    from tests.model.world import World


class Monitor:
    """The checks of one run; `violations` maps a metric to what was seen first."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.violations: dict[str, str] = {}
        self.locks = {keys.main: LockMonitor(self, keys) for keys in world.locks.values()}
        self.turns: dict[bytes, tuple[str, int, int]] = {}
        """Client, turn and place of each token: the tokens of one acquisition share its place."""
        self.started: dict[str, int] = {}
        """Since when callers want to hold, in true time."""
        self.heirs: dict[bytes, bytes] = {}
        """Token of a lease that was taken over -> the one that it was granted to."""
        self.heard: set[tuple[str, int]] = set()
        """Turns of which a holder was told."""
        self.ended: set[bytes] = set()
        self.left_to_ttl: set[bytes] = set()
        """Tokens that could not be undone: the server was away."""
        self.given: set[bytes] = set()
        """Tokens of leases that were written down by somebody who has let go of them."""
        self.last_tries: set[tuple[str, int]] = set()
        self.by_reply: set[bytes] = set()
        """Tokens whose own request was granted, perhaps after the death of its sender."""
        self.grants = 0
        self.leases = 0
        self.requests = 0
        self.messages = 0
        self.deaf = any(kind == "lose message" for kind, _ in world.scenario.faults)
        self.over: set[bytes] = set()
        """Tokens of leases that are over for their holders."""

    def violate(self, metric: str, text: str) -> None:
        """Notes what was seen."""
        self.violations.setdefault(metric, text)

    # --- Who is who ----------------------------------------------------------------------------------------------

    def owners(self) -> list[Owner]:
        """All who hold any lock on the server now."""
        return [owner for lock in self.locks.values() for owner in lock.owners().values()]

    def client_of(self, token: bytes) -> Client | None:
        """The client that made a token; none for tokens that a scenario put there."""
        return next((c for c in self.world.clients if c.name.encode() == token[:1]), None)

    def lives(self, token: bytes) -> bool:
        """Whether the client that made a token can still do anything."""
        client = self.client_of(token)
        return client is not None and client.alive and not client.cut_off

    def turn_of(self, token: bytes) -> object:
        """What shares a place with the token."""
        return self.turns.get(token, token)

    def root(self, token: bytes) -> bytes:
        """The token to which a lease was granted, whoever has taken it over since."""
        return self.heirs.get(token, token)

    def waiting(self, token: bytes) -> bool:
        """Whether the token's client is there, reachable, and wants it."""
        client = self.client_of(token)
        if client is None or not client.alive or client.cut_off or not client.subscribed:
            return False
        ticket = client.tickets.get(token)
        return ticket is not None and ticket.phase is Phase.WAITING

    def listens(self, token: bytes) -> bool:
        """Whether the server has a subscriber for the token's client."""
        client = self.client_of(token)
        return client is not None and bool(self.world.server.listeners.get((False, PREFIX + client.name.encode())))

    def waiters(self) -> Iterator[Ticket]:
        """Whoever lives and knows that it waits."""
        for client in self.world.clients:
            if client.alive and not client.cut_off and not client.paused:
                for ticket in client.tickets.values():
                    if ticket.phase is Phase.WAITING and ticket.server_ms is not None:
                        yield ticket

    def valid(self, client: Client, hold: Hold) -> bool:
        """Whether the client may believe that it holds.

        One that goes on under a lease which it has written down looks after whoever takes it over, and nothing else.
        """
        if hold.token in client.lent and hold.token in self.heirs.values():
            return False
        return client.alive and hold.state is State.HELD and client.now() < hold.deadline

    def rightful(self, owner: Owner) -> bool:
        """Whether somebody living holds this lease, or is about to learn of it."""
        client = self.client_of(owner.token)
        if client is None:
            # A dead holder that the scenario began with.
            return True
        gone = client.gone_at
        if gone is not None:
            # It died as a holder: nobody can know before its lease has ended.
            dies = self.world.server.now - (self.world.true_us - gone) // 1000
            return owner.since <= dies or owner.token in self.by_reply
        hold = client.holds.get(owner.token)
        if hold is not None:
            return hold.state is not State.LOST
        main = client.task("main")
        # The reply to its request, or its next try, is on its way.
        return main is not None and owner.token in main.tokens and isinstance(main.op, Send | Sleep)

    # --- Steps ---------------------------------------------------------------------------------------------------

    def begins(self, client: Client) -> None:
        """A caller wants to hold from now on."""
        self.started[client.name] = self.world.true_us

    def sent(self, client: Client, request: Request) -> None:
        """A request leaves a client."""
        self.requests += 1
        name, tokens = request.script.name, tokens_of(request)
        if name in ENDING:
            self.ended.update(tokens)
        elif name == "several" or (name in ("acquire", "once") and request.args[5] == 0):
            self.last_tries.update(self.turns[token][:2] for token in tokens)
        # The token that is handed over has ended for the one who had it, and for nobody else.
        taking = tokens - {request.args[1]} if name == "adopt" else tokens
        if name in ("acquire", "once", "several", "adopt") and not self.ended.isdisjoint(taking):
            self.violate("token", f"{client.name} acquires with a token that was given back")

    def before(self, request: Request) -> None:
        """A script is about to run."""
        for lock in self.locks.values():
            lock.before(request)

    def after(self, request: Request, raw: list[Any]) -> None:
        """A script has run."""
        name = request.script.name
        for lock in self.locks.values():
            lock.after(request, raw)
        if self._last_of(request, raw) in self._queued():
            self.violate("left", f"after its last {name} a token is queued")
        if name == "renew":
            self._renewed(request, raw)
        if name == "several":
            wanted, before = (
                set(tokens_of(request)),
                {token for lock in self.locks.values() for token in lock.held_before()},
            )
            got = wanted & {owner.token for owner in self.owners()}
            if got != wanted and (got - before or raw[2][0] == b"granted"):
                self.violate("partial", "a request for several locks got some of them")
            elif got == wanted and raw[2][0] not in (b"granted", b"late"):
                self.violate("again", "a retry for several locks was refused what it has")

    def _queued(self) -> set[bytes]:
        return {token for lock in self.locks.values() for token in self.world.server.queue(lock.keys.queue)}

    @staticmethod
    def _last_of(request: Request, raw: list[Any]) -> object:
        """The token that may not be in the queue after this request; None when there is no such."""
        if request.script.name == "withdraw":
            return request.args[0]
        last_try = request.script.name in ("acquire", "once") and request.args[5] == 0
        return request.args[2] if last_try and raw[2][0] not in (b"late", b"again") else None

    def _renewed(self, request: Request, raw: list[Any]) -> None:
        owners = {owner.token: owner for owner in self.owners()}
        for number, answer in enumerate(raw[2:]):
            token = request.args[2 + 3 * number]
            assert isinstance(token, bytes)
            if answer != b"renewed":
                continue
            if token not in owners or owners[token].revoked:
                self.violate("revive", "a lease was renewed that is gone or revoked")
            client = self.client_of(token)
            hold = client.holds.get(token) if client else None
            if client is not None and hold is not None and client.now() > hold.deadline + ROUNDING:
                self.violate("revive", f"{client.name}'s renewal took effect after its deadline")

    def told(self, text: bytes, request: Request | None) -> None:
        """The server has sent a message."""
        self.messages += 1
        if text.startswith(b"asked") and request is not None:
            for token in tokens_of(request) & self.turns.keys():
                self.heard.add(self.turns[token][:2])
                self._asked_by(token)

    def _asked_by(self, token: bytes) -> None:
        client = self.client_of(token)
        since = None if client is None else self.started.get(client.name)
        if client is not None and since is not None and client.spec.ask_after is not None:
            early = client.spec.ask_after - (self.world.true_us - since) / 1e6
            if early > 0 and client.spec.rate == 1:
                self.violate("early", f"{client.name} asked {early:.3f} s before its time")

    def written_down(self, hold: Hold, *, goes_on: bool) -> None:
        """A lease is for whoever takes it over; if nobody does, its ttl ends it."""
        (self.left_to_ttl if goes_on else self.given).add(hold.token)

    def awaits_heir(self, token: object) -> bool:
        """Whether the lease belongs to whoever has what was written down, and nobody has taken it over yet."""
        return token in self.given and token not in self.heirs.values()

    def built(self, client: Client, holds: Sequence[Hold]) -> None:
        """A caller gets its lease."""
        self.leases += len(holds)
        self.started.pop(client.name, None)
        for hold in holds:
            if hold.token in self.ended:
                self.violate("token", f"{client.name} holds with a token that was given back")
            if hold.token in self.heirs:
                # What was taken over goes on for as long as its reply says; nobody gives it back for being short.
                continue
            if len(holds) > 1 and not self.valid(client, hold):
                self.violate("partial", f"{client.name} got a lease of several locks without one of them")
            if hold.deadline - client.now() < hold.terms.ttl / 3:
                self.violate("validity", f"{client.name} got a lease that is nearly over")

    def came_back(self, client: Client, error: TenureError | None) -> None:
        """A caller came back without a lease."""
        self.started.pop(client.name, None)
        if not isinstance(error, NotAcquired):
            return
        turn = (client.name, client.turn)
        if turn not in self.last_tries:
            self.violate("blocked", f"{client.name} gave up without a last try")
        if any(self.client_of(o.token) is client and o.token not in self.ended for o in self.owners()):
            self.violate("blocked", f"{client.name} had won, and was told that it had not")
        # Of several locks the one that it was refused for counts, and the last of its tries.
        sure = not self.world.scenario.budget and len(client.spec.names) == 1
        if (error.heard and turn not in self.heard) or (turn in self.heard and not error.heard and sure):
            self.violate("heard", f"{client.name} was told {error.heard}")

    def lost(self, client: Client, hold: Hold, reason: str) -> None:
        """A client has found out that its lease is over."""
        heirs = {owner.token for owner in self.owners() if self.heirs.get(owner.token) == self.root(hold.token)}
        if heirs and reason != "expired":
            self.violate("lost", f"{client.name}'s lease was called {reason} when somebody took it over")
        if reason == "expired" and self.world.scenario.keeps_lease:
            self.violate("lost", f"{client.name}'s lease ended by its deadline")

    def released(self, client: Client, hold: Hold, how: str) -> None:
        """A release was answered; while the lease was valid nobody but its holder may have ended it."""
        twice = any(kind == "double request" for kind, _ in self.world.scenario.faults)
        moved = hold.token in self.heirs.values()
        if (
            how != "released"
            and not moved
            and client.now() < hold.deadline
            and not (self.world.forgot or self.world.excused or twice)
        ):
            self.violate("overlap", f"{client.name}'s valid lease was {how} at its release")

    def passing(self, until: int) -> None:
        """Time passes: does somebody wait while nobody holds, or believe to hold without right?"""
        self._check_told()
        for lock in self.locks.values():
            lock.passing(until)
        most = self.world.scenario.max_wait
        for client in self.world.clients:
            since = self.started.get(client.name)
            if most is not None and client.alive and since is not None and until - since > most * 1e6:
                self.violate("late", f"{client.name} has waited for {(until - since) / 1e6:.3f} s")
        if len(self.locks) > 1:
            self._check_circle()

    def _check_circle(self) -> None:
        """Does somebody wait for a lock whose holder waits for one of theirs?"""
        waits: dict[str, set[str]] = {}
        for ticket in self.waiters():
            for owner in self.locks[ticket.keys.main].owners().values():
                holder = self.client_of(owner.token)
                if holder is not None and holder.alive and owner.token in holder.holds:
                    waits.setdefault(ticket.token[:1].decode(), set()).add(holder.name)
        for _ in self.world.clients:
            for name, after in waits.items():
                waits[name] = after.union(*(waits.get(other, set()) for other in after))
        if any(name in after for name, after in waits.items()):
            self.violate("blocked", f"callers wait for each other: {sorted(waits)}")

    def _check_told(self) -> None:
        owners = {owner.token: owner for owner in self.owners()}
        for client in self.world.clients:
            if not client.alive or client.paused or client.cut_off:
                continue
            for hold in client.holds.values():
                if hold.state is not State.HELD:
                    continue
                if client.now() >= hold.deadline:
                    self.violate("told", f"{client.name}'s deadline has come and nothing has happened")
                told = any(p.kind == "message" and p.client is client for p in self.world.packets)
                if hold.token in owners and owners[hold.token].revoked and not (told or self.deaf):
                    self.violate("told", f"{client.name}'s lease was revoked, and it was not told")

    def step(self) -> None:
        """After every move."""
        for client in self.world.clients:
            for hold in client.holds.values():
                if hold.state is not State.HELD or client.now() >= hold.deadline:
                    self.over.add(hold.token)
                elif hold.token in self.over:
                    self.violate("revive", f"{client.name}'s lease was over and came back")
        if not self.world.forgot:
            for lock in self.locks.values():
                self._step_of(lock)

    def _step_of(self, lock: LockMonitor) -> None:
        valid = [
            (client, hold)
            for client in self.world.clients
            for hold in client.holds.values()
            if hold.keys.main == lock.keys.main and self.valid(client, hold)
        ]
        if not valid:
            return
        owners = lock.owners()
        # One lease under the token that was written down and under the one that took over is still one.
        leases = {self.root(hold.token): hold.terms.word.encode() for _, hold in valid}
        modes = list(leases.values())
        if any(not room(modes[:i] + modes[i + 1 :], mode) for i, mode in enumerate(modes)):
            self.violate("overlap", f"{' and '.join(client.name for client, _ in valid)} hold at once")
        if len(leases) < len(valid):
            self.violate("twice", "a lease and the one that took it over are both valid")
        for client, hold in valid:
            owner = owners.get(hold.token)
            if owner is None:
                self.violate("overlap", f"{client.name} holds, and the server does not know")
            elif owner.fence != hold.fence:
                self.violate("fence", f"{client.name} has fence {hold.fence}, granted was {owner.fence}")

    # --- The end -------------------------------------------------------------------------------------------------

    def end(self) -> None:
        """Everything has run dry."""
        world, scenario = self.world, self.world.scenario
        for client in world.clients:
            if client.alive and not client.cut_off and client.outcome not in ("done", "cancelled", *scenario.errors):
                self.violate("blocked", f"{client.name} ended as {client.outcome}")
        for lock in self.locks.values():
            lock.end()
        if scenario.cost is not None and (self.requests, self.messages) != scenario.cost:
            self.violate("cost", f"{self.requests} requests and {self.messages} messages instead of {scenario.cost}")
        if scenario.keeps_turn and self.grants > self.leases:
            self.violate("validity", "a turn was given up that could have been kept")
