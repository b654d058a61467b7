"""Random sequences as clients would make them: a token for each lease, which asks again, renews and gives back."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from tests.lua.steps import UNLIMITED, Break, Call, Listen, Renew, Tick
from tests.lua.virtual import token, waiter

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.lua.steps import Pair

    Step = Callable[[Pair], None]

INBOXES = (b"s0", b"p0", b"s1")
RECENT = 9
"""A client acts on one of so many last tokens: those who wait or hold now, most of the time."""


class Client(NamedTuple):
    """Who once asked for a lock, and how."""

    lock: int
    who: bytes
    flags: bytes
    ttl: int
    grace: int

    def asks(self, life: int, place: bytes = b"", ask: bytes = b"") -> tuple[bytes | str | int, ...]:
        """Its words of an acquire."""
        return waiter(self.who, ttl=self.ttl, grace=self.grace, life=life, place=place, flags=self.flags, ask=ask)


@dataclass
class Walker:
    """Makes one step after another; the same seed makes the same walk."""

    modes: tuple[bytes, ...]
    rng: random.Random
    serial: int = 0
    front: int = 1000
    recent: list[Client] = field(default_factory=list[Client])

    def newcomer(self, modes: tuple[bytes, ...] = ()) -> Client:
        """Somebody with a new token."""
        rng = self.rng
        self.serial += 1
        tail = b"" if rng.random() < 0.1 else b"@" + rng.choice((*INBOXES, b"s0.7f3a"))
        flags = rng.choice(modes or self.modes) + tail
        lock = int(rng.random() < 0.12)
        client = Client(lock, token(self.serial), flags, rng.choice((50, 1000, 1000, 6000)), rng.choice((0, 20)))
        self.recent = [*self.recent[1 - RECENT :], client]
        return client

    def somebody(self) -> Client:
        """One of the last who came."""
        return self.rng.choice(self.recent) if self.recent else self.newcomer()

    def place(self) -> bytes:
        """A place that a newcomer had under another token: now and then one in front of all."""
        self.front -= 1
        return b"%d" % self.front if self.rng.random() < 0.15 else b""

    def step(self) -> Step:
        """The next step."""
        kinds = {
            self.takes: 28, self.polls: 14, self.tries: 8, self.ends: 16, self.renews: 8, self.ticks: 12,
            self.listens: 4, self.breaks: 1, self.adopts: 3, self.once: 3, self.several: 2, self.tells: 3,
        }  # fmt: skip
        return self.rng.choices(list(kinds), list(kinds.values()))[0]()

    def takes(self) -> Step:
        """Somebody comes and is ready to wait."""
        client = self.newcomer()
        return Call(
            "acquire", (client.lock,), client.asks(self.rng.choice((40, 15_000, 15_000)), self.place()), UNLIMITED
        )

    def polls(self) -> Step:
        """Somebody asks again."""
        client = self.somebody()
        return Call("acquire", (client.lock,), client.asks(15_000, ask=self.rng.choice((b"", b"1"))), UNLIMITED)

    def tries(self) -> Step:
        """A try without waiting: somebody's only one, or the last one of a waiter."""
        if self.rng.random() < 0.5:
            client = self.somebody()
            return Call("acquire", (client.lock,), client.asks(0), UNLIMITED)
        client = self.newcomer()
        return Call("acquire", (client.lock,), client.asks(0, self.place()), UNLIMITED)

    def ends(self) -> Step:
        """Somebody gives back, or gives up."""
        client = self.somebody()
        return Call(self.rng.choice(("release", "release", "withdraw")), (client.lock,), (client.who,))

    def renews(self) -> Step:
        """Somebody goes on holding."""
        client = self.somebody()
        lease = ((client.lock, client.who, self.rng.choice((50, 1000, 5000)), client.grace),)
        return Renew(lease, ()) if client.flags[:1] == b"x" else Renew((), lease)

    def ticks(self) -> Step:
        """Time passes: a little, or just up to an end, or just beyond it."""
        if self.rng.random() < 0.5:
            return Tick(self.rng.choice((1, 1000, 30_000, 700_000)))
        return Tick(self.rng.choice((0, 999, 1000)), self.rng.randrange(3))

    def listens(self) -> Step:
        """An inbox comes or goes."""
        return Listen(self.rng.choice(INBOXES), on=self.rng.random() < 0.6)

    def breaks(self) -> Step:
        """An operator."""
        fence = self.rng.choice(("any", "newest", "first", "wrong"))
        return Break(self.somebody().lock, fence, force=self.rng.random() < 0.5)

    def adopts(self) -> Step:
        """Somebody's lease goes to another process."""
        old, tail = self.somebody(), self.rng.choice((b"", b"@s0.7f"))
        self.serial += 1
        new = old._replace(who=token(self.serial))
        self.recent.append(new)
        return Call("adopt", (old.lock,), (old.who, new.who, old.ttl, old.grace, tail, "{}"), UNLIMITED)

    def once(self) -> Step:
        """Somebody tries a job that must not run too often."""
        client = self.newcomer()
        return Call("once", (client.lock,), (*client.asks(0), self.rng.choice((0, 30, 800))), UNLIMITED)

    def several(self) -> Step:
        """Somebody wants both locks."""
        one = self.newcomer((b"s",) if b"s" in self.modes else (b"x",))
        self.recent[-1] = one._replace(lock=0)
        self.recent.append(one._replace(lock=1))
        words = (one.ttl, one.grace, one.flags, "{}", one.who, one.who)
        return Call("several", (0, 1), words, UNLIMITED)

    def tells(self) -> Step:
        """Somebody looks, asks, or tells more of itself."""
        client = self.somebody()
        return self.rng.choice(
            (
                Call("inspect", (client.lock,), (100, 100)),
                Call("ask", (client.lock,), ("{}",)),
                Call("announce", (client.lock,), (client.who, "@s0", self.rng.choice(("", '{"p":"half"}')))),
            )
        )


def walk(modes: tuple[bytes, ...], seed: int, length: int) -> list[Step]:
    """So many steps by clients that hold in these ways; all inboxes are there at first."""
    walker = Walker(modes, random.Random(seed))
    return [*(Listen(inbox, on=True) for inbox in INBOXES), *(walker.step() for _ in range(length))]
