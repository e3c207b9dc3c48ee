"""Records of JSON without schemas, read as a sink's task reads them in both lanes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from connectx.data.headers import HEADERS
from connectx.model.ids import TopicPartition
from connectx.model.worker_config import WorkerConfig, embedded_config
from connectx.plugins.connectors import SinkConnector
from connectx.plugins.registry import Plugins
from connectx.plugins.slices import SinkBatch
from connectx.plugins.tasks import SinkTask
from connectx.runtime.tasks.sink.conversion import BadRecord, Conversion

JSON = "org.apache.kafka.connect.json.JsonConverter"
CONVERTERS = {
    f"{side}.converter{key}": value
    for side in ("key", "value")
    for key, value in (("", JSON), (".schemas.enable", "false"))
}
PLUGINS = Plugins()
WORKER = WorkerConfig.parse(embedded_config({"bootstrap.servers": "x:1"}))

Record = tuple[bytes | None, bytes | None]


def json_batch(
    connector: type[SinkConnector],
    task: SinkTask,
    config: Mapping[str, str],
    first: int,
    records: Sequence[Record],
    place: TopicPartition,
) -> tuple[SinkBatch, list[str]]:
    """Keys and values at the offsets from `first` on, as the batch that a task gets, and what cannot be read."""
    count = len(records)
    raw = pa.table(
        {
            "topic": pa.array([place.topic] * count, pa.string()),
            "partition": pa.array([place.partition] * count, pa.int32()),
            "offset": pa.array(range(first, first + count), pa.int64()),
            "timestamp": pa.array([0] * count, pa.int64()),
            "key": pa.array([key for key, _ in records], pa.binary()),
            "value": pa.array([value for _, value in records], pa.binary()),
            "headers": pa.nulls(count, HEADERS),
        }
    )
    given = {**config, **CONVERTERS}
    conversion = Conversion.of(
        PLUGINS, given, WORKER, reads_fields=task.reads_fields, key_fields=connector.key_fields(config)
    )
    bad: list[BadRecord] = []
    rows, _ = conversion.read(raw, place.topic, conversion.wanted(task, place.topic), bad.extend)
    return SinkBatch(rows, {place: (first, first + count)}), [record.cause for record in bad]
