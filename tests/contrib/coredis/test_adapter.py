# ruff: noqa: ANN401 - coredis's own objects
"""Every setting of a coredis client that concerns its connections, and every way in which one cannot be had."""

from __future__ import annotations

import os
import ssl
import threading
from typing import TYPE_CHECKING, Any, cast

import coredis
import coredis.connection
import coredis.credentials
import coredis.pool
import pytest

import tenure
from tenure.clients.coredis import CoredisClient
from tenure.clients.direct import Address, DirectClient
from tests.conformance.test_transports import works
from tests.harness.aio import run_async
from tests.harness.servers import Server
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tenure.clients import Client
    from tests.conformance.flavours import AnyLocks, Flavour
    from tests.harness.certs import Certificates
    from tests.harness.proxy import FaultProxy

PASSWORD = "p@ss:w/ör d%"
SECRET = "s3cret"


def client(**settings: Any) -> Any:
    return cast("Any", coredis.Redis)(**{"host": "127.0.0.1", **settings})


def trust(authority: Any) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(authority))


@pytest.fixture(scope="module")
def secured() -> Iterator[Server]:
    """A server that asks for a password."""
    with Server.start(password=PASSWORD) as server:
        server.shared = True
        yield server


class Provider(coredis.credentials.AbstractCredentialProvider):
    """Credentials that are asked for anew for each connection."""

    def __init__(self, user: str, password: str) -> None:
        self.given = coredis.credentials.UserPass(user, password)
        self.asked = 0

    async def get_credentials(self) -> coredis.credentials.UserPass:
        self.asked += 1
        return self.given


class Broken(coredis.credentials.AbstractCredentialProvider):
    """Has none to give."""

    async def get_credentials(self) -> coredis.credentials.UserPass:
        raise LookupError(SECRET)


def greeted(server: Server) -> bool:
    """Whether there are connections of the test's client, and all of them have said all that they should."""
    rows: list[dict[str, str]] = cast("Any", server.admin).client_list()
    named = [row for row in rows if row["name"] == "jo"]
    return bool(named) and all(row["db"] == "1" and {"e", "T"} <= set(row["flags"]) for row in named)


class TestSettings:
    def both(self, flavour: Flavour, namespace: str, **settings: Any) -> None:
        works(*(flavour.locks(CoredisClient(client(**settings)), namespace=namespace) for _ in range(2)))

    def test_address(self, flavour: Flavour, any_server: Server, namespace: str) -> None:
        self.both(flavour, namespace, port=any_server.port)

    def test_unix_socket(self, flavour: Flavour, any_server: Server, namespace: str) -> None:
        self.both(flavour, namespace, unix_socket_path=any_server.socket_path)

    def test_password(self, flavour: Flavour, secured: Server, namespace: str) -> None:
        self.both(flavour, namespace, port=secured.port, password=PASSWORD)

    def test_user(self, flavour: Flavour, valkey_server: Server, namespace: str) -> None:
        valkey_server.acl_user("jo", PASSWORD, "~*", "&*", "+@all")
        self.both(flavour, namespace, port=valkey_server.port, username="jo", password=PASSWORD)
        valkey_server.command("ACL", "DELUSER", "jo")

    def test_credential_provider(self, flavour: Flavour, secured: Server, namespace: str) -> None:
        provider = Provider("default", PASSWORD)
        self.both(flavour, namespace, port=secured.port, credential_provider=provider)
        assert provider.asked >= 4

    def test_tls(self, flavour: Flavour, tls_server: Server, certificates: Certificates, namespace: str) -> None:
        self.both(flavour, namespace, host="localhost", port=tls_server.tls_port, ssl_context=trust(certificates.ca))
        settings = {"ssl": True, "ssl_ca_certs": str(certificates.ca), "ssl_cert_reqs": "required"}
        self.both(flavour, f"{namespace}2", host="localhost", port=tls_server.tls_port, **settings)

    def test_the_rest(self, flavour: Flavour, valkey_server: Server, namespace: str) -> None:
        settings = {"db": 1, "client_name": "jo", "noevict": True, "notouch": True, "decode_responses": True}
        adapter = CoredisClient(client(port=valkey_server.port, stream_timeout=0.001, max_idle_time=1, **settings))
        locks = flavour.locks(adapter, namespace=namespace)
        with locks.lock("a").block():
            wait_until(lambda: greeted(valkey_server), 25, "every connection to have been greeted")
            assert not valkey_server.command("EXISTS", f"{namespace}:a")

    def test_keepalive(self, valkey_server: Server) -> None:
        import socket  # noqa: PLC0415 - one option's number

        pool = coredis.pool.ConnectionPool(
            connection_class=coredis.connection.TCPConnection,
            location=coredis.connection.TCPLocation("127.0.0.1", valkey_server.port),
            **cast("Any", {"socket_keepalive": True, "socket_keepalive_options": {socket.TCP_KEEPIDLE: 77}}),
        )
        connection = CoredisClient(client(connection_pool=pool)).connect(10)
        opened = cast("Any", connection)._sock
        assert opened.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 77
        connection.close()

    def test_beside_the_client_itself(self, any_server: Server, namespace: str) -> None:
        async def main() -> None:
            async with client(port=any_server.port) as shared:
                locks = tenure.AsyncLocks(CoredisClient(shared), namespace=namespace)
                async with locks, locks.lock("a"):
                    assert await shared.get(f"{namespace}:a")
                assert not await shared.get(f"{namespace}:a")

        run_async(main)


