"""`tenure server`."""

from __future__ import annotations

import functools
import json
import tempfile
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from tenure import embedded
from tenure.cli.app import app
from tests.cli.commands import WAITS, python, tenure
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from click.testing import Result


@pytest.fixture(autouse=True)
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A runtime folder, and so an embedded server, of this test's own."""
    with tempfile.TemporaryDirectory(prefix="tn-srv-") as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        # Patient, for the machine may be slow.
        for name in ("join", "status", "stop"):
            monkeypatch.setattr(embedded, name, functools.partial(getattr(embedded, name), 30))
        yield folder
        wait_until(lambda: not embedded.status().running, 30, "the server to end")


def ask(*arguments: str) -> Result:
    result = CliRunner().invoke(app, ["server", *arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result


def test_a_server_that_does_not_run(runtime: str) -> None:
    status = ask("status")
    assert (status.exit_code, status.stdout) == (1, f"not running; it would be at {runtime}/tenure/v1/server.sock\n")
    seen = json.loads(ask("status", "--json").stdout)
    assert not seen["running"]
    assert seen["pid"] is None
    url = ask("url")
    assert (url.exit_code, url.stdout) == (1, "")
    assert "does not run" in url.stderr
    assert json.loads(ask("url", "--json").stdout) == {"url": None}
    assert ask("stop").stdout == "it was not running\n"
    assert json.loads(ask("stop", "--json").stdout) == {"stopped": False}


def test_a_server_that_runs_is_shown_and_stopped() -> None:
    with embedded.join() as membership:
        status = ask("status")
        assert status.exit_code == 0
        assert f"running  {membership.url}\npid      {membership.server_pid}\nversion  " in status.stdout
        assert json.loads(ask("status", "--json").stdout)["url"] == membership.url
        assert ask("url").stdout == f"{membership.url}\n"
        # Nobody has a connection open.
        stopped = ask("stop")
        assert (stopped.exit_code, stopped.stdout, stopped.stderr) == (0, "stopped\n", "")
        assert not embedded.status().running


def test_a_server_in_use_is_only_stopped_by_somebody_who_says_so() -> None:
    # A command of `run` has the connections, and hears that its lock is gone.
    with tenure("run", "job", "--ttl", "6", "--", *python(WAITS)) as worker:
        worker.wait_for("up")
        refused = ask("stop")
        assert refused.exit_code == 2
        assert "in use" in refused.stderr
        assert "add --yes" in refused.stderr
        assert embedded.status().running
        assert ask("stop", "--yes").exit_code == 0
        assert worker.wait() == 76
