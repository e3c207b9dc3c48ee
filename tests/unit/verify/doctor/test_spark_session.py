"""Judgements about Spark: no session, classic ones, Spark Connect, and what restricted ones cannot do."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from connectx.verify.doctor.machine import judge_java
from connectx.verify.doctor.report import Status
from connectx.verify.doctor.spark_session import (
    SparkProbe,
    judge_processes,
    judge_session,
    judge_tasks,
)

NONE = SparkProbe("none", "4.0.0")
CLASSIC = SparkProbe("classic", "4.0.0", context=True, share_problem="A classic session cannot be shared.")
CONNECT = SparkProbe("connect", "4.0.1")


def test_without_a_session_a_local_one_serves_if_there_is_java() -> None:
    assert judge_session(NONE).status is Status.OK
    assert judge_tasks(NONE, None).status is Status.OK
    missing = judge_java(None, (), needed=True)
    found = judge_tasks(NONE, missing)
    assert found.status is Status.OFF
    assert found.next_step == missing.next_step
    assert judge_processes(NONE).status is Status.OK


def test_without_pyspark_a_cluster_on_ones_own_kafka_runs_tasks_that_need_no_spark(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "pyspark", raising=False)  # another test may have imported it
    nothing = SparkProbe("none", None)
    assert judge_session(nothing).status is judge_tasks(nothing, None).status is Status.OFF
    assert "connectx[spark]" in judge_tasks(nothing, None).next_step


def test_a_classic_session_is_not_for_processes() -> None:
    assert judge_session(CLASSIC).found == "classic session, Spark 4.0.0"
    found = judge_processes(CLASSIC)
    assert found.status is Status.OFF
    assert "classic session cannot be shared" in found.why


def test_spark_connect_without_a_context_serves() -> None:
    assert judge_session(CONNECT).found == "Spark Connect session, Spark 4.0.1, without a SparkContext"
    assert {judge(CONNECT).status for judge in (judge_session, judge_processes)} == {Status.OK}


def test_a_session_that_runs_no_job_is_broken_and_one_without_python_limits() -> None:
    dead = SparkProbe("connect", None, job_problem="no answer within 20 s")
    assert judge_session(dead).status is Status.BROKEN
    assert judge_tasks(dead, None).status is Status.OFF
    assert judge_tasks(replace(CONNECT, python_problem="PYTHON_VERSION_MISMATCH"), None).status is Status.LIMITED


def test_a_spark_that_is_not_tested_is_told() -> None:
    assert judge_session(replace(CLASSIC, version="3.5.1")).status is Status.LIMITED
    assert judge_session(replace(CLASSIC, version="4.1.1")).status is Status.OK
