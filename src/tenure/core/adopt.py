"""Handing a lease to another process: its words on paper, and one compare-and-set that gives it a new token."""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import ConfigError, LeaseLost, TenureError
from .acquire import answer_in_time
from .keys import keys_of, moved_key, short_id
from .lease_state import Hold, deadline_of_reply
from .renew import LOSSES
from .requests import Item, Request, tail
from .scripts import ADOPT, TOKEN_WIDTH

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..options import Mode, Terms
    from .ports import Port

T = TypeVar("T")

MARK = "tenure1."
_MOST = 200_000


@dataclass(frozen=True, slots=True)
class Exported:
    """A lease as it travels: whoever has it can take the lease over, or release it."""

    namespace: str
    ttl: float
    mode: Mode
    limit: int
    leases: tuple[tuple[str, str, int], ...]
    """Name, token and fence of each lock."""
    stray_until: int = 0
    """The server time until which an unanswered acquire of these tokens may still arrive; 0 when there is none."""

    def text(self) -> str:
        """One word of printable characters."""
        facts = {
            "n": self.namespace,
            "t": self.ttl,
            "m": self.mode,
            "l": self.limit,
            "k": self.leases,
            "s": self.stray_until,
        }
        packed = json.dumps(facts, separators=(",", ":")).encode()
        return MARK + base64.urlsafe_b64encode(packed).decode().rstrip("=")


def parse(text: object) -> Exported:
    """The lease that `export` wrote down; raises `ConfigError` for anything else, without showing it."""
    problem = "this is no exported lease: pass what lease.export() or 'tenure acquire' gave, whole"
    if not isinstance(text, str) or not text.startswith(MARK) or len(text) > _MOST:
        raise ConfigError(problem)
    packed = text[len(MARK) :].strip()
    try:
        facts: Any = json.loads(base64.urlsafe_b64decode(packed + "=" * (-len(packed) % 4)))
        leases = tuple((str(name), str(token), int(fence)) for name, token, fence in facts["k"])
        exported = Exported(
            str(facts["n"]), float(facts["t"]), facts["m"], int(facts["l"]), leases, int(facts.get("s", 0))
        )
    except (ValueError, TypeError, KeyError, binascii.Error):
        raise ConfigError(problem) from None
    good = all(len(token) == TOKEN_WIDTH and token.isalnum() and token.isascii() for _, token, _ in leases)
    if not leases or not good or exported.mode not in ("exclusive", "shared", "semaphore"):
        raise ConfigError(problem)
    return exported


async def adopt(  # noqa: PLR0913 - what a lease is made of
    port: Port,
    exported: Exported,
    terms: Terms,
    info: str,
    context: str,
    new_token: Callable[[], bytes],
    build: Callable[[list[Hold]], T],
) -> T:
    """Takes a lease over, and returns `build(holds)`: the same fences under new tokens, a full ttl from now.

    Raises `LeaseLost` when it has ended or was taken over by somebody else already, or a `ServerError`; then what was
    taken over of several is given back.
    """
    holds: list[Hold] = []
    try:
        for name, old, _ in exported.leases:
            item = Item(keys_of(exported.namespace, name), new_token(), terms.ttl_ms, terms.grace_ms, 0, b"", "", info)
            await _adopt_one(port, item, old.encode(), terms, context, holds)
            if exported.stray_until:
                # The old token holds nothing any more; what may still arrive of it would hold for nobody.
                port.server_time.heed(exported.stray_until)
                port.undo(item.keys, old.encode())
        return build(holds)
    except BaseException:
        for hold in reversed(holds):
            port.undo(hold.keys, hold.token)
        raise


async def _adopt_one(  # noqa: PLR0913
    port: Port, item: Item, old: bytes, terms: Terms, context: str, holds: list[Hold]
) -> None:
    keys, token = item.keys, item.token
    inbox = port.inbox()
    args: list[bytes | str | int] = [0, old, token, item.ttl_ms, item.grace_ms, tail(inbox, context), item.info]
    request = Request(ADOPT, (*keys.all, moved_key(keys, short_id(old))), args, timed=True)
    try:
        reply, answer = await answer_in_time(
            port, request, lambda reply: reply.answers[0], lambda answer: answer[0] == b"late"
        )
        how = answer[0].decode()
        if how != "adopted":
            reason = LOSSES.get(how, "taken")
            msg = (
                f"lock {keys.name!r}: this lease cannot be taken over ({reason}): it has ended, or somebody else has it"
            )
            raise LeaseLost(msg, names=(keys.name,), reason=reason)  # noqa: TRY301 - the same
        hold = Hold(
            keys, token, int(answer[1]), terms, granted_at=reply.sent_at,
            deadline=deadline_of_reply(reply.sent_at, terms.ttl, terms.ttl, terms.drift),
            reachable=bool(inbox), mutex=port.signal().mutex,
        )  # fmt: skip
        hold.context = context
        hold.stray_until = port.server_time.latest if request.unanswered else 0
        # Under the guard: an interrupt between the reply and the caller's list would leave a lease that nobody knows.
        holds.append(hold)
    except TenureError:
        if request.unanswered:
            port.undo(keys, token)
        raise
    except BaseException:
        port.undo(keys, token)
        raise


def exported(namespace: str, holds: Sequence[Hold], latest: int) -> Exported:
    """The leases as they travel; `latest` is the largest not-after of this client's requests so far."""
    terms = holds[0].terms
    leases = tuple((hold.keys.name, hold.token.decode(), hold.fence) for hold in holds)
    stray_until = max(hold.stray_until for hold in holds)
    if any(hold.waited for hold in holds):
        # A poll for them may be on its way, and nobody here will look after it.
        stray_until = max(stray_until, latest)
    return Exported(namespace, terms.ttl, terms.mode, terms.limit, leases, stray_until)
