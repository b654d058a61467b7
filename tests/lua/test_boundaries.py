"""The last millisecond of everything that ends, and fences that rise whatever happens to the clock and the keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.lua.inboxes import Inboxes
from tests.lua.virtual import PREFIX, VirtualServer, lock_keys, plain, plain_acquire, token, waiter

if TYPE_CHECKING:
    from tests.harness.servers import Server

K = b"ns:job"
MAIN, QUEUE, ENTRY, FENCE, SHARED = lock_keys(K)
DAY_US = 86_400_000_000


@pytest.fixture
def real(any_server: Server) -> VirtualServer:
    return VirtualServer(any_server)


def clock(server: Server) -> int:
    """The server's own clock in whole milliseconds."""
    seconds, micros = server.command("TIME")
    return int(seconds) * 1000 + int(micros) // 1000


def test_a_key_exists_up_to_and_including_its_last_millisecond(any_server: Server) -> None:
    look = "local t = redis.call('TIME') return {redis.call('EXISTS', KEYS[1]), t[1] * 1000 + math.floor(t[2] / 1000)}"
    looks = 0
    while not looks:
        # Another key when a machine that stands still has let all the life of this one pass before the first look.
        plain(any_server.admin, "acquire", lock_keys(K), (0, *waiter(token(1), ttl=1000, grace=10)))
        end: int = any_server.command("PEXPIRETIME", K)
        while True:
            # The server takes the time for expiry between these two instants, however slow the machine is.
            before = clock(any_server)
            exists, now = any_server.command("EVAL", look, 1, K)
            if not exists:
                assert now > end
                break
            assert before <= end
            looks += 1


def test_a_reply_carries_the_time_of_the_server(any_server: Server) -> None:
    before = clock(any_server)
    reply: list[Any] = plain(any_server.admin, "acquire", lock_keys(K), (0, *waiter(token(1), ttl=60_000)))
    assert before <= reply[1] <= clock(any_server)
    assert any_server.command("PEXPIRETIME", K) == reply[1] + 60_020
    assert reply[1] * 1000 <= int(reply[2][1]) < (reply[1] + 1) * 1000


@pytest.mark.parametrize(("late_ms", "answer"), [(-1, b"granted"), (0, b"granted"), (1, b"late")])
def test_a_request_counts_up_to_its_not_after(real: VirtualServer, late_ms: int, answer: bytes) -> None:
    assert real.acquire(K, token(1), not_after=real.now - late_ms)[0] == answer
    assert (MAIN in real.state()) is (answer == b"granted")


@pytest.mark.parametrize(("late_ms", "answer"), [(0, b"renewed"), (1, b"late")])
def test_a_late_renewal_moves_nothing(real: VirtualServer, late_ms: int, answer: bytes) -> None:
    real.acquire(K, token(1))
    end: Any = real.state()[MAIN][2]
    real.now_us += 500_000
    assert real.renew(K, token(1), not_after=real.now - late_ms) == answer
    assert real.state()[MAIN][2] == (end + 500 if answer == b"renewed" else end)


def test_an_end_never_moves_back(real: VirtualServer) -> None:
    real.acquire(K, token(1), ttl=1000)
    end = real.state()[MAIN][2]
    assert real.renew(K, token(1), ttl=100) == b"renewed"
    assert real.acquire(K, token(1), ttl=100)[0] == b"granted"
    assert real.state()[MAIN][2] == end


@pytest.mark.parametrize(("past_ms", "holder"), [(0, token(2)), (1, token(3))])
def test_a_waiter_lives_up_to_the_end_of_its_entry(
    real: VirtualServer, any_server: Server, past_ms: int, holder: bytes
) -> None:
    with Inboxes(any_server) as inboxes:
        inboxes.subscribe(PREFIX + b"in")
        real.acquire(K, token(1))
        real.acquire(K, token(2), life=100, flags="x@sin")
        real.acquire(K, token(3), life=900, flags="x@sin")
        real.now_us += (100 + past_ms) * 1000
        assert real.release(K, token(1)) == [b"released", 0, 0]
        assert real.renew(K, holder) == b"renewed"


