"""What REST answers beside the core, where it needs no Kafka."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from connectx.errors.kafka import ClientSettingError
from connectx.errors.rest import RestError
from connectx.kafka.admin.groups import GroupDescription
from connectx.kafka.group import GroupRequests
from connectx.kafka.settings.clients import ClientConfigs
from connectx.model.states import ConnectorType
from connectx.model.worker_config import WorkerConfig, embedded_config
from connectx.plugins.connectors import SourceConnector
from connectx.plugins.registry import Plugins
from connectx.protocol.offsets_topic import encode_offset_key
from connectx.rest.bodies import NewOffset
from connectx.rest.loggers import WorkerLoggers
from connectx.rest.stages import Stage
from connectx.runtime import rest_services
from connectx.runtime.metrics import WorkerMetrics
from connectx.runtime.rest_services import RestServices

PROVIDER = {"config.providers": "env", "config.providers.env.class": "EnvVarConfigProvider"}


class Strict(SourceConnector):
    """Takes no offsets, and quotes its configuration as it says so."""

    error: ClassVar[type[Exception]] = ValueError

    @classmethod
    def check_offsets(cls, config: Mapping[str, str | None], offsets: Any) -> None:
        raise cls.error(f"no offsets at {config['url']}")


class Wordy(Strict):
    """Quotes its configuration in the next step."""

    @classmethod
    def check_offsets(cls, config: Mapping[str, str | None], offsets: Any) -> None:
        raise RestError("No offsets.", status=409, next_step=f"Look at {config['url']}.")


class Broken(Strict):
    """Fails with what nobody expects."""

    error = TypeError


@pytest.fixture
def plugins() -> Plugins:
    return Plugins()


JVM: Any = None  # no test has a Java connector


@pytest.fixture
def services(plugins: Plugins) -> Iterator[RestServices]:
    worker = WorkerConfig.parse(embedded_config({"bootstrap.servers": "127.0.0.1:1", **PROVIDER}))
    topics: Any = None  # no test reads the config topic
    made = RestServices(
        worker, ClientConfigs(worker, "w"), plugins, topics, dict, lambda transition: None, plugins.providers(worker),
        WorkerMetrics(dict, dict, lambda: None, lambda: 0, GroupRequests()), WorkerLoggers(), JVM,
        stage=lambda: Stage("awaiting startup", 0), heartbeat_ms=lambda: None, clock=lambda: 0,
    )  # fmt: skip
    yield made
    made.close()


def test_a_plugin_that_nobody_knows_is_a_404_by_which_others_see_that_this_worker_lacks_it(
    services: RestServices,
) -> None:
    for name in ("no.such.Plugin", "Nothing"):
        with pytest.raises(RestError, match=name) as unknown:
            services.plugin_config(name)
        assert unknown.value.status == 404


def test_a_question_about_a_plugin_imports_no_file_of_the_folder(
    services: RestServices, plugins: Plugins, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "import connectx as cx\nclass Mine(cx.SinkConnector):\n    config = cx.ConfigDef()\n"
    for folder in ("org", "com"):
        (tmp_path / folder).mkdir()
    for file in ("lying_about.py", "org/apache.py", "com/lying_about.py"):
        (tmp_path / file).write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    before = {*sys.modules}
    for name in ("lying_about.Mine", "lying_about:Mine", "org.apache.Mine", "com.lying_about.Mine"):
        with pytest.raises(RestError):
            services.plugin_config(name)
    assert not [name for name in {*sys.modules} - before if name.startswith(("lying_about", "org", "com"))]
    assert plugins.connector_class("lying_about.Mine").__name__ == "Mine"  # as a configuration does
    assert "connector.class" in [key["name"] for key in services.plugin_config("lying_about.Mine")]
    monkeypatch.delitem(sys.modules, "lying_about")


@pytest.mark.parametrize(
    ("cls", "status", "sentence"),
    [
        (Strict, 400, "no offsets at [hidden]"),
        (Broken, None, "no offsets at [hidden]"),
        (Wordy, 409, "No offsets. Look at [hidden]."),
    ],
)
def test_what_stood_behind_a_placeholder_is_known_to_the_masker_of_refusals(
    cls: type[Strict],
    status: int | None,
    sentence: str,
    services: RestServices,
    plugins: Plugins,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DATABASE", "db/s3cret")
    config = {"connector.class": plugins.register(cls), "url": "${env:DATABASE}"}
    with pytest.raises((RestError, TypeError)) as refused:
        services.alter_offsets("c", ConnectorType.SOURCE, config, [NewOffset({"p": 1}, {"o": 1})])
    assert (getattr(refused.value, "status", None), services.masked(str(refused.value))) == (status, sentence)


def test_a_client_setting_that_cannot_be_used_is_told_without_what_stood_behind_its_placeholder(
    services: RestServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STORE", "/s3cret/place")
    config = {"connector.class": "FileStreamSink", "consumer.override.ssl.truststore.location": "${env:STORE}"}
    with pytest.raises(ClientSettingError) as refused:
        services.read_offsets("c", ConnectorType.SINK, config)
    assert "truststore.location=[hidden] cannot be used" in services.masked(str(refused.value))


class Lenient(SourceConnector):
    """Any offsets are fine, which it may keep elsewhere, too."""


SINK_KEYS = "'kafka_topic' and 'kafka_partition'"
OF_SINK: dict[str, Any] = {"kafka_topic": "t", "kafka_partition": 0}
EXTERNAL = (
    "The Connect framework-managed offsets for this connector have been {0} successfully. However, if this connector "
    "manages offsets externally, they will need to be manually {0} in the system that the connector uses."
)
ZOMBIE = (
    "Failed to {0} consumer group offsets for connector c either because its tasks haven't stopped completely yet or "
    "the connector was resumed before the request to {0} its offsets could be successfully completed. If the connector "
    "is in a stopped state, this operation can be safely retried. If it doesn't eventually succeed, the Connect "
    "cluster may need to be restarted to get rid of the zombie sink tasks."
)


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The source offsets that a change would write."""
    pairs: list[Any] = []

    def write(*args: Any) -> None:
        pairs.extend(args[-1])

    monkeypatch.setattr(rest_services, "write_source_offsets", write)
    return pairs


