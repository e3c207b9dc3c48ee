"""Faults and requests by seed: invariants hold all the time, and peace follows (see `chaos`)."""

from __future__ import annotations

import pytest

from tests.simulation.chaos import Chaos

SEEDS = 300


@pytest.mark.parametrize("seeds", [range(first, first + 25) for first in range(0, SEEDS, 25)], ids=str)
def test_a_cluster_survives_faults_and_becomes_what_its_config_topic_says(seeds: range) -> None:
    for seed in seeds:
        chaos = Chaos(seed)
        try:
            chaos.run()
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}\n{chaos.world.story()}") from error
