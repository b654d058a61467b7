"""Who gets a lock that becomes free: the living in their order, the dead skipped in the same call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.lua.inboxes import Inboxes
from tests.lua.virtual import PREFIX, VirtualServer, lock_keys, plain, plain_acquire, token

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.harness.servers import Server

K = b"ns:job"
MAIN, QUEUE, ENTRY, FENCE, SHARED = lock_keys(K)
CHANNEL = PREFIX + b"in"

both_kinds = pytest.mark.parametrize("kind", ["s", "p"])


@pytest.fixture
def real(any_server: Server) -> VirtualServer:
    return VirtualServer(any_server)


@pytest.fixture
def inboxes(any_server: Server) -> Iterator[Inboxes]:
    with Inboxes(any_server) as subscribed:
        yield subscribed


def queue_up(real: VirtualServer, *numbers: int, flags: str = "x@sin", life: int = 50_000) -> None:
    for number in numbers:
        assert real.acquire(K, token(number), life=life, flags=flags)[0] == b"queued"


@both_kinds
def test_release_grants_to_the_first_waiter_and_tells_it_once(real: VirtualServer, inboxes: Inboxes, kind: str) -> None:
    inboxes.subscribe(CHANNEL, kind=kind.encode())
    real.acquire(K, token(1))
    queue_up(real, 2, 3, flags=f"x@{kind}in")
    assert real.release(K, token(1)) == [b"released", 0, 0]
    ((channel, message),) = inboxes.received()
    words = message.split(b" ")
    assert (channel, words[:2], words[4:]) == (CHANNEL, [b"granted", token(2)], [b"1", K])
    assert (int(words[2]), words[3]) == (real.now_us, real.state()[b"{ns:job}:fence"][1])
    assert real.renew(K, token(2)) == b"renewed"
    assert real.state()[QUEUE][1] == [(real.now_us + 1, token(3))]


@both_kinds
def test_a_pattern_subscriber_does_not_make_the_dead_look_alive(
    real: VirtualServer, any_server: Server, inboxes: Inboxes, kind: str
) -> None:
    inboxes.subscribe(CHANNEL, kind=kind.encode())
    with Inboxes(any_server) as operator:
        operator.subscribe(b"*", kind=b"*")
        real.acquire(K, token(1))
        queue_up(real, 2, flags=f"x@{kind}in")
        inboxes.unsubscribe(CHANNEL, kind=kind.encode())
        assert real.acquire(K, token(3), life=100, flags=f"x@{kind}in") == [b"subscribe"]
        assert real.release(K, token(1)) == [b"released", 0, 0]
        assert sorted(real.state()) == [b"{ns:job}:fence"]


def test_dead_waiters_are_skipped_in_the_same_call(real: VirtualServer, inboxes: Inboxes) -> None:
    inboxes.subscribe(CHANNEL)
    inboxes.subscribe(PREFIX + b"dead")
    real.acquire(K, token(1))
    queue_up(real, *range(2, 30), flags="x@sdead")
    queue_up(real, 50)
    inboxes.unsubscribe(PREFIX + b"dead")
    assert real.release(K, token(1)) == [b"released", 0, 0]
    assert real.renew(K, token(50)) == b"renewed"
    assert sorted(real.state()) == [MAIN, b"{ns:job}:fence"]


def test_more_than_a_hundred_dead_heads_are_dropped_a_hundred_a_call(real: VirtualServer, inboxes: Inboxes) -> None:
    inboxes.subscribe(CHANNEL)
    real.acquire(K, token(1))
    queue_up(real, *range(100, 350), life=1)
    queue_up(real, 2)
    real.now_us += 10_000
    assert real.release(K, token(1)) == [b"released", 1, 0]
    assert real.command("ZCARD", QUEUE) == 151
    assert real.release(K, token(1)) == [b"gone", 1, 0]
    # A try that meets the last of them goes on for itself: it is behind the living one, which is served.
    assert real.acquire(K, token(9))[:2] == [b"busy", 0]
    assert real.renew(K, token(2)) == b"renewed"
    assert sorted(real.state()) == [MAIN, b"{ns:job}:fence"]


def test_an_acquire_says_more_as_long_as_dead_heads_are_left(real: VirtualServer, inboxes: Inboxes) -> None:
    inboxes.subscribe(CHANNEL)
    real.acquire(K, token(1))
    queue_up(real, *range(100, 250), life=1)
    # One that has left lets the queue's keys live on.
    queue_up(real, 2)
    real.release(K, token(2), verb="withdraw")
    real.command("DEL", K)
    real.now_us += 10_000
    assert real.acquire(K, token(9)) == [b"busy", 50, -1, b"", 1, -1]
    assert real.acquire(K, token(9))[0] == b"granted"


def test_one_try_never_overtakes_and_serves_who_is_ahead(real: VirtualServer, inboxes: Inboxes) -> None:
    inboxes.subscribe(CHANNEL)
    real.acquire(K, token(1))
    queue_up(real, 2)
    real.command("DEL", K)
    assert real.acquire(K, token(3))[:2] == [b"busy", 0]
    assert real.renew(K, token(2)) == b"renewed"
    assert [message.split(b" ")[1] for _, message in inboxes.received()] == [token(2)]


def test_the_callers_own_turn_comes_by_the_reply_and_not_by_a_message(real: VirtualServer, inboxes: Inboxes) -> None:
    inboxes.subscribe(CHANNEL)
    real.acquire(K, token(1))
    queue_up(real, 2)
    real.command("DEL", K)
    assert real.acquire(K, token(2), life=50_000, flags="x@sin")[0] == b"granted"
    assert inboxes.received() == []
    assert sorted(real.state()) == [MAIN, b"{ns:job}:fence"]


def test_a_last_try_leaves_the_queue(real: VirtualServer, inboxes: Inboxes) -> None:
    inboxes.subscribe(CHANNEL)
    real.acquire(K, token(1))
    queue_up(real, 2, 3)
    assert real.acquire(K, token(3))[:2] == [b"busy", 1]
    assert real.state()[QUEUE][1] == [(real.now_us, token(2))]
    assert list(dict(real.command("HGETALL", ENTRY))) == [token(2)]


def test_a_place_is_kept_by_its_score(real: VirtualServer, inboxes: Inboxes) -> None:
    inboxes.subscribe(CHANNEL)
    real.acquire(K, token(1))
    queue_up(real, 2, 3)
    _, score, *_ = real.acquire(K, token(2), life=50_000, flags="x@sin")
    assert isinstance(score, bytes)
    real.release(K, token(2), verb="withdraw")
    # The same waiter under a new token.
    assert real.acquire(K, token(4), life=50_000, flags="x@sin", place=score)[1:3] == [score, 0]
    assert real.command("ZRANGE", QUEUE, 0, -1) == [token(4), token(3)]


def test_withdraw_leaves_neither_a_lease_nor_a_place(real: VirtualServer, inboxes: Inboxes) -> None:
    inboxes.subscribe(CHANNEL)
    real.acquire(K, token(1))
    queue_up(real, 2, 3)
    assert real.release(K, token(2), verb="withdraw")[0] == b"taken"
    assert real.release(K, token(1), verb="withdraw")[0] == b"released"
    assert real.renew(K, token(3)) == b"renewed"
    assert QUEUE not in real.state()


# Messages that the server refuses


@both_kinds
@pytest.mark.parametrize("may_ask", [True, False], ids=["may-ask", "may-not-ask"])
def test_a_refused_message_counts_as_reached_and_the_reply_says_so(
    any_server: Server, inboxes: Inboxes, kind: str, may_ask: bool
) -> None:
    inboxes.subscribe(CHANNEL, kind=kind.encode())
    admin = any_server.admin
    plain_acquire(admin, K, token(1))
    plain_acquire(admin, K, token(2), life=50_000, flags=f"x@{kind}in")
    url = any_server.acl_user("mute", "pw", "~*", "resetchannels", "+@all", "+pubsub" if may_ask else "-pubsub")
    username = {"username": "mute", "password": url.split(":")[2].split("@")[0]}
    mute: Any = any_server.client(**username)
    try:
        assert plain(mute, "release", lock_keys(K), (token(1),))[2:] == [b"released", 0, 1]
    finally:
        any_server.command("ACL", "DELUSER", "mute")
    # It holds all the same: its next poll will tell it.
    assert plain(admin, "renew", (K,), (0, 1, token(2), 1, 1))[2] == b"renewed"
    assert inboxes.received() == []


# Operators


def test_a_broken_lease_stays_until_its_holder_has_acknowledged(real: VirtualServer, inboxes: Inboxes) -> None:
    inboxes.subscribe(CHANNEL)
    real.acquire(K, token(1), flags="x@sin")
    queue_up(real, 2)
    fence: Any = real.state()[b"{ns:job}:fence"][1]
    assert real.run("break", lock_keys(K), (b"5", 0))[2] == b"other"
    for _ in range(2):
        assert real.run("break", lock_keys(K), (fence, 0))[2] == b"revoked"
    assert [message for _, message in inboxes.received()] == [b"revoked " + token(1)] * 2
    assert real.renew(K, token(1)) == b"revoked"
    assert real.acquire(K, token(1)) == [b"revoked"]
    assert real.release(K, token(1)) == [b"released", 0, 0]
    assert real.renew(K, token(2)) == b"renewed"


def test_force_deletes_at_once_and_serves_the_next(real: VirtualServer, inboxes: Inboxes) -> None:
    inboxes.subscribe(CHANNEL)
    real.acquire(K, token(1), flags="x@sin")
    queue_up(real, 2)
    assert real.run("break", lock_keys(K), (b"", 1))[2] == b"deleted"
    assert [message.split(b" ")[:2] for _, message in inboxes.received()] == [
        [b"revoked", token(1)],
        [b"granted", token(2)],
    ]
    assert real.renew(K, token(2)) == b"renewed"


def test_only_force_takes_another_librarys_key(real: VirtualServer) -> None:
    real.command("SET", K, "their token", "PXAT", real.now + 60_000)
    assert real.run("break", lock_keys(K), (b"", 0))[2] == b"foreign"
    assert real.command("GET", K) == b"their token"
    assert real.run("break", lock_keys(K), (b"", 1))[2] == b"deleted"
    assert real.state() == {}