class TestRefusals:
    def fails(
        self, locks: AnyLocks, kind: type[tenure.TenureError], *words: str, secrets: tuple[str, ...] = (SECRET,)
    ) -> None:
        for use in (locks.lock("a", wait=20).acquire, locks.lock("a").try_acquire, locks.list):
            with pytest.raises(kind) as caught:
                use()
            text = f"{caught.value!s} {caught.value!r}"
            assert all(word in text for word in words), text
            assert not any(secret in text for secret in secrets), text

    @pytest.mark.parametrize("login", [{}, {"password": SECRET}, {"username": "jo", "password": SECRET}])
    def test_of_credentials(self, flavour: Flavour, secured: Server, namespace: str, login: dict[str, str]) -> None:
        adapter = CoredisClient(client(port=secured.port, **login))
        self.fails(flavour.locks(adapter, namespace=namespace), tenure.ConfigError, "check user, password")

    def test_of_a_database(self, flavour: Flavour, any_server: Server, namespace: str) -> None:
        adapter = CoredisClient(client(port=any_server.port, db=99))
        self.fails(flavour.locks(adapter, namespace=namespace), tenure.ConfigError, "out of range")

    def test_of_a_certificate(
        self, flavour: Flavour, tls_server: Server, certificates: Certificates, namespace: str
    ) -> None:
        context = trust(certificates.wrong_ca)
        adapter = CoredisClient(client(host="localhost", port=tls_server.tls_port, ssl_context=context))
        # At once: another try cannot help.
        locks = flavour.locks(adapter, namespace=namespace, server_timeout=600)
        self.fails(locks, tenure.ServerUnavailable, "check the certificates")

    def test_where_nobody_is(self, flavour: Flavour, namespace: str) -> None:
        adapter = CoredisClient(client(port=1, password=SECRET))
        locks = flavour.locks(adapter, namespace=namespace, server_timeout=0.3)
        self.fails(locks, tenure.ServerUnavailable, "127.0.0.1:1")

    def test_of_a_socket_that_is_not_there(self, flavour: Flavour, namespace: str) -> None:
        adapter = CoredisClient(client(unix_socket_path="/nowhere/at/all"))
        locks = flavour.locks(adapter, namespace=namespace, server_timeout=0.3)
        self.fails(locks, tenure.ServerUnavailable, "/nowhere/at/all")

    def test_of_a_provider(self, flavour: Flavour, secured: Server, namespace: str) -> None:
        adapter = CoredisClient(client(port=secured.port, credential_provider=Broken()))
        locks = flavour.locks(adapter, namespace=namespace, server_timeout=0.3)
        self.fails(locks, tenure.ServerUnavailable, "credential provider failed: LookupError")

    def test_of_a_server_that_says_nothing(self, flavour: Flavour, private_server: Server, namespace: str) -> None:
        adapter = CoredisClient(client(port=private_server.port, password="x"))
        locks = flavour.locks(adapter, namespace=namespace, server_timeout=0.5)
        private_server.pause()
        try:
            with pytest.raises(tenure.ServerUnavailable):
                locks.lock("a").acquire()
        finally:
            private_server.resume()

    def test_of_clients_that_are_more_than_one_server(self) -> None:
        node = coredis.connection.TCPLocation("127.0.0.1", 1)
        # Without its constructor, which leaves streams of its own open.
        cluster: Any = object.__new__(cast("Any", coredis.RedisCluster))
        cluster.connection_pool = object.__new__(coredis.pool.ClusterConnectionPool)
        with pytest.raises(tenure.ConfigError, match="RedisCluster object is not supported by this version"):
            CoredisClient(cluster)
        behind_sentinel: Any = coredis.Sentinel([node]).primary_for("x")
        with pytest.raises(tenure.ConfigError, match="not supported by this version"):
            CoredisClient(behind_sentinel)

    def test_of_connections_that_open_themselves_in_their_own_way(self) -> None:
        class Tunnel(coredis.connection.TCPConnection):
            """Opens its stream through something else."""

        location = coredis.connection.TCPLocation("127.0.0.1", 1)
        pool = coredis.pool.ConnectionPool(connection_class=Tunnel, location=location)
        with pytest.raises(tenure.ConfigError, match="class Tunnel cannot be opened"):
            CoredisClient(client(connection_pool=pool))

    def test_of_something_else(self) -> None:
        with pytest.raises(tenure.ConfigError, match="a client of coredis is needed, not str"):
            CoredisClient("redis://x")


