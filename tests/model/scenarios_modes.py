"""Scenarios of shared locks, semaphores, several names, asking, once, and leases that are handed over."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tests.model.programs import closer, exporter, heir, lender, mixed, tries
from tests.model.scenario import (
    Scenario,
    clock_steps,
    deleted,
    each,
    held_by_the_dead,
    on_its_way,
    operator,
    request_of,
)
from tests.model.sim import SimPort, Spec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.model.world import World

POLL = 3.01
"""Seconds between two polls with the standard ttl of 6 s, and a little."""
AGAIN = 1.1
"""Seconds between two requests of one who asks for a lock, and a little."""
REQUEST = SimPort.request_timeout + 0.1
SOON = 0.2
"""Seconds between the end of a lease and the poll that finds it."""

W = Spec
"""One who wants the lock alone."""
R = partial(Spec, mode="shared")
"""One who shares it."""
P = partial(Spec, mode="semaphore", limit=2)
"""One who takes a place of a semaphore."""
NAMES = ("a", "b")
AB = partial(Spec, names=NAMES)
"""One who takes two locks."""
A, B = partial(Spec, names=("a",)), partial(Spec, names=("b",))
"""Those who take one of the two."""


def steps_while(script: str, seconds: float) -> Callable[[World], Iterable[tuple[str, Callable[[], None]]]]:
    """The server's clock jumps while such a request is on its way."""
    return lambda world: clock_steps(seconds)(world) if on_its_way(world, script) else ()


READERS: dict[str, Scenario] = {
    "two readers and a writer": Scenario((R(), R(), W(start=0.1)), cost=(6, 1)),
    "readers and writers in turn": Scenario((R(), W(start=0.1), R(start=0.2), R(start=0.3, hold=0.5), W(start=0.4))),
    "readers at the head": Scenario(
        (W(), R(start=0.1), R(start=0.2), W(start=0.3), R(start=0.4, hold=0.5)), cost=(10, 4)
    ),
    "reader beside reader": Scenario(
        (R(), R(start=0.1), W(start=0.2)), each("lose request, lose reply, lose message", "ABC"), 1, max_orphan=POLL
    ),
    "a reader joins late": Scenario(
        (R(ttl=2, renew=False, hold=9), R(start=1.5, hold=2, ttl=9, renew=False), W(start=1.6, hold=0.1)),
        each("kill", "A"),
        1,
        only=lambda world, _kind, _what: world.true_us > 0,
        max_orphan=SOON,
    ),
    "a reader joins for a moment": Scenario(
        (R(ttl=9, renew=False, hold=4), R(ttl=2, start=0.1, renew=False, hold=3), W(start=0.2, hold=0.1)),
        each("kill", "B"),
        1,
        max_orphan=SOON,
    ),
    "readers keep their leases": Scenario(
        (R(ttl=2, hold=3), R(ttl=2, start=0.1, hold=3), W(start=0.2, hold=0.1)),
        each("lose request, lose reply", "AB"),
        1,
        only=request_of("renew"),
        keeps_lease=True,
    ),
    "reader dies": Scenario(
        (R(ttl=30, hold=0.5), R(ttl=2, start=0.1), W(start=0.2, hold=0.1)), each("kill", "B"), 1, max_orphan=POLL
    ),
    "reader pauses": Scenario(
        (R(ttl=2, hold=0.5), W(start=0.1, hold=0.1), R(start=0.2, hold=0.1)),
        each("pause", "A"),
        1,
        pause_for=2.5,
        max_orphan=SOON,
    ),
    "writer dies before readers": Scenario(
        (W(ttl=2, hold=0.5), R(start=0.1, hold=0.1), R(start=0.2, hold=0.1)), each("kill", "A"), 1, max_orphan=SOON
    ),
    "writer dies among readers": Scenario(
        (R(hold=3.5), W(start=0.1), R(start=0.2, hold=0.1)), each("kill", "B"), 1, max_orphan=POLL
    ),
    "writer gives up": Scenario(
        (R(hold=2), W(start=0.1, wait=1), R(start=0.2, hold=0.5)), errors=("NotAcquired",), polls=False
    ),
    # Its entry ends a moment before its last try arrives.
    "writer gives up late": Scenario(
        (R(hold=2), W(start=0.1, wait=1, rate=0.99), R(start=0.2, hold=0.5)), errors=("NotAcquired",), polls=False
    ),
    "writer is cancelled": Scenario(
        (R(hold=0.5), W(start=0.1, hold=0.1), R(start=0.2, hold=0.1)), each("cancel", "B"), 1, max_orphan=REQUEST
    ),
    "stuck reader": Scenario(
        (R(), W(start=0.1), R(start=0.2)),
        each("stuck request", "AB"),
        1,
        only=request_of("acquire"),
        max_orphan=REQUEST,
    ),
    "doubled reader": Scenario(
        (R(hold=3), W(start=0.1, hold=0.1), R(start=0.2, hold=3)),
        each("double request", "AC"),
        1,
        only=request_of("acquire"),
        slowest=2.5,
        max_orphan=REQUEST,
    ),
    "readers, slow replies": Scenario(
        (R(ttl=3, renew=False, hold=9), W(start=0.1, hold=0.5)), each("slow reply", "A"), 1, only=request_of("acquire")
    ),
    "readers, clock steps back": Scenario(
        (R(hold=0.5), W(start=0.1, hold=0.1), R(start=0.2, hold=0.1)),
        budget=1,
        extra_faults=clock_steps(-0.15),
        max_orphan=SOON,
    ),
    "a reader is broken": Scenario((R(hold=1, renew=False), R(hold=1, renew=False), W(start=0.1), W(program=operator))),
    "anything once, shared": Scenario(
        (R(hold=0.5), W(start=0.1, hold=0.3), R(start=0.2, hold=0.3)),
        each("lose request, lose reply, lose message, stuck request, cancel, kill, drop", "BC"),
        1,
        max_orphan=8.2,
    ),
}

