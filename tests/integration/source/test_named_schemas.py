"""Names, versions, parameters, defaults and documentation of schemas in both lanes, of sources and of sinks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from connectx.core.messages import TaskFailed
from connectx.data.connect_schema import SchemaName
from connectx.data.frames import as_spark_takes
from connectx.data.transforms.api import Transform
from connectx.kafka.broker.embedded import EmbeddedKafka
from connectx.model.events import EventKind
from connectx.model.worker_config import WorkerConfig, own_kafka_config
from connectx.schema_registry.server import SchemaRegistry
from connectx.spark.sessions import SparkProvider
from tests.support.named_schemas import SLICES, NamedSink, NamedSource, kept
from tests.support.records import read_all
from tests.support.task_harness import Place, SinkPlace, Task
from tests.support.waiting import until

ROWS = 200
JSON = "org.apache.kafka.connect.json.JsonConverter"
CONVERTERS: dict[str, dict[str, str]] = {
    "JsonConverter": {"schemas.enable": "true"},
    "AvroConverter": {},
    "JsonSchemaConverter": {},
    "ProtobufConverter": {"optional.for.nullables": "true", "enhanced.protobuf.schema.support": "true"},
}
NAME = SchemaName("com.acme.Inner", 2)
INNER_NAMES = {"ProtobufConverter": SchemaName("com.acme.Renamed.Inner")}  # its schemas have no versions
SOURCE_CHAIN = {
    "transforms": "name",
    "transforms.name.type": "org.apache.kafka.connect.transforms.SetSchemaMetadata$Value",
    "transforms.name.schema.name": "com.acme.Renamed",
}
SINK_CHAIN = {
    "transforms": "place",
    "transforms.place.type": "org.apache.kafka.connect.transforms.InsertField$Value",
    "transforms.place.partition.field": "place",
}


@pytest.fixture
def registry(kafka: EmbeddedKafka, numbers: Iterator[int]) -> Iterator[SchemaRegistry]:
    config = WorkerConfig.parse(own_kafka_config({"bootstrap.servers": kafka.bootstrap_servers}))
    with SchemaRegistry(config, topic=f"_schemas-{next(numbers)}") as registry:
        yield registry


@pytest.fixture
def sinks(kafka: EmbeddedKafka, spark_provider: SparkProvider) -> Iterator[SinkPlace]:
    place = SinkPlace(kafka, spark_provider)
    yield place
    place.close()


def wait_until(task: Task, is_done: Callable[[], bool]) -> None:
    def reached() -> bool:
        failed = [stimulus.trace for stimulus in task.stimuli if isinstance(stimulus, TaskFailed)]
        failed += [str(event.data) for event in task.recorded(EventKind.BULK_FAILED)]
        assert not failed, failed[0]
        return is_done()

    until(reached, "all rows")


def has_all(folder: Path, way: str) -> bool:
    return bool(sum(table.num_rows for table in kept(folder, way)) == SLICES * ROWS)


def sent(place: Place, mode: str, converters: dict[str, str]) -> tuple[str, list[tuple[Any, ...]], int]:
    """Topic, records and number of jobs of a source in one lane."""
    topic = place.create_topic(f"{place.group}-{mode}", partitions=2)
    own = {"name": mode, "connector.class": place.plugins.register(NamedSource), "topic": topic, "rows": str(ROWS)}
    task = place.task({**own, **converters, **SOURCE_CHAIN, "bulk.mode": mode}).begin()
    wait_until(task, lambda: place.committed({}, mode) == {"slices": SLICES})
    task.stop()
    records = [(m.partition(), m.key(), m.value()) for m in read_all(place.bootstrap_servers, topic)]
    return topic, records, task.count("bulk_jobs")


@pytest.mark.parametrize("converter", CONVERTERS)
def test_both_lanes_write_and_read_the_same_names_and_bytes(
    place: Place, sinks: SinkPlace, registry: SchemaRegistry, converter: str, tmp_path: Path
) -> None:
    converters: dict[str, str] = {}
    for side in ("key", "value"):
        settings = {"schema.registry.url": registry.url, **CONVERTERS[converter]}
        converters |= {f"{side}.converter": converter}
        converters |= {f"{side}.converter.{name}": text for name, text in settings.items()}
    topic, records, jobs = sent(place, "never", converters)
    assert (len(records), jobs) == (SLICES * ROWS, 0)
    assert sum(value is None for _, _, value in records) == SLICES * ROWS // 5
    _, of_bulk, jobs = sent(place, "always", converters)
    assert jobs == 1, "the worker learns the topics from the first slice"
    assert sorted(of_bulk, key=str) == sorted(records, key=str)

    found: dict[str, pa.Table] = {}
    for mode, way in (("never", "put"), ("always", "save")):
        folder = tmp_path / way
        folder.mkdir()
        own = {"connector.class": NamedSink, "topics": topic, "folder": str(folder), "like": str(tmp_path / "put")}
        task = sinks(f"{place.group}-{mode}", {**own, **converters, **SINK_CHAIN, "bulk.mode": mode}).begin()
        wait_until(task, partial(has_all, folder, way))
        task.stop()
        found[way] = pa.concat_tables(kept(folder, way)).sort_by([("partition", "ascending"), ("offset", "ascending")])
    assert found["save"].to_pylist() == found["put"].to_pylist()
    names = found["put"].schema
    assert SchemaName.of(names.field("value").type.field("inner")) == INNER_NAMES.get(converter, NAME)
    assert found["save"].schema.equals(as_spark_takes(names), check_metadata=True)
    staged = kept(tmp_path / "save", "stage")
    assert sum(table.num_rows for table in staged) == SLICES * ROWS
    assert all(table.schema.equals(names, check_metadata=True) for table in staged)


class Unshippable(Transform):
    """Has what no executor can get."""

    def configure(self) -> None:
        self._lock = threading.Lock()

    def apply(self, table: pa.Table) -> pa.Table:
        return table


def test_a_transformation_that_cannot_be_sent_to_executors_makes_the_job_fail(place: Place) -> None:
    topic = place.create_topic(f"{place.group}-t")
    own = {"connector.class": place.plugins.register(NamedSource), "topic": topic, "rows": str(ROWS)}
    chain = {"transforms": "lock", "transforms.lock.type": place.plugins.register(Unshippable)}
    task = place.task({**own, **chain, "key.converter": JSON, "value.converter": JSON, "bulk.mode": "always"}).begin()
    assert "cannot pickle '_thread.lock' object" in task.failure()
    assert len(task.recorded(EventKind.BULK_FAILED)) == 3
