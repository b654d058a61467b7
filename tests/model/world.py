"""One run: clients, a server, what is on its way between them, and every move that could come next.

A schedule is a list of moves. True time stands still while anything can happen at once; it passes, to the next instant
that means something to anybody, only when nothing is left to do but to wait. Faults make packets slow or lost, end or
pause clients, cancel them: each costs one of the scenario's few faults.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tenure.core import keys
from tenure.core.lease_state import State
from tenure.core.ports import Unanswered
from tenure.errors import TenureError
from tests.model import faults
from tests.model.monitor import Monitor
from tests.model.monitor_lock import tokens_of
from tests.model.sim import PREFIX, Cancelled, Send, Signal, Sleep, Subscribe, Wait

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tenure.core.adopt import Exported
    from tenure.core.requests import Request
    from tests.model.client import Client
    from tests.model.scenario import Scenario
    from tests.model.sim import Task

NAMES = "ABCDEFGH"
MOST_STEPS = 400


@dataclass(eq=False)
class Packet:
    """A request, a reply or a message on its way; a slow one may take any time, and nobody waits for it."""

    kind: str
    client: Client
    task: Task | None = None
    request: Request | None = None
    body: Any = None
    slow: bool = False
    due: int = 0
    """The true instant at which even a slow packet arrives."""

    def label(self) -> str:
        """Its name in a schedule."""
        what = self.request.script.name if self.request else self.body.split(b" ")[0].decode()
        return f"{self.kind} {self.client.name}.{self.task_name()} {what}"

    def task_name(self) -> str:
        """Which task waits for it."""
        return self.task.name if self.task else "-"


@dataclass
class Move:
    """One thing that can happen next, and how many faults it costs."""

    label: str
    run: Callable[[], None]
    cost: int = 0
    patient: bool = False
    """Time may pass instead."""


@dataclass(eq=False)
class World:
    """The state of a run."""

    scenario: Scenario
    true_us: int = 0
    packets: list[Packet] = field(default_factory=list[Packet])
    faults_left: int = 0
    forgot: bool = False
    """The server has lost its memory, or an operator has overruled it: holders may be wrong."""

    excused: bool = False
    """A lease may be found gone at its release, through no fault of ours."""
    closed: bool = False

    def __post_init__(self) -> None:
        self.server = self.scenario.server()
        self.locks = {name: keys.keys_of("ns", name) for name in self.scenario.names}
        self.keys = self.locks[self.scenario.names[0]]
        """The lock of scenarios with only one."""
        self.monitor = Monitor(self)
        self.exported: Exported | None = None
        """A lease that somebody has written down for others."""
        self.posted = Signal()
        """There is such a lease."""
        self.faults_left = self.scenario.budget
        self.true_us = self.scenario.start_us
        self.server.now_us += self.true_us
        self.clients: list[Client] = []
        for name, spec in zip(NAMES, self.scenario.clients, strict=False):
            self.clients.append(self.scenario.client(self, name, spec))
        self.scenario.prepare(self)
        for client in self.clients:
            client.start()

    # --- Running tasks -------------------------------------------------------------------------------------------

    def resume(self, client: Client, task: Task, value: object) -> None:
        """Lets a task run to its next suspension; an exception as `value` is thrown into it."""
        try:
            if isinstance(value, BaseException):
                task.op = task.coroutine.throw(value)
            else:
                task.op = task.coroutine.send(value)
        except StopIteration:
            self._finish(client, task, "done")
        except Cancelled:
            self._finish(client, task, "cancelled")
        except TenureError as error:
            self._finish(client, task, type(error).__name__, error)
        else:
            if isinstance(task.op, Send):
                task.tokens = tokens_of(task.op.request)
            if isinstance(task.op, Send) and not client.cut_off:
                self.monitor.sent(client, task.op.request)
                # A request that is sent again changes its not-after; what is on its way does not.
                request = copy.copy(task.op.request)
                request.args = list(request.args)
                self.packets.append(Packet("request", client, task, request))

    def _finish(self, client: Client, task: Task, outcome: str, error: TenureError | None = None) -> None:
        client.tasks.remove(task)
        if error is not None and task.name.startswith("undo"):
            self.monitor.left_to_ttl |= task.tokens
        if task.name == "main":
            client.outcome = outcome
            self.monitor.came_back(client, error)

    def close(self) -> None:
        """Ends all coroutines; what they would still do is of no interest."""
        self.closed = True
        for client in self.clients:
            for task in client.tasks:
                for _ in range(MOST_STEPS):
                    try:
                        task.coroutine.throw(Cancelled())
                    except (StopIteration, Cancelled, TenureError):
                        break

    # --- Moves ---------------------------------------------------------------------------------------------------

    def moves(self, wanted: int | None = None) -> list[Move]:
        """Everything that can happen next; empty at the end. Faults come last, and only if `wanted` is one."""
        moves = [*self._packet_moves(), *self._client_moves()]
        busy = any(not move.patient for move in moves)
        if not busy and (later := self._next_instant()) is not None:
            moves.append(Move("time", lambda: self._pass(later)))
        if self.faults_left and (wanted is None or wanted >= len(moves)):
            moves += [Move(f"! {label}", lambda r=run: self._fault(r), cost=1) for label, run in faults.of(self)]
        return moves

    def finished(self) -> bool:
        """Nothing is left to happen, but for packets that may never arrive."""
        return not any(client.alive and not client.cut_off and client.tasks for client in self.clients) and all(
            packet.slow for packet in self.packets
        )

    def _packet_moves(self) -> Iterator[Move]:
        for packet in self.packets:
            run = self._deliver if packet.kind == "request" else self._arrive
            held = packet.client.paused and packet.kind != "request"
            if not held and self.scenario.deliverable(self, packet):
                patient = packet.slow and not 0 < packet.due <= self.true_us
                yield Move(packet.label(), lambda r=run, p=packet: r(p), patient=patient)

    def _client_moves(self) -> Iterator[Move]:
        for client in self.clients:
            if client.paused:
                if self.true_us >= client.wakes_at:
                    yield Move(f"wake up {client.name}", client.wake_up, patient=client.wakes_at == 0)
            elif client.alive:
                yield from self._task_moves(client)
                yield from self._hub_moves(client)

    def _task_moves(self, client: Client) -> Iterator[Move]:
        now = client.now()
        for task in client.tasks:
            op, where = task.op, f"{client.name}.{task.name}"
            if isinstance(op, Send) and now >= op.until:
                yield Move(f"time-out {where}", lambda c=client, t=task: self.unanswered(c, t))
            elif (isinstance(op, Sleep) and now >= op.until) or (
                isinstance(op, Wait) and (op.signal.is_set or (op.until is not None and now >= op.until))
            ):
                yield Move(f"go on {where}", lambda c=client, t=task: self.resume(c, t, None))
            elif isinstance(op, Subscribe) and (client.subscribed or now >= op.until):
                yield Move(f"go on {where}", lambda c=client, t=task: self.resume(c, t, c.subscribed))

    def _hub_moves(self, client: Client) -> Iterator[Move]:
        if not client.subscribed and not client.cut_off and (client.epoch or client.tasks):
            yield Move(f"subscribe {client.name}", client.subscribe)
        if self.scenario.polls and client.due_polls()[0]:
            yield Move(f"poll {client.name}", client.poll)
        plan = client.due_holds()
        if plan.expired:
            yield Move(f"expire {client.name}", client.expire)
        if plan.renew:
            yield Move(f"renew {client.name}", client.renew)
        if plan.announce and client.subscribed:
            yield Move(f"announce {client.name}", client.announce)

    def _fault(self, run: Callable[[], None]) -> None:
        self.faults_left -= 1
        run()

    # --- Packets -------------------------------------------------------------------------------------------------

    def _deliver(self, packet: Packet) -> None:
        self.packets.remove(packet)
        request = packet.request
        assert request is not None
        self.monitor.before(request)
        raw = self.server.run(request.script.name, request.keys, request.args, request.echo, PREFIX)
        self.collect(request)
        if packet.task is not None:
            self.packets.append(Packet("reply", packet.client, packet.task, request, raw, slow=packet.slow))
        self.monitor.after(request, raw)

    def collect(self, request: Request | None = None) -> None:
        """What the server has published is on its way."""
        for channel, text in self.server.published:
            listener = next(c for c in self.clients if PREFIX + c.name.encode() == channel)
            self.packets.append(Packet("message", listener, body=text))
            self.monitor.told(text, request)
        self.server.published.clear()

    def _arrive(self, packet: Packet) -> None:
        self.packets.remove(packet)
        if not packet.client.alive or packet.client.cut_off:
            return
        if packet.kind == "message":
            packet.client.message(packet.body)
        elif packet.task is not None:
            self.resume(packet.client, packet.task, packet.body)

    def abandon(self, task: Task) -> None:
        """Nobody waits for this task's reply any more; its request may still arrive, at any time."""
        for packet in [p for p in self.packets if p.task is task]:
            packet.task, packet.slow = None, True
            if packet.kind == "reply":
                self.packets.remove(packet)

    def unanswered(self, client: Client, task: Task) -> None:
        """The task has waited long enough, or its connection broke."""
        self.abandon(task)
        self.resume(client, task, Unanswered("no answer in time"))

    # --- Time ----------------------------------------------------------------------------------------------------

    def _instants(self) -> Iterator[int]:
        ends = [end for lock in self.locks.values() for end in self._server_ends(lock)]
        for end in ends:
            # Alive up to and including its last millisecond: what happens in it, and what right after it?
            at = end * 1000 - self.server.now_us + self.true_us
            yield from (at, at + 1000)
        for client in self.clients:
            if client.alive:
                yield from (client.true(instant) for instant in self._local_instants(client))
        yield from (int(instant * 1e6) for instant in self.scenario.instants)
        yield from (packet.due for packet in self.packets)
        yield from (client.wakes_at for client in self.clients if client.paused)

    def _server_ends(self, lock: keys.Keys) -> Iterator[int]:
        """The last milliseconds of whatever there is on the server of a lock."""
        server = self.server
        for entry in server.entries(lock.entry).values():
            if not entry.startswith(b"h "):
                yield int(entry.split(b" ")[0])
        yield from server.queue(lock.shared).values()
        for key in (lock.main, keys.again_key(lock)):
            if server.type(key) != "none" and key in server.ends:
                yield server.ends[key]

    def _local_instants(self, client: Client) -> Iterator[float]:
        for task in client.tasks:
            until = getattr(task.op, "until", None)
            if until is not None:
                yield until
        poll = client.due_polls()[1] if self.scenario.polls else None
        if poll is not None:
            yield poll
        for hold in client.holds.values():
            if hold.state is State.HELD:
                yield from (hold.deadline, hold.next_renew)
                if not hold.reachable:
                    yield hold.announce_at

    def _next_instant(self) -> int | None:
        if self.finished():
            return None
        return min((instant for instant in self._instants() if instant > self.true_us), default=None)

    def _pass(self, until: int) -> None:
        self.monitor.passing(until)
        self.server.now_us += until - self.true_us
        self.true_us = until
