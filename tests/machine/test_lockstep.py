"""Blocking and asyncio in lockstep against a real server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.harness.proxy import FaultProxy
from tests.machine.machine import Lockstep
from tests.machine.modes import Modes

if TYPE_CHECKING:
    from tests.harness.servers import Server
    from tests.machine.sides import Sides


@pytest.mark.parametrize(("machine", "examples"), [(Lockstep, 15), (Modes, 25)])
def test_both_flavours_answer_alike_whatever_happens(any_server: Server, machine: type[Sides], examples: int) -> None:
    with FaultProxy(any_server) as proxy:
        run_state_machine_as_test(
            type(machine.__name__, (machine,), {"server": any_server, "proxy": proxy}),
            settings=settings(
                max_examples=examples,
                stateful_step_count=25,
                phases=(Phase.generate, Phase.shrink),
            ),
        )
