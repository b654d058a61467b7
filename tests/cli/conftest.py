"""What the tests of the command share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cli.commands import World, python

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.harness.processes import Worker
    from tests.harness.servers import Server


@pytest.fixture
def world(valkey_server: Server, namespace: str) -> World:
    return World(valkey_server, namespace)


@pytest.fixture
def own_world(private_server: Server, namespace: str) -> World:
    return World(private_server, namespace)


@pytest.fixture
def held(world: World) -> Iterator[Worker]:
    """A command that holds the lock "job" until it gets a line."""
    with world.run("job", "--", *python("print('up', flush=True); input()")) as holder:
        holder.wait_for("up")
        yield holder
