"""Names of connectors mean Java classes where the plugin path has them."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from connectx.connectors.files.stream_source import FileStreamSource
from connectx.errors.plugins import ConfigError, JavaPluginError, PluginNotFoundError
from connectx.model.states import ConnectorType
from connectx.model.worker_config import WorkerConfig
from connectx.plugins.registry import Plugins
from connectx.plugins.validation import validate_connector
from tests.support.java_classes import CONVERTER, OBJECT, SINK, SOURCE, class_file, jar

STREAM_SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"
STRING = "org.apache.kafka.connect.storage.StringConverter"


def config_of(**settings: str) -> WorkerConfig:
    return WorkerConfig.parse(
        {
            "bootstrap.servers": "localhost:9092",
            "group.id": "g",
            "config.storage.topic": "c",
            "offset.storage.topic": "o",
            "status.storage.topic": "s",
            "key.converter": STRING,
            "value.converter": STRING,
            **{name.replace("_", "."): text for name, text in settings.items()},
        }
    )


def acme(folder: Path, version: str = "1.0") -> Path:
    return jar(
        folder / f"acme-{version}" / f"acme-{version}.jar",
        class_file("org.acme.Ticks", SOURCE, version=True),
        class_file("org.acme.Tables", SINK, version=True),
        class_file("org.acme.Words", OBJECT, [CONVERTER], version=True),
        services={SOURCE: "org.acme.Ticks", SINK: "org.acme.Tables", CONVERTER: "org.acme.Words"},
    )


@pytest.fixture
def plugins(tmp_path: Path) -> Plugins:
    """Those of a worker with Acme's plugins, and Kafka's file source."""
    acme(tmp_path / "java")
    jar(
        tmp_path / "java" / "connect-file-4.3.0.jar",
        class_file(STREAM_SOURCE, SOURCE, version=True),
        class_file(STRING, OBJECT, [CONVERTER], version=True),
        services={SOURCE: STREAM_SOURCE, CONVERTER: STRING},
    )
    return Plugins().on_path(config_of(plugin_path=str(tmp_path / "java")))


def test_a_full_name_means_the_java_class_and_a_short_one_that_of_connectx(plugins: Plugins) -> None:
    assert plugins.java.runs({"connector.class": f" {STREAM_SOURCE} "})
    assert plugins.connector_class("FileStreamSource") is FileStreamSource
    assert plugins.connector_class("FileStreamSourceConnector") is FileStreamSource
    assert Plugins().connector_class(STREAM_SOURCE) is FileStreamSource
    with pytest.raises(PluginNotFoundError, match=r"org\.acme\.Tables"):
        plugins.connector_class("Ticks")


def test_the_type_of_a_java_connector_is_known_without_java(plugins: Plugins) -> None:
    assert plugins.connector_type({"connector.class": "org.acme.Ticks"}) is ConnectorType.SOURCE
    assert plugins.connector_type({"connector.class": "org.acme.Tables"}) is ConnectorType.SINK
    assert plugins.connector_type({"connector.class": "org.acme.Words"}) is ConnectorType.UNKNOWN


def test_lists_name_each_plugin_once(plugins: Plugins) -> None:
    connectors = [(one.name, one.type, one.version) for one in plugins.describe()]
    assert [one for one in connectors if one[0] == STREAM_SOURCE] == [(STREAM_SOURCE, "source", "4.3.0")]
    assert ("org.acme.Ticks", "source", "1.0") in connectors
    everything = [(one.name, str(one.type)) for one in plugins.describe(connectors_only=False)]
    assert len(everything) == len(set(everything))
    assert ("org.acme.Words", "converter") in everything
    assert everything.count((STRING, "converter")) == 1


def test_each_version_is_listed_and_the_newest_is_used(
    plugins: Plugins, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    acme(tmp_path / "java", "1.10")
    with caplog.at_level(logging.WARNING):
        newer = plugins.on_path(config_of(plugin_path=str(tmp_path / "java")))
    assert [one.version for one in newer.describe() if one.name == "org.acme.Ticks"] == ["1.0", "1.10"]
    assert newer.connector_class("org.acme.Ticks").version == "1.10"
    assert "org.acme.Ticks is also in" in caplog.text
    assert "1.10 is used by default" in caplog.text
    assert plugins.connector_class("org.acme.Ticks").version == "1.0", "a worker keeps what it started with"


def test_python_refuses_a_java_connector_with_one_sentence(plugins: Plugins) -> None:
    config = {"name": "t", "connector.class": "org.acme.Ticks"}
    infos = validate_connector(plugins, config, config_of())
    errors = {info["value"]["name"]: info["value"]["errors"] for info in infos["configs"] if info["value"]["errors"]}
    assert list(errors) == ["connector.class"]
    assert "JVM" in errors["connector.class"][0]
    with pytest.raises(JavaPluginError, match=r"org\.acme\.Ticks is a Java class"):
        plugins.create_connector(config)
    with pytest.raises(JavaPluginError):
        plugins.create_task(config)


def test_a_python_connector_cannot_use_a_java_converter(plugins: Plugins) -> None:
    config = {"name": "t", "connector.class": "FileStreamSource", "topic": "x", "value.converter": "org.acme.Words"}
    (info,) = [
        one
        for one in validate_connector(plugins, config, config_of())["configs"]
        if one["value"]["name"] == "value.converter"
    ]
    assert "Java connector can use" in info["value"]["errors"][0]
    with pytest.raises(PluginNotFoundError, match="Java connector can use"):
        plugins.converter_class("org.acme.Words")


def test_classes_without_manifests_are_logged_or_refused_by_plugin_discovery(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    jar(tmp_path / "java" / "old.jar", class_file("org.acme.Old", SINK))
    path = str(tmp_path / "java")
    with caplog.at_level(logging.WARNING):
        Plugins().on_path(config_of(plugin_path=path))
    assert "without service manifests: org.acme.Old" in caplog.text
    with pytest.raises(ConfigError, match=r"no service manifest: org\.acme\.Old"):
        Plugins().on_path(config_of(plugin_path=path, plugin_discovery="HYBRID_FAIL"))


def test_without_plugin_path_the_installed_plugins_are_known(cache: Path) -> None:
    assert Plugins().on_path(config_of()).java.names() == []
    acme(cache / "plugins")
    assert Plugins().on_path(config_of()).java.names() == ["org.acme.Tables", "org.acme.Ticks"]
    assert Plugins().on_path(config_of(plugin_path="")).java.names() == []
