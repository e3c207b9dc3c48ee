"""REST of two live workers: the OpenAPI document against what they answer, clients of others, metrics, loggers."""

from __future__ import annotations

import json
import logging
import ssl
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import httpx
import pytest
import schemathesis
import trustme
from hypothesis import HealthCheck, settings
from kafka_connect import KafkaConnect
from kafkaconnect.connect import Connect
from prometheus_client.parser import text_string_to_metric_families
from requests.exceptions import HTTPError
from schemathesis import checks

import connectx as cx
from connectx.kafka.broker.embedded import EmbeddedKafka
from connectx.rest.openapi import openapi
from connectx.rest.operations import OPERATIONS
from tests.support.java_worker import peer_config
from tests.support.waiting import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DOCUMENT = openapi(OPERATIONS, version="4.3.0", schemes={})
CHECKS = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
    checks.response_headers_conformance,
    checks.unsupported_method,
]
schema = schemathesis.openapi.from_dict(DOCUMENT)
WAIT_S = 60.0

T = TypeVar("T")


@pytest.fixture(scope="module")
def cluster(kafka: EmbeddedKafka, spark: SparkSession) -> Iterator[cx.Cluster]:
    config = peer_config(kafka.bootstrap_servers, "live-rest")
    with cx.Cluster(2, config=config, spark=spark, join=True) as made:
        yield made


@pytest.fixture(scope="module")
def urls(cluster: cx.Cluster) -> list[str]:
    """The leader's, then the follower's, without a slash at the end."""
    leading = sorted(cluster.workers, key=lambda worker: not worker.is_leader)
    return [worker.url.rstrip("/") for worker in leading]


@pytest.fixture
def lines(cluster: cx.Cluster, tmp_path: Path) -> Iterator[dict[str, str]]:
    """Configuration of a source of three lines; every connector is deleted afterwards."""
    (tmp_path / "in.txt").write_text("one\ntwo\nthree\n")
    yield {"connector.class": "FileStreamSource", "file": str(tmp_path / "in.txt"), "topic": f"live-{tmp_path.name}"}
    for connector in cluster.connectors:
        connector.delete()


def is_done(path: str, verify: ssl.SSLContext, login: dict[str, str]) -> bool:
    """Whether a POST is answered with 204; with 409 while the group rebalances."""
    return httpx.post(path, verify=verify, headers=login).status_code == 204


@schema.parametrize()
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
def test_what_is_answered_is_what_the_openapi_document_says(case: Any, urls: list[str]) -> None:
    case.call_and_validate(base_url=urls[0], checks=CHECKS)


def test_the_document_that_is_served_is_the_one_that_was_tested(urls: list[str]) -> None:
    assert httpx.get(urls[0] + "/openapi.json").json() == json.loads(json.dumps(DOCUMENT))


def patient(call: Callable[[], T]) -> T:
    """What a user of these clients does after a 409, which says that the group rebalances: ask again."""

    def attempt() -> tuple[T] | None:
        try:
            answer = call()
        except HTTPError as error:
            if "409" in str(error):
                return None
            raise
        return None if answer == "Kafka cluster rebalance is in process." else (answer,)

    return until(attempt, "the group to take the request", WAIT_S)[0]


def state(status: dict[str, Any]) -> tuple[str, list[str]]:
    return status["connector"]["state"], [task["state"] for task in status["tasks"]]


