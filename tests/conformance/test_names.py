"""Names that are hostile, keys that are not ours, and keys that are shared with other libraries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

import tenure
from tests.harness.commands import script_calls
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from tests.conformance.flavours import AnyLocks, Flavour
    from tests.harness.servers import Server

HOSTILE = [
    *(
        "*",
        "?",
        "[a-z]",
        "a*b",
        "\\",
        '"',
        "'",
        "`",
        "$(reboot)",
        "../../etc/passwd",
        "a b",
        " lead",
        "a:b:c",
        ":",
        "::",
    ),
    *("{", "}", "{}", "{}a}", "a{b}c", "}{", "{a", "%", "%7B", "%25", "%%7D", "a%b", "{%}"),
    *("a:fence", "a:queue", "{a}:queue", "@inbox", "x@p1234", "!"),
    *("redis.call('FLUSHALL')", "]] redis.call('FLUSHALL') --", "0", "-1", "nil", "true", "1e999"),
    *("\u200bzero", "\u202eright to left", "\U0001f512", "é", "e\u0301", "ß", "\ufeffmark", "\u2028line"),
    *("tenure1:", "a" * 512, "ü" * 256),
]


def exact(name: str) -> bytes:
    """The main key's part after the namespace."""
    return name.replace("%", "%25").replace("{", "%7B").replace("}", "%7D").encode()


class TestHostileNames:
    def test_are_taken_byte_for_byte_and_touch_no_other(
        self, locks: AnyLocks, any_server: Server, namespace: str
    ) -> None:
        leases = [locks.lock(name, ttl=30).acquire() for name in HOSTILE]
        prefix = f"{namespace}:".encode()
        keys: list[bytes] = any_server.command("KEYS", "*")
        assert {key for key in keys if not key.startswith(b"{")} == {prefix + exact(name) for name in HOSTILE}
        assert {key for key in keys if key.startswith(b"{")} == {
            b"{" + prefix + exact(name) + b"}:fence" for name in HOSTILE
        }
        assert [holder.name for holder in locks.list()] == sorted(HOSTILE)
        for name, lease in zip(HOSTILE, leases, strict=True):
            holder = locks.holder(name)
            assert holder is not None
            assert (holder.name, holder.fence) == (name, lease.fence)
        for lease in leases[::2]:
            assert lease.release() is tenure.Released.RELEASED
        assert [holder.name for holder in locks.list()] == sorted(HOSTILE[1::2])
        for lease in leases[1::2]:
            lease.check()
            assert lease.release() is tenure.Released.RELEASED

    @pytest.mark.parametrize("name", ["{}a}", "a b", "\U0001f512", "*", "%7B", "x@p1234"])
    def test_can_be_waited_for(self, locks: AnyLocks, others: AnyLocks, name: str) -> None:
        lease = locks.lock(name, ttl=5).acquire()
        waiting = others.queue(name, ttl=5)
        assert [waiter.name for waiter in others.waiters(name)] == [name]
        lease.release()
        waiting.result(30).release()

    def test_that_are_no_text_are_taken_as_bytes(self, locks: AnyLocks, any_server: Server, namespace: str) -> None:
        name = b"\xff\xfe{caf\xe9}"
        with locks.lock(name).block() as lease:
            assert any_server.command("EXISTS", f"{namespace}:".encode() + b"\xff\xfe%7Bcaf\xe9%7D")
            assert locks.lock(name).locked()
            assert [holder.name for holder in locks.list()] == list(lease.names)
            assert "surrog" not in repr(lease.raw)

    def test_spelled_in_two_normal_forms_are_two_locks(self, locks: AnyLocks) -> None:
        with locks.lock("é", wait=0).block(), locks.lock("e\u0301", wait=0).block():
            assert len(locks.list()) == 2


TYPES: dict[str, list[tuple[Any, ...]]] = {
    "list": [("RPUSH", "KEY", "x")],
    "hash": [("HSET", "KEY", "f", "v")],
    "set": [("SADD", "KEY", "m")],
    "zset": [("ZADD", "KEY", 1, "m")],
    "stream": [("XADD", "KEY", "*", "f", "v")],
    "string": [("SET", "KEY", "plain")],
    "newer": [("SET", "KEY", "tenure2:whatever comes then")],
}


def dump(server: Server) -> dict[bytes, tuple[Any, int]]:
    """All keys with their values and whether they have an end."""
    return {key: (server.command("DUMP", key), server.command("PTTL", key) < 0) for key in server.command("KEYS", "*")}


