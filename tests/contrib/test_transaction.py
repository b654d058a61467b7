"""A transaction of a lease: what is read at once, what is written together, and what has no place in it."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import pytest

import tenure
from tenure import transaction
from tests.conformance.flavours import AnyLock
from tests.faults.support import set_timeouts
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.conformance.flavours import AnyLease, AnyLocks, Flavour
    from tests.harness.servers import Server

SITE = "testdata"
"""A test's own data on a shared server goes under this prefix."""


@pytest.fixture
def locks(flavour: Flavour, any_server: Server) -> AnyLocks:
    made = flavour.locks(any_server.url, namespace=SITE)
    # Or a lease is announced when it is a second old: its key is changed then, between two looks of a test.
    made.warm()
    return made


@pytest.fixture
def lease(locks: AnyLocks) -> AnyLease:
    return locks.lock("account", ttl=60).acquire()


class Block:
    """A transaction of either flavour."""

    def __init__(self, flavour: Flavour, lease: AnyLease) -> None:
        self.flavour = flavour
        self.tx: Any = flavour.call(lease.raw.transaction)

    def __call__(self, name: str, *args: object, **given: object) -> Any:  # noqa: ANN401 - any reply
        return self.flavour.call(getattr(self.tx, name), *args, **given)

    def run(self, body: Callable[[], object]) -> list[Any]:
        """Carry out the block with this body, and return the results."""
        with self.flavour.entered(self.tx):
            body()
        return self.tx.results


@pytest.fixture
def block(flavour: Flavour, lease: AnyLease) -> Iterator[Block]:
    yield Block(flavour, lease)
    lease.release()


def test_reads_at_once_and_writes_at_the_end(block: Block, any_server: Server) -> None:
    any_server.admin.mset({"testdata:from": 10, "testdata:to": 1})
    with block.flavour.entered(block.tx):
        there = int(block("get", "from"))
        assert (there, block("exists", "from", "to", "nowhere")) == (10, 2)
        block("multi")
        block("set", "from", there - 3)
        block("incrby", "to", 3)
        assert block("hset", "log", mapping={"moved": 3}) is block.tx
        block.tx.hgetall("log").keys("fr*").get("from")
        assert any_server.admin.mget("testdata:from", "testdata:to") == [b"10", b"1"]
    assert block.tx.results == [True, 4, 1, {b"moved": b"3"}, [b"from"], b"7"]
    assert any_server.admin.mget("testdata:from", "testdata:to") == [b"7", b"4"]
    assert any_server.admin.exists("from", "to", "log") == 0


def test_replies_that_name_keys_and_channels(block: Block, any_server: Server) -> None:
    any_server.admin.xadd("testdata:s", {"f": "v"}, id="1-1")
    any_server.admin.rpush("testdata:q", "x")

    def body() -> None:
        assert block("xread", {"s": 0}) == [[b"s", [(b"1-1", {b"f": b"v"})]]]
        assert sorted(block("scan", 0, match="?", count=1000)[1]) == [b"q", b"s"]
        block("multi")
        block("blpop", "q", 10)
        block("publish", "channel", "hello")

    admin: Any = any_server.client()
    pubsub = admin.pubsub()
    pubsub.subscribe("testdata:channel")
    wait_until(lambda: pubsub.get_message(timeout=1), 10, "the subscription")
    assert block.run(body) == [(b"q", b"x"), 1]
    pubsub.close()


def test_an_error_in_the_block_discards_everything(block: Block, any_server: Server) -> None:
    def body() -> None:
        block("multi")
        block("set", "a", 1)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        block.run(body)
    assert block.tx.results == []
    assert any_server.admin.get("testdata:a") is None


def test_writing_needs_multi(block: Block, any_server: Server) -> None:
    def body() -> None:
        for name, args in (("set", ("a", 1)), ("sort", ("a",)), ("publish", ("a", "x"))):
            with pytest.raises(tenure.ConfigError, match=r"call multi\(\) first"):
                block(name, *args)
        block("multi")
        with pytest.raises(tenure.ConfigError, match="called already"):
            block("multi")
        block("set", "a", 2)

    assert block.run(body) == [True]
    assert any_server.admin.get("testdata:a") == b"2"


def test_what_has_no_place_in_a_transaction(block: Block, any_server: Server) -> None:
    words: list[tuple[object, ...]] = [
        *(("FLUSHALL",), ("SELECT", 1), ("EVAL", "return 1", 0), ("MULTI",), ("EXEC",), ("NOSUCH", "a"), ("MGET",)),
        *(("WATCH", "a"), ("UNWATCH",), ("DISCARD",), ("SUBSCRIBE", "a"), ("CLIENT", "ID"), ("DEL",), ("RANDOMKEY",)),
        *(("GET", "account"), ("DEL", "a", "account"), ("RENAME", "a", "account")),
    ]

    def body() -> None:
        for _ in range(2):
            for line in words:
                with pytest.raises(tenure.ConfigError):
                    block("execute_command", *line)
            if not block.tx._queueing:
                block("multi")
        with pytest.raises(tenure.ConfigError, match="the lock 'account' itself"):
            block("set", "account", 0)

    before = any_server.admin.get("testdata:account")
    block.run(body)
    assert any_server.admin.get("testdata:account") == before


