from __future__ import annotations

import logging
from typing import Any

import pytest

from connectx.kafka.settings.clients import ClientConfigs
from connectx.kafka.settings.librdkafka_log import LibrdkafkaLog
from connectx.model.ids import TaskId
from connectx.model.worker_config import WorkerConfig

TASK = TaskId("c", 2)


def clients(bootstrap_override: str | None = None, **settings: Any) -> ClientConfigs:
    given = {
        "bootstrap.servers": "kafka:9092",
        "group.id": "g",
        "config.storage.topic": "configs",
        "offset.storage.topic": "offsets",
        "status.storage.topic": "statuses",
        "key.converter": "k",
        "value.converter": "v",
    }
    return ClientConfigs(WorkerConfig.parse(given | settings), "worker-1", bootstrap_override)


def test_every_client_id_begins_with_the_workers_name_and_ends_with_connects() -> None:
    made = clients()
    assert [
        made.source_task_producer(TASK, {}, True)["client.id"],
        made.sink_consumer(TASK, {})["client.id"],
        made.admin("c", {})["client.id"],
        made.admin()["client.id"],
        made.internal_consumer()["client.id"],
        made.config_producer()["client.id"],
        made.status_producer()["client.id"],
        made.leader_producer()["client.id"],
        made.kafka_python("connector-worker-adminclient-c")["client_id"],
        made.sink_consumer(TASK, {"consumer.override.client.id": "mine"})["client.id"],
    ] == [
        "worker-1/connector-producer-c-2",
        "worker-1/connector-consumer-c-2",
        "worker-1/connector-adminclient-c",
        "worker-1/g-shared-admin",
        "worker-1/g-configs",
        "worker-1/g-configs",
        "worker-1/g-statuses",
        "worker-1/g-configs-leader",
        "worker-1/connector-worker-adminclient-c",
        "worker-1/mine",
    ]
    assert clients(**{"client.id": "me"}).admin()["client.id"] == "worker-1/g-me-shared-admin"


def test_only_members_of_sink_groups_carry_the_token_of_their_process_behind_the_workers_name() -> None:
    made = ClientConfigs(clients().worker, "worker-1", process_token="a1")
    assert [
        made.sink_consumer(TASK, {})["client.id"],
        made.sink_consumer(TASK, {"consumer.override.client.id": "worker-1/mine"})["client.id"],
        made.source_task_producer(TASK, {}, True)["client.id"],
        made.offsets_consumer(TASK, {}, True)["client.id"],
    ] == [
        "worker-1/a1/connector-consumer-c-2",
        "worker-1/a1/worker-1/mine",
        "worker-1/connector-producer-c-2",
        "worker-1/connector-consumer-c-2",
    ]


def test_layers_go_from_built_in_over_the_worker_to_the_connector() -> None:
    made = clients(**{"producer.linger.ms": "1", "producer.acks": "1", "linger.ms": "99"})
    config = made.source_task_producer(TASK, {"producer.override.acks": "0", "consumer.override.acks": "x"}, False)
    assert (config["acks"], config["linger.ms"], config["enable.idempotence"]) == ("0", "1", "false")
    assert config["max.in.flight.requests.per.connection"] == "1"


@pytest.mark.rule("618.6.7")
def test_an_exactly_once_producer_is_transactional_whatever_the_user_says(caplog: pytest.LogCaptureFixture) -> None:
    made = clients(**{"producer.transactional.id": "mine"})
    override = {"producer.override.enable.idempotence": "false", "producer.override.transaction.timeout.ms": "5000"}
    for _ in range(2):
        config = made.source_task_producer(TASK, override, True)
    assert config["transactional.id"] == "g-c-2"
    assert config["enable.idempotence"] == "true"
    assert config["transaction.timeout.ms"] == "5000"
    assert [record.getMessage() for record in caplog.records] == [
        "enable.idempotence=false is not used for exactly-once source task c-2: it is always true.",
        "transactional.id=mine is not used for exactly-once source task c-2: it is always g-c-2.",
    ]


