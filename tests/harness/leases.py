"""Steering the hub of a client under test: what would be due in seconds or minutes is due now.

So that a test need not wait for a short ttl to pass, which a machine that stands still for a second lets pass sooner
than the test has come to the point: then the lease is lost for another reason than the one that the test is about.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenure.core.ticket import Phase
from tenure.runtime import clock
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    import tenure


def renew_now(lease: tenure.Lease | tenure.AsyncLease) -> None:
    """Have the hub renew a lease at once, not at a third of its ttl; returns before it has done so."""
    lease._hold.next_renew = 0.0
    lease._session.hub.wake()


def age(lease: tenure.Lease | tenure.AsyncLease, seconds: float) -> None:
    """Make a lease as old as if it had been granted so many seconds earlier, here and not on the server.

    The renewal, the warning or the loss that is due by then happens at once, in the background.
    """
    hold = lease._hold
    with hold.mutex:
        hold.granted_at -= seconds
        hold.deadline -= seconds
        hold.next_renew -= seconds
    lease._session.hub.wake()


def age_waiters(locks: tenure.Locks | tenure.AsyncLocks, seconds: float) -> None:
    """Make the waiters of a client as if they had last asked so many seconds earlier: polls that are due are made."""
    hub = locks.session().hub
    tickets = list(hub.tickets.values())
    # The server knows a waiter a little earlier than the waiter has the answer, which sets the time of its next poll.
    wait_until(
        lambda: all(ticket.next_poll is not None or ticket.phase is not Phase.WAITING for ticket in tickets),
        30,
        "the answers that are on their way",
    )
    for ticket in tickets:
        if ticket.next_poll is not None:
            ticket.next_poll -= seconds
    hub.wake()


def behind(locks: tenure.Locks | tenure.AsyncLocks, seconds: float) -> None:
    """Have a client believe that the server's clock is behind, as after a pause between asking and being asked."""
    known = locks.session().state.server_time
    now = clock.now()
    server_ms = known.at(now)
    assert server_ms is not None
    known.learn(now, server_ms - int(seconds * 1000))


def wait_for_inbox(locks: tenure.Locks | tenure.AsyncLocks) -> None:
    """Return once the server can reach the client, which has had a lease before.

    A lease that is granted earlier is announced when it is a second old: one script call more, if the test is slow.
    One that the hub has begun to announce, or to give back, is waited for.
    """
    session = locks.session()
    wait_until(lambda: session.state.inbox and not session.hub._tasks, 30, "the inbox to stand, and the hub to be idle")
