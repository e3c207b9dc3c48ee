"""Random faults and requests by seed: invariants hold all the time, and peace follows (see `chaos`)."""

from __future__ import annotations

import pytest

from tests.simulation.reporting import report
from tests.simulation.runs import run_seed

BATCH = 25

FOUND = {
    37: "a queued operation was written by the leader in the moment between a fenced write and the loss of its claim",
    780: "a connector was configured again, compaction took the older configuration: a new worker knew no task of it",
    10431: "the same for a namesake that was deleted: a connector that was created stopped got the tasks of the older",
    2293: "a sink task was cancelled during the last flush of a revocation, and its loop stumbled over the next poll",
    12081: "a leader fell between the two writes of a stop: the next one published tasks again, and they ran for ever",
}
"""Seeds that have found a bug of the core, and which."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Batches of the seeds that `--seeds` asks for."""
    if "seeds" in metafunc.fixturenames:
        end = metafunc.config.getoption("--seeds")
        batches = [range(first, min(first + BATCH, end)) for first in range(0, end, BATCH)]
        metafunc.parametrize("seeds", batches, ids=str)


@pytest.mark.rule(
    "always.1",
    "always.2",
    "always.3",
    "always.4",
    "always.5",
    "always.6",
    "always.7",
    "always.8",
    "always.9",
    "always.10",
)
def test_a_cluster_survives_faults_and_becomes_what_its_config_topic_says(seeds: range) -> None:
    for seed in seeds:
        run = run_seed(seed)
        assert run.error is None, report(run, seed)


@pytest.mark.parametrize("seed", FOUND)
def test_a_bug_that_was_found_once_stays_away(seed: int) -> None:
    run = run_seed(seed)
    assert run.error is None, report(run, seed)
