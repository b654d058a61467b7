"""Sequences of steps: a few tokens, each with a way of holding of its own, on two locks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import strategies as st

from tests.lua.steps import LOCKS, UNLIMITED, Break, Call, Crowd, Fence, Forget, Line, Listen, Meddle, Renew, Tick
from tests.lua.virtual import token

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.lua.steps import Pair
    from tests.lua.virtual import Word

MODES = (
    (b"x",),
    (b"s",),
    (b"s", b"s", b"x"),
    (b"n2",),
    (b"n1", b"n1", b"n3"),
    (b"x", b"s", b"n2"),
)
"""Ways of holding that a sequence mixes: the first is that of token 0, and so on."""
TOKENS = 6
HEARD = (b"s0", b"p0", b"s1")
TAILS = (b"", *(b"@" + inbox for inbox in HEARD), b"@s0", b"@s9", b"@s0.7f3a")
FOREIGN = (
    *(b"somebody", b"", b"tenure2:later", b"tenure:none", b"\xff\x00\r\n"),
    # Under our mark, and yet no lease.
    *(b"tenure1:", b"tenure1:" + token(0), b"tenure1:" + token(0) + b" x y z {}"),
    # Nearly markers.
    *(b"tenure1:s5 7 7", b"tenure1:n 7 7", b"tenure1:n2 7", b"tenure1:s 7 7 x", b"tenure1:x 7 7"),
)
INFOS = (b"{}", b'{"h":"a b","n":"x y"}', "größe %s %d".encode(), b"")

HEAR_ALL: list[Callable[[Pair], None]] = [Listen(inbox, on=True) for inbox in HEARD]

locks = st.integers(0, len(LOCKS) - 1)
numbers = st.integers(0, TOKENS - 1)
tokens = numbers.map(token)
infos = st.sampled_from(INFOS)
tails = st.sampled_from(TAILS)
ttls = st.sampled_from([50, 1000, 20_000_000])
graces = st.sampled_from([0, 20])
not_after = st.sampled_from([UNLIMITED, UNLIMITED, UNLIMITED, UNLIMITED, -1, 0, 1])
one_lock = st.tuples(locks)


@st.composite
def waiters(draw: st.DrawFn, modes: tuple[bytes, ...], number: int = 1) -> tuple[Word, ...]:
    who = draw(numbers)
    life = draw(st.sampled_from([0, 40, 15_000, 15_000]))
    place = draw(st.sampled_from([b"", b"", b"", b"7", b"1000", b"9000000000000000"]))
    flags = modes[who % len(modes)] + draw(tails)
    ask = draw(st.sampled_from([b"", b"", b"1"]))
    return (number, token(who), draw(ttls), draw(graces), life, place, flags, draw(infos), ask)


@st.composite
def acquires(draw: st.DrawFn, modes: tuple[bytes, ...]) -> Call:
    wanted = draw(st.lists(locks, min_size=1, max_size=3))
    # Only locks that somebody wants, numbered in the order in which they are first named.
    order = list(dict.fromkeys(wanted))
    items = [draw(waiters(modes, order.index(lock) + 1)) for lock in wanted]
    return Call("acquire", tuple(order), tuple(word for item in items for word in item), draw(not_after))


@st.composite
def tries_of_once(draw: st.DrawFn, modes: tuple[bytes, ...]) -> Call:
    words = list(draw(waiters(modes)))
    words[4] = 0
    return Call("once", draw(one_lock), (*words, draw(st.sampled_from([0, 1, 900]))), draw(not_after))


@st.composite
def tries_of_several(draw: st.DrawFn, modes: tuple[bytes, ...]) -> Call:
    first = draw(numbers)
    mode = b"s" if modes[first % len(modes)] == b"s" else b"x"
    both = draw(st.booleans())
    terms = (draw(ttls), draw(graces), mode + draw(tails), draw(infos))
    who = (token(first), token((first + len(modes)) % TOKENS))
    return Call("several", (0, 1) if both else (0,), (*terms, *who[: 1 + both]), draw(not_after))


@st.composite
def renewals(draw: st.DrawFn, modes: tuple[bytes, ...]) -> Renew:
    lease = st.tuples(locks, tokens, st.sampled_from([10, 1000, 5000]), graces)
    leases = draw(st.lists(lease, min_size=1, max_size=3))
    exclusive = tuple(one for one in leases if modes[int(one[1]) % len(modes)] == b"x")
    return Renew(exclusive, tuple(one for one in leases if one not in exclusive), draw(not_after))


@st.composite
def announcements(draw: st.DrawFn) -> Call:
    wanted = draw(st.lists(locks, min_size=1, max_size=3))
    rows = [(draw(tokens), draw(tails), draw(infos)) for _ in wanted]
    return Call("announce", tuple(wanted), tuple(word for row in rows for word in row))


@st.composite
def adoptions(draw: st.DrawFn) -> Call:
    pair = draw(st.lists(tokens, min_size=2, max_size=2, unique=True))
    terms = (draw(ttls), draw(graces), draw(tails), draw(infos))
    return Call("adopt", draw(one_lock), (*pair, *terms), draw(not_after))


endings = st.builds(Call, st.sampled_from(["release", "withdraw"]), one_lock, st.tuples(tokens))
amounts = st.sampled_from([0, 2, 100])
looks = st.builds(Call, st.just("inspect"), one_lock, st.tuples(amounts, amounts))
questions = st.builds(Call, st.just("ask"), one_lock, st.tuples(infos))
ticks = st.one_of(
    st.builds(Tick, st.sampled_from([0, 1, 999, 1000, 30_000, 700_000, 20_000_000, -1, -2_500_000])),
    st.builds(Tick, st.sampled_from([0, 999, 1000]), st.integers(0, 7)),
)
lives = st.sampled_from([None, 60])
meddling = st.one_of(
    st.builds(Meddle, locks, st.just(0), st.sampled_from(FOREIGN), life=lives),
    st.builds(Meddle, locks, st.sampled_from([0, 3]), st.just(b"item"), st.just("list"), lives),
    st.builds(Meddle, locks, st.integers(0, 4), st.none()),
    st.builds(Meddle, locks, st.just(3), st.sampled_from([b"", b"x", b"-5", b"12", b"1e3", b" 7"])),
    st.builds(Fence, locks, st.sampled_from([-5, 0, 1, 86_400_000_000, 86_400_000_001])),
    st.builds(Forget, locks, tokens),
)
listening = st.builds(Listen, st.sampled_from(HEARD), st.booleans())
breaking = st.builds(Break, locks, st.sampled_from(["any", "any", "newest", "first", "wrong"]), st.booleans())


def crowds(modes: tuple[bytes, ...]) -> st.SearchStrategy[Crowd | Line]:
    """Many members, or many waiters, of the ways of holding of this sequence."""
    flags = st.sampled_from([mode + tail for mode in modes for tail in (b"@s0", b"@s9", b"")])
    counts = st.sampled_from([3, 120, 250])
    members = st.builds(Crowd, locks, counts, st.sampled_from([-1, 0, 500]), flags)
    return st.one_of(members, st.builds(Line, locks, counts, st.sampled_from([-1, 0, 15_000]), flags))


def sequences(modes: tuple[bytes, ...]) -> st.SearchStrategy[list[Callable[[Pair], None]]]:
    """Any calls by tokens that hold in these ways, with everything around them that can change."""
    taking = acquires(modes)
    steps = st.lists(
        st.one_of(
            *(taking, taking, taking, taking, endings, endings, renewals(modes), listening),
            *(tries_of_once(modes), tries_of_several(modes), announcements(), adoptions(), looks, questions),
            *(ticks, ticks, meddling, breaking, crowds(modes)),
        ),
        min_size=4,
        max_size=25,
    )
    return st.one_of(steps, steps.map(lambda drawn: [*HEAR_ALL, *drawn]))