def test_kafka_connect_py_works_unchanged(urls: list[str], lines: dict[str, str]) -> None:
    client = KafkaConnect(url=urls[1])
    assert client.get_cluster_info()["version"] == "4.3.0"
    assert patient(lambda: client.create_connector({"name": "kcp", "config": lines}))["name"] == "kcp"
    until(lambda: _of(client, "kcp") == ("RUNNING", ["RUNNING"]), "it to run", WAIT_S)
    assert client.get_connector("kcp")["type"] == "source"
    assert client.get_connector_config("kcp") == {**lines, "name": "kcp"}
    assert client.list_connectors(expand="status", state="running").keys() == {"kcp"}
    assert client.list_connector_tasks("kcp")[0]["id"] == {"connector": "kcp", "task": 0}
    assert client.get_connector_task_status("kcp", 0)["state"] == "RUNNING"
    until(lambda: client.list_connector_topics("kcp")["kcp"]["topics"] == [lines["topic"]], "its topic", WAIT_S)
    client.reset_connector_topics("kcp")
    client.pause_connector("kcp")
    until(lambda: _of(client, "kcp") == ("PAUSED", ["PAUSED"]), "the pause", WAIT_S)
    client.resume_connector("kcp")
    until(lambda: _of(client, "kcp") == ("RUNNING", ["RUNNING"]), "it to run again", WAIT_S)
    restarted = patient(lambda: client.restart_connector("kcp", include_tasks=True))
    assert restarted["connector"]["state"] == "RESTARTING"
    until(lambda: _of(client, "kcp") == ("RUNNING", ["RUNNING"]), "the restart", WAIT_S)
    patient(lambda: client.restart_connector_task("kcp", 0))
    updated = patient(lambda: client.update_connector("kcp", {**lines, "batch.size": "7"}))
    assert updated["config"]["batch.size"] == "7"
    assert "FileStreamSource" in str(client.list_connector_plugins())
    assert client.validate_connector_config("FileStreamSource", {**lines, "name": "kcp"})["error_count"] == 0
    until(lambda: _of(client, "kcp") == ("RUNNING", ["RUNNING"]), "the new configuration", WAIT_S)
    patient(lambda: client.stop_connector("kcp"))
    until(lambda: _of(client, "kcp") == ("STOPPED", []), "the stop", WAIT_S)
    patient(lambda: client.delete_connector("kcp"))
    until(lambda: client.list_connectors() == [], "the deletion", WAIT_S)


def _of(client: KafkaConnect, name: str) -> tuple[str, list[str]] | None:
    shown = client.list_connectors(expand="status")
    return state(shown[name]["status"]) if name in shown else None


def test_kafkaconnect_works_unchanged(urls: list[str], lines: dict[str, str]) -> None:
    client = Connect(urls[1])
    assert json.loads(client.validate("FileStreamSource", json.dumps({**lines, "name": "kc"})))["error_count"] == 0
    created = patient(lambda: client.create_or_update("kc", json.dumps(lines)))
    assert json.loads(created)["name"] == "kc"
    until(lambda: "RUNNING" in client.status("kc") and "task" in client.info("kc"), "it to run", WAIT_S)
    until(lambda: state(json.loads(client.status("kc"))) == ("RUNNING", ["RUNNING"]), "its task to run", WAIT_S)
    assert json.loads(client.config("kc")) == {**lines, "name": "kc"}
    assert json.loads(client.tasks("kc"))[0]["id"] == {"connector": "kc", "task": 0}
    assert json.loads(client.topics("kc")).keys() == {"kc"}
    assert json.loads(client.list()) == ["kc"]
    assert "FileStreamSource" in client.plugins()
    assert [client.pause("kc"), client.resume("kc"), patient(lambda: client.restart("kc"))] == ["", "", ""]
    assert patient(lambda: client.remove("kc")) == ""
    until(lambda: json.loads(client.list()) == [], "the deletion", WAIT_S)


def samples(url: str) -> dict[tuple[str, str], float]:
    """Value by name and connector."""
    families = text_string_to_metric_families(httpx.get(url + "/metrics").text)
    return {(one.name, one.labels.get("connector", "")): one.value for family in families for one in family.samples}


def test_metrics_tell_what_the_workers_do(urls: list[str], cluster: cx.Cluster, lines: dict[str, str]) -> None:
    cluster.create("counted", lines)
    out = {"connector.class": "FileStreamSink", "file": lines["file"] + ".out", "topics": lines["topic"]}
    cluster.create("put", out)
    cluster.wait("counted")
    cluster.wait("put")

    def together(name: str, connector: str = "") -> float:
        return sum(samples(url).get((name, connector), 0) for url in urls)

    source, sink = "kafka_connect_source_task_source_record_", "kafka_connect_sink_task_sink_record_"
    until(lambda: together(sink + "send_total", "put") == 3, "three records put", WAIT_S)
    assert (together(source + "poll_total", "counted"), together(source + "write_total", "counted")) == (3, 3)
    assert together("kafka_connect_source_task_transaction_size_max", "counted") == 3
    assert together("kafka_connect_worker_task_count") == 2
    assert together("kafka_connect_connector_status", "put") == together("kafka_connect_connector_info", "put") == 1
    assert together("kafka_connect_worker_rebalance_completed_rebalances_total") >= 2
    until(lambda: together(sink + "lag_max", "put") == 0, "no lag", WAIT_S)
    until(lambda: together("kafka_connect_sink_task_offset_commit_completion_total", "put") >= 1, "a commit", WAIT_S)
    until(lambda: together(sink + "active_count", "put") == 0, "nothing to commit", WAIT_S)
    assert together(sink + "active_count_max", "put") >= 1
    assert together(source + "active_count_max", "counted") == 3
    assert together("kafka_connect_connector_task_info", "put") == 1
    for name in ("join_total", "sync_total", "heartbeat_total"):
        assert together(f"kafka_connect_coordinator_{name}") >= 2
    until(lambda: together("connectx_zombie_tasks") == 0, "no zombies", WAIT_S)


