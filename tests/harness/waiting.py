"""Waiting for a condition with a deadline: what tests do instead of sleeping for a guessed time."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

POLL_SECONDS = 0.005


class WaitedTooLong(AssertionError):
    """A condition that a test waited for did not come true before the deadline."""


def wait_until(predicate: Callable[[], T], timeout: float = 30.0, why: str = "the condition") -> T:
    """Return the first truthy value of `predicate`, polled every 5 ms.

    Args:
        predicate: asked again and again; an exception that it raises ends the wait and goes to the caller.
        timeout: seconds until the wait fails.
        why: what was waited for, quoted in the failure.

    Raises:
        WaitedTooLong: the predicate was still falsy at the deadline.
    """
    give_up = time.monotonic() + timeout
    while True:
        value = predicate()
        if value:
            return value
        if time.monotonic() >= give_up:
            raise WaitedTooLong(f"waited {timeout:g} s for {why}; last value: {value!r}")
        time.sleep(POLL_SECONDS)


async def wait_until_async(predicate: Callable[[], T], timeout: float = 30.0, why: str = "the condition") -> T:
    """Return the first truthy value of `predicate` without blocking the event loop; otherwise as `wait_until`."""
    give_up = time.monotonic() + timeout
    while True:
        value = predicate()
        if value:
            return value
        if time.monotonic() >= give_up:
            raise WaitedTooLong(f"waited {timeout:g} s for {why}; last value: {value!r}")
        await asyncio.sleep(POLL_SECONDS)