PLACES: dict[str, Scenario] = {
    "semaphore of two": Scenario((P(), P(), P(start=0.1)), cost=(6, 1)),
    "semaphore, lost": Scenario(
        (P(), P(start=0.1, hold=2), P(start=0.2)),
        each("lose request, lose reply, lose message", "AC"),
        1,
        max_orphan=POLL,
    ),
    "semaphore, one dies": Scenario(
        (P(hold=4), P(ttl=2, start=0.1), P(start=0.2, hold=0.1)),
        each("kill", "B"),
        1,
        only=lambda world, _kind, _what: world.true_us < 500_000,
        max_wait=2.5,
    ),
    "semaphore, paused": Scenario(
        (P(limit=1, ttl=2, hold=0.5), P(limit=1, start=0.1, hold=0.5)),
        each("pause", "A"),
        1,
        pause_for=2.5,
        max_orphan=SOON,
    ),
    "semaphore, cancelled": Scenario(
        (P(limit=1, hold=0.5), P(limit=1, start=0.1, hold=0.1)),
        each("cancel, stuck request", "B"),
        1,
        max_orphan=REQUEST,
    ),
    "two limits": Scenario((P(), P(start=0.1), P(limit=3, start=0.2)), errors=("ConfigError",)),
}

SEVERAL: dict[str, Scenario] = {
    "two names, two orders": Scenario(
        (AB(hold=0.5), AB(start=0.1, hold=0.5), AB(names=("b", "a"), start=0.2, hold=0.5)), names=NAMES, cost=(13, 2)
    ),
    "two names, three callers": Scenario((AB(), AB(start=0.1, hold=0.5), B(start=0.05)), names=NAMES),
    "one of two names is held": Scenario(
        (B(), AB(start=0.1, hold=0.1), A(start=0.2, hold=0.1)),
        each("lose request, lose reply, lose message", "B"),
        1,
        names=NAMES,
        max_orphan=POLL,
    ),
    "two names, cancelled": Scenario(
        (B(hold=0.5), AB(start=0.1, hold=0.1), A(start=0.2, hold=0.1)),
        each("cancel", "B"),
        1,
        names=NAMES,
        only=lambda world, _kind, _what: world.true_us < 700_000,
        max_orphan=REQUEST,
    ),
    "two names, killed": Scenario(
        (B(hold=0.5), AB(start=0.1, hold=0.1), A(start=0.2, hold=0.1)),
        each("kill", "B"),
        1,
        names=NAMES,
        max_orphan=SOON,
    ),
    "two names, stuck": Scenario(
        (AB(hold=0.5), A(start=0.1, hold=0.1)),
        each("stuck request, lose reply, cancel", "A"),
        1,
        only=lambda world, _kind, _what: on_its_way(world, "several"),
        names=NAMES,
        max_orphan=REQUEST,
    ),
    "two names, refused as late": Scenario(
        (AB(hold=0.5), A(start=0.6, hold=0.1)),
        each("lose reply", "A"),
        2,
        only=request_of("several"),
        extra_faults=steps_while("several", 9),
        names=NAMES,
        max_orphan=REQUEST,
    ),
    "two names, slow reply": Scenario(
        (AB(ttl=3, renew=False, hold=9), A(start=0.1, hold=0.5)),
        each("slow reply", "A"),
        1,
        only=request_of("several"),
        names=NAMES,
    ),
    "the early one ends": Scenario(
        (B(hold=3), AB(ttl=2, renew=False, start=0.1, hold=0.5), A(start=0.2, hold=3)),
        names=NAMES,
        max_orphan=SOON,
    ),
    "the early one is kept": Scenario(
        (B(hold=3), AB(ttl=2, start=0.1, hold=0.5), A(start=0.2, hold=0.1)), names=NAMES, cost=(18, 2)
    ),
    "the early one is weak": Scenario(
        (B(hold=1.6), AB(ttl=2, renew=False, start=0.1, hold=0.1), A(start=0.2, hold=0.1)),
        names=NAMES,
    ),
    "two names, one try": Scenario(
        (B(), AB(start=0.1, wait=0)), each("lose request, lose reply", "B"), 1, names=NAMES, errors=("NotAcquired",)
    ),
    "several overtake": Scenario(
        (A(hold=0.5), AB(start=0.051, wait=0)), names=NAMES, prepare=held_by_the_dead, errors=("NotAcquired",)
    ),
    "two names, shared": Scenario((AB(mode="shared"), AB(mode="shared"), A(start=0.1)), names=NAMES, cost=(8, 1)),
}

