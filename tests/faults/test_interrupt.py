"""Row 9: KeyboardInterrupt at every line of blocking code, and by real signals in a real process."""

from __future__ import annotations

import gc
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import pytest

import tenure
from tenure import AlreadyHeld, Lock, Locks
from tenure.clients.resp import pack
from tests.faults.support import PATIENCE, set_timeouts, traces, wait_clean
from tests.harness.interrupts import count_lines, run_with_interrupt_at_line
from tests.harness.processes import Worker, say
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from tests.harness.servers import Server

Use: TypeAlias = "Callable[[Locks, str], None]"

PACKAGE = Path(tenure.__file__).parent
SIGNALS = 300
MOST_LINES = 3000
UNAWAITED = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
"""What Python says of a procedure that was interrupted before its first step."""
DROPPED = pytest.mark.filterwarnings("ignore:.*a lease was dropped while held:ResourceWarning")
"""A handle that the interrupted code never got to see is given back with a warning, like any other that is dropped."""


def patient(url: str, namespace: str) -> Locks:
    """Locks that do not give up when the machine stands still; their undo has soon made sure for the second time."""
    locks = Locks(url, namespace=namespace)
    set_timeouts(locks, PATIENCE)
    return locks


def take_and_release(locks: Locks, name: str) -> None:
    lease = locks.lock(name, wait=30).acquire()
    lease.release()


def use_block(locks: Locks, name: str) -> None:
    with locks.lock(name, wait=30):
        pass


def use_lease_block(locks: Locks, name: str) -> None:
    with locks.lock(name, wait=30).acquire() as lease:
        lease.check()


def try_and_drop(locks: Locks, name: str) -> None:
    lease = locks.lock(name).try_acquire(30)
    assert lease is not None
    del lease


def strike(use: Use, locks: Locks, name: str, line: int) -> str | None:
    """Interrupt one use at a line; returns where, or None when it ended before. Keeps no frame of it alive."""
    swallowed: list[str] = []

    def note(unraisable: sys.UnraisableHookArgs) -> None:
        if issubclass(unraisable.exc_type, KeyboardInterrupt):
            swallowed.append(unraisable.exc_type.__name__)

    before, sys.unraisablehook = sys.unraisablehook, note
    try:
        run = run_with_interrupt_at_line(lambda: use(locks, name), line, PACKAGE)
        if run.error is not None:
            # Its frames refer to the lease, and are dropped in the end by whoever has caught the error.
            run.error.__context__ = None
            run.error.with_traceback(None)
    finally:
        sys.unraisablehook = before
    # Python prints what a finaliser raises and goes on: an interrupt that strikes one is swallowed.
    seen = [*swallowed, *([] if run.error is None else [type(run.error).__name__])]
    assert seen == ([] if run.where is None else ["KeyboardInterrupt"]), f"{run.where}: {run.error!r}"
    return run.where


@UNAWAITED
@DROPPED
@pytest.mark.parametrize("use", [take_and_release, use_block, use_lease_block, try_and_drop])
def test_row_9_at_every_line(valkey_server: Server, namespace: str, use: Use) -> None:
    with patient(valkey_server.url, namespace) as locks:
        with Locks(valkey_server.url, namespace=namespace) as others:
            probe = others.lock("probe").acquire()
            use(locks, "warm")
            lines = count_lines(lambda: use(locks, "warm"), PACKAGE)
            assert lines > 100, "too few lines: this is not what the package executes"
            struck = 0
            for line in range(1, MOST_LINES):
                where = strike(use, locks, f"line-{line}", line)
                if where is None:
                    break
                struck += 1
                holder = locks.holder("probe")
                assert holder is not None, f"after {where}: somebody else's reply"
                assert holder.fence == probe.fence, f"after {where}: somebody else's reply"
                again = locks.lock(f"line-{line}", wait=30).acquire()
                assert again.valid, f"after {where}"
                again.release()
            assert struck >= lines / 2
            probe.release()
        gc.collect()
        wait_clean(valkey_server, namespace)
        assert locks.statistics().held == 0
    assert not traces(valkey_server, namespace), "something came late"


@UNAWAITED
@DROPPED
def test_row_9_at_every_line_of_a_contended_acquire(valkey_server: Server, namespace: str) -> None:
    """The lock is held when the thread asks, and handed over while it waits."""
    with (
        patient(valkey_server.url, namespace) as locks,
        Locks(valkey_server.url, namespace=namespace) as others,
    ):
        warm_holder = others.lock("warm").acquire()
        assert locks.lock("warm", wait=0.05).try_acquire(0.05) is None, "brings the inbox up"
        warm_holder.release()
        struck = 0
        for line in range(1, MOST_LINES):
            name = f"line-{line}"
            where = None
            # An older holder whose handle is dropped, so that its hub gives it back: on a busy machine perhaps before
            # the thread has asked, and then fewer lines are executed.
            for _ in range(20):
                others.lock(name).acquire()
                where = strike(take_and_release, locks, name, line)
                if where is not None:
                    break
            if where is None:
                break
            struck += 1
            again = locks.lock(name, wait=30).acquire()
            assert again.valid, f"after {where}"
            again.release()
        assert struck > 150
        gc.collect()
        wait_clean(valkey_server, namespace)
    assert not traces(valkey_server, namespace), "something came late"


