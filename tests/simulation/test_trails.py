"""Kept trails: each core of a run that once broke an invariant still decides as it did when the bug was fixed.

A deliberate change of decisions needs new recordings: `python -m tests.simulation --replay 'TRAIL' --keep NAME`, with
the trail that the header of the recording names, and with `--protocol` for producers alone.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from connectx.recording.file import read_recordings
from connectx.recording.replay import first_difference
from tests.simulation import producer_runs
from tests.simulation.chooser import written
from tests.simulation.mutants import MUTANTS
from tests.simulation.runs import run_seed
from tests.simulation.trails import TRAILS, keep

KEPT = sorted(TRAILS.glob("*.jsonl"))


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_the_cores_of_a_kept_trail_decide_as_they_did(path: Path) -> None:
    recordings = read_recordings(path)
    differences = [first_difference(recording, sentences=False) for recording in recordings]
    assert differences == [None] * len(recordings), "\n".join(map(str, filter(None, differences)))


def test_trails_are_kept() -> None:
    assert KEPT


def test_the_kept_trail_of_a_mutant_differs_under_it(monkeypatch: pytest.MonkeyPatch) -> None:
    (mutant,) = (mutant for mutant in MUTANTS if mutant.name == "lag check left out")
    mutant.patch(monkeypatch, [])
    recordings = read_recordings(TRAILS / "lag-check-left-out.jsonl")
    assert any(first_difference(recording, sentences=False) for recording in recordings)


def test_a_run_of_producers_alone_is_kept(tmp_path: Path) -> None:
    run = producer_runs.run_seed(7, 2)
    recordings = read_recordings(keep(written(run.trail), "seven", tmp_path, protocol=2))
    assert {recording.kind for recording in recordings} == {"producer"}
    assert [first_difference(recording) for recording in recordings] == [None] * len(recordings)


def test_a_run_is_kept_with_all_its_cores_and_its_trail(tmp_path: Path) -> None:
    run = run_seed(7)
    path = keep(written(run.trail), "seven", tmp_path)
    recordings = read_recordings(path)
    assert sum(recording.kind == "worker" for recording in recordings) == len(run.chaos.world.workers)
    assert {recording.kind for recording in recordings} >= {"worker", "producer"}
    assert {recording.reason for recording in recordings} == {f"the trail {written(run.trail)}"}
    assert [first_difference(recording) for recording in recordings] == [None] * len(recordings)
