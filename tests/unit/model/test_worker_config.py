"""A worker's settings: Kafka Connect's defaults, checks, and the notebook profile."""

from __future__ import annotations

import pytest

from connectx.errors.plugins import ConfigError
from connectx.model.group import ProtocolVersion
from connectx.model.states import ExactlyOnceSupport
from connectx.model.worker_config import (
    EMBEDDED_PROFILE,
    EMBEDDED_REASONS,
    StorageTopic,
    WorkerConfig,
    embedded_config,
    own_kafka_config,
)
from connectx.model.worker_keys import WORKER_CONFIG, WorkerKey, WorkerKeys

MINIMAL = {
    "bootstrap.servers": "a:1, b:2",
    "group.id": "g",
    "key.converter": "String",
    "value.converter": "Json",
    "config.storage.topic": "c",
    "offset.storage.topic": "o",
    "status.storage.topic": "s",
}


def test_defaults_are_kafka_connects() -> None:
    config = WorkerConfig.parse(MINIMAL)
    assert config.bootstrap_servers == "a:1,b:2"
    times = (
        config.session_timeout_ms,
        config.heartbeat_interval_ms,
        config.rebalance_timeout_ms,
        config.scheduled_rebalance_max_delay_ms,
        config.worker_sync_timeout_ms,
        config.worker_unsync_backoff_ms,
        config.task_shutdown_graceful_timeout_ms,
        config.offset_flush_interval_ms,
        config.offset_flush_timeout_ms,
        config.inter_worker_key_ttl_ms,
    )
    assert times == (10_000, 3_000, 60_000, 300_000, 3_000, 300_000, 5_000, 60_000, 5_000, 3_600_000)
    assert config.exactly_once_source_support is ExactlyOnceSupport.DISABLED
    assert config.connect_protocol == (ProtocolVersion.SESSIONED, ProtocolVersion.COMPATIBLE, ProtocolVersion.EAGER)
    assert config.config_topic == StorageTopic("c", 1, 3, {})
    assert config.offset_topic == StorageTopic("o", 25, 3, {})
    assert config.status_topic == StorageTopic("s", 5, 3, {})
    assert config.header_converter == "org.apache.kafka.connect.storage.SimpleHeaderConverter"
    assert config.inter_worker_verification_algorithms == ("HmacSHA256",)
    assert (config.listeners, config.admin_listeners) == (("http://:8083",), None)
    assert (config.topic_creation_enable, config.topic_tracking_enable) == (True, True)
    assert config.warnings == ()


def test_everything_that_is_required_is_asked_for_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        WorkerConfig.parse({"session.timeout.ms": "soon"})
    assert caught.value.problems == (
        'Missing required configuration "group.id" which has no default value.',
        "Invalid value soon for configuration session.timeout.ms: Not a number of type INT",
        'Missing required configuration "config.storage.topic" which has no default value.',
        'Missing required configuration "offset.storage.topic" which has no default value.',
        'Missing required configuration "status.storage.topic" which has no default value.',
        'Missing required configuration "key.converter" which has no default value.',
        'Missing required configuration "value.converter" which has no default value.',
        'Missing required configuration "bootstrap.servers" which has no default value.',
    )


