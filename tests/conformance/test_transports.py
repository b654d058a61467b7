"""Every way to a server: addresses, credentials, TLS, and client objects of both libraries with all their settings."""

from __future__ import annotations

import importlib
import time
from typing import TYPE_CHECKING, Any

import pytest

import tenure
from tests.harness.leases import wait_for_inbox
from tests.harness.servers import Server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conformance.flavours import AnyLocks, Flavour
    from tests.harness.certs import Certificates

PASSWORD = "p@ss:w/ör d%"


def works(locks: AnyLocks, others: AnyLocks) -> None:
    """The whole round: take, renew, wait, hand over, look."""
    began = time.monotonic()
    lease = locks.lock("a", ttl=5, info="x").acquire()
    lease.renew()
    holder = others.holder("a")
    assert holder is not None
    assert (holder.fence, holder.info) == (lease.fence, "x")
    waiting = others.queue("a", ttl=5)
    assert [row.name for row in others.list()] == ["a"]
    assert lease.release() is tenure.Released.RELEASED
    handed = waiting.result(30)
    assert handed.fence > lease.fence
    assert handed.release() is tenure.Released.RELEASED
    wait_for_inbox(locks.raw)
    # None but those that were given up because no answer came for 5/3 s, which on a slow machine may happen.
    assert locks.statistics().broken_connections <= (time.monotonic() - began) // (5 / 3)


@pytest.fixture(scope="module")
def secured() -> Iterator[Server]:
    """A server that asks for a password."""
    with Server.start(password=PASSWORD) as server:
        server.shared = True
        yield server


class TestUrls:
    def both(self, flavour: Flavour, url: str, namespace: str) -> None:
        works(flavour.locks(url, namespace=namespace), flavour.locks(url, namespace=namespace))

    def test_tcp(self, flavour: Flavour, any_url: str, namespace: str) -> None:
        self.both(flavour, any_url, namespace)

    def test_unix_socket(self, flavour: Flavour, any_server: Server, namespace: str) -> None:
        self.both(flavour, any_server.unix_url, namespace)

    def test_valkey_library(self, flavour: Flavour, any_url: str, namespace: str) -> None:
        self.both(flavour, any_url.replace("redis://", "valkey://"), namespace)

    def test_tls(self, flavour: Flavour, tls_server: Server, namespace: str) -> None:
        self.both(flavour, tls_server.tls_url, namespace)
        self.both(flavour, tls_server.tls_url.replace("rediss://", "valkeys://"), f"{namespace}2")

    def test_password(self, flavour: Flavour, secured: Server, namespace: str) -> None:
        self.both(flavour, secured.url, namespace)
        self.both(flavour, secured.unix_url, f"{namespace}2")

    def test_user(self, flavour: Flavour, valkey_server: Server, namespace: str) -> None:
        url = valkey_server.acl_user("jo", PASSWORD, "~*", "&*", "+@all")
        self.both(flavour, url, namespace)
        valkey_server.command("ACL", "DELUSER", "jo")

    def test_other_database(self, flavour: Flavour, any_url: str, any_server: Server, namespace: str) -> None:
        url = any_url.removesuffix("/0") + "/1"
        locks = flavour.locks(url, namespace=namespace)
        with locks.lock("a").block():
            # The same name in another database is another lock.
            assert flavour.locks(any_url, namespace=namespace).list() == []
            assert not any_server.command("EXISTS", f"{namespace}:a")
        self.both(flavour, url, f"{namespace}2")


COMMANDS = [
    *("-@all", "+eval", "+evalsha", "+time", "+exists", "+get", "+set", "+del", "+pttl", "+pexpire", "+pexpireat"),
    *("+type", "+zadd", "+zcard", "+zrange", "+zrank", "+zrem", "+zscore", "+hget", "+hset", "+hdel"),
    *("+ssubscribe", "+spublish", "+pubsub|shardnumsub", "+ping", "+scan"),
]
"""What docs/permissions.md asks for; that each of them is needed is shown beside that page."""


