"""Asks connectx about the plugins of the installed sample, and prints the answers as JSON."""

from __future__ import annotations

import json
import pickle
import sys
from typing import Any
from unittest.mock import patch

import pyarrow as pa

from connectx.kafka.fetcher.chunks import SCHEMA
from connectx.model.ids import TaskId, TopicPartition
from connectx.model.worker_config import WorkerConfig, embedded_config
from connectx.plugins.connectors import SinkConnector
from connectx.plugins.registry import Plugins, task_class
from connectx.plugins.tasks import SinkTask
from connectx.plugins.validation import validate_connector
from connectx.runtime.tasks.sink import staging
from connectx.runtime.tasks.sink.conversion import Conversion, Wanted
from connectx.verify.audit.inventory import AuditedConnector, ClusterInventory
from connectx.verify.audit.rules import judge
from tests.support.connector_keys import overview_row

TOPIC = "numbers"
PLUGINS = Plugins()
WORKER = WorkerConfig.parse(embedded_config({"bootstrap.servers": "127.0.0.1:1"}))
JSON = {"value.converter": "JsonConverter", "value.converter.schemas.enable": "false"}


def errors_of(config: dict[str, str]) -> dict[str, list[str]]:
    infos: Any = validate_connector(PLUGINS, {"name": "c", **config}, WORKER)
    values = [info["value"] for info in infos["configs"]]
    return {value["name"]: value["errors"] for value in values if value["errors"]}


def shared_places(shelf: str) -> list[str]:
    """Evidence of an audit of two sources and two sinks of one shelf."""
    config = {"connector.class": "org.acme.shelf.ShelfSourceConnector", "shelf": shelf}
    sink = {"connector.class": "shelf-sink", "shelf": shelf, "topics": TOPIC}
    given = [("a", "source", config), ("b", "source", config), ("c", "sink", sink), ("d", "sink", sink)]
    connectors = tuple(
        AuditedConnector(name, kind, one, "RUNNING", "", 0, cls=PLUGINS.find_connector(one["connector.class"]))
        for name, kind, one in given
    )
    audit = judge([ClusterInventory("one", 0, connectors=connectors)])
    return [one.evidence for code in ("same_source", "same_target") for one in audit.of(code)]


def stored_by_executors(shelf: str) -> list[dict[str, Any]]:
    """Rows of the target after a job of the bulk lane."""
    config = {"connector.class": "ShelfSink", "topics": TOPIC, "shelf": shelf, **JSON}
    cls: Any = PLUGINS.connector_class("ShelfSink")
    assert issubclass(cls, SinkConnector)
    assert cls.bulk_obstacle(config) is None
    plugin: Any = task_class(cls)()
    assert isinstance(plugin, SinkTask)
    at = TopicPartition(TOPIC, 0)
    rows = [{"topic": TOPIC, "partition": 0, "offset": n, "timestamp": 0, "value": b'{"id": %d}' % n} for n in range(3)]
    conversion = Conversion.of(PLUGINS, config, WORKER, reads_fields=plugin.reads_fields)
    order = staging.StagingOrder(
        task=TaskId("c", 0),
        group_id="g",
        connector=cls,
        task_config=config,
        conversion=conversion,
        consumer={},
        parts=[(at, (0, 3))],
        wanted=Wanted(),
        plan=None,
        token="t",
        tolerate_all=False,
        keep_raw=False,
    )
    raw = pa.Table.from_pylist(rows, SCHEMA)
    with patch.object(staging, "read_ranges", lambda *given, **more: iter([raw])):
        (answer,) = order(iter([pa.RecordBatch.from_pydict({"id": [0]})]))
    result = pickle.loads(answer.column("result")[0].as_py())
    assert result.failure is None, result.failure
    plugin.start(config, None)  # type: ignore[arg-type]
    plugin.commit("t", {at: (0, 3)}, result.messages)
    stored = cls.stored(config, TOPIC)
    assert stored is not None
    return [row for table in stored.read() for row in table.to_pylist()]


def main(shelf: str) -> None:
    listed = [one for one in PLUGINS.describe() if "helf" in one.name]
    found = {
        "listed": [[one.name, one.type, one.version] for one in listed],
        "named": [PLUGINS.connector_class(name).__name__ for name in ("shelf-source", "org.acme.old.Shelf")],
        "validated": errors_of({"connector.class": "ShelfSink", "topics": TOPIC}),
        "audited": shared_places(shelf),
        "stored": stored_by_executors(shelf),
        "rows": [overview_row(one.cls) for one in listed],
    }
    print(json.dumps(found))


main(sys.argv[1])
