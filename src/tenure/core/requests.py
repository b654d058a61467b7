"""A typed request for each script, and what its reply means."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from .keys import Keys, again_key
from .scripts import ACQUIRE, ANNOUNCE, INSPECT, ONCE, RELEASE, RENEW, SEVERAL, WITHDRAW

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .scripts import Script
    from .server_time import ServerTime

_echo = itertools.count(1)


def tail(inbox: str, context: str) -> str:
    """What follows the mode in the flags of a lease: the inbox, and who took it; empty while there is no inbox."""
    return f"@{inbox}.{context}" if inbox else ""


class Request:
    """One script call, ready to be sent any number of times: every script is idempotent for the same arguments."""

    __slots__ = ("_keys", "args", "echo", "frame", "script", "sent_at", "timed", "unanswered", "until")

    def __init__(
        self,
        script: Script,
        keys: Sequence[bytes] | Keys,
        args: list[bytes | str | int],
        *,
        timed: bool = False,
        until: float | None = None,
    ) -> None:
        self.script = script
        self._keys = keys
        self.args = args
        self.timed = timed
        """Whether its first argument is a not-after, which every send sets anew."""
        self.until = until
        """A local instant after which it must have no effect whatever the request time-out is."""
        self.frame: bytes | None = None
        """The two hot requests, acquire and release of one lock, come packed for the most part: these are the arguments
        behind the not-after. Packing word by word costs more than the rest of the request."""
        self.sent_at = 0.0
        """The local instant just before it was sent last."""
        self.unanswered = False
        """A send of this request has ended without a reply: its effect is unknown."""
        # A reply to another request on a desynchronised connection must never count as ours.
        self.echo = b"%x" % next(_echo)

    @property
    def keys(self) -> Sequence[bytes]:
        """The keys that the script declares."""
        keys = self._keys
        return keys.all if isinstance(keys, Keys) else keys

    def stamp(self, server_time: ServerTime, sent_at: float, timeout: float) -> None:
        """Sets the not-after of a timed request that is sent at `sent_at` and given up after `timeout` seconds."""
        limit = sent_at + timeout if self.until is None else min(sent_at + timeout, self.until)
        self.args[0] = server_time.not_after(limit)

    @property
    def not_after(self) -> int:
        """The server time after which the last send of this request has no effect; 0 when it was sent without one."""
        limit = self.args[0] if self.timed else 0
        return limit if isinstance(limit, int) else 0

    def packed(self, prefix: bytes) -> bytes | None:
        """The call by hash as it is sent, or None when it has to be packed from its words; `prefix` is packed."""
        rest, keys, echo = self.frame, self._keys, self.echo
        if rest is None or not isinstance(keys, Keys):
            return None
        if not self.timed:
            return b"*11\r\n%b%b$%d\r\n%b\r\n%b%b" % (self.script.call, keys.packed, len(echo), echo, prefix, rest)
        limit = b"%d" % self.args[0]
        return b"*20\r\n%b%b$%d\r\n%b\r\n%b$%d\r\n%b\r\n%b" % (
            self.script.call, keys.packed, len(echo), echo, prefix, len(limit), limit, rest,
        )  # fmt: skip

    def command(self, prefix: bytes, *, full: bool) -> tuple[bytes | str | int, ...]:
        """The words of the command; `full` sends the script's text, for a server that does not know its hash."""
        head = (b"EVAL", self.script.text) if full else (b"EVALSHA", self.script.sha)
        keys = self.keys
        return (*head, len(keys), *keys, self.echo, prefix, *self.args)


class Reply:
    """What a script answered, with the local instant just before its request was sent."""

    __slots__ = ("answers", "now_ms", "sent_at")

    def __init__(self, sent_at: float, now_ms: int, answers: list[Any]) -> None:
        self.sent_at = sent_at
        self.now_ms = now_ms
        self.answers = answers


class Plain(Request):
    """A plain command that reads; its reply carries neither an echo nor the server's time."""

    __slots__ = ()

    def __init__(self, *words: bytes | str | int) -> None:
        super().__init__(INSPECT, (), list(words))

    def command(self, prefix: bytes, *, full: bool) -> tuple[bytes | str | int, ...]:
        """The words of the command."""
        del prefix, full
        return tuple(self.args)


