"""What no server on this machine can show: old versions, other machines, half an answer."""

from __future__ import annotations

import socket
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tenure.doctor import checks
from tenure.doctor.facts import Facts, is_local
from tests.doctor.support import bad

if TYPE_CHECKING:
    from tenure.doctor import Finding

NOTHING = Facts(
    node="db.example:6379",
    namespace="tenure",
    embedded=False,
    local=False,
    tls=True,
    grace=0.3,
    skew=0.0,
    round_trip=0.001,
    info={},
    settings={},
)


def examine(facts: Facts) -> list[Finding]:
    return [finding for check in checks.CHECKS if (finding := check(facts)) is not None]


@pytest.mark.parametrize(
    ("told", "severity"),
    [
        ({"redis_version": "6.0.16"}, "error"),
        ({"redis_version": "5.0"}, "error"),
        ({"redis_version": "6.2.5"}, "info"),
        ({"redis_version": "7.0.15"}, "ok"),
        ({"redis_version": "10.0.0"}, "ok"),
        # Valkey calls itself Redis 7.2.4 for the sake of old clients.
        ({"redis_version": "7.2.4", "valkey_version": "9.1.2"}, "ok"),
    ],
)
def test_versions(told: dict[str, str], severity: str) -> None:
    found = checks.version(replace(NOTHING, info=told))
    assert found is not None
    assert found.severity == severity
    assert told.get("valkey_version", told["redis_version"]) in found.seen


@pytest.mark.parametrize(
    ("local", "tls", "severity"), [(False, False, "warning"), (False, True, "ok"), (True, False, "ok")]
)
def test_plain_tcp_to_another_machine(*, local: bool, tls: bool, severity: str) -> None:
    found = checks.tls(replace(NOTHING, local=local, tls=tls))
    assert found is not None
    assert found.severity == severity


def test_a_client_that_does_not_tell_of_tls_is_not_blamed() -> None:
    assert checks.tls(replace(NOTHING, tls=None)) is None


@pytest.mark.parametrize(
    ("node", "local"),
    [
        ("/run/valkey/s", True),
        ("127.0.0.1:6379", True),
        ("127.8.8.8:6379", True),
        ("::1:6379", True),
        ("10.0.0.1:6379", False),
        ("fe80::1:6379", False),
    ],
)
def test_which_addresses_are_this_machine(node: str, *, local: bool) -> None:
    assert is_local(node) is local


def test_names_are_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def resolve(host: str, _port: None) -> list[tuple[int, int, int, str, tuple[str, int]]]:
        if host == "unknown":
            raise socket.gaierror
        addresses = {"here": ["127.0.0.1", "::1"], "both": ["127.0.0.1", "192.0.2.1"]}[host]
        return [(0, 0, 0, "", (address, 0)) for address in addresses]

    monkeypatch.setattr("socket.getaddrinfo", resolve)
    assert is_local("here:6379")
    assert not is_local("both:6379")
    assert not is_local("unknown:6379")


def test_a_server_that_tells_nothing() -> None:
    found = examine(NOTHING)
    assert bad(found) == {}
    assert [finding.id for finding in found] == ["scope", "access", "tls", "clock", "latency"]


@pytest.mark.parametrize(
    ("info", "severity"),
    [
        ({"master_failover_state": "waiting-for-sync"}, "error"),
        ({"async_loading": "1"}, "error"),
        ({"master_failover_state": "no-failover"}, "ok"),
    ],
)
def test_moments_in_which_nothing_can_be_locked(info: dict[str, str], severity: str) -> None:
    found = checks.busy(replace(NOTHING, info=info))
    assert found is not None
    assert found.severity == severity


@pytest.mark.parametrize(
    ("info", "settings", "word", "severity"),
    [
        ({"aof_enabled": "1"}, {"appendfsync": "always"}, "always", "ok"),
        ({"aof_enabled": "1"}, {"appendfsync": "everysec"}, "everysec", "info"),
        ({"aof_enabled": "0"}, {"save": "3600 1"}, "snapshots", "info"),
        ({"aof_enabled": "0"}, {"save": ""}, "no append-only", "info"),
        ({"aof_enabled": "0"}, {}, "no append-only", "info"),
    ],
)
def test_what_a_restart_does(info: dict[str, str], settings: dict[str, str], word: str, severity: str) -> None:
    found = checks.persistence(replace(NOTHING, info=info, settings=settings))
    assert found is not None
    assert (found.severity, word in found.seen) == (severity, True)


def test_a_failing_append_only_file_is_an_error() -> None:
    found = checks.disk(replace(NOTHING, info={"aof_last_write_status": "err"}))
    assert found is not None
    assert found.severity == "error"


def test_a_skew_within_the_grace_is_none() -> None:
    assert checks.clock(replace(NOTHING, skew=0.29)).severity == "ok"
    assert checks.clock(replace(NOTHING, skew=-0.29)).severity == "ok"
    assert checks.clock(replace(NOTHING, skew=0.31)).severity == "warning"
    # What the round trip may account for is no skew.
    assert checks.clock(replace(NOTHING, skew=0.31, round_trip=0.05)).severity == "ok"


def test_the_soft_limit_of_subscribers_counts_too() -> None:
    def severity(limit: str) -> str | None:
        found = checks.buffers(replace(NOTHING, settings={"client-output-buffer-limit": limit}))
        return None if found is None else found.severity

    assert severity("normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60") == "ok"
    assert severity("normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 4096 60") == "warning"
    assert severity("normal 0 0 0 slave 0 0 0 pubsub 0 0 0") == "ok"
    assert severity("") is None
