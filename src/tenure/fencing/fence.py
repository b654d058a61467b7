"""What counts as a fence, and the error for one that is too low."""

from __future__ import annotations

from ..errors import ConfigError, StaleFence
from ..lease import AsyncLease, Lease
from ..options import shown

MAX_FENCE = 2**63 - 1
"""What a BIGINT holds."""

Fence = int | Lease | AsyncLease
"""A lease, or the number that its `fence` is."""


def fence_of(fence: Fence, *, name: str | None = None) -> int:
    """The fence as a number that can be compared; no I/O.

    Args:
        fence: a lease, or its fence. It does not matter whether the lease is still held: the resource decides.
        name: of a lease of several names, the one that stands for this resource.

    Raises `ConfigError` for anything but a whole number from 1 to 2**63 - 1, for a lease of several names without
    `name`, and for a lease of a semaphore: its holders have the lock at the same time, so none of them is stale.

    Safety: the shared leases of readers that hold a lock together have one fence; it sets them apart from writers
    before and after them, not from each other.
    """
    if isinstance(fence, Lease | AsyncLease):
        return _fence_of_lease(fence, name)
    if name is not None:
        msg = f"name={shown(name)} chooses among the fences of a lease; a number has no name"
        raise ConfigError(msg)
    # bool is an int, and a text from the environment has to be read by somebody who knows that it is one.
    if isinstance(fence, bool) or not isinstance(fence, int):  # pyright: ignore[reportUnnecessaryIsInstance] - for those without a type checker
        msg = f"a fence must be a lease or an int, not {shown(fence)}"
        raise ConfigError(msg)
    if not 1 <= fence <= MAX_FENCE:
        msg = f"a fence must be from 1 to 2**63 - 1, not {shown(fence)}"
        raise ConfigError(msg)
    return fence


def stale(resource: str, fence: int, seen: int) -> StaleFence:
    """The error for a fence that is lower than the one that the resource has seen."""
    msg = (
        f"{resource}: fence {fence} is refused, since {seen} was here; "
        f"another holder has come after this lease: stop the work that it protected"
    )
    return StaleFence(msg, fence=fence, seen=seen)


def _fence_of_lease(lease: Lease | AsyncLease, name: str | None) -> int:
    fences = lease.fences
    which = ", ".join(map(repr, fences))
    if lease.mode == "semaphore":
        msg = f"lock {which}: a semaphore's fence only identifies its lease; it cannot tell a stale holder from others"
        raise ConfigError(msg)
    if name is None:
        if len(fences) > 1:
            msg = f"this lease has a fence for each of {which}; name= says which one stands for this resource"
            raise ConfigError(msg)
        (number,) = fences.values()
        return number
    if name not in fences:
        msg = f"this lease is one of {which}, not of {shown(name)}"
        raise ConfigError(msg)
    return fences[name]