class TestAKeyThatIsNoLock:
    @pytest.mark.parametrize("kind", [kind for kind in TYPES if kind != "string"])
    def test_is_a_conflict_and_stays_as_it_is(
        self, locks: AnyLocks, any_server: Server, namespace: str, kind: str
    ) -> None:
        key = f"{namespace}:a"
        for command in TYPES[kind]:
            any_server.command(*(key if word == "KEY" else word for word in command))
        before = dump(any_server)
        words = "newer format" if kind == "newer" else f"holds a {kind}"
        lock = locks.lock("a")
        uses = [lock.acquire, lock.try_acquire, lock.locked, lambda: locks.holder("a"), lambda: locks.waiters("a")]
        uses += [lambda: locks.break_lock("a"), lambda: locks.break_lock("a", force=True)]
        for use in uses:
            with pytest.raises(tenure.NameConflict, match=words) as caught:
                use()
            assert caught.value.names == ("a",)
        assert locks.list() == []
        assert dump(any_server) == before
        any_server.command("PEXPIRE", key, 1000)

    @pytest.mark.parametrize("suffix", ["queue", "entry"])
    @pytest.mark.parametrize("kind", ["list", "string"])
    def test_where_waiters_queue_is_a_conflict_too(
        self, locks: AnyLocks, others: AnyLocks, any_server: Server, namespace: str, suffix: str, kind: str
    ) -> None:
        key = f"{{{namespace}:a}}:{suffix}"
        lease = locks.lock("a", ttl=20).acquire()
        for command in TYPES[kind]:
            any_server.command(*(key if word == "KEY" else word for word in command))
        before = any_server.command("DUMP", key)
        with pytest.raises(tenure.NameConflict, match="'a'") as caught:
            # Time enough for its inbox, before which it asks for no place in the queue.
            others.lock("a", wait=20).acquire()
        assert caught.value.names == ("a",)
        assert any_server.command("DUMP", key) == before
        any_server.command("DEL", key)
        assert lease.release() is tenure.Released.RELEASED
        # And the one that was refused has left nothing in the way.
        others.lock("a", wait=1).acquire().release()

    @pytest.mark.parametrize("kind", ["list", "string", "hash"])
    def test_where_the_fence_is_kept_is_a_conflict_too(
        self, locks: AnyLocks, any_server: Server, namespace: str, kind: str
    ) -> None:
        key = f"{{{namespace}:a}}:fence"
        for command in TYPES[kind]:
            any_server.command(*(key if word == "KEY" else word for word in command))
        before = dump(any_server)
        with pytest.raises(tenure.NameConflict, match=r"'a'.*fence key"):
            locks.lock("a").acquire()
        assert dump(any_server) == before
        any_server.command("DEL", key)

    @pytest.mark.parametrize("fence", ["x", "-5", "1.5", "99999999999999999999", "", "9" * 18])
    def test_a_fence_that_cannot_rise_is_a_conflict(
        self, locks: AnyLocks, any_server: Server, namespace: str, fence: str
    ) -> None:
        any_server.command("SET", f"{{{namespace}:a}}:fence", fence, "PX", 20000)
        with pytest.raises(tenure.NameConflict, match="fence key"):
            locks.lock("a").acquire()
        assert any_server.command("GET", f"{{{namespace}:a}}:fence") == fence.encode()
        assert locks.list() == []


class TestAForeignHolder:
    @pytest.mark.parametrize("ends", [True, False], ids=["with a ttl", "without a ttl"])
    def test_counts_as_held(self, locks: AnyLocks, any_server: Server, namespace: str, ends: bool) -> None:
        any_server.command("SET", f"{namespace}:a", "theirs", *(("PX", 20000) if ends else ()))
        assert locks.lock("a").try_acquire() is None
        with pytest.raises(tenure.NotAcquired, match="client of another library") as caught:
            locks.lock("a", wait=0).acquire()
        holder = caught.value.holder
        assert holder is not None
        assert holder.foreign
        assert (holder.expires_in is not None) is ends
        assert (holder.fence, holder.since, holder.pid) == (None, None, None)
        assert "theirs" not in f"{holder!r}{holder}{caught.value}"
        assert any_server.command("GET", f"{namespace}:a") == b"theirs"
        assert (any_server.command("PTTL", f"{namespace}:a") > 0) is ends
        any_server.command("DEL", f"{namespace}:a")

    def test_that_leaves_is_noticed_soon_although_it_tells_nobody(
        self, locks: AnyLocks, any_server: Server, namespace: str
    ) -> None:
        any_server.command("SET", f"{namespace}:a", "theirs", "PX", 120_000)
        waiting = locks.queue("a", ttl=60)
        before = script_calls(any_server.admin)
        # Every 100 to 200 ms, where other waiters ask every five seconds.
        wait_until(lambda: script_calls(any_server.admin) >= before + 5, 20, "five polls")
        any_server.command("DEL", f"{namespace}:a")
        waiting.result(30).release()

    def test_whose_key_ends_is_followed(self, locks: AnyLocks, any_server: Server, namespace: str) -> None:
        any_server.command("SET", f"{namespace}:a", "theirs", "PX", 200)
        locks.lock("a", ttl=5, wait=30).acquire().release()


class TestTogetherWithRedisPysOwnLock:
    """For a rolling migration: an empty namespace, and the same key."""

    def test_it_blocks_ours(self, flavour: Flavour, any_url: str, any_server: Server) -> None:
        locks = flavour.locks(any_url, namespace="")
        theirs = cast("Any", any_server.admin).lock("job", timeout=20)
        assert theirs.acquire(blocking=False)
        assert locks.lock("job").try_acquire() is None
        waiting = locks.queue("job", ttl=5)
        theirs.release()
        lease = waiting.result(30)
        assert lease.valid
        lease.release()

    def test_ours_blocks_it_and_it_cannot_release_ours(
        self, flavour: Flavour, any_url: str, any_server: Server
    ) -> None:
        locks = flavour.locks(any_url, namespace="")
        lease = locks.lock("job", ttl=5).acquire()
        theirs = cast("Any", any_server.admin).lock("job", timeout=20)
        assert not theirs.acquire(blocking=False)
        assert theirs.locked()
        assert not theirs.owned()
        lease.check()
        lease.release()
        assert theirs.acquire(blocking=False)
        theirs.release()

    def test_its_ttl_ends_its_turn(self, flavour: Flavour, any_url: str, any_server: Server) -> None:
        locks = flavour.locks(any_url, namespace="")
        theirs = cast("Any", any_server.admin).lock("job", timeout=0.2)
        assert theirs.acquire(blocking=False)
        lease = locks.lock("job", ttl=5, wait=30).acquire()
        assert wait_until(lambda: not theirs.owned())
        lease.release()
