"""What the tests of transactions that fail have in common: a transfer between two keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.conformance.flavours import AnyLease, Flavour
    from tests.harness.servers import Server

SITE = "testdata"
"""A test's own data on a shared server goes under this prefix."""


def transfer(flavour: Flavour, lease: AnyLease, meanwhile: Any = None) -> Any:  # noqa: ANN401 - the results
    """Write two keys in one transaction; `meanwhile` happens when the block is about to end."""
    tx: Any = flavour.call(lease.raw.transaction)
    with flavour.entered(tx):
        flavour.call(tx.get, "a")
        flavour.call(tx.multi)
        tx.incr("a").incr("b")
        if meanwhile is not None:
            meanwhile()
    return tx.results


def written(server: Server) -> list[bytes | None]:
    """Return the two keys."""
    return server.command("MGET", "testdata:a", "testdata:b")
