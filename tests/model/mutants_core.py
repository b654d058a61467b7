"""The core with one sentence of the protocol taken out: replacements for its functions, ports and hubs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tenure.core import acquire, adopt, lease_state, release, renew, requests, schedule, several
from tenure.core.exchange import exchange
from tenure.core.lease_state import State, deadline_of_reply
from tenure.core.ticket import Phase, Ticket
from tenure.errors import NotAcquired
from tests.model.client import Client
from tests.model.sim import SimPort

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tenure.core.acquire import Wish
    from tenure.core.keys import Keys
    from tenure.core.lease_state import Hold, Terms
    from tenure.core.ports import Port
    from tenure.core.requests import Request

# --- Deadlines -------------------------------------------------------------------------------------------------------


class CountsFromTheReply(SimPort):
    def stamp(self, sent_at: float) -> float:
        return self.now()


def from_arrival(
    base_local: float, base_server_ms: float, granted_ms: float, received_at: float, ttl: float, drift: float
) -> float:
    since = (granted_ms - base_server_ms) / 1000
    return received_at + ttl - lease_state.margin(drift, ttl + since)


def from_last_reply(
    base_local: float, base_server_ms: float, granted_ms: float, received_at: float, ttl: float, drift: float
) -> float:
    since = (granted_ms - base_server_ms) / 1000
    return base_local + since + ttl - lease_state.margin(drift, ttl + since)


def margin_of_the_ttl_alone(
    base_local: float, base_server_ms: float, granted_ms: float, received_at: float, ttl: float, drift: float
) -> float:
    since = (granted_ms - base_server_ms) / 1000
    return min(base_local + since, received_at) + ttl - lease_state.margin(drift, ttl)


def due_a_moment_later(holds: Sequence[Hold], now: float) -> schedule.Due:
    plan = schedule.Due()
    for hold in holds:
        due = _due([hold], now)
        plan.renew += due.renew
        plan.expired += [h for h in due.expired if now > h.deadline]
    return plan


def revived(self: Hold, number: int, sent_at: float, now: float) -> bool:
    if number != self.renewal or self.state is not State.HELD:
        return False
    self.deadline = deadline_of_reply(sent_at, self.terms.ttl, self.terms.ttl, self.terms.drift)
    self.next_renew = sent_at + self.terms.ttl / 3
    return True


async def trusting_renew_all(port: Port, holds: Sequence[Hold]) -> list[str] | None:
    outcomes = await _renew_all(port, holds)
    if outcomes is None:
        for hold in holds:
            hold.deadline = port.now() + hold.terms.ttl
    return outcomes


def never_tries_again(port: Port, hold: Hold) -> None:
    hold.next_renew = hold.deadline + 1


def renews_all_the_time(self: Hold, terms: Terms, now: float) -> int:
    self.renewal += 1
    return self.renewal


def renewal_without_limit(
    exclusive: Sequence[requests.Renewal],
    others: Sequence[requests.Renewal] = (),
    not_after: int = 0,
    *,
    until: float | None = None,
) -> Request:
    return _renew_request(exclusive, others, not_after)


# --- Grants by message -----------------------------------------------------------------------------------------------


def message_of_any_epoch(self: Ticket, granted_ms: float, fence: int, received_at: float, epoch: int) -> None:
    _message(self, granted_ms, fence, received_at, self.epoch)


def message_older_than_the_reply(self: Ticket, granted_ms: float, fence: int, received_at: float, epoch: int) -> None:
    _message(self, max(granted_ms, (self.server_ms or 0) + 1), fence, received_at, epoch)


def early_message_dropped(self: Ticket, granted_ms: float, fence: int, received_at: float, epoch: int) -> None:
    if self.server_ms is not None:
        _message(self, granted_ms, fence, received_at, epoch)


def message_is_only_a_hint(self: Ticket, granted_ms: float, fence: int, received_at: float, epoch: int) -> None:
    self.check = True
    self.signal.set()


class KeepsUnwantedGrants(Client):
    def wanted(self, words: list[bytes], ticket: Ticket | None, hold: Hold | None) -> bool:
        super().wanted(words, ticket, hold)
        return True


class ForgetsWhatItHolds(Client):
    def wanted(self, words: list[bytes], ticket: Ticket | None, hold: Hold | None) -> bool:
        return super().wanted(words, ticket, None)


class DoesNotAskAgain(Client):
    def ask_for_all(self) -> None:
        return


# --- Tokens and undo -------------------------------------------------------------------------------------------------


class OneTokenPerTurn(Client):
    def new_token(self) -> bytes:
        self.serial = self.turn - 1
        return super().new_token()


class OneTokenPerClient(Client):
    def new_token(self) -> bytes:
        self.serial = 0
        return super().new_token()


class RetriesWithANewToken(SimPort):
    async def send(self, request: Request, *, full: bool, timeout: float) -> requests.Reply:
        if request.script.name == "acquire" and request.unanswered:
            request.args[2] = self.client.new_token()
        return await super().send(request, full=full, timeout=timeout)


class UndoesNothing(SimPort):
    def undo(self, keys: Keys, token: bytes) -> None:
        return


async def withdraw_once(port: Port, keys: Keys, token: bytes) -> None:
    await release.withdraw(port, keys, token)


def no_not_after(self: object, instant: float) -> int:
    return 0


def remembers_no_stray(self: Ticket, not_after: int) -> bool:
    return True


def keeps_what_comes_late(self: Ticket, server_ms: int, _fence: int | None) -> bool:
    return True


def over_while_releasing(self: Ticket, server_ms: int, _fence: int | None) -> bool:
    return not (self.phase is Phase.WITHDRAWN or (self.hold is not None and self.hold.state is not State.HELD))


class KeepsRevokedKeys(Client):
    def lose(self, hold: Hold, reason: lease_state.LossReason) -> None:
        hold.lose(reason, self.now())


# --- Waiting and its end ---------------------------------------------------------------------------------------------


async def gives_late_grants_back(port: Port, wish: Wish, ticket: Ticket) -> bool:
    return ticket.deadline - port.now() >= ticket.terms.ttl / 3


async def takes_any_grant(port: Port, wish: Wish, ticket: Ticket) -> bool:
    return True


async def renews_a_late_grant(port: Port, wish: Wish, ticket: Ticket) -> bool:
    terms, now = ticket.terms, port.now()
    if ticket.deadline - now >= terms.ttl / 3:
        return True
    request = requests.renew([(ticket.keys, ticket.token, terms.ttl_ms, terms.grace_ms)])
    reply = await exchange(port, request, give_up=now + port.server_timeout)
    ticket.deadline = deadline_of_reply(reply.sent_at, terms.ttl, terms.ttl, terms.drift)
    return requests.renewals(reply)[0] == "renewed"


async def forgets_the_distance(port: Port, wish: Wish, ticket: Ticket) -> bool:
    return await _long_enough(port, replace(wish, apart=0.0), ticket)


class GivesUpWithoutALastTry(SimPort):
    async def wait(self, ticket: Ticket, until: float | None) -> None:
        await super().wait(ticket, until)
        if until is not None and self.now() >= until and ticket.phase is Phase.WAITING:
            raise NotAcquired("too late")


class ReplyOfAnybody(SimPort):
    def own(self, raw: list[Any], request: Request) -> bool:
        return True


def lives_for_ever(position: int | None, ttl: float, wait_left: float | None) -> float:
    return 100_000.0


def never_more(reply: requests.Reply) -> tuple[str, bool]:
    return _freed(reply)[0], False


def never_more_to_skip(reply: requests.Reply) -> list[requests.Answer]:
    answers = _acquire_answers(reply)
    return [
        requests.Busy(a.ahead, a.left, a.holder, more=False, heard=a.heard) if isinstance(a, requests.Busy) else a
        for a in answers
    ]


class ForgetsWhatItReleases(Client):
    async def give(self, holds: Sequence[Hold]) -> None:
        for hold in holds:
            del self.holds[hold.token]
        await super().give(holds)


# --- Several names ---------------------------------------------------------------------------------------------------


def any_use_will_do(value: bytes | None, flags: bytes) -> None:
    del value, flags


class TakesInItsOwnOrder(Client):
    def keys(self) -> list[Keys]:
        return [self.world.locks[name] for name in self.spec.names]


async def any_number_will_do(port: Port, holds: Sequence[Hold]) -> bool:
    return True


async def weak_ones_will_do(port: Port, holds: Sequence[Hold]) -> bool:
    return all(hold.state is State.HELD and port.now() < hold.deadline for hold in holds)


def undoes_the_first(port: Port, tickets: Sequence[Ticket]) -> None:
    _undo(port, tickets[:1])


async def rolls_nothing_back(port: Port, holds: Sequence[Hold]) -> None:
    return


def gives_nothing_up(port: Port, holds: Sequence[Hold]) -> None:
    return


class UndoesWhatItSendsAgain(SimPort):
    async def send(self, request: Request, *, full: bool, timeout: float) -> requests.Reply:
        reply = await super().send(request, full=full, timeout=timeout)
        if request.script.name == "several" and request.unanswered and reply.answers[0][0] == b"late":
            for keys, token in zip(self.client.keys(), request.args[5:], strict=True):
                assert isinstance(token, bytes)
                self.undo(keys, token)
        return reply


class KeepsNothing(SimPort):
    def keep(self, hold: Hold) -> None:
        return


# --- Asking and handing over -----------------------------------------------------------------------------------------


def asks_once(self: Ticket, now: float, *, last_try: bool) -> requests.Item:
    item = _item(self, now, last_try=last_try)
    if self.heard is not None:
        item.ask = b""
    return item


def asks_at_once(self: Ticket, now: float, *, last_try: bool) -> requests.Item:
    item = _item(self, now, last_try=last_try)
    if self.ask_at is not None:
        item.ask = b"1"
    return item


def asks_when_it_polls(asking_for: float, position: int, *, heard: bool) -> float:
    return schedule.FAR_INTERVAL


def asks_again_when_it_polls(asking_for: float, position: int, *, heard: bool) -> float:
    return -asking_for if asking_for < 0 else schedule.FAR_INTERVAL


def heard_in_any_case(self: Ticket, heard: int) -> None:
    self.heard = True


class HidesItsInbox(Client):
    def announce(self) -> None:
        for hold in self.due_holds().announce:
            hold.reachable = True


class AskedForAnything(Client):
    """Takes every request for its own, also one for a lease that is over."""

    def message(self, text: bytes) -> None:
        if text.startswith(b"asked"):
            self.asked.set()
        else:
            super().message(text)


class GoesOnAfterExport(Client):
    def write_down(self, holds: Sequence[Hold], *, goes_on: bool = False) -> None:
        super().write_down(holds, goes_on=True)
        if not goes_on:
            self.lent.clear()


def forgets_strays(namespace: str, holds: Sequence[Hold], latest: int) -> adopt.Exported:
    return replace(_exported(namespace, holds, latest), stray_until=0)


def looks_after_no_poll(namespace: str, holds: Sequence[Hold], _latest: int) -> adopt.Exported:
    return _exported(namespace, holds, 0)


async def settles_nothing(_port: Port, _keys: Keys, _token: bytes, _stray_until: int) -> None:
    return


class TakesBackByMessage(Client):
    """Gives back whatever a message grants to a token that is not held here any more."""

    def wanted(self, words: list[bytes], ticket: Ticket | None, hold: Hold | None) -> bool:
        return (hold is not None or ticket is not None) and super().wanted(words, ticket, hold)


def moved_is_over(self: Ticket) -> bool:
    return self.phase is Phase.WITHDRAWN or (self.hold is not None and self.hold.state in lease_state.ENDED)


class CallsItLost(Client):
    def ended(self, hold: Hold, outcome: str) -> None:
        super().ended(hold, "taken" if outcome == "moved" else outcome)


async def mixes_up_the_answers(
    port: Port, holds: Sequence[Hold], *, give_up: float, terms: Terms | None = None
) -> list[str]:
    outcomes = await _renew(port, holds, give_up=give_up, terms=terms)
    return sorted(outcomes)


_due = schedule.due
_renew_all = renew.renew_all
_renew_request = requests.renew
_message = Ticket._message
_freed = requests.freed
_acquire_answers = requests.acquire_answers
_exported = adopt.exported
_long_enough = acquire._long_enough
_undo = several._undo
_renew = renew.renew
_item = Ticket.item
