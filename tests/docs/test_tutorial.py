"""The tutorial's two terminals, played through."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, NamedTuple

import pytest

import tenure
from tests.docs.pages import ROOT, blocks
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PAGE = ROOT / "docs" / "tutorial.md"


class Terminals(NamedTuple):
    """Where `turn.py` is run twice."""

    script: Path
    url: str
    started: list[subprocess.Popen[str]]

    def run(self) -> subprocess.Popen[str]:
        """Type `python turn.py`."""
        process = subprocess.Popen(
            [sys.executable, "-u", str(self.script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "TENURE_URL": self.url},
        )
        self.started.append(process)
        return process


@pytest.fixture
def terminals(tmp_path: Path, url: str) -> Iterator[Terminals]:
    (turn,) = [block.text for block in blocks(PAGE, "python") if "input(" in block.text]
    assert "wait=60" in turn
    # A broken lease is noticed at its next renewal, for which a test does not wait ten seconds.
    (tmp_path / "turn.py").write_text(turn.replace("wait=60", "wait=60, ttl=6"), encoding="utf-8")
    made = Terminals(tmp_path / "turn.py", url, [])
    yield made
    for process in made.started:
        process.kill()
        process.communicate()


def test_two_terminals_take_turns(terminals: Terminals) -> None:
    with tenure.Locks(terminals.url) as locks:
        first = terminals.run()
        wait_until(lambda: locks.holder("stock") is not None, 30, "the first to have the lock")
        second = terminals.run()
        wait_until(lambda: bool(locks.waiters("stock")), 30, "the second to wait")
        holder = locks.holder("stock")
        assert holder is not None
        assert holder.pid == first.pid
        assert holder.program == "turn.py"
        assert holder.info == "counting boxes"
        output, error = first.communicate("\n", timeout=60)
        assert (first.returncode, error) == (0, "")
        assert "it is somebody else's turn" in output
        later, _ = second.communicate("\n", timeout=60)
        fences = [int(text.split("fence ")[1].split(".")[0]) for text in (output, later)]
        assert fences[0] < fences[1]


def test_a_lock_that_is_broken_ends_the_block_with_the_reason(terminals: Terminals) -> None:
    with tenure.Locks(terminals.url) as locks:
        first = terminals.run()
        wait_until(lambda: locks.holder("stock") is not None, 30, "it to have the lock")
        assert locks.break_lock("stock") is not None
        wait_until(lambda: locks.holder("stock") is None, 30, "it to acknowledge")
        _, error = first.communicate("\n", timeout=60)
    assert first.returncode == 1
    assert "LeaseLost: lock 'stock' was lost" in error
    assert "an operator broke the lock" in error
