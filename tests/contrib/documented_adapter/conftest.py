# ruff: noqa: ANN401 - the adapter is known only when its page was run
"""The adapter that docs/howto/other-clients.md shows, which shares no code with ours, under the conformance tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from tests.conformance.flavours import KINDS, Flavour
from tests.docs.pages import ROOT, blocks

if TYPE_CHECKING:
    from collections.abc import Iterator

    import tenure
    from tests.conformance.flavours import AnyLocks

PAGE = ROOT / "docs" / "howto" / "other-clients.md"


@pytest.fixture(scope="session")
def shown() -> dict[str, Any]:
    """What the page defines."""
    (block,) = [block for block in blocks(PAGE, "python") if "class Plain:" in block.text]
    names: dict[str, Any] = {"__name__": "page"}
    exec(compile("\n" * (block.line - 1) + block.text, str(PAGE), "exec", dont_inherit=True), names)  # noqa: S102
    return names


@pytest.fixture(params=KINDS)
def flavour(request: pytest.FixtureRequest) -> Iterator[Flavour]:
    """Blocking, then asyncio."""
    with Flavour(request.param) as made:
        yield made


@pytest.fixture
def events() -> list[tenure.Event]:
    """What the hook of `locks` was told."""
    return []


def adapter(shown: dict[str, Any], url: str) -> Any:
    """The page's adapter for a server."""
    address = urlsplit(url)
    return shown["Plain"](address.hostname, address.port)


@pytest.fixture
def locks(
    flavour: Flavour, any_url: str, namespace: str, events: list[tenure.Event], shown: dict[str, Any]
) -> AnyLocks:
    """Locks of this test's own namespace."""
    return flavour.locks(adapter(shown, any_url), namespace=namespace, hooks=[events.append])


@pytest.fixture
def others(flavour: Flavour, any_url: str, namespace: str, shown: dict[str, Any]) -> AnyLocks:
    """Locks of the same namespace as another process would have them: another client, another hub."""
    return flavour.locks(adapter(shown, any_url), namespace=namespace)
