"""Plugins of another package: a real, tiny distribution in a folder on the path."""

from __future__ import annotations

import importlib.metadata
import logging
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from connectx.errors.plugins import PluginNotFoundError
from connectx.model.class_names import path_of
from connectx.model.worker_config import WorkerConfig, embedded_config
from connectx.plugins.discovery import Group, InstalledPlugins
from connectx.plugins.registry import Plugins, worker_config
from connectx.plugins.transform_keys import PREDICATES, TRANSFORMS

MODULE = """
import connectx as cx
from connectx.data.simple import StringConverter
from connectx.plugins.config_providers import ConfigProvider

class TinyTicks(cx.SourceConnector):
    version = "1.2"
    java_class = "org.example.JavaTicks"
    other_names = ("old.ticks.Ticks",)
    config = cx.ConfigDef()
    class Task(cx.SourceTask):
        pass

class TinyText(StringConverter):
    java_class = "org.example.TinyText"

class TinyTransform(cx.Transform):
    pass

class TinyPredicate(cx.Predicate):
    pass

class TinyVault(ConfigProvider):
    def values(self, path):
        return {"key": f"kept at {path}"}
"""
ENTRY_POINTS = """
[connectx.connectors]
ticks = tiny_plugins:TinyTicks
broken = tiny_plugins:Missing
wrong = tiny_plugins:TinyTransform

[connectx.converters]
text = tiny_plugins:TinyText

[connectx.transforms]
shift = tiny_plugins:TinyTransform

[connectx.predicates]
odd = tiny_plugins:TinyPredicate

[connectx.config_providers]
vault = tiny_plugins:TinyVault
"""


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Installs the distribution."""
    (tmp_path / "tiny_plugins.py").write_text(MODULE)
    info = tmp_path / "tiny_plugins-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny-plugins\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(str(tmp_path))


pytestmark = pytest.mark.usefixtures("tiny")


@pytest.mark.parametrize(
    "name",
    [
        "ticks",
        "TinyTicks",
        "tiny_plugins.TinyTicks",
        "tiny_plugins:TinyTicks",
        "org.example.JavaTicks",
        "old.ticks.Ticks",
    ],
)
def test_a_connector_of_another_package_has_its_alias_and_the_names_of_its_class(name: str) -> None:
    assert Plugins().connector_class(name).__name__ == "TinyTicks"


def test_converters_transformations_and_predicates_of_another_package_are_found_by_their_aliases() -> None:
    plugins = Plugins()
    assert plugins.converter_class("text").__name__ == "TinyText"
    assert plugins.header_converter_class("text") is plugins.converter_class("text")
    assert plugins.transform_class(TRANSFORMS, "shift").__name__ == "TinyTransform"
    assert plugins.transform_class(PREDICATES, "odd").__name__ == "TinyPredicate"


def test_a_config_provider_of_another_package_resolves_placeholders() -> None:
    given = {"bootstrap.servers": "x:1", "config.providers": "v", "config.providers.v.class": "vault"}
    worker = WorkerConfig.parse(embedded_config(given))
    assert Plugins().providers(worker).resolve({"a": "${v:here:key}"}) == {"a": "kept at here"}
    assert worker_config(embedded_config({**given, "client.id": "${v:x:key}"})).values["client.id"] == "kept at x"


def test_plugins_of_another_package_are_listed_with_the_shipped_ones() -> None:
    listed = [(one.name, one.type, one.version) for one in Plugins().describe(connectors_only=False)]
    assert [each for each in listed if "iny" in each[0] or "example" in each[0]] == [
        ("org.example.JavaTicks", "source", "1.2"),
        ("org.example.TinyText", "converter", None),
        ("org.example.TinyText", "header_converter", None),
        ("tiny_plugins.TinyPredicate", "predicate", None),
        ("tiny_plugins.TinyTransform", "transformation", None),
        ("tiny_plugins.TinyVault", "configprovider", None),
    ]
    assert "connectx.connectors.generator.source.Generator" in [name for name, _, _ in listed]
    assert "org.example.JavaTicks" in [one.name for one in Plugins().describe()]


def test_a_broken_entry_point_is_one_warning_with_its_name_and_the_others_are_used(
    caplog: pytest.LogCaptureFixture,
) -> None:
    installed = InstalledPlugins()
    with caplog.at_level(logging.WARNING):
        assert [alias for alias in installed.listed(Group.CONNECTORS) if alias.islower()] == ["ticks"]
        assert installed.named(Group.CONNECTORS, "broken") == []
    broken, wrong = sorted(record.getMessage() for record in caplog.records)
    assert broken.startswith(
        "The entry point broken of tiny-plugins in connectx.connectors is left out: AttributeError"
    )
    assert "wrong" in wrong
    with pytest.raises(
        PluginNotFoundError, match=r"available connectors are: .*Generator, HttpSink, .*SparkSink, SparkSource, ticks"
    ):
        Plugins().connector_class("broken")


def test_a_thread_that_asks_while_another_imports_the_class_gets_it_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    importing, asked = threading.Event(), threading.Event()
    monkeypatch.setattr(importlib.metadata, "test_events", (importing, asked), raising=False)
    head = "import importlib.metadata\nstarted, asked = importlib.metadata.test_events\nstarted.set()\nasked.wait(30)\n"
    (tmp_path / "tiny_plugins.py").write_text(head + MODULE)
    monkeypatch.delitem(sys.modules, "tiny_plugins", raising=False)
    installed = InstalledPlugins()

    def ask() -> list[str]:
        importing.wait(30)
        asked.set()
        return [cls.__name__ for cls in installed.named(Group.CONNECTORS, "ticks")]

    with ThreadPoolExecutor(8) as threads:
        first = threads.submit(installed.named, Group.CONNECTORS, "ticks")
        others = [threads.submit(ask) for _ in range(7)]
        assert [cls.__name__ for cls in first.result(60)] == ["TinyTicks"]
        assert [other.result(60) for other in others] == [["TinyTicks"]] * 7


def test_without_an_installed_connectx_the_error_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [path for path in sys.path if "site-packages" not in path])
    with pytest.raises(PluginNotFoundError, match="pip install") as caught:
        InstalledPlugins().named(Group.CONNECTORS, "Generator")
    assert caught.value.code == "plugin_not_found"


def test_a_subclass_is_not_what_its_base_stands_in_for() -> None:
    class Mine(Plugins().connector_class("FileStreamSource")):  # type: ignore[misc]
        pass

    plugins = Plugins()
    plugins.register(Mine)
    assert [one.name for one in plugins.describe() if one.cls is Mine] == [path_of(Mine)]
