"""Each case in both flavours, against a real Valkey, with and without a fault proxy in front of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.conformance.flavours import KINDS, Flavour

if TYPE_CHECKING:
    from collections.abc import Iterator

    import tenure
    from tests.conformance.flavours import AnyLocks
    from tests.harness.proxy import FaultProxy


@pytest.fixture(params=KINDS)
def flavour(request: pytest.FixtureRequest) -> Iterator[Flavour]:
    """Blocking and asyncio in turn, both written as plain blocking code."""
    with Flavour(request.param) as made:
        yield made


@pytest.fixture
def events() -> list[tenure.Event]:
    """What the hook of `locks` and `through` was told."""
    return []


@pytest.fixture
def locks(flavour: Flavour, url: str, namespace: str, events: list[tenure.Event]) -> AnyLocks:
    """Locks of this test's own namespace."""
    return flavour.locks(url, namespace=namespace, hooks=[events.append])


@pytest.fixture
def others(flavour: Flavour, url: str, namespace: str) -> AnyLocks:
    """The same locks as another process has them: with a client and a hub of their own."""
    return flavour.locks(url, namespace=namespace)


@pytest.fixture
def through(proxy: FaultProxy, flavour: Flavour, namespace: str, events: list[tenure.Event]) -> AnyLocks:
    """The same locks once more, behind a fault proxy; the server knows the scripts already.

    The proxy is asked for first, for it must be there until the locks are closed.
    """
    made = flavour.locks(proxy.url, namespace=namespace, server_timeout=6, hooks=[events.append])
    with made.lock("warm-up").block() as lease:
        lease.renew()
        assert made.lock("warm-up").holder() is not None
    events.clear()
    return made
