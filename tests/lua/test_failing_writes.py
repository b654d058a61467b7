"""Redis does not roll back a script that fails half way: every prefix of the writes has to be safe."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
import redis

from tests.lua.inboxes import Inboxes
from tests.lua.virtual import PREFIX, VirtualServer, again_key, lock_keys, member_keys, moved_key, token, waiter

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.harness.servers import Server
    from tests.lua.virtual import Word

K = b"ns:job"
MAIN, QUEUE, ENTRY, FENCE, SHARED = lock_keys(K)
A, B, C, D, NEW = (token(number) for number in range(1, 6))
WRITER, READER, LAST = token(7), token(8), token(9)
MOST_WRITES = 60
DEAD = 3


def take(real: VirtualServer, who: bytes, flags: str, *, ttl: int = 1000, life: int = 0) -> None:
    """Somebody takes the lock, or joins the queue."""
    assert real.acquire(K, who, ttl=ttl, life=life, flags=flags)[0] in (b"granted", b"queued")


# What was there before


def free(real: VirtualServer) -> None:
    """Nobody holds, nobody waits."""


def held(real: VirtualServer) -> None:
    take(real, A, "x")


def waited_for(real: VirtualServer) -> None:
    take(real, A, "x")
    take(real, B, "x@sdead", life=500)
    take(real, C, "x@sin", life=90_000)


def orphaned(real: VirtualServer) -> None:
    waited_for(real)
    real.command("DEL", K)


def readers_wait(real: VirtualServer) -> None:
    take(real, A, "x")
    take(real, B, "s@sdead", life=90_000)
    take(real, C, "s@sin", life=90_000)
    take(real, D, "s@sin", life=90_000)


def read_by_two(real: VirtualServer) -> None:
    take(real, A, "s", ttl=3000)
    take(real, B, "s", ttl=2000)


def read_and_waited_for(real: VirtualServer) -> None:
    read_by_two(real)
    take(real, C, "x@sin", life=90_000)
    take(real, D, "s@sin", life=90_000)


def read_by_one_and_waited_for(real: VirtualServer) -> None:
    take(real, A, "s")
    take(real, C, "x@sin", life=90_000)


def two_places_taken(real: VirtualServer) -> None:
    take(real, A, "n2", ttl=3000)
    take(real, B, "n2", ttl=2000)
    take(real, C, "n2@sin", life=90_000)


def one_place_is_over(real: VirtualServer) -> None:
    take(real, A, "n2", ttl=3000)
    take(real, B, "n2", ttl=100)


def left_behind(real: VirtualServer) -> None:
    """The lock is free, and its set has members and records of a time before."""
    for number in range(DEAD):
        real.command("ZADD", SHARED, real.now + 5000, token(100 + number))
        real.command("HSET", ENTRY, token(100 + number), "h 7 7 s {}")
    for key in (SHARED, ENTRY):
        real.command("PEXPIREAT", key, real.now + 50_000)


@dataclass(frozen=True)
class Scene:
    """What was there, what is called, and whose lease may be over or somewhere else afterwards."""

    prepare: Callable[[VirtualServer], None]
    script: str
    args: tuple[Word, ...]
    gives_up: tuple[bytes, ...] = ()
    moves: dict[bytes, bytes] = field(default_factory=dict[bytes, bytes])

    @property
    def keys(self) -> tuple[bytes, ...]:
        """What the script wants to know of the lock."""
        if self.script == "renew":
            return (K,) if self.args[1] else member_keys(K)
        if self.script == "announce":
            return member_keys(K)[:2]
        more = {"once": (again_key(K),), "adopt": (moved_key(K, A),)}
        return (*lock_keys(K), *more.get(self.script, ()))


def acquires(who: bytes, life: int, flags: str = "x@sin") -> tuple[Word, ...]:
    return (0, *waiter(who, life=life, flags=flags))


ADOPTION = (0, A, NEW, 1000, 20, "@sin", "{}")
SCENES: dict[str, Scene] = {
    "take a free lock": Scene(free, "acquire", acquires(A, 0)),
    "join the queue": Scene(held, "acquire", acquires(C, 90_000)),
    "take over after the dead": Scene(orphaned, "acquire", acquires(C, 90_000)),
    "serve who is ahead": Scene(orphaned, "acquire", acquires(D, 0)),
    "hand over": Scene(waited_for, "release", (A,), gives_up=(A,)),
    "withdraw a lease": Scene(waited_for, "withdraw", (A,), gives_up=(A,)),
    "withdraw a place": Scene(waited_for, "withdraw", (C,)),
    "renew": Scene(held, "renew", (0, 1, A, 5000, 20)),
    "announce": Scene(held, "announce", (A, "@sin", "{}")),
    "break": Scene(waited_for, "break", ("", 0)),
    "force": Scene(waited_for, "break", ("", 1), gives_up=(A,)),
    "adopt": Scene(waited_for, "adopt", ADOPTION, moves={A: NEW}),
    "once": Scene(free, "once", (*acquires(A, 0), 800)),
    "several": Scene(free, "several", (0, 1000, 20, "x", "{}", A)),
    # Beside others.
    "read a free lock": Scene(free, "acquire", acquires(A, 0, "s")),
    "read beside others": Scene(read_by_two, "acquire", (0, *waiter(C, ttl=9000, flags="s"))),
    "read where others have left their traces": Scene(left_behind, "acquire", acquires(A, 0, "s")),
    "queue behind readers": Scene(read_by_two, "acquire", acquires(C, 90_000)),
    "readers go in": Scene(readers_wait, "release", (A,), gives_up=(A,)),
    "a reader leaves": Scene(read_and_waited_for, "release", (A,), gives_up=(A,)),
    "the last reader leaves": Scene(read_by_one_and_waited_for, "release", (A,), gives_up=(A,)),
    "a writer gives up": Scene(read_and_waited_for, "acquire", acquires(C, 0)),
    "a reader is withdrawn": Scene(read_and_waited_for, "withdraw", (A,), gives_up=(A,)),
    "renew a reader": Scene(read_by_two, "renew", (0, 0, A, 900_000, 20)),
    "announce a reader": Scene(read_by_two, "announce", (A, "@sin", '{"p":"half"}')),
    "adopt a reader": Scene(read_and_waited_for, "adopt", ADOPTION, moves={A: NEW}),
    "break readers": Scene(read_and_waited_for, "break", ("", 0)),
    "force readers": Scene(read_and_waited_for, "break", ("", 1), gives_up=(A, B)),
    "take a place": Scene(one_place_is_over, "acquire", acquires(C, 0, "n2")),
    "a place changes hands": Scene(two_places_taken, "release", (A,), gives_up=(A,)),
    "adopt a place": Scene(two_places_taken, "adopt", ADOPTION, moves={A: NEW}),
    "several readers": Scene(read_by_two, "several", (0, 1000, 20, "s", "{}", C)),
}


@pytest.mark.parametrize("scene", SCENES)
def test_every_prefix_of_the_writes_is_safe(any_server: Server, scene: str) -> None:
    todo = SCENES[scene]
    with Inboxes(any_server) as inboxes:
        for fail_at in range(1, MOST_WRITES):
            any_server.command("FLUSHALL")
            inboxes.clear()
            inboxes.subscribe(PREFIX + b"in")
            inboxes.subscribe(PREFIX + b"dead")
            real = VirtualServer(any_server)
            todo.prepare(real)
            inboxes.unsubscribe(PREFIX + b"dead")
            real.now_us += 600_000
            before: Any = real.state().get(FENCE, ("", b"0", 0))[1]
            known = {who: end for who, end in leases(real).items() if who not in todo.gives_up}
            try:
                real.run(todo.script, todo.keys, todo.args, fail_at=fail_at)
            except redis.ResponseError as error:
                assert "write refused" in str(error)  # noqa: PT017 - the last run of the loop raises nothing
            else:
                assert fail_at > 1, "the script wrote nothing, and this test has shown nothing"
                return
            check_fences(real)
            check_leases(real, known, todo.moves)
            check_recovery(real, int(before))
    pytest.fail(f"more than {MOST_WRITES} writes")


def leases(real: VirtualServer) -> dict[bytes, int]:
    """Who holds, and up to when."""
    found: Any = real.run("inspect", lock_keys(K), (0, 100))[4]
    ids = {hashlib.sha1(who, usedforsecurity=False).hexdigest()[:8].encode(): who for who in (A, B, C, D, NEW)}
    rows = zip(found[::2], found[1::2], strict=True)
    return {ids[text.split(b" ")[0]]: real.now + left for text, left in rows if text.split(b" ")[0] in ids}


def check_fences(real: VirtualServer) -> None:
    """No lease without an end, and none whose fence is not known as the highest yet."""
    state = real.state()
    if MAIN in state:
        value, stored = state[MAIN][1], state[FENCE][1]
        assert isinstance(value, bytes)
        assert isinstance(stored, bytes)
        assert int(value.split(b" ")[1]) <= int(stored)
        assert state[MAIN][2] is not None
        assert state[FENCE][2] is not None


def check_leases(real: VirtualServer, known: dict[bytes, int], moves: dict[bytes, bytes]) -> None:
    """Whoever held before relies on its lease up to the end that it knows, whatever has failed and whoever renews."""
    for who, end in list(known.items()):
        shared = real.command("GET", K)[8:9] in (b"s", b"n")
        # Longer than the set outlives the key.
        if real.renew(K, who, ttl=300_000, shared=shared) == b"renewed":
            known[who] = max(end, real.now + 300_020)
    for end in sorted(known.values()):
        real.now_us = max(real.now_us, end * 1000 + 999)
        still = leases(real)
        for who, till in known.items():
            assert till < real.now or who in still or moves.get(who) in still, f"{who!r} has lost its lease"
        assert real.acquire(K, WRITER)[0] != b"granted"


def check_recovery(real: VirtualServer, fence_before: int) -> None:
    """All can be given back, the next ones come after everybody before, and no key stays for ever."""
    for who in (A, B, C, D, NEW, WRITER):
        real.release(K, who, verb="withdraw")
    assert MAIN not in real.state()
    granted: Any = real.acquire(K, LAST)
    assert granted[0] == b"granted"
    assert int(granted[1]) > fence_before
    assert QUEUE not in real.state()
    real.release(K, LAST)
    read: Any = real.acquire(K, READER, flags="s")
    assert read[0] == b"granted"
    assert int(read[1]) > int(granted[1])
    assert real.release(K, READER)[0] == b"released"
    assert {MAIN, QUEUE, ENTRY, SHARED}.isdisjoint(real.state())
    assert all(end is not None for _, _, end in real.state().values())
