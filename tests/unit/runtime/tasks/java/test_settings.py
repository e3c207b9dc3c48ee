"""Settings of the JVM, and of the clients of its tasks."""

from __future__ import annotations

from pathlib import Path

import pytest

from connectx.kafka.settings.clients import ClientConfigs
from connectx.model.ids import TaskId
from connectx.model.worker_config import WorkerConfig, embedded_config
from connectx.runtime.tasks.java.settings import link_plugins, task_settings, worker_settings

TASK = TaskId("c", 0)


def worker_of(**settings: str) -> WorkerConfig:
    given = {key.replace("_", "."): value for key, value in settings.items()}
    return WorkerConfig.parse(embedded_config({"bootstrap.servers": "broker:1", "group.id": "g", **given}))


def of_jvm(**settings: str) -> dict[str, str]:
    config = worker_of(**settings)
    clients = ClientConfigs(config, "worker-1", "gate:2")
    return worker_settings("worker-1", config, clients, in_manifests=True, plugins=Path("/p"))


def test_every_client_of_the_jvm_goes_through_the_gate_under_the_name_of_its_worker() -> None:
    found = of_jvm(client_id="mine", consumer_client_id="own")
    assert found["bootstrap.servers"] == "gate:2"
    ids = {key: text for key, text in found.items() if key.endswith("client.id")}
    assert ids == {
        "client.id": "worker-1/mine-java",
        "producer.client.id": "worker-1/mine-java-producer",
        "consumer.client.id": "worker-1/own",
        "admin.client.id": "worker-1/mine-java-admin",
    }


def test_the_jvm_sees_the_plugins_that_its_worker_has_found_and_nothing_of_rest() -> None:
    found = of_jvm(plugin_path="/elsewhere", rest_auth_basic_file="/secret", config_providers="file")
    assert (found["plugin.path"], found["plugin.discovery"]) == ("/p", "service_load")
    assert [key for key in found if key.startswith(("rest.", "listeners", "config.providers"))] == []


def test_security_settings_of_a_worker_are_those_of_its_clients_unless_they_have_their_own() -> None:
    found = of_jvm(security_protocol="SASL_SSL", sasl_mechanism="PLAIN", producer_sasl_mechanism="OAUTHBEARER")
    roles = [found[f"{role}.security.protocol"] for role in ("producer", "consumer", "admin")]
    assert roles == ["SASL_SSL"] * 3
    assert (found["producer.sasl.mechanism"], found["consumer.sasl.mechanism"]) == ("OAUTHBEARER", "PLAIN")


def test_a_task_has_client_ids_of_its_worker_even_if_the_connector_names_them() -> None:
    given = {"producer.override.client.id": "mine"}
    found = task_settings("worker-1", worker_of(), TASK, given, sink=False)
    assert found["producer.override.client.id"] == "worker-1/mine"
    assert found["consumer.override.client.id"] == "worker-1/connector-consumer-c-0"
    assert found["admin.override.client.id"] == "worker-1/connector-adminclient-c-0"
    assert given == {"producer.override.client.id": "mine"}, "it goes to no topic"


def test_topics_of_a_source_are_created_as_the_broker_does_unless_it_says_otherwise() -> None:
    key = "topic.creation.default.partitions"
    assert task_settings("w", worker_of(), TASK, {}, sink=False)[key] == "-1"
    assert task_settings("w", worker_of(), TASK, {key: "3"}, sink=False)[key] == "3"
    assert key not in task_settings("w", worker_of(topic_creation_enable="false"), TASK, {}, sink=False)
    assert key not in task_settings("w", worker_of(), TASK, {}, sink=True)


@pytest.mark.parametrize(
    ("worker", "connector", "level"),
    [
        ({}, {}, "read_committed"),
        ({}, {"consumer.override.isolation.level": "read_uncommitted"}, "read_uncommitted"),
        ({"consumer_isolation_level": "read_uncommitted"}, {}, None),
    ],
)
def test_a_sink_reads_committed_records_unless_configured_otherwise(
    worker: dict[str, str], connector: dict[str, str | None], level: str | None
) -> None:
    found = task_settings("w", worker_of(**worker), TASK, connector, sink=True)
    assert found.get("consumer.override.isolation.level") == level


def test_a_dead_letter_queue_has_the_workers_default_of_replicas() -> None:
    key = "errors.deadletterqueue.topic.replication.factor"
    with_queue: dict[str, str | None] = {"errors.deadletterqueue.topic.name": "q"}
    assert task_settings("w", worker_of(), TASK, with_queue, sink=True)[key] == "1"
    assert task_settings("w", worker_of(), TASK, {**with_queue, key: "2"}, sink=True)[key] == "2"
    assert key not in task_settings("w", worker_of(), TASK, {}, sink=True)


def test_locations_of_one_name_are_linked_apart(tmp_path: Path) -> None:
    locations = [tmp_path / "a" / "plugin.jar", tmp_path / "b" / "plugin.jar"]
    linked = link_plugins(locations, tmp_path)
    assert [link.readlink() for link in sorted(linked.iterdir())] == locations