class TestUsers:
    def test_with_the_least_rights_can_do_everything(
        self, flavour: Flavour, any_server: Server, namespace: str
    ) -> None:
        keys = (f"~{namespace}:*", f"~{{{namespace}:*", f"&{namespace}:@*")
        url = any_server.acl_user("least", PASSWORD, "resetchannels", *keys, *COMMANDS)
        works(*(flavour.locks(url, namespace=namespace) for _ in range(2)))
        elsewhere = flavour.locks(url, namespace=f"{namespace}2")
        for use in (elsewhere.lock("a").acquire, lambda: elsewhere.holder("a")):
            with pytest.raises(tenure.PermissionDenied) as caught:
                use()
            assert PASSWORD not in str(caught.value)
            assert isinstance(caught.value, PermissionError)
        any_server.command("ACL", "DELUSER", "least")

    def test_without_a_channel_can_lock_but_is_told_when_it_has_to_wait(
        self, flavour: Flavour, any_server: Server, any_url: str, namespace: str
    ) -> None:
        url = any_server.acl_user("deaf", PASSWORD, "resetchannels", "~*", "+@all")
        locks = flavour.locks(url, namespace=namespace)
        locks.lock("a").acquire().release()
        with flavour.locks(any_url, namespace=namespace).lock("a").block():
            assert locks.lock("a").try_acquire() is None
            with pytest.raises(tenure.PermissionDenied, match=f"inbox channel '{namespace}:@"):
                locks.lock("a", wait=20).acquire()
        any_server.command("ACL", "DELUSER", "deaf")


class TestRefusals:
    """What a user sees when the way is blocked: at once, as an error that can be acted on, without the password."""

    def fails(self, flavour: Flavour, url: str, namespace: str, kind: type[tenure.TenureError], *words: str) -> None:
        locks = flavour.locks(url, namespace=namespace, server_timeout=20)
        for use in (locks.lock("a", wait=20).acquire, locks.lock("a").try_acquire, locks.list):
            with pytest.raises(kind) as caught:
                use()
            text = f"{caught.value!s} {caught.value!r}"
            assert all(word in text for word in words), text
            assert "s3cret" not in text

    def is_told_in_the_end(self, flavour: Flavour, url: str, namespace: str, words: str) -> None:
        """After the last try within the budget; one that ran out of time on a slow machine tells something else."""
        told: list[str] = []
        for budget in (0.6, 3.0, 12.0):
            with pytest.raises(tenure.ServerUnavailable) as caught:
                flavour.locks(url, namespace=namespace, server_timeout=budget).lock("a").acquire()
            told.append(str(caught.value))
            if words in told[-1]:
                return
        pytest.fail(f"not told {words!r}, but {told}")

    @pytest.mark.parametrize("login", ["", ":s3cret@", "jo:s3cret@"], ids=["none", "wrong password", "unknown user"])
    def test_password(self, flavour: Flavour, secured: Server, namespace: str, login: str) -> None:
        url = f"redis://{login}127.0.0.1:{secured.port}/0"
        self.fails(flavour, url, namespace, tenure.ConfigError, "check user, password", f"127.0.0.1:{secured.port}")

    def test_password_where_none_is_wanted(self, flavour: Flavour, any_server: Server, namespace: str) -> None:
        url = f"redis://:s3cret@127.0.0.1:{any_server.port}/0"
        self.fails(flavour, url, namespace, tenure.ConfigError, "check user, password")

    def test_database_out_of_range(self, flavour: Flavour, any_url: str, namespace: str) -> None:
        url = any_url.removesuffix("/0") + "/99"
        self.fails(flavour, url, namespace, tenure.ConfigError, "out of range")

    def test_wrong_certificate_authority(
        self, flavour: Flavour, tls_server: Server, certificates: Certificates, namespace: str
    ) -> None:
        url = tls_server.tls_url.replace(str(certificates.ca), str(certificates.wrong_ca))
        self.fails(flavour, url, namespace, tenure.ServerUnavailable, "ssl_ca_certs")

    def test_tls_to_a_plain_port(
        self, flavour: Flavour, tls_server: Server, certificates: Certificates, namespace: str
    ) -> None:
        url = f"rediss://localhost:{tls_server.port}/0?ssl_ca_certs={certificates.ca}"
        self.is_told_in_the_end(flavour, url, namespace, "redis:// instead of rediss://")

    def test_plain_to_a_tls_port(self, flavour: Flavour, tls_server: Server, namespace: str) -> None:
        url = f"redis://localhost:{tls_server.tls_port}/0"
        self.is_told_in_the_end(flavour, url, namespace, "rediss:// instead of redis://")

    def test_nobody_there(self, flavour: Flavour, namespace: str) -> None:
        locks = flavour.locks("redis://:s3cret@127.0.0.1:1", namespace=namespace, server_timeout=0.3)
        for use in (locks.lock("a").acquire, locks.lock("a").try_acquire, locks.list):
            with pytest.raises(tenure.ServerUnavailable, match=r"127\.0\.0\.1:1") as caught:
                use()
            assert isinstance(caught.value, ConnectionError)
            assert caught.value.node == "127.0.0.1:1"
            assert "s3cret" not in f"{caught.value!s} {caught.value!r}"

    def test_a_socket_that_is_not_there(self, flavour: Flavour, namespace: str) -> None:
        locks = flavour.locks("unix:///nowhere/at/all", namespace=namespace, server_timeout=0.3)
        with pytest.raises(tenure.ServerUnavailable, match="/nowhere/at/all"):
            locks.lock("a").acquire()


SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "decoded": {"decode_responses": True},
    "resp2": {"protocol": 2, "decode_responses": True},
    "resp3": {"protocol": 3},
    "resp3 decoded": {"protocol": 3, "decode_responses": True},
    "encoding": {"encoding": "utf-16", "decode_responses": True},
    "timeouts": {"socket_timeout": 0.001, "health_check_interval": 1, "client_name": "jo"},
    "single": {"single_connection_client": True},
}


class TestInjectedClients:
    @pytest.mark.parametrize("library", ["redis", "valkey"])
    @pytest.mark.parametrize("settings", SETTINGS)
    def test_lend_their_settings(self, flavour: Flavour, url: str, namespace: str, library: str, settings: str) -> None:
        made = [flavour.client(url, library, **SETTINGS[settings]) for _ in range(2)]
        works(*(flavour.locks(client, namespace=namespace) for client in made))

    @pytest.mark.parametrize("library", ["redis", "valkey"])
    def test_retries_are_not_used(self, flavour: Flavour, namespace: str, library: str) -> None:
        """Theirs would go on for ever; ours end with the budget."""
        root = importlib.import_module(f"{library}.retry" if flavour.kind == "blocking" else f"{library}.asyncio.retry")
        backoff = importlib.import_module(f"{library}.backoff")
        retry = root.Retry(backoff.ConstantBackoff(10), 100)
        client = flavour.client("redis://127.0.0.1:1", library, retry=retry, retry_on_error=[ConnectionError])
        locks = flavour.locks(client, namespace=namespace, server_timeout=0.3)
        with pytest.raises(tenure.ServerUnavailable):
            locks.lock("a").acquire()

    def test_with_retries_on_work(self, flavour: Flavour, any_url: str, namespace: str) -> None:
        client = flavour.client(any_url, retry_on_timeout=True)
        works(flavour.locks(client, namespace=namespace), flavour.locks(client, namespace=namespace))

    @pytest.mark.parametrize("library", ["redis", "valkey"])
    def test_credential_providers_are_asked(
        self, flavour: Flavour, secured: Server, namespace: str, library: str
    ) -> None:
        credentials = importlib.import_module(f"{library}.credentials")
        asked: list[int] = []

        class Provider(credentials.CredentialProvider):
            def get_credentials(self) -> tuple[str, str]:
                asked.append(1)
                return ("default", PASSWORD)

        url = f"redis://127.0.0.1:{secured.port}/0"
        client = flavour.client(url, library, credential_provider=Provider())
        works(flavour.locks(client, namespace=namespace), flavour.locks(client, namespace=namespace))
        assert asked

    def test_by_unix_socket_and_by_tls(
        self, flavour: Flavour, valkey_server: Server, tls_server: Server, namespace: str
    ) -> None:
        for url in (valkey_server.unix_url, tls_server.tls_url):
            client = flavour.client(url)
            works(flavour.locks(client, namespace=namespace), flavour.locks(url, namespace=namespace))

    def test_whose_password_changes_use_the_new_one(
        self, flavour: Flavour, valkey_server: Server, namespace: str
    ) -> None:
        """Only for new connections; the ones that are open go on."""
        url = valkey_server.acl_user("jo", "old", "~*", "&*", "+@all")
        # Patient: a request that is given up takes its connection along.
        locks = flavour.locks(url, namespace=namespace, server_timeout=30)
        with locks.lock("a", ttl=60).block() as lease:
            valkey_server.command("ACL", "SETUSER", "jo", "resetpass", ">new")
            lease.renew()
        valkey_server.command("ACL", "DELUSER", "jo")

    def test_of_the_other_flavour_are_refused(self, flavour: Flavour, url: str) -> None:
        wrong = importlib.import_module("redis.asyncio" if flavour.kind == "blocking" else "redis").Redis.from_url(url)
        mine = "Locks" if flavour.kind == "blocking" else "AsyncLocks"
        with pytest.raises(tenure.ConfigError, match=f"^{mine} cannot use an? (asyncio|blocking) client"):
            flavour.locks(wrong)
