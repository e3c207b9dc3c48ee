"""Trails that are kept: what every core of a simulated run was given and ordered, for replays without the simulator.

A trail of choices means something else when the simulator changes. The recordings of its cores do not.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from connectx.recording.file import write_recordings
from tests.simulation.chooser import read
from tests.simulation.runs import run_trail
from tests.simulation.world import World

TRAILS = Path(__file__).with_name("trails")
RECORDING_BYTES = 1 << 30


def keep(trail: str, name: str, folder: Path = TRAILS) -> Path:
    """Run a trail that holds all invariants, and write the recordings of its cores to `folder`/`name`.jsonl."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(World, "recording_bytes", RECORDING_BYTES)
        run = run_trail(read(trail))
    if run.error is not None:
        raise run.error
    found = [worker.recorded.recording(f"the trail {trail}") for worker in run.chaos.world.workers.values()]
    return write_recordings(folder / f"{name}.jsonl", [recording for recording in found if recording is not None])
