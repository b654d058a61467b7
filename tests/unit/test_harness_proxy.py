"""The fault proxy, between redis-py and a real server."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, cast

import pytest
from redis.exceptions import BusyLoadingError, RedisError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from tests.harness import resp
from tests.harness.proxy import FaultProxy
from tests.harness.servers import connect
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    import redis

    from tests.harness.certs import Certificates
    from tests.harness.servers import Server


@pytest.fixture(params=[2, 3], ids=["resp2", "resp3"])
def client(request: pytest.FixtureRequest, proxy: FaultProxy) -> Iterator[redis.Redis]:
    """A client behind the proxy whose first connection is past its handshake."""
    with connect(proxy.url, protocol=request.param) as connected:
        assert connected.set("testdata:a", "old")
        yield connected


def test_requests_pass_and_are_seen(client: redis.Redis, proxy: FaultProxy) -> None:
    assert client.get("testdata:a") == b"old"
    assert proxy.seen[-1] == (b"GET", b"testdata:a")
    assert proxy.count(b"testdata:a") == 2
    assert (proxy.connections, proxy.connections_made) == (1, 1)
    client.close()
    wait_until(lambda: proxy.connections == 0)


def test_a_dropped_reply_is_lost_after_the_server_acted(client: redis.Redis, proxy: FaultProxy) -> None:
    fault = proxy.drop_next_reply(b"SET testdata:a", nth=2)
    assert client.set("testdata:a", "first")
    with pytest.raises(RedisConnectionError):
        client.set("testdata:a", "second")
    fault.wait()
    assert client.get("testdata:a") == b"second"
    assert fault.strikes == 1


def test_a_dropped_reply_can_leave_the_connection_silent(client: redis.Redis, proxy: FaultProxy) -> None:
    fault = proxy.drop_next_reply(b"INCR", then="silence")
    begin = time.monotonic()
    _be_impatient(client)
    with pytest.raises(RedisTimeoutError):
        client.incr("testdata:n")
    assert time.monotonic() - begin >= 0.1
    # The client's patience may end before the request has come to the server.
    fault.wait()
    assert client.get("testdata:n") == b"1"


def test_a_dropped_request_never_reaches_the_server(client: redis.Redis, proxy: FaultProxy) -> None:
    fault = proxy.drop_next_request(b"INCR")
    with pytest.raises(RedisConnectionError):
        client.incr("testdata:n")
    fault.wait()
    assert client.get("testdata:n") is None


def test_a_reply_cut_in_the_middle_ends_the_connection(client: redis.Redis, proxy: FaultProxy) -> None:
    proxy.cut_next_reply(b"GET")
    with pytest.raises(RedisConnectionError):
        client.get("testdata:a")
    assert client.get("testdata:a") == b"old"


def test_a_reply_can_be_replaced_once_or_until_healed(client: redis.Redis, proxy: FaultProxy) -> None:
    proxy.replace_next_reply(b"GET", b"-LOADING wait\r\n", times=None)
    for _ in range(3):
        with pytest.raises(BusyLoadingError):
            client.get("testdata:a")
    proxy.heal()
    assert client.get("testdata:a") == b"old"
    proxy.replace_next_reply(b"GET", lambda reply: reply.replace(b"old", b"new"))
    assert [client.get("testdata:a"), client.get("testdata:a")] == [b"new", b"old"]


def test_replies_are_delayed_and_held(client: redis.Redis, proxy: FaultProxy) -> None:
    proxy.delay(0.2)
    begin = time.monotonic()
    assert client.get("testdata:a") == b"old"
    assert time.monotonic() - begin >= 0.2
    proxy.heal()
    proxy.hold(b"INCR")
    answers: list[object] = []
    waiter = threading.Thread(target=lambda: answers.append(client.incr("testdata:n")))
    waiter.start()
    with connect(proxy.url) as other:
        wait_until(lambda: other.get("testdata:n") == b"1", 30, "the held command to have run")
    assert not answers
    proxy.release()
    waiter.join()
    assert answers == [1]


def test_a_held_request_arrives_after_its_client_is_gone(proxy: FaultProxy, valkey_server: Server) -> None:
    with connect(proxy.url) as impatient:
        assert impatient.set("testdata:a", 1)
        proxy.hold_requests(b"INCR")
        _be_impatient(impatient)
        with pytest.raises(RedisTimeoutError):
            impatient.incr("testdata:n")
    assert valkey_server.command("GET", "testdata:n") is None
    proxy.release()
    wait_until(lambda: valkey_server.command("GET", "testdata:n") == b"1", 30, "the late packet")
    wait_until(lambda: proxy.connections == 0)


def test_a_partition_delivers_late_and_a_blackhole_never(proxy: FaultProxy, valkey_server: Server) -> None:
    for number, (fault, expected) in enumerate(((proxy.partition, b"1"), (proxy.blackhole, None)), 1):
        valkey_server.command("DEL", "testdata:n")
        with connect(proxy.url) as client:
            assert client.set("testdata:a", 1)
            fault()
            _be_impatient(client)
            with pytest.raises(RedisTimeoutError):
                client.incr("testdata:n")
            # What reaches the proxy only now, or later, was never in the fault.
            wait_until(lambda n=number: proxy.count(b"INCR") == n, 30, "the request to reach the proxy")
            proxy.heal()
            assert client.set("testdata:a", 2)
        if expected:
            wait_until(lambda: valkey_server.command("GET", "testdata:n") == b"1", 30, "the late request")
        assert valkey_server.command("GET", "testdata:n") == expected


def test_connections_are_refused_cut_and_half_closed(client: redis.Redis, proxy: FaultProxy) -> None:
    proxy.refuse()
    assert client.get("testdata:a") == b"old"
    with connect(proxy.url) as newcomer, pytest.raises(RedisConnectionError):
        newcomer.get("testdata:a")
    proxy.heal()
    for cut in (proxy.cut_all, proxy.half_close):
        assert client.get("testdata:a") == b"old"
        made = proxy.connections_made
        cut()
        with pytest.raises(RedisError):
            _on_the_open_connection(client, "GET", "testdata:a")
        assert client.get("testdata:a") == b"old"
        assert proxy.connections_made == made + 1


def test_messages_are_dropped_held_and_doubled_but_replies_are_not(
    client: redis.Redis, proxy: FaultProxy, valkey_server: Server
) -> None:
    with cast("Any", client).pubsub() as channel:
        channel.subscribe("news", "sport")
        assert [_next(channel)["type"] for _ in range(2)] == ["subscribe", "subscribe"]
        proxy.drop_pushes()
        assert valkey_server.command("PUBLISH", "news", "lost") == 1
        wait_until(lambda: proxy.pushes_dropped == 1)
        proxy.hold_pushes()
        assert valkey_server.command("PUBLISH", "news", "late") == 1
        channel.ping()
        assert _next(channel)["type"] == "pong"
        proxy.release()
        assert _next(channel)["data"] == b"late"
        proxy.duplicate_pushes()
        assert valkey_server.command("PUBLISH", "sport", "twice") == 1
        assert [_next(channel)["data"] for _ in range(2)] == [b"twice", b"twice"]


def test_a_lost_subscription_confirmation(client: redis.Redis, proxy: FaultProxy) -> None:
    fault = proxy.drop_next_reply(b"SUBSCRIBE")
    with cast("Any", client).pubsub() as channel:
        channel.subscribe("news")
        with pytest.raises(RedisConnectionError):
            _next(channel)
    assert fault.strikes == 1


def test_a_dead_upstream_resets_the_client(private_server: Server) -> None:
    with FaultProxy(private_server) as proxy, connect(proxy.url) as client:
        assert client.set("a", 1)
        private_server.kill9()
        with pytest.raises(RedisConnectionError):
            client.get("a")
        with pytest.raises(RedisConnectionError):
            client.get("a")
        private_server.restart()
        assert client.set("a", 1)


def test_tls_ends_in_the_proxy(valkey_server: Server, certificates: Certificates) -> None:
    with (
        FaultProxy(valkey_server, tls=certificates) as proxy,
        connect(proxy.url, ssl_ca_certs=str(certificates.ca)) as client,
    ):
        assert client.set("testdata:a", "x" * 100_000)
        proxy.drop_next_reply(b"GET")
        with pytest.raises(RedisConnectionError):
            client.get("testdata:a")
        assert client.get("testdata:a") == b"x" * 100_000


@pytest.mark.parametrize(
    "frame",
    [
        b"+OK\r\n",
        b"$-1\r\n",
        b"$5\r\nab\r\nc\r\n",
        b"*-1\r\n",
        b"*2\r\n:1\r\n*1\r\n$0\r\n\r\n",
        b"%1\r\n+a\r\n_\r\n",
        b"|1\r\n+a\r\n:1\r\n$1\r\nb\r\n",
        b">2\r\n$7\r\nmessage\r\n=5\r\ntxt:a\r\n",
        b"PING\r\n",
    ],
)
def test_a_frame_is_complete_at_its_last_byte_only(frame: bytes) -> None:
    assert [resp.frame_end(frame[:size]) for size in range(len(frame))] == [None] * len(frame)
    assert resp.frame_end(frame) == len(frame)
    buffer = bytearray(frame * 2 + frame[:1])
    assert resp.split_frames(buffer) == [frame, frame]
    assert buffer == frame[:1]


def test_requests_and_kinds_of_frames() -> None:
    request = resp.encode_request("EVALSHA", b"\r\n", "ü")
    assert resp.parse_request(request) == (b"EVALSHA", b"\r\n", "ü".encode())
    assert resp.parse_request(b"PING  a\r\n") == (b"PING", b"a")
    kinds = [
        b"*1\r\n$7\r\nmessage\r\n",
        b"*1\r\n$9\r\nsubscribe\r\n",
        b">1\r\n$5\r\nother\r\n",
        b"*1\r\n:1\r\n",
        b"*0\r\n",
    ]
    assert [resp.frame_kind(frame) for frame in kinds] == ["push", "confirmation", "push", "reply", "reply"]


def _be_impatient(client: redis.Redis) -> None:
    """Wait for replies no longer than 0.1 s on the pooled connection; the next one is patient again."""
    cast("Any", client).connection_pool._available_connections[-1]._sock.settimeout(0.1)


def _on_the_open_connection(client: redis.Redis, *command: str) -> object:
    """Use the pooled connection without redis-py's own check whether it is still alive."""
    pool = cast("Any", client).connection_pool
    connection = pool._available_connections[-1]
    try:
        connection.send_command(*command)
        return connection.read_response()
    finally:
        connection.disconnect()


def _next(channel: Any) -> dict[str, Any]:  # noqa: ANN401 - redis-py's own type is not known to the checker
    return wait_until(lambda: channel.get_message(timeout=1), 30, "a message")
