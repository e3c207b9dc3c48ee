"""Rows on their way: what a source task returns, and what a sink task gets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from connectx.model.ids import TopicPartition
from connectx.model.source_offsets import SourceOffset, SourcePartition
from connectx.values import Value
from connectx.views import Form, Shown

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


class Slice(Shown, Value):
    """Rows between two source offsets.

    `rows` has the columns of Spark's Kafka sink: `value` (any type), and if wanted `key` (any type), `topic` (string),
    `partition` (int), `timestamp` (timestamp) and `headers` (array of struct key, value: the text of the header in
    UTF-8, which `header.converter` makes bytes of). Rows without a column `value` are the value themselves, as a
    struct. An Arrow table stands for rows that the task read in the worker; a DataFrame is evaluated by Spark.
    Tables with different columns, as for several topics, come as a tuple: sent in order and committed together.

    `offset` is the source offset after the last row, `partition` the source partition it belongs to (None: the
    task's own), `topic` where rows go that have no column `topic`. `rows_read` is how many rows the source had there,
    if `rows` leaves some out on purpose: the difference is reported as skipped, because of `skip_reason`.
    `commits_offset` asks for a commit of `offset` even when no row is left; otherwise the offset goes with the next
    rows (KIP-910 has the same use).
    """

    rows: DataFrame | pa.Table | tuple[pa.Table, ...]
    offset: SourceOffset
    topic: str | None = None
    partition: SourcePartition | None = None
    rows_read: int | None = None
    commits_offset: bool = False
    skip_reason: str = "malformed"


class SinkBatch(Shown, Value):
    """Converted records of one put.

    `rows` is an Arrow table with the columns `topic`, `partition`, `offset`, `timestamp` (ms since 1970, int64, may be
    null), `key` and `value` as converters and transformations made them (a struct, string, binary, ...), and `headers`.
    Where records have several shapes, `key` and `value` are dense unions, which `connectx.data.shapes.divided` takes
    apart. Arrow counts no nulls in a union: `connectx.data.shapes.nulls_of` finds tombstones.
    All come from one topic, but a transformation may have put other names into `topic`. `ranges` gives per partition
    the first offset of the batch and the offset after its last one; offsets of skipped and filtered records and of
    transaction markers lie within.
    With `schemaless` the converter reads values without schemas: structs stand for Java's maps.
    """

    rows: pa.Table
    ranges: Mapping[TopicPartition, tuple[int, int]]
    schemaless: bool = False


TablesOfParts: TypeAlias = "Iterator[tuple[int, pa.Table | None]]"


class PartRead(Value):
    """What executors have read of one part of a slice: `rows` of it, and how many of its `pieces` to their ends."""

    rows: int = 0
    pieces: int = 0


class BulkSlice(Shown, Value):
    """A slice that executors read with a function: what `poll_bulk` can return in place of a Slice with a DataFrame.

    Tables may have different columns. A slice has parts, for example files, and only executors find out how many rows
    each of them has, so the source offsets are made after the job.

    Attributes:
        topic: where rows go that have no column `topic`.
        tasks: how many Spark tasks read the slice.
        read: called on an executor with the number of its task, from 0. It returns tables with the columns of
            `Slice.rows`, each with the number of its part, and None in place of a table at the end of a piece of
            a part. Tasks are in the order of the source. Python must be able to pickle it. A ConnectxError that it
            raises is the reason why the job failed.
        offsets: called in the worker when Kafka has the rows, with what was read by number of part. It returns the
            source partitions that moved, with the source offsets after these rows.
    """

    topic: str
    tasks: int
    read: Callable[[int], TablesOfParts]
    offsets: Callable[[Mapping[int, PartRead]], Sequence[tuple[SourcePartition, SourceOffset]]]

    def _shown(self) -> Form:
        return Form("BulkSlice", {"topic": self.topic, "tasks": self.tasks})
