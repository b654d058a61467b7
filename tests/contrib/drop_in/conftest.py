# ruff: noqa: ANN401 - two flavours and two libraries have no type in common
"""Drop-in locks run in both flavours and with both client libraries."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import pytest

from tests.conformance.flavours import KINDS, Flavour
from tests.contrib.drop_in.world import World

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(params=KINDS)
def flavour(request: pytest.FixtureRequest) -> Iterator[Flavour]:
    """Blocking, then asyncio."""
    with Flavour(request.param) as made:
        yield made


@pytest.fixture(params=["redis", "valkey"])
def world(request: pytest.FixtureRequest, flavour: Flavour, url: str) -> Iterator[World]:
    """redis-py, then valkey-py, on the shared server."""
    made = World(flavour, request.param, url)
    yield made
    made.end()


@pytest.fixture
def client(world: World) -> Any:
    """A client of the library."""
    return world.client()


@pytest.fixture
def other(world: World) -> Any:
    """Another one, as another process would have it."""
    return world.client()


@pytest.fixture
def known(world: World) -> Any:
    """The exceptions of the library."""
    return importlib.import_module(f"{world.library}.exceptions")
