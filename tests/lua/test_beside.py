"""Holding beside others: readers with readers, as many as a semaphore has places, and what keeps the others out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.lua.inboxes import Inboxes
from tests.lua.virtual import PREFIX, VirtualServer, lock_keys, token

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.harness.servers import Server

K = b"ns:job"
MAIN, QUEUE, ENTRY, FENCE, SHARED = lock_keys(K)
CHANNEL = PREFIX + b"in"
LINGER = 120_000


@pytest.fixture
def real(any_server: Server) -> VirtualServer:
    return VirtualServer(any_server)


@pytest.fixture(autouse=True)
def inboxes(any_server: Server) -> Iterator[Inboxes]:
    with Inboxes(any_server) as subscribed:
        subscribed.subscribe(CHANNEL)
        yield subscribed


def take(real: VirtualServer, number: int, flags: str, *, ttl: int = 1000, life: int = 0) -> Any:  # noqa: ANN401 - a reply
    """A try, or a wait, for the lock."""
    return real.acquire(K, token(number), ttl=ttl, life=life, flags=f"{flags}@sin")


def holders(real: VirtualServer) -> list[int]:
    """The milliseconds that are left to each holder, in the order in which they end."""
    found: Any = real.run("inspect", lock_keys(K), (0, 1000))[4]
    return found[1::2]


def renewed(real: VirtualServer, *numbers: int) -> bool:
    """Whether all of them hold beside others."""
    return all(real.renew(K, token(number), shared=True) == b"renewed" for number in numbers)


# Readers and writers


def test_readers_share_the_lock_and_its_fence_and_a_later_writer_has_a_higher_one(real: VirtualServer) -> None:
    first, second = take(real, 1, "s"), take(real, 2, "s")
    assert first[:2] == second[:2] == [b"granted", first[1]]
    assert take(real, 3, "x")[0] == b"busy"
    assert real.release(K, token(1))[0] == real.release(K, token(2))[0] == b"released"
    writer = take(real, 3, "x")
    assert writer[0] == b"granted"
    assert int(writer[1]) > int(first[1])


def test_a_writer_that_waits_stops_later_readers(real: VirtualServer) -> None:
    take(real, 1, "s")
    assert take(real, 2, "x", life=50_000)[0] == b"queued"
    assert take(real, 3, "s")[:2] == [b"busy", 1]
    assert take(real, 3, "s", life=50_000)[2] == 1
    # Who holds already asks again and keeps what it has.
    assert take(real, 1, "s")[0] == b"granted"


def test_all_readers_at_the_head_are_let_in_by_one_release_and_told_once(real: VirtualServer, inboxes: Inboxes) -> None:
    take(real, 1, "x")
    for number, flags in enumerate(("s", "s", "s", "x", "s"), start=2):
        take(real, number, flags, life=50_000)
    assert real.release(K, token(1)) == [b"released", 0, 0]
    told = [message.split(b" ") for _, message in inboxes.received()]
    assert [words[1] for words in told] == [token(2), token(3), token(4)]
    assert len({words[3] for words in told}) == 1, "they share a fence"
    assert renewed(real, 2, 3, 4)
    assert [who for _, who in take_queue(real)] == [token(5), token(6)]
    for number in (2, 3, 4):
        real.release(K, token(number))
    assert real.renew(K, token(5)) == b"renewed"


def take_queue(real: VirtualServer) -> Any:  # noqa: ANN401 - as the server keeps it
    """Who waits."""
    return real.state()[QUEUE][1]


def test_a_hundred_readers_are_let_in_by_one_call_and_the_reply_says_that_there_are_more(real: VirtualServer) -> None:
    take(real, 1, "x")
    for number in range(100, 350):
        take(real, number, "s", life=50_000)
    assert real.release(K, token(1)) == [b"released", 1, 0]
    assert len(holders(real)) == 100
    # Whoever goes on has nothing left to release.
    assert real.release(K, token(1)) == [b"taken", 1, 0]
    assert real.release(K, token(1)) == [b"taken", 0, 0]
    assert len(holders(real)) == 250
    assert QUEUE not in real.state()


def test_readers_behind_the_first_come_in_with_it(real: VirtualServer, inboxes: Inboxes) -> None:
    take(real, 1, "x")
    for number in (2, 3, 4):
        take(real, number, "s", life=50_000)
    real.now_us += 1_021_000
    assert take(real, 2, "s", life=50_000)[0] == b"granted"
    assert [message.split(b" ")[1] for _, message in inboxes.received()] == [token(3), token(4)]


def test_a_writer_that_gives_up_lets_in_those_whom_it_kept_out(real: VirtualServer, inboxes: Inboxes) -> None:
    take(real, 1, "s")
    take(real, 2, "x", life=50_000)
    take(real, 3, "s", life=50_000)
    assert take(real, 2, "x")[:2] == [b"busy", 0]
    assert [message.split(b" ")[1] for _, message in inboxes.received()] == [token(3)]
    assert renewed(real, 1, 3)


def test_a_writer_that_died_keeps_nobody_out(real: VirtualServer, inboxes: Inboxes) -> None:
    inboxes.subscribe(PREFIX + b"dead")
    take(real, 1, "s")
    real.acquire(K, token(2), life=50_000, flags="x@sdead")
    take(real, 3, "s", life=50_000)
    inboxes.unsubscribe(PREFIX + b"dead")
    assert take(real, 4, "s")[0] == b"granted"
    assert renewed(real, 1, 3, 4)


def test_a_reader_that_is_not_reached_leaves_no_trace(real: VirtualServer, inboxes: Inboxes) -> None:
    inboxes.subscribe(PREFIX + b"dead")
    take(real, 1, "x")
    take(real, 2, "s", life=50_000)
    real.acquire(K, token(3), ttl=90_000, life=50_000, flags="s@sdead")
    inboxes.unsubscribe(PREFIX + b"dead")
    assert real.release(K, token(1)) == [b"released", 0, 0]
    state = real.state()
    assert state[SHARED][1] == [(real.now + 1020, token(2))]
    assert state[MAIN][2] == real.now + 1020, "the key ends with the last who holds"
    assert list(dict(real.command("HGETALL", ENTRY))) == [token(2)]


# Ends


@pytest.mark.parametrize(("past_ms", "writer"), [(0, b"busy"), (1, b"granted")])
def test_a_writer_comes_in_when_the_last_millisecond_of_the_last_reader_is_over(
    real: VirtualServer, past_ms: int, writer: bytes
) -> None:
    take(real, 1, "s", ttl=500)
    take(real, 2, "s", ttl=1000)
    real.now_us += (1020 + past_ms) * 1000
    assert real.renew(K, token(1), shared=True) == b"gone"
    assert take(real, 3, "x")[0] == writer


@pytest.mark.parametrize("past_ms", [0, 1])
def test_a_place_is_held_up_to_and_including_its_last_millisecond(real: VirtualServer, past_ms: int) -> None:
    take(real, 1, "n2", ttl=500)
    take(real, 2, "n2", ttl=1000)
    real.now_us += (520 + past_ms) * 1000
    assert take(real, 3, "n2")[0] == (b"granted" if past_ms else b"busy")
    assert real.renew(K, token(1), shared=True) == (b"gone" if past_ms else b"renewed")
    assert renewed(real, 2)


def test_a_dead_holder_frees_its_own_place_and_no_other(real: VirtualServer) -> None:
    for number in (1, 2, 3):
        assert take(real, number, "n3", ttl=300 if number == 2 else 2000)[0] == b"granted"
    assert take(real, 4, "n3")[0] == b"busy"
    real.now_us += 321_000
    assert take(real, 4, "n3")[0] == b"granted"
    assert take(real, 5, "n3")[0] == b"busy"
    assert renewed(real, 1, 3, 4)
    assert dict(real.command("HGETALL", ENTRY)).keys() == {token(1), token(3), token(4)}


def test_waiters_are_told_when_the_way_may_be_free(real: VirtualServer) -> None:
    take(real, 1, "s", ttl=500)
    take(real, 2, "s", ttl=1000)
    assert take(real, 3, "x")[2] == 1020, "a reader's lock is free when the last has ended"
    for number in (1, 2):
        real.release(K, token(number))
    take(real, 1, "n2", ttl=500)
    take(real, 2, "n2", ttl=1000)
    assert take(real, 3, "n2")[2] == 520, "a semaphore has room when the first has ended"


def test_the_key_ends_with_the_last_who_holds_and_everything_has_an_end(real: VirtualServer) -> None:
    for flags in ("s", "n2"):
        take(real, 1, flags, ttl=5000)
        take(real, 2, flags, ttl=1000)
        state = real.state()
        assert state[MAIN][2] == real.now + 5020
        assert state[SHARED][2] == real.now + 5020 + LINGER
        assert state[ENTRY][2] == real.now + 5020
        real.release(K, token(1))
        assert real.state()[MAIN][2] == real.now + 1020, "and earlier when that one has left"
        assert all(end is not None for _, _, end in real.state().values())
        real.release(K, token(2))
        assert sorted(real.state()) == [FENCE]


def test_a_renewal_never_moves_an_end_back(real: VirtualServer) -> None:
    take(real, 1, "s", ttl=5000)
    assert real.renew(K, token(1), ttl=10, shared=True) == b"renewed"
    assert take(real, 1, "s", ttl=10)[0] == b"granted"
    assert holders(real) == [5020]


def test_waiters_that_join_leave_the_records_of_holders_their_life(real: VirtualServer) -> None:
    take(real, 1, "s", ttl=60_000)
    take(real, 2, "x", life=100)
    assert real.state()[ENTRY][2] == real.now + 60_020
    assert real.state()[QUEUE][2] == real.now + 3_600_000, "it names those whose entries are to be dropped"


# Many


def put_dead(real: VirtualServer, count: int) -> None:
    """Members whose leases are over, with their records."""
    for first in range(0, count, 1000):
        numbers = [token(1_000_000 + number) for number in range(first, min(first + 1000, count))]
        real.command("ZADD", SHARED, *(word for who in numbers for word in (real.now - 1, who)))
        real.command("HSET", ENTRY, *(word for who in numbers for word in (who, b"h 7 7 s {}")))


def test_the_dead_are_cleaned_up_a_hundred_a_call(real: VirtualServer) -> None:
    take(real, 1, "s")
    put_dead(real, 250)
    left = [real.command("ZCARD", SHARED)]
    for number in (2, 3, 4):
        take(real, number, "s")
        left.append(real.command("ZCARD", SHARED))
    assert left == [251, 152, 53, 4]
    assert real.command("HLEN", ENTRY) == 4


@pytest.mark.parametrize("flags", ["s", "n2"])
def test_what_ten_thousand_have_left_behind_stops_nobody(real: VirtualServer, flags: str) -> None:
    put_dead(real, 10_000)
    assert take(real, 1, flags)[0] == b"granted"
    assert (real.command("ZCARD", SHARED), real.command("HLEN", ENTRY)) == (1, 1)


def test_the_last_of_many_takes_all_traces_along(real: VirtualServer) -> None:
    take(real, 1, "s")
    put_dead(real, 10_000)
    assert real.release(K, token(1))[0] == b"released"
    assert sorted(real.state()) == [FENCE]


def test_records_of_those_who_died_together_go_with_the_next_lease(real: VirtualServer) -> None:
    for number in (1, 2, 3):
        take(real, number, "n3")
    take(real, 4, "n3", life=50_000)
    real.now_us += 1_021_000
    # The lock has ended by itself, and the waiters keep the entries alive.
    assert MAIN not in real.state()
    assert take(real, 4, "n3", life=50_000)[0] == b"granted"
    assert list(dict(real.command("HGETALL", ENTRY))) == [token(4)]


def test_a_token_that_waits_again_is_not_cleaned_up_as_dead(real: VirtualServer) -> None:
    take(real, 1, "s", ttl=100)
    take(real, 2, "s")
    take(real, 3, "x", life=50_000)
    real.now_us += 121_000
    assert take(real, 1, "s", life=50_000)[0] == b"queued"
    real.release(K, token(2))
    real.release(K, token(3))
    assert renewed(real, 1)


# Use and limits


@pytest.mark.parametrize(
    ("held", "wanted", "answer"),
    [
        ("n2", "n3", [b"limit", 2]),
        ("n2", "s", [b"conflict", b"the name is in use as a semaphore"]),
        ("n2", "x", [b"conflict", b"the name is in use as a semaphore"]),
        ("s", "n2", [b"conflict", b"the name is in use as an exclusive or shared lock"]),
        ("x", "n2", [b"conflict", b"the name is in use as an exclusive or shared lock"]),
    ],
)
def test_a_name_has_one_use_at_a_time(real: VirtualServer, held: str, wanted: str, answer: list[Any]) -> None:
    take(real, 1, held)
    before = real.state()
    assert take(real, 2, wanted) == take(real, 2, wanted, life=50_000) == answer
    assert real.state() == before
    real.release(K, token(1))
    assert take(real, 2, wanted)[0] == b"granted"


def test_each_place_of_a_semaphore_has_its_own_fence(real: VirtualServer) -> None:
    fences = [int(take(real, number, "n3")[1]) for number in (1, 2, 3)]
    assert fences == sorted(set(fences))


@pytest.mark.parametrize("flags", ["s", "n2"])
def test_a_part_of_the_value_is_no_token(real: VirtualServer, flags: str) -> None:
    take(real, 1, flags)
    before = real.state()
    for verb in ("release", "withdraw"):
        assert real.release(K, flags.encode(), verb=verb)[0] == b"taken"
    assert real.renew(K, flags.encode()) == b"taken"
    assert real.renew(K, flags.encode(), shared=True) == b"gone"
    assert real.state() == before
