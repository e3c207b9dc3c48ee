"""`cluster.compare`: keys of a topic that are missing or duplicated in a target, counted by Spark.

Decides what counts as the same key: the same text, out of JsonConverter's envelope, numbers without trailing zeros. It
differs from a check (`cluster.check`, `connectx.check`) in three ways: it compares only keys, it needs neither a
history nor the connector that wrote the target (so it works for any pipeline), and Spark counts, so topic and target
may have any size. It returns counts and examples without a verdict: a missing key may still be in flight. It uses only
Spark SQL, no Python on executors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from connectx.errors.base import ConnectxError
from connectx.errors.checks import CheckError
from connectx.extras import require
from connectx.history.wording import listing
from connectx.jvm.progress import Progress, silent, step
from connectx.kafka.admin.topic_snapshot import TopicSnapshot, take_snapshot
from connectx.model.ids import TaskId, TopicPartition
from connectx.spark.sessions import is_connect
from connectx.spark.topic_frame import topic_frame, topic_read_error
from connectx.verify.check.check import as_tuple
from connectx.verify.check.targets import target_of
from connectx.views import html_card, html_table, text_facts, text_table

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

    from connectx.kafka.settings.clients import ClientConfigs

_CHUNK_ROWS: Final = 200_000
_NO_KEY: Final = "(no key)"

# What the counts of a key mean.
_FINDINGS: Final = {
    "missing": "target = 0",
    "duplicated": "topic > 0 AND target > topic",
    "unexpected": "topic = 0",
}
_FEWER: Final = "target > 0 AND target < topic"


@dataclass(frozen=True, slots=True, repr=False)
class KeyExample:
    """One key, and how often it is in the topic and in the target."""

    finding: str
    key: str
    in_topic: int
    in_target: int

    def __repr__(self) -> str:
        return f"{self.finding}: {self.key}, {self.in_topic} in the topic, {self.in_target} in the target"

    def _repr_html_(self) -> str:
        return html_card(self.finding, asdict(self))


@dataclass(frozen=True, slots=True, repr=False)
class KeyComparison:
    """What a comparison of keys found; all counts are exact.

    Attributes:
        topic, target: what was compared, in words; `key`: by which fields.
        records, rows: how many records with a key the topic has, and rows with a key the target.
        missing: keys of the topic that the target does not have.
        duplicated: keys that are more often in the target than in the topic.
        unexpected: keys of the target that the topic does not have.
        fewer: keys that are in the target, but less often than in the topic: fine where the target keeps one row a key.
        unidentified: records and rows without the fields of the key, tombstones among them; they were not compared.
        doubts: why a reader does not see all of the topic.
    """

    topic: str
    target: str
    key: tuple[str, ...]
    records: int
    rows: int
    missing: int
    duplicated: int
    unexpected: int
    fewer: int
    unidentified: int
    examples: tuple[KeyExample, ...] = ()
    doubts: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether every key that can be seen in the topic is in the target, and none of them too often."""
        return not self.missing and not self.duplicated

    def to_pandas(self) -> pd.DataFrame:
        """The examples, one row each: finding, key, in_topic, in_target."""
        require("A data frame of keys", "notebook", "pandas")
        import pandas as pd

        columns = ["finding", "key", "in_topic", "in_target"]
        return pd.DataFrame([asdict(example) for example in self.examples], columns=columns)

    @property
    def _facts(self) -> dict[str, object]:
        counts = ("records", "rows", "missing", "duplicated", "unexpected", "fewer", "unidentified")
        by = {"by": listing(self.key)} if self.key else {"by": "whole lines"}
        doubts = {"but": "; ".join(self.doubts)} if self.doubts else {}
        return {**by, **{name: f"{getattr(self, name):,}" for name in counts}, **doubts}

    @property
    def _title(self) -> str:
        return f"{self.topic} and {self.target}: {'complete' if self.complete else 'not the same'}"

    def __repr__(self) -> str:
        table = text_table([asdict(example) for example in self.examples])
        return "\n".join(filter(None, [self._title, text_facts(self._facts), table]))

    def _repr_html_(self) -> str:
        return html_card(self._title, self._facts, html_table([asdict(example) for example in self.examples]))


def compare(
    clients: ClientConfigs,
    spark: SparkSession,
    topic: str,
    target: Any,
    key: str | Sequence[str],
    examples: int,
    progress: Progress = silent,
) -> KeyComparison:
    """Count the keys of both sides and join them. An interrupt ends the jobs of Spark, too.

    Raises:
        CheckError: no key was named, or the target cannot be read or has not these columns.
        TopicMissingError, TopicReadError: the topic cannot be read.
        TableMissingError, DatabaseError: the table cannot be read.
    """
    with interruptible(spark) as session:
        return _compare(clients, session, topic, target, as_tuple(key), examples, progress)


