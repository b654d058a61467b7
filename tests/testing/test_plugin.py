"""The fixtures, in runs of pytest of their own."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import tenure
from tests.docs.pages import ROOT, blocks
from tests.harness.aio import run_async
from tests.testing.support import need_embedded, run_pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.harness.servers import Server

pytest_plugins = ["pytester"]


@pytest.fixture
def test_url(valkey_server: Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """The server of the inner tests."""
    monkeypatch.setenv("TENURE_TEST_URL", valkey_server.url)
    return valkey_server.url


def test_every_example_of_the_page_runs(pytester: pytest.Pytester, test_url: str) -> None:
    source = "\n".join(block.text for block in blocks(ROOT / "docs" / "testing-your-code.md", "python"))
    outcomes, _ = run_pytest(pytester, source, "-W", "error")
    assert outcomes == {"passed": source.count("\ndef test_")}


def test_each_test_has_a_namespace_that_is_empty_afterwards(
    pytester: pytest.Pytester, test_url: str, valkey_server: Server
) -> None:
    outcomes, lines = run_pytest(
        pytester,
        """
        import pytest, tenure

        @pytest.mark.parametrize("number", range(3))
        def test_it(number, tenure_locks, tenure_namespace):
            print("namespace", tenure_namespace)
            assert tenure_locks.namespace == tenure_namespace
            assert tenure_locks.list() == []
            lease = tenure_locks.lock("n").acquire()
            assert lease.fence
            # Of somebody who was killed.
            tenure_locks.lock("left", ttl=30, renew=False).acquire()._hold.begin_release(0)
        """,
        "-s",
        "-W",
        "ignore",
    )
    assert outcomes == {"passed": 3}
    spaces = [line.split()[-1] for line in lines if "namespace " in line]
    assert len(set(spaces)) == 3
    assert valkey_server.command("KEYS", "*test-main*") == []


def test_processes_of_xdist_do_not_meet(pytester: pytest.Pytester, test_url: str) -> None:
    outcomes, lines = run_pytest(
        pytester,
        """
        import pytest, sys

        @pytest.mark.parametrize("number", range(2))
        def test_it(number, tenure_locks, tenure_namespace):
            with tenure_locks.lock("n", wait=0):
                pass
            raise AssertionError(f"namespace {tenure_namespace}")
        """,
        "-n",
        "2",
    )
    assert outcomes == {"failed": 2}
    spaces = {line.split()[-1] for line in lines if line.startswith("E ") and " namespace " in line}
    assert len(spaces) == 2
    assert {space.split("-")[1] for space in spaces} == {"gw0", "gw1"}


def test_without_a_server_named_it_is_the_embedded_one(pytester: pytest.Pytester) -> None:
    need_embedded()
    outcomes, _ = run_pytest(
        pytester,
        """
        import os
        os.environ["TENURE_URL"] = "redis://127.0.0.1:1"

        def test_it(tenure_locks, tenure_url):
            assert tenure_url.startswith("unix://")
            with tenure_locks.lock("n"):
                pass
        """,
    )
    assert outcomes == {"passed": 1}


def test_a_server_that_is_not_there_is_an_error_and_no_skip(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENURE_TEST_URL", "no://server")
    outcomes, _ = run_pytest(pytester, "def test_it(tenure_locks): pass")
    assert outcomes == {"errors": 1}


def test_nothing_happens_unless_it_is_asked_for(
    pytester: pytest.Pytester, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = tmp_path / "runtime"
    runtime.mkdir(0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    outcomes, _ = run_pytest(
        pytester,
        """
        import sys, threading

        def test_it():
            assert "tenure.testing.plugin" in sys.modules
            assert "tenure.embedded" not in sys.modules
            assert not [t for t in threading.enumerate() if t.name.startswith("tenure")]
        """,
        "-p",
        "no:xdist",
    )
    assert outcomes == {"passed": 1}
    assert not list(runtime.iterdir())


def test_it_can_be_turned_off(pytester: pytest.Pytester) -> None:
    outcomes, lines = run_pytest(pytester, "def test_it(tenure_locks): pass", "-p", "no:tenure")
    assert outcomes == {"errors": 1}
    assert any("fixture 'tenure_locks' not found" in line for line in lines)


def test_the_fixtures_work_here_too(
    tenure_locks: tenure.Locks, tenure_async_locks: tenure.AsyncLocks, tenure_namespace: str
) -> None:
    async def main() -> None:
        lease = await tenure_async_locks.lock("n").acquire()
        assert tenure_locks.holder("n") is not None
        assert await lease.release() is tenure.Released.RELEASED

    need_embedded()
    run_async(main)
    assert tenure_locks.namespace == tenure_async_locks.namespace == tenure_namespace


def test_the_plugin_imports_what_pytest_needs_and_tenure() -> None:
    code = (
        "import sys, pytest, asyncio, hiredis, logging, importlib.resources, urllib.parse\n"
        "import tenure; before = set(sys.modules)\n"
        "import tenure.testing.plugin; print(sorted(set(sys.modules) - before))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout
    assert eval(out) == [f"tenure.testing{part}" for part in ("", ".clock", ".losing", ".plugin")]  # noqa: S307
