"""docs/permissions.md is enough, and each command on it is needed for what the page says."""

from __future__ import annotations

import contextlib
import re
import threading
from typing import TYPE_CHECKING

import pytest

import tenure
from tests.docs.pages import ROOT, blocks, code, rows
from tests.harness.servers import KINDS, Server, available_kinds, why_missing
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = ROOT / "docs" / "permissions.md"
TABLE = {code(row[0]): row[2] for row in rows(PAGE, "## Commands")}
DENIED = [command for command, without in TABLE.items() if without == "`PermissionDenied`"]
TTL = 6.0
"""Where a release is refused the next waiter gets the lock after so long."""
RULES = blocks(PAGE, "console")[0].text.split()[3:]


@pytest.fixture(scope="module", params=KINDS)
def guarded(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server of each kind, for users that may do little."""
    if request.param not in available_kinds():
        pytest.skip(why_missing(request.param))
    with Server.start(request.param) as server:
        server.shared = True
        yield server


def use_everything(url: str, namespace: str = "tenure") -> None:
    """Take a lock in every way that this version knows."""
    with tenure.Locks(url, namespace=namespace) as locks, tenure.Locks(url, namespace=namespace) as others:
        lease = locks.lock("n", ttl=TTL).acquire()
        lease.renew()
        assert others.lock("n", ttl=TTL).try_acquire() is None
        failures: list[Exception] = []

        def wait() -> None:
            try:
                with others.lock("n", ttl=TTL, wait=30):
                    pass
            except tenure.TenureError as error:
                failures.append(error)

        waiter = threading.Thread(target=wait)
        waiter.start()
        with contextlib.ExitStack() as stack:
            stack.callback(waiter.join)
            stack.callback(lease.release)
            wait_until(lambda: bool(failures or locks.waiters("n")), 30, "somebody to wait")
        for failure in failures:
            raise failure
        with locks.lock("shared", ttl=TTL, shared=True), others.lock("shared", ttl=TTL, shared=True):
            assert len(locks.holders("shared")) == 2
        with locks.semaphore("places", 2, ttl=TTL), others.semaphore("places", 2, ttl=TTL):
            locks.ask("places")
        with locks.lock("n", ttl=6) as lease:
            assert locks.holder("n") is not None
            assert [holder.name for holder in others.list()] == ["n"]
            assert others.break_lock("n") is not None
            assert lease.wait_lost(30)


def user(server: Server, *without: str) -> str:
    """A user with the page's rules but for some; gone are also the scripts that another user has loaded."""
    server.command("FLUSHALL")
    server.command("SCRIPT", "FLUSH")
    rules = [rule for rule in RULES if rule.replace("|", " ") not in {f"+{c}" for c in without}]
    return server.acl_user("locks", "p", *(rule for rule in rules if rule not in ("on", ">PASSWORD")))


def test_the_rules_are_enough(guarded: Server) -> None:
    use_until_the_end(user(guarded))


def use_until_the_end(url: str) -> None:
    with pytest.raises(tenure.LeaseLost, match="operator"):
        use_everything(url)


@pytest.mark.parametrize("command", DENIED)
def test_a_command_is_needed(command: str, guarded: Server) -> None:
    # Redis 7.0 does not say which.
    with pytest.raises(tenure.PermissionDenied, match=rf"'{command}'|can't run this command"):
        use_everything(user(guarded, command))


def test_the_others_may_be_missing(guarded: Server) -> None:
    use_until_the_end(user(guarded, *(command for command in TABLE if command not in DENIED)))


def test_keys_and_channels_of_other_namespaces_stay_closed(guarded: Server) -> None:
    with pytest.raises(tenure.PermissionDenied):
        use_everything(user(guarded), namespace="other")


def test_the_page_lists_what_the_scripts_call() -> None:
    scripts = (ROOT / "src" / "tenure" / "core" / "lua").glob("*.lua")
    called = {name.lower() for script in scripts for name in re.findall(r"call\('(\w+)'", script.read_text("utf-8"))}
    # PUBLISH is for servers before 7.0 alone, and the page says so below its table.
    assert called - {"publish"} <= {command.partition(" ")[0] for command in TABLE}
    assert {rule[1:].replace("|", " ") for rule in RULES if rule.startswith("+")} == set(TABLE)
