"""What is wrong with a connector's configuration is told at once, in Kafka Connect's words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from connectx.data.converter import Converter
from connectx.errors.plugins import ConfigError, PluginNotFoundError
from connectx.model.configdef import ConfigDef, ConfigInfos
from connectx.model.validators import at_least
from connectx.model.worker_config import WorkerConfig, embedded_config
from connectx.plugins.connectors import SinkConnector, SourceConnector
from connectx.plugins.hidden_values import HiddenValues
from connectx.plugins.registry import Plugins
from connectx.plugins.trust_keys import UNUSED
from connectx.plugins.validation import validate_connector
from tests.support.profiles import dotted


def worker(**settings: str) -> WorkerConfig:
    given = dotted(settings)
    return WorkerConfig.parse(embedded_config({"bootstrap.servers": "x:1", **given}))


class Source(SourceConnector):
    config = (
        ConfigDef()
        .define("speed", int, 1, validator=at_least(1), group="Own")
        .define("token", str, "", secret=True)
        .define("key.converter.note", str, None)
    )

    @classmethod
    def validate(cls, config: Mapping[str, str | None]) -> Mapping[str, Sequence[str]]:
        if config.get("speed") == "13":
            raise ValueError("13 is bad luck")
        return {"speed": ["too fast for this road"], "road": ["no road"]} if config.get("speed") == "99" else {}

    @classmethod
    def exactly_once_support(cls, config: Mapping[str, str | None]) -> bool | None:
        if config.get("speed") == "4":
            raise ValueError("it depends")
        return {"1": True, "2": False}.get(config.get("speed") or "")

    @classmethod
    def can_define_transaction_boundaries(cls, config: Mapping[str, str | None]) -> bool | None:
        return cls.exactly_once_support(config)


class Sink(SinkConnector):
    """Has no keys of its own."""


def check(
    cls: type[SourceConnector] | type[SinkConnector], on: WorkerConfig | None = None, /, **config: Any
) -> ConfigInfos:
    plugins = Plugins()
    given = dotted(config)
    return validate_connector(plugins, {"name": "c", "connector.class": plugins.register(cls), **given}, on or worker())


def value_of(infos: ConfigInfos, name: str) -> Mapping[str, Any]:
    return next(info["value"] for info in infos["configs"] if info["value"]["name"] == name)


def errors_of(infos: ConfigInfos) -> dict[str, list[str]]:
    return {info["value"]["name"]: info["value"]["errors"] for info in infos["configs"] if info["value"]["errors"]}


def test_a_good_configuration_has_no_errors_and_every_key() -> None:
    infos = check(Source, speed="1")
    assert infos["error_count"] == 0
    names = [info["value"]["name"] for info in infos["configs"]]
    assert {"name", "connector.class", "tasks.max", "transaction.boundary", "speed", "token"} <= set(names)
    assert len(names) == len(set(names))
    assert infos["groups"] == [
        "Common", "Transforms", "Predicates", "Error Handling", "Topic Creation", "Exactly Once Support",
        "offsets.topic", "Own",
    ]  # fmt: skip


def test_errors_of_all_kinds_are_told_together() -> None:
    infos = check(Source, name="", speed="0", tasks_max="zero", errors_tolerance="some", value_converter="Xml")
    assert errors_of(infos) == {
        "name": ["Invalid value  for configuration name: String may not be empty"],
        "tasks.max": [
            "Invalid value zero for configuration tasks.max: Not a number of type INT",
            "Invalid value null for configuration tasks.max: Value must be non-null",
        ],
        "errors.tolerance": ["Invalid value some for configuration errors.tolerance: String must be one of: none, all"],
        "speed": ["Invalid value 0 for configuration speed: Value must be at least 1"],
        "value.converter": ["Invalid value Xml for configuration value.converter: Class Xml could not be found."],
    }
    assert infos["error_count"] == 6


def test_the_class_has_to_be_named_and_known() -> None:
    with pytest.raises(ConfigError, match="contains no connector type"):
        validate_connector(Plugins(), {"name": "c", "db.password": "x"}, worker())
    with pytest.raises(PluginNotFoundError, match="name matches Nope"):
        validate_connector(Plugins(), {"connector.class": "Nope"}, worker())


def test_a_missing_name_and_null_values_are_errors() -> None:
    plugins = Plugins()
    config = {"connector.class": plugins.register(Source), "speed": None, "other": None}
    found = errors_of(validate_connector(plugins, config, worker()))
    assert found == {
        "name": ['Missing required configuration "name" which has no default value.'],
        "speed": [
            "Null value can not be supplied as the configuration value.",
            "Invalid value null for configuration speed: Value must be non-null",
        ],
        "other": ["Null value can not be supplied as the configuration value."],
    }


def test_control_characters_may_not_be_in_a_name() -> None:
    assert errors_of(check(Source, name="a\nb"))["name"] == [
        "Invalid value a\nb for configuration name: String may not contain control sequences but had the following "
        "ASCII chars: 10"
    ]


def test_the_connector_has_the_last_word_also_on_keys_that_nobody_defined() -> None:
    infos = check(Source, speed="99", road="1")
    assert errors_of(infos) == {"speed": ["too fast for this road"], "road": ["no road"]}
    road = next(info for info in infos["configs"] if info["value"]["name"] == "road")
    assert road["definition"] is None
    speed = next(info for info in infos["configs"] if info["value"]["name"] == "speed")
    assert speed["definition"] is not None
    assert (speed["definition"]["type"], speed["value"]["value"]) == ("INT", "99")
    assert infos["error_count"] == 2
    assert errors_of(check(Source, speed="13"))["connector.class"] == [
        "An unexpected error occurred during validation: 13 is bad luck"
    ]


def test_keys_of_the_converter_appear_with_its_prefix() -> None:
    infos = check(Source, value_converter="Json", value_converter_schemas_enable="maybe", key_converter="String")
    assert errors_of(infos) == {
        "value.converter.schemas.enable": [
            "Invalid value maybe for configuration schemas.enable: Expected value to be either true or false"
        ]
    }
    definition = next(
        i["definition"] for i in infos["configs"] if i["value"]["name"] == "key.converter.converter.encoding"
    )
    assert definition is not None
    assert definition["name"] == "key.converter.converter.encoding"


def test_keys_that_the_java_class_lacks_are_shown_once_one_is_given() -> None:
    def shown(**config: str) -> set[str]:
        given = {"name": "c", "connector.class": "FileStreamSource", "file": "f", "topic": "t", **dotted(config)}
        names = {info["value"]["name"] for info in validate_connector(Plugins(), given, worker())["configs"]}
        return {name for name in names if name.startswith("rotated.")}

    assert shown() == set()
    assert shown(rotated_wait_ms="1") == {"rotated.files", "rotated.wait.ms"}


def test_a_version_that_is_not_installed_is_an_error_at_its_key() -> None:
    plugins = {
        "value.converter": "Json",
        "transforms": "a",
        "transforms.a.type": "org.apache.kafka.connect.transforms.Filter",
        "transforms.a.predicate": "p",
        "predicates": "p",
        "predicates.p.type": "org.apache.kafka.connect.transforms.predicates.RecordIsTombstone",
    }
    keys = [f"{prefix}.plugin.version" for prefix in ("value.converter", "transforms.a", "predicates.p")]
    given = {"name": "c", "connector.class": "FileStreamSource", "file": "f", "topic": "t", **plugins}
    keys.insert(0, "connector.plugin.version")
    for wanted, wrong in (("4.3.0", []), ("latest", []), ("99.99", keys), ("[4,5)", [])):
        infos = validate_connector(Plugins(), given | dict.fromkeys(keys, wanted), worker())
        assert sorted(errors_of(infos)) == sorted(wrong)


class Picky(Converter):
    """Refuses to be made."""

    config = ConfigDef().define("mood", str, "good")

    def __init__(self, settings: Mapping[str, str] | None = None, *, is_key: bool = False) -> None:
        match self.config.parse(settings or {})["mood"]:
            case "bad":
                raise ConfigError(["Bad mood."])
            case "worse":
                raise RuntimeError("no network")


@pytest.mark.parametrize("side", ["key", "value", "header"])
def test_a_converter_that_cannot_be_made_is_an_error_at_its_key(side: str) -> None:
    name, picky = f"{side}.converter", f"{__name__}.Picky"

    def errors(mood: str) -> dict[str, list[str]]:
        return errors_of(check(Source, **{name: picky, f"{name}.mood": mood}))

    assert errors("good") == {}
    assert errors("bad") == {name: ["Bad mood."]}
    (failure,) = errors("worse").pop(name)
    assert failure.endswith(f"{picky}: no network")


def test_a_header_converter_has_to_exist() -> None:
    assert errors_of(check(Source, header_converter="Simple")) == {}
    assert list(errors_of(check(Source, header_converter="Avro"))) == ["header.converter"]


def test_a_sink_consumes_either_topics_or_a_pattern() -> None:
    one = "Must configure one of topics or topics.regex"
    both = "topics and topics.regex are mutually exclusive options, but both are set."
    assert errors_of(check(Sink)) == {"topics": [one], "topics.regex": [one]}
    assert errors_of(check(Sink, topics="a", topics_regex="b.*")) == {"topics": [both], "topics.regex": [both]}
    assert errors_of(check(Sink, topics="a")) == {}
    assert errors_of(check(Sink, topics_regex="("))["topics.regex"][0].startswith("Invalid value ( for configuration")


def test_a_sink_may_not_consume_its_dead_letters() -> None:
    dead = {"errors_deadletterqueue_topic_name": "dlq"}
    assert errors_of(check(Sink, topics="a,dlq", **dead))["topics"] == [
        "The DLQ topic 'dlq' may not be included in the list of topics ('topics=[a, dlq]') consumed by the connector"
    ]
    assert errors_of(check(Sink, topics_regex="d.*", **dead))["topics.regex"] == [
        "The DLQ topic 'dlq' may not be matched by the regex for the topics ('topics.regex=d.*') consumed by the "
        "connector"
    ]


def test_a_sinks_group_may_not_be_the_workers() -> None:
    assert errors_of(check(Sink, worker(group_id="connect-c"), topics="a"))["name"] == [
        "Consumer group for sink connector named c conflicts with Connect worker group connect-c"
    ]
    clash = check(Sink, worker(group_id="g"), topics="a", consumer_override_group_id="g")
    assert errors_of(clash)["consumer.override.group.id"] == ["Consumer group g conflicts with Connect worker group g"]
    assert errors_of(check(Sink, worker(group_id="connect-c"), topics="a", consumer_override_group_id="x")) == {}


@pytest.mark.rule("618.6.6")
def test_required_exactly_once_asks_the_worker_and_the_connector() -> None:
    disabled = worker(exactly_once_source_support="disabled")
    key = "exactly.once.support"
    assert errors_of(check(Source, disabled, speed="1", exactly_once_support="Required"))[key] == [
        "This worker does not have exactly-once source support enabled."
    ]
    assert errors_of(check(Source, speed="1", exactly_once_support="required")) == {}
    assert errors_of(check(Source, speed="2", exactly_once_support="required"))[key] == [
        "The connector does not support exactly-once semantics with the provided configuration."
    ]
    unknown = errors_of(check(Source, speed="3", exactly_once_support="required"))[key]
    assert unknown[0].startswith("The connector does not implement the API required for preflight validation")
    assert errors_of(check(Source, speed="4", exactly_once_support="required"))[key] == [
        "An unexpected error occurred during validation: it depends"
    ]
    assert errors_of(check(Source, disabled, speed="2")) == {}


@pytest.mark.rule("618.6.6")
def test_connector_defined_boundaries_are_for_connectors_that_say_so() -> None:
    def problems(speed: str) -> list[str]:
        return errors_of(check(Source, speed=speed, transaction_boundary="Connector")).get("transaction.boundary", [])

    assert problems("1") == []
    assert problems("2") == [
        "The connector does not support connector-defined transaction boundaries with the given configuration. Please "
        "reconfigure it to use a different transaction boundary definition."
    ]
    assert problems("3")[0].startswith("This connector has returned a null value from its canDefineTransactionBound")
    assert problems("4") == ["An unexpected error occurred during validation: it depends"]
    assert list(errors_of(check(Source, transaction_boundary="sometimes"))) == ["transaction.boundary"]
    assert errors_of(check(Source, transaction_boundary="interval", transaction_boundary_interval_ms="5")) == {}


@pytest.mark.rule("618.6.7")
@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("acks", "1", "must be all"),
        ("max.in.flight.requests.per.connection", "6", "must be at most 5"),
        ("retries", "0", "must be greater than 0"),
    ],
)
def test_producer_overrides_that_exactly_once_cannot_have_are_refused(name: str, value: str, wanted: str) -> None:
    key = f"producer.override.{name}"
    (problem,) = errors_of(check(Source, **{key: value}))[key]
    assert problem.startswith(f"Invalid value {value} for configuration {key}: With exactly-once source support")
    assert wanted in problem
    assert errors_of(check(Source, worker(exactly_once_source_support="disabled"), **{key: value})) == {}


def test_producer_overrides_that_are_replaced_or_harmless_are_let_pass() -> None:
    harmless = {"acks": "ALL", "max.in.flight": "5", "retries": "1", "enable.idempotence": "false"}
    more = {"transactional.id": "mine", "transaction.timeout.ms": "5000"}
    assert errors_of(check(Source, **{f"producer.override.{k}": v for k, v in (harmless | more).items()})) == {}


def test_transformations_are_refused_rather_than_ignored() -> None:
    found = errors_of(check(Source, transforms="a,b", transforms_a_type="org.x.Y"))
    assert found == {
        "transforms.a.type": [
            "Invalid value org.x.Y for configuration transforms.a.type: Class org.x.Y could not be found."
        ],
        "transforms.b.type": ['Missing required configuration "transforms.b.type" which has no default value.'],
    }


def test_of_topic_creation_groups_only_the_list_of_names_is_validated() -> None:
    assert list(errors_of(check(Source, topic_creation_groups="g1, g2, g1"))) == ["topic.creation.groups"]
    assert errors_of(check(Source, topic_creation_groups="g1")) == {}


@pytest.mark.parametrize(
    ("policy", "refused"),
    [
        ("All", []),
        ("None", ["producer.override.linger.ms", "producer.override.sasl.mechanism"]),
        ("Principal", ["producer.override.linger.ms"]),
        ("org.x.PrincipalConnectorClientConfigOverridePolicy", ["producer.override.linger.ms"]),
        ("Allowlist", ["producer.override.sasl.mechanism"]),
    ],
)
def test_client_overrides_follow_the_workers_policy(policy: str, refused: list[str]) -> None:
    on = worker(connector_client_config_override_policy=policy, connector_client_config_override_allowlist="linger.ms")
    infos = check(Source, on, **{"producer.override.linger.ms": "5", "producer.override.sasl.mechanism": "PLAIN"})
    assert sorted(errors_of(infos)) == refused
    if refused:
        short = policy.rpartition(".")[2].removesuffix("ConnectorClientConfigOverridePolicy")
        name = refused[0].removeprefix("producer.override.")
        assert errors_of(infos)[refused[0]] == [
            f"The '{short}' policy does not allow '{name}' to be overridden in the connector configuration."
        ]


def test_bulk_keys_are_checked_where_they_are_given() -> None:
    found = errors_of(check(Source, **{"bulk.mode": "often", "bulk.min.bytes": "0"}))
    assert list(found) == ["bulk.mode", "bulk.min.bytes"]
    assert "bulk.mode" not in [info["value"]["name"] for info in check(Source)["configs"]]


def test_keys_of_restarts_and_limits_are_checked_where_they_are_given() -> None:
    assert list(errors_of(check(Source, **{"task.restart.max": "often"}))) == ["task.restart.max"]
    wrong = {"max.rows.per.second": "-1", "lag.alarm.ms": "soon"}
    assert list(errors_of(check(Sink, topics="t", **wrong))) == ["max.rows.per.second", "lag.alarm.ms"]


def test_fewer_connections_than_tasks_are_refused() -> None:
    (said,) = errors_of(check(Sink, topics="t", **{"max.connections": "2", "tasks.max": "3"}))["max.connections"]
    assert "each of the 3 tasks" in said
    for most in ("0", "3"):
        assert "max.connections" not in errors_of(
            check(Sink, topics="t", **{"max.connections": most, "tasks.max": "3"})
        )
    assert list(errors_of(check(Sink, topics="t", **{"max.connections": "-1"}))) == ["max.connections"]


def test_no_secret_is_in_the_answer() -> None:
    infos = check(Source, token="hunter2", **{"producer.override.sasl.jaas.config": "hunter2"})
    assert value_of(infos, "producer.override.sasl.jaas.config")["value"] == "[hidden]"
    assert "hunter2" not in str(infos)


def test_what_stood_behind_placeholders_is_not_logged_when_a_connector_fails_to_validate(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Talkative(Source):
        @classmethod
        def validate(cls, config: Mapping[str, str | None]) -> Mapping[str, Sequence[str]]:
            raise ValueError(f"cannot use {config['token']}")

    plugins = Plugins()
    config = {"name": "c", "connector.class": plugins.register(Talkative), "token": "hunter2"}
    hidden = HiddenValues()
    hidden.add("hunter2")
    validate_connector(plugins, config, worker())
    assert "failed to validate its configuration" in caplog.text
    assert "cannot use [hidden]" in caplog.text
    assert "hunter2" not in caplog.text


REGISTRY = {"value.converter": "AvroConverter", "value.converter.schema.registry.url": "https://registry.example"}


@pytest.mark.parametrize(
    ("connector", "config"),
    [
        ("JdbcSource", {"connection.sslMode": "VERIFY_IDENTITY"}),
        ("JdbcSink", {"connection.useSSL": "true"}),
        ("PostgresCdcSource", {"database.sslfactory": "NonValidating"}),
        ("PostgresCdcSource", {"driver.sslmode": "verify-full"}),
        ("HttpSink", {"https.host.verifier.enabled": "true"}),
        ("HttpSink", {"https.ssl.truststore.password": "staple"}),
        ("HttpSink", {"ssl.truststore.location": "/ca.pem"}),
        ("Generator", {**REGISTRY, "value.converter.schema.registry.ssl.truststore.password": "staple"}),
        ("Generator", {**REGISTRY, "value.converter.bearer.auth.token": "t0ken"}),
    ],
)
def test_a_key_about_trust_that_nothing_reads_is_an_error(connector: str, config: dict[str, str]) -> None:
    given = {"name": "c", "connector.class": connector, "topics": "t", **config}
    errors = errors_of(validate_connector(Plugins(), given, worker()))
    assert [name for name, found in errors.items() if UNUSED in found] == [[*config][-1]]


def test_other_unknown_keys_and_those_of_others_plugins_are_ignored() -> None:
    given = {"name": "c", "connector.class": "HttpSink", "topics": "t", "http.proxy.host": "p", "certainly": "1"}
    errors = errors_of(validate_connector(Plugins(), given, worker()))
    assert not [name for name, found in errors.items() if UNUSED in found]
    assert "ssl.keystore.location" not in errors_of(check(Sink, **{"ssl.keystore.location": "/own.p12"}))
