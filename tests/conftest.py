"""Fixtures and house rules of all tests: real servers, a fresh namespace per test, nothing left behind.

Servers are started at first use and shared by the session; a test that kills or reconfigures one asks for
`private_server`. After every test the hygiene fixture fails it for leaked threads, sockets and child processes and, if
it used a shared server, for keys without a TTL (a test's own data goes under `testdata:`). `allow_leaks("reason")` on a
test turns that off.
"""

from __future__ import annotations

import collections
import contextlib
import importlib.metadata
import logging
import os
import platform
import re
import secrets
import shutil
import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest
from hypothesis import HealthCheck, settings

from tenure import manager, manager_base
from tenure.contrib.redis_py import lock_sessions
from tests.harness.certs import Certificates
from tests.harness.leaks import Snapshot, keys_without_ttl, wait_for_no_leaks
from tests.harness.proxy import FaultProxy
from tests.harness.servers import KINDS, Server, available_kinds, version_line, why_missing
from tests.harness.waiting import WaitedTooLong

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.harness.servers import Kind

_CLIENTS = ("redis", "hiredis", "valkey", "uvloop", "anyio")
_GRACE_SECONDS = float(os.environ.get("TESTS_GRACE_SECONDS", "15"))
_SHARED_SERVERS = frozenset({"server_pool", "tls_server"})
_runtime_folder = pytest.StashKey[Path]()

# The same examples each time, and no opinion on how long one takes: a machine that stands still is no defect of a test.
settings.register_profile(
    "tests", derandomize=True, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("tests")

# Session


def pytest_configure(config: pytest.Config) -> None:
    """Keep the tests away from the user's own embedded server and settings, before any test module is imported."""
    config.addinivalue_line("markers", "allow_leaks(reason): do not check what this test leaves behind, because …")
    # The size of a terminal comes along where tests run in several processes: readline, which pytest loads, sets it.
    for name in [name for name in os.environ if name.startswith("TENURE_") or name in {"LINES", "COLUMNS"}]:
        del os.environ[name]
    # A shell starts what it runs in the background with Ctrl-C ignored, and so would every process that a test starts.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Short, for a unix socket's path may have about 100 characters; its mode, 0700, is what the variable promises.
    folder = Path(tempfile.mkdtemp(prefix="tn-run-"))
    os.environ["XDG_RUNTIME_DIR"] = str(folder)
    config.stash[_runtime_folder] = folder


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the session's runtime folder."""
    folder = config.stash.get(_runtime_folder, None)
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)


def pytest_report_header() -> list[str]:
    """Name the versions in play at the top of the report."""
    clients = [f"{name} {version}" for name in _CLIENTS if (version := _version(name))]
    return [
        *(f"server: {version_line(kind)}" for kind in KINDS),
        f"clients: {', '.join(clients)}; {platform.python_implementation()} {platform.python_version()}",
    ]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say loudly how many tests were skipped, and why."""
    reports = cast("list[pytest.TestReport]", terminalreporter.getreports("skipped"))
    reasons = collections.Counter(
        report.longrepr[2].removeprefix("Skipped: ") if isinstance(report.longrepr, tuple) else str(report.longrepr)
        for report in reports
    )
    if reasons:
        terminalreporter.section("tests that did NOT run", yellow=True)
        for reason, count in reasons.most_common():
            terminalreporter.line(f"{count:5d}  {reason}")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what needs a server that is not here."""
    if item.get_closest_marker("redis_server") and "redis" not in available_kinds():
        pytest.skip(why_missing("redis"))


# Servers


class ServerPool:
    """The servers that the tests of a session share, one of each kind, started at first use."""

    def __init__(self) -> None:
        self._servers: dict[Kind, Server] = {}

    def get(self, kind: Kind) -> Server:
        """Return the shared server of a kind; skips the test when there is none on this machine."""
        if kind not in available_kinds():
            pytest.skip(why_missing(kind))
        if kind not in self._servers:
            self._servers[kind] = Server.start(kind)
            self._servers[kind].shared = True
        return self._servers[kind]

    def stop(self) -> None:
        """End all of them."""
        for server in self._servers.values():
            server.stop()


