"""A namespaced client behaves as the client that it was made from, in both libraries and both flavours."""

from __future__ import annotations

import asyncio
import importlib
from typing import TYPE_CHECKING, Any

import pytest
import redis
import redis.asyncio
import redis.cluster

import tenure
from tenure.contrib.redis_py import namespaced
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conformance.flavours import Flavour
    from tests.contrib.command_lines import AnyClient
    from tests.harness.servers import Server

SITE = "testdata"
"""A test's own data on a shared server goes under this prefix."""


class Site:
    """A namespaced client and the one that it was made from, called as blocking code calls them."""

    def __init__(self, flavour: Flavour, url: str, library: str, **options: Any) -> None:  # noqa: ANN401
        self.flavour = flavour
        self.url = url
        self.library = library
        self.plain = flavour.client(url, library, **options)
        self.client = namespaced(self.plain, SITE)

    def __call__(self, name: str, *args: object, **given: object) -> Any:  # noqa: ANN401 - any reply
        return self.flavour.call(getattr(self.client, name), *args, **given)

    def outside(self, name: str, *args: object, **given: object) -> Any:  # noqa: ANN401 - any reply
        return self.flavour.call(getattr(self.plain, name), *args, **given)

    def error(self, name: str) -> type[Exception]:
        return getattr(importlib.import_module(f"{self.library}.exceptions"), name)


@pytest.fixture(params=["redis", "valkey"])
def site(request: pytest.FixtureRequest, flavour: Flavour, any_url: str) -> Site:
    return Site(flavour, any_url, request.param)


def test_single_commands(site: Site) -> None:
    assert site("set", "n", 1) is True
    assert site("incrby", "n", 2) == 3
    assert site("mset", {"a": "x", b"b": "y"}) is True
    assert site("mget", "a", "b", "c") == [b"x", b"y", None]
    assert site("mget", []) == []
    assert site.outside("get", f"{SITE}:n") == b"3"
    assert site.outside("get", "n") is None
    assert site("hset", "h", mapping={"f": 1}) == 1
    assert site("hgetall", "h") == {b"f": b"1"}
    assert site("delete", "n", "a", "missing") == 2
    with pytest.raises(site.error("ResponseError"), match="WRONGTYPE"):
        site("incr", "h")


def test_replies_that_name_keys(site: Site) -> None:
    site("rpush", "q", 1, 2, 3)
    site("zadd", "z", {"m": 1})
    site("xadd", "s", {"f": 1}, id="1-1")
    assert site("blpop", ["empty", "q"], 1) == (b"q", b"1")
    assert site("lmpop", 2, "empty", "q", direction="LEFT") == [b"q", [b"2"]]
    assert site("bzpopmin", ["z"], 1) == (b"z", b"m", 1.0)
    assert site("xread", {"s": 0}) == [[b"s", [(b"1-1", {b"f": b"1"})]]]
    assert sorted(site("keys", "*")) == [b"q", b"s"]
    assert site("execute_command", "keys", "q*") == [b"q"]
    assert sorted(site("scan", 0, count=1000)[1]) == [b"q", b"s"]
    assert site("blpop", ["empty"], 0.01) is None
    assert site("xread", {"empty": 0}) == []


@pytest.mark.parametrize("options", [{"decode_responses": True}, {"protocol": 3}])
def test_settings_of_the_client_are_kept(flavour: Flavour, any_url: str, options: dict[str, Any]) -> None:
    site = Site(flavour, any_url, "redis", **options)
    text: Callable[[str], object] = str if "decode_responses" in options else str.encode
    site("set", "é", "x")
    site("xadd", "s", {"f": "v"}, id="1-1")
    assert site("get", "é") == text("x")
    assert sorted(site("keys", "*")) == sorted([text("é"), text("s")])
    answer = site("xread", {"s": 0})
    # A map with RESP3, pairs with RESP2.
    assert next(iter(answer)) in (text("s"), [text("s"), [(text("1-1"), {text("f"): text("v")})]])


@pytest.mark.parametrize("transaction", [True, False])
def test_pipelines(site: Site, transaction: bool) -> None:
    pipe = site.client.pipeline(transaction=transaction)
    pipe.set("a", 1).incr("a").rpush("q", "x")
    pipe.blpop("q", 1)
    pipe.keys("*")
    assert site.flavour.call(pipe.execute) == [True, 2, 1, (b"q", b"x"), [b"a"]]
    with pytest.raises(tenure.ConfigError):
        pipe.flushdb()
    assert site.flavour.call(pipe.execute) == []
    site.flavour.call(pipe.reset)
    assert site.outside("get", f"{SITE}:a") == b"2"


