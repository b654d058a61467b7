"""Who waits for what and who holds what in this process: tables that every caller writes and the hub reads.

Each is a plain dictionary whose single operations are atomic; nothing here blocks or does I/O.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from ..core.lease_state import HELD
from ..errors import NotAcquired
from . import clock

if TYPE_CHECKING:
    from ..core.lease_state import Hold
    from ..core.ticket import Ticket


_FEW = 100


def closing(ticket: Ticket) -> NotAcquired:
    """What a wait ends with that nobody serves any more."""
    name = ticket.keys.name
    return NotAcquired(f"lock {name!r} not acquired: these locks are being closed", names=(name,))


class Registry:
    """The tickets and the held leases by token, and the leases by lock and task or thread."""

    def __init__(self) -> None:
        self.tickets: dict[bytes, Ticket] = {}
        self.holds: dict[bytes, Hold] = {}
        self._closed = False
        self._handed: dict[bytes, tuple[int, float]] = {}
        self._most_handed = _FEW
        self._owned: dict[tuple[bytes, int], Hold] = {}

    def register(self, ticket: Ticket) -> None:
        """Messages for this token go to the ticket from now on; raises `NotAcquired` once nobody listens any more."""
        self.tickets[ticket.token] = ticket
        # Looked at last: whoever closes looks at the tickets after that, and so ends this one or is seen here.
        if self._closed:
            self.unregister(ticket)
            raise closing(ticket)

    def unregister(self, ticket: Ticket) -> None:
        """The token waits no longer."""
        self.tickets.pop(ticket.token, None)

    def own(self, hold: Hold, owner: object) -> None:
        """The lease is held from now on; `owner` is the task or thread that took it."""
        hold.owner, hold.place = weakref.ref(owner), (hold.keys.main, id(owner))
        self._owned[hold.place] = hold
        self.holds[hold.token] = hold

    def remove(self, hold: Hold) -> None:
        """The lease is not watched any more."""
        self.holds.pop(hold.token, None)
        self.disown(hold)

    def hand_over(self, hold: Hold) -> None:
        """The lease goes on elsewhere, and is not watched here any more; its grant stands, however late its message."""
        now, terms = clock.now(), hold.terms
        if len(self._handed) >= self._most_handed:
            for token, (_, until) in list(self._handed.items()):
                if until < now:
                    self._handed.pop(token, None)
            self._most_handed = 2 * len(self._handed) + _FEW
        # Before it is removed: known without a gap. Once its key has ended nothing can be taken from anybody.
        self._handed[hold.token] = hold.fence, now + 2 * (terms.ttl + terms.grace)
        self.remove(hold)

    def handed_over(self, token: bytes, fence: int) -> bool:
        """Whether it was this grant of the token that was handed over."""
        handed = self._handed.get(token)
        return handed is not None and handed[0] == fence

    def keep(self, hold: Hold) -> None:
        """A lease that waits for others of the same call is watched from now on."""
        self.holds[hold.token] = hold

    def disown(self, hold: Hold) -> None:
        """The lease is handed elsewhere: it counts for no task or thread any more."""
        place = hold.place
        if place is not None:
            if self._owned.get(place) is hold:
                self._owned.pop(place, None)
            hold.place = None

    def owned_by(self, owner: object) -> list[Hold]:
        """What a task or thread holds."""
        return [hold for hold in list(self._owned.values()) if hold.owner is not None and hold.owner() is owner]

    def owned(self, main: bytes, owner: object) -> Hold | None:
        """The lease of this lock that the same task or thread holds, if there is one."""
        hold = self._owned.get((main, id(owner)))
        # The id of a dead task or thread may have come back with another.
        if hold is None or hold.owner is None or hold.owner() is not owner:
            return None
        return hold if hold.state is HELD and hold.deadline > clock.now() else None
