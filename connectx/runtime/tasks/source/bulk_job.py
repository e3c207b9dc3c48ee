"""The Spark job of a bulk slice: executors encode rows as record batches and send them to Kafka.

The job has two stages. Tasks of the first transform and convert rows, and cut them into batches by Kafka partition. It
has no effect outside of Spark, and the same rows always give the same batches, so Spark may repeat it at will. Tasks of
the second send the batches, each partition's in one task and in the order of the source.

A second attempt of a sending task sends nothing: the first one may have been half done. Where Spark repeats the whole
stage, Kafka's sequences keep the batches from being taken twice: a repeated one is a duplicate or out of order. A task
reports what went wrong as a row, because Spark would answer an exception with a second attempt, and show its error.

Where executors cannot reach Kafka, the job has the first stage only: the worker collects the batches and sends them.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final, cast

import pyarrow as pa

from connectx.core.producer.messages import Loan
from connectx.data.frames import named_rows
from connectx.data.transforms.encoding import transform_and_encode
from connectx.errors.base import ConnectxError
from connectx.errors.plugins import TransformError
from connectx.kafka.producer.batching import Batcher, EncodedBatch, PartitionsOf, UnfitRow, rows_by_topic
from connectx.kafka.producer.producer import KafkaProducer
from connectx.kafka.reachability import connection_obstacle
from connectx.kafka.settings.producer_options import producer_options
from connectx.model.ids import TopicPartition
from connectx.plugins.slices import BulkSlice, PartRead
from connectx.protocol.record_batches import Compression, RecordSet
from connectx.values import Value

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from connectx.data.converter import Converter
    from connectx.data.headers import HeaderConverter
    from connectx.data.transforms.chain import Chain

_BATCH: Final = pa.schema(
    {
        "topic": pa.string(),
        "partition": pa.int32(),
        "task": pa.int32(),
        "number": pa.int32(),
        "records": pa.int64(),
        "first_ms": pa.int64(),
        "max_ms": pa.int64(),
        "largest": pa.int64(),
        "data": pa.binary(),
        "filtered": pa.int64(),
        "bad": pa.int64(),
        "why": pa.string(),
        "failed": pa.string(),
        "read": pa.string(),
    }
)
"""A batch of records; or, without `data`, what a task of the first stage has counted, or why it failed."""

_OUTCOME: Final = pa.schema(
    {
        "topic": pa.string(),
        "partition": pa.int32(),
        "records": pa.int64(),
        "bytes": pa.int64(),
        "late": pa.bool_(),
        "expected": pa.int64(),
        "filtered": pa.int64(),
        "bad": pa.int64(),
        "why": pa.string(),
        "failed": pa.string(),
        "read": pa.string(),
    }
)
_ROUTE_TIMEOUT_S: Final = 5.0
_BATCHES_AT_A_TIME: Final = 64  # that the worker makes Python objects of
_KINDS: Final = {pa.string(): "STRING", pa.int32(): "INT", pa.int64(): "BIGINT", pa.binary(): "BINARY"}


class Recipe(Value):
    """Data that executors need; Spark sends it to them.

    Attributes:
        slice_number: makes the choice of partitions for records without keys repeatable.
        topic: where rows go that name no topic.
        partitions: of all topics that rows may go to.
        skip_bad: leave rows out that cannot be transformed or converted.
        config: of the producer; its secrets are in it.
        loan: of the task's transaction; None without one.
        now_ms: timestamp of records without one.
    """

    slice_number: int
    topic: str | None
    partitions: Mapping[str, PartitionsOf]
    chain: Chain
    key_converter: Converter
    value_converter: Converter
    header_converter: HeaderConverter
    skip_bad: bool
    config: Mapping[str, Any]
    loan: Loan | None
    now_ms: int


class Outcome(Value):
    """What a job has done.

    Attributes:
        sent: records that Kafka has, by partition; `size_bytes` is that of their batches.
        may_arrive_late: a request stayed unanswered.
        filtered: rows that a transformation dropped on purpose.
        bad: rows that were left out as they cannot be records, and `why` the first of them.
        failed: why the job failed; None if it did not.
        read: what was read by part, if the slice has parts.
    """

    sent: Mapping[TopicPartition, int]
    size_bytes: int
    may_arrive_late: bool
    filtered: int
    bad: int
    why: str | None
    failed: str | None
    read: Mapping[int, PartRead] = field(default_factory=dict)

    @property
    def records(self) -> int:
        return sum(self.sent.values())


def run_job(rows: DataFrame | BulkSlice, recipe: Recipe, tasks: int, spark: SparkSession) -> Outcome:
    """Run the job with so many sending tasks.

    Raises whatever Spark raises; then records may have been sent.
    """

    def send(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return send_batches(recipe, batches)

    batches = _encoded(rows, recipe, spark).repartition(max(1, tasks), "topic", "partition")
    sorted_ones = batches.sortWithinPartitions("topic", "partition", "task", "number")
    return outcome_of(sorted_ones.mapInArrow(send, _ddl(_OUTCOME)).toArrow().to_pylist())


def run_job_without_kafka(
    rows: DataFrame | BulkSlice, recipe: Recipe, producer: KafkaProducer, spark: SparkSession
) -> Outcome:
    """Let executors make the batches, collect them, and send them with the worker's producer.

    Nothing is sent unless all rows became records. Raises whatever Spark raises, and what `send_batch` raises.
    """
    import pyarrow.compute as pc

    made = _encoded(rows, recipe, spark).toArrow()
    is_batch = pc.is_valid(made["data"])
    counts = [_counted(row) for row in made.filter(pc.invert(is_batch)).to_pylist()]
    if any(count["failed"] is not None for count in counts):
        return outcome_of(counts)
    batches = made.filter(is_batch).sort_by([("task", "ascending"), ("number", "ascending")])
    del made
    sent: dict[TopicPartition, tuple[int, int]] = {}
    for part in batches.to_batches(max_chunksize=_BATCHES_AT_A_TIME):
        for row in part.to_pylist():
            _send(producer, _batch_of(row, recipe.config), sent)
    while not producer.flush(1):
        pass
    return outcome_of([*counts, *_sent(sent, late=False)])


def obstacle_of_executors(session: SparkSession, config: Mapping[str, Any]) -> str | None:
    """Why an executor cannot reach Kafka; None if it can. One executor is asked for all."""

    def ask(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            obstacle = connection_obstacle(config, _ROUTE_TIMEOUT_S)
            yield pa.RecordBatch.from_pydict({"obstacle": pa.array([obstacle], pa.string())})

    (row,) = session.range(0, 1, 1, 1).mapInArrow(ask, "obstacle STRING").toArrow().to_pylist()
    return cast("str | None", row["obstacle"])


def _encoded(rows: DataFrame | BulkSlice, recipe: Recipe, spark: SparkSession) -> DataFrame:
    return _encoded_parts(rows, recipe, spark) if isinstance(rows, BulkSlice) else _encoded_frame(rows, recipe)


def _encoded_frame(rows: DataFrame, recipe: Recipe) -> DataFrame:
    columns = rows.schema

    def encode(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return encode_rows(recipe, ((0, named_rows(pa.Table.from_batches([batch]), columns)) for batch in batches))

    return rows.mapInArrow(encode, _ddl(_BATCH))


def _encoded_parts(rows: BulkSlice, recipe: Recipe, spark: SparkSession) -> DataFrame:
    """One Spark task for each task of the slice, which reads and converts."""
    read = rows.read

    def encode(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tasks = (task for batch in batches for task in batch.column(0).to_pylist())
        return encode_rows(recipe, (found for task in tasks for found in read(task)), counts_parts=True)

    return spark.range(0, rows.tasks, 1, rows.tasks).mapInArrow(encode, _ddl(_BATCH))


def outcome_of(rows: Iterable[Mapping[str, Any]]) -> Outcome:
    """Add up what tasks reported. Records that are missing without a reason make the job fail, too."""
    sent: dict[TopicPartition, int] = {}
    size_bytes = filtered = bad = expected = 0
    late, why, failed = False, None, None
    read: dict[int, PartRead] = {}
    for row in rows:
        if row["topic"] is not None:
            target = TopicPartition(row["topic"], row["partition"])
            sent[target] = sent.get(target, 0) + row["records"]
        size_bytes, filtered, bad = size_bytes + row["bytes"], filtered + row["filtered"], bad + row["bad"]
        expected, late = expected + row["expected"], late or row["late"]
        why, failed = why or row["why"], failed or row["failed"]
        for part, rows_read, pieces in json.loads(row["read"] or "[]"):
            before = read.get(part, PartRead())
            read[part] = PartRead(before.rows + rows_read, before.pieces + pieces)
    if failed is None and expected != sum(sent.values()):
        failed = f"executors converted {expected} records, and sent {sum(sent.values())}"
    return Outcome(sent, size_bytes, late, filtered, bad, why, failed, read)


def encode_rows(
    recipe: Recipe, tables: Iterable[tuple[int, pa.Table | None]], *, counts_parts: bool = False
) -> Iterator[pa.RecordBatch]:
    """Rows as batches of records, and at the end their counts, also those of parts; or the reason why not."""
    task, _ = _this_task()
    batcher = Batcher(producer_options(recipe.config), random.Random(f"{recipe.slice_number} {task}").randrange)
    number = records = filtered = bad = 0
    why: str | None = None
    read: dict[int, PartRead] = {}
    try:
        for part, table in tables:
            before = read.get(part, PartRead())
            if table is None:
                read[part] = PartRead(before.rows, before.pieces + 1)
                continue
            read[part] = PartRead(before.rows + table.num_rows, before.pieces)
            made = transform_and_encode(
                table,
                recipe.topic,
                recipe.chain,
                recipe.key_converter,
                recipe.value_converter,
                recipe.header_converter,
                skip_unwritable=recipe.skip_bad,
                now_ms=recipe.now_ms,
            )
            if made.failures and not recipe.skip_bad:
                raise TransformError(made.failures[0].message, next_step="") from made.failures[0].error
            reasons = [*(failure.message for failure in made.failures), *made.unwritable.values()]
            why = why or next(iter(reasons), None)
            filtered, bad, records = filtered + made.filtered, bad + len(reasons), records + made.records.num_rows
            for encoded in _batches_of(recipe, made.records, batcher):
                yield _row(_BATCH, task=task, number=number, **_columns_of(encoded))
                number += 1
    except ConnectxError as error:
        yield _row(_BATCH, task=task, number=number, failed=str(error))
    else:
        parts = json.dumps([(part, of.rows, of.pieces) for part, of in read.items()]) if counts_parts else None
        yield _row(_BATCH, task=task, number=number, records=records, filtered=filtered, bad=bad, why=why, read=parts)


def send_batches(recipe: Recipe, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Send batches, wait until Kafka has all of them, and yield how many records there were by partition."""
    _, attempt = _this_task()
    if attempt > 0:
        failure = "the first attempt of a task that sends records has failed, and a second one sends none"
        yield _row(_OUTCOME, **_failure(failure))
        return
    producer = KafkaProducer(recipe.config)
    sent: dict[TopicPartition, tuple[int, int]] = {}
    is_open = False
    try:
        for batch in batches:
            for row in batch.to_pylist():
                if row["data"] is None:
                    yield _row(_OUTCOME, **_counted(row))
                    continue
                if not is_open:
                    producer.init(recipe.loan)
                    is_open = True
                _send(producer, _batch_of(row, recipe.config), sent)
        while is_open and not producer.flush(1):
            pass
    except ConnectxError as error:
        producer.abandon()
        yield _row(_OUTCOME, **_failure(str(error)))
        return
    late = producer.may_arrive_late
    producer.close()
    for outcome in _sent(sent, late=late):
        yield _row(_OUTCOME, **outcome)


