"""What both flavours of a lease share: everything that needs no I/O."""

from __future__ import annotations

import functools
import warnings
from typing import TYPE_CHECKING, Any, NoReturn

from . import options
from .core.adopt import exported
from .core.keys import short_id
from .core.lease_state import HELD, LOST, MOVED, RELEASING
from .core.renew import describe, renew_now, shorter
from .errors import ConfigError, LeaseLost, NotHeld, ServerError
from .instrument.logs import logger
from .outcomes import Released
from .runtime import clock

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .core.lease_state import Hold
    from .core.ports import Port
    from .errors import LossReason, TenureError
    from .events import AskedEvent
    from .options import LockOptions, Mode
    from .runtime.session import Session


_SENTENCES: dict[LossReason, str] = {
    "expired": "its deadline passed before it could be renewed",
    "deleted": "its key was deleted on the server before its end",
    "taken": "another client holds the lock now",
    "revoked": "an operator broke the lock",
    "forked": "this process is a fork of the holder",
    "closed": "the Locks object was closed",
}


class LeaseBase:
    """What `Lease` and `AsyncLease` share."""

    _asked: AskedEvent | None = None
    _nested = 0
    """How many nested blocks of a reentrant lock have to be left before the lease is given back."""

    def __init__(self, session: Session, keeper: object, holds: tuple[Hold, ...], chosen: LockOptions) -> None:
        self._session = session
        # While somebody has the lease, the hub that renews it must not be ended by the garbage collector.
        self._keeper = keeper
        self._holds = holds
        self._hold = holds[0]
        self._options = chosen
        self._info = chosen.info
        self._callbacks: tuple[Callable[[Any], object], ...] = () if chosen.on_lost is None else (chosen.on_lost,)
        self._ask_callbacks: tuple[Callable[[Any], object], ...] = () if chosen.on_ask is None else (chosen.on_ask,)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the lock."""
        return tuple([hold.keys.name for hold in self._holds])

    @property
    def fence(self) -> int:
        """The fencing token: a number that rises with every new grant of the same name.

        Raises `ConfigError` for a lease of several names, which has one for each: see `fences`.

        Safety: write it where the data lives and refuse smaller ones, on the read too; that is what stops a holder that
        has lost its lease without knowing it yet. Those who share a lock at the same time have the same one, and that
        of a semaphore orders nothing.
        """
        return self._only("fence").fence

    @property
    def fences(self) -> Mapping[str, int]:
        """The fence of each name."""
        return {hold.keys.name: hold.fence for hold in self._holds}

    @property
    def mode(self) -> Mode:
        """How the lock is held: exclusive, shared, or semaphore."""
        return self._hold.terms.mode

    @property
    def token(self) -> str:
        """The secret that proves this possession; whoever has it can release the lock.

        Raises `ConfigError` for a lease of several names, which has one for each.
        """
        return self._only("token").token.decode()

    def _only(self, what: str) -> Hold:
        if len(self._holds) > 1:
            msg = f"a lease of several names ({self._called()}) has one {what} for each of them; see lease.fences"
            raise ConfigError(msg)
        return self._hold

    def _called(self) -> str:
        return ", ".join(map(repr, self.names))

    @property
    def info(self) -> str | Mapping[str, Any] | None:
        """What the holder tells others about this lease."""
        return self._info

    @property
    def valid(self) -> bool:
        """Whether the lease is held now, by the local deadline; no I/O.

        Safety: it may end at any moment after the answer.
        """
        return self.remaining() > 0

    @property
    def lost(self) -> LossReason | None:
        """Why the lease was lost, or None when it was not."""
        self._notice_deadline()
        return next((hold.reason for hold in self._holds if hold.reason is not None), None)

    @property
    def asked(self) -> AskedEvent | None:
        """Who has asked for the lock first, or None when nobody has; no I/O.

        It is up to the holder what it does: save and release, or go on. To do nothing is to refuse.
        """
        if self._asked is None:
            self._listen()
        return self._asked

    def remaining(self) -> float:
        """Seconds until the local deadline, from which the lease counts as lost; 0 when it is not held. No I/O."""
        now = clock.now()
        return min([hold.remaining(now) if hold.state is HELD else 0.0 for hold in self._holds])

    def held_for(self) -> float:
        """Seconds since the grant, or until the lease ended."""
        ends = [hold.ended_at for hold in self._holds if hold.ended_at is not None]
        return max(0.0, (min(ends) if ends else clock.now()) - max(hold.granted_at for hold in self._holds))

    def check(self, min_remaining: float = 0) -> None:
        """Raises `LeaseLost` unless the lease is held for `min_remaining` more seconds; no I/O.

        Raises `NotHeld` after a release, after it was handed over, and in a forked child.

        Safety: call it right before each effect that the lock protects, with the time that the effect takes.
        """
        least = options.seconds(min_remaining, "min_remaining") if min_remaining else 0.0
        self._refuse_forked()
        self._notice_deadline()
        now = clock.now()
        for hold in self._holds:
            if hold.state is LOST:
                raise self._loss(hold)
            if hold.state is MOVED:
                msg = f"lock {hold.keys.name!r}: this lease was handed over to another process"
                raise NotHeld(msg, names=self.names)
            if hold.state is not HELD:
                msg = f"lock {hold.keys.name!r}: this lease was released; acquire the lock again"
                raise NotHeld(msg, names=self.names)
            left = hold.remaining(now)
            if left <= least:
                msg = f"lock {hold.keys.name!r}: only {left:.3f} s are left of the lease, {least:g} s are needed"
                raise LeaseLost(msg, names=self.names, reason="expired", held_for=self.held_for())

    def detach(self) -> None:
        """From now on the lease counts as nobody's in particular: the thread or task that took it may take it again.

        For a lease that is handed to another thread or task. `current()` finds it no longer. No I/O.
        """
        for hold in self._holds:
            self._session.hub.disown(hold)

    def export(self) -> str:
        """Ends this handle and writes the lease down, for `adopt()` in another process or `tenure release`; no I/O.

        Renewal stops, and the lease lasts for what is left of its ttl unless somebody adopts it. Raises `LeaseLost` or
        `NotHeld` as `check` does.

        Safety: whoever reads it can take the lease over, or release it; treat it as a password.
        """
        self.check()
        text = self.written()
        for hold in self._holds:
            self._session.hub.moved(hold)
        return text

    def written(self) -> str:
        """For the package itself: the same, while this handle goes on until somebody adopts the lease."""
        state = self._session.state
        return exported(state.defaults.namespace, self._holds, state.server_time.latest).text()

    @property
    def wants_asks(self) -> bool:
        """For the package itself: somebody has to be told of askers."""
        return bool(self._ask_callbacks)

    def give_back(self) -> None:
        """For the package itself: has the hub give back what nobody has begun to release; neither blocks nor warns."""
        for hold in self._holds:
            if hold.state is HELD:
                # From here on it is a release under way, and no lease that was dropped while held.
                hold.begin_release(clock.now())
                self._session.hub.drop(hold)

    def nest(self) -> None:
        """For the package itself: one more nested block of a reentrant lock uses this lease."""
        self._nested += 1

    def _unnested(self) -> bool:
        """Whether a nested block is left, and the outermost one goes on."""
        if self._nested:
            self._nested -= 1
            return True
        return False

    def on_ask(self, callback: Callable[[Any], object]) -> None:
        """Has `callback(lease)` called once when somebody asks for the lock; at once when somebody has already.

        Called as those of `on_lost` are. What it raises is logged.
        """
        options.callback(callback, "on_ask")
        with self._hold.mutex:
            late = self._asked is not None
            if not late:
                self._ask_callbacks += (callback,)
        if late:
            self._run_callback(callback)
        self._listen()

    def _listen(self) -> None:
        """Somebody wants to know of askers: the server is told our inbox now, not only after a while."""
        for hold in self._holds:
            if not hold.reachable and hold.state is HELD and hold.announce_at > hold.granted_at:
                hold.announce_at = hold.granted_at
                self._session.hub.rescheduled(hold)

    def on_lost(self, callback: Callable[[Any], object]) -> None:
        """Has `callback(lease)` called once if the lease is lost; at once when it is lost already.

        A plain function: in asyncio code it runs in the event loop's thread, in blocking code in a thread of its own.
        What it raises is logged.
        """
        options.callback(callback, "on_lost")
        with self._hold.mutex:
            late = any(hold.state is LOST for hold in self._holds)
            if not late:
                self._callbacks += (callback,)
        if late:
            self._run_callback(callback)

    def _run_callback(self, callback: Callable[[Any], object]) -> None:
        self._session.notifier.callbacks.submit(functools.partial(callback, self))

    def _notice_deadline(self) -> None:
        now = clock.now()
        for hold in self._holds:
            if hold.expire(now):
                self._session.hub.report_loss(hold)

    def _refuse_forked(self) -> None:
        if self._session.forked:
            msg = (
                f"lock {self._hold.keys.name!r}: this lease belongs to the parent process; acquire the lock in this one"
            )
            raise NotHeld(msg, names=self.names)

    def _loss(self, hold: Hold) -> LeaseLost:
        reason = hold.reason or "expired"
        held = self.held_for()
        msg = (
            f"lock {hold.keys.name!r} was lost after {held:.2f} s: {_SENTENCES[reason]}; "
            f"stop the work it protected, and acquire it again"
        )
        return LeaseLost(msg, names=self.names, reason=reason, held_for=held)

    def _begin_release(self, hold: Hold) -> Released | None:
        """The release's answer when there is nothing to tell the server."""
        if hold.expire(now := clock.now()):
            self._session.hub.report_loss(hold)
        if hold.state is LOST:
            self._acknowledge(hold)
            return Released.TAKEN if hold.reason == "taken" else Released.GONE
        if not hold.begin_release(now):
            return Released.GONE
        # It stays known until the answer: a late message of its grant would be undone, and the release find nothing.
        self._session.hub.disown(hold)
        return None

    def _acknowledge(self, hold: Hold) -> None:
        """Lets go of a lock that an operator broke: only now, when its holder has stopped, may the next one have it."""
        if hold.reason == "revoked" and not hold.acknowledged:
            hold.acknowledged = True
            self._session.hub.undo(hold.keys, hold.token)

    def _end_release(self, hold: Hold, how: str) -> Released:
        now = clock.now()
        if how == "released":
            if hold.end_release(now):
                self._session.notifier.released(hold)
            return Released.RELEASED
        if how == "moved":
            if hold.move(now):
                self._session.notifier.moved(hold)
            return Released.GONE
        # Before our deadline nobody sound removes the key: somebody has tampered with it.
        if hold.lose("deleted" if how == "gone" else "taken", now, releasing=True):
            self._session.notifier.lost(hold)
        return Released.GONE if how == "gone" else Released.TAKEN

    def _release_failed(self, error: TenureError) -> None:
        logger.warning(
            "lock %s could not be released (%s); its ttl takes over", self._called(), error,
            extra={"tenure_name": self._hold.keys.name, "tenure_event": "release_failed"},
        )  # fmt: skip

    def _left_by_fork(self, error: BaseException | None) -> bool:
        """Whether a forked child is leaving its parent's block: it has nothing to release, and is told so."""
        if not self._session.forked:
            return False
        if error is None:
            self._refuse_forked()
        else:
            error.add_note(
                f"lock {self._hold.keys.name!r}: this block was entered by the parent process, which holds the lock"
            )
        return True

    def _tell_loss_at_exit(self, error: BaseException | None) -> None:
        """Leaving a block: the body's own error wins and carries the loss as a note."""
        lost = next((hold for hold in self._holds if hold.state is LOST), None)
        if lost is None:
            return
        loss = self._loss(lost)
        if error is not None:
            error.add_note(str(loss))
        elif self._options.on_exit_lost == "raise":
            raise loss

    async def _renew(self, port: Port, ttl: float | None) -> None:
        self.check()
        terms = None
        if ttl is not None:
            defaults = self._session.state.defaults
            wished = defaults.ttl(ttl)
            terms = shorter(self._hold.terms, wished, defaults.grace_for(wished))
        give_up = min([port.now() + port.server_timeout, *(hold.deadline for hold in self._holds)])
        try:
            outcomes = await renew_now(port, self._holds, give_up=give_up, terms=terms)
        finally:
            # Also without an answer: the hub may sleep until the deadline, and the next try is due before it.
            for hold in self._holds:
                self._session.hub.rescheduled(hold)
        for hold, outcome in zip(self._holds, outcomes, strict=True):
            self._session.hub.ended(hold, outcome)
        self.check()
        if "late" in outcomes:
            msg = f"lock {self._called()}: the renewal reached the server too late to count; the deadline is as it was"
            raise ServerError(msg, node=port.node, cause="late")

    async def _set_info(self, port: Port, info: str | dict[str, Any] | None) -> None:
        chosen = options.info(info)
        self.check()
        text = self._session.describe(chosen)
        for hold in self._holds:
            self._session.hub.ended(hold, await describe(port, hold, text))
        self.check()
        self._info = chosen

    # Also what `copy` asks for.
    def __reduce_ex__(self, protocol: object) -> NoReturn:
        msg = "a lease cannot be pickled or copied: it is one possession, bound to this process"
        raise TypeError(msg)

    def __repr__(self) -> str:
        hold, state = self._hold, self._hold.state.name.lower()
        return f"<{type(self).__name__} {self._called()} #{short_id(hold.token)} fence={hold.fence} {state}>"

    def __del__(self) -> None:
        # Absent when __init__ itself was interrupted.
        holds: tuple[Hold, ...] = getattr(self, "_holds", ())
        if not holds or self._session.forked:
            return
        for hold in holds:
            if hold.state not in (HELD, RELEASING):
                self._acknowledge(hold)
                continue
            # A release that an interrupt has broken off before its request needs no warning, only to be made good.
            if hold.state is HELD:
                warnings.warn(
                    f"lock {hold.keys.name!r}: a lease was dropped while held, and is given back; use `with`",
                    ResourceWarning,
                    source=self,
                    stacklevel=2,
                )
            self._session.hub.drop(hold)
