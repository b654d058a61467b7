"""Interrupting code at each place where it can be interrupted: at each line, and at each await.

LINE: `run_with_interrupt_at_line` raises KeyboardInterrupt at the n-th line executed inside one package, as a signal
would. STEP: `cancel_at_each_await` cancels a task at its k-th suspension, for all k.
"""

from __future__ import annotations

import asyncio
import linecache
import sys
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator
    from pathlib import Path
    from types import FrameType, TracebackType

T = TypeVar("T")

_MOST_SUSPENSIONS = 200


@dataclass(frozen=True, slots=True)
class LineRun(Generic[T]):
    """What came of one run under `run_with_interrupt_at_line`."""

    lines: int
    """How many lines of the package were executed before the end or the interrupt."""
    where: str | None
    """`file:line` at which the interrupt was raised; `None` when the run ended before line n."""
    result: T | None
    error: BaseException | None
    """What came out of the function instead of a result: the interrupt, or what the code made of it."""


def run_with_interrupt_at_line(
    function: Callable[[], T], n: int, package_dir: Path, exc: type[BaseException] = KeyboardInterrupt
) -> LineRun[T]:
    """Call `function()` and raise `exc` at the `n`-th line (from 1) that this thread executes below `package_dir`.

    Only lines count, so the interrupt strikes *before* the line at `where`. The thread is not traced any more once the
    interrupt was raised; a trace function that was there before, a coverage tool's, comes back at the end.
    """
    counter = 0
    where: str | None = None
    folder = str(package_dir)

    def watch() -> Callable[..., Any]:
        """Make the trace function of one frame."""
        last = 0

        def on_line(frame: FrameType, event: str, _: object) -> Callable[..., Any]:
            nonlocal counter, where, last
            if event == "line" and where is None:
                line, last_line = frame.f_lineno, last
                last = line
                if not _leaves_a_with(frame.f_code.co_filename, line, last_line):
                    counter += 1
                    if counter == n:
                        where = f"{frame.f_code.co_filename}:{line}"
                        raise exc
            return on_line

        return on_line

    def on_call(frame: FrameType, _: str, __: object) -> Callable[..., Any] | None:
        return watch() if where is None and frame.f_code.co_filename.startswith(folder) else None

    before = sys.gettrace()
    result: T | None = None
    error: BaseException | None = None
    sys.settrace(on_call)
    try:
        result = function()
    except BaseException as caught:  # noqa: BLE001 - whatever came out is the finding
        error = caught
    finally:
        sys.settrace(before)
    return LineRun(counter, where, result, error)


def _leaves_a_with(file: str, line: int, last_line: int) -> bool:
    """Tell the second event of a `with` line, that of its end.

    An error raised there by a trace function skips `__exit__`, and a lock stays locked. No signal can do that: the
    interpreter looks for signals only after the call of `__exit__`.
    """
    return line < last_line and linecache.getline(file, line).lstrip().startswith(("with ", "async with "))


def count_lines(function: Callable[[], object], package_dir: Path) -> int:
    """Count the lines below `package_dir` that this thread executes in one call of `function()`; its error passes."""
    run = run_with_interrupt_at_line(function, 0, package_dir)
    if run.error is not None:
        raise run.error
    return run.lines


When = Literal["waiting", "ready"]
"""`waiting`: the cancel comes while the task waits. `ready`: it comes when what the task waited for has just happened,
but the task has not run yet, so that the result is there and nobody has seen it."""


@dataclass(frozen=True, slots=True)
class Cancelled(Generic[T]):
    """What came of one run under `cancel_at_each_await`."""

    k: int
    where: str | None
    """The innermost `file:line` that awaited when the cancel struck; `None`: the run ended before its k-th await."""
    result: T | None
    error: BaseException | None
    """What the coroutine raised: CancelledError, unless it swallowed or replaced it."""


async def cancel_at_each_await(
    make: Callable[[], Coroutine[Any, Any, T]],
    *,
    check: Callable[[Cancelled[T]], Awaitable[None]] | None = None,
    when: When = "waiting",
    timeout: float = 30.0,
) -> list[Cancelled[T]]:
    """Run `make()` as a task that is cancelled at its first suspension; then at its second; until a run ends by itself.

    Args:
        make: gives a fresh coroutine for each run; suspensions inside tasks that it starts are not counted.
        check: awaited after each run, to assert what must hold and to clean up; the last one was not cancelled.
        when: see `When`.
        timeout: seconds that one run may take, over which AssertionError is raised.

    Returns:
        One record per run; the last is the one that was not interrupted.
    """
    runs: list[Cancelled[T]] = []
    for k in range(1, _MOST_SUSPENSIONS):
        run = await _cancel_at(make(), k, when, timeout)
        runs.append(run)
        if check is not None:
            await check(run)
        if run.where is None:
            return runs
    raise AssertionError(f"the coroutine was suspended {_MOST_SUSPENSIONS} times and did not end")


async def _cancel_at(coroutine: Coroutine[Any, Any, T], k: int, when: When, timeout: float) -> Cancelled[T]:
    watched = _Watched(coroutine, k, when)
    task = asyncio.ensure_future(watched)
    watched.task = task
    _, pending = await asyncio.wait([task], timeout=timeout)
    if pending:
        task.cancel()
        raise AssertionError(f"cancelled at await {k} ({watched.where}), the task still runs after {timeout:g} s")
    if task.cancelled():
        return Cancelled(k, watched.where, None, asyncio.CancelledError())
    error = task.exception()
    return Cancelled(k, watched.where, None if error else task.result(), error)


class _Watched(Coroutine[Any, Any, T]):
    """Steps a coroutine for a task, counts its suspensions and has the task cancelled at the k-th."""

    def __init__(self, inner: Coroutine[Any, Any, T], k: int, when: When) -> None:
        self._inner = inner
        self._left = k
        self._when = when
        self.where: str | None = None
        self.task: asyncio.Future[T] | None = None

    def send(self, value: Any) -> Any:  # noqa: ANN401 - the protocol of coroutines
        return self._suspended(self._inner.send(value))

    def throw(
        self,
        typ: type[BaseException] | BaseException,
        val: BaseException | object = None,
        tb: TracebackType | None = None,
    ) -> Any:  # noqa: ANN401
        error = typ if isinstance(typ, BaseException) else val if isinstance(val, BaseException) else typ()
        return self._suspended(self._inner.throw(error.with_traceback(tb) if tb else error))

    def close(self) -> None:
        self._inner.close()

    def __await__(self) -> Generator[Any, Any, T]:
        return self._inner.__await__()

    def _suspended(self, waits_for: Any) -> Any:  # noqa: ANN401
        self._left -= 1
        if self._left == 0:
            self.where = _innermost(self._inner)
            if self._when == "ready" and waits_for is not None:
                # Added before the task adds its own wake-up, and so called before it.
                waits_for.add_done_callback(self._cancel)
            else:
                asyncio.get_running_loop().call_soon(self._cancel)
        return waits_for

    def _cancel(self, _: object = None) -> None:
        if self.task is not None:
            self.task.cancel()


def _innermost(coroutine: object) -> str:
    """Follow a suspended coroutine to the innermost frame that awaits."""
    where = "?"
    awaiter = coroutine
    while awaiter is not None:
        frame = getattr(awaiter, "cr_frame", None) or getattr(awaiter, "gi_frame", None)
        if frame is None:
            break
        where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        awaiter = getattr(awaiter, "cr_await", None) or getattr(awaiter, "gi_yieldfrom", None)
    return where