def is_reply_to(words: list[Any], request: Request) -> bool:
    """Whether these are the words of this request's own reply, and not of another one's."""
    return bool(words) and words[0] == request.echo


# --- acquire ---------------------------------------------------------------------------------------------------------


# Not frozen: a frozen dataclass sets each field by a call, and one of these is made per request.
@dataclass(slots=True)
class Granted:
    """The token holds the lock."""

    fence: int
    count: int
    remaining: float


@dataclass(slots=True)
class Queued:
    """The token waits; `left` is the time until the holder's key ends, None when it has no end.

    `at_ms` is the server's time to the microsecond: a grant often follows within the same millisecond.
    """

    score: bytes
    position: int
    left: float | None
    holder: bytes
    more: bool
    at_ms: float
    heard: int
    """How many holders heard that they were asked to release; -1 when nobody was asked."""


@dataclass(slots=True)
class Busy:
    """The lock was not free, and the token left no entry."""

    ahead: int
    left: float | None
    holder: bytes
    more: bool
    heard: int


@dataclass(slots=True)
class Conflict:
    """The key is no lock of ours, or the name is in use as another kind of lock."""

    reason: str


@dataclass(slots=True)
class Limit:
    """The semaphore's limit is another one with those who use it now."""

    in_force: int


@dataclass(slots=True)
class Again:
    """`once` has been granted not long ago: to whom, and seconds until the next grant."""

    left: float
    runner: bytes


class Other(Enum):
    """Answers without fields."""

    SUBSCRIBE = "subscribe"
    REVOKED = "revoked"
    LATE = "late"


Answer = Granted | Queued | Busy | Conflict | Limit | Again | Other


@dataclass(slots=True)
class Item:
    """What acquire needs to know of one waiter."""

    keys: Keys
    token: bytes
    ttl_ms: int
    grace_ms: int
    life_ms: int
    score: bytes
    flags: str
    info: str
    terms: bytes = b""
    """Ttl and grace, packed."""
    ask: bytes = b""
    """`1`: the holder is asked to release."""

    def words(self, number: int) -> tuple[bytes | str | int, ...]:
        """The nine words that a script wants of it; `number` says which lock it is for."""
        return (
            number, self.token, self.ttl_ms, self.grace_ms, self.life_ms, self.score, self.flags, self.info, self.ask,
        )  # fmt: skip


_ONE = b"$1\r\n1\r\n$44\r\n%b\r\n%b" + 5 * b"$%d\r\n%b\r\n"


def acquire(items: Sequence[Item], not_after: int = 0) -> Request:
    """Takes or queues each item; items of the same lock share its keys."""
    if len(items) == 1:
        i = items[0]
        request = Request(ACQUIRE, i.keys, [not_after, *i.words(1)], timed=True)
        life, flags, info = b"%d" % i.life_ms, i.flags.encode(), i.info.encode()
        request.frame = _ONE % (
            i.token, i.terms, len(life), life, len(i.score), i.score, len(flags), flags, len(info), info,
            len(i.ask), i.ask,
        )  # fmt: skip
        return request
    numbers: dict[bytes, int] = {}
    keys: list[bytes] = []
    many: list[bytes | str | int] = [not_after]
    for i in items:
        number = numbers.get(i.keys.main)
        if number is None:
            keys.extend(i.keys.all)
            number = numbers[i.keys.main] = len(numbers) + 1
        many += i.words(number)
    return Request(ACQUIRE, keys, many, timed=True)


def once(item: Item, apart_ms: int) -> Request:
    """Tries an item once, unless the last such try was granted less than `apart_ms` ago."""
    return Request(ONCE, (*item.keys.all, again_key(item.keys)), [0, *item.words(1), apart_ms], timed=True)


def _left(ms: int) -> float | None:
    return None if ms < 0 else ms / 1000


def acquire_answers(reply: Reply) -> list[Answer]:
    """The answers of an acquire, in the order of its items."""
    answers = reply.answers
    return [_acquire_answer(answers)] if answers[0] == b"granted" else [_acquire_answer(raw) for raw in answers]


