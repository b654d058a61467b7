"""Who waits for whom: circles of threads or tasks, each of which waits for a lock that the next one holds.

The waits-for graph of Knapp, "Deadlock Detection in Distributed Databases" (1987), over leases and queue entries as the
server has them. A snapshot that takes several requests: a circle that is seen may just have been resolved.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from ..errors import NameConflict
from .exchange import exchange
from .inspect import MOST_SCANS, look
from .keys import keys_of, name_of, pattern_of
from .requests import Plain

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..holder import Holder, Waiter
    from .inspect import Seen
    from .ports import Port

MOST_LOCKS = 1000
QUEUE = b"}:queue"

Circle = tuple["Waiter", ...]
"""Each of them waits for a lock that the next one holds; the last one for a lock of the first."""


async def _contended(port: Port, namespace: str) -> dict[str, Seen]:
    """All locks for which somebody waits, at most 1,000."""
    cursor = b"0"
    names: set[str] = set()
    # The pattern of main keys, inside the braces that only companion keys have.
    pattern = b"{" + pattern_of(namespace, "") + QUEUE
    for _ in range(MOST_SCANS):
        request = Plain(b"SCAN", cursor, b"MATCH", pattern, b"COUNT", 500, b"TYPE", b"zset")
        reply = await exchange(port, request)
        cursor, found = reply.answers
        names.update(name for key in found if (name := name_of(namespace, key[1 : -len(QUEUE)])) is not None)
        if cursor == b"0" or len(names) >= MOST_LOCKS:
            break
    seen: dict[str, Seen] = {}
    for name in sorted(names)[:MOST_LOCKS]:
        try:
            seen[name] = await look(port, keys_of(namespace, name))
        except NameConflict:
            continue
    return seen


def circles(seen: Mapping[str, Seen]) -> list[Circle]:
    """At least one circle of every knot of waiters, each told once.

    Depth first, with every waiter entered once: whoever is met again while their own wait is being followed closes a
    circle. On a stack of its own, since a chain may be longer than Python calls may be nested.
    """
    waiters = [row for look_at in seen.values() for row in look_at.waiters if row.context is not None]
    by_context: dict[str | None, list[Waiter]] = {}
    for row in waiters:
        by_context.setdefault(row.context, []).append(row)
    contexts = {name: [holder.context for holder in look_at.holders] for name, look_at in seen.items()}

    def following(waiter: Waiter) -> Iterator[Waiter]:
        return (row for context in contexts.get(waiter.name, ()) for row in by_context.get(context, ()))

    found: dict[frozenset[str | None], Circle] = {}
    done: set[int] = set()
    for first in waiters:
        if id(first) in done:
            continue
        path, stack, places = [first], [following(first)], {first.context: 0}
        while stack:
            row = next(stack[-1], None)
            if row is None:
                stack.pop()
                last = path.pop()
                done.add(id(last))
                places.pop(last.context, None)
            elif row.context in places:
                circle = tuple(path[places[row.context] :])
                found.setdefault(frozenset(link.context for link in circle), circle)
            elif id(row) not in done:
                places[row.context] = len(path)
                path.append(row)
                stack.append(following(row))
    return list(found.values())


async def deadlocks(port: Port, namespace: str) -> list[Circle]:
    """All circles among those who wait now; a SCAN, and one request per lock that somebody waits for."""
    return circles(await _contended(port, namespace))


async def circle_through(port: Port, namespace: str, name: str, context: str) -> list[tuple[str, Holder]] | None:
    """The circle that a wait for `name` by the holder `context` closes: each lock with its holder; None without one."""
    seen = await _contended(port, namespace)
    if name not in seen:
        seen[name] = await look(port, keys_of(namespace, name))
    by_context: dict[str, list[str]] = {}
    for other, look_at in seen.items():
        for row in look_at.waiters:
            if row.context is not None:
                by_context.setdefault(row.context, []).append(other)
    # From lock to lock, the nearest first; each remembers the lock and the holder that led to it.
    led: dict[str, tuple[str, Holder] | None] = {name: None}
    todo = deque([name])
    while todo:
        wanted = todo.popleft()
        for holder in seen[wanted].holders if wanted in seen else ():
            if holder.context == context:
                return _links(led, wanted, holder)
            for other in by_context.get(holder.context or "", ()):
                if other not in led:
                    led[other] = (wanted, holder)
                    todo.append(other)
    return None


def _links(led: Mapping[str, tuple[str, Holder] | None], wanted: str, holder: Holder) -> list[tuple[str, Holder]]:
    links = [(wanted, holder)]
    step = led[wanted]
    while step is not None:
        links.append(step)
        step = led[step[0]]
    return links[::-1]


def sentence(links: list[tuple[str, Holder]]) -> str:
    """The circle in words."""
    steps = ", which waits for ".join(f"{name!r}, held by {holder}" for name, holder in links)
    return f"a deadlock: this thread or task waits for {steps}"


def described(circle: Circle) -> str:
    """A circle of waiters in words."""
    steps = "; ".join(
        f"{waiter} waits for {waiter.name!r}, held by {circle[(number + 1) % len(circle)]}"
        for number, waiter in enumerate(circle)
    )
    return f"deadlock: {steps}"