ASKING: dict[str, Scenario] = {
    "asked to release": Scenario(
        (W(hold=20, yields=True), W(start=0.1, ask_after=0.5)),
        each("lose message, slow message, double message", "A"),
        1,
        max_wait=0.5 + AGAIN,
        slowest=1,
    ),
    "the next holder is asked": Scenario(
        (W(hold=20, yields=True), W(start=0.1, hold=20, yields=True), W(start=0.2, ask_after=0.3)), max_wait=0.3 + AGAIN
    ),
    "asked in time": Scenario((W(hold=20, yields=True), W(start=0.1, ask_after=0.5)), max_wait=0.6),
    "asked too late": Scenario(
        (W(ttl=2, hold=0.5, yields=True), W(start=0.1, ask_after=0, hold=0.5)),
        each("slow message", "A"),
        1,
        slowest=0.7,
    ),
    "asked by one who does not wait": Scenario(
        (W(wait=0, ask_after=0),), prepare=held_by_the_dead, errors=("NotAcquired",)
    ),
    "readers are asked": Scenario(
        (R(hold=20, yields=True), R(hold=20, yields=True), W(start=0.1, ask_after=0)), max_wait=0.5
    ),
    "one who does not listen": Scenario((W(hold=2), W(start=0.1, ask_after=0.2, wait=1)), errors=("NotAcquired",)),
    "asked before its inbox": Scenario(
        (W(hold=20, yields=True, subscribed=False), W(start=0.1, ask_after=0)), max_wait=AGAIN
    ),
}