@UNAWAITED
@DROPPED
def test_row_9_at_every_line_of_a_block_whose_lock_lives_on(valkey_server: Server, namespace: str) -> None:
    """A Lock at the top of a module must not keep a lease that an interrupted block has left behind.

    One place is beyond the reach of Python code: the entry of `__exit__`, before its first `try`.
    """
    code = Lock.__exit__.__code__
    entry = sorted({line for *_, line in code.co_lines() if line})[1]
    kept: list[str] = []
    with patient(valkey_server.url, namespace) as locks:
        use_block(locks, "warm")
        for line in range(1, MOST_LINES):
            lock = locks.lock(f"line-{line}", wait=30)

            def use(_: Locks, __: str, lock: Lock = lock) -> None:
                with lock:
                    pass

            where = strike(use, locks, "", line)
            if where is None:
                break
            try:
                lock.acquire().release()
            except AlreadyHeld:
                kept.append(where)
    assert set(kept) <= {f"{code.co_filename}:{entry}"}
    assert not traces(valkey_server, namespace), "closing gives back even that one"


class Alarm:
    """Turns SIGINT into KeyboardInterrupt while armed; one interrupt disarms it, so that none strikes the handler."""

    def __init__(self) -> None:
        self.armed = False
        self.strikes = 0
        signal.signal(signal.SIGINT, self.ring)

    def ring(self, _: int, __: FrameType | None) -> None:
        if self.armed:
            self.armed = False
            self.strikes += 1
            raise KeyboardInterrupt


def take_turns_in_a_storm(url: str, namespace: str, enough: int) -> None:
    """Worker: takes and gives back under signals until enough have struck, then shows that all is well."""
    import warnings  # noqa: PLC0415

    warnings.simplefilter("ignore", ResourceWarning)
    alarm = Alarm()
    turns = 0
    with patient(url, namespace) as locks:
        # Interrupted while it imports, the interpreter can leave a lock of its own locked for ever.
        with Locks(url, namespace=namespace) as other, other.lock("warm"):
            assert locks.lock("warm").try_acquire(0.05) is None
        say("ready")
        while alarm.strikes < enough:
            try:
                # A busy machine might not get through a single turn between two signals: one is undisturbed.
                with locks.lock("storm", wait=30):
                    turns += 1
                alarm.armed = True
                # Not for ever: an interrupt that strikes a finaliser is swallowed.
                for _ in range(100):
                    with locks.lock("storm", wait=30):
                        turns += 1
            except KeyboardInterrupt:
                continue
        alarm.armed = False
        for _ in range(20):
            with locks.lock("storm", wait=30) as lease:
                holder = locks.holder("storm")
                assert holder is not None
                assert holder.fence == lease.fence
        say("turns", turns, "held", locks.statistics().held)
        sys.stdin.readline()
    say("closed")


def pack_in_a_storm(enough: int) -> None:
    """Worker: packs commands with numbers in them until a timer has interrupted it so often, 2,000 times a second."""
    strikes = 0

    def ring(_: int, __: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGALRM, ring)
    while strikes < enough:
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.0005)
            while True:
                pack(b"EVALSHA", b"0" * 40, 4, 123_456_789, 30_000, 17)
        except KeyboardInterrupt:
            strikes += 1
    say("strikes", strikes)


def test_row_9_a_signal_does_not_crash_the_packing_of_numbers() -> None:
    """The client library's packer takes the repr of a number, which looks for signals, and then crashed."""
    with Worker.start(pack_in_a_storm, 500) as worker:
        assert worker.wait_for("strikes") == "strikes 500"
        assert worker.wait() == 0, worker.errors()


@pytest.mark.parametrize("rivals", [1, 2])
def test_row_9_sigint_storm_on_a_process(valkey_server: Server, namespace: str, rivals: int) -> None:
    """Real signals also strike inside system calls; with a rival the lock is contended."""
    workers = [Worker.start(take_turns_in_a_storm, valkey_server.url, namespace, SIGNALS) for _ in range(rivals)]
    try:
        for worker in workers:
            worker.wait_for("ready")
        give_up = time.monotonic() + 60
        finished: list[str] = []

        def storm_is_over() -> bool:
            for worker in workers:
                worker.signal(signal.SIGINT)
            return any(queued(worker) for worker in workers) or time.monotonic() > give_up

        wait_until(storm_is_over, 60, "the storm to end")
        for worker in workers:
            while not queued(worker) and time.monotonic() < give_up:
                worker.signal(signal.SIGINT)
                time.sleep(0.002)
            finished.append(worker.wait_for("turns", 30))
        assert [line.split()[-1] for line in finished] == ["0"] * rivals, "a lease that nobody has is still renewed"
        assert all(int(line.split()[1]) > SIGNALS / 4 for line in finished), f"hardly any turn was taken: {finished}"
        wait_clean(valkey_server, namespace)
        for worker in workers:
            worker.write_line()
            worker.wait_for("closed")
            assert worker.wait() == 0, worker.errors()
    finally:
        for worker in workers:
            worker.close()


def queued(worker: Worker) -> bool:
    """Whether a line is ready to be read."""
    import select  # noqa: PLC0415

    stdout = worker._process.stdout
    return bool(stdout is not None and select.select([stdout], [], [], 0)[0])
