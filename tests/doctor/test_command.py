"""`tenure doctor`: what it prints, and its exit codes."""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from tenure.cli.doctor import doctor
from tenure.doctor import diagnose
from tests.harness.servers import Server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from click.testing import Result


@pytest.fixture(scope="module")
def spoiled() -> Iterator[Server]:
    """A server with one warning."""
    with Server.start(args=("--maxmemory-policy", "allkeys-lru")) as server:
        server.shared = True
        yield server


def run(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(doctor, arguments, env={"TENURE_URL": None, **environment})


def test_a_sound_server(url: str) -> None:
    result = run("--url", url)
    assert result.exit_code == 0
    assert result.output.splitlines()[0].split()[:2] == ["ok", "scope"]
    assert "warning" not in result.output
    assert "error" not in result.output


def test_the_server_and_the_namespace_of_the_environment(url: str) -> None:
    result = run(TENURE_URL=url, TENURE_NAMESPACE="shop")
    assert result.exit_code == 0
    assert "'shop'" in result.output


def test_warnings_count_only_when_strict(spoiled: Server) -> None:
    result = run("--url", spoiled.url)
    assert result.exit_code == 0
    (line,) = [number for number, line in enumerate(result.output.splitlines()) if "warning" in line]
    explained = " ".join(result.output.splitlines()[line + 1 : line + 4])
    assert "evicted" in explained
    assert "noeviction" in explained
    assert run("--url", spoiled.url, "--strict").exit_code == 1


def test_errors(spoiled: Server) -> None:
    with spoiled.configured(maxmemory=100 << 20):
        result = run("--url", spoiled.url)
    assert result.exit_code == 1
    assert "error" in result.output


def test_json(spoiled: Server) -> None:
    result = run("--url", spoiled.url, "--json")
    findings = json.loads(result.output)
    assert {tuple(finding) for finding in findings} == {("id", "severity", "seen", "means", "do")}
    assert [f["id"] for f in findings if f["severity"] == "warning"] == ["eviction"]
    assert findings[0]["id"] == "scope"


def test_no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenure.doctor.diagnose", functools.partial(diagnose, server_timeout=0.2))
    result = run("--url", "redis://127.0.0.1:1")
    assert result.exit_code == 69
    assert "127.0.0.1:1" in result.output


def test_wrong_usage() -> None:
    assert run("--url", "ftp://x").exit_code == 2
    assert run("--namespace", "a:b", "--url", "redis://127.0.0.1:1").exit_code == 2
    assert run("--nonsense").exit_code == 2


def test_a_password_is_not_shown() -> None:
    with Server.start(password="verysecret") as server:
        for arguments in ((), ("--json",)):
            result = run(*arguments, TENURE_URL=server.url)
            assert result.exit_code == 0
            assert "verysecret" not in result.output
        wrong = run(TENURE_URL=server.url.replace("verysecret", "otherwise"))
        assert wrong.exit_code == 2
        assert "otherwise" not in wrong.output