def test_queue_keys_outlive_the_longest_entry_twice(real: VirtualServer, any_server: Server) -> None:
    with Inboxes(any_server) as inboxes:
        inboxes.subscribe(PREFIX + b"in")
        real.acquire(K, token(1), ttl=60_000)
        real.acquire(K, token(2), life=5000, flags="x@sin")
        real.acquire(K, token(3), life=100, flags="x@sin")
        state = real.state()
        assert state[QUEUE][2] == state[ENTRY][2] == real.now + 10_000
        # Each poll gives them their full life again.
        real.now_us += 1_000_000
        real.acquire(K, token(2), life=5000, flags="x@sin")
        state = real.state()
        assert state[QUEUE][2] == state[ENTRY][2] == real.now + 10_000


def test_a_clock_that_steps_back_lets_nobody_in_front(real: VirtualServer, any_server: Server) -> None:
    with Inboxes(any_server) as inboxes:
        inboxes.subscribe(PREFIX + b"in")
        real.acquire(K, token(1), ttl=60_000)
        for number in (2, 3, 4):
            assert real.acquire(K, token(number), life=90_000, flags="x@sin")[2] == number - 2
            real.now_us -= 1_000_000


# Fences


def fence(answer: Any) -> int:  # noqa: ANN401 - a reply
    assert answer[0] == b"granted", answer
    assert answer[1].isdigit()
    return int(answer[1])


def test_a_fence_is_the_time_in_microseconds(real: VirtualServer) -> None:
    real.now_us = real.now_us // 1_000_000 * 1_000_000 + 7
    assert fence(real.acquire(K, token(1))) == real.now_us


@pytest.mark.parametrize("accident", [("DEL", FENCE), ("FLUSHALL",)])
def test_a_fence_rises_over_the_loss_of_its_key(real: VirtualServer, accident: tuple[str, ...]) -> None:
    first = fence(real.acquire(K, token(1)))
    real.command(*accident)
    real.command("DEL", MAIN)
    real.now_us += 1
    assert fence(real.acquire(K, token(2))) > first


def test_a_fence_rises_while_the_clock_stands_or_steps_back(real: VirtualServer) -> None:
    given: list[int] = []
    for number, step in enumerate((0, 0, -5_000_000, 0, 1)):
        real.now_us += step
        given.append(fence(real.acquire(K, token(number))))
        real.release(K, token(number))
    assert given == [given[0] + number for number in range(5)]


def test_a_fence_outlives_its_lease_by_a_day_or_ten_ttls(real: VirtualServer) -> None:
    real.acquire(K, token(1), ttl=1000)
    assert real.state()[FENCE][2] == real.now + 86_400_000
    real.release(K, token(1))
    real.acquire(K, token(2), ttl=86_400_000)
    assert real.state()[FENCE][2] == real.now + 864_000_000


def test_a_fence_a_day_ahead_is_still_believed(real: VirtualServer) -> None:
    real.command("SET", FENCE, real.now_us + DAY_US)
    assert fence(real.acquire(K, token(1))) == real.now_us + DAY_US + 1


@pytest.mark.parametrize("stored", ["", "seven", "-1", "1e3", "ahead"])
def test_no_grant_rather_than_a_fence_that_stops_rising(real: VirtualServer, stored: str) -> None:
    real.command("SET", FENCE, real.now_us + DAY_US + 1 if stored == "ahead" else stored, "PXAT", real.now + 10_000)
    before = real.state()
    answer: list[Any] = real.acquire(K, token(1))
    assert answer[0] == b"conflict"
    assert b"fence" in answer[1]
    assert real.state() == before


def test_the_same_token_is_given_the_same_fence(real: VirtualServer) -> None:
    first = fence(real.acquire(K, token(1)))
    real.now_us += 900_000
    assert fence(real.acquire(K, token(1))) == first
    assert real.state()[MAIN][2] == real.now + 1020


def test_only_the_whole_token_is_the_right_to_a_lease(any_server: Server) -> None:
    plain_acquire(any_server.admin, K, token(1))
    for other in (token(1)[:-1], token(1) + b"0", b""):
        assert plain(any_server.admin, "release", lock_keys(K), (other,))[2] == b"taken"
        assert plain(any_server.admin, "renew", (K,), (0, 1, other, 1, 1))[2] == b"taken"
    assert any_server.command("EXISTS", K)