_ONCE = partial(Spec, hold=0.2, wait=0, apart=1.0, program=tries)
ONCE: dict[str, Scenario] = {
    "once in a while": Scenario(
        (_ONCE(turns=2, pause=0.9), _ONCE(start=0.3, turns=3, pause=0.4)),
        each("lose request, lose reply", "AB"),
        1,
        keeps_turn=True,
    ),
    "once, and a pause": Scenario((_ONCE(ttl=2), _ONCE(start=2.3, hold=0.1)), each("pause", "A"), 1, pause_for=2.5),
    "once, beside a lock": Scenario((W(hold=0.5), _ONCE(start=0.1, turns=2, pause=0.6)), keeps_turn=True),
}

HANDED: dict[str, Scenario] = {
    "exported and adopted": Scenario(
        (W(program=exporter), W(program=heir), W(start=0.1, hold=0.5)),
        each("lose request, lose reply", "B"),
        1,
        max_orphan=SOON,
    ),
    "adopted in time": Scenario(
        (
            W(program=exporter, ttl=3, renew=False, hold=2),
            W(program=heir, ttl=3, renew=False, hold=9),
            W(start=0.1, hold=0.1),
        ),
        max_orphan=SOON,
    ),
    "adoption is cancelled": Scenario(
        (W(program=exporter, ttl=4, hold=0.3), W(program=heir, ttl=30, hold=0.3), W(start=0.1, hold=0.1)),
        each("cancel, stuck request", "B"),
        1,
        only=lambda world, _kind, _what: on_its_way(world, "adopt"),
        max_orphan=4.3,
    ),
    "two heirs": Scenario(
        (W(program=exporter, hold=0.1), W(program=heir), W(program=heir, hold=0.5)),
        each("lose reply, stuck request", "BC"),
        1,
    ),
    "written down": Scenario(
        (W(program=lender, ttl=2, hold=3), W(program=heir, ttl=2, hold=2), W(start=0.1, hold=0.1)), keeps_lease=True
    ),
    "written down, and nobody comes": Scenario(
        (W(program=lender, ttl=2, hold=3), W(start=0.1, hold=0.1)), keeps_lease=True
    ),
    "a reader is handed over": Scenario(
        (R(program=exporter, hold=0.1), R(program=heir), R(hold=0.5), W(start=0.3, hold=0.1)),
        each("lose reply", "B"),
        1,
    ),
    "handed over before its first request arrives": Scenario(
        (R(program=exporter, hold=0.1), R(program=heir, hold=0.2), W(start=0.15, hold=0.1)),
        each("stuck request", "A"),
        1,
        only=request_of("acquire"),
        max_orphan=REQUEST,
    ),
    "handed over at once": Scenario((W(hold=3.1), W(start=0.1, hold=0, program=exporter), W(program=heir, hold=0.1))),
    "handed over at once, a poll is stuck": Scenario(
        (W(hold=3.1), W(start=0.1, hold=0, program=exporter), W(program=heir, hold=0.1)),
        each("stuck request", "B"),
        1,
        only=request_of("acquire"),
        max_orphan=REQUEST,
    ),
    "given back by another process, a poll is stuck": Scenario(
        (W(hold=3.1), W(start=0.1, hold=0, program=exporter), W(program=closer)),
        each("stuck request", "B"),
        1,
        only=request_of("acquire"),
        max_orphan=REQUEST,
    ),
    "one of two ends": Scenario(
        (W(names=NAMES, ttl=2, hold=1.5, program=mixed),),
        budget=1,
        extra_faults=deleted("renew"),
        names=NAMES,
    ),
    "a place is handed over": Scenario(
        (P(limit=1, program=exporter, hold=0.1), P(limit=1, program=heir), P(limit=1, start=0.05, hold=0.1)),
    ),
    "two names are handed over": Scenario(
        (AB(program=exporter, hold=0.1), AB(program=heir, hold=0.5), A(start=0.05)),
        each("lose reply", "B"),
        1,
        names=NAMES,
        max_orphan=0.05,
    ),
}

MODES: dict[str, Scenario] = {**READERS, **PLACES, **SEVERAL, **ASKING, **ONCE, **HANDED}
