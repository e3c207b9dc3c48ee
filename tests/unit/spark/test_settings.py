"""Spark settings that stand in the place of a session."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from connectx.api.cluster import Cluster
from connectx.errors.spark import SparkMasterError, SparkSettingError
from connectx.model.worker_config import WorkerConfig, embedded_config
from connectx.spark import sessions
from connectx.spark.sessions import SparkProvider
from connectx.spark.settings import SparkSettings
from connectx.verify.doctor.report import Status
from connectx.verify.doctor.spark_session import judge_session, judge_tasks, probe_session


@pytest.fixture
def port() -> Iterator[int]:
    """A port at which something listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"master": "local"}, "master does not begin with spark."),
        ({"spark.master": "spark://host"}, "spark.master=spark://host is not like spark://host:7077"),
        ({"spark.master": "local-cluster[2]"}, "is not like spark://host:7077"),
        ({"spark.master": "sc://host"}, "spark.master is the address of a Spark Connect server, which spark.remote"),
        ({"spark.remote": "spark://host:7077"}, "spark.remote is not like sc://host:15002"),
        ({"spark.remote": "sc://host", "spark.ui.enabled": True}, "it must be the only key"),
        ({"spark.submit.deployMode": "cluster"}, "spark.submit.deployMode must be client"),
        ({"spark.driver.extraClassPath": "a.jar"}, "spark.driver.extraClassPath has no effect"),
    ],
)
def test_settings_that_cannot_be_used_are_refused_before_anything_starts(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(SparkSettingError, match=r"cannot be used") as caught:
        SparkProvider(given)
    assert problem in caught.value.message


def test_all_problems_are_reported_at_once() -> None:
    with pytest.raises(SparkSettingError) as caught:
        SparkSettings.parse({"a": 1, "b": 2, "spark.master": "moon"})
    assert len(caught.value.problems) == 3


@pytest.mark.parametrize(
    ("master", "is_local"),
    [
        ("local", True),
        ("local[*]", True),
        ("local-cluster[2, 1, 1024]", True),
        ("spark://one:7077,two:7077", False),
        ("yarn", False),
        ("k8s://https://host:6443", False),
    ],
)
def test_spark_s_masters_are_known_and_those_of_this_machine_told_apart(master: str, is_local: bool) -> None:
    assert SparkSettings.parse({"spark.master": master}).is_local is is_local


def test_one_of_several_masters_that_answers_is_enough(port: int, closed_port: int) -> None:
    masters = f"spark://127.0.0.1:{closed_port},127.0.0.1:{port}"
    SparkSettings.parse({"spark.master": masters}).require_reachable()


@pytest.mark.parametrize("key", ["spark.master", "spark.remote"])
def test_a_master_or_server_that_does_not_answer_is_named_with_the_setting(closed_port: int, key: str) -> None:
    scheme, secret = ("spark", "") if key == "spark.master" else ("sc", "/;token=hush")
    settings = SparkSettings.parse({key: f"{scheme}://127.0.0.1:{closed_port}{secret}"})
    with pytest.raises(SparkMasterError, match="Connection refused") as caught:
        settings.require_reachable()
    assert f"{scheme}://127.0.0.1:{closed_port}:" in caught.value.message
    assert "hush" not in str(caught.value)
    assert key in caught.value.next_step


def test_a_key_that_is_almost_one_of_spark_s_is_refused_and_others_are_left_to_libraries() -> None:
    known = ["spark.executor.memory", "spark.executor.cores", "spark.ui.enabled"]
    SparkSettings.parse({"spark.executor.memory": "1g", "spark.sql.catalog.lake": "x"}).require_known(known, "4.0.0")
    with pytest.raises(SparkSettingError, match=r"spark\.executor\.memroy is not .* but spark\.executor\.memory is"):
        SparkSettings.parse({"spark.executor.memroy": "1g"}).require_known(known, "4.0.0")


def test_a_master_that_did_not_answer_is_asked_again_by_the_next_task(
    closed_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "active_session", lambda: None)
    provider = SparkProvider({"spark.master": f"spark://127.0.0.1:{closed_port}"})
    for _ in range(2):
        with pytest.raises(SparkMasterError):
            provider.task_session()
    monkeypatch.setattr(sessions._local_driver, "acquire", _refuse)
    with socket.create_server(("127.0.0.1", closed_port)), pytest.raises(SparkSettingError, match="reached"):
        provider.task_session()
    provider.close()


def _refuse(*arguments: object) -> None:
    raise SparkSettingError(["the master was reached"])


def test_a_worker_s_file_may_have_spark_settings() -> None:
    config = WorkerConfig.parse(embedded_config({"spark.master": "local[2]", "spark.ui.enabled": False}))
    assert config.spark_settings == {"spark.master": "local[2]", "spark.ui.enabled": "false"}
    assert not config.warnings


def test_a_session_beside_settings_of_another_is_refused() -> None:
    session: Any = object()
    with pytest.raises(SparkSettingError, match=r"spark= is a session already, and spark\.master"):
        Cluster(spark=session, config={"spark.master": "local[2]"})


def test_the_doctor_says_why_settings_give_no_session(closed_port: int, port: int) -> None:
    probe = probe_session({"spark.master": f"spark://127.0.0.1:{closed_port}"})
    assert [judge_session(probe).status, judge_tasks(probe, None).status] == [Status.BROKEN, Status.OFF]
    assert "Connection refused" in judge_session(probe).why
    assert judge_session(probe_session({"spark.master": f"spark://127.0.0.1:{port}"})).status is Status.OK
