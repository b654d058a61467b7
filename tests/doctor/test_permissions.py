"""Each right that is missing is named."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

import tenure
from tenure.doctor import probe
from tenure.doctor.probe import COMMANDS
from tests.docs.pages import ROOT, blocks, code, rows
from tests.doctor.support import bad, look

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tenure.doctor import Finding
    from tests.harness.servers import Server

PAGE = ROOT / "docs" / "permissions.md"
RULES = [rule for rule in blocks(PAGE, "console")[0].text.split()[3:] if rule not in ("on", ">PASSWORD")]
BEARABLE = {"spublish", "pubsub|shardnumsub", "ping", "scan"}
"""Without these a lock can still be taken, and handed over."""


@pytest.fixture
def server(any_server: Server) -> Iterator[Server]:
    yield any_server
    any_server.command("ACL", "DELUSER", "locks")


def test_the_doctor_knows_what_the_page_lists() -> None:
    assert set(COMMANDS) == {code(row[0]).replace(" ", "|") for row in rows(PAGE, "## Commands")}
    assert set(COMMANDS) == {rule.removeprefix("+") for rule in RULES if rule.startswith("+")}


def test_the_rights_of_the_page_are_enough(server: Server) -> None:
    found = look(server.acl_user("locks", "p", *RULES))
    assert bad(found.values()) == {}
    assert found["permissions"].severity == "ok"


def rights(server: Server, without: set[str]) -> Finding:
    """What is found out about a user who lacks some of the page's rules."""
    url = server.acl_user("locks", "p", *(rule for rule in RULES if rule not in without))
    with tenure.Locks(url) as locks:
        (found,) = probe.permissions(locks)
    return found


@pytest.mark.parametrize("command", sorted(set(COMMANDS) - {"time"}))
def test_a_missing_command_is_named(command: str, server: Server) -> None:
    found = rights(server, {f"+{command}"})
    assert found.severity == ("warning" if command in BEARABLE else "error")
    assert found.do.endswith(f" +{command}")
    assert set(re.findall(r"\+([\w|]+)", found.seen)) == {command}


def test_without_the_time_nothing_else_can_be_asked(server: Server) -> None:
    found = look(server.acl_user("locks", "p", *(rule for rule in RULES if rule != "+time")))
    assert list(found) == ["permissions"]
    assert found["permissions"].do.endswith(" +time")


def test_without_publishing_the_next_in_line_is_late(server: Server, impatient: None) -> None:
    found = look(server.acl_user("locks", "p", *(rule for rule in RULES if rule != "+spublish")))
    assert bad(found.values()) == {"permissions": "warning", "inbox": "warning"}
    assert found["permissions"].do.endswith(" +spublish")


def test_several_are_named_at_once(server: Server) -> None:
    without = {"+get", "+zadd", "+scan"}
    found = rights(server, without)
    assert set(re.findall(r"\+[\w|]+", found.seen)) == without


@pytest.mark.parametrize("pattern", ["~tenure:*", "~{tenure:*", "&tenure:@*"])
def test_a_missing_pattern_is_named(pattern: str, server: Server) -> None:
    found = rights(server, {pattern})
    assert found.severity == "error"
    assert f"want of {pattern} alone" in found.seen
    assert f" {pattern} " in found.do
