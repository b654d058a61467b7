"""Every schedule of a scenario, depth first, each from the beginning: coroutines cannot be copied, but they replay.

A state that was seen before is not entered again; a state is the server, what is on its way, and where each coroutine
stands with its variables.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, cast
from unittest import mock

from tenure.core.lease_state import Hold
from tenure.core.requests import Reply, Request
from tenure.core.ticket import Ticket
from tests.model.sim import Send, Wait
from tests.model.world import MOST_STEPS, World

if TYPE_CHECKING:
    from types import FrameType

    from tests.model.client import Client
    from tests.model.scenario import Scenario
    from tests.model.sim import Task
    from tests.model.world import Move, Packet

_PLAIN = {int, bool, float, str, bytes, type(None)}


@dataclass
class Result:
    """What an exploration has seen."""

    schedules: int = 0
    """Different orders of moves from the beginning to an end, counted over the graph of states."""
    states: int = 0
    steps: int = 0
    """Moves made, replays included."""
    ends: int = 0
    complete: bool = True
    """All schedules were seen; false when `enough` or a limit ended the search."""
    violations: dict[str, tuple[str, list[str]]] = field(default_factory=dict[str, "tuple[str, list[str]]"])
    """Metric -> what was seen, and the shortest schedule that was found."""
    faults: dict[str, int] = field(default_factory=dict[str, int])
    """How often each fault was injected: a run without faults would show nothing."""

    def note(self, metric: str, text: str, schedule: list[str]) -> None:
        """A violation; the shortest schedule is kept."""
        known = self.violations.get(metric)
        if known is None or len(known[1]) > len(schedule):
            self.violations[metric] = (text, list(schedule))

    def report(self) -> str:
        """The violations with their schedules, for a failing test."""
        lines: list[str] = []
        for metric, (text, schedule) in self.violations.items():
            lines += [f"{metric}: {text}", *(f"    {label}" for label in schedule)]
        return "\n".join(lines)


class _Search:
    """One exploration."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.result = Result()
        self.open_paths: list[tuple[list[int], int]] = [([], 0)]
        """Moves to replay, and the state to which all but the last of them lead."""
        self.graph: dict[int, list[int]] = {}
        """State -> the states after it; each is entered once."""

    def run(self, path: list[int], before: int) -> None:
        """Replays `path`, then goes on with the first move everywhere, noting the others for later."""
        world = World(self.scenario)
        labels: list[str] = []
        for depth in range(MOST_STEPS):
            moves = world.moves(path[depth] if depth < len(path) - 1 else None)
            if depth >= len(path):
                state = hash(freeze(world))
                self.graph.setdefault(before, []).append(state)
                before = state
                if state in self.graph or not self.enter(world, moves, labels, state):
                    break
                self.open_paths.extend(([*path, i], state) for i in range(1, len(moves)))
                path = [*path, 0]
            move = moves[path[depth]]
            labels.append(f"{world.true_us / 1e6:9.3f}  {move.label}")
            if move.cost and depth == len(path) - 1:
                kind = move.label[2:]
                self.result.faults[kind] = self.result.faults.get(kind, 0) + 1
            move.run()
            world.monitor.step()
            self.result.steps += 1
        else:
            self.result.note("blocked", f"no end after {MOST_STEPS} steps", labels)
        world.close()

    def enter(self, world: World, moves: list[Move], labels: list[str], state: int) -> bool:
        """Whether a new state is to be gone on from; notes what is wrong with it."""
        self.graph[state] = []
        if world.finished():
            world.monitor.end()
            self.result.ends += 1
        for metric, text in world.monitor.violations.items():
            self.result.note(metric, text, labels)
        if not moves and not world.finished():
            self.result.note("blocked", "nothing can happen any more", labels)
        return bool(moves)

    def schedules(self) -> int:
        """The number of paths through the graph of states."""
        paths: dict[int, int] = {}
        todo = [next(iter(self.graph))]
        while todo:
            state = todo[-1]
            after = self.graph.get(state, [])
            missing = [child for child in after if child not in paths]
            if missing:
                paths.setdefault(state, 0)
                todo += missing
                continue
            todo.pop()
            paths[state] = sum(paths[child] for child in after) or 1
        return paths[next(iter(self.graph))]


