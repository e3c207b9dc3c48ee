"""What the finder reports of a plugin path is what a Java worker lists on the same path."""

from __future__ import annotations

import shutil
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

import connectx as cx
from bench.debezium import POSTGRES_SOURCE
from bench.plugins import plugin_folder
from connectx.errors.plugins import PluginInstallError
from connectx.jvm import jars
from connectx.jvm.java import find_java
from connectx.kafka.broker.embedded import EmbeddedKafka
from connectx.model.decoding import WrongShape
from connectx.plugins.java.catalog import JavaCatalog
from connectx.plugins.java.contents import opened
from connectx.plugins.java.hierarchy import Hierarchy
from connectx.plugins.java.kafka_classes import KAFKA_CLASSES, KINDS
from connectx.rest.client import RestClient
from tests.support.java_worker import FILE_SINK, FILE_SOURCE, JavaWorker, peer_config

ABSTRACT = ("ConnectPlugin", "connector/Connector")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Debezium's plugin, Kafka's file connectors in two places, and a jar that is none."""
    path = plugin_folder(tmp_path_factory.mktemp("java-plugins"), POSTGRES_SOURCE)
    (file,) = (one for one in jars.fetch(jars.KAFKA_CONNECT, find_java()) if one.name.startswith("connect-file-"))
    for name in ("connect-file", "connect-file-copy"):
        (path / name).mkdir()
        shutil.copy(file, path / name)
    (path / "broken.jar").write_text("no jar")
    return path


def test_a_java_worker_lists_the_same_plugins(kafka: EmbeddedKafka, path: Path) -> None:
    worker = JavaWorker(peer_config(kafka.bootstrap_servers, "java-plugins", plugin_path=str(path)), path.parent / "w")
    try:
        with closing(RestClient([worker.wait_ready().url])) as client:
            listed = [(one["class"], one["type"], one.get("version")) for one in client.plugins(connectors_only=False)]
    finally:
        worker.kill()
    catalog = JavaCatalog.of([path], "service_load")
    ours = [(one.name, str(one.type), one.version) for one in catalog.describe(connectors_only=False)]
    assert len(ours) == len(set(ours))
    assert set(ours) <= set(listed)
    of_kafka = {one for one in listed if one[0].startswith("org.apache.kafka.")}  # from the Java worker's class path
    assert set(listed) - of_kafka == {one for one in ours if not one[0].startswith("org.apache.kafka.")}
    assert {FILE_SOURCE, FILE_SINK, "io.debezium.connector.postgresql.PostgresConnector"} <= {one[0] for one in ours}


def test_a_scan_finds_what_manifests_name(path: Path) -> None:
    scanned, named = (JavaCatalog.of([path], how).found.plugins for how in ("only_scan", "service_load"))
    assert {(one.class_name, one.kind, one.version) for one in named} <= {
        (one.class_name, one.kind, one.version) for one in scanned
    }


def test_the_classes_of_kafka_that_make_plugins_are_those_of_its_jars() -> None:
    with ExitStack() as stack:
        files = [
            one for one in jars.fetch(jars.KAFKA_CONNECT, find_java()) if one.name.startswith(("connect-", "kafka-c"))
        ]
        hierarchy = Hierarchy([stack.enter_context(opened(file)) for file in files])
        found = {}
        for name in hierarchy.where:
            kinds = set(KINDS) & hierarchy.bases(name) if name.startswith("org/apache/kafka/") else set[str]()
            if not kinds or name in KINDS or name.endswith(ABSTRACT):
                continue
            try:
                if not hierarchy.class_file(name).is_final:
                    found[name] = kinds
            except WrongShape:
                pytest.fail(f"{name} is unreadable")
    assert found == {name: set(kinds) for name, kinds in KAFKA_CLASSES.items()}


def test_artifacts_are_installed_from_the_maven_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONNECTX_CACHE_DIR", str(tmp_path))
    done = cx.plugins.install("org.apache.kafka:connect-file:4.3.0")
    assert {one.class_name: one.version for one in done.plugins} == {FILE_SOURCE: "4.3.0", FILE_SINK: "4.3.0"}
    assert [file.name for file in done.folder.glob("*.jar")] == ["connect-file-4.3.0.jar"], "Kafka's own are left out"
    with pytest.raises(PluginInstallError, match="does not have it"):
        cx.plugins.install("org.apache.kafka:connect-file:0.0.1")
    assert [one.name for one in cx.plugins.installed()] == ["connect-file-4.3.0"]
