"""What a process that joins may be like, and what the server takes along from it: nothing."""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
import redis

from tests.embedded.world import PROC, World, alive, join, needs_proc, wait_until

if TYPE_CHECKING:
    from tenure.embedded import Membership

PRELUDES = {
    "closed standard streams": "for n in (0, 1, 2): os.close(n)",
    "deleted current directory": "import tempfile; d = tempfile.mkdtemp(); os.chdir(d); os.rmdir(d)",
    "junk in PYTHON variables": (
        "os.environ.update(PYTHONHOME='/nowhere', PYTHONPATH='/nowhere', PYTHONSTARTUP='/nowhere', PYTHONINSPECT='1', "
        "PYTHONIOENCODING='junk', PYTHONWARNINGS='junk', PYTHONMALLOC='junk', PYTHONUTF8='junk')"
    ),
    "no environment": "xdg = os.environ['XDG_RUNTIME_DIR']; os.environ.clear(); os.environ['XDG_RUNTIME_DIR'] = xdg",
    "children ignored": "signal.signal(signal.SIGCHLD, signal.SIG_IGN)",
    "all signals blocked": "signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())",
    "umask 0": "os.umask(0)",
    "daemon": "os.umask(0o77); os.chdir('/'); signal.signal(signal.SIGHUP, signal.SIG_IGN)",
}


def connect(url: str) -> Any:  # noqa: ANN401 - redis-py's own annotations are partial
    """A client of the server at `url`, as a user would make it."""
    return cast("Any", redis.Redis).from_url(url)


@pytest.mark.parametrize("prelude", PRELUDES.values(), ids=PRELUDES.keys())
def test_any_process_can_start_the_server_and_keep_it(world: World, prelude: str) -> None:
    member = world.member(prelude)
    pid = member.join()
    assert stat.S_IMODE(world.socket.stat().st_mode) == 0o700
    other = world.member()
    assert other.join() == pid
    os.kill(pid, signal.SIGKILL)
    world.wait_empty()  # the reaper has noticed, whatever signals its starter blocked
    assert member.join() != pid
    other.kill()
    member.kill()
    world.wait_empty()


def test_a_lock_never_sits_on_a_standard_stream(world: World) -> None:
    member = world.member("for n in (0, 1, 2): os.close(n)")
    pid = member.join()
    assert member.ask("[os.dup2(report, n) for n in (0, 1, 2)]") == [0, 1, 2]
    assert member.ask("status().pid") == pid
    assert world.member().join() == pid


def test_a_thread_can_join_and_threads_share_one_server(world: World) -> None:
    memberships: list[Membership] = []
    threads = [threading.Thread(target=lambda: memberships.append(join(timeout=20))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    (pid,) = {membership.server_pid for membership in memberships}
    assert len(memberships) == 8
    for membership in memberships[1:]:
        membership.close()
        membership.close()
        assert membership.closed
    with join() as last:
        assert last.server_pid == pid
    assert alive(pid)
    memberships[0].close()
    world.wait_empty()


def test_ctrl_c_at_one_users_terminal_leaves_the_server_to_the_others(world: World) -> None:
    starter, other = world.member(), world.member()
    pid = starter.join()
    assert other.join() == pid
    os.killpg(starter.process.pid, signal.SIGINT)
    starter.process.wait(30)
    assert other.ask("status().pid") == pid


@needs_proc
def test_reaper_and_server_take_nothing_along_from_their_starter(world: World) -> None:
    member = world.member(
        "os.environ['SECRET'] = 'x'; kept = os.open('/etc/passwd', os.O_RDONLY); os.set_inheritable(kept, True)"
    )
    server = member.join()
    reaper = world.reaper_of(server)
    null = os.devnull
    # The log's reader goes away a moment after the server is reported to be up.
    wait_until(
        lambda: _open_files(reaper) == {0: null, 1: null, 2: null, 3: str(world.directory)}, "only its own files"
    )
    assert _open_files(server)[0] == null
    assert not [file for file in _open_files(server).values() if file.startswith("/") and file != null]
    for pid in (reaper, server):
        assert (PROC / str(pid) / "cwd").readlink() == Path("/")
        assert b"SECRET" not in (PROC / str(pid) / "environ").read_bytes()
        assert os.getsid(pid) not in {os.getsid(member.process.pid), os.getsid(0)}
        assert os.getpgid(pid) != os.getpgid(member.process.pid)
        terminal = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[4]
        assert terminal == "0"
    assert os.getsid(reaper) != reaper, "a session leader could still get a terminal"


def _open_files(pid: int) -> dict[int, str]:
    files: dict[int, str] = {}
    for entry in (PROC / str(pid) / "fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # it was closed while we looked
            files[int(entry.name)] = str(entry.readlink())
    return files


def test_the_starter_has_no_children_afterwards(world: World) -> None:
    member = world.member()
    member.join()
    assert member.ask("os.waitpid(-1, os.WNOHANG)") == "ChildProcessError: [Errno 10] No child processes"


def test_the_server_has_no_port_no_files_and_never_evicts(world: World) -> None:
    with join() as membership, connect(membership.url) as client:
        settings = client.config_get("*")
        expected = {
            "port": "0",
            "tls-port": "0",
            "save": "",
            "appendonly": "no",
            "maxmemory-policy": "noeviction",
            "protected-mode": "yes",
            "unixsocketperm": "700",
            "unixsocket": str(world.socket),
        }
        assert {name: settings[name] for name in expected} == expected
        assert client.info("server")["process_id"] == membership.server_pid
        assert client.info("server")["tcp_port"] == 0
    assert [path.name for path in world.directory.iterdir()] in ([], [world.socket.name])


@pytest.mark.parametrize("name", ["a b", "50%25", "q?x#y", "grüße", 'it\'s "so"'])
def test_the_url_is_quoted_so_that_a_client_finds_the_socket(
    world: World, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    odd = world.runtime / name
    odd.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(odd))
    with World(odd), join() as membership:
        assert membership.path == str(odd / "tenure" / "v1" / "server.sock")
        with connect(membership.url) as client:
            assert client.info("server")["process_id"] == membership.server_pid