def _compare(
    clients: ClientConfigs,
    spark: SparkSession,
    topic: str,
    target: Any,
    keys: tuple[str, ...],
    examples: int,
    progress: Progress,
) -> KeyComparison:
    with step(progress, "Reading the target"):
        place, rows = _target_keys(spark, target, keys)
    snapshot = take_snapshot(clients, topic)
    ranges = {TopicPartition(topic, n): (start, snapshot.ends[n]) for n, start in snapshot.starts.items()}
    try:
        with step(progress, f"Counting keys of topic {topic} and {place}"):
            records = _topic_keys(spark, clients, snapshot, keys)
            return _compared(records, rows, snapshot, place, keys, examples)
    except ConnectxError:
        raise
    except Exception as error:
        raise topic_read_error(error, ranges) from error


@contextmanager
def interruptible(spark: SparkSession) -> Iterator[SparkSession]:
    """A session for some jobs, which an interrupt of this process ends, too: Spark itself continues with them."""
    if is_connect(spark):  # a plan over frames of two sessions is refused; the tag marks the jobs of this thread
        tag = f"connectx-compare-{uuid4().hex}"
        session, interrupt = spark, partial(spark.interruptTag, tag)
        spark.addTag(tag)
    else:
        session = spark.newSession()
        interrupt = partial(session.interruptAll)
    try:
        yield session
    except KeyboardInterrupt:
        interrupt()
        raise
    except Exception as error:
        if isinstance(error.__context__, KeyboardInterrupt):  # py4j lost its connection by it
            interrupt()
            raise KeyboardInterrupt from error
        raise
    finally:
        if session is spark:
            spark.removeTag(tag)


def _compared(
    records: DataFrame, rows: DataFrame, snapshot: TopicSnapshot, place: str, keys: tuple[str, ...], examples: int
) -> KeyComparison:
    """One job counts, over one shuffle of both sides; a second one looks for examples, when there is something."""
    from pyspark.sql import functions as f

    one, none = f.lit(1).alias("one"), f.lit(0).alias("none")
    both = records.select("key", one.alias("topic"), none.alias("target"))
    both = both.unionAll(rows.select("key", none.alias("topic"), one.alias("target")))
    counted = both.groupBy("key").agg(f.sum("topic").alias("topic"), f.sum("target").alias("target"))
    known = "key IS NOT NULL"
    named = {**_FINDINGS, "fewer": _FEWER}
    sums = counted.agg(
        *(
            f.coalesce(f.sum(f.expr(f"IF({known}, {side}, 0)")), f.lit(0)).alias(name)
            for name, side in (("records", "topic"), ("rows", "target"))
        ),
        f.coalesce(f.sum(f.expr(f"IF({known}, 0, topic + target)")), f.lit(0)).alias("unidentified"),
        *(f.count_if(f.expr(f"{known} AND {condition}")).alias(name) for name, condition in named.items()),
    ).first()
    assert sums is not None
    counts = {name: int(sums[name]) for name in ("records", "rows", "unidentified", *named)}
    some = any(counts[name] for name in _FINDINGS)
    found = _examples(counted.where(known), examples) if some and examples else ()
    return KeyComparison(f"topic {snapshot.topic}", place, keys, **counts, examples=found, doubts=snapshot.hidden)


def _examples(counted: DataFrame, examples: int) -> tuple[KeyExample, ...]:
    """The first keys of each finding."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    cases = " ".join(f"WHEN {condition} THEN '{name}'" for name, condition in _FINDINGS.items())
    found = counted.select("*", f.expr(f"CASE {cases} END").alias("finding")).where("finding IS NOT NULL")
    place = f.row_number().over(Window.partitionBy("finding").orderBy("key"))
    chosen = found.select("*", place.alias("place")).where(f.col("place") <= examples).collect()
    order = list(_FINDINGS)
    ranked = sorted(chosen, key=lambda row: (order.index(row["finding"]), row["place"]))
    return tuple(KeyExample(r["finding"], str(r["key"]), int(r["topic"]), int(r["target"])) for r in ranked)


def _topic_keys(
    spark: SparkSession, clients: ClientConfigs, snapshot: TopicSnapshot, keys: tuple[str, ...]
) -> DataFrame:
    """One column, `key`: of each record that a read_committed reader sees; null where it has none."""
    from pyspark.sql import functions as f

    ranges = {TopicPartition(snapshot.topic, n): (s, snapshot.ends[n]) for n, s in snapshot.starts.items()}
    options = clients.spark_kafka_options(TaskId("connectx-compare", 0), {})
    frame = topic_frame(spark, {**options, "kafka.isolation.level": "read_committed"}, ranges)
    value, record_key = f.col("value").cast("string"), f.col("key").cast("string")
    if not keys:
        return frame.select(_opened(value).alias("key"))
    fields, key_fields = _fields(value), _fields(record_key)
    parts = [f.coalesce(fields.getItem(name), key_fields.getItem(name)) for name in keys]
    if len(parts) == 1:
        parts = [f.coalesce(parts[0], record_key)]
    return frame.select(f.when(f.col("value").isNotNull(), _joined(parts)).alias("key"))


def _fields(text: Column) -> Column:
    """Fields of a JSON object as text by name."""
    from pyspark.sql import functions as f

    return f.from_json(_opened(text), "MAP<STRING,STRING>")


def _opened(text: Column) -> Column:
    """What is in Connect's envelope of schema and payload (JsonConverter); other text is itself."""
    from pyspark.sql import functions as f

    payload = f.when(f.get_json_object(text, "$.schema").isNotNull(), f.get_json_object(text, "$.payload"))
    return f.coalesce(payload, text)


