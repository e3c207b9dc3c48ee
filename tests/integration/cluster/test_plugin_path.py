"""Workers with different Java plugins: a rolling upgrade of a plugin, on a plugin path with much that is damaged."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import connectx as cx
from connectx.kafka.broker.embedded import EmbeddedKafka
from connectx.rest.client import RestClient
from connectx.verify.audit.findings import Audit
from tests.support.java_classes import SINK, SOURCE, class_file, jar
from tests.support.profiles import STRINGS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TICKS = "org.acme.Ticks"
TABLES = "org.acme.Tables"


def plugin_path(folder: Path, version: str, *more: bytes) -> str:
    """Acme's plugin in a version, between a jar that is none and a folder that is missing."""
    jar(
        folder / f"acme-{version}" / f"acme-{version}.jar",
        class_file(TICKS, SOURCE, version=True),
        *more,
        services={SOURCE: f"{TICKS}\norg.acme.Gone"},
    )
    (folder / "broken.jar").write_bytes(b"\x80 no jar")
    return f"{folder},{folder / 'missing'}"


def versions(url: str) -> dict[str, str]:
    """Acme's classes as a worker lists them."""
    with closing(RestClient([url])) as client:
        return {one["class"]: one["version"] for one in client.plugins() if one["class"].startswith("org.acme.")}


def acmes(audit: Audit) -> dict[str, list[str]]:
    """Findings about plugins, by code."""
    codes = ("plugin_versions_differ", "plugin_on_some_workers")
    return {code: subjects for code in codes if (subjects := [one.subject for one in audit.of(code)])}


def test_a_plugin_is_upgraded_worker_by_worker(kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path) -> None:
    old = plugin_path(tmp_path / "old", "1.0")
    new = plugin_path(tmp_path / "new", "1.1", class_file(TABLES, SINK, version=True))
    config = {"group.id": "plugin-path", "value.converter": STRINGS, "plugin.path": old}
    for store in ("config", "offset", "status"):
        config |= {f"{store}.storage.topic": f"plugin-path-{store}", f"{store}.storage.replication.factor": "1"}
    with cx.Cluster(1, config=config, bootstrap_servers=kafka.bootstrap_servers, spark=spark) as cluster:
        assert acmes(cluster.audit()) == {}
        cluster.add_worker(config={"plugin.path": new})
        listed = {worker.name: versions(worker.url) for worker in cluster.workers}
        assert listed == {"worker-1": {TICKS: "1.0"}, "worker-2": {TICKS: "1.1", TABLES: "1.1"}}
        assert acmes(cluster.audit()) == {"plugin_versions_differ": [TICKS], "plugin_on_some_workers": [TABLES]}
        cluster.workers["worker-1"].stop()
        cluster.add_worker(config={"plugin.path": new})
        assert acmes(cluster.audit()) == {}
