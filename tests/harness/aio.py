"""Running a test's coroutine: `asyncio.run`, but nothing that goes wrong in the background stays unsaid."""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

T = TypeVar("T")

_GRACE_SECONDS = 10.0


class BackgroundFailure(AssertionError):
    """A task was left running, or an error that nobody awaited went to the event loop's exception handler."""


def run_async(
    main: Callable[[], Coroutine[Any, Any, T]],
    *,
    timeout: float = 60.0,
    uvloop: bool = False,
    leftovers: bool = False,
    grace: float = _GRACE_SECONDS,
) -> T:
    """Run `main()` on a fresh event loop and return its result.

    Args:
        main: gives the coroutine to run.
        timeout: seconds after which it is cancelled and TimeoutError raised.
        uvloop: use uvloop's event loop instead of asyncio's own.
        leftovers: accept tasks that are still running when `main` is done.
        grace: seconds for which a task may outlive `main`; not waited for when there is none.

    Raises:
        BackgroundFailure: a task outlived `main` by more than the grace, or an exception in the background (a task's
            that was never retrieved, a callback's) reached the event loop.
    """
    complaints: list[str] = []

    def complain(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        complaints.append(f"{context.get('message')}: {context.get('exception')!r}")

    async def watched() -> T:
        asyncio.get_running_loop().set_exception_handler(complain)
        async with asyncio.timeout(timeout):
            result = await main()
        if not leftovers:
            complaints.extend(f"still running: {task!r}" for task in await _tasks_left(grace))
        return result

    with asyncio.Runner(debug=False, loop_factory=_uvloop_factory() if uvloop else None) as runner:
        result = runner.run(watched())
        # A task whose exception nobody retrieved complains when it is collected.
        gc.collect()
    if complaints:
        raise BackgroundFailure("\n".join(complaints))
    return result


async def _tasks_left(grace: float) -> set[asyncio.Task[Any]]:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    if not tasks:
        return set()
    _, pending = await asyncio.wait(tasks, timeout=grace)
    return pending


def _uvloop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    import uvloop  # noqa: PLC0415 - optional, and not on every platform

    return uvloop.new_event_loop
