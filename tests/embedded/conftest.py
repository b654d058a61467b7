from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tenure.embedded.binary import find_server
from tenure.errors import ConfigError
from tests.embedded.world import World

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A runtime directory of the test's own, short enough for a socket: the user's real server is never touched."""
    path = Path(tempfile.mkdtemp(prefix="tn-", dir="/tmp"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(path))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def world(runtime: Path) -> Iterator[World]:
    try:
        find_server()
    except ConfigError as error:
        pytest.skip(str(error))
    with World(runtime) as world:
        yield world