@pytest.mark.parametrize(
    ("setting", "value", "problem"),
    [
        ("connect.protocol", "lazy", "Invalid Connect protocol compatibility"),
        ("offset.storage.partitions", "0", "Number of partitions must be positive, or -1 to use the broker's default"),
        (
            "exactly.once.source.support",
            "maybe",
            "String must be one of (case insensitive): DISABLED, ENABLED, PREPARING",
        ),
        (
            "inter.worker.signature.algorithm",
            "HmacSHA1",
            "Signature algorithm must be present in inter.worker.verification.algorithms list",
        ),
        ("heartbeat.interval.ms", "10000", "Heartbeat must be set lower than the session timeout (session.timeout.ms)"),
        ("scheduled.rebalance.max.delay.ms", "-1", "Value must be at least 0"),
    ],
)  # fmt: skip
def test_values_out_of_bounds(setting: str, value: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        WorkerConfig.parse({**MINIMAL, setting: value})
    assert caught.value.problems == (f"Invalid value {value} for configuration {setting}: {problem}",)


@pytest.mark.parametrize(
    ("servers", "problem"), [("", "No host:port is given"), ("a:1,kafka", "kafka is not host:port")]
)
def test_kafka_has_an_address_with_a_port(servers: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        WorkerConfig.parse({**MINIMAL, "bootstrap.servers": servers})


@pytest.mark.parametrize("servers", ["kafka-1.example:9092", "[::1]:9092", "PLAINTEXT://my_host:9092", "a:1,,b:2"])
def test_addresses_of_kafka_as_its_clients_take_them(servers: str) -> None:
    assert WorkerConfig.parse({**MINIMAL, "bootstrap.servers": servers}).bootstrap_servers


@pytest.mark.parametrize("listener", ["8083", "ftp://:8083", "http://localhost"])
def test_a_listener_is_a_url_with_a_port(listener: str) -> None:
    with pytest.raises(ConfigError, match="must look like"):
        WorkerConfig.parse({**MINIMAL, "listeners": listener})


def test_protocols_are_offered_by_preference() -> None:
    offered = {
        name: WorkerConfig.parse({**MINIMAL, "connect.protocol": name}).connect_protocol
        for name in ("EAGER", "compatible")
    }
    assert offered == {
        "EAGER": (ProtocolVersion.EAGER,),
        "compatible": (ProtocolVersion.COMPATIBLE, ProtocolVersion.EAGER),
    }


def test_typed_values_and_prefixes() -> None:
    config = WorkerConfig.parse({
        **MINIMAL,
        "producer.linger.ms": 5,
        "producer.": "odd",
        "topic.creation.enable": False,
        "offset.storage.segment.bytes": "1000",
        "offset.storage.cleanup.policy": "delete",
        "exactly.once.source.support": "Enabled",
    })  # fmt: skip
    assert config.prefixed("producer.") == {"linger.ms": "5"}
    assert config.topic_creation_enable is False
    assert config.offset_topic.settings == {"segment.bytes": "1000"}
    assert config.exactly_once_source_enabled
    assert config.config_transactional_id == "connect-cluster-g"
    assert config.task_transactional_id("c", 0) == "g-c-0"


@pytest.mark.rule("618.1.3")
def test_the_leaders_transactional_id_is_kafka_connects_unless_the_setting_of_kip_618_names_another() -> None:
    assert WorkerConfig.parse(MINIMAL).config_transactional_id == "connect-cluster-g"
    config = WorkerConfig.parse({**MINIMAL, "transactional.id": "g"})
    assert config.config_transactional_id == "g"
    (warning,) = config.warnings
    assert "connect-cluster-<group.id>" in warning, "whoever mixes workers must know"


def test_what_has_no_effect_is_told() -> None:
    config = WorkerConfig.parse(
        {
            **MINIMAL,
            "foo": "1",
            "rest.port": "8083",
            "config.storage.partitions": "3",
            "ssl.x": "y",
        }
    )
    assert config.warnings == (
        "config.storage.partitions has no effect: the config topic always has one partition.",
        "foo is not a key of a Kafka Connect worker and has no effect.",
        "rest.port was removed from Kafka Connect and has no effect.",
    )
    assert config.config_topic.partitions == 1


def test_a_misspelled_key_is_told_with_the_one_that_was_meant() -> None:
    (warning,) = WorkerConfig.parse({**MINIMAL, "scheduled.rebalance.max.delay": "0"}).warnings
    assert warning.endswith("Did you mean scheduled.rebalance.max.delay.ms?")


@pytest.mark.parametrize("port", ["65536", "99999", "9" * 5000])
@pytest.mark.parametrize("key", ["listeners", "admin.listeners", "bootstrap.servers"])
def test_a_port_that_cannot_be_is_refused(key: str, port: str) -> None:
    url = f"127.0.0.1:{port}" if key == "bootstrap.servers" else f"http://127.0.0.1:{port}"
    with pytest.raises(ConfigError) as caught:
        WorkerConfig.parse({**MINIMAL, key: url})
    (problem,) = caught.value.problems
    assert key in problem


def test_the_last_port_there_is_can_be_used() -> None:
    config = {**MINIMAL, "listeners": "http://127.0.0.1:065535", "bootstrap.servers": "127.0.0.1:65535"}
    assert WorkerConfig.parse(config).warnings == ()


def test_secrets_are_not_in_the_text_form() -> None:
    secrets = {
        "sasl.jaas.config": "hunter2",
        "ssl.keystore.password": "hunter2",
        "producer.ssl.key.password": "hunter2",
        "ssl.keystore.key": "hunter2",
    }
    assert "hunter2" not in repr(WorkerConfig.parse({**MINIMAL, **secrets}))


def test_the_notebook_profile_gives_way_to_the_user_and_names_topics_after_the_group() -> None:
    config = WorkerConfig.parse(
        embedded_config({"bootstrap.servers": "x:1", "group.id": "flights", "session.timeout.ms": "9000"})
    )
    assert (config.session_timeout_ms, config.heartbeat_interval_ms) == (9000, 500)
    assert config.scheduled_rebalance_max_delay_ms == 3000
    assert config.prefixed("consumer.") == {"session.timeout.ms": "3000", "heartbeat.interval.ms": "300"}
    topics = (config.config_topic, config.offset_topic, config.status_topic)
    assert [topic.name for topic in topics] == ["flights-configs", "flights-offsets", "flights-statuses"]
    assert [topic.replication_factor for topic in topics] == [1, 1, 1]
    assert config.errors_deadletterqueue_topic_replication_factor == 1
    assert config.exactly_once_source_enabled
    assert config.warnings == ()
    assert all(url.startswith("http://127.0.0.1:") for url in config.listeners)
    assert EMBEDDED_REASONS.keys() == EMBEDDED_PROFILE.keys()


def test_an_own_kafka_keeps_connects_times() -> None:
    config = WorkerConfig.parse(own_kafka_config({"bootstrap.servers": "x:1"}))
    assert (config.session_timeout_ms, config.scheduled_rebalance_max_delay_ms) == (10_000, 300_000)
    assert config.config_topic.replication_factor == 3


def test_a_key_is_declared_once_and_read_as_key_and_as_value() -> None:
    delay = WorkerKeys.scheduled_rebalance_max_delay_ms
    assert (delay.name, delay.default, delay.parse({})) == ("scheduled.rebalance.max.delay.ms", 300_000, 300_000)
    given = {**MINIMAL, delay.name: "0"}
    assert (delay.parse(given), WorkerConfig.parse(given).scheduled_rebalance_max_delay_ms) == (0, 0)
    declared = {name: key for name, key in vars(WorkerKeys).items() if isinstance(key, WorkerKey)}
    assert {name: key.name for name, key in declared.items()} == {
        name.replace(".", "_"): name for name in WORKER_CONFIG.keys
    }
    assert all(key.definition.doc for key in declared.values())


def test_the_address_of_a_started_broker_changes_nothing_else() -> None:
    config = WorkerConfig.parse(embedded_config({"group.id": "flights", "foo": "1"}))
    started = config.connected_to("127.0.0.1:9092")
    assert (config.bootstrap_servers, started.bootstrap_servers) == ("127.0.0.1:0", "127.0.0.1:9092")
    assert started == WorkerConfig.parse(
        embedded_config({"group.id": "flights", "foo": "1", "bootstrap.servers": "127.0.0.1:9092"})
    )
