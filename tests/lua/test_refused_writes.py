"""Writes that the server itself refuses: because it is full, or because its access rules forbid them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import redis
from redis.exceptions import OutOfMemoryError

from tests.harness.waiting import wait_until
from tests.lua.inboxes import Inboxes
from tests.lua.virtual import PREFIX, lock_keys, member_keys, plain, plain_acquire, token

if TYPE_CHECKING:
    from tests.harness.servers import Server

K = b"ns:job"
A, B, C, D = (token(number) for number in range(1, 5))


def fill_up(server: Server) -> None:
    """Lets the server be over its limit of memory, and wait until it says so."""
    server.command("CONFIG", "SET", "maxmemory", 1)

    def full() -> bool:
        try:
            server.command("SET", "testdata:more", "x")
        except OutOfMemoryError:
            return True
        return False

    wait_until(full, 10, "the server to be full")


def renew(client: redis.Redis, who: bytes, flags: str) -> Any:  # noqa: ANN401 - a reply
    """Renews one lease."""
    keys = (K,) if flags == "x" else member_keys(K)
    return plain(client, "renew", keys, (0, int(flags == "x"), who, 90_000, 20))[2]


@pytest.mark.parametrize("flags", ["x", "s", "n1"])
def test_a_full_server_takes_nothing_and_lets_go_of_everything(private_server: Server, flags: str) -> None:
    admin = private_server.admin
    with Inboxes(private_server) as inboxes:
        inboxes.subscribe(PREFIX + b"in")
        plain_acquire(admin, K, A, flags=flags)
        # Readers wait behind a writer.
        plain_acquire(admin, K, B, life=50_000, flags=f"{'x' if flags == 's' else flags}@sin")
        plain_acquire(admin, K, C, life=50_000, flags=f"{flags}@sin")
        plain_acquire(admin, K, D, life=50_000, flags=f"{flags}@sin")
        fill_up(private_server)
        with pytest.raises(OutOfMemoryError):
            plain_acquire(admin, b"ns:other", D)
        assert not private_server.command("KEYS", "*other*")
        # What is held can be kept, and a release frees memory and hands over in the same call.
        assert renew(admin, A, flags) == b"renewed"
        assert plain(admin, "release", lock_keys(K), (A,))[2:] == [b"released", 0, 0]
        assert len(inboxes.received()) == 1
        assert plain(admin, "release", lock_keys(K), (B,))[2] == b"released"
        assert len(inboxes.received()) == (2 if flags == "s" else 1)
        assert renew(admin, C, flags) == b"renewed"
        assert plain(admin, "withdraw", lock_keys(K), (C,))[2] == b"released"


ALWAYS = ("set", "zrem", "hdel", "del")
BESIDE = ("zadd", "hset", "pexpireat")


@pytest.mark.parametrize(
    ("flags", "denied"),
    [("x", word) for word in ALWAYS] + [(flags, word) for flags in ("s", "n1") for word in (*ALWAYS, *BESIDE)],
)
def test_a_hand_over_that_access_rules_stop_leaves_at_most_one_holder(
    any_server: Server, denied: str, flags: str
) -> None:
    admin = any_server.admin
    any_server.acl_user("half", "pw", "~*", "&*", "+@all", f"-{denied}")
    half: Any = any_server.client(username="half", password="pw")
    try:
        with Inboxes(any_server) as inboxes:
            inboxes.subscribe(PREFIX + b"in")
            first: Any = plain_acquire(admin, K, A, flags="n1" if flags == "n1" else "x")
            plain_acquire(admin, K, C, life=50_000, flags=f"{flags}@sin")
            with pytest.raises(redis.ResponseError, match=r"(?i)permission|ACL failure|can't run this command"):
                plain(half, "release", lock_keys(K), (A,))
            assert inboxes.received() == []
            # With the rules mended the same release goes on where the other stopped.
            assert plain(admin, "release", lock_keys(K), (A,))[2] in (b"released", b"gone", b"taken")
            answer: Any = plain_acquire(admin, K, C, life=50_000, flags=f"{flags}@sin")
            assert answer[0] == b"granted"
            assert int(answer[1]) > int(first[1])
    finally:
        any_server.command("ACL", "DELUSER", "half")
