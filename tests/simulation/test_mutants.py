"""The simulation finds bugs: each way to break the core or its driver is caught by the invariant that speaks of it."""

from __future__ import annotations

from itertools import chain

import pytest

from connectx.core.loops.lifecycle import TaskLoop
from tests.simulation.invariants import Broken
from tests.simulation.mutants import MUTANTS, Mutant
from tests.simulation.runs import run_seed

MORE_SEEDS = 80  # are tried when the seed in the table does not find it any more


def is_caught(mutant: Mutant) -> bool:
    """True when the scenario, or some seed, breaks one of the invariants that may find this mutant."""
    if mutant.scenario is not None:
        with pytest.raises(Broken) as breach:
            mutant.scenario()
        return breach.value.number in mutant.invariants
    seeds = chain((mutant.seed,), range(MORE_SEEDS))
    return any(run_seed(seed).number in mutant.invariants for seed in seeds)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_is_caught(mutant: Mutant) -> None:
    with pytest.MonkeyPatch.context() as patch:
        hits: list[str] = []
        patch.setattr(TaskLoop, "check", lambda *_: ())  # these invariants find it without the rules of loops
        mutant.patch(patch, hits)
        caught = is_caught(mutant)
    assert hits, "the mutant did nothing that the sound code would not have done"
    assert caught, f"{mutant.name} was not caught"


@pytest.mark.parametrize("seed", sorted({mutant.seed for mutant in MUTANTS}))
def test_the_sound_core_passes_the_seeds_that_catch_mutants(seed: int) -> None:
    assert run_seed(seed).error is None


@pytest.mark.parametrize("mutant", [mutant for mutant in MUTANTS if mutant.scenario], ids=lambda mutant: mutant.name)
def test_the_sound_core_passes_the_scenarios_that_catch_mutants(mutant: Mutant) -> None:
    assert mutant.scenario is not None
    mutant.scenario()
