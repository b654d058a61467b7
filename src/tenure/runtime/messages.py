"""What a message on the inbox means for the waiters and the leases of this client."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.keys import Keys
from ..core.lease_state import State
from ..core.scripts import TOKEN_WIDTH

if TYPE_CHECKING:
    from .hub import Hub
    from .notifier import Notifier


_KEY = 5
"""Where the key begins in a message that grants."""


def deliver(hub: Hub, notifier: Notifier, words: list[bytes], received_at: float, epoch: int) -> None:
    """Gives a message that arrived at the local instant `received_at` to whom it concerns; on the hub's thread."""
    if len(words) < 2 or len(words[1]) != TOKEN_WIDTH:  # noqa: PLR2004 - a kind and a token
        # Anybody with access to the channel may write to it: what means nothing must not end the hub's work.
        return
    kind, token = words[0], words[1]
    hold = hub.holds.get(token)
    if kind == b"granted" and len(words) > _KEY and words[2].isdigit() and words[3].isdigit():
        _granted(hub, words, received_at, epoch)
    elif kind == b"revoked" and hold is not None:
        hub.lost(hold, "revoked")
    elif kind == b"asked" and hold is not None:
        notifier.asked(hold, b" ".join(words[2:]))


def _granted(hub: Hub, words: list[bytes], received_at: float, epoch: int) -> None:
    token, micros = words[1], int(words[2])
    ticket, hold = hub.tickets.get(token), hub.holds.get(token)
    if hold is not None and hold.state is State.RELEASING:
        # Granted anew by a request that had no answer, perhaps: its own release makes that good.
        hold.stray_until = max(hold.stray_until, micros // 1000)
    wanted = hold is not None or hub.handed_over(token, int(words[3]))
    if ticket is not None:
        wanted = ticket.offered(micros / 1000, int(words[3]), received_at, epoch)
    if not wanted:
        # Nobody waits for it and nobody holds it: an enqueue that came late, of a wait that was over.
        main = b" ".join(words[_KEY:])
        hub.undo(Keys(main.decode("utf-8", "replace"), main), token)
