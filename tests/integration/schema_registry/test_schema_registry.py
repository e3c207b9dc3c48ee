"""The schema registry on a real Kafka, and flows of Avro through it, by Confluent's own client and serializers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import httpx
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.message_factory import GetMessageClass

import connectx as cx
from connectx.data.protobuf.pools import descriptor_of
from connectx.kafka.broker.embedded import EmbeddedKafka
from connectx.model.worker_config import WorkerConfig, own_kafka_config
from connectx.schema_registry.server import SchemaRegistry
from tests.support.clusters import MakeCluster, owner_of
from tests.support.profiles import QUICK
from tests.support.waiting import WAIT_S, until

FIRST = Schema('{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}', "AVRO")
SECOND = Schema('{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"b","type":"int"}]}', "AVRO")


def fixed(size: int) -> Schema:
    return Schema(json.dumps({"type": "fixed", "name": "F", "size": size}, separators=(",", ":")), "AVRO")


@pytest.fixture
def config(kafka: EmbeddedKafka) -> WorkerConfig:
    return WorkerConfig.parse(own_kafka_config({"bootstrap.servers": kafka.bootstrap_servers}))


@pytest.fixture
def name(numbers: Iterator[int]) -> str:
    return f"_schemas-{next(numbers)}"


def test_a_registry_that_starts_again_has_the_same_ids_and_settings(config: WorkerConfig, name: str) -> None:
    with SchemaRegistry(config, topic=name) as registry:
        client = SchemaRegistryClient({"url": registry.url})
        ids = [client.register_schema("s", FIRST), client.register_schema("t", fixed(1))]
        client.set_compatibility("s", "FULL")
        client.delete_subject("t")
    with SchemaRegistry(config, topic=name) as registry:
        client = SchemaRegistryClient({"url": registry.url})
        assert [client.register_schema("s", FIRST), client.get_schema(ids[1]).schema_str] == [
            ids[0],
            fixed(1).schema_str,
        ]
        assert client.get_compatibility("s") == "FULL"
        assert client.get_subjects() == ["s"]
        assert client.register_schema("u", fixed(2)) == max(ids) + 1


def test_two_registries_that_write_at_once_give_out_no_id_and_no_version_twice(config: WorkerConfig, name: str) -> None:
    count = 12
    with SchemaRegistry(config, topic=name) as one, SchemaRegistry(config, topic=name) as other:
        clients = [SchemaRegistryClient({"url": registry.url}) for registry in (one, other)]
        clients[0].set_compatibility(level="NONE")

        def register(number: int) -> int:
            return clients[number % 2].register_schema("s", fixed(number + 1))

        with ThreadPoolExecutor(4) as threads:
            ids = list(threads.map(register, range(count)))
        assert sorted(ids) == list(range(1, count + 1))
        for client in clients:
            assert client.get_schema(ids[-1]).schema_str == fixed(count).schema_str
            assert client.get_versions("s") == list(range(1, count + 1))


def test_confluents_client_and_serializers_use_the_registry_as_their_own(config: WorkerConfig, name: str) -> None:
    with SchemaRegistry(config, topic=name) as registry:
        client = SchemaRegistryClient({"url": registry.url})
        context = SerializationContext("t", MessageField.VALUE)
        write, read = AvroSerializer(client, FIRST.schema_str), AvroDeserializer(client)
        assert read(write({"a": 1}, context), context) == {"a": 1}
        assert client.get_latest_version("t-value").version == 1
        assert client.lookup_schema("t-value", FIRST).version == 1
        assert not client.test_compatibility("t-value", SECOND)
        with pytest.raises(SchemaRegistryError) as refused:
            client.register_schema("t-value", SECOND)
        assert (refused.value.http_status_code, refused.value.error_code) == (409, 409)
        with pytest.raises(SchemaRegistryError) as missing:
            client.get_schema(999)
        assert (missing.value.http_status_code, missing.value.error_code) == (404, 40403)
        found = httpx.get(f"{registry.url}/subjects", headers={"host": "evil.example"})
        assert found.status_code == 403


GENERATOR = {"connector.class": "Generator", "fields": "id:long,name:string,amount:double", "rate": "4000"}


@pytest.fixture
def cluster(make_cluster: MakeCluster) -> Iterator[cx.Cluster]:
    with make_cluster(workers=2, config=QUICK, registry=True) as cluster:
        yield cluster


CONVERTERS = {
    "rows": "io.confluent.connect.avro.AvroConverter",
    "docs": "JsonSchemaConverter",
    "messages": "ProtobufConverter",
}


def written_as(cluster: cx.Cluster, converter: str) -> dict[str, str]:
    """The converter of values."""
    return {"value.converter": converter, "value.converter.schema.registry.url": cluster.registry_url or ""}


def ids_in(folder: Path, topic: str) -> list[int]:
    """Column id of the Parquet files of a topic."""
    files = [str(path) for path in (folder / topic).glob("*.parquet")]
    found = duckdb.execute(f"SELECT id FROM read_parquet({files}) ORDER BY id").fetchall() if files else []
    return [row[0] for row in found]


def test_every_format_is_exact_from_a_source_to_a_sink_when_workers_are_killed_and_a_new_schema_must_be_compatible(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    with make_cluster(workers=4, config=QUICK, registry=True) as cluster:
        flow_through_every_format(cluster, tmp_path)
        read_avro_and_refuse_another_schema(cluster)


def flow_through_every_format(cluster: cx.Cluster, folder: Path) -> None:
    """The workers of all sinks are killed."""
    rows = 8_000
    sink = {"connector.class": "ParquetSink", "path": str(folder), "flush.interval.ms": "300"}
    for topic, converter in CONVERTERS.items():
        given = written_as(cluster, converter)
        cluster.create(f"made-{topic}", {**GENERATOR, "topic": topic, "max.rows": str(rows), **given})
        cluster.create(f"kept-{topic}", {**sink, "topics": topic, **given})
    until(lambda: all(ids_in(folder, topic) for topic in CONVERTERS), "rows in the targets")
    for owner in {owner_of(cluster, f"kept-{topic}-0").name for topic in CONVERTERS}:
        cluster.kill(owner)
    until(lambda: all(len(ids_in(folder, topic)) >= rows for topic in CONVERTERS), f"{rows} rows of each topic")
    for topic in CONVERTERS:
        assert ids_in(folder, topic) == list(range(rows)), topic
    verdict = cluster.check(timeout=WAIT_S)
    assert verdict.answer == "valid", verdict
    assert [checked.found for checked in verdict.checked] == [rows] * 2 * len(CONVERTERS)


def read_avro_and_refuse_another_schema(cluster: cx.Cluster) -> None:
    """Confluent's deserializer reads the records, and a source with other columns fails."""
    (record,) = cluster.peek("rows", 1)
    assert set(record.value) == {"id", "name", "amount"}
    client = SchemaRegistryClient({"url": cluster.registry_url})
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "c", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["rows"])
    message = until(lambda: consumer.poll(0.2), "a record")
    consumer.close()
    assert AvroDeserializer(client)(message.value(), SerializationContext("rows", MessageField.VALUE))["id"] == 0

    changed = {**GENERATOR, "fields": "id:long,name:boolean", "topic": "rows"}
    cluster.create("changed", {**changed, **written_as(cluster, CONVERTERS["rows"])})

    def failure() -> str:
        return "".join(task.get("trace", "") for task in cluster["changed"].status()["tasks"])

    trace = until(failure, "the failure of the task")
    assert "cannot register a schema of rows-value: it is not compatible with version 1" in trace
    assert "MISSING_UNION_BRANCH" in trace
    assert "Change the rows, or the subject's compatibility, and restart the task." in trace


