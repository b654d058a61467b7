"""Each Lua file against the model in plain Python: the same calls, the same replies, messages and keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.lua.inboxes import Inboxes
from tests.lua.steps import UNLIMITED, Break, Call, Crowd, Forget, Line, Listen, Pair, Renew, Tick
from tests.lua.strategies import MODES, sequences
from tests.lua.virtual import VirtualServer, token, waiter
from tests.lua.walks import walk
from tests.model.server_model import ModelServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.harness.servers import Server


def takes(number: int, flags: bytes, life: int = 15_000, *, ttl: int = 1000, ask: str = "", place: str = "") -> Call:
    """Token `number` wants the first lock."""
    words = waiter(token(number), ttl=ttl, life=life, place=place, flags=flags, ask=ask)
    return Call("acquire", (0,), words, UNLIMITED)


def ends(number: int, verb: str = "release") -> Call:
    """Token `number` gives the first lock back."""
    return Call(verb, (0,), (token(number),))


def renews(number: int, ttl: int = 1000, *, exclusive: bool = False) -> Renew:
    """Token `number` keeps the first lock."""
    lease = ((0, token(number), ttl, 20),)
    return Renew(lease, ()) if exclusive else Renew((), lease)


def adopts(old: int, new: int) -> Call:
    """Token `new` takes over what `old` holds."""
    return Call("adopt", (0,), (token(old), token(new), 2000, 20, "@s0.7f", "{}"), UNLIMITED)


WALKS, LENGTH = 15, 60
LOOK = Call("inspect", (0,), (100, 100))
ASK = Call("ask", (0,), (b'{"h":"a b"}',))
HEAR, DEAF = Listen(b"s0", on=True), Listen(b"s0", on=False)

STORIES: dict[str, list[Callable[[Pair], None]]] = {
    "across two dead waiters of both kinds, and an operator": [
        *(HEAR, Listen(b"p0", on=True)),
        *(takes(0, b"x", 0), takes(1, b"x@s0"), takes(2, b"x@p0"), takes(3, b"x@p0")),
        *(DEAF, LOOK, ends(0), Call("announce", (0,), (token(2), b"@s0", b""))),
        *(Break(0, "newest", force=False), renews(2, exclusive=True), Break(0, "any", force=True)),
    ],
    "readers and writers in the order of their arrival": [
        *(HEAR, takes(0, b"x@s0"), takes(1, b"s@s0"), takes(2, b"s@s0"), takes(3, b"x@s0"), takes(4, b"s@s0")),
        *(takes(5, b"s", 0), ends(0), LOOK, takes(5, b"s", 0), takes(1, b"s@s0"), takes(3, b"x@s0", ask="1")),
        *(renews(1, 3000), ends(1), ends(2), LOOK, ends(3), ends(4), LOOK),
    ],
    "a reader that is not reached lets the next ones have their turn": [
        *(HEAR, Listen(b"s1", on=True), takes(0, b"x"), takes(1, b"s@s1"), takes(2, b"s@s0"), takes(3, b"s@s1")),
        *(takes(4, b"x@s0"), Listen(b"s1", on=False), ends(0), LOOK, ends(2), LOOK),
    ],
    "the last reader is not reached, and the key ends when the others do": [
        *(HEAR, Listen(b"s1", on=True), takes(0, b"x"), takes(1, b"s@s0"), takes(2, b"s@s1", ttl=9000)),
        *(Listen(b"s1", on=False), ends(0), LOOK, takes(3, b"x@s0"), Tick(0, 0), Tick(1000, 0), takes(3, b"x@s0")),
    ],
    "those behind the first reader go in with it when it finds the lock free": [
        *(HEAR, takes(0, b"x"), takes(1, b"s@s0"), takes(2, b"s@s0"), takes(3, b"x@s0"), takes(4, b"s@s0")),
        *(Tick(1_021_000), takes(1, b"s@s0"), LOOK, ends(1), ends(2), LOOK),
    ],
    "a writer that gives up lets the readers behind it in": [
        *(HEAR, takes(0, b"s"), takes(1, b"x@s0"), takes(2, b"s@s0"), takes(3, b"x@s0"), takes(1, b"x@s0", 0), LOOK),
        *(takes(4, b"s@s0"), ends(3, "withdraw"), LOOK),
    ],
    "a writer that gives up, and whose entry has ended just before": [
        *(HEAR, takes(0, b"s"), takes(1, b"x@s0", 40), takes(2, b"s@s0"), takes(3, b"x@s0"), Tick(41_000)),
        *(takes(1, b"x@s0", 0, place="1000"), LOOK),
    ],
    "a writer that has died does not stop readers": [
        *(HEAR, Listen(b"s1", on=True), takes(0, b"s"), takes(1, b"x@s1"), takes(2, b"s@s0"), takes(3, b"x@s1")),
        *(Listen(b"s1", on=False), takes(4, b"s@s0"), LOOK, ends(5), LOOK),
    ],
    "a semaphore is full, and a dead holder frees its own place only": [
        *(HEAR, takes(0, b"n2", 0), takes(1, b"n2", 0, ttl=3000), takes(2, b"n2@s0"), takes(3, b"n3@s0")),
        *(takes(4, b"x@s0"), takes(5, b"n2@s0"), LOOK, ASK, Tick(1_021_000), renews(0), takes(2, b"n2@s0"), LOOK),
        *(ends(0), ends(1), LOOK, ends(2), ends(5), LOOK, takes(3, b"n3")),
    ],
    "a semaphore that ends in its last millisecond": [
        *(takes(0, b"n1", 0), Tick(0, 0), takes(1, b"n1", 0), Tick(1000, 0), takes(1, b"n1", 0), renews(0), LOOK),
    ],
    "a lease that is over, and its token waits again before the dead are cleaned up": [
        *(HEAR, takes(0, b"s@s0", ttl=50), takes(1, b"s@s0"), takes(2, b"x@s0"), Tick(100_000), takes(0, b"s@s0")),
        *(ends(1), LOOK, ends(2), LOOK),
    ],
    "adoption of each kind, twice, and the old tokens afterwards": [
        *(takes(0, b"x"), adopts(0, 1), adopts(0, 1), renews(0, exclusive=True), ends(0), ends(0, "withdraw")),
        *(adopts(1, 2), adopts(0, 1), renews(1, exclusive=True), LOOK, ends(2)),
        *(takes(0, b"s"), takes(3, b"s"), adopts(0, 1), adopts(0, 1), renews(0), ends(0), LOOK, ends(1), ends(3)),
        *(takes(0, b"n2"), adopts(0, 1), LOOK, Break(0, "first", force=False), adopts(1, 2), adopts(0, 2), ends(1)),
    ],
    "operators and holders of many kinds": [
        *(HEAR, takes(0, b"s@s0"), takes(1, b"s@s0"), takes(2, b"s"), Break(0, "wrong", force=False)),
        *(Break(0, "first", force=False), Break(0, "any", force=False), renews(0), takes(0, b"s@s0"), LOOK),
        *(takes(3, b"x@s0"), ends(0), Break(0, "newest", force=True), LOOK, ends(1)),
        *(Break(0, "any", force=True), takes(0, b"n2@s0"), takes(1, b"n2@s0"), Break(0, "first", force=True), LOOK),
    ],
    "a record that was lost": [
        *(takes(0, b"s@s0"), takes(1, b"n2"), Forget(0, token(0)), LOOK, renews(0), takes(0, b"s@s0"), adopts(0, 1)),
        *(Forget(0, token(1)), Break(0, "any", force=False), LOOK, renews(1), ends(1)),
    ],
    "the dead in their hundreds": [
        *(HEAR, takes(0, b"s"), Crowd(0, 250, -1), takes(1, b"s"), LOOK, ends(1), ends(5), takes(2, b"x@s0"), ends(0)),
        *(LOOK, ends(2), Crowd(0, 250, -1), Crowd(0, 3, 500), takes(0, b"s"), LOOK),
    ],
    "the last one leaves, and more dead than one call cleans up": [
        *(
            takes(0, b"s"),
            Crowd(0, 250, -1),
            ends(0),
            LOOK,
            takes(0, b"n2"),
            Crowd(0, 120, -1, b"n2"),
            ends(1),
            ends(0),
        ),
    ],
    "hundreds who wait to read": [
        *(HEAR, takes(0, b"x"), Line(0, 250, 15_000), ends(0), takes(1, b"s@s0"), takes(2, b"x@s0"), ASK),
        *(Break(0, "any", force=True), LOOK, ends(5), takes(2, b"x@s0"), Tick(30_000_000), takes(2, b"x@s0")),
    ],
    "hundreds who wait to read and are gone": [
        *(HEAR, takes(0, b"x"), Line(0, 250, 15_000), takes(1, b"s@s0"), DEAF, ends(0), ends(0), HEAR),
        *(takes(1, b"s@s0"), LOOK),
    ],
    "once, and not again for a while": [
        *(Call("once", (0,), (*waiter(token(number)), 900), UNLIMITED) for number in (0, 0, 1)),
        *(ends(0), Call("once", (0,), (*waiter(token(1)), 900), UNLIMITED), Tick(900_000)),
        *(Call("once", (0,), (*waiter(token(1)), 900), UNLIMITED), Tick(1000)),
        Call("once", (0,), (*waiter(token(1), flags="n2@s0"), 900), UNLIMITED),
    ],
    "several at once or none": [
        *(HEAR, Call("several", (0, 1), (1000, 20, "s@s0", "{}", token(0), token(0)), UNLIMITED), takes(1, b"s")),
        Call("several", (0, 1), (1000, 20, "s@s0", "{}", token(2), token(2)), UNLIMITED),
        *(takes(3, b"x@s0"), Call("several", (1, 0), (1000, 20, "s", "{}", token(4), token(4)), UNLIMITED)),
        Call("several", (0, 1), (1000, 20, "s@s0", "{}", token(0), token(0)), UNLIMITED),
        *(ends(0), ends(1), ends(2), LOOK, Call("several", (0,), (1000, 20, "x", "{}", token(5)), UNLIMITED)),
    ],
}


@pytest.fixture(scope="module")
def inboxes(any_server: Server) -> Iterator[Inboxes]:
    with Inboxes(any_server) as subscribed:
        yield subscribed


def compare(any_server: Server, inboxes: Inboxes, steps: list[Callable[[Pair], None]]) -> None:
    """Runs the steps on both sides, and compares after each."""
    inboxes.clear()
    real = VirtualServer(any_server)
    pair = Pair(real, ModelServer(real.now_us), inboxes)
    try:
        for step in steps:
            step(pair)
            pair.compare()
    finally:
        any_server.command("FLUSHALL")


@pytest.mark.parametrize("story", STORIES)
def test_a_story_goes_the_same_way(any_server: Server, inboxes: Inboxes, story: str) -> None:
    compare(any_server, inboxes, STORIES[story])


@pytest.mark.parametrize("modes", MODES, ids=lambda modes: b"-".join(modes).decode())
def test_walks_go_the_same_way(any_server: Server, inboxes: Inboxes, modes: tuple[bytes, ...]) -> None:
    for seed in range(WALKS):
        try:
            compare(any_server, inboxes, walk(modes, seed, LENGTH))
        except AssertionError as difference:
            difference.add_note(f"walk({modes}, {seed}, {LENGTH})")
            raise


@pytest.mark.parametrize("modes", MODES, ids=lambda modes: b"-".join(modes).decode())
@given(data=st.data())
@settings(
    max_examples=50,
    report_multiple_bugs=False,
    phases=(Phase.explicit, Phase.generate, Phase.shrink),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_scripts_answer_tell_and_store_what_the_model_does(
    any_server: Server, inboxes: Inboxes, modes: tuple[bytes, ...], data: st.DataObject
) -> None:
    compare(any_server, inboxes, data.draw(sequences(modes)))
