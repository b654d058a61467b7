"""Events: their levels, words and fields in the log, and how hooks and callbacks are run."""

from __future__ import annotations

import logging
import threading
from dataclasses import fields
from typing import TYPE_CHECKING, Any, cast

import pytest

import tenure
from tenure import events as all_events
from tenure.core.keys import keys_of, short_id
from tenure.core.lease_state import Hold
from tenure.instrument.logs import log_event
from tenure.options import Terms
from tenure.runtime.callbacks import THREADS, Callbacks
from tenure.runtime.notifier import Notifier
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from tenure.errors import LossReason

WHO: tuple[str, str, int] = ("n", "0a1b2c3d", 7)
RECORDS: list[tuple[tenure.Event, int, str]] = [
    (tenure.GrantedEvent(*WHO, waited=0.5), logging.DEBUG, "lock 'n' granted"),
    (tenure.WaitedEvent(*WHO, waited=0.5, granted=True), logging.DEBUG, "lock 'n' granted after waiting 0.50 s"),
    (tenure.WaitedEvent(*WHO, waited=0.5, granted=False), logging.DEBUG, "lock 'n' not acquired after waiting 0.50 s"),
    (tenure.RenewedEvent(*WHO, remaining=1.0), logging.DEBUG, "lock 'n' renewed"),
    (tenure.RenewFailedEvent(*WHO, remaining=1.0), logging.WARNING, "could not be renewed; 1.00 s are left"),
    (tenure.OverheldEvent(*WHO, held_for=3.0, over=1.0), logging.WARNING, "held too long: 3.00 s, 1.00 s more"),
    (tenure.LostEvent(*WHO, reason="expired", held_for=3.0), logging.ERROR, "was lost: its deadline passed"),
    (tenure.LostEvent(*WHO, reason="revoked", held_for=3.0), logging.ERROR, "was lost: an operator broke it"),
    (tenure.LostEvent(*WHO, reason="closed", held_for=3.0), logging.INFO, "was lost: its Locks object was closed"),
    (tenure.TamperedEvent(*WHO, reason="deleted", held_for=3.0), logging.ERROR, "tampered with: its key was deleted"),
    (tenure.TamperedEvent(*WHO, reason="taken", held_for=3.0), logging.ERROR, "tampered with: its key was overwritten"),
    (
        tenure.AskedEvent(*WHO, host="h", pid=5, program="job.py", identity=None, info=None),
        logging.INFO,
        "lock 'n' was asked for by job.py (pid 5 on h)",
    ),
    (tenure.MovedEvent(*WHO, held_for=3.0), logging.INFO, "lock 'n' was handed over after 3.00 s"),
    (tenure.ReleasedEvent(*WHO, held_for=3.0), logging.DEBUG, "lock 'n' released"),
    (tenure.UnansweredEvent(*WHO, request="renew"), logging.DEBUG, "the renew had no answer"),
]


def a_hold(reason: LossReason | None = None, *, waited: float = 0.0) -> Hold:
    terms = Terms(ttl=30, grace=0.3, drift=0.01, renew=True, max_hold=None, warn_after=5)
    hold = Hold(
        keys_of("ns", "n"), b"t" * 44, 7, terms, granted_at=0, deadline=30, waited=waited, mutex=threading.Lock()
    )
    if reason is not None:
        assert hold.lose(reason, 3.0)
    return hold


@pytest.mark.parametrize(("event", "level", "words"), RECORDS)
def test_an_event_is_logged_with_its_fields(
    event: tenure.Event, level: int, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "tenure")
    log_event(event)
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("tenure", level)
    assert words in record.getMessage()
    extra = {name: value for name, value in vars(record).items() if name.startswith("tenure_")}
    kind = type(event).__name__.removesuffix("Event").lower()
    assert extra == {f"tenure_{f.name}": getattr(event, f.name) for f in fields(event)} | {"tenure_event": kind}


def test_every_event_has_a_record() -> None:
    mine = {v for v in vars(all_events).values() if isinstance(v, type) and issubclass(v, tenure.Event)}
    assert mine == {type(event) for event, _, _ in RECORDS} | {tenure.Event}


def test_events_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        cast("Any", RECORDS[0][0]).name = "other"


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("expired", tenure.LostEvent),
        ("revoked", tenure.LostEvent),
        ("closed", tenure.LostEvent),
        ("forked", tenure.LostEvent),
        ("deleted", tenure.TamperedEvent),
        ("taken", tenure.TamperedEvent),
    ],
)
def test_only_a_key_that_was_touched_by_others_is_tampering(reason: LossReason, kind: type[tenure.LostEvent]) -> None:
    told: list[tenure.Event] = []
    notifier = Notifier([told.append])
    notifier.lost(a_hold(reason))
    (event,) = wait_until(lambda: told)
    assert type(event) is kind
    assert event == kind("n", short_id(b"t" * 44), 7, reason=reason, held_for=3.0)
    assert notifier.lost_count == 1


def test_the_token_shows_only_as_a_hash() -> None:
    assert len(short_id(b"t" * 44)) == 8
    assert short_id(b"t" * 44) != short_id(b"u" * 44)
    assert "t" * 8 not in short_id(b"t" * 44)


def test_without_a_hook_or_debugging_a_grant_makes_no_record(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tenure")
    notifier = Notifier([])
    notifier.granted(a_hold(waited=1.0))
    notifier.gave_up_waiting("n", 1.0)
    assert not caplog.records
    assert (notifier.granted_count, notifier.gave_up) == (1, 1)


def test_a_grant_after_waiting_tells_both() -> None:
    told: list[tenure.Event] = []
    Notifier([told.append]).granted(a_hold(waited=1.0))
    assert [type(event) for event in told] == [tenure.WaitedEvent, tenure.GrantedEvent]


class TestCallbacks:
    def test_run_in_order_on_threads_that_end(self) -> None:
        callbacks, done = Callbacks(), list[int]()
        gate = threading.Event()

        def first() -> None:
            assert gate.wait(30)

        for _ in range(THREADS):
            callbacks.submit(first)
        for number in range(10):
            callbacks.submit(lambda number=number: done.append(number))
        assert callbacks._threads == THREADS
        gate.set()
        wait_until(lambda: len(done) == 10 and callbacks._threads == 0)
        assert sorted(done) == list(range(10))

    def test_go_on_after_one_that_raises(self, caplog: pytest.LogCaptureFixture) -> None:
        callbacks, done = Callbacks(), threading.Event()
        callbacks.submit(lambda: 1 / 0)
        callbacks.submit(done.set)
        assert done.wait(30)
        wait_until(lambda: callbacks._threads == 0)
        assert "ZeroDivisionError" in caplog.text

    def test_that_block_do_not_block_the_others(self) -> None:
        callbacks, done, gate = Callbacks(), threading.Event(), threading.Event()
        callbacks.submit(lambda: gate.wait(30))
        callbacks.submit(done.set)
        assert done.wait(30)
        gate.set()
        wait_until(lambda: callbacks._threads == 0)
