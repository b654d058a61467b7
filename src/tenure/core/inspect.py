"""Looking at locks, asking for them and taking them away: what others may see, and what an operator may do."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

from ..errors import NameConflict
from ..holder import Holder, Waiter
from .exchange import exchange
from .keys import keys_of, name_of, pattern_of
from .requests import Plain, Request
from .scripts import ASK, BREAK, INSPECT

if TYPE_CHECKING:
    from ..options import Mode
    from .keys import Keys
    from .ports import Port

MOST_WAITERS = 1000
MOST_HOLDERS = 1000
MOST_SCANS = 1_000_000


def _when(ms: float) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def encode_info(host: str, pid: int, program: str, identity: str | None, info: str | Mapping[str, Any] | None) -> str:
    """What a holder tells of itself, as it is stored."""
    facts: dict[str, Any] = {"h": host, "p": pid, "g": program}
    if identity is not None:
        facts["i"] = identity
    if info is not None:
        facts["n"] = info if isinstance(info, str) else dict(info)
    return json.dumps(facts, separators=(",", ":"))


def _decode_info(text: bytes) -> dict[str, Any]:
    try:
        facts = json.loads(text)
    except ValueError:
        # Written by somebody else's program under our mark: show what is sure, hide the rest.
        return {}
    return cast("dict[str, Any]", facts) if isinstance(facts, dict) else {}


def facts_of(text: bytes) -> dict[str, Any]:
    """Who somebody is, from what they tell of themselves."""
    facts = _decode_info(text)
    pid = facts.get("p")
    info = facts.get("n")
    return {
        "host": str(facts.get("h", "?")),
        "pid": pid if isinstance(pid, int) else None,
        "program": str(facts.get("g", "?")),
        "identity": facts.get("i"),
        "info": info if isinstance(info, str | Mapping) else None,
    }


_MODES: dict[str, Mode] = {"x": "exclusive", "s": "shared", "n": "semaphore"}


def _how(flags: bytes) -> dict[str, Any]:
    """Mode, limit and context from the flags of a lease or a waiter."""
    kind, _, where = flags.decode("utf-8", "replace").lstrip("!").partition("@")
    word = kind.partition("<")[0]
    limit = word[1:]
    inbox, _, owner = where.partition(".")
    return {
        "mode": _MODES.get(word[:1], "exclusive"),
        "limit": int(limit) if limit.isdigit() else None,
        "context": f"{inbox[1:]}.{owner}" if owner else None,
    }


def holder_of(name: str, public: bytes, left: float | None) -> Holder | None:
    """The record of a holder from what a script tells of it; None when nobody holds."""
    if not public:
        return None
    if public.startswith(b"foreign "):
        return Holder(
            name=name, fence=None, id=public[8:].decode(), host="?", pid=None, program="?", identity=None, info=None,
            since=None, expires_in=left, foreign=True,
        )  # fmt: skip
    ident, fence, since, flags, info = public.split(b" ", 4)
    return Holder(
        name=name, fence=int(fence), id=ident.decode(), since=_when(int(since)), expires_in=left, **_how(flags),
        revoked=flags.startswith(b"!"), **facts_of(info),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Seen:
    """A lock as the server sees it at one moment."""

    holders: list[Holder]
    waiters: list[Waiter]


async def look(port: Port, keys: Keys, *, most_waiters: int = MOST_WAITERS, most_holders: int = MOST_HOLDERS) -> Seen:
    """Who holds a lock, in the order in which their leases end, and who waits for it, in the order of their turns."""
    request = Request(INSPECT, keys, [most_waiters, most_holders])
    reply = await exchange(port, request)
    kind, mode, holders, waiting = reply.answers
    name = keys.name
    if kind not in (b"string", b"none"):
        msg = f"lock {name!r}: the key holds a {kind.decode()}, which is no lock; choose another name or namespace"
        raise NameConflict(msg, names=(name,))
    if mode == b"newer":
        msg = f"lock {name!r}: the key holds a lock of a newer format; update this program's tenure"
        raise NameConflict(msg, names=(name,))
    held = [
        holder_of(name, holders[i], None if holders[i + 1] < 0 else holders[i + 1] / 1000)
        for i in range(0, len(holders), 2)
    ]
    rows: list[Waiter] = []
    for i in range(0, len(waiting), 3):
        _, _, _, flags, info = waiting[i + 2].split(b" ", 4)
        since = _when(float(waiting[i + 1]) / 1000)
        how = _how(flags)
        del how["limit"]
        rows.append(Waiter(name=name, position=i // 3, id=waiting[i].decode(), since=since, **how, **facts_of(info)))
    return Seen([row for row in held if row is not None], rows)


async def holder(port: Port, keys: Keys) -> Holder | None:
    """Who holds the lock now (of several the one whose lease ends first), or None."""
    seen = await look(port, keys, most_waiters=0, most_holders=1)
    return seen.holders[0] if seen.holders else None


async def holders(port: Port, keys: Keys) -> list[Holder]:
    """All who hold the lock now, at most 1,000."""
    return (await look(port, keys, most_waiters=0)).holders


async def waiters(port: Port, keys: Keys) -> list[Waiter]:
    """Who waits, in the order in which they will be served; at most 1,000."""
    return (await look(port, keys, most_holders=0)).waiters


def _scan(cursor: bytes, pattern: bytes) -> Request:
    return Plain(b"SCAN", cursor, b"MATCH", pattern, b"COUNT", 500, b"TYPE", b"string")


async def held(port: Port, namespace: str, prefix: str) -> list[Holder]:
    """The holders of all locks whose names begin with `prefix`, sorted by name; finds them with SCAN, never KEYS."""
    cursor = b"0"
    names: set[str] = set()
    for _ in range(MOST_SCANS):
        request = _scan(cursor, pattern_of(namespace, prefix))
        reply = await exchange(port, request)
        cursor, found = reply.answers
        names.update(name for key in found if (name := name_of(namespace, key)) is not None)
        if cursor == b"0":
            break
    rows: list[Holder] = []
    for name in sorted(names):
        # One that was released meanwhile, or that is no lock at all, is none of the list's business.
        try:
            rows += await holders(port, keys_of(namespace, name))
        except NameConflict:
            continue
    return rows


async def break_lock(port: Port, keys: Keys, fence: int | None, *, force: bool) -> Holder | None:
    """Revokes the lease that was seen; the record of the holder that was told, or None when there was no such lease."""
    request = Request(BREAK, keys, ["" if fence is None else str(fence), int(force)])
    reply = await exchange(port, request)
    how, text = reply.answers
    if how in (b"none", b"other"):
        return None
    if how == b"conflict":
        msg = f"lock {keys.name!r}: {text.decode()}; it was left as it is"
        raise NameConflict(msg, names=(keys.name,))
    if how == b"foreign":
        msg = (
            f"lock {keys.name!r} is held by a client of another library, which cannot be told; "
            f"only force=True takes it away"
        )
        raise NameConflict(msg, names=(keys.name,))
    return holder_of(keys.name, text, None)


@dataclass(frozen=True, slots=True)
class Asked:
    """What became of asking for a lock: who holds it, and how many holders heard it, None when that is not known."""

    holder: Holder | None
    heard: int | None


async def ask(port: Port, keys: Keys, info: str) -> Asked:
    """Asks all who hold the lock to release it."""
    reply = await exchange(port, Request(ASK, (keys.main, keys.entry, keys.shared), [info]))
    how, heard, text = reply.answers
    if how == b"conflict":
        msg = f"lock {keys.name!r}: {text.decode()}; nobody was asked"
        raise NameConflict(msg, names=(keys.name,))
    return Asked(holder_of(keys.name, text, None), None if heard < 0 else heard)
