"""Whether the explorer sees what it is there for: each mutant breaks the promise of the sentence that it leaves out."""

from __future__ import annotations

import pytest

from tests.model import mutants_modes, mutants_server
from tests.model.explorer import explore
from tests.model.mutants import MUTANTS, SENTENCES, WITHOUT
from tests.model.scenarios import SCENARIOS
from tests.model.server_model import ModelServer


@pytest.mark.parametrize("name", MUTANTS)
def test_mutant_is_caught(name: str) -> None:
    mutant = MUTANTS[name]
    result = explore(mutant.apply(), enough=mutant.metric)
    assert mutant.metric in result.violations, (
        f"{name}: {mutant.metric!r} saw nothing in {result.states} states of {mutant.scenario!r}; {result.report()}"
    )


def test_every_sentence_has_a_mutant_or_a_reason() -> None:
    covered = {mutant.sentence for mutant in MUTANTS.values()}
    assert covered | WITHOUT.keys() == SENTENCES.keys()
    assert not covered & WITHOUT.keys()
    assert all(WITHOUT.values())


def test_every_mutant_changes_something() -> None:
    for name, mutant in MUTANTS.items():
        assert mutant.apply() != SCENARIOS[mutant.scenario], name
    unused = {
        kind
        for kind in (*vars(mutants_server).values(), *vars(mutants_modes).values())
        if isinstance(kind, type) and issubclass(kind, ModelServer) and kind is not ModelServer
    } - {mutant.server for mutant in MUTANTS.values()}
    assert not unused