def read_json(client: SchemaRegistryClient, record: bytes, context: SerializationContext) -> object:
    found = JSONDeserializer(None, schema_registry_client=client)(record, context)
    return found and found["id"]


def read_protobuf(client: SchemaRegistryClient, record: bytes, context: SerializationContext) -> object:
    text = client.get_latest_version(f"{context.topic}-value").schema.schema_str or ""
    message = GetMessageClass(descriptor_of(text).message_types_by_name["ConnectDefault1"])
    found = ProtobufDeserializer(message, {"use.deprecated.format": False}, client)(record, context)
    return found and found.id


@pytest.mark.parametrize(
    ("converter", "read"), [("JsonSchemaConverter", read_json), ("ProtobufConverter", read_protobuf)]
)
def test_records_of_a_format_flow_and_those_that_no_schema_fits_are_dead_letters(
    cluster: cx.Cluster, tmp_path: Path, converter: str, read: Callable[..., object]
) -> None:
    given = written_as(cluster, converter)
    cluster.create("made", {**GENERATOR, "rate": "0", "topic": "rows", "max.rows": "200", **given})
    sink = {"connector.class": "ParquetSink", "path": str(tmp_path), "flush.interval.ms": "300", "topics": "rows"}
    queue = {
        **{"errors.tolerance": "all", "errors.deadletterqueue.topic.name": "dead"},
        **{"errors.deadletterqueue.context.headers.enable": "true"},
        **{"errors.deadletterqueue.topic.replication.factor": "1"},
    }
    cluster.create("kept", {**sink, **queue, **given})
    until(lambda: len(ids_in(tmp_path, "rows")) == 200, "200 rows")
    (record,) = cluster.peek("rows", 1)
    assert set(record.value) == {"id", "name", "amount"}
    client = SchemaRegistryClient({"url": cluster.registry_url})
    context = SerializationContext("rows", MessageField.VALUE)
    assert read(client, record.raw_value, context) == 199
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    schema_id = client.get_latest_version("rows-value").schema_id or 0
    for bad in (b"no header", b"\0\0\0\x03\xe8{}", b"\0" + schema_id.to_bytes(4, "big") + b"\xff"):
        producer.produce("rows", bad)
    producer.flush()
    del producer  # it would go on asking the broker, which ends before it
    until(lambda: len(cluster.dead_letters("kept", 10)) == 3, "dead letters")
    reasons = " ".join(letter.reason for letter in cluster.dead_letters("kept", 10))
    assert "not with the 0 of Confluent's header" in reasons
    assert "does not have the schema 1000" in reasons
    assert ids_in(tmp_path, "rows") == list(range(200))
