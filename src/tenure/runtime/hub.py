"""The hub: the one background thread of a `Locks` or `AsyncLocks` object.

It renews leases, listens on the inbox, polls for waiters, fires deadlines and undoes what callers had to abandon; a
blocked event loop or a busy main thread delays none of it. It is an event loop of its own in a daemon thread, so the
procedures of `core/` run here as they do anywhere else. Callers talk to it through two dictionaries, and wake it only
when something is due before the moment until which it sleeps anyway: an uncontended acquire costs it nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import math
from _thread import RLock
from typing import TYPE_CHECKING, Any

from ..core import poll, release, schedule
from ..core.lease_state import ANNOUNCE_AFTER
from ..core.renew import LOSSES, announce, renew_all
from ..errors import ServerUnavailable, TenureError
from . import clock, messages
from .aio import HubPort, cancel_all, last_rounds
from .inbox import Inbox
from .registry import Registry, closing

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from ..core.keys import Keys
    from ..core.lease_state import Hold
    from ..core.ticket import Signal, Ticket
    from ..errors import LossReason
    from .client_state import ClientState
    from .notifier import Notifier
    from .threads import Joinable, Threads

logger = logging.getLogger("tenure")

_JOIN_SLACK = 5.0  # for a busy machine: a thread that is left behind is ended by Python at any line
_LONGEST_SLEEP = 86_400.0

_abandoned: list[object] = []
"""Event loops of a parent process: never touched, and never collected, in a forked child."""


class Hub(Registry):
    """Started by the first lease, waiter or undo; ended by `stop`."""

    def __init__(self, state: ClientState, notifier: Notifier, threads: Threads) -> None:
        super().__init__()
        self.stopping = asyncio.Event()
        self.wake_at = math.inf
        """The local instant until which the loop sleeps; infinite while it is planning."""
        self._state = state
        self._notifier = notifier
        self._threads = threads
        # Reentrant: a signal handler that closes everything may interrupt the call that starts the thread.
        self._mutex = RLock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: Joinable | None = None
        self._started = False
        self._runs = itertools.count()
        self._event = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._subscribers: list[Signal] = []
        self._release_at_end = False
        self._ended = False
        self._inbox: Inbox | None = None
        self._port = HubPort(state, self)
        self._ending: asyncio.Task[None] | None = None

    # --- called from any thread --------------------------------------------------------------------------------------

    def start(self) -> bool:
        """Starts the thread unless it runs; False when this hub has ended."""
        if self._started:
            return not self._closed
        with self._mutex:
            if self._closed:
                return False
            if self._loop is None:
                self._loop = self._threads.new_loop()
            thread = self._threads.start(self._run, "tenure-hub")
            self._thread = self._thread or thread
            self._started = True
        return True

    def _call(self, function: Any, *args: Any) -> None:
        self.start()
        # Also while it is ending: what was given up just now is undone with the rest.
        loop = self._loop
        if loop is None:
            return
        try:
            loop.call_soon_threadsafe(function, *args)
        except RuntimeError:
            # It has ended meanwhile: what it would have done is left to the ttl.
            logger.debug("the hub has ended; %s was not done", function)

    def wake(self) -> None:
        """Makes the loop look at everything again."""
        self._call(self._event.set)

    def poll_by(self, ticket: Ticket) -> None:
        """The ticket waits: its poll is made in time."""
        due = ticket.next_poll
        if due is not None and due < self.wake_at:
            self.wake()

    def add(self, hold: Hold, owner: object) -> None:
        """From now on the lease is renewed and its deadline watched; `owner` is the task or thread that took it."""
        self.own(hold, owner)
        self.rescheduled(hold)

    def keep(self, hold: Hold) -> None:
        """A lease that waits for others of the same call is renewed from now on."""
        super().keep(hold)
        self.rescheduled(hold)

    def rescheduled(self, hold: Hold) -> None:
        """The lease's times are new: something may be due before the moment until which the loop sleeps."""
        if not self._started or schedule.first_due(hold) < self.wake_at:
            self.wake()

    def undo(self, keys: Keys, token: bytes) -> None:
        """Sees to it that the token neither holds nor waits; does not block."""
        self._call(self._undo, keys, token)

    def held_in(self, main: bytes, owner: object) -> Hold | None:
        """The lease of this lock that the same task or thread holds, if there is one with a handle."""
        hold = self.owned(main, owner)
        return None if hold is None or self._drop_orphan(hold) else hold

    def _drop_orphan(self, hold: Hold) -> bool:
        orphaned = hold.orphaned
        if orphaned:
            self.drop(hold)
        return orphaned

    def drop(self, hold: Hold) -> None:
        """Gives back a lease whose handle nobody has any more; on the hub's thread, which no signal interrupts."""
        self._call(self._drop, hold)

    def subscribe(self, signal: Signal, unknown: tuple[str, int]) -> bool:
        """Sets `signal` once the inbox is confirmed or refused; True when it is confirmed now.

        `unknown` is an inbox, with its epoch, that the server does not know: without a new subscription the caller
        would ask, and be told to subscribe, as fast as the server answers.
        """
        if self._state.inbox and unknown != (self._state.inbox, self._state.epoch):
            return True
        self._call(self._add_subscriber, signal, unknown)
        return False

    def subscribed(self) -> bool:
        """Whether the inbox is confirmed; raises the server's refusal."""
        if not self._state.inbox and self._inbox is not None and self._inbox.error is not None:
            raise self._inbox.error
        return bool(self._state.inbox)

    def ended(self, hold: Hold, outcome: str) -> None:
        """A request has found out that the lease is not ours any more; other outcomes change nothing."""
        if outcome == "moved":
            self.moved(hold)
        elif outcome in LOSSES:
            self.lost(hold, LOSSES[outcome])

    def moved(self, hold: Hold) -> None:
        """The lease goes on in another process."""
        if hold.move(clock.now()):
            self.hand_over(hold)
            self._notifier.moved(hold)

    def lost(self, hold: Hold, reason: LossReason) -> None:
        """Marks a lease as lost and tells so, once."""
        if hold.lose(reason, clock.now()):
            self.report_loss(hold)

    def report_loss(self, hold: Hold) -> None:
        """What follows from a loss, for the one who has noticed it."""
        self.remove(hold)
        self._notifier.lost(hold)
        if hold.reason == "expired":
            # Its key may still be there, in its grace or because the last renewal's reply was lost.
            self.undo(hold.keys, hold.token)

    def stop(self, *, release: bool, within: float, join: bool = True) -> None:
        """Ends the thread in about `within` seconds, giving back what is held if asked to; waits if it is to `join`."""
        with self._mutex:
            if self._loop is None and self.tickets:
                # Amid the first requests of all: somebody has to end those, and to give back what they get.
                with contextlib.suppress(RuntimeError):
                    self.start()
            self._closed = True
            loop, thread = self._loop, self._thread
            self._release_at_end = release
        if loop is None:
            return
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(self._stop, within)
        # Without a thread this has interrupted the call that starts it: it ends by itself.
        if join and thread is not None and asyncio._get_running_loop() is not loop:
            thread.join(within + _JOIN_SLACK)

    def abandon(self) -> None:
        """In a forked child: nothing here runs any more, and no socket is shared with the parent."""
        self._closed = True
        if self._loop is not None:
            _abandoned.append((self._loop, self._thread, self._inbox, self._port))
            self._loop = None
        if self._inbox is not None:
            self._inbox.abandon()
        self._port.server.abandon()
        for hold in list(self.holds.values()):
            self._threads.renewed_mutex(hold)
            hold.lose("forked", clock.now())
        self.holds.clear()
        self._threads.abandoned(list(self.tickets.values()))
        self.tickets.clear()

    # --- on the hub's own thread -------------------------------------------------------------------------------------

    def _run(self, thread: Joinable) -> None:
        loop = self._loop
        assert loop is not None  # noqa: S101 - set by start
        # An interrupt inside Thread.start() leaves a thread that runs behind: the first that comes here is the hub.
        if next(self._runs):
            return
        self._thread = thread
        try:
            loop.run_until_complete(self._main())
        finally:
            self._closed = True
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()

    async def _main(self) -> None:
        self._inbox = Inbox(self._state, on_message=self._message, on_change=self._subscribed, on_trouble=self._trouble)
        listening = asyncio.get_running_loop().create_task(self._inbox.run(lambda: bool(self.tickets or self.holds)))
        while not self._ended:
            self._event.clear()
            self.wake_at = math.inf
            until = self._work(clock.now())
            self.wake_at = until
            pause = min(max(until - clock.now(), 0.0), _LONGEST_SLEEP)
            timer = asyncio.get_running_loop().call_later(pause, self._event.set)
            await self._event.wait()
            timer.cancel()
        self._inbox.close()
        await cancel_all({listening, *self._tasks})
        # Once more: a connection that was just being opened is there now. What is closed ends in the next rounds.
        handshaking = not self._state.inbox and getattr(self._state.client, "tls", False)
        self._inbox.close()
        await self._port.server.end()
        await last_rounds(handshaking=handshaking)

    def _work(self, now: float) -> float:
        """Starts everything that is due; the local instant of what comes next."""
        plan = schedule.due(list(self.holds.values()), now)
        for hold in plan.expired:
            self.lost(hold, "expired")
        for hold in plan.overheld:
            hold.warned = True
            self._notifier.overheld(hold)
        renew = [hold for hold in plan.renew if not self._drop_orphan(hold)]
        for first in range(0, len(renew), schedule.BATCH):
            self._spawn(self._renew(renew[first : first + schedule.BATCH]))
        # Without an inbox they stay due; its confirmation makes the loop look again.
        for first in range(0, len(plan.announce) if self._state.inbox else 0, schedule.BATCH):
            self._spawn(self._announce(plan.announce[first : first + schedule.BATCH]))
        ready, next_poll = poll.due(list(self.tickets.values()), now)
        if ready:
            self._spawn(self._poll(ready))
        return min(math.inf if plan.next_at is None else plan.next_at, math.inf if next_poll is None else next_poll)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.error("a task of the hub failed", exc_info=task.exception())

    async def _renew(self, holds: Sequence[Hold]) -> None:
        outcomes = await renew_all(self._port, holds)
        for index, hold in enumerate(holds):
            outcome = "unanswered" if outcomes is None else outcomes[index]
            if outcome == "renewed":
                self._notifier.renewed(hold)
            elif outcome in ("late", "unanswered"):
                self._notifier.renew_failed(hold)
            else:
                self.ended(hold, outcome)
        # A look at everything after each batch would cost more than the renewals.
        if min(map(schedule.first_due, holds)) < self.wake_at:
            self._event.set()

    async def _announce(self, holds: Sequence[Hold]) -> None:
        """Leases that were granted before there was an inbox get one."""
        if not self._state.inbox:
            # Lost again between two steps of the loop: they are due again when it is back.
            return
        for hold in holds:
            hold.reachable = True
        try:
            outcomes = await announce(self._port, holds)
        except TenureError as error:
            # What they would hear of at their next renewal as well they hear later; of being asked they would not hear.
            for hold in holds if isinstance(error, ServerUnavailable) else ():
                hold.reachable, hold.announce_at = False, clock.now() + ANNOUNCE_AFTER
            self._event.set()
            return
        for hold, outcome in zip(holds, outcomes, strict=True):
            self.ended(hold, outcome)

    async def _poll(self, tickets: Sequence[Ticket]) -> None:
        try:
            await poll.poll(self._port, tickets)
        finally:
            self._event.set()

    def _drop(self, hold: Hold) -> None:
        if hold.begin_release(clock.now()):
            self.remove(hold)
            self._undo(hold.keys, hold.token)
            self._notifier.dropped(hold)

    def _undo(self, keys: Keys, token: bytes) -> None:
        if not self._ended:
            self._spawn(self._undoing(keys, token))

    async def _undoing(self, keys: Keys, token: bytes) -> None:
        try:
            await release.undo(self._port, keys, token)
        except TenureError as error:
            logger.debug("lock %r could not be given back (%s); its ttl takes over", keys.name, error)

    def _message(self, words: list[bytes], received_at: float) -> None:
        messages.deliver(self, self._notifier, words, received_at, self._state.epoch)

    def _add_subscriber(self, signal: Signal, unknown: tuple[str, int]) -> None:
        # Without a name it is not unknown but not there yet: one that is just being made must not be torn down.
        if self._inbox is not None and unknown[0] and unknown == (self._state.inbox, self._state.epoch):
            self._inbox.renew()
        self._subscribers.append(signal)
        if self.stopping.is_set() or self._state.inbox or (self._inbox is not None and self._inbox.error is not None):
            self._tell_subscribers()

    def _tell_subscribers(self) -> None:
        signals, self._subscribers = self._subscribers, []
        for signal in signals:
            with signal.mutex:
                signal.set()

    def _subscribed(self) -> None:
        """Confirmed, for the first time or again: what was sent meanwhile is lost, so every waiter asks."""
        self._tell_subscribers()
        now = clock.now()
        for ticket in list(self.tickets.values()):
            if ticket.next_poll is not None:
                ticket.next_poll = now
        self._event.set()

    def _trouble(self, error: TenureError) -> None:
        self._tell_subscribers()
        for ticket in list(self.tickets.values()):
            if ticket.next_poll is not None:
                ticket.failed(error)

    def _stop(self, within: float) -> None:
        if self.stopping.is_set():
            return
        self._ending = asyncio.get_running_loop().create_task(self._finish(within))

    async def _finish(self, within: float) -> None:
        """Undoes what is left, bounded in time, then lets the loop end."""
        # First: what is granted from here on counts for nobody, and what its owner has taken already is a lease below.
        taken: list[Hold] = []
        for ticket in list(self.tickets.values()):
            own = ticket.end(closing(ticket))
            if own is None:
                self._undo(ticket.keys, ticket.token)
            else:
                taken.append(own)
        if self._release_at_end:
            for hold in (*taken, *list(self.holds.values())):
                if hold.lose("closed", clock.now()):
                    self.report_loss(hold)
                    self._undo(hold.keys, hold.token)
        self._tell_subscribers()
        self.stopping.set()
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=within)
        self._ended = True
        self._event.set()
