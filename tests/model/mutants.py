"""The sentences of the protocol (design, section 5), and for each the mutants that leave it out.

A mutant names the metric that must see it and the scenario in which it is looked for; the same scenario is clean with
the core as it is. A sentence without a mutant says why.
"""

from __future__ import annotations

from tests.model import mutants_core as core
from tests.model import mutants_server as server
from tests.model import mutants_table
from tests.model.mutant import Mutant
from tests.model.scenario import no_margin

LUA = "seen by the tests of the Lua files against this model on real servers"

SENTENCES: dict[str, str] = {
    # The head of the section.
    "time": "All decisions on server TIME, read first in the script",
    "alive": "expiries set by PXAT; held while now <= end",
    # acquire
    "again": "already holder: the same grant again (same fence), expiry moved to max(present, now + ttl + grace)",
    "place": "already queued: keeps its place",
    "first": "free and nobody ahead: grant; else queue",
    "one request": "One request when uncontended; grant replies carry remaining ms, server time, first fence, count",
    "own": "The caller's own entry is granted in the reply, never by a message",
    "subscribe": "A token whose inbox has no subscriber is not queued",
    "score": "A re-acquire that presents its score gets its place back",
    "try": "wait=0 runs advance, never overtakes, leaves no entry",
    "last try": "a waiter's last try is the same call, and a win there is a win",
    # not-after, tokens
    "not-after": "acquire and renew carry a server time after which they are refused without effect",
    "undo": "Undo after an unknown outcome = withdraw at once, and again after not-after",
    "tokens end": "once a release or withdraw was sent for a token it never acquires again",
    # advance
    "advance": "advance inside acquire, release, withdraw; also when the caller's own lease is already gone",
    "expired": "drop expired heads first",
    "unreached": "nobody reached: undo and go on; PUBLISH counts pattern subscribers",
    "refused": "refused (error) counts as reached, and the reply says so",
    "pops": "at most 100 pops per script, then the reply says more and the caller goes on",
    "hand over": "release hands the lock over: one request, one message, no herd, strict arrival order",
    "entry life": "a queue entry lives min(wait budget, 3 poll intervals); each poll refreshes it",
    # release, renew, withdraw, break
    "release": "release: compare, delete, advance; never touches another's",
    "renew": "renew: max(present, now + ttl + grace), never re-creates, answers per token",
    "shorter": "asking for less shortens only the local deadline",
    "one in flight": "one renew in flight per lease",
    "withdraw": "withdraw: leave the queue; if already granted, release",
    "cancelled": "what a cancelled, timed-out or interrupted acquire always ends with",
    "break": "break marks the value revoked: renew answers so, the holder is told, the key goes on its word",
    "fence": "fence = max(stored + 1, server us), stored in the same script; a plain counter repeats after a flush",
    "clock back": "score = max(last + 1, server us): a clock step back lets nobody in front",
    "echo": "replies echo the request: a mismatch means a desynchronised connection, outcome unknown",
    # waiting
    "message": "the message is the grant; it may overtake the acquire's reply: keep it until that reply",
    "newer": "valid only if its server time is later than the last reply's",
    "epoch": "and neither the inbox nor the command connection was re-established since",
    "given back": "a grant is given back only if its token neither waits nor is held",
    "polls": "polls repair lost messages; all waiters are polled after each re-subscription",
    # deadline
    "reply deadline": "reply: send instant + min(ttl, remaining) - (drift * ttl + 2 ms)",
    "message deadline": "message: min(L0 + (Tgrant - T0), receive instant) + ttl - margin of ttl + Tgrant - T0",
    "renewed first": "a grant with too little validity is renewed first, given back only if that is late too",
    # rules of section 6 that the explorer sees as well
    "renewals": "one failure schedules the next; no answer until the deadline is loss then, by the local timer",
    # Not here.
    "publish under pcall": "publish it under pcall",
    "keys": "for an exclusive lease renew declares K only; all keys declared, each with a TTL",
    "force": "break with force deletes at once and is an exception to section 7",
    **mutants_table.SENTENCES,
}

WITHOUT: dict[str, str] = {
    "time": LUA,
    "one request": "an equality, not a hole: the cost of the scenarios without faults checks it",
    "publish under pcall": LUA,
    "keys": LUA,
    "force": "an exception by design: the scenario 'force' checks what must hold around it",
}


