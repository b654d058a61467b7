"""redis-py's own lock tests run against the drop-in classes; what does not pass is listed here, with its reason."""

from __future__ import annotations

import collections
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.contrib.drop_in import upstream

if TYPE_CHECKING:
    from tests.harness.servers import Server

UPSTREAM = "a bug upstream"
FORMAT = "our key format or ttl"
CLOCK = "its polling clock is patched"
MOST = 10

# The first four compare the stored value with the token, or find that a lock without a timeout has no ttl; ours is
# longer than its token, and always has a ttl. The others count the sleeps of a loop that polls.
EXPECTED: dict[str, dict[str, str]] = {
    "blocking": {
        "test_lock": FORMAT,
        "test_lock_token": FORMAT,
        "test_lock_token_thread_local_false": FORMAT,
        "test_context_manager": FORMAT,
        "test_blocking_timeout": CLOCK,
        "test_context_manager_blocking_timeout": CLOCK,
    },
    "asyncio": {
        "test_lock": FORMAT,
        "test_lock_token": FORMAT,
        "test_lock_token_thread_local_false": FORMAT,
        "test_context_manager": FORMAT,
        "test_blocking_timeout": CLOCK,
    },
}
FILES = {"blocking": "tests/test_lock.py", "asyncio": "tests/test_asyncio/test_lock.py"}


RETRIES = 2
"""Some of their tests take a lock for a tenth of a second, which a busy machine may take for itself."""


def name_of(test: str) -> str:
    """The name of a test function in a test's id."""
    return test.rpartition("::")[2].partition("[")[0]


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("flavour", FILES)
def test_their_tests_pass_but_for_these(
    flavour: str, private_server: Server, pytestconfig: pytest.Config, capsys: pytest.CaptureFixture[str]
) -> None:
    assert pytestconfig.cache is not None
    folder = upstream.source(Path(pytestconfig.cache.mkdir("redis-py")))
    expected = EXPECTED[flavour]
    outcomes = upstream.run(folder, [FILES[flavour]], private_server.url)
    for _ in range(RETRIES):
        odd = [test for test, outcome in outcomes.items() if outcome != "passed" and name_of(test) not in expected]
        if odd:
            outcomes |= upstream.run(folder, odd, private_server.url)
    passed = {test for test, outcome in outcomes.items() if outcome == "passed"}
    failed = {test for test, outcome in outcomes.items() if outcome == "failed"}
    reasons = collections.Counter(expected.get(name_of(test), "not expected") for test in failed)
    with capsys.disabled():
        told = "".join(f"; {count}: {reason}" for reason, count in sorted(reasons.items()))
        sys.stdout.write(f"\n{folder.name}, lock tests, {flavour}: {len(passed)} passed, {len(failed)} failed{told}\n")
    assert passed | failed == set(outcomes), outcomes
    assert {name_of(test) for test in failed} == set(expected)
    assert not {name_of(test) for test in passed} & set(expected), "passes for some parameters only"
    assert len(failed) <= MOST
    assert len(passed) > 3 * len(failed)


def test_what_is_expected_to_fail_is_not_who_may_release_or_renew() -> None:
    for expected in EXPECTED.values():
        assert set(expected.values()) <= {UPSTREAM, FORMAT, CLOCK}
        for name in expected:
            assert not any(word in name for word in ("releas", "extend", "reacquir", "owned", "competing"))
