"""What a name in a configuration stands for."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from connectx.data.json.converter import JsonConverter
from connectx.data.simple import StringConverter
from connectx.errors.plugins import ConfigError, PluginNotFoundError
from connectx.model.configdef import ConfigDef
from connectx.model.states import ConnectorType
from connectx.model.worker_config import WorkerConfig, embedded_config
from connectx.plugins import registry
from connectx.plugins.connectors import SinkConnector, SourceConnector
from connectx.plugins.registry import Plugins, task_properties
from connectx.plugins.tasks import SinkTask, SourceTask

WORKER = WorkerConfig.parse(embedded_config({"bootstrap.servers": "x:1"}))


class Ticks(SourceConnector):
    config = ConfigDef()

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        return [{"number": "0"}, {"number": "1"}]

    class Task(SourceTask):
        pass


class Drain(SinkConnector):
    config = ConfigDef()

    class Task(SinkTask):
        pass


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("FileStreamSource", "FileStreamSource"),
        ("FileStreamSourceConnector", "FileStreamSource"),
        ("org.apache.kafka.connect.file.FileStreamSourceConnector", "FileStreamSource"),
        (" org.apache.kafka.connect.file.FileStreamSinkConnector ", "FileStreamSink"),
        ("connectx.connectors.generator.source.Generator", "Generator"),
        ("connectx.connectors.generator.source:Generator", "Generator"),
        ("FileSource", "FileSource"),
        ("DeltaSink", "DeltaSink"),
        ("IcebergSink", "IcebergSink"),
        ("ParquetSink", "ParquetSink"),
        ("io.confluent.connect.jdbc.JdbcSourceConnector", "JdbcSource"),
        ("io.confluent.connect.jdbc.JdbcSinkConnector", "JdbcSink"),
        ("PostgresSink", "PostgresSink"),
        ("connectx.connectors.postgres.sink.PostgresSink", "PostgresSink"),
        ("DataSourceSource", "DataSourceSource"),
    ],
)
def test_connectors_have_connects_aliases_java_names_and_python_paths(name: str, found: str) -> None:
    assert Plugins().connector_class(name).__name__ == found


@pytest.mark.parametrize(
    "name", ["Nope", "no.such.module.Class", "json.JSONDecoder", "os:system", "", "a..b", "FileStream"]
)
def test_anything_else_is_refused_in_connects_words(name: str) -> None:
    with pytest.raises(PluginNotFoundError) as caught:
        Plugins().connector_class(name)
    assert caught.value.message.startswith(
        f"Failed to find any class that implements Connector and which name matches {name}, available connectors are: "
        "DataSourceSink, DataSourceSource, DeltaSink, DirectorySource, FileSource, FileStreamSink, "
        "FileStreamSource, FunctionSink, Generator, HttpSink, IcebergSink, JdbcSink, JdbcSource, MirrorSource, "
        "ParquetSink, PostgresCdcSource, PostgresSink, SparkSink, SparkSource"
    )


def test_a_class_of_the_notebook_is_known_once_it_is_registered() -> None:
    plugins = Plugins()
    name = plugins.as_text(Ticks)
    assert name == f"{__name__}.Ticks"
    assert plugins.connector_class(name) is Ticks
    assert plugins.connector_class("Ticks") is Ticks
    with pytest.raises(PluginNotFoundError):
        Plugins().connector_class("Ticks")


def test_a_cell_that_is_run_again_replaces_its_class() -> None:
    plugins = Plugins()

    def cell() -> type[SourceConnector]:
        class Again(SourceConnector):
            config = ConfigDef()

        return Again

    first, second = cell(), cell()
    assert plugins.register(first) == plugins.register(second)
    assert plugins.connector_class(plugins.register(second)) is second


def test_two_classes_of_one_simple_name_need_their_paths() -> None:
    plugins = Plugins()
    plugins.register(Ticks)
    other = type("Ticks", (SourceConnector,), {"__module__": "elsewhere", "config": ConfigDef()})
    plugins.register(other)
    with pytest.raises(PluginNotFoundError, match="More than one connector matches alias Ticks"):
        plugins.connector_class("Ticks")
    assert plugins.connector_class("elsewhere.Ticks") is other


def test_only_connectors_can_be_registered() -> None:
    with pytest.raises(PluginNotFoundError, match=r"cannot be a connector\.class"):
        Plugins().register(dict)


def test_values_of_configurations_become_text() -> None:
    as_text = Plugins().as_text
    assert [as_text(value) for value in (1, 2.5, True, ["a", "b"], ("c",), "x", None)] == [
        "1", "2.5", "true", "a,b", "c", "x", None,
    ]  # fmt: skip


def test_the_type_of_an_unknown_class_is_unknown() -> None:
    plugins = Plugins()
    assert plugins.connector_type({"connector.class": "FileStreamSink"}) is ConnectorType.SINK
    assert plugins.connector_type({"connector.class": "Generator"}) is ConnectorType.SOURCE
    assert [plugins.connector_type(config) for config in (None, {}, {"connector.class": "Nope"})] == [
        ConnectorType.UNKNOWN
    ] * 3


MODULE = """
import threading
from connectx.plugins.connectors import SourceConnector
imported_on = threading.current_thread()
{body}
class Source(SourceConnector):
    "Made by a test."
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], str]]:
    """Writes a module with this body before its connector, and returns the path of the class."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(body: str) -> str:
        (tmp_path / "hostile_plugin.py").write_text(MODULE.format(body=body))
        return "hostile_plugin.Source"

    yield write
    sys.modules.pop("hostile_plugin", None)


def test_the_type_of_a_class_is_found_on_another_thread(module: Callable[[str], str]) -> None:
    assert Plugins().connector_type({"connector.class": module("")}) is ConnectorType.SOURCE
    assert sys.modules["hostile_plugin"].imported_on is not threading.current_thread()


@pytest.mark.parametrize("body", ["import sys; sys.exit(3)", "raise GeneratorExit", "raise BaseException('x')"])
def test_a_module_that_ends_its_program_is_a_class_that_is_not_found(module: Callable[[str], str], body: str) -> None:
    config = {"connector.class": module(body)}
    plugins = Plugins()
    assert plugins.connector_type(config) is ConnectorType.UNKNOWN
    with pytest.raises(PluginNotFoundError):
        plugins.create_connector(config)


def test_a_module_whose_import_takes_long_holds_nobody_up(
    module: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_IMPORT_S", 0.01)
    monkeypatch.setattr(threading, "may_go_on", threading.Event(), raising=False)
    config = {"connector.class": module("threading.may_go_on.wait(60)")}
    plugins = Plugins()
    assert plugins.connector_type(config) is ConnectorType.UNKNOWN
    importing = plugins._imports["hostile_plugin.Source"]
    assert plugins.connector_type(config) is ConnectorType.UNKNOWN
    assert plugins._imports["hostile_plugin.Source"] is importing
    threading.may_go_on.set()  # type: ignore[attr-defined]
    importing.join(60)
    assert plugins.connector_type(config) is ConnectorType.SOURCE


def test_task_properties_are_those_that_a_java_worker_writes() -> None:
    plugins = Plugins()
    source = {
        "connector.class": "FileStreamSource",
        "file": "/data/f1.txt",
        "topic": "ft1",
        "tasks.max": "1",
        "name": "f1",
    }
    cls = plugins.connector_class("FileStreamSource")
    assert task_properties(cls, source, source) == {
        **source,
        "task.class": "org.apache.kafka.connect.file.FileStreamSourceTask",
    }
    sink = {"connector.class": "FileStreamSink", "file": "/data/snk.txt", "topics": "ft1,ft2", "name": "snk"}
    assert task_properties(plugins.connector_class("FileStreamSink"), sink, {"file": "/data/snk.txt"}) == {
        "file": "/data/snk.txt",
        "task.class": "org.apache.kafka.connect.file.FileStreamSinkTask",
        "topics": "ft1,ft2",
    }
    assert task_properties(Drain, {"topics.regex": "a.*"}, {}) == {
        "task.class": f"{__name__}.Drain.Task",
        "topics.regex": "a.*",
    }


def test_more_tasks_than_allowed_are_an_error_unless_that_is_switched_off() -> None:
    plugins = Plugins()
    config = {"name": "t", "connector.class": plugins.register(Ticks), "tasks.max": "1"}
    connector = plugins.create_connector(config)
    with pytest.raises(ConfigError, match="The connector t has generated 2 tasks, which is greater than 1"):
        plugins.task_configs(connector, config)
    generated = plugins.task_configs(connector, {**config, "tasks.max.enforce": "false"})
    assert [task["number"] for task in generated] == ["0", "1"]
    with pytest.raises(ConfigError, match="3 tasks"):
        plugins.check_task_count(config, 3)


def test_a_sink_has_as_many_tasks_as_allowed_if_it_does_not_divide_its_work() -> None:
    sink = Drain()
    sink.settings = {"k": "v"}
    assert sink.task_configs(3) == [{"k": "v"}] * 3


def test_a_connector_without_tasks_says_so() -> None:
    plugins = Plugins()
    lonely = type("Lonely", (SinkConnector,), {"config": ConfigDef()})
    assert isinstance(plugins.create_task({"connector.class": plugins.register(Ticks)}), Ticks.Task)
    with pytest.raises(PluginNotFoundError, match="has no task class"):
        plugins.create_task({"connector.class": plugins.register(lonely)})


@pytest.mark.parametrize("name", ["org.apache.kafka.connect.json.JsonConverter", "JsonConverter", "Json"])
def test_converters_have_java_names_and_aliases(name: str) -> None:
    assert Plugins().converter_class(name) is JsonConverter


def test_an_unknown_converter_is_refused_in_connects_words() -> None:
    with pytest.raises(
        PluginNotFoundError, match="implements Converter and which name matches Xml, available converters"
    ):
        Plugins().converter_class("Xml")


def test_a_connectors_own_converter_comes_with_its_own_settings_only() -> None:
    plugins = Plugins()
    assert isinstance(plugins.converter("key", {}, WORKER), StringConverter)
    inherited = plugins.converter("value", {"value.converter.schemas.enable": "true"}, WORKER)
    assert isinstance(inherited, JsonConverter)
    assert not inherited.has_schemas
    own = plugins.converter("value", {"value.converter": "Json"}, WORKER)
    assert isinstance(own, JsonConverter)
    assert own.has_schemas
    with pytest.raises(ConfigError, match=r"schemas\.enable"):
        plugins.converter("value", {"value.converter": "Json", "value.converter.schemas.enable": "yes"}, WORKER)


def test_what_is_there_can_be_listed() -> None:
    plugins = Plugins()
    plugins.register(Ticks)
    listed = {plugin.name: plugin.type for plugin in plugins.describe()}
    assert listed["org.apache.kafka.connect.file.FileStreamSinkConnector"] == "sink"
    assert listed["connectx.connectors.generator.source.Generator"] == "source"
    assert listed[f"{__name__}.Ticks"] == "source"
    everything = [(plugin.name, plugin.type) for plugin in plugins.describe(connectors_only=False)]
    assert listed.items() <= set(everything)
    converters = {name for name, kind in everything if kind == "converter"}
    headers = [name for name, kind in everything if kind == "header_converter"]
    assert {name.rpartition(".")[2] for name in converters.difference(headers)} >= {
        "AvroConverter",
        "ProtobufConverter",
    }
    assert [name.rpartition(".")[2] for name in headers if ".kafka." in name] == [
        "BooleanConverter",
        "ByteArrayConverter",
        "DoubleConverter",
        "FloatConverter",
        "IntegerConverter",
        "LongConverter",
        "ShortConverter",
        "JsonConverter",
        "SimpleHeaderConverter",
        "StringConverter",
    ]


def test_importing_plugins_and_validation_loads_neither_spark_nor_arrow() -> None:
    code = (
        "import sys, connectx.plugins.registry, connectx.plugins.validation, connectx.model.worker_config\n"
        "print([name for name in ('pyspark', 'pyarrow', 'pandas', 'numpy') if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


@pytest.mark.parametrize("path", ["..Connector", "os.system", "connectx_broken_plugin.Connector"])
def test_a_path_that_cannot_be_loaded_is_no_connector_whatever_its_module_raises(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "connectx_broken_plugin.py").write_text("raise RuntimeError('the module is broken')\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    with pytest.raises(PluginNotFoundError):
        Plugins().connector_class(path)