def test_the_error_that_a_task_failed_of_stays_in_its_metrics_until_it_is_started_again(
    urls: list[str], cluster: cx.Cluster, lines: dict[str, str]
) -> None:
    integers = "org.apache.kafka.connect.converters.IntegerConverter"
    cluster.create("wrong", {**lines, "value.converter": integers})
    errors = "kafka_connect_task_error_total_record_errors_total"

    def recorded(name: str) -> float | None:
        return next((found[name, "wrong"] for found in map(samples, urls) if (name, "wrong") in found), None)

    until(lambda: recorded(errors) == 1, "the error", WAIT_S)
    until(lambda: cluster["wrong"].status()["tasks"][0]["state"] == "FAILED", "the failure", WAIT_S)
    assert (recorded(errors), recorded("kafka_connect_task_error_total_record_failures_total")) == (1, 1)
    assert recorded("kafka_connect_source_task_source_record_poll_total") is None
    cluster["wrong"].delete()
    until(lambda: recorded(errors) is None, "the metrics to go", WAIT_S)


def test_a_logger_is_set_on_one_worker_or_on_all(urls: list[str]) -> None:
    """Workers here share a process, so that the record in the config topic is what can be seen of the others."""
    name = f"live.rest.{id(urls)}"
    path = f"/admin/loggers/{name}"
    assert httpx.put(urls[0] + path, json={"level": "ERROR"}).json() == [name]
    assert httpx.get(urls[0] + path).json()["level"] == "ERROR"
    assert httpx.get(urls[1] + path).json() == {"level": "ERROR", "last_modified": None}
    assert httpx.put(urls[1] + path + "?scope=cluster", json={"level": "debug"}).status_code == 204
    until(lambda: logging.getLogger(name).level == logging.DEBUG, "a worker to read the record", WAIT_S)


def test_a_cluster_behind_logins_and_tls_works_as_one_without(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    """Clients of ours log in, workers forward to each other, and followers publish task configurations, signed."""
    authority = trustme.CA()
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "key.pem"))
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    (tmp_path / "tokens").write_text("a-token\n")
    (tmp_path / "in.txt").write_text("one\n")
    config = peer_config(kafka.bootstrap_servers, "live-login") | {
        "listeners": "https://127.0.0.1:0",
        "rest.auth.bearer.file": str(tmp_path / "tokens"),
        "listeners.https.ssl.keystore.type": "PEM",
        "listeners.https.ssl.keystore.location": str(tmp_path / "key.pem"),
        "listeners.https.ssl.truststore.type": "PEM",
        "listeners.https.ssl.truststore.location": str(tmp_path / "ca.pem"),
    }
    with cx.Cluster(2, config=config, spark=spark, join=True) as guarded:
        for number in (1, 2):  # one for each worker
            lines = {"connector.class": "FileStreamSource", "file": str(tmp_path / "in.txt")}
            guarded.create(f"lines-{number}", {**lines, "topic": f"guarded-{number}"})
        for number in (1, 2):
            guarded.wait(f"lines-{number}")
        assert [len(worker.connectors) for worker in guarded.workers] == [1, 1]
        verify = ssl.create_default_context()
        authority.configure_trust(verify)
        for worker in guarded.workers:
            assert httpx.get(worker.url + "connectors", verify=verify).status_code == 401
            path, login = worker.url + "connectors/lines-1/restart", {"authorization": "Bearer a-token"}
            until(partial(is_done, path, verify, login), "the restart", WAIT_S)