def test_the_block_form_of_multi(site: Site) -> None:
    site("set", "balance", 5)
    pipe = site.client.pipeline()
    call = site.flavour.call
    with site.flavour.entered(pipe):
        call(pipe.watch, "balance")
        now = int(call(pipe.get, "balance"))
        # Another site's key of the same name is another key.
        site.outside("set", "testdata:other", 1)
        site.outside("set", "balance", 99, px=60_000)
        pipe.multi()
        pipe.set("balance", now - 1).keys("bal*")
        assert call(pipe.execute) == [True, [b"balance"]]
        call(pipe.watch, "balance")
        site("incr", "balance")
        pipe.multi()
        pipe.set("balance", 0)
        with pytest.raises(site.error("WatchError")):
            call(pipe.execute)
    assert site("get", "balance") == b"5"
    site.outside("delete", "balance")


def test_transaction_with_a_function(site: Site) -> None:
    site("set", "n", 1)

    def blocking(pipe: AnyClient) -> None:
        now = int(pipe.get("n"))
        pipe.multi()
        pipe.set("n", now + 1)

    async def in_a_loop(pipe: AnyClient) -> None:
        now = int(await pipe.get("n"))
        pipe.multi()
        pipe.set("n", now + 1)

    function = blocking if site.flavour.kind == "blocking" else in_a_loop
    assert site("transaction", function, "n") == [True]
    assert site.outside("get", f"{SITE}:n") == b"2"


def test_subscriptions(site: Site) -> None:
    call, handled = site.flavour.call, list[Any]()
    pubsub = site.client.pubsub(ignore_subscribe_messages=True)
    with site.flavour.entered(pubsub):
        call(pubsub.subscribe, "plain", handled=handled.append)
        call(pubsub.psubscribe, "pat*")
        shards = hasattr(pubsub, "ssubscribe")  # not in valkey-py's asyncio flavour
        if shards:
            call(pubsub.ssubscribe, "shard")
        messages: list[Any] = []

        def collect(count: int) -> list[Any]:
            def enough() -> bool:
                message = call(pubsub.get_message, timeout=0.1)
                messages.extend([message] if message else [])
                return len(messages) + len(handled) >= count

            wait_until(enough, 10, "the messages")
            return messages

        wait_until(
            lambda: collect(0) == [] and site("pubsub_numsub", "plain") == [(b"plain", 1)], 10, "the subscription"
        )
        for channel in ("plain", "pattern", "handled"):
            assert site("publish", channel, channel) == 1
            assert site.outside("publish", channel, "of somebody else") == 0
        assert site("spublish", "shard", "s") == shards
        collect(3 + shards)
        assert sorted(site("pubsub_channels")) == [b"handled", b"plain"]
        assert site("pubsub_channels", "pl*") == [b"plain"]
        assert {(m["type"], m["pattern"], m["channel"], m["data"]) for m in messages} == {
            ("message", None, b"plain", b"plain"),
            ("pmessage", b"pat*", b"pattern", b"pattern"),
            *([("smessage", None, b"shard", b"s")] if shards else []),
        }
        assert [m["channel"] for m in handled] == [b"handled"]
        call(pubsub.unsubscribe, "plain")
        wait_until(
            lambda: collect(0) is messages and site("publish", "plain", 1) == 0, 10, "the end of the subscription"
        )


def test_what_is_refused_sends_nothing_and_opens_no_connection(flavour: Flavour) -> None:
    client = namespaced(flavour.client("redis://127.0.0.1:1"), SITE)
    for refused in (client.flushall, client.randomkey, client.dbsize, client.monitor, client.keyspace_notifications):
        with pytest.raises(tenure.ConfigError, match="inside the namespace 'testdata'"):
            flavour.call(refused)
    for name in ("json", "ft", "ts", "bf", "cf", "cms", "topk", "tdigest", "vset"):
        with pytest.raises(tenure.ConfigError, match="modules"):
            getattr(client, name)()
    with pytest.raises(tenure.ConfigError, match="lock_class=tenure"):
        client.lock("x")
    with pytest.raises(redis.ConnectionError):
        flavour.call(client.ping)


def test_closing_it_leaves_the_clients_pool_alone(site: Site) -> None:
    with site.flavour.entered(site.client):
        assert site("ping")
    site.flavour.call(getattr(site.client, "aclose", site.client.close))
    assert site.outside("ping")
    assert site("ping")


def test_a_client_with_a_connection_of_its_own(site: Site) -> None:
    single = site.client.client()
    call = site.flavour.call
    try:
        call(single.set, "a", 1)
        assert call(single.keys) == [b"a"]
    finally:
        call(getattr(single, "aclose", single.close))
    assert site.outside("get", f"{SITE}:a") == b"1"