def explore(scenario: Scenario, *, enough: str | None = None, limit: int = 200_000) -> Result:
    """Explores all schedules; stops early at a violation of the metric `enough`, or after `limit` steps."""
    with contextlib.ExitStack() as patches:
        for target, value in scenario.patches:
            patches.enter_context(mock.patch(target, value))
        return _explore(scenario, enough, limit)


def _explore(scenario: Scenario, enough: str | None, limit: int) -> Result:
    search = _Search(scenario)
    result = search.result
    while search.open_paths:
        search.run(*search.open_paths.pop())
        if enough in result.violations or result.steps > limit:
            result.complete = not search.open_paths
            break
    result.states = len(search.graph) - 1
    result.schedules = search.schedules()
    return result


# --- The identity of a state -----------------------------------------------------------------------------------------


def freeze(world: World) -> object:
    """A hashable picture of everything that can make a difference from here on."""
    monitor, server = world.monitor, world.server
    counts = (monitor.requests, monitor.messages) if world.scenario.cost is not None else ()
    return (
        world.true_us,
        world.faults_left,
        world.forgot,
        world.excused,
        server.now_us,
        _plain(server.state()),
        tuple(sorted(server.listeners.items())),
        tuple(sorted(hash(_packet(packet)) for packet in world.packets)),
        tuple(_client(client) for client in world.clients),
        world.posted.is_set,
        tuple(
            (lock.fence, lock.orphan_us, lock.last_run, tuple(lock.arrivals.items())) for lock in monitor.locks.values()
        ),
        monitor.grants - monitor.leases,
        tuple(sorted(monitor.ended)),
        tuple(sorted(monitor.over)),
        tuple(sorted(monitor.given)),
        tuple(sorted(monitor.last_tries)),
        tuple(sorted(monitor.heard)),
        tuple(monitor.started.items()) if world.scenario.max_wait is not None else (),
        counts,
    )


def _packet(packet: Packet) -> object:
    task = packet.task.name if packet.task else None
    body = packet.body[1:] if packet.kind == "reply" else packet.body
    return (packet.kind, packet.client.name, task, _plain(packet.request), _plain(body), packet.slow, packet.due)


def _client(client: Client) -> object:
    return (
        client.epoch,
        client.subscribed,
        client.alive,
        client.paused,
        client.cut_off,
        client.outcome,
        client.serial,
        client.turn,
        client.places,
        client.asked.is_set,
        tuple(sorted(client.lent)),
        tuple(sorted(client.handed.items())),
        client.port.server_time._known,
        client.port.server_time.latest,
        tuple(sorted(hash(_task(task)) for task in client.tasks)),
        tuple(_plain(ticket) for ticket in client.tickets.values()),
        tuple(_plain(hold) for hold in client.holds.values()),
    )


def _task(task: Task) -> object:
    frames: list[object] = [task.name]
    awaited: Any = task.coroutine
    while (frame := getattr(awaited, "cr_frame", None)) is not None:
        frames.append(_frame(frame))
        awaited = awaited.cr_await
    op = task.op
    frames.append((type(op).__name__, getattr(op, "until", None), isinstance(op, Wait) and op.signal.is_set))
    if isinstance(op, Send):
        frames.append(_plain(op.request))
    return tuple(frames)


def _frame(frame: FrameType) -> object:
    variables = ((name, _plain(value)) for name, value in frame.f_locals.items())
    return (frame.f_code.co_name, frame.f_lasti, tuple(variables))


def _plain(value: object) -> object:
    if type(value) in _PLAIN or isinstance(value, Enum):
        return value
    if isinstance(value, list | tuple):
        return tuple(map(_plain, cast("list[object]", value)))
    if isinstance(value, dict):
        return tuple(sorted((key, _plain(item)) for key, item in cast("dict[bytes, object]", value).items()))
    if isinstance(value, Request):
        return (value.script.name, tuple(value.args), value.unanswered)
    names = _FIELDS.get(type(value))
    return type(value).__name__ if names is None else tuple(_plain(getattr(value, name)) for name in names)


_OUTSIDE = ("signal", "mutex", "owner", "keys", "info", "hold", "handle")
_SLOTTED: tuple[type[Ticket | Hold | Reply], ...] = (Ticket, Hold, Reply)
_FIELDS: dict[type, list[str]] = {kind: [n for n in kind.__slots__ if n not in _OUTSIDE] for kind in _SLOTTED}
