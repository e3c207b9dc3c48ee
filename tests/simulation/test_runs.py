"""How runs are told and repeated: the same seed gives the same history anywhere, and a failure its shortest trail."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from connectx.core.source.messages import OffsetsRead
from tests.simulation.chooser import Exhaustive, Replay, Seeded, read, written
from tests.simulation.reporting import report
from tests.simulation.runs import run_seed, run_trail, shortest
from tests.simulation.sim_source import SimSource

ROOT = Path(__file__).parents[2]


def digests(hash_seed: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-m", "tests.simulation", "--seeds", "4", "--digest"]
    return subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True).stdout


def test_a_seed_gives_the_same_history_whatever_the_hash_seed() -> None:
    first = digests("1")
    assert first == digests("2")
    assert len({line.split()[1] for line in first.splitlines()}) == 4


def test_a_trail_gives_the_history_of_the_seed_that_it_came_from() -> None:
    first = run_seed(5)
    again = run_trail(read(written(first.trail)))
    assert first.error is None
    assert (again.digest(), again.trail) == (first.digest(), first.trail)


def test_a_failing_seed_is_told_by_its_number_its_shortest_trail_and_its_story(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SimSource, "offsets_read", offsets_from_the_start)
    failed = next(run for run in map(run_seed, range(8, 20)) if run.number == 2)
    short = shortest(failed, run_trail, attempts=30)
    text = report(short, 7, len(failed.trail))
    assert len(short.trail) < len(failed.trail) / 4
    assert run_trail(short.trail).number == 2
    assert text.startswith("seed 7 breaks invariant 2: A `read_committed` consumer sees")
    assert "made shorter from" in text
    assert f"--replay '{written(short.trail)}'" in text
    assert ": worker-1 " in text


def offsets_from_the_start(task: SimSource) -> object:
    task.positions = dict.fromkeys(task.partitions, 0)
    return OffsetsRead(None)


def test_choices_are_written_in_short_and_read_back() -> None:
    trail = [3, 0, 0, 0, 7, 7, 1]
    assert written(trail) == "3 0*3 7*2 1"
    assert read(written(trail)) == trail


def test_a_chooser_draws_replays_or_takes_every_way() -> None:
    drawn = Seeded(1)
    picks = [drawn.pick(n) for n in (2, 5, 1000)]
    assert [Replay(picks).pick(n) for n in (2,)] == picks[:1]
    replayed = Replay(picks)
    assert [replayed.pick(n) for n in (2, 5, 1000, 9)] == [*picks, 0]
    chooser, ways = Exhaustive(), []
    while chooser.next_round():
        first = chooser.pick(2)
        ways.append((first, chooser.pick(2 + first)))
    assert ways == [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2)]
