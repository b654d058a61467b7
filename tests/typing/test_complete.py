"""`api.py` leaves nothing public out: what it does not use, no type checker has checked as a user would use it."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import tenure

TEXT = (Path(__file__).parent / "api.py").read_text(encoding="utf-8")
CLASSES = [tenure.Locks, tenure.AsyncLocks, tenure.Lock, tenure.AsyncLock, tenure.Lease, tenure.AsyncLease]
INTERNAL = "For the (package|hub)|This process's session"
POSITIONAL = {"self", "server", "names"}


def test_every_public_name_is_used() -> None:
    unused = [name for name in tenure.__all__ if not re.search(rf"\btenure\.{name}\b", TEXT)]
    assert not unused


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_every_member_is_used(cls: type) -> None:
    members = [
        name
        for name, value in inspect.getmembers(cls, lambda value: callable(value) or isinstance(value, property))
        if not name.startswith("_") and not re.match(INTERNAL, inspect.getdoc(value) or "")
    ]
    assert len(members) >= 4
    assert not [name for name in members if not re.search(rf"\.{name}\b", TEXT)]


@pytest.mark.parametrize("cls", [tenure.Locks, tenure.AsyncLocks], ids=lambda cls: cls.__name__)
def test_every_option_is_used(cls: type[tenure.Locks | tenure.AsyncLocks]) -> None:
    options = [*inspect.signature(cls).parameters, *inspect.signature(cls.lock).parameters]
    assert not [name for name in options if name not in POSITIONAL and f"{name}=" not in TEXT]
