"""The server harness against the real programs."""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoPermissionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from tests.harness.aio import BackgroundFailure, run_async
from tests.harness.leaks import Snapshot, keys_without_ttl, leftover_keys, wait_for_no_leaks
from tests.harness.processes import is_running
from tests.harness.servers import Server, ServerStartError, available_kinds, connect, why_missing
from tests.harness.waiting import WaitedTooLong, wait_until, wait_until_async

if TYPE_CHECKING:
    from tests.harness.certs import Certificates
    from tests.harness.servers import Kind

ROOT = Path(__file__).parents[2]


@pytest.fixture(params=["valkey", "redis"])
def kind(request: pytest.FixtureRequest) -> Kind:
    if request.param not in available_kinds():
        pytest.skip(why_missing(request.param))
    return request.param


def test_a_server_answers_on_tcp_and_on_its_unix_socket(any_server: Server) -> None:
    for address in (any_server.url, any_server.unix_url):
        with connect(address) as client:
            assert client.set("testdata:a", address)
            assert client.get("testdata:a") == address.encode()
    assert any_server.command("DEBUG", "SET-ACTIVE-EXPIRE", "1") == b"OK"


def test_kill_and_restart_lose_the_memory_unless_told_to_save(kind: Kind) -> None:
    for save in (False, True):
        with Server.start(kind, save=save) as server:
            server.command("SET", "a", "1")
            port, first = server.port, server.pid
            server.kill9()
            assert not server.alive
            server.restart()
            assert (server.port, server.alive) == (port, True)
            assert server.pid != first
            assert server.command("GET", "a") == (b"1" if save else None)


def test_a_paused_server_is_silent_until_it_is_resumed(private_server: Server) -> None:
    private_server.command("SET", "a", 1)
    private_server.pause()
    with pytest.raises(RedisTimeoutError):
        private_server.client(socket_timeout=0.1).get("a")
    private_server.resume()
    private_server.wait_ready()
    assert private_server.command("GET", "a") == b"1"


def test_passwords_users_and_settings() -> None:
    with Server.start(password="s3cret:@/") as server:
        with connect(server.url) as client:
            assert client.set("a", "1")
        limited = server.acl_user("app", "pw", "~app:*", "+set")
        with connect(limited) as client:
            assert client.set("app:x", 1)
            with pytest.raises(NoPermissionError):
                client.get("app:x")
        before = server.command("CONFIG", "GET", "maxmemory-policy")
        with server.configured(maxmemory_policy="volatile-ttl"):
            assert server.command("CONFIG", "GET", "maxmemory-policy")[1] == b"volatile-ttl"
        assert server.command("CONFIG", "GET", "maxmemory-policy") == before


def test_tls_is_verified_against_the_right_ca_only(kind: Kind, certificates: Certificates) -> None:
    with Server.start(kind, tls=certificates) as server:
        with connect(server.tls_url) as client:
            assert client.set("a", "1")
        wrong = server.tls_url.replace(str(certificates.ca.name), certificates.wrong_ca.name)
        with connect(wrong) as client, pytest.raises(RedisConnectionError, match="certificate"):
            client.get("a")


def test_a_server_that_cannot_start_says_why() -> None:
    with pytest.raises(ServerStartError, match="nonsense-option"):
        Server.start(args=["--nonsense-option", "1"])
    assert not [server for server in Server.living() if not server.shared]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the kernel's parent-death signal is Linux only")
def test_a_server_dies_with_a_killed_test_process() -> None:
    source = "from tests.harness.servers import Server; s = Server.start(); print(s.pid, s.folder, flush=True); input()"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, "-c", source], cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        pid_text, folder = process.stdout.readline().decode().split()
        pid = int(pid_text)
        assert is_running(pid)
        process.send_signal(signal.SIGKILL)
        process.wait()
        wait_until(lambda: not is_running(pid), 30, "the server to die with its parent")
        shutil.rmtree(folder)


def test_leaks_are_seen_and_their_end_is_seen(valkey_server: Server) -> None:
    before = Snapshot.take()
    client = connect(valkey_server.url)
    client.set("testdata:a", 1)
    child = subprocess.Popen(["sleep", "60"])
    wait_until(lambda: f"child process {child.pid}: sleep 60" in Snapshot.take().leaks_since(before))
    assert "open socket:" in " ".join(wait_for_no_leaks(before, timeout=0))
    client.close()
    child.kill()
    child.wait()
    assert wait_for_no_leaks(before) == []


def test_a_connection_that_was_made_anew_is_no_leak_and_one_more_is(valkey_server: Server) -> None:
    with connect(valkey_server.url) as kept, connect(valkey_server.url) as more:
        kept.get("a")
        before = Snapshot.take()
        kept.connection_pool.disconnect()
        kept.get("a")
        assert Snapshot.take().sockets != before.sockets
        assert wait_for_no_leaks(before, timeout=0) == []
        more.get("a")
        assert len(wait_for_no_leaks(before, timeout=0)) == 1


def test_keys_that_would_stay_for_ever_are_seen(valkey_server: Server) -> None:
    server = valkey_server
    for key in ("ns:a", "{ns:a}:queue", "other:a", "testdata:a"):
        server.command("SET", key, 1)
    server.command("SET", "ns:b", 1, "PX", 10_000)
    assert keys_without_ttl(server.admin, "ns:") == [b"ns:a", b"{ns:a}:queue"]
    assert keys_without_ttl(server.admin) == [b"ns:a", b"other:a", b"{ns:a}:queue"]
    assert leftover_keys(server.admin, "ns:") == [b"ns:a", b"ns:b", b"{ns:a}:queue"]
    server.command("DEL", "ns:a", "{ns:a}:queue", "other:a")


def test_waiting_gives_the_value_or_says_what_was_waited_for() -> None:
    values = iter([0, "", "there"])
    assert wait_until(lambda: next(values)) == "there"
    with pytest.raises(WaitedTooLong, match=r"0\.02 s for the moon"):
        wait_until(lambda: 0, timeout=0.02, why="the moon")

    async def in_a_loop() -> str:
        later = iter(["", "there"])
        with pytest.raises(WaitedTooLong):
            await wait_until_async(lambda: 0, timeout=0.02)
        return await wait_until_async(lambda: next(later))

    assert run_async(in_a_loop) == "there"


def test_run_async_tells_what_went_wrong_in_the_background() -> None:
    async def forgets_a_task() -> asyncio.Task[None]:
        return asyncio.create_task(asyncio.sleep(60))

    async def forgets_an_error() -> None:
        async def fail() -> None:
            raise ValueError("lost")

        task = asyncio.create_task(fail())
        await asyncio.wait([task])
        del task
        gc.collect()

    with pytest.raises(BackgroundFailure, match="still running"):
        run_async(forgets_a_task, grace=0.05)
    with pytest.raises(BackgroundFailure, match="lost"):
        run_async(forgets_an_error)
    with pytest.raises(TimeoutError):
        run_async(lambda: asyncio.sleep(60), timeout=0.02)
    assert run_async(lambda: asyncio.sleep(0, "done"), uvloop=True) == "done"


def test_the_embedded_server_of_the_user_is_out_of_reach() -> None:
    folder = os.environ["XDG_RUNTIME_DIR"]
    assert Path(folder).stat().st_mode & 0o777 == 0o700
    assert len(folder) < 40
    assert not [name for name in os.environ if name.startswith("TENURE_")]
