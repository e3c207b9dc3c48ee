"""Chunks of record batches from fetch responses, and their conversion to rows.

Rows are made of several chunks at a time, so that many partitions with few records are as cheap as one with many.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connectx.errors.kafka import RecordBatchError
from connectx.errors.plugins import MalformedDataError
from connectx.model.ids import TopicPartition
from connectx.protocol.record_batches import HEADERS, BatchHeader, Records, decode_rows, records_of, scan

SCHEMA: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", HEADERS),
    ]
)
"""Columns of fetched records. Timestamps are ms since 1970, or null."""

_ROOM_BYTES: Final = 64 * 1024 * 1024
"""Memory for what is decompressed at a time: the batch that takes the last of it is the last one."""


class Chunk:
    """Batches that follow each other. Records are decoded when they are taken, by `take_rows`.

    Attributes:
        size_bytes: of all batches, as they came.
        end_offset: the offset after the last batch.
        last_epoch: the leader epoch of the last batch.
        position: the offset after what was taken, transaction markers included.
        rest: rows that were decoded and not taken.
    """

    def __init__(
        self,
        target: TopicPartition,
        offset: int,
        data: Any,
        batches: Iterable[BatchHeader],
        aborted: Iterable[tuple[int, int]],
    ) -> None:
        self.target = target
        self.position = offset
        self.data = data
        self._batches = deque(batches)
        self._aborted = deque(sorted(aborted))
        self._aborted_producers: set[int] = set()
        self.rest: pa.Table | None = None
        self.selected_end = offset
        self.size_bytes = self._batches[-1].end
        self.end_offset = self._batches[-1].end_offset
        self.last_epoch = self._batches[-1].leader_epoch

    @classmethod
    def of(
        cls,
        target: TopicPartition,
        offset: int,
        data: Any,
        aborted: Iterable[tuple[int, int]] = (),
        *,
        check_crc: bool = True,
    ) -> Chunk | None:
        """The whole batches in `data`, None if there is none.

        Args:
            offset: the first offset that is wanted; a batch may begin before it.
            aborted: first offset and producer id of each aborted transaction, as the broker reports them; records of
                these are left out.

        Raises:
            RecordBatchError: the data are no batches of format 2, or a CRC is wrong.
        """
        batches: list[BatchHeader] = []
        try:
            batches.extend(scan(data, check_crc=check_crc))
        except MalformedDataError as error:
            raise RecordBatchError(str(target), batches[-1].end_offset if batches else offset, error.why) from error
        return cls(target, offset, data, batches, aborted) if batches else None

    @property
    def is_empty(self) -> bool:
        return self.rest is None and not self._batches

    def select(self, wanted: int, room_bytes: int) -> list[Records]:
        """Take the next batches, up to `selected_end`, until they have as many records as wanted or take the room.

        Raises:
            RecordBatchError: a batch cannot be decompressed, or takes too much memory.
        """
        selected: list[Records] = []
        while self._batches and wanted > 0 and room_bytes > 0:
            batch = self._batches.popleft()
            self.selected_end = batch.end_offset
            if self._is_visible(batch) and batch.count:
                selected.append(self._records(batch))
                wanted -= batch.count
                room_bytes -= selected[-1].size_bytes
        return selected

    def _records(self, batch: BatchHeader) -> Records:
        try:
            return records_of(self.data, batch)
        except MalformedDataError as error:
            raise RecordBatchError(str(self.target), batch.base_offset, error.why) from error

    def _is_visible(self, batch: BatchHeader) -> bool:
        """False for transaction markers and batches of aborted transactions.

        An aborted producer's next marker ends the aborted transaction.
        """
        while self._aborted and self._aborted[0][0] < batch.end_offset:
            self._aborted_producers.add(self._aborted.popleft()[1])
        if batch.control:
            self._aborted_producers.discard(batch.producer_id)
            return False
        return not (batch.transactional and batch.producer_id in self._aborted_producers)


def take_rows(chunks: Iterable[Chunk], max_records: int) -> tuple[pa.Table, list[tuple[Chunk, int | None]]]:
    """The next records of chunks, one chunk after the other.

    Returns:
        At most `max_records` rows with the columns of SCHEMA, and the chunks they were taken from, each with the offset
        of its first row. A chunk without visible records is among them with None, one with a rest may be there twice.

    Raises:
        RecordBatchError: a batch cannot be read.
    """
    tables: list[pa.Table] = []
    taken: list[tuple[Chunk, int | None]] = []
    selected: list[tuple[Chunk, list[Records]]] = []
    left, room_bytes = max_records, _ROOM_BYTES
    for chunk in chunks:
        if left <= 0 or room_bytes <= 0:
            break
        if chunk.rest is not None:  # of the first one only
            tables.append(chunk.rest.slice(0, left))
            taken.append((chunk, tables[0]["offset"][0].as_py()))
            left -= _cut(chunk, chunk.rest, left)
        if left > 0 and not chunk.is_empty:
            found = chunk.select(left, room_bytes)
            selected.append((chunk, found))
            left -= sum(records.batch.count for records in found)
            room_bytes -= sum(records.size_bytes for records in found)
    if selected:
        rows, firsts = _decode(selected)
        limit = max_records - sum(table.num_rows for table in tables)
        for chunk, _ in selected[:-1]:
            chunk.position = chunk.selected_end
        _cut(selected[-1][0], rows, limit)
        tables.append(rows.slice(0, limit))
        taken += zip((chunk for chunk, _ in selected), firsts, strict=True)
    return pa.concat_tables(tables) if tables else SCHEMA.empty_table(), taken


def _cut(chunk: Chunk, rows: pa.Table, limit: int) -> int:
    """Take rows that end with those of a chunk, up to a limit; returns how many were taken."""
    if rows.num_rows > limit:
        chunk.rest = rows.slice(limit)
        chunk.position = rows["offset"][limit - 1].as_py() + 1
        return limit
    chunk.rest, chunk.position = None, chunk.selected_end
    return int(rows.num_rows)


def _rows(selected: Sequence[tuple[Chunk, Sequence[Records]]]) -> pa.Table:
    """Rows of all batches; the error names the first that cannot be read."""
    try:
        return decode_rows([records for _, found in selected for records in found])
    except MalformedDataError as error:
        for chunk, found in selected:
            for records in found:
                try:
                    decode_rows([records])
                except MalformedDataError as own:
                    raise RecordBatchError(str(chunk.target), records.batch.base_offset, own.why) from error
        raise


def _decode(selected: Sequence[tuple[Chunk, Sequence[Records]]]) -> tuple[pa.Table, list[int | None]]:
    """Rows of all batches, and the offset of each chunk's first row."""
    rows = _rows(selected)
    counts = np.array([sum(records.batch.count for records in found) for _, found in selected], np.int64)
    if any(found and found[0].batch.base_offset < chunk.position for chunk, found in selected):
        offsets = rows["offset"].to_numpy()
        wanted = offsets >= np.repeat(np.array([chunk.position for chunk, _ in selected], np.int64), counts)
        ends = np.cumsum(counts)
        counts = np.array([wanted[end - count : end].sum() for end, count in zip(ends, counts, strict=True)], np.int64)
        rows = rows.filter(pa.array(wanted))
    starts = np.cumsum(counts) - counts
    firsts = [
        rows["offset"][start].as_py() if count else None
        for start, count in zip(starts.tolist(), counts.tolist(), strict=True)
    ]
    stamps = rows["timestamp"]
    if any(records.batch.first_timestamp_ms < 0 for _, found in selected for records in found):
        stamps = pc.if_else(pc.equal(stamps, -1), None, stamps)
    topics = pa.array([chunk.target.topic for chunk, _ in selected], pa.string())
    partitions = np.array([chunk.target.partition for chunk, _ in selected], np.int32)
    columns = [
        pa.repeat(topics[0], rows.num_rows)
        if len(selected) == 1
        else topics.take(pa.array(np.repeat(np.arange(len(selected)), counts))),
        pa.array(np.repeat(partitions, counts)),
        rows["offset"],
        stamps,
        rows["key"],
        rows["value"],
        rows["headers"],
    ]
    return pa.table(columns, schema=SCHEMA), firsts
