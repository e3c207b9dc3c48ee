"""Trails that are kept: what every core of a simulated run was given and ordered, for replays without the simulator.

A trail of choices means something else when the simulator changes. The recordings of its cores do not. One file holds
all cores of a run: workers, loops and clients. A recording of a live cluster (`cluster.record`) can be kept here, too.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from connectx.recording.file import write_recordings
from tests.simulation import producer_runs
from tests.simulation.chooser import read
from tests.simulation.runs import run_trail
from tests.simulation.world import World

TRAILS = Path(__file__).with_name("trails")
RECORDING_BYTES = 1 << 30


def keep(trail: str, name: str, folder: Path = TRAILS, protocol: int | None = None) -> Path:
    """Run a trail that holds all invariants, and write the recordings of its cores to `folder`/`name`.jsonl.

    Args:
        trail: as a failing run prints it.
        name: of the file, after the defect.
        folder: where to.
        protocol: of producers alone; None: the trail is of a cluster.
    """
    with pytest.MonkeyPatch.context() as patch:
        for world_class in (World, producer_runs.ProducerWorld):
            patch.setattr(world_class, "recording_bytes", RECORDING_BYTES)
        if protocol is None:
            run = run_trail(read(trail))
            error, cores = run.error, run.chaos.world.cores
        else:
            alone = producer_runs.run_trail(read(trail), protocol)
            assert alone.world is not None
            error, cores = alone.error, alone.world.cores
    if error is not None:
        raise error
    return write_recordings(folder / f"{name}.jsonl", cores.recordings(f"the trail {trail}"))
