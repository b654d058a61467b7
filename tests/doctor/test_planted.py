"""Each misconfiguration, planted on a real server, is found; a sound server has none."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from typing import TYPE_CHECKING

import pytest

import tenure
from tenure.doctor import diagnose
from tenure.doctor.checks import CHECKS
from tests.doctor.support import bad, look
from tests.harness.servers import Server, free_port
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.harness.proxy import FaultProxy

MEGABYTE = 1 << 20


def test_a_sound_server_has_no_findings(any_server: Server) -> None:
    found = look(any_server.url)
    assert bad(found.values()) == {}
    assert next(iter(found)) == "scope"
    assert {"version", "role", "eviction", "persistence", "replicas", "tls", "clock", "permissions", "lock"} <= set(
        found
    )
    assert found["inbox"].severity == "ok"
    assert any_server.command("KEYS", "*") == [], "the lock that was tried has left something behind"


def test_a_sound_server_through_a_client_a_socket_and_tls(valkey_server: Server, tls_server: Server) -> None:
    assert bad(diagnose(valkey_server.client())) == {}
    assert bad(diagnose(valkey_server.unix_url)) == {}
    assert bad(diagnose(tls_server.tls_url)) == {}


def test_the_embedded_server() -> None:
    try:
        findings = diagnose()
    except tenure.ConfigError as error:
        pytest.skip(str(error))
    assert bad(findings) == {}
    assert findings[0].id == "scope"
    assert findings[0].severity == "info"
    assert "machine" in findings[0].seen


# The plants


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
def test_eviction(policy: str, private_server: Server) -> None:
    with private_server.configured(maxmemory_policy=policy, maxmemory=100 * MEGABYTE):
        found = look(private_server.url)
    assert bad(found.values()) == {"eviction": "error"}
    assert policy in found["eviction"].seen


def test_eviction_that_waits_for_a_limit(private_server: Server) -> None:
    with private_server.configured(maxmemory_policy="volatile-lru"):
        assert bad(diagnose(private_server.url)) == {"eviction": "warning"}


def test_keys_were_evicted(private_server: Server) -> None:
    with private_server.configured(maxmemory_policy="allkeys-random", maxmemory=used_memory(private_server) + MEGABYTE):
        for number in range(30):
            private_server.command("SET", f"testdata:{number}", "x" * 100_000)
    found = look(private_server.url)
    assert bad(found.values()) == {"evicted": "error"}
    assert found["evicted"].seen.startswith(str(private_server.command("INFO")["evicted_keys"]))


def test_memory_is_nearly_full(private_server: Server) -> None:
    private_server.command("SET", "testdata:filler", "x" * 20 * MEGABYTE)
    with private_server.configured(maxmemory=used_memory(private_server) * 105 // 100):
        assert bad(diagnose(private_server.url)) == {"memory": "warning"}


def test_a_replica(private_server: Server) -> None:
    private_server.command("CONFIG", "SET", "repl-diskless-sync-delay", 0)
    with Server.start(args=("--replicaof", "127.0.0.1", str(private_server.port))) as replica:
        wait_until(lambda: replica.command("INFO")["master_link_status"] == "up", 30, "the replica to be in step")
        found = look(replica.url)
        assert bad(found.values()) == {"role": "error", "lock": "error"}
        assert str(private_server.port) in found["role"].seen
        primary = look(private_server.url)
        assert bad(primary.values()) == {}
        assert primary["replicas"].severity == "info"


def test_a_node_of_a_cluster() -> None:
    with Server.start(args=("--cluster-enabled", "yes", "--cluster-port", str(free_port()))) as node:
        assert bad(diagnose(node.url, server_timeout=2))["role"] == "error"


def test_replicas_that_are_not_there(private_server: Server) -> None:
    with private_server.configured(min_replicas_to_write=1):
        found = bad(diagnose(private_server.url, server_timeout=2))
    assert found == {"replicas": "error", "lock": "error"}


def test_idle_connections_are_closed(private_server: Server) -> None:
    with private_server.configured(timeout=30):
        assert bad(diagnose(private_server.url)) == {"timeout": "warning"}
    with private_server.configured(timeout=600):
        assert bad(diagnose(private_server.url)) == {}


def test_subscribers_are_cut_off(private_server: Server) -> None:
    with private_server.configured(client_output_buffer_limit="pubsub 8192 0 0"):
        assert bad(diagnose(private_server.url)) == {"buffers": "warning"}


def test_hardly_a_connection_is_left(private_server: Server) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(100):
            idle = stack.enter_context(socket.socket(socket.AF_UNIX))
            idle.connect(private_server.socket_path)
        with private_server.configured(maxclients=111):
            assert bad(diagnose(private_server.url)) == {"clients": "warning"}


def test_snapshots_fail(private_server: Server, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    private_server.command("CONFIG", "SET", "dir", str(gone))
    gone.rmdir()
    private_server.command("CONFIG", "SET", "save", "3600 1")
    private_server.command("BGSAVE")
    wait_until(lambda: private_server.command("INFO")["rdb_last_bgsave_status"] == "err", 30, "the snapshot to fail")
    found = look(private_server.url)
    assert bad(found.values()) == {"disk": "error", "lock": "error"}
    assert "MISCONF" in found["lock"].seen
    private_server.command("CONFIG", "SET", "stop-writes-on-bgsave-error", "no")
    assert bad(diagnose(private_server.url)) == {"disk": "warning"}


def test_still_loading(private_server: Server) -> None:
    # For half a minute: it is not to be over when a slow machine comes to look.
    private_server.command("MSET", *(word for n in range(30_000) for word in (f"testdata:{n}", "v")))
    private_server.command("CONFIG", "SET", "loading-process-events-interval-bytes", 1024)
    private_server.command("CONFIG", "SET", "key-load-delay", 1_000)
    loader = private_server.client(socket_timeout=60)

    def load() -> None:
        with contextlib.suppress(Exception):  # the test ends the server while it loads
            loader.execute_command("DEBUG", "RELOAD")  # pyright: ignore[reportUnknownMemberType]

    thread = threading.Thread(target=load)
    thread.start()
    try:
        wait_until(lambda: private_server.command("INFO")["loading"] == 1, 30, "the server to load")
        found = look(private_server.url, server_timeout=2)
    finally:
        private_server.kill9()
        thread.join()
    assert found["state"].severity == "error"
    assert found["lock"].severity == "error"


@pytest.mark.parametrize("ahead", [3, -3])
def test_clocks_are_apart(ahead: int, proxy: FaultProxy) -> None:
    def shifted(reply: bytes) -> bytes:
        lines = reply.split(b"\r\n")
        lines[2] = b"%d" % (int(lines[2]) + ahead)
        return b"\r\n".join(lines)

    proxy.replace_next_reply(b"TIME", shifted, times=None)
    found = look(proxy.url)
    assert bad(found.values()) == {"clock": "warning"}
    seconds = re.search(r"is (\d\.\d+) s (ahead|behind)", found["clock"].seen)
    assert seconds is not None
    assert abs(float(seconds[1]) - 3) < 0.5
    assert seconds[2] == ("ahead" if ahead > 0 else "behind")


def test_a_slow_way(proxy: FaultProxy) -> None:
    proxy.delay(0.11)
    assert bad(diagnose(proxy.url)) == {"latency": "warning"}


def test_messages_do_not_arrive(proxy: FaultProxy, impatient: None) -> None:
    proxy.drop_pushes()
    found = look(proxy.url)
    assert bad(found.values()) == {"inbox": "warning"}


def test_nobody_there() -> None:
    findings = diagnose("redis://127.0.0.1:1", server_timeout=0.2)
    assert [(f.id, f.severity) for f in findings] == [("server", "error")]


def test_a_password_is_wrong() -> None:
    with Server.start(password="right") as server, pytest.raises(tenure.ConfigError, match="password") as caught:
        diagnose(server.url.replace("right", "wrong"))
    assert "wrong" not in str(caught.value)


def test_every_check_can_say_that_nothing_is_known(any_server: Server) -> None:
    """A rented server without INFO and CONFIG: nothing bad is invented, and what is not known is said."""
    url = any_server.acl_user("locks", "p", "~*", "&*", "+@all", "-info", "-config")
    found = look(url)
    assert bad(found.values()) == {}
    assert found["access"].severity == "info"
    assert "INFO and CONFIG GET" in found["access"].seen
    assert len(found) < len(CHECKS)
    any_server.command("ACL", "DELUSER", "locks")


def used_memory(server: Server) -> int:
    return int(server.command("INFO")["used_memory"])