@pytest.fixture(scope="session")
def server_pool() -> Iterator[ServerPool]:
    pool = ServerPool()
    yield pool
    pool.stop()


@pytest.fixture(scope="session")
def valkey_server(server_pool: ServerPool) -> Server:
    """One Valkey for the whole session; leave it running and its settings alone."""
    return server_pool.get("valkey")


@pytest.fixture(scope="session", params=KINDS)
def any_server(request: pytest.FixtureRequest, server_pool: ServerPool) -> Server:
    """Each kind of server in turn, shared by the session; leave it running and its settings alone."""
    return server_pool.get(request.param)


@pytest.fixture
def private_server() -> Iterator[Server]:
    """A Valkey of this test's own, to kill, pause, restart and reconfigure."""
    with Server.start() as server:
        yield server


@pytest.fixture
def url(valkey_server: Server) -> str:
    """The TCP address of the shared Valkey."""
    return valkey_server.url


@pytest.fixture
def unix_url(valkey_server: Server) -> str:
    """The unix socket of the shared Valkey."""
    return valkey_server.unix_url


@pytest.fixture
def any_url(any_server: Server) -> str:
    """The TCP address of each shared kind of server in turn."""
    return any_server.url


@pytest.fixture
def proxy(valkey_server: Server) -> Iterator[FaultProxy]:
    """A fault proxy of this test's own before the shared Valkey."""
    with FaultProxy(valkey_server) as fault_proxy:
        yield fault_proxy


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """A CA, a server certificate that it signed, and a wrong CA."""
    if not Certificates.available():
        pytest.skip("no openssl command on this machine, which makes the certificates (apt install openssl)")
    return Certificates.create(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="session")
def tls_server(certificates: Certificates) -> Iterator[Server]:
    """A server with TLS at `tls_url`; Debian's Redis has it built in, the Valkey of the wheel gets a TLS front."""
    kind: Kind = "redis" if "redis" in available_kinds() else "valkey"
    with Server.start(kind, tls=certificates) as server:
        server.shared = True
        yield server


@pytest.fixture
def namespace(request: pytest.FixtureRequest) -> str:
    """A namespace that no other test uses, named after the test."""
    name = re.sub(r"[^a-zA-Z0-9]+", "-", request.node.name).strip("-")
    return f"{name[:40]}-{secrets.token_hex(4)}"


# Nothing stays behind


@pytest.fixture(autouse=True)
def hygiene(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that leaves threads, sockets, child processes or everlasting keys behind."""
    before = Snapshot.take()
    # The command sets up the log of its process; a test that runs it in this one must not quieten those that follow.
    log = logging.getLogger("tenure")
    level, handlers = log.level, [*log.handlers]
    yield
    log.setLevel(level)
    log.handlers[:] = handlers
    excuse = request.node.get_closest_marker("allow_leaks")
    if excuse is not None and not (excuse.args and str(excuse.args[0]).strip()):
        pytest.fail("allow_leaks needs a reason")
    problems = [] if excuse else wait_for_no_leaks(before, _GRACE_SECONDS)
    for server in Server.living() if _SHARED_SERVERS.intersection(request.fixturenames) else ():
        if server.shared:
            everlasting = _clean_up(server)
            problems += [] if excuse else everlasting
    if problems:
        pytest.fail("the test left behind:\n  " + "\n  ".join(problems))


@pytest.fixture
def patient_close(monkeypatch: pytest.MonkeyPatch) -> None:
    """Locks that are closed have half a minute to give back what they hold, where a program has a second."""
    for module in (manager, manager_base, lock_sessions):
        monkeypatch.setattr(module, "EXIT_TIMEOUT", 30.0)


def _clean_up(server: Server) -> list[str]:
    """Empty a shared server for the next test; brings it back to life where a test has ended it."""
    try:
        server.wait_ready(_GRACE_SECONDS)
        problems = [f"a key without a TTL: {key!r}" for key in keys_without_ttl(server.admin)]
    except WaitedTooLong:
        problems = [f"the shared {server.kind} server dead or frozen: use private_server"]
        with contextlib.suppress(RuntimeError):
            server.resume()
        server.restart()
    server.command("FLUSHALL")
    server.close_clients()
    return problems


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""
