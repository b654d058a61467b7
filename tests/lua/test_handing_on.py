"""Leases that move to another process, holders that are asked, jobs that run once in a while, several locks at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.lua.inboxes import Inboxes
from tests.lua.virtual import PREFIX, VirtualServer, again_key, lock_keys, member_keys, plain, token, waiter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.harness.servers import Server

K, OTHER = b"ns:job", b"ns:other"
MAIN = K
CHANNEL = PREFIX + b"in"


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


# Adopting


def test_an_adopted_lease_goes_on_and_its_old_token_learns_that_it_has_moved(real: VirtualServer) -> None:
    fence = take(real, 1, "x")[1]
    since = real.now
    real.now_us += 500_000
    words = (0, token(1), token(2), 1000, 20, "@sin.7f", "{}")
    for _ in range(2):
        assert real.run("adopt", lock_keys(K), words)[2] == [b"adopted", fence, b"x"]
    assert real.renew(K, token(1)) == b"moved"
    assert real.release(K, token(1))[0] == real.release(K, token(1), verb="withdraw")[0] == b"moved"
    assert real.renew(K, token(2)) == b"renewed"
    value: Any = real.state()[MAIN][1]
    assert value.split(b" ")[1:3] == [fence, b"%d" % since]


def test_an_adopted_place_is_one_place(real: VirtualServer) -> None:
    fence = take(real, 1, "n2", ttl=5000)[1]
    for _ in range(2):
        answer = real.run("adopt", lock_keys(K), (0, token(1), token(2), 1000, 20, "", "{}"))[2]
        assert answer == [b"adopted", fence, b"n2"]
    left: Any = real.run("inspect", lock_keys(K), (0, 10))[4]
    assert left[1::2] == [5020], "one place, and it does not end earlier"
    assert take(real, 3, "n2")[0] == b"granted"
    assert take(real, 4, "n2")[0] == b"busy"
    assert real.renew(K, token(1), shared=True) == b"gone"


# Asking


def test_those_who_hold_are_asked_and_a_hundred_at_the_most(real: VirtualServer, inboxes: Inboxes) -> None:
    for number in range(120):
        take(real, number, "s")
    answer: Any = real.run("ask", member_keys(K), ('{"h":"a b"}',))
    assert answer[2:4] == [b"told", 100]
    assert [message for _, message in inboxes.received()] == [
        b"asked " + token(number) + b' {"h":"a b"}' for number in range(100)
    ]
    assert take(real, 200, "x")[5] == -1, "nobody was asked"
    asking = waiter(token(200), flags="x@sin", ask="1", info="{}")
    busy: Any = real.run("acquire", lock_keys(K), (0, *asking))[2]
    assert busy[5] == 100


@pytest.mark.parametrize(("heard", "on"), [(1, True), (0, False)])
def test_an_asker_learns_whether_it_was_heard(real: VirtualServer, inboxes: Inboxes, heard: int, on: bool) -> None:
    take(real, 1, "x")
    if not on:
        inboxes.unsubscribe(CHANNEL)
    asking = waiter(token(2), flags="x@sin", ask="1")
    busy: Any = real.run("acquire", lock_keys(K), (0, *asking))[2]
    assert busy[5] == heard
    assert real.run("ask", member_keys(K), ("{}",))[2:4] == [b"told", heard]


def test_a_refused_question_is_not_known_to_be_heard(any_server: Server) -> None:
    plain(any_server.admin, "acquire", lock_keys(K), (0, *waiter(token(1), ttl=60_000, flags="x@sin")))
    any_server.acl_user("mute", "pw", "~*", "resetchannels", "+@all")
    mute: Any = any_server.client(username="mute", password="pw")
    try:
        assert plain(mute, "ask", member_keys(K), ("{}",))[2:4] == [b"told", -1]
    finally:
        any_server.command("ACL", "DELUSER", "mute")


# Once, and several


def test_once_is_granted_again_when_its_time_is_over(real: VirtualServer) -> None:
    def once(number: int) -> Any:  # noqa: ANN401 - a reply
        return real.run("once", (*lock_keys(K), again_key(K)), (0, *waiter(token(number)), 800))[2]

    first = once(1)
    assert first[0] == b"granted"
    assert once(1) == first, "the same try is told the same"
    real.release(K, token(1))
    again = once(2)
    assert again[:2] == [b"again", 800]
    assert again[2].split(b" ")[1] == first[1]
    real.now_us += 800_000
    assert once(2)[:2] == [b"again", 0]
    real.now_us += 1000
    assert once(2)[0] == b"granted"


@pytest.mark.parametrize("flags", ["x", "s"])
def test_several_are_taken_at_once_or_not_at_all(real: VirtualServer, flags: str) -> None:
    keys = (*lock_keys(OTHER), *lock_keys(K))
    words = (0, 1000, 20, f"{flags}@sin", "{}", token(1), token(2))
    take(real, 9, "x")
    before = real.state()
    assert real.run("several", keys, words)[2] == [b"held", 1]
    assert real.state() == before
    real.release(K, token(9))
    granted: Any = real.run("several", keys, words)[2]
    assert granted[0] == b"granted"
    assert real.run("several", keys, words)[2] == granted, "the same tokens are told the same"
    assert [real.renew(name, who, shared=flags == "s") for name, who in ((OTHER, token(1)), (K, token(2)))] == [
        b"renewed",
        b"renewed",
    ]


def test_several_pass_nobody_who_waits(real: VirtualServer) -> None:
    take(real, 1, "s")
    take(real, 2, "x", life=50_000)
    words = (0, 1000, 20, "s@sin", "{}", token(3))
    assert real.run("several", lock_keys(K), words)[2] == [b"held", 0]
