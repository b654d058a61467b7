"""What calls answer: how a release ended, and whether something ran."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from datetime import datetime

    from .holder import Holder

T = TypeVar("T")


class Released(Enum):
    """How a release ended."""

    RELEASED = "released"
    """The lease was ours and is given back."""
    GONE = "gone"
    """It had ended before, or was handed over: nothing was there to release."""
    TAKEN = "taken"
    """It had ended before, and somebody else holds the lock now; that lease was not touched."""


def worst(answers: list[Released]) -> Released:
    """What is to be told of several: released only when all of them were."""
    return answers[0] if len(answers) == 1 else max(answers, key=[*Released].index)


@dataclass(frozen=True, slots=True)
class Ran(Generic[T]):
    """The function ran, and returned this."""

    value: T


@dataclass(frozen=True, slots=True)
class Skipped:
    """The function did not run: somebody else holds the lock, or ran it not long ago."""

    holder: Holder | None
    """Who holds it or ran it last, as far as is known."""
    until: datetime | None
    """When another try makes sense, by the server's clock: at the end of the holder's lease unless it is renewed, or of
    the distance between two runs. None when the holder's lease has no end."""