def _send(producer: KafkaProducer, batch: EncodedBatch, sent: dict[TopicPartition, tuple[int, int]]) -> None:
    producer.send_batch(batch)
    records, size_bytes = sent.get(batch.target, (0, 0))
    sent[batch.target] = records + batch.records.count, size_bytes + batch.records.size_bytes


def _sent(sent: Mapping[TopicPartition, tuple[int, int]], *, late: bool) -> Iterator[dict[str, Any]]:
    for target, (records, size_bytes) in sent.items():
        yield _outcome(topic=target.topic, partition=target.partition, records=records, bytes=size_bytes, late=late)


def _batches_of(recipe: Recipe, records: pa.Table, batcher: Batcher) -> Iterator[EncodedBatch]:
    for topic, part, numbers in rows_by_topic(records, recipe.topic):
        partitions = recipe.partitions.get(topic)
        if partitions is None:
            raise TransformError(
                f"Executors cannot write to {topic} yet: the task has not written to it.",
                next_step="The worker sends this slice; set bulk.mode=never if it repeats.",
            )
        for encoded in batcher.encode(part, topic, numbers, partitions, recipe.now_ms):
            if isinstance(encoded, UnfitRow):
                why = "is larger than max.request.size" if encoded.partition is None else "names a missing partition"
                raise TransformError(f"A record for the topic {topic} {why}.", next_step="")
            yield encoded