def test_the_message_of_altered_offsets_names_those_that_the_connector_may_keep_elsewhere(
    services: RestServices, plugins: Plugins, written: list[Any]
) -> None:
    offset = NewOffset({"filename": "a"}, {"position": 1})
    for name, message in (
        (plugins.register(Lenient), EXTERNAL.format("altered")),
        ("FileStreamSource", "The offsets for this connector have been altered successfully"),
    ):
        assert services.alter_offsets("c", ConnectorType.SOURCE, {"connector.class": name}, [offset]) == message
    assert written == [(offset.partition, offset.offset)] * 2


@pytest.mark.parametrize("name", ["FileStreamSource", "MirrorSource", None])
def test_a_source_partition_without_a_name_can_be_reset(
    name: str | None, services: RestServices, plugins: Plugins, written: list[Any]
) -> None:
    config = {"connector.class": name or plugins.register(Lenient)}
    services.alter_offsets("c", ConnectorType.SOURCE, config, [NewOffset()])
    assert (written, encode_offset_key("c", None)) == ([(None, None)], b'["c",null]')
    with pytest.raises(RestError, match="Partition objects cannot be null") as refused:
        services.alter_offsets("c", ConnectorType.SOURCE, config, [NewOffset(None, {"position": 1})])
    assert refused.value.status == 400


@pytest.mark.parametrize(
    ("offset", "message"),
    [
        (NewOffset(), "The partition for a sink connector offset cannot be null or missing"),
        (
            NewOffset({"kafka_topic": "t"}),
            f"The partition for a sink connector offset must contain the keys {SINK_KEYS}",
        ),
        (
            NewOffset({"kafka_topic": None, "kafka_partition": 0}),
            "Kafka topic names must be valid strings and may not be null",
        ),
        (
            NewOffset({"kafka_topic": "t", "kafka_partition": None}),
            "Kafka partitions must be valid numbers and may not be null",
        ),
        (
            NewOffset({"kafka_topic": "t", "kafka_partition": 1.5}),
            "Failed to parse the following Kafka partition value in the provided offsets: '1.5'. Partition values for "
            "sink connectors need to be integers.",
        ),
        (
            NewOffset({"kafka_topic": "t", "kafka_partition": 1 << 31}),
            "Failed to parse the following Kafka partition value in the provided offsets: '2147483648'. Partition "
            "values for sink connectors need to be integers.",
        ),
        (
            NewOffset(OF_SINK, {"position": 1}),
            "The offset for a sink connector should either be null or contain the key 'kafka_offset'",
        ),
        (
            NewOffset(OF_SINK, {"kafka_offset": "x"}),
            "Failed to parse the following Kafka offset value in the provided offsets: 'x'. Offset values for sink "
            "connectors need to be integers.",
        ),
        (NewOffset(OF_SINK, {"kafka_offset": -1}), "Invalid negative offset: -1"),
    ],
)
def test_offsets_that_no_sink_has_are_refused_with_the_texts_of_kafka_connect(
    offset: NewOffset, message: str, services: RestServices
) -> None:
    with pytest.raises(RestError) as refused:
        services.alter_offsets("c", ConnectorType.SINK, {"connector.class": "FileStreamSink"}, [offset])
    assert (refused.value.status, str(refused.value)) == (400, message)


def test_a_group_that_zombies_have_not_left_is_a_500_with_the_text_of_kafka_connect(
    services: RestServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = GroupDescription("connect-c", "Stable", "consumer", ("m",))
    monkeypatch.setattr(rest_services, "describe_group", lambda *_: busy)
    clock = itertools.count(step=60)
    monkeypatch.setattr(rest_services, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    config = {"connector.class": "FileStreamSink"}
    with pytest.raises(RestError) as altered:
        services.alter_offsets("c", ConnectorType.SINK, config, [NewOffset(OF_SINK, {"kafka_offset": "7"})])
    with pytest.raises(RestError) as reset:
        services.reset_offsets("c", ConnectorType.SINK, config)
    found = [(refused.value.status, str(refused.value)) for refused in (altered, reset)]
    assert found == [(500, ZOMBIE.format("alter")), (500, ZOMBIE.format("reset"))]


def test_a_worker_is_in_touch_while_its_group_is_settled_and_answers_heartbeats(plugins: Plugins) -> None:
    worker = WorkerConfig.parse(embedded_config({"bootstrap.servers": "127.0.0.1:1"}))
    state, answered_ms = {"state": "stable"}, [None, 91_000, 90_999]
    topics: Any = None
    services = RestServices(
        worker, ClientConfigs(worker, "w"), plugins, topics, lambda: state, lambda transition: None,
        plugins.providers(worker), WorkerMetrics(dict, dict, lambda: None, lambda: 0, GroupRequests()), WorkerLoggers(),
        JVM, stage=lambda: Stage("awaiting startup", 0), heartbeat_ms=lambda: answered_ms.pop(0),
        clock=lambda: 91_000 + 3 * worker.heartbeat_interval_ms,
    )  # fmt: skip
    assert [services.in_touch() for _ in range(3)] == [True, True, False]
    state["state"] = "joining"
    assert not services.in_touch()
    services.close()
