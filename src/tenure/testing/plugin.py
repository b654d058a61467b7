"""Fixtures for pytest, which loads this module by itself wherever tenure is installed; `-p no:tenure` turns it off.

Nothing is started or connected unless a test asks for a fixture.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    import tenure

_LONGEST = 30
_ROUNDS = 1000


@pytest.fixture(scope="session")
def tenure_url() -> Iterator[str]:
    """A server for tests: $TENURE_TEST_URL, else the embedded server of this user on this machine.

    $TENURE_URL is left alone on purpose: it may be that of a server with data.
    """
    url = os.environ.get("TENURE_TEST_URL")
    if url is not None:
        yield url
        return
    from tenure import embedded  # noqa: PLC0415 - not on every platform, and only when it is asked for

    with embedded.join() as membership:
        yield membership.url


@pytest.fixture
def tenure_namespace(request: pytest.FixtureRequest, tenure_url: str) -> Iterator[str]:
    """A namespace of this test alone, in each process of pytest-xdist; its keys are deleted afterwards."""
    test = re.sub(r"[^a-zA-Z0-9]+", "-", request.node.name).strip("-")[:_LONGEST]
    namespace = "-".join(("test", os.environ.get("PYTEST_XDIST_WORKER", "main"), test, secrets.token_hex(6)))
    from tenure import Locks, ServerUnavailable  # noqa: PLC0415 - nothing is loaded for tests that do not ask for it

    with Locks(tenure_url, namespace=namespace) as locks:
        yield namespace
        # The test has said so already if the server is away; and every key has an end.
        with contextlib.suppress(ServerUnavailable):
            _clean(locks)


@pytest.fixture
def tenure_locks(tenure_url: str, tenure_namespace: str) -> Iterator[tenure.Locks]:
    """`Locks` in a namespace of this test alone; what is held at its end is given back."""
    from tenure import Locks  # noqa: PLC0415

    with Locks(tenure_url, namespace=tenure_namespace) as locks:
        yield locks


@pytest.fixture
def tenure_async_locks(tenure_url: str, tenure_namespace: str) -> Iterator[tenure.AsyncLocks]:
    """`AsyncLocks` in a namespace of this test alone, for any event loop; what is held at its end is given back."""
    from tenure import AsyncLocks  # noqa: PLC0415

    locks = AsyncLocks(tenure_url, namespace=tenure_namespace)
    yield locks
    # Not `close`, which would need an event loop, and which one the test has used is not known here.
    locks.end_at_exit()


def _clean(locks: tenure.Locks) -> None:
    """Delete what is left of a namespace: fences for a day, and locks of processes that were killed."""
    from tenure.core import requests  # noqa: PLC0415
    from tenure.core.exchange import exchange  # noqa: PLC0415
    from tenure.runtime.blocking import run  # noqa: PLC0415

    port = locks.session().port

    def ask(*words: bytes | int) -> list[Any]:
        request = requests.Plain(*words)
        return run(exchange(port, request)).answers

    for pattern in (b"%b:*", b"{%b:*"):
        cursor = b"0"
        for _ in range(_ROUNDS):
            cursor, keys = ask(b"SCAN", cursor, b"MATCH", pattern % locks.namespace.encode(), b"COUNT", 1000)
            if keys:
                ask(b"DEL", *keys)
            if cursor == b"0":
                break
