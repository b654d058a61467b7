"""Scenarios by name; each is explored with the core as it is, and with the mutants that it must see."""

from __future__ import annotations

from tests.model.client import Client
from tests.model.scenario import (
    Scenario,
    clock_steps,
    crowd,
    dead_waiters,
    deleted,
    each,
    failover,
    flickering,
    flush,
    forced,
    held_by_the_dead,
    no_margin,
    on_its_way,
    operator,
    overtaken,
    pair,
    request_of,
)
from tests.model.scenarios_modes import MODES
from tests.model.sim import SimPort, Spec

S = Spec
renewals_only = request_of("renew")
POLL = 3.01
"""Seconds between two polls with the standard ttl of 6 s, and a little."""
REQUEST = SimPort.request_timeout + 0.1

PACKETS = "lose request, lose reply, lose message, stuck request"

SCENARIOS: dict[str, Scenario] = {
    # No faults: every order of everything.
    "two clients": Scenario((S(), S()), cost=(4, 1)),
    "three clients": Scenario((S(), S(), S()), cost=(6, 2)),
    "two turns": Scenario((S(turns=2, hold=0.5), S(turns=2, hold=0.5))),
    "fifo of three": Scenario((S(hold=1), S(start=0.1), S(start=0.2), S(start=0.3))),
    "subscribe first": Scenario((S(subscribed=False), S(subscribed=False), S(start=0.1))),
    "poll overtaken by release": Scenario((S(hold=3.1), S(start=0.1, hold=0))),
    "two waiters of one client": Scenario(
        (S(hold=3.1), S(start=0.1, hold=0.5, program=pair), S(start=0.2, hold=0.5)),
        each("lose request, lose reply, lose message", "B"),
        1,
        max_orphan=POLL,
    ),
    # Requests and replies.
    "lost replies": Scenario((S(), S(), S(start=0.1)), each("lose request, lose reply", "AB"), 1, max_orphan=0.05),
    "lost twice": Scenario((S(), S()), each("lose request, lose reply", "AB"), 2, max_orphan=0.05),
    "slow requests": Scenario((S(), S()), each("slow request, slow reply", "AB"), 1, max_orphan=REQUEST),
    "late acquire": Scenario(
        (S(hold=0.5), S(wait=3)), each("stuck request, cancel", "B"), 2, only=request_of("acquire"), max_orphan=REQUEST
    ),
    "stuck acquire": Scenario(
        (S(), S(start=0.1)), each("stuck request", "AB"), 1, only=request_of("acquire"), max_orphan=REQUEST
    ),
    "stuck try": Scenario(
        (S(hold=0.5), S(start=0.1, wait=0), S(start=0.2)),
        each("stuck request", "B"),
        1,
        only=request_of("acquire"),
        errors=("NotAcquired",),
    ),
    "stuck wait": Scenario(
        (S(hold=0.9), S(start=0.1, wait=0.5), S(start=0.2)),
        each("stuck request", "B"),
        1,
        only=request_of("acquire"),
        errors=("NotAcquired",),
    ),
    "doubled acquire": Scenario(
        (S(), S(start=0.1, hold=3)), each("double request", "AB"), 1, only=request_of("acquire"), max_orphan=REQUEST
    ),
    "desynchronised": Scenario((S(), S()), each("swap reply", "AB"), 1, max_orphan=0.05),
    # Cancellation, at every await.
    "cancel two": Scenario((S(), S(start=0.1)), each("cancel", "AB"), 2, max_orphan=REQUEST),
    "cancel three": Scenario((S(), S(start=0.1), S(start=0.1)), each("cancel", "ABC"), 1, max_orphan=REQUEST),
    "cancel and lose": Scenario(
        (S(), S(start=0.1)), each("cancel, lose reply, lose message", "AB"), 2, max_orphan=REQUEST + POLL
    ),
    # Death, pauses, partitions.
    "waiter dies": Scenario((S(), S(start=0.1), S(start=0.2)), each("kill", "BC"), 1),
    "holder dies": Scenario((S(), S(start=0.1), S(start=0.2)), each("kill", "A"), 1),
    "holder pauses": Scenario((S(ttl=2, grace=0.5, hold=0.5), S(ttl=30, start=0.1, hold=1)), each("pause", "A"), 1),
    "holder cut off": Scenario((S(hold=8), S(start=0.1)), each("cut off", "A"), 1),
    "waiter pauses": Scenario(
        (S(ttl=30, hold=5), S(ttl=2, start=0.1), S(ttl=30, start=0.2)),
        each("pause", "B"),
        1,
        only=lambda world, _kind, _what: 1_150_000 < world.true_us < 1_500_000,
        instants=(1.2,),
        max_orphan=0.1,
    ),
    "late renewal": Scenario(
        (S(ttl=2, grace=0.5, hold=8), S(start=0.1, hold=0.1)),
        each("slow request, cut off", "A"),
        2,
        only=lambda world, kind, what: world.true_us < 1_000_000 and renewals_only(world, kind, what),
        slowest=2.2,
        max_orphan=0.1,
    ),
    "lost renewals": Scenario(
        (S(ttl=2, hold=3), S(start=0.1)),
        each("lose request, lose reply", "A"),
        2,
        only=renewals_only,
        keeps_lease=True,
    ),
    "slow renewals": Scenario(
        (S(ttl=2, hold=3), S(start=0.1)),
        each("slow request, slow reply", "A"),
        1,
        only=renewals_only,
        keeps_lease=True,
    ),
    "holder wakes late": Scenario(
        (S(ttl=2, hold=3),), each("pause", "A"), 1, only=lambda world, _kind, _what: on_its_way(world, "renew")
    ),
    "shorter ttl": Scenario(
        (S(hold=3, renew=False, program=flickering),),
        each("slow request, slow reply", "A"),
        1,
        only=renewals_only,
    ),
    # Messages.
    "lost message": Scenario((S(), S(start=0.1), S(start=0.2)), each("lose message", "BC"), 1, max_orphan=POLL),
    "doubled message": Scenario((S(), S(start=0.1), S(start=0.2)), each("double message", "BC"), 1, slowest=4),
    "skipped though alive": Scenario((S(), S(start=0.1), S(start=0.2)), each("drop", "BC"), 1),
    "waiter wakes late": Scenario(
        (S(ttl=2), S(ttl=2, start=0.1)),
        each("pause", "B"),
        1,
        only=lambda world, _kind, _what: on_its_way(world, "release") and 900_000 < world.true_us < 1_100_000,
        max_orphan=REQUEST,
    ),
    "waiter wakes too late": Scenario(
        (S(ttl=2), S(ttl=2, start=0.1), S(ttl=2, start=0.2, hold=0.5)),
        each("pause", "B"),
        1,
        only=lambda world, _kind, _what: on_its_way(world, "release") and 900_000 < world.true_us < 1_100_000,
        pause_for=2.2,
        max_orphan=REQUEST,
    ),
    "place comes back": Scenario(
        (S(), S(start=0.1), S(start=0.2), S(start=0.3, hold=0.1)),
        each("drop", "B"),
        1,
        only=lambda world, _kind, _what: on_its_way(world, "release") and world.true_us < 1_100_000,
    ),
    "message overtakes reply": Scenario((S(hold=0), S())),
    "message slow": Scenario(
        (S(), S(start=0.1, renew=False, hold=9), S(start=0.2)),
        each("slow message", "B"),
        1,
        instants=(2.5,),
        max_orphan=POLL,
    ),
    "late grant": Scenario(
        (S(), S(start=0.1, ttl=9), S(start=0.2)),
        each("slow message", "B"),
        1,
        slowest=6.5,
        max_orphan=6.6,
        polls=False,
        keeps_turn=True,
    ),
    "message deadline, slow clock": Scenario(
        (S(hold=9.9, ttl=30), S(ttl=20, start=0.1, renew=False, grace=0, rate=0.99, hold=30), S(start=0.2)),
        each("slow message", "B"),
        1,
        instants=(9.94, 29.95),
        max_orphan=21,
    ),
    "message, clock steps": Scenario(
        (S(), S(start=0.1, renew=False, ttl=3, hold=9), S(start=0.2)),
        budget=1,
        extra_faults=lambda world: clock_steps(20)(world) if on_its_way(world, "release") else (),
    ),
    "failover": Scenario(
        (S(), S(start=0.1), S(start=0.2)), budget=1, extra_faults=failover, max_orphan=POLL, slowest=2.5
    ),
    "force": Scenario(
        (S(), S(start=0.1, hold=0.5), S(start=0.2, hold=4)),
        budget=1,
        extra_faults=forced,
        deliverable=overtaken,
        max_orphan=POLL,
    ),
    "publishing refused": Scenario(
        (S(hold=0.5), S(start=0.1), S(start=0.2)),
        prepare=lambda world: setattr(world.server, "refuse_publish", True),
        max_orphan=2 * POLL,
    ),
    # Clocks.
    "slow clock": Scenario(
        (S(rate=0.99, grace=0, renew=False, hold=9), S(start=0.1, hold=0.5)), instants=(6.02,), max_orphan=0.01
    ),
    "slow reply": Scenario(
        (S(ttl=3, renew=False, hold=9), S(start=0.1, hold=0.5)), each("slow reply", "A"), 1, only=request_of("acquire")
    ),
    "retry moves the end": Scenario(
        (S(ttl=3, grace=0, drift=0.0, renew=False, hold=9), S(start=0.1)),
        each("slow reply", "A"),
        1,
        only=request_of("acquire"),
        instants=(3.05,),
    ),
    "clock steps back": Scenario(
        (S(), S(start=0.1), S(start=0.2)), budget=1, extra_faults=clock_steps(-0.15), max_orphan=0.2
    ),
    "clock steps far back": Scenario(
        (S(), S(start=0.1)),
        budget=1,
        extra_faults=lambda world: clock_steps(-1.5)(world) if on_its_way(world, "release") else (),
    ),
    "to the last instant": Scenario(
        (S(drift=0, grace=0, renew=False, hold=9), S(start=0.1, hold=0.5)),
        start_us=900,
        patches=(("tenure.core.lease_state.margin", no_margin),),
    ),
    "flush": Scenario((S(turns=2, pause=1, hold=0.5),), budget=1, extra_faults=flush),
    # The queue.
    "try beside a waiter": Scenario(
        (S(hold=0.5), S(start=0.051, wait=0)), prepare=held_by_the_dead, errors=("NotAcquired",)
    ),
    "try and a dead holder": Scenario(
        (S(hold=0.5), S(start=0.051, wait=0)), prepare=held_by_the_dead, errors=("NotAcquired",), polls=False
    ),
    "last try": Scenario(
        (S(hold=1), S(start=0.1, wait=0.9), S(start=0.2, hold=0.1)),
        each("lose message, slow message", "B"),
        1,
        errors=("NotAcquired",),
        max_orphan=0.01,
    ),
    "last try beside a poll": Scenario((S(hold=3.1), S(start=0.1, wait=3, hold=0.5)), errors=("NotAcquired",)),
    "polls unanswered": Scenario(
        (S(hold=3.1), S(start=0.1, hold=0)),
        each("lose request, lose reply, slow reply", "B"),
        1,
        only=lambda _world, _kind, what: not isinstance(what, Client) and what.task_name() == "poll",
        max_orphan=REQUEST,
    ),
    "many dead": Scenario((S(hold=0.5), S(start=0.1, hold=0.5)), prepare=dead_waiters(7, expired=True)),
    "many unreachable": Scenario((S(wait=0, hold=0.5), S(start=0.1, hold=0.5)), prepare=dead_waiters(7, expired=False)),
    "crowd of dead": Scenario((S(wait=0),), prepare=dead_waiters(150, expired=True)),
    "crowd before a waiter": Scenario((S(), S(start=0.1, hold=0.5), S(program=crowd)), polls=False),
    "pattern subscriber": Scenario(
        (S(), S(start=0.1), S(start=0.2)),
        each("kill", "B"),
        1,
        prepare=lambda world: setattr(world.server, "pattern_listeners", 1),
    ),
    "long wait": Scenario((S(ttl=30, hold=50), S(ttl=30, start=0.1))),
    "key deleted, release": Scenario(
        (S(), S(start=0.1, hold=0.5)), budget=1, extra_faults=deleted("release"), polls=False
    ),
    "key deleted, renewal": Scenario(
        (S(ttl=2, hold=1.5), S(start=0.1, hold=0.5)), budget=1, extra_faults=deleted("renew"), max_orphan=POLL
    ),
    # Any fault at any moment.
    "anything once": Scenario(
        (S(hold=0.5), S(start=0.1, hold=0.5)),
        each(f"{PACKETS}, slow request, slow reply, slow message, cancel, kill, drop, pause", "AB"),
        1,
        slowest=4,
        max_orphan=8.2,
        errors=("ServerUnavailable",),
    ),
    "anything once, three": Scenario(
        (S(hold=0.5), S(start=0.1, hold=0.5), S(start=0.2, hold=0.5)),
        each(f"{PACKETS}, cancel, kill, drop", "ABC"),
        1,
        slowest=4,
        max_orphan=8.2,
    ),
    # Operators.
    "broken": Scenario((S(hold=2, renew=False), S(start=0.1), S(program=operator))),
    "broken, message lost": Scenario(
        (S(hold=2, ttl=2), S(start=0.1), S(program=operator)), each("lose message", "A"), 1, max_orphan=0.5
    ),
    **MODES,
}