def test_a_forced_value_that_the_user_gave_too_is_no_reason_to_warn(caplog: pytest.LogCaptureFixture) -> None:
    override = {"producer.override.enable.idempotence": "TRUE", "producer.override.transactional.id": "g-c-2"}
    clients().source_task_producer(TASK, override, True)
    assert caplog.records == []


def test_a_delivery_timeout_is_the_users() -> None:
    override = {"producer.override.delivery.timeout.ms": "120000", "producer.override.max.block.ms": "7"}
    for exactly_once in (True, False):
        config = clients().source_task_producer(TASK, override, exactly_once)
        assert (config["message.timeout.ms"], config["max.block.ms"]) == ("120000", "7")


def test_a_sink_consumer_is_a_member_of_the_connectors_group_unless_told_otherwise() -> None:
    config = clients().sink_consumer(TASK, {})
    assert (config["group.id"], config["enable.auto.commit"], config["auto.offset.reset"]) == (
        "connect-c",
        "false",
        "earliest",
    )
    override = {"consumer.override.group.id": "own", "consumer.override.enable.auto.commit": "true"}
    config = clients().sink_consumer(TASK, override)
    assert (config["group.id"], config["enable.auto.commit"]) == ("own", "false")


@pytest.mark.rule("618.1.1")
@pytest.mark.parametrize(
    ("support", "given", "used"),
    [
        ("disabled", None, "read_uncommitted"),
        ("disabled", "read_committed", "read_committed"),
        ("preparing", None, "read_uncommitted"),
        ("enabled", None, "read_committed"),
        ("enabled", "read_uncommitted", "read_committed"),
    ],
)
def test_internal_topics_are_read_committed_once_exactly_once_is_enabled(
    support: str, given: str | None, used: str
) -> None:
    settings = {"exactly.once.source.support": support} | ({"isolation.level": given} if given else {})
    assert clients(**settings).internal_consumer()["isolation.level"] == used


def test_the_leaders_producer_has_the_groups_transactional_id() -> None:
    config = clients().leader_producer()
    assert (config["transactional.id"], config["enable.idempotence"]) == ("connect-cluster-g", "true")


def test_the_workers_own_login_serves_its_tasks_too_and_an_override_wins() -> None:
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "al"}
    made = clients(**login, **{"sasl.password": "hush"})
    override = {"producer.override.sasl.username": "bob"}
    assert made.source_task_producer(TASK, override, False)["sasl.username"] == "bob"
    for config in (made.sink_consumer(TASK, {}), made.internal_consumer(), made.admin()):
        assert {key: config[key] for key in login} == login


def test_settings_of_the_worker_itself_do_not_reach_its_clients() -> None:
    made = clients(**{"session.timeout.ms": "7000", "rebalance.timeout.ms": "70000", "heartbeat.interval.ms": "1000"})
    for config in (made.internal_consumer(), made.sink_consumer(TASK, {}), made.admin()):
        assert not {"session.timeout.ms", "rebalance.timeout.ms", "heartbeat.interval.ms"} & set(config)


def test_the_gates_address_replaces_the_workers_but_not_a_connectors_own() -> None:
    made = clients("gate:1")
    assert made.admin()["bootstrap.servers"] == "gate:1"
    assert made.kafka_python("x")["bootstrap_servers"] == ["gate:1"]
    override = {"consumer.override.bootstrap.servers": "elsewhere:9092"}
    assert made.sink_consumer(TASK, override)["bootstrap.servers"] == "elsewhere:9092"


def test_no_text_form_shows_a_secret() -> None:
    made = clients(
        **{
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "al",
            "sasl.password": "hush",
            "ssl.key.pem": "hush",
        }
    )
    shown = [made.admin(), made.kafka_python("x"), made]
    assert all("hush" not in f"{config} {config!r}" for config in shown)


def test_lost_connections_and_fenced_producers_are_for_debugging_other_lines_keep_their_level(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.DEBUG):
        for facility in ("FAIL", "TXNERR", "OAUTHBEARER"):
            LibrdkafkaLog().log(logging.ERROR, "%s [%s] %s", facility, "w/c", "text")
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("DEBUG", "FAIL [w/c] text"),
        ("DEBUG", "TXNERR [w/c] text"),
        ("ERROR", "OAUTHBEARER [w/c] text"),
    ]
