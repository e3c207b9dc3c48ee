"""Executors as processes with a Python that has no connectx: code is sent to them, and they may die."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.timeout(600)  # the first test waits for all
ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a process with its own Spark driver and Kafka found; see `tests.support.spark_executors`."""
    folder = tmp_path_factory.mktemp("executors")
    command = [sys.executable, "-m", "tests.support.spark_executors", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr[-5_000:]
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert result["bare"], "the Python of executors has connectx itself"
    return result


@pytest.mark.parametrize("session", ["classic", "connect"])
def test_connectx_and_the_user_s_modules_reach_executors(found: dict[str, Any], session: str) -> None:
    for files in found[session]["always"].values():
        archives = {Path(file.partition(".zip/")[0]).name for file in files if ".zip/" in file}
        assert len(archives) == 1, files  # each executor that took part has a copy
        assert all(".zip/" in file for file in files)


def test_in_the_tail_only_what_reads_runs_on_executors(found: dict[str, Any]) -> None:
    files = found["classic"]["never"]
    assert [".zip/" in files[part][0] for part in ("connectx", "module", "ran")] == [True, True, False]


def test_without_a_route_to_kafka_executors_make_the_batches_and_the_worker_sends_them(found: dict[str, Any]) -> None:
    remote = found["remote"]
    (reason,) = remote.pop("reasons")
    assert reason.startswith("Spark's executors cannot reach Kafka: ")
    assert remote == {"exact": True, "in_order": True, "answer": "valid", "harm": [0, 0, 0], "failed": 0}


def test_an_executor_that_is_killed_while_it_sends_loses_and_doubles_nothing(found: dict[str, Any]) -> None:
    killed = found["killed"]
    assert killed["committed_before"] == 0
    assert (killed["exact"], killed["answer"], killed["harm"]) == (True, "valid", [0, 0, 0])


def test_an_executor_that_is_killed_while_it_stages_rows_of_a_sink_loses_and_doubles_nothing(
    found: dict[str, Any],
) -> None:
    assert found["sunk"] == {"before": [], "exact": True, "staged": 10_000, "failed": 0, "left": []}