def test_reading_does_not_wait(block: Block) -> None:
    def body() -> None:
        with pytest.raises(tenure.ConfigError, match="BLOCK"):
            block("xread", {"s": "$"}, block=10_000)
        assert block("xread", {"block": "$"}) == []

    block.run(body)


def test_the_locks_own_keys_are_out_of_reach_without_a_namespace_too(flavour: Flavour, any_server: Server) -> None:
    lease = flavour.locks(any_server.url, namespace="").lock("testdata:account", ttl=60).acquire()
    block = Block(flavour, lease)

    def body() -> None:
        for key in ("testdata:account", "{testdata:account}:queue", "{testdata:account}:fence"):
            with pytest.raises(tenure.ConfigError, match="itself"):
                block("exists", key)
        block("multi")
        block("set", "testdata:balance", 1)

    assert block.run(body) == [True]
    assert any_server.admin.get("testdata:balance") == b"1"
    lease.release()


@pytest.mark.parametrize("kind", ["shared", "semaphore"])
def test_a_lease_that_others_may_have_too_has_no_transaction(flavour: Flavour, locks: AnyLocks, kind: str) -> None:
    raw: Any = locks.raw
    lock = AnyLock(flavour, raw.lock("n", shared=True) if kind == "shared" else raw.semaphore("n", 2))
    lease = lock.acquire()
    with pytest.raises(tenure.ConfigError, match="exclusive"):
        flavour.call(lease.raw.transaction)
    lease.release()


def test_several_names(flavour: Flavour, locks: AnyLocks, any_server: Server) -> None:
    lease = locks.lock("a", "b", ttl=60).acquire()
    block = Block(flavour, lease)

    def body() -> None:
        block("multi")
        block("set", "data", 1)
        for name in ("a", "b"):
            with pytest.raises(tenure.ConfigError):
                block("set", name, 1)

    assert block.run(body) == [True]
    any_server.admin.delete("testdata:b")
    again = Block(flavour, lease)
    with pytest.raises(tenure.LeaseLost):
        again.run(lambda: (again("multi"), again("set", "data", 2)))
    assert any_server.admin.get("testdata:data") == b"1"
    lease.release()


def test_it_has_a_connection_of_its_own_and_only_while_it_needs_one(block: Block, any_server: Server) -> None:
    admin: Any = any_server.admin

    def connections(command: str = "") -> set[str]:
        return {client["id"] for client in admin.client_list() if command in ("", client["cmd"])}

    before = connections()
    with block.flavour.entered(block.tx):
        assert not connections("exists") - before
        block("exists", "a")
        (own,) = connections("exists") - before
        block("multi")
        block("set", "a", 1)
        block("exists", "a")
        assert connections("exists") - before == {own}
    wait_until(lambda: own not in connections(), 30, "its connection to be closed")


