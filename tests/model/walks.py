"""Random walks: more clients, more turns and more faults at once than can be explored to the end.

Scenario and walk come from one seed: `walk(seed, kind)` does the same on every machine.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

from tests.model.programs import exporter, heir, lender
from tests.model.scenario import Scenario, each
from tests.model.sim import Spec
from tests.model.world import World

if TYPE_CHECKING:
    from tests.model.world import Move

MOST_STEPS = 500
FAULTS = (
    "lose request, lose reply, lose message, slow request, slow reply, slow message, stuck request, double message, "
    "swap reply, cancel, kill, drop, pause, cut off"
)
KINDS = ("alone", "readers and writers", "places", "several names", "handed over")
NAMES = {"several names": ("a", "b", "c"), "handed over": ("a", "b")}


def spec(rnd: random.Random) -> Spec:
    """One client with any terms."""
    return Spec(
        ttl=rnd.choice([2, 6, 6, 30]),
        grace=rnd.choice([0, 0.08, 0.5]),
        hold=rnd.choice([0, 0.1, 0.5, 1, 3.1, 5]),
        wait=rnd.choice([None, None, None, 0, 0.5, 1, 3, 8]),
        renew=rnd.choice([True, True, False]),
        start=rnd.choice([0, 0, 0.1, 0.2, 1.0]),
        turns=rnd.choice([1, 1, 2, 3]),
        pause=rnd.choice([0, 0, 0.5]),
        rate=rnd.choice([1, 1, 0.99, 1.01]),
        subscribed=rnd.choice([True, True, False]),
    )


def of_kind(rnd: random.Random, kind: str, client: Spec) -> Spec:
    """The client with the locks and the mode of this kind of walk."""
    if kind in ("alone", "handed over"):
        return client
    client = replace(client, ask_after=rnd.choice([None, None, 0, 0.5]), yields=rnd.choice([True, False, False]))
    if kind == "places":
        return replace(client, mode="semaphore", limit=2)
    mode = rnd.choice(["exclusive", "shared"])
    if kind == "readers and writers":
        return replace(client, mode=mode)
    names = NAMES[kind]
    return replace(client, mode=mode, names=tuple(rnd.sample(names, rnd.choice([1, 2, 2, 3]))))


def heirs(rnd: random.Random, clients: list[Spec]) -> list[Spec]:
    """One of them hands its lease over, others take it; all of them in the same way."""
    mode, names = rnd.choice(["exclusive", "exclusive", "shared"]), rnd.choice([("a",), ("a", "b")])
    first = replace(clients[0], program=exporter if mode == "shared" else rnd.choice([exporter, lender]))
    programs = [heir, *(rnd.choice([heir, None]) for _ in clients[2:])]
    rest = [replace(client, program=program) for client, program in zip(clients[1:], programs, strict=True)]
    return [replace(client, mode=mode, names=names, wait=None) for client in (first, *rest)]


def scenario(rnd: random.Random, kind: str) -> Scenario:
    """Two to four clients with any terms, and up to four faults of some kinds."""
    clients = [spec(rnd) for _ in range(rnd.choice([2, 2, 3, 4]))]
    if kind == "handed over":
        clients = heirs(rnd, clients)
    limit = rnd.choice([1, 2, 2, 3]) if kind == "places" else 1
    return Scenario(
        tuple(replace(of_kind(rnd, kind, client), limit=limit) for client in clients),
        tuple(fault for fault in each(FAULTS, "ABCD") if rnd.random() < 0.5),
        budget=rnd.choice([0, 1, 2, 3, 4]),
        names=NAMES.get(kind, ("lock",)),
        # How long a lock may be without a holder under several faults at once is not known; everything else is.
        max_orphan=1e6,
        errors=("NotAcquired", "ServerUnavailable", "LeaseLost"),
        slowest=rnd.choice([0.5, 2.5, 6]),
        start_us=rnd.choice([0, 900]),
    )


def choose(rnd: random.Random, moves: list[Move], haste: float) -> Move:
    """The next move: mostly what is due, sometimes a fault, sometimes time."""
    faults = [move for move in moves if move.cost]
    usual = [move for move in moves if not move.cost]
    due = [move for move in usual if not move.patient and move.label != "time"]
    if faults and (not usual or rnd.random() < haste):
        return rnd.choice(faults)
    return rnd.choice(due if due and rnd.random() < 0.9 else usual)


def walk(seed: int, kind: str = "alone") -> tuple[dict[str, str], list[str]]:
    """One walk to its end: the violations by metric, and the schedule."""
    rnd = random.Random(seed)
    world = World(scenario(rnd, kind))
    haste = rnd.choice([0.02, 0.05, 0.2])
    labels: list[str] = []
    for _ in range(MOST_STEPS):
        moves = world.moves()
        if world.finished():
            world.monitor.end()
        if world.monitor.violations or not moves:
            break
        move = choose(rnd, moves, haste)
        labels.append(f"{world.true_us / 1e6:9.3f}  {move.label}")
        move.run()
        world.monitor.step()
    world.close()
    return world.monitor.violations, labels
