"""The main job as a user runs it: in a process of its own, to its last line; and interrupted in the middle."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from pathlib import Path

import pytest

from tests.support.demos import LIMIT_S, ROWS, check_main_job, started

ROWS_ON_SPARK = 170_000
"""Of one of three years: enough for a third slice, of at least 16 MB each, whose job lasts long enough for a kill."""
DEMO = (sys.executable, "-c", "from connectx.cli import main; main()", "demo")
ON_SPARK = (sys.executable, "-m", "bench.spark_cluster")
LIMIT_ON_SPARK_S = 300


@pytest.mark.timeout(LIMIT_S + 60)
def test_every_flight_arrives_once_although_workers_are_killed(tmp_path: Path) -> None:
    check_main_job(tmp_path, *DEMO)


@pytest.mark.timeout(2 * LIMIT_ON_SPARK_S + 60)
def test_every_flight_is_in_both_tables_once_although_parts_of_a_spark_cluster_are_killed(tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    with started(tmp_path, *ON_SPARK, "--rows", str(ROWS_ON_SPARK), "--report", report) as demo:
        demo.wait_for("a Spark worker was killed while a job ran", LIMIT_ON_SPARK_S)
        demo.remember_children()
        code = demo.end(LIMIT_ON_SPARK_S)
    assert code == 0, (demo.lines, demo.errors)
    result = json.loads(demo.lines[-1])
    places = [result[f"rows_{place}"] for place in ("csv", "topic", "postgresql", "delta")]
    assert places == [3 * ROWS_ON_SPARK] * 4
    assert result["differing"] == []
    executor, spark_worker, worker, another = result["killed"]
    assert re.fullmatch(r"executor \d+", executor)
    assert (spark_worker, another) == ("a Spark worker", "another Spark worker")
    text = "\n".join(demo.lines)
    assert re.search(rf"{worker} was killed while it ran .*flights-in-0", text)
    assert "Nothing lost, nothing duplicated" in text
    page = report.read_text(encoding="utf-8")
    assert "Nothing lost, nothing duplicated" in page
    assert 'data-task="flights-to-delta-0"' in page


@pytest.mark.timeout(LIMIT_S + 60)
@pytest.mark.parametrize("moment", ["Starting Kafka", "was killed at"])
def test_ctrl_c_leaves_nothing_behind(tmp_path: Path, moment: str) -> None:
    with started(tmp_path, *DEMO, "--rows", str(ROWS), cwd=tmp_path) as demo:
        demo.wait_for(moment)
        demo.remember_children()
        os.killpg(demo.process.pid, signal.SIGINT)  # as a terminal does: to the whole foreground group
        assert demo.end() == 130, (demo.lines, demo.errors)
    assert demo.errors[-1] == "Interrupted; everything that was started has been stopped."