def test_a_block_that_writes_nothing_asks_nobody(block: Block, monkeypatch: pytest.MonkeyPatch) -> None:
    def call(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(block.tx._link, "call", call)
    assert block.run(lambda: block("multi")) == []


def test_a_command_that_fails_does_not_undo_the_others(block: Block, any_server: Server) -> None:
    any_server.admin.rpush("testdata:list", "x")

    def body() -> None:
        block("multi")
        block("set", "a", 1)
        block("incr", "list")
        block("set", "b", 2)

    with pytest.raises(
        tenure.ServerError, match=r"command 2 of the transaction \(INCRBY\).*does not roll back"
    ) as raised:
        block.run(body)
    assert "WRONGTYPE" in str(raised.value.cause)
    assert [block.tx.results[0], block.tx.results[2]] == [True, True]
    assert any_server.admin.mget("testdata:a", "testdata:b") == [b"1", b"2"]


def test_a_command_that_the_server_does_not_take_undoes_the_others(block: Block, any_server: Server) -> None:
    def body() -> None:
        block("multi")
        block("set", "a", 1)
        block("execute_command", "SET", "b")

    with pytest.raises(tenure.ServerError, match=r"refused SET in a transaction.*nothing was written"):
        block.run(body)
    assert any_server.admin.get("testdata:a") is None


def test_a_read_that_fails_tells_so_and_the_block_goes_on(block: Block, any_server: Server) -> None:
    any_server.admin.rpush("testdata:list", "x")

    def body() -> None:
        with pytest.raises(tenure.ServerError, match=r"refused GET in a transaction.*WRONGTYPE"):
            block("get", "list")
        block("multi")
        block("set", "a", 1)

    assert block.run(body) == [True]


def test_replies_are_bytes_whatever_an_injected_client_decodes(flavour: Flavour, any_server: Server) -> None:
    client = flavour.client(any_server.url, decode_responses=True)
    lease = flavour.locks(client, namespace=SITE).lock("account", ttl=60).acquire()
    block = Block(flavour, lease)
    assert block.run(lambda: (block("multi"), block("set", "a", "é"), block("get", "a"))) == [True, "é".encode()]
    assert flavour.call(client.get, "testdata:a") == "é"
    lease.release()


def test_it_is_used_once_and_in_its_block(block: Block) -> None:
    with pytest.raises(tenure.ConfigError, match="inside its block"):
        block("get", "a")
    block.run(lambda: (block("multi"), block("set", "a", 1)))
    with pytest.raises(tenure.ConfigError, match="inside its block"):
        block("get", "a")
    with pytest.raises(tenure.ConfigError, match="used once"):
        block.run(lambda: None)


def test_renewals_while_the_block_lasts_do_not_matter(block: Block, lease: AnyLease, any_server: Server) -> None:
    def body() -> None:
        assert block("get", "a") is None
        lease.renew()
        block("multi")
        lease.renew()
        block("set", "a", 1)
        lease.renew()

    assert block.run(body) == [True]


def touching(block: Block, server: Server, times: int) -> list[str]:
    """Have the lock's key touched, as a renewal does, between WATCH and EXEC; return what is sent."""
    sent, call = list[str](), block.tx._call

    async def renewed_meanwhile(name: str, words: object) -> object:
        sent.append(name)
        if name == "EXEC" and sent.count("EXEC") <= times:
            assert server.command("PEXPIRE", "testdata:account", 50_000 + len(sent)) == 1
        return await call(name, words)

    block.tx._call = renewed_meanwhile
    return sent


def test_a_renewal_between_watch_and_exec_only_repeats_the_exec(block: Block, any_server: Server) -> None:
    sent = touching(block, any_server, times=3)

    def body() -> None:
        block("multi")
        block("incr", "a")

    assert block.run(body) == [1]
    assert sent == ["WATCH", "GET", "MULTI", "INCRBY", "EXEC"] * 4


def test_a_key_that_is_touched_all_the_time_ends_in_an_error(flavour: Flavour, any_server: Server) -> None:
    locks = flavour.locks(any_server.url, namespace=SITE)
    lease = locks.lock("account", ttl=60).acquire()
    block = Block(flavour, lease)
    touching(block, any_server, times=1_000_000)
    # For what is to fail alone, and not for a single request, which may be slow.
    set_timeouts(locks.raw, 0.5, 10)
    with pytest.raises(tenure.ServerUnavailable, match=r"changed at every one of .* tries; nothing was written"):
        block.run(lambda: (block("multi"), block("incr", "a")))
    set_timeouts(locks.raw, 30, 10)
    assert any_server.admin.get("testdata:a") is None
    lease.release()


def test_a_released_lease_has_no_transaction(block: Block, lease: AnyLease) -> None:
    lease.release()
    with pytest.raises(tenure.NotHeld):
        block.run(lambda: pytest.fail("the block was entered"))


LOCKS_NEED = """+eval +evalsha +time +exists +get +set +del +pttl +pexpire +pexpireat +type +zadd +zcard +zcount +zrange
+zrangebyscore +zrank +zrem +zscore +hget +hset +hdel +ssubscribe +spublish +pubsub|shardnumsub +ping +scan"""


def test_a_user_of_the_server_needs_watch_multi_and_exec(flavour: Flavour, any_server: Server) -> None:
    rules = ["~testdata:*", "~{testdata:*", "&testdata:@*", *LOCKS_NEED.split(), "+incrby"]
    url = any_server.acl_user("bank", "secret", *rules, "+watch", "+multi", "+exec")
    lease = flavour.locks(url, namespace=SITE).lock("account", ttl=60).acquire()
    block = Block(flavour, lease)
    assert block.run(lambda: (block("multi"), block("incr", "a"))) == [1]
    for missing in ("watch", "multi", "exec", "incrby"):
        any_server.command("ACL", "SETUSER", "bank", f"-{missing}")
        again = Block(flavour, lease)
        with pytest.raises(tenure.PermissionDenied, match="nothing was written"):
            again.run(lambda: (again("multi"), again("incr", "a")))  # noqa: B023 - carried out at once
        any_server.command("ACL", "SETUSER", "bank", f"+{missing}")
    assert any_server.admin.get("testdata:a") == b"1"
    lease.release()
    any_server.command("ACL", "DELUSER", "bank")


def test_both_flavours_are_described_alike() -> None:
    pair = (transaction.Transaction, transaction.AsyncTransaction)
    assert pair[0].__doc__ == pair[1].__doc__
    for name in ("execute_command", "multi"):
        one, other = (getattr(cls, name) for cls in pair)
        assert inspect.getdoc(one) == inspect.getdoc(other)
        assert inspect.signature(one) == inspect.signature(other)
