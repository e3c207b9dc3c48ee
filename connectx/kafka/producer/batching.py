"""Encodes rows of an Arrow table as record batches: partition of each row, order, size limits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from connectx.errors.kafka import RecordRefusedError
from connectx.kafka.settings.producer_options import ProducerOptions
from connectx.model.ids import TopicPartition
from connectx.values import Value

if TYPE_CHECKING:
    import pyarrow as pa

    from connectx.protocol.record_batches import PreparedRecords, RecordSet


class EncodedBatch(Value):
    """A batch and the rows that it was made of.

    Attributes:
        rows: number of each record's row in the table that was sent (int64 array).
        largest_bytes: of the largest record, key, value and headers.
    """

    target: TopicPartition
    records: RecordSet
    rows: Any
    largest_bytes: int


class UnfitRow(Value):
    """A row that cannot be sent; `size_bytes` is None if its partition does not exist."""

    row: int
    topic: str
    partition: int | None = None
    size_bytes: int | None = None


class Batcher:
    """Cuts tables into batches. Sticky partitions continue from table to table.

    Args:
        options: limits and codec.
        choose: a random index below its argument.
    """

    def __init__(self, options: ProducerOptions, choose: Callable[[int], int]) -> None:
        from connectx.protocol.partitions import StickyPartitioner
        from connectx.protocol.record_batches import Compression

        self._options = options
        self._compression = Compression(options.compression, options.compression_level)
        self._sticky = StickyPartitioner(options.batch_bytes, choose)

    def encode(
        self, rows: pa.Table, topic: str, row_numbers: Any, partitions: PartitionsOf, now_ms: int
    ) -> Iterator[EncodedBatch | UnfitRow]:
        """Batches of rows of one topic, in order per partition; rows that cannot be sent are named instead.

        Args:
            rows: columns as `connectx.protocol.record_batches.prepare` takes them, and `partition` (may be null).
            row_numbers: number of each row for the caller (int64 array).
        """
        import numpy as np

        from connectx.protocol.record_batches import HEADER_BYTES, prepare

        records = prepare(rows, now_ms)
        assigned = self._assign(rows, records, topic, partitions)
        too_large = records.sizes_bytes + HEADER_BYTES > self._options.core.max_request_size_bytes
        unknown = assigned >= partitions.count
        for at in np.flatnonzero(too_large | unknown):
            if unknown[at]:
                yield UnfitRow(int(row_numbers[at]), topic, partition=int(assigned[at]))
            else:
                yield UnfitRow(int(row_numbers[at]), topic, size_bytes=_payload_bytes(records, int(at), int(at) + 1))
        fits = ~(too_large | unknown)
        for partition in np.flatnonzero(np.bincount(assigned[fits])):
            chosen = np.flatnonzero(fits & (assigned == partition))
            whole = len(chosen) == len(records)
            part = records if whole else records.take(chosen)
            yield from self._batches(TopicPartition(topic, int(partition)), part, row_numbers[chosen])

    def halve(self, batch: EncodedBatch) -> list[EncodedBatch]:
        """Cut a batch of several records in two."""
        from connectx.protocol.record_batches import decode, encode, finish, prepare

        (decoded,) = decode(finish(batch.records), check_crc=False)
        records = prepare(decoded.rows, 0)
        middle = len(records) // 2
        return [
            EncodedBatch(
                batch.target,
                encode(records, start, end, batch.records.compression),
                batch.rows[start:end],
                _payload_bytes(records, start, end),
            )
            for start, end in ((0, middle), (middle, len(records)))
        ]

    def _batches(self, target: TopicPartition, records: PreparedRecords, rows: Any) -> Iterator[EncodedBatch]:
        from connectx.protocol.record_batches import encode, split

        for start, end in split(records, self._options.batch_bytes):
            encoded = encode(records, start, end, self._compression)
            yield EncodedBatch(target, encoded, rows[start:end], _payload_bytes(records, start, end))

    def _assign(self, rows: pa.Table, records: PreparedRecords, topic: str, partitions: PartitionsOf) -> Any:
        """Partition of each row: named by it, else of its key, else sticky."""
        import numpy as np
        import pyarrow.compute as pc

        from connectx.protocol.partitions import partitions_of_keys

        assigned = np.full(len(records), -1, np.int64)
        if names_partitions(rows):
            assigned = np.array(pc.fill_null(rows.column("partition"), -1), np.int64)
        has_key = np.zeros(len(records), bool)
        if records.keys is not None:
            has_key = (assigned < 0) & records.keys.is_valid().to_numpy(zero_copy_only=False)
            if has_key.any():
                assigned = np.where(has_key, partitions_of_keys(records.keys, partitions.count), assigned)
        sticky = np.flatnonzero(assigned < 0)
        if len(sticky):
            assigned[sticky] = self._sticky.assign(topic, records.sizes_bytes[sticky], partitions.available)
        return assigned


class PartitionsOf(Value):
    """Partitions of a topic: how many there are, and those with a leader (all, if none has)."""

    count: int
    available: Sequence[int]


def _payload_bytes(records: PreparedRecords, start: int, end: int) -> int:
    """Key, value and headers of the largest record in a range."""
    from connectx.protocol.record_batches import RECORD_OVERHEAD_BYTES

    return int(records.sizes_bytes[start:end].max()) - RECORD_OVERHEAD_BYTES


def names_partitions(rows: pa.Table) -> bool:
    return "partition" in rows.column_names and rows.column("partition").null_count < rows.num_rows


def rows_by_topic(rows: pa.Table, topic: str | None) -> Iterator[tuple[str, pa.Table, Any]]:
    """Cut rows by the column `topic`, where null stands for `topic`; yields topic, rows and their numbers.

    Raises:
        RecordRefusedError: a row has no topic.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    numbers = np.arange(rows.num_rows)
    if rows.num_rows == 0:
        return
    if "topic" not in rows.column_names:
        yield _named(topic), rows, numbers
        return
    column = pc.fill_null(rows.column("topic").cast(pa.string()), topic or "")
    names = sorted(column.unique().to_pylist())
    for name in names:
        if len(names) == 1:
            yield _named(name), rows, numbers
            return
        chosen = np.flatnonzero(pc.equal(column, name).to_numpy(zero_copy_only=False))
        yield _named(name), rows.take(pa.array(chosen)), chosen


def _named(topic: str | None) -> str:
    if not topic:
        raise RecordRefusedError(
            "A record has no topic: neither the slice nor its column `topic` names one.",
            next_step="Let poll return Slice(..., topic=...) or fill the column `topic`.",
        )
    return topic
