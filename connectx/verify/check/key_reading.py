"""What Spark's executors do for a comparison of keys: they read parts of topics, and identify records and rows.

It imports little, because each Python process of an executor imports it first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from connectx.kafka.fetcher.ranges import read_ranges
from connectx.model.ids import TopicPartition
from connectx.values import Value
from connectx.verify.check.identity import lines_of_value, of_fields
from connectx.verify.check.sides import UNREADABLE, Decode, fields_of, fields_of_line

RECORDS: Final = "key binary, topic string, partition int, offset long, time_ms long, pending boolean, deletes boolean"
KEYS: Final = "key binary"
_BATCH_RECORDS: Final = 50_000


class KeyReader(Value):
    """Reads parts of topics on executors; can be pickled."""

    parts: Sequence[tuple[TopicPartition, tuple[int, int]]]
    consumer: Mapping[str, Any]
    decode: Mapping[str, Decode]
    names: tuple[str, ...]
    change: Any
    committed: Mapping[str, int] | None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                partition, offsets = self.parts[number]
                for records in read_ranges(self.consumer, {partition: offsets}, max_records=_BATCH_RECORDS):
                    yield self._keys(partition, records)

    def _keys(self, partition: TopicPartition, records: pa.Table) -> pa.RecordBatch:
        reached = None if self.committed is None else self.committed.get(str(partition), 0)
        decoded = self.decode[partition.topic](partition.topic, records)
        rows = [
            (identity, offset, time_ms, reached is not None and offset >= reached, deletes)
            for offset, time_ms, (key, value) in zip(
                records["offset"].to_pylist(), records["timestamp"].to_pylist(), decoded, strict=True
            )
            for identity, deletes in self._identities(key, value)
        ]
        keys, offsets, times_ms, pending, deletes = zip(*rows, strict=True) if rows else ((),) * 5
        columns = {
            "key": pa.array(keys, pa.binary()),
            "topic": pa.array([partition.topic] * len(rows), pa.string()),
            "partition": pa.array([partition.partition] * len(rows), pa.int32()),
            "offset": pa.array(offsets, pa.int64()),
            "time_ms": pa.array(times_ms, pa.int64()),
            "pending": pa.array(pending, pa.bool_()),
            "deletes": pa.array(deletes, pa.bool_()),
        }
        return pa.RecordBatch.from_pydict(columns)

    def _identities(self, key: Any, value: Any) -> Iterator[tuple[bytes, bool]]:
        """Keys of the rows that a record is about, and whether it deletes them."""
        if value is UNREADABLE:
            return
        if self.names:
            fields, deletes = fields_of(self.change, key, value, self.names)
            if fields is not None:
                yield of_fields(fields, self.names), deletes
            return
        for line in lines_of_value(value):
            yield line.encode(), False


def identified_chunks(batches: Iterable[pa.RecordBatch], names: tuple[str, ...], lines: bool) -> Iterator[Any]:
    for batch in batches:
        for chunk in batch.column(0).to_pylist():
            yield from identified(pa.ipc.open_stream(chunk), names, lines)


def identified(batches: Iterable[pa.RecordBatch], names: tuple[str, ...], lines: bool) -> Iterator[pa.RecordBatch]:
    """Keys of rows, as `of_fields` makes them, or lines."""
    for batch in batches:
        if not lines:
            keys = [of_fields(row, names) for row in batch.to_pylist()]
        elif names:
            keys = [of_fields(fields_of_line(line, names), names) for line in batch.column(0).to_pylist()]
        else:
            keys = [(line or "").encode() for line in batch.column(0).to_pylist()]
        yield pa.RecordBatch.from_pydict({"key": pa.array(keys, pa.binary())})
