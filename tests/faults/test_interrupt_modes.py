"""Row 9 for all but one exclusive lock: KeyboardInterrupt at every line, and nothing is left that nobody owns."""

from __future__ import annotations

import contextlib
import gc
from typing import TYPE_CHECKING, TypeAlias

import pytest

from tenure import LeaseLost, Locks
from tests.faults.support import traces
from tests.faults.test_interrupt import DROPPED, MOST_LINES, PACKAGE, UNAWAITED, patient, strike
from tests.harness.interrupts import count_lines
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tenure import Lock
    from tests.harness.servers import Server

Describe: TypeAlias = "Callable[[Locks, str], Lock]"


def several(locks: Locks, name: str) -> Lock:
    return locks.lock(f"{name}-b", f"{name}-a", f"{name}-c", wait=30, ttl=30)


def shared(locks: Locks, name: str) -> Lock:
    return locks.lock(f"{name}-b", wait=30, ttl=30, shared=True)


def semaphore(locks: Locks, name: str) -> Lock:
    return locks.semaphore(f"{name}-b", 1, wait=30, ttl=30)


def left(server: Server, namespace: str) -> list[bytes]:
    """What is there besides fences, and besides the notes that a lease was adopted, which end with its ttl."""
    return [key for key in traces(server, namespace) if b":moved:" not in key]


def expect_clean(locks: Locks, server: Server, namespace: str) -> None:
    gc.collect()
    wait_until(lambda: not left(server, namespace), 30, f"nothing left, but {left(server, namespace)}")
    wait_until(lambda: not locks.statistics().held, 30, "nothing to be renewed")


@UNAWAITED
@DROPPED
@pytest.mark.parametrize("describe", [several, shared, semaphore])
@pytest.mark.parametrize("block", [False, True], ids=["by hand", "block"])
def test_at_every_line_of_free_locks(valkey_server: Server, namespace: str, describe: Describe, *, block: bool) -> None:
    def use(locks: Locks, name: str) -> None:
        if block:
            with describe(locks, name):
                pass
        else:
            describe(locks, name).acquire().release()

    with patient(valkey_server.url, namespace) as locks:
        with Locks(valkey_server.url, namespace=namespace) as others:
            probe = others.lock("probe").acquire()
            use(locks, "warm")
            lines = count_lines(lambda: use(locks, "warm"), PACKAGE)
            assert lines > 100, "too few lines: this is not what the package executes"
            struck = 0
            # Many lines are the same for each of several names: by hand the odd ones are struck, in a block the even.
            step = 2 if describe is several else 1
            for line in range(2 if block else 1, MOST_LINES, step):
                where = strike(use, locks, f"line-{line}", line)
                if where is None:
                    break
                struck += 1
                holder = locks.holder("probe")
                assert holder is not None, f"after {where}: somebody else's reply"
                assert holder.fence == probe.fence, f"after {where}: somebody else's reply"
                again = describe(locks, f"line-{line}").acquire()
                assert again.valid, f"after {where}"
                again.release()
            assert struck >= lines / step / 2
            probe.release()
        expect_clean(locks, valkey_server, namespace)
    assert not left(valkey_server, namespace), "something came late"


@UNAWAITED
@DROPPED
@pytest.mark.parametrize("describe", [several, shared, semaphore])
def test_at_every_line_of_locks_that_are_handed_over(valkey_server: Server, namespace: str, describe: Describe) -> None:
    """One of them is held when the thread asks, and handed over while it waits."""

    def use(locks: Locks, name: str) -> None:
        describe(locks, name).acquire().release()

    with patient(valkey_server.url, namespace) as locks, Locks(valkey_server.url, namespace=namespace) as others:
        warm_holder = others.lock("warm").acquire()
        assert locks.lock("warm").try_acquire(0.05) is None, "brings the inbox up"
        warm_holder.release()
        struck = 0
        step = 3 if describe is several else 1
        for line in range(1, MOST_LINES, step):
            name = f"line-{line}"
            where = None
            # An older holder whose handle is dropped, so that its hub gives it back: on a busy machine perhaps before
            # the thread has asked, and then fewer lines are executed.
            for _ in range(20):
                lock = semaphore(others, name) if describe is semaphore else others.lock(f"{name}-b", wait=30)
                lock.acquire()
                where = strike(use, locks, name, line)
                if where is not None:
                    break
            if where is None:
                break
            struck += 1
            again = describe(locks, name).acquire()
            assert again.valid, f"after {where}"
            again.release()
        assert struck > 150 / step
        expect_clean(locks, valkey_server, namespace)
    assert not left(valkey_server, namespace), "something came late"


@UNAWAITED
@DROPPED
@pytest.mark.parametrize(("names", "step"), [("a", 1), ("abc", 7)])
def test_at_every_line_of_an_adoption(valkey_server: Server, namespace: str, names: str, step: int) -> None:
    """Either the lease still is what was handed over, for others to adopt, or it is given back: never nobody's."""
    with patient(valkey_server.url, namespace) as locks, Locks(valkey_server.url, namespace=namespace) as others:

        def use(locks: Locks, text: str) -> None:
            locks.adopt(text).release()

        def handed_over(line: int) -> str:
            return others.lock(*(f"line-{line}-{name}" for name in names), wait=30, ttl=30).acquire().export()

        use(locks, handed_over(0))
        text = handed_over(0)
        lines = count_lines(lambda: use(locks, text), PACKAGE)
        struck = 0
        # The same lines for each of many names: every seventh of them meets nearly each once.
        for line in range(1, MOST_LINES, step):
            text = handed_over(line)
            where = strike(use, locks, text, line)
            if where is None:
                break
            struck += 1
            with contextlib.suppress(LeaseLost):
                # Not reached: it is there for the next one who has the text.
                others.adopt(text).release()
                continue
            wait_until(lambda: not locks.statistics().held, 30, f"nothing to be renewed after {where}")
            # Of several names those that were not reached are their text's, and end with it.
            for name in names[1:]:
                others.break_lock(f"line-{line}-{name}", force=True)
        assert struck >= lines / step / 2
        expect_clean(locks, valkey_server, namespace)
    assert not left(valkey_server, namespace), "something came late"
