"""Each test of this folder runs for both flavours, and where it asks for `any_url` against each kind of server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.conformance.flavours import KINDS, Flavour

if TYPE_CHECKING:
    from collections.abc import Iterator

    import tenure
    from tests.conformance.flavours import AnyLocks


@pytest.fixture(params=KINDS)
def flavour(request: pytest.FixtureRequest) -> Iterator[Flavour]:
    """Blocking, then asyncio."""
    with Flavour(request.param) as made:
        yield made


@pytest.fixture
def events() -> list[tenure.Event]:
    """What the hook of `locks` was told."""
    return []


@pytest.fixture
def locks(flavour: Flavour, any_url: str, namespace: str, events: list[tenure.Event]) -> AnyLocks:
    """Locks of this test's own namespace."""
    return flavour.locks(any_url, namespace=namespace, hooks=[events.append])


@pytest.fixture
def others(flavour: Flavour, any_url: str, namespace: str) -> AnyLocks:
    """Locks of the same namespace as another process would have them: another client, another hub."""
    return flavour.locks(any_url, namespace=namespace)
