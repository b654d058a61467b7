# ruff: noqa: ANN401 - arguments are wrong on purpose
"""What counts as a fence."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest

import tenure
from tenure.fencing import fence_of

if TYPE_CHECKING:
    from tests.conformance.flavours import Flavour


def test_a_number_is_its_own_fence() -> None:
    assert [fence_of(number) for number in (1, 1_764_451_200_000_000, 2**63 - 1)] == [
        1,
        1_764_451_200_000_000,
        2**63 - 1,
    ]


@pytest.mark.parametrize(
    "fence",
    [True, False, 0, -1, 2**63, 10**5000, 1.0, math.nan, math.inf, "7", b"7", None, [], tenure.Lease],
    ids=["true", "false", "0", "-1", "2^63", "10^5000", "1.0", "nan", "inf", "text", "bytes", "None", "list", "class"],
)
def test_everything_else_is_refused(fence: Any) -> None:
    with pytest.raises(tenure.ConfigError, match="a fence must be"):
        fence_of(fence)


def test_a_lease_of_either_flavour_has_one(flavour: Flavour, url: str, namespace: str) -> None:
    lease = flavour.locks(url, namespace=namespace).lock("shelf:1").acquire()
    assert fence_of(lease.raw) == fence_of(lease.raw, name="shelf:1") == lease.fence > 2**50
    with pytest.raises(tenure.ConfigError, match=r"one of 'shelf:1', not of 'shelf:2'"):
        fence_of(lease.raw, name="shelf:2")
    lease.release()
    # The resource decides, not the lease.
    assert fence_of(lease.raw) == lease.fence


def test_a_number_has_no_name() -> None:
    with pytest.raises(tenure.ConfigError, match="has no name"):
        fence_of(7, name="shelf:1")


def test_a_lease_of_several_names_needs_to_know_which(flavour: Flavour, url: str, namespace: str) -> None:
    lease = flavour.locks(url, namespace=namespace).lock("shelf:1", "shelf:2").acquire()
    for name in ("shelf:1", "shelf:2"):
        assert fence_of(lease.raw, name=name) == lease.fences[name]
    with pytest.raises(tenure.ConfigError, match=r"'shelf:1', 'shelf:2'.*name="):
        fence_of(lease.raw)
    with pytest.raises(tenure.ConfigError, match="not of 'shelf:3'"):
        fence_of(lease.raw, name="shelf:3")
    lease.release()


def test_readers_that_hold_a_lock_together_have_one_fence(url: str, namespace: str) -> None:
    with tenure.Locks(url, namespace=namespace) as one, tenure.Locks(url, namespace=namespace) as other:
        with one.lock("shelf:1") as before:
            pass
        with one.lock("shelf:1", shared=True) as reader, other.lock("shelf:1", shared=True) as second:
            assert fence_of(before) < fence_of(reader) == fence_of(second)
        with one.lock("shelf:1") as after:
            assert fence_of(second) < fence_of(after)


def test_a_semaphore_has_none_that_counts(flavour: Flavour, url: str, namespace: str) -> None:
    lease = flavour.locks(url, namespace=namespace).semaphore("shelf:1", 3).acquire()
    for name in (None, "shelf:1"):
        with pytest.raises(tenure.ConfigError, match="a semaphore's fence only identifies"):
            fence_of(lease.raw, name=name)
    lease.release()
