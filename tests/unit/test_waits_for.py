"""Circles of those who wait for each other, found in what the server tells of many locks."""

from __future__ import annotations

import itertools
import random
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from tenure.core.inspect import Seen
from tenure.core.waits_for import circles, described
from tenure.holder import Holder, Waiter

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MOST_COMPARISONS = 3_000_000


class Context(str):
    """The name of a thread or task that counts how often it is compared, and refuses to be compared for ever."""

    __slots__ = ()
    comparisons = 0

    def __eq__(self, other: object) -> bool:
        Context.comparisons += 1
        assert Context.comparisons < MOST_COMPARISONS, "the search looks at the same ways again and again"
        return str.__eq__(self, other)

    __hash__ = str.__hash__


@pytest.fixture(autouse=True)
def count_anew() -> None:
    Context.comparisons = 0


def held(name: str, contexts: Iterable[str]) -> list[Holder]:
    return [
        Holder(
            name=name, fence=1, id="0", host="h", pid=1, program="p", identity=None, info=None, since=None,
            expires_in=1.0, context=Context(context),
        )
        for context in contexts
    ]  # fmt: skip


def waiting(name: str, contexts: Iterable[str]) -> list[Waiter]:
    now = datetime.now(UTC)
    return [
        Waiter(
            name=name, position=number, id="0", host="h", pid=1, program="p", identity=None, info=None, since=now,
            context=Context(context),
        )
        for number, context in enumerate(contexts)
    ]  # fmt: skip


def graph(edges: Mapping[str, tuple[Iterable[str], Iterable[str]]]) -> dict[str, Seen]:
    """Locks by name: who holds them, and who waits for them."""
    return {name: Seen(held(name, holders), waiting(name, waiters)) for name, (holders, waiters) in edges.items()}


def layers(count: int, readers: int) -> dict[str, tuple[list[str], list[str]]]:
    """Shared locks of many readers, each of whom waits for the lock of the next layer."""
    return {
        f"lock {layer}": (
            [f"{layer}.{reader}" for reader in range(readers)],
            [f"{layer - 1}.{reader}" for reader in range(readers)] if layer else [],
        )
        for layer in range(count)
    }


def test_a_circle_is_told_in_the_order_in_which_they_wait() -> None:
    (circle,) = circles(graph({"a": (["1"], ["3"]), "b": (["2"], ["1"]), "c": (["3"], ["2"]), "d": ([], ["4"])}))
    assert min(circle, key=lambda waiter: waiter.name).context == "3"
    holder_of = {"a": "1", "b": "2", "c": "3"}
    for waiter, following in itertools.pairwise([*circle, circle[0]]):
        assert following.context == holder_of[waiter.name]
    assert described(circle).startswith("deadlock: ")


def test_who_waits_for_what_it_holds_is_a_circle_of_one() -> None:
    (circle,) = circles(graph({"a": (["1"], ["1"])}))
    assert [waiter.context for waiter in circle] == ["1"]


def test_many_readers_in_layers_do_not_multiply_the_ways() -> None:
    """Ten to the power of the layers are the ways through them."""
    assert circles(graph(layers(9, 10))) == []


def test_a_way_back_through_layers_is_found() -> None:
    edges = layers(6, 10)
    edges["lock 0"] = (edges["lock 0"][0], ["5.7"])
    found = circles(graph(edges))
    assert found
    assert all(len(circle) == 6 for circle in found)


def test_a_chain_as_long_as_there_are_locks_is_walked() -> None:
    chain = {f"lock {number}": ([str(number)], [str(number - 1)]) for number in range(1000)}
    assert circles(graph({**chain, "lock 0": (["0"], [])})) == []
    (circle,) = circles(graph({**chain, "lock 0": (["0"], ["999"])}))
    assert len(circle) == 1000


@pytest.mark.parametrize("seed", range(100))
def test_a_circle_is_told_exactly_when_there_is_one(seed: int) -> None:
    rnd = random.Random(seed)
    count = rnd.randint(2, 6)
    edges: dict[str, tuple[list[str], list[str]]] = {
        str(name): ([str(rnd.randrange(count)) for _ in range(rnd.randint(0, 2))], []) for name in range(count)
    }
    wishes = {str(person): str(rnd.randrange(count)) for person in range(count) if rnd.random() < 0.8}
    for person, name in wishes.items():
        edges[name][1].append(person)
    # Whoever waits for nothing goes on, and lets go of what it holds: those who never can stand in a circle, or behind.
    stuck = set(wishes)
    for _ in range(count):
        stuck = {person for person in stuck if any(holder in stuck for holder in edges[wishes[person]][0])}
    found = circles(graph(edges))
    assert bool(found) == bool(stuck)
    for circle in found:
        for waiter, following in itertools.pairwise([*circle, circle[0]]):
            assert following.context in edges[waiter.name][0]