def _acquire_answer(raw: list[Any]) -> Answer:  # noqa: PLR0911 - one for each kind
    kind = raw[0]
    if kind == b"granted":
        return Granted(int(raw[1]), int(raw[2]), int(raw[3]) / 1000)
    if kind == b"queued":
        return Queued(raw[1], raw[2], _left(raw[3]), raw[4], bool(raw[5]), int(raw[6]) / 1000, raw[7])
    if kind == b"busy":
        return Busy(raw[1], _left(raw[2]), raw[3], bool(raw[4]), raw[5])
    if kind == b"conflict":
        return Conflict(raw[1].decode())
    if kind == b"limit":
        return Limit(raw[1])
    if kind == b"again":
        return Again(raw[1] / 1000, raw[2])
    return Other(kind.decode())


@dataclass(slots=True)
class AllGranted:
    """Every one of several locks was granted; their fences in order."""

    fences: list[int]


@dataclass(slots=True)
class InTheWay:
    """The lock with this index cannot be had at once; `reason` when it never can."""

    index: int
    reason: str | None


def several(items: Sequence[Item]) -> Request:
    """Takes all items, which differ in lock and token only, or none."""
    first = items[0]
    args: list[bytes | str | int] = [0, first.ttl_ms, first.grace_ms, first.flags, first.info]
    args += [item.token for item in items]
    return Request(SEVERAL, [key for item in items for key in item.keys.all], args, timed=True)


def several_answer(reply: Reply) -> AllGranted | InTheWay | Other:
    """The answer of a `several`."""
    (raw,) = reply.answers
    kind = raw[0]
    if kind == b"granted":
        return AllGranted([int(fence) for fence in raw[1:]])
    if kind == b"late":
        return Other.LATE
    return InTheWay(raw[1], raw[2].decode() if kind == b"conflict" else None)


# --- release and withdraw --------------------------------------------------------------------------------------------


def release(keys: Keys, token: bytes) -> Request:
    """Deletes the token's lease and hands the lock over."""
    request = Request(RELEASE, keys, [token])
    request.frame = b"$44\r\n%b\r\n" % token
    return request


def withdraw(keys: Keys, token: bytes) -> Request:
    """Makes sure that the token neither holds nor waits."""
    return Request(WITHDRAW, keys, [token])


def freed(reply: Reply) -> tuple[str, bool]:
    """How a release or a withdraw ended, and whether there are more dead waiters to skip.

    `released`, `gone` (there was no key), `taken` (it is another's) or `moved` (adopted).
    """
    how, more, _refused = reply.answers
    return how.decode(), int(more) > 0


# --- renew -----------------------------------------------------------------------------------------------------------


Renewal = tuple["Keys", bytes, int, int]
"""Keys, token, ttl ms, grace ms."""


def renew(
    exclusive: Sequence[Renewal], others: Sequence[Renewal] = (), not_after: int = 0, *, until: float | None = None
) -> Request:
    """Moves the end of each lease to a full ttl from now; not after `until`. The answers come in this order.

    For an exclusive lease one key is declared, since a script with one present and one missing key is refused while its
    cluster slot migrates; `others` are shared ones and places of semaphores.
    """
    keys = [lock.main for lock, *_ in exclusive]
    args: list[bytes | str | int] = [not_after, len(exclusive)]
    for lock, *_ in others:
        keys += (lock.main, lock.entry, lock.shared)
    for _, token, ttl_ms, grace_ms in (*exclusive, *others):
        args += (token, ttl_ms, grace_ms)
    return Request(RENEW, keys, args, timed=True, until=until)


def announce(leases: Iterable[tuple[Keys, bytes, str, str]]) -> Request:
    """Completes what the server knows of leases: keys, token, what their flags lack, and their info ('' as it is)."""
    keys: list[bytes] = []
    args: list[bytes | str | int] = []
    for lock, token, tail, info in leases:
        keys += (lock.main, lock.entry)
        args += (token, tail, info)
    return Request(ANNOUNCE, keys, args)


def renewals(reply: Reply) -> list[str]:
    """Per lease: renewed or announced, gone, taken, moved, revoked or late."""
    return [raw.decode() for raw in reply.answers]