def _columns_of(batch: EncodedBatch) -> dict[str, Any]:
    records = batch.records
    return {
        "topic": batch.target.topic,
        "partition": batch.target.partition,
        "records": records.count,
        "first_ms": records.first_timestamp_ms,
        "max_ms": records.max_timestamp_ms,
        "largest": batch.largest_bytes,
        "data": bytes(records.data),
    }


def _batch_of(row: Mapping[str, Any], config: Mapping[str, Any]) -> EncodedBatch:
    options = producer_options(config)
    compression = Compression(options.compression, options.compression_level)
    records = RecordSet(row["records"], compression, row["first_ms"], row["max_ms"], row["data"])
    return EncodedBatch(TopicPartition(row["topic"], row["partition"]), records, range(row["records"]), row["largest"])


def _counted(row: Mapping[str, Any]) -> dict[str, Any]:
    """The counts of a task of the first stage."""
    if row["failed"] is not None:
        return _failure(row["failed"])
    counts = {name: row[name] for name in ("filtered", "bad", "why", "read")}
    return _outcome(expected=row["records"], **counts)


def _failure(why: str) -> dict[str, Any]:
    return _outcome(failed=why, late=True)


def _outcome(**columns: Any) -> dict[str, Any]:
    zeros = dict.fromkeys(("records", "bytes", "expected", "filtered", "bad"), 0)
    return {**dict.fromkeys(_OUTCOME.names), "partition": -1, "late": False, **zeros, **columns}


def _row(schema: pa.Schema, **columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({name: [columns.get(name)] for name in schema.names}, schema)


def _this_task() -> tuple[int, int]:
    """Number and attempt of the Spark task that runs here."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None, "this runs on executors"
    return context.partitionId(), context.attemptNumber()


def _ddl(schema: pa.Schema) -> str:
    kinds = {**_KINDS, pa.bool_(): "BOOLEAN"}
    return ", ".join(f"{field.name} {kinds[field.type]}" for field in schema)
