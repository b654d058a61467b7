"""The adapter for redis-py and valkey-py: which settings are taken from a client, and what its failures become."""

from __future__ import annotations

import importlib
import re
from typing import TYPE_CHECKING, Any, cast

import pytest
import redis
import redis.asyncio
import valkey
import valkey.asyncio
from redis.cluster import RedisCluster
from redis.exceptions import BusyLoadingError, NoPermissionError
from redis.sentinel import Sentinel

import tenure
from tenure.clients.redis_py import from_client
from tenure.clients.resp import pack
from tenure.clients.url import client_of
from tenure.core.exchange import Kind, classify, explain
from tenure.core.ports import NotSent, Refused

if TYPE_CHECKING:
    from collections.abc import Callable

    from tenure.clients.redis_py import RedisPyClient

FLAVOURS = {"connection": "", "asyncio.connection": ".asyncio"}


@pytest.mark.parametrize("root", ["redis", "valkey"])
@pytest.mark.parametrize("flavour", FLAVOURS)
class TestSettings:
    def resolved(self, root: str, flavour: str, **settings: Any) -> tuple[type, dict[str, Any]]:  # noqa: ANN401
        module = importlib.import_module(f"{root}{FLAVOURS[flavour]}")
        client = getattr(module, root.capitalize())(host="h", port=7, **settings)
        adapter, is_async = from_client(client)
        assert is_async is (flavour != "connection")
        assert adapter.node == "h:7"
        # Each client opens connections of both flavours: the hub is asyncio, also under a blocking client.
        adapter._resolve("connection")
        adapter._resolve("asyncio.connection")
        return adapter._resolve(flavour)

    def test_that_are_the_users_are_kept(self, root: str, flavour: str) -> None:
        _, settings = self.resolved(root, flavour, db=3, username="jo", password="pw", client_name="me")
        assert (settings["host"], settings["port"], settings["db"]) == ("h", 7, 3)
        assert (settings["username"], settings["password"], settings["client_name"]) == ("jo", "pw", "me")

    def test_that_are_ours_are_replaced(self, root: str, flavour: str) -> None:
        _, settings = self.resolved(
            root,
            flavour,
            decode_responses=True,
            encoding="utf-16",
            protocol=3,
            socket_timeout=1000,
            health_check_interval=5,
            max_connections=1,
        )
        assert settings["protocol"] == 2
        assert settings["retry"]._retries == 0
        for name in ("decode_responses", "encoding", "socket_timeout", "health_check_interval", "max_connections"):
            assert name not in settings

    def test_that_make_tls_choose_the_class(self, root: str, flavour: str) -> None:
        cls, settings = self.resolved(root, flavour, ssl=True, ssl_ca_certs="/ca.crt")
        assert cls.__name__ == "SSLConnection"
        assert cls.__module__ == f"{root}.{flavour}"
        assert settings["ssl_ca_certs"] == "/ca.crt"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (redis.ConnectionPool, "ConnectionPool object is not supported"),
        (lambda: redis.Redis, "must be a URL or a client of redis-py, valkey-py or coredis"),
        (object, "not object; for another library implement tenure.clients.Client"),
        (lambda: cast("Any", Sentinel)([("h", 1)]).master_for("m"), "Sentinel-managed client is not supported"),
        (lambda: RedisCluster.__new__(RedisCluster), "RedisCluster object is not"),
    ],
    ids=["pool", "class", "object", "sentinel", "cluster"],
)
def test_what_is_no_client_of_one_server_is_refused(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(tenure.ConfigError, match=words):
        from_client(make())


@pytest.mark.parametrize(
    ("cls", "client"),
    [
        (tenure.Locks, redis.asyncio.Redis()),
        (tenure.Locks, valkey.asyncio.Valkey()),
        (tenure.AsyncLocks, redis.Redis()),
        (tenure.AsyncLocks, valkey.Valkey()),
    ],
    ids=["redis", "valkey", "asyncio-redis", "asyncio-valkey"],
)
def test_a_client_of_the_other_flavour_is_refused(cls: Any, client: Any) -> None:  # noqa: ANN401
    with pytest.raises(tenure.ConfigError, match=f"^{cls.__name__} cannot use a"):
        cls(client)


def test_a_subclass_of_a_client_is_a_client() -> None:
    class Mine(redis.Redis):
        pass

    adapter, is_async = from_client(Mine(host="h"))
    assert (adapter.node, is_async) == ("h:6379", False)


ADAPTER = client_of("redis://jo:s3cret@h:7")
TLS = client_of("rediss://jo:s3cret@h:7")


@pytest.mark.parametrize(
    ("adapter", "error", "kind", "words"),
    [
        (ADAPTER, redis.AuthenticationError("invalid username-password pair"), Refused, "WRONGPASS invalid"),
        (ADAPTER, redis.ResponseError("DB index is out of range"), Refused, "DB index is out of range"),
        (ADAPTER, NoPermissionError("no"), Refused, "NOPERM no"),
        (ADAPTER, BusyLoadingError("loading"), Refused, "LOADING loading"),
        (ADAPTER, redis.ConnectionError("max number of clients reached"), Refused, "max number"),
        (ADAPTER, redis.ConnectionError("Connection closed by server."), NotSent, "does this port expect TLS?"),
        (ADAPTER, redis.ConnectionError("s3cret was wrong"), NotSent, r"^\*\*\* was wrong$"),
        (ADAPTER, OSError(), NotSent, "OSError"),
        (TLS, redis.ConnectionError("certificate verify failed"), NotSent, "check ssl_ca_certs"),
        (TLS, redis.TimeoutError("Timeout connecting"), NotSent, "use redis:// instead of rediss://"),
    ],
    ids=range(10),
)
def test_failures_of_connecting_are_sorted(
    adapter: RedisPyClient, error: Exception, kind: type[Exception], words: str
) -> None:
    failure = adapter._failure(error)
    assert type(failure) is kind
    text = failure.text if isinstance(failure, Refused) else failure.cause
    assert re.search(words, text), text
    assert "s3cret" not in text


@pytest.mark.parametrize(
    ("text", "kind", "error"),
    [
        ("NOSCRIPT No matching script", Kind.NOSCRIPT, None),
        ("LOADING Redis is loading", Kind.RETRY, tenure.ServerUnavailable),
        ("BUSY Redis is busy running a script", Kind.RETRY, tenure.ServerUnavailable),
        ("MASTERDOWN Link with MASTER is down", Kind.RETRY, tenure.ServerUnavailable),
        ("TRYAGAIN Multiple keys", Kind.RETRY, tenure.ServerUnavailable),
        ("CLUSTERDOWN Hash slot not served", Kind.RETRY, tenure.ServerUnavailable),
        ("NOREPLICAS Not enough good replicas", Kind.RETRY, tenure.ServerUnavailable),
        ("ERR Error running script: @user_script: -NOREPLICAS Not enough", Kind.RETRY, tenure.ServerUnavailable),
        ("ERR max number of clients reached", Kind.RETRY, tenure.ServerUnavailable),
        ("READONLY You can't write against a read only replica", Kind.READONLY, tenure.ServerReadOnly),
        ("ERR user_script:1: -READONLY You can't write", Kind.READONLY, tenure.ServerReadOnly),
        ("NOPERM this user has no permissions", Kind.DENIED, tenure.PermissionDenied),
        ("ERR ACL failure in script: No permissions to access a key", Kind.DENIED, tenure.PermissionDenied),
        ("NOAUTH Authentication required", Kind.CONFIG, tenure.ConfigError),
        ("WRONGPASS invalid username-password pair", Kind.CONFIG, tenure.ConfigError),
        ("ERR DB index is out of range", Kind.CONFIG, tenure.ConfigError),
        ("WRONGTYPE Operation against a key", Kind.CONFLICT, tenure.NameConflict),
        ("ERR user_script:9: WRONGTYPE Operation against a key", Kind.CONFLICT, tenure.NameConflict),
        ("OOM command not allowed", Kind.FATAL, tenure.ServerError),
        ("MISCONF Redis is configured to save", Kind.FATAL, tenure.ServerError),
        ("ERR something new", Kind.FATAL, tenure.ServerError),
    ],
    ids=range(21),
)
def test_error_replies_are_sorted_and_explained(text: str, kind: Kind, error: type[tenure.TenureError] | None) -> None:
    assert classify(text) is kind
    if error is not None:
        made = explain(text, kind, "h:7")
        assert type(made) is error
        assert "h:7" in str(made)
        assert text in (getattr(made, "cause", None) or str(made))


def test_commands_are_packed_as_bytes() -> None:
    assert pack(b"SET", "ü", 5) == b"*3\r\n$3\r\nSET\r\n$2\r\n\xc3\xbc\r\n$1\r\n5\r\n"
