"""Interrupts at each line and at each await."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.harness.aio import run_async
from tests.harness.interrupts import cancel_at_each_await, count_lines, run_with_interrupt_at_line

if TYPE_CHECKING:
    from tests.harness.interrupts import Cancelled, When

HERE = Path(__file__).parent


def take_and_give_back(book: list[str]) -> str:
    book.append("taken")
    try:
        result = "done"
    finally:
        book.remove("taken")
    return result


def test_each_line_is_interrupted_once() -> None:
    lines = count_lines(lambda: take_and_give_back([]), HERE)
    books: list[list[str]] = [[] for _ in range(lines + 1)]
    runs = [
        run_with_interrupt_at_line(lambda book=book: take_and_give_back(book), n, HERE)
        for n, book in enumerate(books, 1)
    ]
    assert [type(run.error) for run in runs] == [KeyboardInterrupt] * lines + [type(None)]
    assert runs[-1].result == "done"
    assert runs[-1].where is None
    # Before `try`, and inside `finally` before the clean-up: an interrupt there leaves the entry behind.
    left = [int(str(run.where).rpartition(":")[2]) for run, book in zip(runs, books, strict=True) if book]
    assert [line - take_and_give_back.__code__.co_firstlineno for line in left] == [2, 5]


def test_other_folders_and_later_code_are_not_interrupted(tmp_path: Path) -> None:
    assert count_lines(lambda: take_and_give_back([]), tmp_path) == 0

    def swallow() -> str:
        try:
            return take_and_give_back([])
        except SystemExit:
            return take_and_give_back([])

    run = run_with_interrupt_at_line(swallow, 4, HERE, SystemExit)
    assert (run.result, run.error) == ("done", None)
    assert run.where is not None
    with pytest.raises(ZeroDivisionError):
        count_lines(lambda: 1 // 0, HERE)


def test_the_tracer_that_was_there_comes_back() -> None:
    before = sys.gettrace()
    run_with_interrupt_at_line(lambda: take_and_give_back([]), 2, HERE)
    assert sys.gettrace() is before


@pytest.mark.parametrize("when", ["waiting", "ready"])
@pytest.mark.parametrize("uvloop", [False, True])
def test_each_await_is_cancelled_once(when: When, uvloop: bool) -> None:
    books: list[list[int]] = []

    async def steps() -> str:
        books.append([])
        await asyncio.sleep(0)
        books[-1].append(1)
        await asyncio.sleep(0.001)
        books[-1].append(2)
        await asyncio.create_task(asyncio.sleep(0.001))
        books[-1].append(3)
        return "done"

    async def main() -> list[Cancelled[str]]:
        return await cancel_at_each_await(steps, when=when)

    runs = run_async(main, uvloop=uvloop)
    assert books == [[], [1], [1, 2], [1, 2, 3]]
    assert [type(run.error) for run in runs] == [asyncio.CancelledError] * 3 + [type(None)]
    assert runs[-1].result == "done"
    assert runs[-1].where is None
    assert runs[0].where is not None


def test_a_cancel_when_ready_finds_the_result_already_there() -> None:
    async def main(when: When) -> list[bool]:
        answers: list[asyncio.Future[str]] = []

        async def ask() -> str:
            loop = asyncio.get_running_loop()
            answer: asyncio.Future[str] = loop.create_future()
            answers.append(answer)
            loop.call_later(0.01, lambda: answer.cancelled() or answer.set_result("x"))
            return await answer

        await cancel_at_each_await(ask, when=when)
        return [answer.cancelled() for answer in answers]

    assert run_async(lambda: main("waiting")) == [True, False]
    assert run_async(lambda: main("ready")) == [False, False]


def test_what_a_coroutine_makes_of_its_cancel_is_recorded_and_checked() -> None:
    async def stubborn() -> str:
        try:
            await asyncio.sleep(0.001)
        except asyncio.CancelledError:
            return "swallowed"
        raise ValueError("by itself")

    async def endless() -> None:
        while True:
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    async def deaf() -> None:
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                await asyncio.sleep(60)
                return

    async def main() -> list[object]:
        seen: list[object] = []

        async def check(run: Cancelled[str]) -> None:
            seen.append(run.result or type(run.error))

        await cancel_at_each_await(stubborn, check=check)
        with pytest.raises(AssertionError, match="did not end"):
            await cancel_at_each_await(endless)
        with pytest.raises(AssertionError, match="still runs"):
            await cancel_at_each_await(deaf, timeout=0.02)
        return seen

    assert run_async(main) == ["swallowed", ValueError]
