"""Servers for tests that fill and flush as they like, and both flavours."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.conformance.flavours import KINDS as FLAVOURS
from tests.conformance.flavours import Flavour
from tests.harness.servers import KINDS, Server, available_kinds, why_missing

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module", params=KINDS)
def own_server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server of this module's own, of each kind in turn; leave it running."""
    if request.param not in available_kinds():
        pytest.skip(why_missing(request.param))
    with Server.start(request.param) as server:
        server.shared = True
        yield server


@pytest.fixture(params=FLAVOURS)
def flavour(request: pytest.FixtureRequest) -> Iterator[Flavour]:
    """Blocking, then asyncio."""
    with Flavour(request.param) as made:
        yield made