def test_a_parser_of_ones_own(site: Site) -> None:
    site.client.set_response_callback("KEYS", sorted)
    site.client.set_response_callback("GET", int)
    site("mset", {"b": 1, "a": 2})
    assert site("keys") == [b"a", b"b"]
    assert site("get", "a") == 2
    assert site.outside("get", f"{SITE}:a") == b"2"


def test_builders_of_commands(site: Site) -> None:
    site("set", "bits", "a")
    assert site.flavour.call(site.client.bitfield("bits").get("u8", 0).execute) == [97]

    async def names() -> list[bytes]:
        return [key async for key in site.client.scan_iter("b*")]

    if site.flavour.kind == "asyncio":
        assert site.flavour.call(names) == [b"bits"]
    else:
        assert list(site.client.scan_iter("b*")) == [b"bits"]


def test_scripts_that_are_let_in_see_their_keys_in_the_namespace(site: Site) -> None:
    client = namespaced(site.plain, SITE, scripts=True)
    call = site.flavour.call
    script = client.register_script("return redis.call('INCRBY', KEYS[1], ARGV[1])")
    assert call(script, keys=["n"], args=[2]) == 2
    pipe = client.pipeline()
    call(script, keys=["n"], args=[3], client=pipe)
    assert call(pipe.execute) == [5]
    assert site.outside("get", f"{SITE}:n") == b"5"
    lock = client.lock("lock", timeout=10)
    assert call(lock.acquire)
    assert site.outside("exists", f"{SITE}:lock") == 1
    call(lock.release)
    assert site.outside("exists", f"{SITE}:lock") == 0


def test_a_lock_class_of_ones_own_is_used(site: Site) -> None:
    class Lock:
        def __init__(self, *args: object, **_given: object) -> None:
            self.args = args

    assert site.client.lock("x", timeout=10, lock_class=Lock).args == (site.client, "x")


class Shop(redis.Redis):
    """Somebody's client with something of its own."""

    def sell(self, what: str) -> object:
        self.sold: object = what
        return self.incr(what)


def test_a_client_class_of_ones_own_stays_one(any_server: Server) -> None:
    plain = Shop(port=any_server.port)
    client = namespaced(plain, SITE)
    assert isinstance(client, Shop)
    assert client.sell("tea") == 1
    assert plain.get("testdata:tea") == b"1"
    plain.close()


def test_newer_commands_pass_when_the_servers_own_table_knows_them(site: Site) -> None:
    table = site.outside("command")
    table["peek"] = table["get"] | {"name": "peek"}
    table["far"] = table["get"] | {"name": "far", "flags": ["readonly", "movablekeys"]}
    table["mod.get"] = table["get"] | {"name": "mod.get"}
    client = namespaced(site.plain, SITE, commands=table)
    with pytest.raises(site.error("ResponseError"), match=r"unknown command .?PEEK.*testdata:a"):
        site.flavour.call(client.execute_command, "PEEK", "a")
    for name in ("FAR", "MOD.GET", "FLUSHALL", "CLUSTERSCAN"):
        with pytest.raises(tenure.ConfigError):
            site.flavour.call(client.execute_command, name, "a")
    with pytest.raises(tenure.ConfigError, match="unknown"):
        site("execute_command", "PEEK", "a")


@pytest.mark.parametrize("name", ["", "a:b", "{a}", "x" * 65, None, 5])
def test_what_is_no_site(name: Any) -> None:  # noqa: ANN401 - wrong on purpose
    with pytest.raises(tenure.ConfigError):
        namespaced(redis.Redis(), name)


def test_what_cannot_be_namespaced(any_server: Server) -> None:
    plain: AnyClient = redis.Redis(port=any_server.port)
    with redis.Redis(single_connection_client=True, connection_pool=plain.connection_pool) as single:
        wrong: list[object] = [
            "redis://x",
            None,
            plain.pipeline(),
            single,
            namespaced(plain, "a"),
            plain.connection_pool,
        ]
        wrong += [object.__new__(redis.cluster.RedisCluster), plain.pubsub()]
        for client in wrong:
            with pytest.raises(tenure.ConfigError):
                namespaced(client, "a")
    plain.close()


def test_two_tasks_share_it(any_server: Server) -> None:
    async def main() -> list[int]:
        plain = redis.asyncio.Redis(port=any_server.port)
        client: AnyClient = namespaced(plain, SITE)
        done = await asyncio.gather(*(client.incr("n") for _ in range(20)))
        await plain.aclose()
        return done

    assert sorted(asyncio.run(main())) == list(range(1, 21))
