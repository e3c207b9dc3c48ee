"""Lanes of connectors in words, from metrics of their workers."""

from __future__ import annotations

from connectx.api.lanes import lanes_in

FIRST = """# HELP connectx_bulk 1 while the task is in the bulk lane, 0 in the tail.
# TYPE connectx_bulk gauge
connectx_bulk{connector="a",task="0"} 0.0
connectx_bulk{connector="b",task="0"} 1.0
connectx_bulk{connector="c",task="0"} 0.0
connectx_bulk{connector="d",task="0"} 1.0
connectx_bulk_jobs_total{connector="a",task="0"} 7.0
connectx_bulk_job_parts{connector="b",task="0"} 16.0
connectx_bulk_job_parts_done{connector="b",task="0"} 3.0
"""
SECOND = """connectx_bulk{connector="c",task="1"} 1.0
connectx_bulk{connector="b",task="1"} 1.0
connectx_bulk_job_parts{connector="b",task="1"} 4.0
connectx_bulk_job_parts_done{connector="b",task="1"} 0.0
kafka_connect_worker_task_count 3.0
"""


def test_the_lanes_of_all_tasks_of_a_connector_and_the_progress_of_their_jobs_are_one_phrase() -> None:
    assert lanes_in([FIRST, SECOND]) == {"a": "tail", "b": "bulk 3/20", "c": "1 of 2 bulk", "d": "bulk"}
    assert lanes_in(["", "kafka_connect_worker_task_count 3.0\n"]) == {}
