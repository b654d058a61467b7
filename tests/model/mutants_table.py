"""Sentences on all that is not one exclusive lock, and the mutants that leave them out."""

from __future__ import annotations

from tests.model import mutants_core as core
from tests.model import mutants_modes as server
from tests.model.mutant import Mutant

SENTENCES: dict[str, str] = {
    # Readers and writers.
    "arrival": "arrival order decides between readers and writers: a writer that waits stops later readers",
    "exclusive": "many shared holders or one exclusive one",
    "together": "all readers at the head are admitted at once; those behind a waiter that was served as well",
    "marker": "K ends with the last of its holders: those who join or renew move its end, never back",
    "settle": "whoever leaves takes nobody else along; K is deleted with the last one",
    "leaving": "leaving a shared lock hands it over; so does a writer that gives up its place",
    "dead writer": "a waiter without room that cannot be reached is passed over",
    "hygiene": "those who have died leave no place and no record behind",
    "one fence": "shared leases that are admitted while others are held share one fence; the first one's rises",
    # Semaphores.
    "limit": "limit leases at a time; another limit is refused",
    "own expiry": "one expiry per lease: a dead holder frees its own place, and only that",
    # Several names.
    "all or nothing": "several names: all or nothing, in one request when all are free, passing nobody",
    "one order": "all take them in one order, so that nobody waits in a circle",
    "early one": "an early one that is lost while a later one is awaited: all are given back and taken anew",
    "rollback": "whatever ends the call, nothing of it is left",
    # Asking.
    "ask": "ask_after: from then on each request asks whoever holds, in time, until they release",
    "heard": "the answer says whether it was heard",
    # once
    "apart": "two grants of once are at_least apart, whatever became of the first one; a try without a grant is none",
    # Handing over.
    "adopt": "one compare-and-set: new token, same fence, fresh expiry; idempotent",
    "moved": "the old handle ends as moved, not lost",
    "handed": "what was handed over is not given back, however late a message or a poll tells of its grant",
    "mixed": "one request renews leases of any kind, and each gets its own answer",
}

M = Mutant
NEXT_ASK = "tenure.core.schedule.next_ask"
SEVERAL, TICKET = "tenure.core.several", "tenure.core.ticket.Ticket"

