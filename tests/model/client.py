"""One client of the explorer: its clock, its callers, and a hub as plain as it can be.

The hub's part (polls, renewals, deadlines, messages) is what the runtime has to do, written down once more without
threads.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tenure.core import acquire, adopt, poll, release, renew, schedule, several
from tenure.core.keys import Keys
from tenure.core.lease_state import Hold, State
from tenure.core.scripts import TOKEN_WIDTH
from tenure.core.ticket import Phase, Ticket
from tenure.options import Terms
from tests.model.sim import PREFIX, START, Signal, Task, Wait

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from tenure.errors import LossReason
    from tests.model.sim import SimPort, Spec
    from tests.model.world import World

DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


@dataclass(eq=False)
class Client:
    """One process: its clock, its tasks, what it waits for and what it holds."""

    world: World
    name: str
    spec: Spec
    port: SimPort = field(init=False)
    tasks: list[Task] = field(default_factory=list[Task])
    tickets: dict[bytes, Ticket] = field(default_factory=dict[bytes, Ticket])
    holds: dict[bytes, Hold] = field(default_factory=dict[bytes, Hold])
    epoch: int = 0
    subscribed: bool = False
    alive: bool = True
    paused: bool = False
    wakes_at: int = 0
    """The true instant of its waking up; 0: at any time."""
    cut_off: bool = False
    """Behind a partition: nothing of it arrives, nothing reaches it."""
    gone_at: int | None = None
    """True microseconds of its death or partition."""
    serial: int = 0
    turn: int = 0
    places: int = 0
    """How often it took a place of its own in a queue, within several locks."""
    asked: Signal = field(default_factory=Signal)
    """Somebody has asked for what it holds."""
    lent: set[bytes] = field(default_factory=set[bytes])
    """Tokens that were written down for others, while it goes on until one of them takes over."""
    handed: dict[bytes, int] = field(default_factory=dict[bytes, int])
    """Tokens that were written down for others, and let go of, with their fences."""
    outcome: str = "running"
    _now: tuple[int, float] = (-1, 0.0)

    def __post_init__(self) -> None:
        self.port = self.world.scenario.port(self)

    # --- Time ----------------------------------------------------------------------------------------------------

    def now(self) -> float:
        """Its local clock."""
        true_us = self.world.true_us
        if self._now[0] != true_us:
            self._now = (true_us, self.local(true_us))
        return self._now[1]

    def local(self, true_us: int) -> float:
        """Its local clock at a true instant; whole nanoseconds, so that a timer set for an instant fires at it."""
        return round(START + true_us * self.spec.rate / 1e6, 9)

    def true(self, local: float) -> int:
        """The first true microsecond at which its clock shows `local` or later."""
        guess = int((local - START) * 1e6 / self.spec.rate) - 1
        while self.local(guess) < local:
            guess += 1
        return guess

    # --- Its work ------------------------------------------------------------------------------------------------

    def terms(self) -> Terms:
        """The terms of all its leases."""
        spec = self.spec
        return Terms(
            spec.ttl, spec.grace, spec.drift, renew=spec.renew, max_hold=None, warn_after=None,
            mode=spec.mode, limit=spec.limit,
        )  # fmt: skip

    def keys(self) -> list[Keys]:
        """The locks that it takes, in the order in which it takes them."""
        return sorted((self.world.locks[name] for name in self.spec.names), key=lambda keys: keys.main)

    def new_token(self) -> bytes:
        """A token that tells its client and its number."""
        self.serial += 1
        token = f"{self.name}{DIGITS[self.serial]}".ljust(TOKEN_WIDTH, "0").encode()
        self.world.monitor.turns[token] = (self.name, self.turn, self.places)
        return token

    def build(self, holds: Sequence[Hold]) -> list[Hold]:
        """The grants become a lease."""
        self.asked = Signal()
        for hold in holds:
            if self.spec.yields:
                # Somebody wants to know of those who ask.
                hold.announce_at = hold.granted_at
            self.holds[hold.token] = hold
        self.world.monitor.built(self, holds)
        return list(holds)

    async def take(self) -> list[Hold]:
        """Acquires as the facade does."""
        self.turn += 1
        self.world.monitor.begins(self)
        spec, terms = self.spec, self.terms()
        wishes = [
            acquire.Wish(keys, terms, "{}", spec.wait, f"7{self.name}", spec.ask_after, spec.apart)
            for keys in self.keys()
        ]
        if len(wishes) > 1:
            return await several.acquire_all(self.port, wishes, self.new_token, self.build)
        return await acquire.acquire(self.port, wishes[0], self.new_token, lambda hold: self.build([hold]))

    async def work(self) -> None:
        """Holds, to the end or until somebody asks."""
        if self.spec.yields:
            await Wait(self.asked, self.now() + self.spec.hold)
        elif self.spec.hold:
            await self.port.sleep(self.spec.hold)

    async def shorten(self, holds: Sequence[Hold], ttl: float) -> None:
        """Asks for less, as `lease.renew(ttl)` does."""
        terms = renew.shorter(holds[0].terms, ttl, holds[0].terms.grace)
        await renew.renew(self.port, holds, give_up=self.now() + self.port.server_timeout, terms=terms)

    async def give(self, holds: Sequence[Hold]) -> None:
        """Releases as the facade does."""
        left = list(holds)
        try:
            while left:
                hold = left.pop()
                if hold.begin_release(self.now()):
                    how = await release.release(self.port, hold)
                    self.world.monitor.released(self, hold, how)
                    if how == "moved":
                        hold.move(self.now())
                    hold.end_release(self.now())
                self.holds.pop(hold.token, None)
        finally:
            # Interrupted: the handle is dropped, and the hub gives back what is still held.
            for hold in left:
                self.holds.pop(hold.token, None)
                if hold.begin_release(self.now()):
                    self.port.undo(hold.keys, hold.token)

    def write_down(self, holds: Sequence[Hold], *, goes_on: bool = False) -> None:
        """Exports the lease; its own handle ends, unless it `goes_on` until somebody has taken over."""
        self.world.exported = adopt.parse(adopt.exported("ns", holds, self.port.server_time.latest).text())
        self.world.posted.set()
        for hold in holds:
            self.world.monitor.written_down(hold, goes_on=goes_on)
            if goes_on:
                self.lent.add(hold.token)
            elif hold.move(self.now()):
                self.handed[hold.token] = hold.fence
                self.holds.pop(hold.token, None)

    async def take_over(self) -> list[Hold]:
        """Adopts the lease that was exported."""
        exported = self.world.exported
        assert exported is not None
        self.turn += 1
        holds = await adopt.adopt(self.port, exported, self.terms(), "{}", f"7{self.name}", self.new_token, list)
        return self.build(holds)

    async def main(self) -> None:
        """Takes the lock, works, gives it back."""
        if self.spec.start:
            await self.port.sleep(self.spec.start)
        for turn in range(self.spec.turns):
            if turn and self.spec.pause:
                await self.port.sleep(self.spec.pause)
            holds = await self.take()
            try:
                await self.work()
            finally:
                await self.give(holds)

    def start(self) -> None:
        """Starts its program."""
        if self.spec.subscribed:
            self.subscribe()
        if self.spec.knows_server_time:
            self.port.server_time.learn(self.now(), self.world.server.now)
        self.spawn("main", self.spec.program(self) if self.spec.program else self.main())

    def subscribe(self) -> None:
        """The inbox is there; whoever waits is asked for, since messages may have been missed."""
        self.subscribed = True
        self.world.server.subscribe(PREFIX + self.name.encode())
        self.ask_for_all()

    def unsubscribe(self) -> None:
        """The inbox connection is gone, with all that was on it."""
        if self.subscribed and self.world.server.listeners.get((False, PREFIX + self.name.encode())):
            self.world.server.unsubscribe(PREFIX + self.name.encode())
        self.subscribed = False
        self.epoch += 1
        self.world.packets = [p for p in self.world.packets if not (p.kind == "message" and p.client is self)]

    def ask_for_all(self) -> None:
        """Lets the next poll of every waiter be now."""
        for ticket in self.tickets.values():
            if ticket.phase is Phase.WAITING and ticket.server_ms is not None:
                ticket.next_poll = self.now()

    def wake_up(self) -> None:
        """The pause is over."""
        self.paused = False

    # --- Its hub -------------------------------------------------------------------------------------------------

    def spawn(self, name: str, coroutine: Coroutine[Any, Any, object]) -> None:
        """Runs a coroutine up to its first suspension."""
        if self.world.closed:
            coroutine.close()
            return
        task = Task(name, coroutine)
        self.tasks.append(task)
        self.world.resume(self, task, None)

    def task(self, name: str) -> Task | None:
        """The running task of that name."""
        return next((task for task in self.tasks if task.name == name), None)

    def due_polls(self) -> tuple[list[Ticket], float | None]:
        """Whom to ask for now, and when next."""
        if not self.tickets:
            return [], None
        ready, later = poll.due(self.tickets.values(), self.now())
        return ([], later) if self.task("poll") else (ready, later)

    def due_holds(self) -> schedule.Due:
        """What its leases need now, and when next."""
        if not self.holds:
            return schedule.Due()
        return schedule.due(self.holds.values(), self.now())

    def poll(self) -> None:
        """Asks for all waiters that are due."""
        self.spawn("poll", poll.poll(self.port, self.due_polls()[0]))

    def renew(self) -> None:
        """Renews all leases that are due."""
        holds = self.due_holds().renew
        on_their_way = {token for task in self.tasks if task.name == "renew" for token in task.tokens}
        if not on_their_way.isdisjoint(hold.token for hold in holds):
            self.world.monitor.violate("cost", "two renewals of a lease at once")
        self.spawn("renew", self._renew(holds))

    async def _renew(self, holds: list[Hold]) -> None:
        for hold, outcome in zip(holds, await renew.renew_all(self.port, holds) or [], strict=False):
            self.ended(hold, outcome)

    def announce(self) -> None:
        """Tells the server the inbox of leases that were granted before there was one."""
        holds = self.due_holds().announce
        for hold in holds:
            hold.reachable = True
        self.spawn("announce", self._announce(holds))

    async def _announce(self, holds: list[Hold]) -> None:
        for hold, outcome in zip(holds, await renew.announce(self.port, holds), strict=True):
            self.ended(hold, outcome)

    def ended(self, hold: Hold, outcome: str) -> None:
        """What a renewal, or an announcement, has found out about a lease."""
        if outcome == "moved":
            hold.move(self.now())
        elif outcome in renew.LOSSES:
            self.lose(hold, renew.LOSSES[outcome])

    def lose(self, hold: Hold, reason: LossReason) -> None:
        """A lease ended early: told once, and undone where its key may still be there."""
        if hold.lose(reason, self.now()):
            self.world.monitor.lost(self, hold, reason)
            if reason in ("expired", "revoked"):
                self.port.undo(hold.keys, hold.token)

    def expire(self) -> None:
        """Deadlines have come."""
        for hold in self.due_holds().expired:
            self.lose(hold, "expired")

    def message(self, text: bytes) -> None:
        """A message has arrived in the inbox."""
        words = text.split(b" ")
        token = words[1]
        hold, ticket = self.holds.get(token), self.tickets.get(token)
        if words[0] == b"revoked":
            if hold is not None:
                self.lose(hold, "revoked")
        elif words[0] == b"asked":
            if hold is not None:
                self.asked.set()
        elif not self.wanted(words, ticket, hold):
            self.port.undo(Keys("", words[5]), token)

    def wanted(self, words: list[bytes], ticket: Ticket | None, hold: Hold | None) -> bool:
        """Whether a grant by message has a taker here."""
        if ticket is not None:
            return ticket.offered(int(words[2]) / 1000, int(words[3]), self.now(), self.epoch)
        if hold is None:
            return self.handed.get(words[1]) == int(words[3])
        return hold.state is not State.LOST
