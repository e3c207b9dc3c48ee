"""Producers on connections that deliver late: what is committed stays right, and each broken producer is found."""

from __future__ import annotations

from itertools import chain

import pytest

from tests.simulation.chooser import read, written
from tests.simulation.producer_mutants import PRODUCER_MUTANTS, ProducerMutant, sequences_begin_again_with_each_attempt
from tests.simulation.producer_runs import run_seed, run_trail
from tests.simulation.runs import shortest
from tests.simulation.sim_producer import SimProducer

SHARE = 4  # of the clusters: they have producers, too
MORE_SEEDS = 60  # are tried when the seed in the table does not find it any more


@pytest.mark.parametrize("protocol", [1, 2])
def test_late_packets_change_nothing_that_is_committed(pytestconfig: pytest.Config, protocol: int) -> None:
    for seed in range(pytestconfig.getoption("--seeds") // SHARE):
        run = run_seed(seed, protocol)
        assert run.error is None, f"seed {seed}\n{run.story()}"


@pytest.mark.parametrize("mutant", PRODUCER_MUTANTS, ids=lambda mutant: mutant.name)
def test_a_broken_producer_is_caught(mutant: ProducerMutant) -> None:
    with pytest.MonkeyPatch.context() as patch:
        hits: list[str] = []
        patch.setattr(SimProducer, "checks_rules", False)  # so that data must show it
        mutant.patch(patch, hits)
        seeds = chain((mutant.seed,), range(MORE_SEEDS))
        caught = any(run_seed(seed, mutant.protocol).number in mutant.invariants for seed in seeds)
    assert hits, "the mutant did nothing that the sound core would not have done"
    assert caught, f"{mutant.name} was not caught"


def test_a_failing_seed_repeats_and_is_made_shorter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SimProducer, "checks_rules", False)
    sequences_begin_again_with_each_attempt(monkeypatch, [])
    failed = run_seed(8, 1)
    again = run_trail(read(written(failed.trail)), 1)
    short = shortest(failed, lambda trail: run_trail(trail, 1), attempts=6)
    assert failed.world is not None
    assert again.world is not None
    assert (failed.number, again.world.history) == (2, failed.world.history)
    assert short.number == 2
    assert len(short.trail) < len(failed.trail)