MUTANTS: dict[str, M] = {
    "a reader overtakes": M("arrival", "order", "readers and writers in turn", server.ReaderOvertakes),
    "a writer beside readers": M("exclusive", "overlap", "two readers and a writer", server.WriterBesideReaders),
    "one reader at a time": M("together", "orphan", "readers at the head", server.OneReaderAtATime),
    "the next in line is forgotten": M(
        "together", "orphan", "writer dies before readers", server.NextInLineIsForgotten
    ),
    "a joiner leaves the end": M("marker", "overlap", "a reader joins late", server.JoinerLeavesTheEnd),
    "a renewal leaves the marker": M("marker", "overlap", "readers keep their leases", server.RenewalLeavesTheMarker),
    "the last renewal counts": M("marker", "overlap", "a reader joins for a moment", server.LastRenewalCounts),
    "leaving ends all": M("settle", "overlap", "reader beside reader", server.SettleDeletes),
    "leaving keeps the end": M("settle", "orphan", "reader dies", server.SettleLeavesTheEnd),
    "the last one leaves the key": M("settle", "orphan", "two readers and a writer", server.LastOneLeavesTheKey),
    "leaving takes another along": M("settle", "foreign", "two readers and a writer", server.AnybodyLeaves),
    "leaving hands nothing over": M("leaving", "orphan", "two readers and a writer", server.LeavingHandsNothingOver),
    "giving up hands nothing over": M("leaving", "orphan", "writer gives up", server.NextInLineIsForgotten),
    "giving up late hands nothing over": M("leaving", "orphan", "writer gives up late", server.LateLastTryIsNone),
    "a dead writer stops readers": M(
        "dead writer", "orphan", "writer dies among readers", server.DeadWriterStopsReaders
    ),
    "cleaning up takes the living": M("hygiene", "overlap", "reader beside reader", server.PurgeTakesTheLiving),
    "records are left": M("hygiene", "left", "two readers and a writer", server.RecordsAreLeft),
    "a joiner gets another fence": M("one fence", "fence", "reader beside reader", server.JoinerGetsAnotherFence),
    "the first reader's fence stays": M("one fence", "fence", "readers at the head", server.FirstReaderKeepsTheFence),
    "places share a fence": M("one fence", "fence", "semaphore of two", server.PlacesShareAFence),
    "any number": M("limit", "overlap", "semaphore of two", server.LimitIsIgnored),
    "the caller's limit": M(
        "limit",
        "overlap",
        "two limits",
        server.LimitOfTheCaller,
        patch=("tests.model.server_model.other_use", core.any_use_will_do),
    ),
    "the dead take places": M("own expiry", "late", "semaphore, one dies", server.DeadTakePlaces),
    "places end together": M("own expiry", "late", "semaphore, one dies", server.PlacesEndTogether),
    # Several names.
    "some of several": M("all or nothing", "partial", "one of two names is held", server.SomeOfSeveral),
    "several overtake": M("all or nothing", "order", "several overtake", server.SeveralOvertake),
    "several are taken twice": M("all or nothing", "again", "two names, stuck", server.SeveralAreTakenTwice),
    "several come late": M("all or nothing", "left", "two names, stuck", server.SeveralIgnoreNotAfter),
    "in the caller's order": M("one order", "blocked", "two names, two orders", client=core.TakesInItsOwnOrder),
    "a lost one will do": M(
        "early one", "partial", "the early one ends", patch=(f"{SEVERAL}._long_enough", core.any_number_will_do)
    ),
    "a weak one will do": M(
        "early one", "validity", "the early one is weak", patch=(f"{SEVERAL}._long_enough", core.weak_ones_will_do)
    ),
    "the early ones are not kept": M("early one", "cost", "the early one is kept", port=core.KeepsNothing),
    "one is undone": M("rollback", "left", "two names, stuck", patch=(f"{SEVERAL}._undo", core.undoes_the_first)),
    "undone, and sent again": M("rollback", "token", "two names, refused as late", port=core.UndoesWhatItSendsAgain),
    "nothing is rolled back": M(
        "rollback", "blocked", "two names, one try", patch=(f"{SEVERAL}._roll_back", core.rolls_nothing_back)
    ),
    "nothing is given up": M(
        "rollback", "blocked", "two names, cancelled", patch=(f"{SEVERAL}._give_up", core.gives_nothing_up)
    ),
    "several, counted from the reply": M("rollback", "overlap", "two names, slow reply", port=core.CountsFromTheReply),
    # Asking.
    "nobody is asked": M("ask", "late", "asked in time", server.NobodyIsAsked),
    "one holder is asked": M("ask", "late", "readers are asked", server.OneHolderIsAsked),
    "asked once": M("ask", "late", "asked to release", patch=(f"{TICKET}.item", core.asks_once)),
    "asked at once": M("ask", "early", "asked in time", patch=(f"{TICKET}.item", core.asks_at_once)),
    "asked at the next poll": M("ask", "late", "asked in time", patch=(NEXT_ASK, core.asks_when_it_polls)),
    "asked again when it polls": M("ask", "late", "asked to release", patch=(NEXT_ASK, core.asks_again_when_it_polls)),
    "the next one is not asked": M("ask", "late", "the next holder is asked", patch=(f"{TICKET}.item", core.asks_once)),
    "the asked hide": M("ask", "late", "asked before its inbox", client=core.HidesItsInbox),
    "heard in any case": M(
        "heard", "heard", "asked by one who does not wait", patch=(f"{TICKET}.asked", core.heard_in_any_case)
    ),
    "heard, and not told so": M("heard", "heard", "one who does not listen", server.HeardByAnybody),
    # Once.
    "again without a grant": M("apart", "apart", "once, beside a lock", server.AgainWithoutAGrant),
    "again at once": M("apart", "apart", "once in a while", server.NotAgainIsForgotten),
    "a retry waits for itself": M("apart", "validity", "once in a while", server.RetryIsNotAgain),
    "a late grant forgets the distance": M(
        "apart", "apart", "once, and a pause", patch=("tenure.core.acquire._long_enough", core.forgets_the_distance)
    ),
    "counted from the end": M("apart", "apart", "once in a while", server.DistanceFromTheEnd),
    # Handing over.
    "the old token stays": M("adopt", "twice", "exported and adopted", server.OldTokenStays),
    "the old member stays": M("adopt", "twice", "a reader is handed over", server.OldMemberStays),
    "adopted anew": M("adopt", "fence", "exported and adopted", server.AdoptedAnew),
    "adopted to the old end": M("adopt", "overlap", "adopted in time", server.AdoptedToTheOldEnd),
    "adopted once": M("adopt", "again", "exported and adopted", server.AdoptedOnce),
    "adopted by anybody": M("adopt", "overlap", "two heirs", server.AdoptedByAnybody),
    "adopted late": M("adopt", "orphan", "adoption is cancelled", server.AdoptionIgnoresNotAfter),
    "an adoption is not undone": M("adopt", "orphan", "adoption is cancelled", port=core.UndoesNothing),
    "what is on its way is forgotten": M(
        "adopt",
        "orphan",
        "handed over before its first request arrives",
        patch=("tenure.core.adopt.exported", core.forgets_strays),
    ),
    "export goes on": M("moved", "twice", "exported and adopted", client=core.GoesOnAfterExport),
    "moved is taken": M("moved", "lost", "written down", server.MovedIsTaken),
    "moved is lost": M("moved", "lost", "written down", client=core.CallsItLost),
    "taken back by its message": M("handed", "foreign", "handed over at once", client=core.TakesBackByMessage),
    "taken back by its poll": M(
        "handed", "foreign", "handed over at once", patch=(f"{TICKET}._over", core.moved_is_over)
    ),
    "nobody looks after the poll": M(
        "handed",
        "left",
        "handed over at once, a poll is stuck",
        patch=("tenure.core.adopt.exported", core.looks_after_no_poll),
    ),
    "given back, and forgotten": M(
        "handed",
        "left",
        "given back by another process, a poll is stuck",
        patch=("tenure.core.release.settle", core.settles_nothing),
    ),
    "answers are mixed up": M(
        "mixed", "left", "one of two ends", patch=("tenure.core.renew.renew", core.mixes_up_the_answers)
    ),
}