def _target_keys(spark: SparkSession, target: Any, keys: tuple[str, ...]) -> tuple[str, DataFrame]:
    """The target in words, and the same column of each of its rows."""
    from pyspark.sql import functions as f

    if hasattr(target, "toArrow"):
        return "the given rows", _columns_of(target, keys, "the given rows")
    stored = target_of(target)
    if stored.lines:
        lines = _frame(spark, (table.select([0]).rename_columns(["line"]) for table in stored.read()), "line string")
        if not keys:
            return stored.place, lines.select(_opened(f.col("line")).alias("key"))
        fields = _fields(f.col("line"))
        return stored.place, lines.select(_joined([fields[name] for name in keys]).alias("key"))
    if not keys:
        raise CheckError(
            f"No fields were named that match records with rows of {stored.place}.",
            next_step="Name them: key=, one or more fields.",
        )
    wanted = (_readable(table.select(_checked(table.column_names, keys, stored.place))) for table in stored.read())
    schema = ", ".join(f"`{name}` string" for name in keys)
    return stored.place, _columns_of(_frame(spark, wanted, schema), keys, stored.place)


def _columns_of(frame: DataFrame, keys: tuple[str, ...], place: str) -> DataFrame:
    from pyspark.sql import functions as f

    names = _checked(frame.columns, keys, place)
    return frame.select(_joined([f.col(f"`{name}`").cast("string") for name in names]).alias("key"))


def _checked(columns: Sequence[str], keys: tuple[str, ...], place: str) -> list[str]:
    missing = [name for name in keys if name not in columns]
    if missing or not keys:
        raise CheckError(
            f"{place} has no column {missing[0] if missing else _NO_KEY}, which was to identify rows.",
            next_step=f"Name columns that it has: {listing(list(columns))}.",
        )
    return list(keys)


def _joined(parts: Sequence[Column]) -> Column:
    """Parts of a key as one text; null when one of them is. Numbers lose the zeros that mean nothing."""
    from pyspark.sql import functions as f

    plain = [
        f.regexp_replace(f.regexp_replace(one, r"^(-?\d+)\.0+$", "$1"), r"^(-?\d+\.\d*?[1-9])0+$", "$1")
        for one in parts
    ]
    whole = plain[0]
    for one in plain[1:]:
        whole = f.concat(whole, f.lit(", "), one)
    return whole


def _readable(table: pa.Table) -> pa.Table:
    """Without types that only the database has, such as PostgreSQL's numeric: Spark gets them as text."""
    import pyarrow as pa

    for number, column in enumerate(table.columns):
        if isinstance(column.type, pa.BaseExtensionType):
            stored = pa.chunked_array([chunk.storage for chunk in column.chunks], column.type.storage_type)
            table = table.set_column(number, table.column_names[number], stored)
    return table


def _frame(spark: SparkSession, tables: Iterator[pa.Table], schema: str) -> DataFrame:
    """Arrow tables as one data frame, in chunks, so that no more than a chunk is here at a time."""
    import pyarrow as pa

    frame: DataFrame | None = None
    held: list[pa.Table] = []

    def take() -> None:
        nonlocal frame
        chunk = spark.createDataFrame(pa.concat_tables(held))
        frame = chunk if frame is None else frame.unionByName(chunk)
        held.clear()

    for table in tables:
        held.append(table)
        if sum(one.num_rows for one in held) >= _CHUNK_ROWS:
            take()
    if held and (frame is None or any(one.num_rows for one in held)):
        take()
    return frame if frame is not None else spark.createDataFrame([], schema)