M = Mutant
TICKET, HOLD = "tenure.core.ticket.Ticket", "tenure.core.lease_state.Hold"
MESSAGE, MESSAGE_DEADLINE = f"{TICKET}._message", "tenure.core.ticket.deadline_of_message"
LONG_ENOUGH = "tenure.core.acquire._long_enough"

MUTANTS: dict[str, Mutant] = {
    "a key dies in its last millisecond": M("alive", "overlap", "to the last instant", server.EndsTooEarly),
    "lost only after the deadline": M(
        "alive", "told", "to the last instant", patch=("tenure.core.schedule.due", core.due_a_moment_later)
    ),
    # acquire
    "a retry gets another fence": M("again", "again", "lost replies", server.RetryGetsAnotherFence),
    "a retry leaves the end": M("again", "overlap", "retry moves the end", server.RetryLeavesTheEnd),
    "a retry takes a new token": M("again", "orphan", "lost replies", port=core.RetriesWithANewToken),
    "a retry loses its place": M("place", "again", "lost replies", server.RetryLosesItsPlace),
    "the last comes first": M("first", "order", "fifo of three", server.LastComesFirst),
    "own entry granted by message": M("own", "token", "holder dies", server.OwnEntryByMessage),
    "the deaf are queued": M("subscribe", "orphan", "subscribe first", server.DeafAreQueued),
    "the score is ignored": M("score", "order", "place comes back", server.PlaceIsForgotten),
    "a try overtakes": M("try", "order", "try beside a waiter", server.TryOvertakes),
    "a try does not advance": M("try", "orphan", "try and a dead holder", server.TryDoesNotAdvance),
    "a try leaves an entry": M("try", "left", "last try", server.TryLeavesAnEntry),
    "no last try": M("last try", "blocked", "last try", port=core.GivesUpWithoutALastTry),
    # not-after, tokens
    "not-after ignored": M("not-after", "left", "late acquire", server.NotAfterIgnored),
    "not-after not sent": M(
        "not-after",
        "left",
        "late acquire",
        patch=("tenure.core.server_time.ServerTime.not_after", core.no_not_after),
    ),
    "a renewal past the deadline": M(
        "not-after", "revive", "late renewal", patch=("tenure.core.requests.renew", core.renewal_without_limit)
    ),
    "withdrawn once": M("undo", "left", "late acquire", patch=("tenure.core.release.undo", core.withdraw_once)),
    "a stray acquire is forgotten": M(
        "undo", "left", "stuck acquire", patch=(f"{TICKET}.strayed", core.remembers_no_stray)
    ),
    "a token for all tries": M("tokens end", "token", "waiter wakes too late", client=core.OneTokenPerTurn),
    "a token for a client": M("tokens end", "token", "two turns", client=core.OneTokenPerClient),
    "a poll's late grant is kept": M(
        "tokens end", "left", "poll overtaken by release", patch=(f"{TICKET}._given_again", core.keeps_what_comes_late)
    ),
    "a poll undoes a release": M(
        "given back",
        "overlap",
        "poll overtaken by release",
        patch=(f"{TICKET}._given_again", core.over_while_releasing),
    ),
    # advance
    "nothing is handed over": M("advance", "orphan", "two clients", server.NothingIsHandedOver),
    "gone hands nothing over": M("advance", "orphan", "key deleted, release", server.GoneHandsNothingOver),
    "expired heads are served": M("expired", "orphan", "waiter pauses", server.ExpiredHeadsAreServed),
    "unreached counts as reached": M("unreached", "orphan", "waiter dies", server.UnreachedCountAsReached),
    "pattern subscribers count": M("unreached", "orphan", "pattern subscriber", server.PatternSubscribersCount),
    "refused counts as unreached": M("refused", "orphan", "publishing refused", server.RefusedCountAsUnreached),
    "any number of pops": M("pops", "cost", "crowd of dead", patch=("tests.model.server_model.POPS", 10**9)),
    "a release does not go on": M(
        "pops", "orphan", "crowd before a waiter", patch=("tenure.core.requests.freed", core.never_more)
    ),
    "a try does not go on": M(
        "pops", "blocked", "crowd of dead", patch=("tenure.core.requests.acquire_answers", core.never_more_to_skip)
    ),
    "the message is only a hint": M("hand over", "cost", "two clients", patch=(MESSAGE, core.message_is_only_a_hint)),
    "an entry lives for ever": M(
        "entry life", "orphan", "waiter pauses", patch=("tenure.core.schedule.entry_life", core.lives_for_ever)
    ),
    "a poll refreshes nothing": M("entry life", "orphan", "long wait", server.RetryDoesNotRefresh),
    # release, renew, withdraw, break
    "anybody releases": M("release", "foreign", "holder pauses", server.AnybodyReleases),
    "renew creates": M("renew", "revive", "key deleted, renewal", server.RenewCreates),
    "renew shortens": M("shorter", "overlap", "shorter ttl", server.RenewShortens),
    "renewals overtake each other": M(
        "one in flight", "cost", "lost renewals", patch=(f"{HOLD}.begin_renewal", core.renews_all_the_time)
    ),
    "withdraw keeps the grant": M("withdraw", "left", "cancel two", server.WithdrawKeepsTheGrant),
    "withdraw keeps the place": M("withdraw", "left", "cancel two", server.WithdrawKeepsThePlace),
    "a cancelled acquire is not undone": M("cancelled", "left", "cancel two", port=core.UndoesNothing),
    "a revoked lease is renewed": M("break", "revive", "broken, message lost", server.RenewKeepsTheRevoked),
    "break tells nobody": M("break", "told", "broken", server.BreakTellsNobody),
    "a revoked key stays": M("break", "orphan", "broken", client=core.KeepsRevokedKeys),
    "a fence that counts": M("fence", "fence", "flush", server.FenceCounts),
    "a fence by the clock alone": M("fence", "fence", "clock steps far back", server.FenceByTheClockAlone),
    "a place by the clock alone": M("clock back", "order", "clock steps back", server.PlaceByTheClockAlone),
    "anybody's reply": M("echo", "overlap", "desynchronised", port=core.ReplyOfAnybody),
    # waiting
    "an early message is dropped": M(
        "message", "orphan", "message overtakes reply", patch=(MESSAGE, core.early_message_dropped)
    ),
    "an older message counts": M("newer", "overlap", "force", patch=(MESSAGE, core.message_older_than_the_reply)),
    "a message of any epoch counts": M("epoch", "overlap", "failover", patch=(MESSAGE, core.message_of_any_epoch)),
    "an unwanted grant is kept": M("given back", "left", "doubled acquire", client=core.KeepsUnwantedGrants),
    "a grant is given back under its release": M(
        "given back", "overlap", "poll overtaken by release", client=core.ForgetsWhatItReleases
    ),
    "a held grant is given back": M("given back", "overlap", "doubled message", client=core.ForgetsWhatItHolds),
    "no polls": M("polls", "orphan", "lost message", polls=False),
    "no polls after subscribing": M("polls", "orphan", "skipped though alive", client=core.DoesNotAskAgain),
    # deadline
    "counted from the reply": M("reply deadline", "overlap", "slow reply", port=core.CountsFromTheReply),
    "no margin": M("reply deadline", "overlap", "slow clock", patch=("tenure.core.lease_state.margin", no_margin)),
    "counted from the message": M(
        "message deadline", "overlap", "message slow", patch=(MESSAGE_DEADLINE, core.from_arrival)
    ),
    "counted from the last reply": M(
        "message deadline", "overlap", "message, clock steps", patch=(MESSAGE_DEADLINE, core.from_last_reply)
    ),
    "margin of the ttl alone": M(
        "message deadline",
        "overlap",
        "message deadline, slow clock",
        patch=(MESSAGE_DEADLINE, core.margin_of_the_ttl_alone),
    ),
    "late grants are given back": M(
        "renewed first", "validity", "late grant", patch=(LONG_ENOUGH, core.gives_late_grants_back)
    ),
    "any grant is taken": M("renewed first", "validity", "late grant", patch=(LONG_ENOUGH, core.takes_any_grant)),
    "a late grant keeps its fence": M(
        "renewed first", "fence", "waiter wakes late", patch=(LONG_ENOUGH, core.renews_a_late_grant)
    ),
    # renewals
    "renewed without an answer": M(
        "renewals", "overlap", "holder cut off", patch=("tenure.core.renew.renew_all", core.trusting_renew_all)
    ),
    "one failure ends renewal": M(
        "renewals", "lost", "slow renewals", patch=("tenure.core.renew._try_again", core.never_tries_again)
    ),
    "a lease comes back": M("renewals", "revive", "holder wakes late", patch=(f"{HOLD}.renewed", core.revived)),
    **mutants_table.MUTANTS,
}
