"""A mutant: one sentence of the protocol left out, and where that has to be seen."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tests.model.scenarios import SCENARIOS

if TYPE_CHECKING:
    from tests.model.client import Client
    from tests.model.scenario import Scenario
    from tests.model.server_model import ModelServer
    from tests.model.sim import SimPort


@dataclass(frozen=True)
class Mutant:
    """One sentence left out, the metric that must see it, and where."""

    sentence: str
    metric: str
    scenario: str
    server: type[ModelServer] | None = None
    port: type[SimPort] | None = None
    client: type[Client] | None = None
    patch: tuple[str, object] | None = None
    polls: bool = True

    def apply(self) -> Scenario:
        """The scenario with the mutant in it."""
        scenario = SCENARIOS[self.scenario]
        return replace(
            scenario,
            server=self.server or scenario.server,
            port=self.port or scenario.port,
            client=self.client or scenario.client,
            patches=(*scenario.patches, *((self.patch,) if self.patch else ())),
            polls=scenario.polls and self.polls,
        )