class TestConnections:
    def test_come_back_after_the_server_was_killed(
        self, flavour: Flavour, private_server: Server, namespace: str
    ) -> None:
        locks = [
            flavour.locks(CoredisClient(client(port=private_server.port)), namespace=namespace, server_timeout=30)
            for _ in range(2)
        ]
        lease = locks[0].lock("a", ttl=30).acquire()
        waiting = locks[1].queue("a", ttl=30, wait=60)
        private_server.restart()
        # Its memory is gone: the waiter gets the lock, and the holder is told.
        handed = waiting.result(60)
        assert handed.fence > lease.fence
        assert lease.release() is not tenure.Released.RELEASED
        assert handed.release() is tenure.Released.RELEASED

    def test_that_are_cut_in_an_acquire_leave_nothing(
        self, flavour: Flavour, proxy: FaultProxy, valkey_server: Server, namespace: str
    ) -> None:
        adapter = CoredisClient(client(port=proxy.port))
        locks = flavour.locks(adapter, namespace=namespace, server_timeout=30)
        locks.lock("b").acquire().release()
        proxy.drop_next_reply(f"{namespace}:a".encode(), then="rst")
        lease = locks.lock("a", ttl=30).acquire()
        assert lease.release() is tenure.Released.RELEASED
        wait_until(lambda: not valkey_server.command("EXISTS", f"{namespace}:a"), 25, "the lock to be free")
        # Before the proxy ends, to which a hub would connect again.
        locks.close()

    def test_are_not_shared_with_a_fork(self, any_server: Server, namespace: str) -> None:
        with tenure.Locks(CoredisClient(client(port=any_server.port)), namespace=namespace) as locks:
            lease = locks.lock("a", ttl=60).acquire()
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    with locks.lock("b", wait=0):
                        code = int(locks.lock("a").try_acquire() is not None)
                finally:
                    os._exit(code)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            lease.renew()
            assert lease.release() is tenure.Released.RELEASED

    def test_can_be_opened_while_this_thread_runs_a_loop(self, secured: Server) -> None:
        provider = Provider("default", PASSWORD)
        adapter = CoredisClient(client(port=secured.port, credential_provider=provider))

        async def main() -> None:
            connection = adapter.connect(30)
            assert connection.usable()
            connection.close()

        before = threading.active_count()
        run_async(main)
        assert threading.active_count() == before


def test_it_is_what_the_protocol_asks_for() -> None:
    adapter: Client = CoredisClient(client(port=7))
    assert adapter.node == "127.0.0.1:7"
    adapter.forked()
    adapter.close()


def test_an_address_shows_no_secret() -> None:
    address = Address("h", 7, user="jo", password=SECRET)
    assert SECRET not in repr(address)
    assert DirectClient(address).node == "h:7"
    assert Address(path="/s").node == "/s"
