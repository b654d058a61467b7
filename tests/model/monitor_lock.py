"""What is checked of one lock at every step: who holds on the server, by right, in which order, with which fence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tests.model.server_store import Conflict
from tests.model.server_words import TOKEN_WIDTH, lease_of, marker_of, mode_of, ours, record_of, token_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tenure.core.keys import Keys
    from tenure.core.requests import Request
    from tests.model.monitor import Monitor
    from tests.model.server_store import Store

ENDING = ("release", "withdraw")
SERVING = (*ENDING, "acquire", "once")
ROUNDING = 0.005
"""Seconds that a not-after may be late where round trips take no time: whole milliseconds, rounded up."""
MOST_WORK = 100
"""Entries that one script call may take out of a queue: a server has other clients."""


class Owner(NamedTuple):
    """One who holds on the server."""

    token: bytes
    fence: int
    since: int
    flags: bytes

    @property
    def mode(self) -> bytes:
        """How it holds: x, s, or n and the limit."""
        return mode_of(self.flags)

    @property
    def revoked(self) -> bool:
        """Whether an operator has broken its lease."""
        return self.flags.startswith(b"!")


def tokens_of(request: Request) -> frozenset[bytes]:
    """The tokens among the arguments of a request."""
    return frozenset(a for a in request.args if isinstance(a, bytes) and len(a) == TOKEN_WIDTH)


def owners_of(server: Store, keys: Keys) -> dict[bytes, Owner]:
    """All who hold a lock on the server now; read from its keys, not through what a mutant may have changed."""
    try:
        value = server.read(keys.main)
    except Conflict:
        return {}
    if value is None:
        return {}
    if ours(value):
        lease = lease_of(value)
        return {token_of(value): Owner(token_of(value), int(lease.fence), int(lease.since), lease.flags)}
    marker = marker_of(value)
    if marker is None:
        return {}
    found: dict[bytes, Owner] = {}
    for token, end in server.queue(keys.shared).items():
        if end >= server.now:
            record = record_of(server.entries(keys.entry).get(token))
            flags = marker.mode if record is None else record.flags
            fence, since = (marker.fence, marker.since) if record is None else (record.fence, record.since)
            found[token] = Owner(token, int(fence), int(since), flags)
    return found


def room(modes: Iterable[bytes], wanted: bytes) -> bool:
    """Whether a lock that is held in these modes can be held in one more."""
    held = list(modes)
    if not held:
        return True
    if wanted == b"x" or any(mode != wanted for mode in held):
        return False
    return wanted == b"s" or len(held) < int(wanted[1:])


class LockMonitor:
    """The checks of one lock in one run."""

    def __init__(self, monitor: Monitor, keys: Keys) -> None:
        self.monitor = monitor
        self.world = monitor.world
        self.keys = keys
        self.fence = 0
        self.arrivals: dict[object, int] = {}
        """The order in which turns entered the queue."""
        self.last_run: int | None = None
        """When `once` was granted last, by the server's clock."""
        self.orphan_us = 0
        self._owners: dict[bytes, Owner] = {}
        self._queue: dict[bytes, int] = {}
        self._living: dict[bytes, bytes] = {}
        """Those who wait, are there and can be reached, and how they want to hold."""
        self._placed: set[bytes] = set()
        """Those whose entries live, whoever they are."""
        self._listening: set[bytes] = set()
        """Those whom the server takes for alive."""

    def owners(self) -> dict[bytes, Owner]:
        """All who hold on the server now."""
        return owners_of(self.world.server, self.keys)

    def held_before(self) -> set[bytes]:
        """The tokens that held before the script that has just run."""
        return set(self._owners)

    # --- Around a script -----------------------------------------------------------------------------------------

    def before(self, request: Request) -> None:
        """A script is about to run."""
        server = self.world.server
        self._owners = self.owners()
        self._queue = server.queue(self.keys.queue)
        entries = server.entries(self.keys.entry)
        self._living, self._listening, self._placed = {}, set(), set()
        for token in self._queue:
            words = entries.get(token, b"").split(b" ")
            # A late packet may have put an older entry, without an inbox, in its place.
            if len(words) > 3 and int(words[0]) >= server.now:
                self._placed.add(token)
            if token in self._placed and b"@" in words[3]:
                if self.monitor.waiting(token):
                    self._living[token] = mode_of(words[3])
                elif self.monitor.listens(token):
                    self._listening.add(token)
        for token, life, flags in asking(request):
            if life == 0:
                self._living.pop(token, None)
            elif token in self._queue and self.monitor.waiting(token):
                # It is there, however old its entry is.
                self._living[token] = mode_of(flags)

    def after(self, request: Request, raw: list[Any]) -> None:
        """A script has run."""
        owners, queue = self.owners(), self.world.server.queue(self.keys.queue)
        name, before, violate = request.script.name, self._owners, self.monitor.violate
        new = owners.keys() - before.keys()
        if name == "adopt" and request.keys[0] == self.keys.main:
            self._adopted(request, raw, owners)
        for token in sorted(new):
            if self.monitor.heirs.get(token) is None:
                self._granted(owners[token], new, owners)
            if token in request.args:
                self.monitor.by_reply.add(token)
        for token in owners.keys() & before.keys():
            was, now = before[token], owners[token]
            if was.fence != now.fence:
                violate("again", "a token that holds got another fence")
            elif was != now and token not in request.args and name != "break":
                violate("foreign", f"a {name} changed another token's lease")
        if any(queue.get(token, self._queue[token]) != self._queue[token] for token in self._placed):
            violate("again", "a waiter's place has changed")
        if owners.keys() & queue.keys():
            violate("token", "a token holds and waits")
        if name == "renew" and owners.keys() != before.keys():
            violate("revive", "a renewal changed who holds")
        if name in ENDING and before.keys() - owners.keys() - {request.args[0]}:
            violate("foreign", f"a {name} ended another token's lease")
        if name == "release":
            # By whoever has what was written down.
            self.monitor.given.difference_update(before.keys() - owners.keys())
        elif name in ENDING and any(map(self.monitor.awaits_heir, before.keys() - owners.keys())):
            violate("foreign", f"a {name} ended a lease that was written down for somebody else")
        # The dead may ask once more: the server takes them for alive, and keeps their places until the next call.
        asked_by_dead = name not in ENDING and any(not self.monitor.lives(token) for token in tokens_of(request))
        if name in SERVING and self.keys.main in request.keys and not asked_by_dead and not more(name, raw):
            self._served(name, owners)
        if len(self._queue.keys() - queue.keys()) > MOST_WORK:
            violate("cost", "one call took too many out of the queue")
        self._apart(name, raw, new)
        self._room(owners)
        for token in queue:
            self.arrivals.setdefault(self.monitor.turn_of(token), len(self.arrivals))

    def _room(self, owners: dict[bytes, Owner]) -> None:
        modes = [owner.mode for owner in owners.values()]
        if any(not room(modes[:i] + modes[i + 1 :], mode) for i, mode in enumerate(modes)):
            self.monitor.violate("overlap", f"the server lets {len(modes)} hold at once")

    def _served(self, name: str, owners: dict[bytes, Owner]) -> None:
        """Whoever stood in front and is alive has been served if there is room."""
        for _, token in sorted((score, token) for token, score in self._queue.items() if token not in owners):
            if token in self._living:
                if room((owner.mode for owner in owners.values()), self._living[token]):
                    self.monitor.violate("orphan", f"after {name} a waiter could hold, and does not")
                return
            if token in self._listening:
                # Behind a partition: the server cannot know.
                return

    def _granted(self, owner: Owner, new: set[bytes], owners: dict[bytes, Owner]) -> None:
        self.monitor.grants += 1
        others = [o for token, o in owners.items() if token != owner.token and token not in new]
        if owner.mode == b"s" and others:
            if owner.fence != others[0].fence:
                self.monitor.violate("fence", "one of those who share has another fence than the others")
        elif owner.fence <= self.fence and not (owner.mode == b"s" and len(new) > 1):
            self.monitor.violate("fence", f"a grant with fence {owner.fence} after {self.fence}")
        self.fence = max(self.fence, owner.fence)
        if owner.mode == b"s" and any(o.fence != owner.fence for o in owners.values()):
            self.monitor.violate("fence", "those who share have different fences")
        mine = self.arrivals.get(self.monitor.turn_of(owner.token), len(self.arrivals))
        for token in self._living.keys() - new:
            if self.arrivals.get(self.monitor.turn_of(token), mine) < mine:
                self.monitor.violate("order", f"{owner.token[:2].decode()} was served before {token[:2].decode()}")

    def _adopted(self, request: Request, raw: list[Any], owners: dict[bytes, Owner]) -> None:
        old, new = request.args[1], request.args[2]
        assert isinstance(old, bytes)
        assert isinstance(new, bytes)
        if raw[2][0] != b"adopted":
            if new in owners and new not in self._owners:
                self.monitor.violate("twice", "a refused adoption holds")
            if new in self._owners and raw[2][0] in (b"taken", b"gone"):
                self.monitor.violate("again", "a retry of an adoption was refused what it has")
            return
        self.monitor.heirs.setdefault(new, self.monitor.root(old))
        if old in owners or new not in owners:
            self.monitor.violate("twice", "after an adoption the old token holds, or the new one does not")
        elif old in self._owners and owners[new].fence != self._owners[old].fence:
            self.monitor.violate("fence", "an adopted lease has another fence")
        elif old in self._owners and owners[new].mode != self._owners[old].mode:
            self.monitor.violate("again", "an adopted lease is held in another way")

    def _apart(self, name: str, raw: list[Any], new: set[bytes]) -> None:
        """Two grants of `once` lie apart, and nobody is kept away without a grant."""
        now, apart = self.world.server.now, max(client.spec.apart for client in self.world.clients) * 1000
        for client in map(self.monitor.client_of, new):
            if client is not None and client.spec.apart:
                if self.last_run is not None and now - self.last_run < apart:
                    self.monitor.violate("apart", f"granted {now - self.last_run} ms after the last time")
                self.last_run = now
        if name == "once" and raw[2][0] == b"again" and (self.last_run is None or now - self.last_run > apart):
            self.monitor.violate("apart", "kept away although nobody was granted")

    # --- Time and the end ----------------------------------------------------------------------------------------

    def passing(self, until: int) -> None:
        """Time passes: does somebody wait for whom nobody living stands in the way?"""
        waiting = [
            (self.arrivals.get(self.monitor.turn_of(ticket.token), 1 << 30), ticket.terms.word.encode())
            for ticket in self.monitor.waiters()
            if ticket.keys.main == self.keys.main
        ]
        if not waiting:
            return
        held = (owner.mode for owner in self.owners().values() if self.monitor.rightful(owner))
        if room(held, min(waiting)[1]):
            self.orphan_us += until - self.world.true_us
            if self.orphan_us > self.world.scenario.max_orphan * 1e6:
                self.monitor.violate("orphan", f"{self.orphan_us / 1e6:.3f} s without a holder while somebody waited")

    def end(self) -> None:
        """Nothing is left of anybody who lives, and nothing of a lease without the rest of it.

        Of leases that have ended by themselves the shared set may still tell, for a while: the next one cleans up.
        """
        server, lock, violate = self.world.server, self.keys, self.monitor.violate
        queue, entries, shared = server.queue(lock.queue), server.entries(lock.entry), server.queue(lock.shared)
        records = {token for token, entry in entries.items() if entry.startswith(b"h ")}
        for token in self.owners().keys() | queue.keys() | entries.keys() - records:
            client = self.monitor.client_of(token)
            if client is None or not client.alive or client.cut_off or self.monitor.awaits_heir(token):
                continue
            if token not in self.monitor.left_to_ttl:
                violate("left", f"{token[:2].decode()} still holds or waits")
        if queue.keys() != entries.keys() - records:
            violate("left", "queue and entries differ")
        if records - shared.keys():
            violate("left", "a record without a lease")


def asking(request: Request) -> Iterator[tuple[bytes, int, bytes]]:
    """Whom a request is about: token, for how long it wants to wait, and its flags."""
    if request.script.name in ENDING:
        yield from ((token, 0, b"") for token in tokens_of(request))
    elif request.script.name in ("acquire", "once"):
        for first in range(1, len(request.args) - 8, 9):
            token, life, flags = (request.args[first + i] for i in (1, 4, 6))
            assert isinstance(token, bytes)
            assert isinstance(life, int)
            assert isinstance(flags, str)
            yield token, life, flags.encode()


def more(name: str, raw: list[Any]) -> bool:
    """Whether a script says that it has left work to its caller, or has refused to do any."""
    if name in ENDING:
        return bool(raw[3])
    flags = {b"queued": 5, b"busy": 4}
    return any(answer[0] != b"granted" and (answer[0] not in flags or answer[flags[answer[0]]]) for answer in raw[2:])
