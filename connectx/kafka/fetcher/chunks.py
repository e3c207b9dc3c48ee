"""Chunks of record batches from fetch responses, and their conversion to rows.

Rows are made of several chunks at a time, so that many partitions with few records are as cheap as one with many.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

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


class _Place(NamedTuple):
    """Where a chunk is: the next batch, the next aborted transaction, and the producers of those that are not over."""

    batch: int
    aborted: int
    producers: frozenset[int]

    def after(self, batch: BatchHeader, aborted: Sequence[tuple[int, int]]) -> _Place:
        """The place after a batch. A producer's next marker ends its aborted transaction."""
        begun, producers = self.aborted, self.producers
        while begun < len(aborted) and aborted[begun][0] < batch.end_offset:
            producers |= {aborted[begun][1]}
            begun += 1
        if batch.control:
            producers -= {batch.producer_id}
        return _Place(self.batch + 1, begun, producers)

    def shows(self, batch: BatchHeader) -> bool:
        """False for transaction markers and batches of aborted transactions."""
        return not (batch.control or (batch.transactional and batch.producer_id in self.producers))


class Chunk:
    """Batches that follow each other. Records are decoded when they are taken, by `take_rows`.

    Attributes:
        size_bytes: of all batches, as they came.
        end_offset: the offset after the last batch.
        last_epoch: the leader epoch of the last batch.
        position: the offset after what was taken, transaction markers included.
        rest: rows that were decoded and not taken.
        bad: why the next batch cannot be read, once that is known. The chunk ends there.
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
        self._batches = tuple(batches)
        self._aborted = sorted(aborted)
        self._at = _Place(0, 0, frozenset())
        self._before = self._at  # the last `select`
        self.rest: pa.Table | None = None
        self.bad: RecordBatchError | None = None
        self._bad_at = len(self._batches)
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
    ) -> tuple[Chunk | None, str]:
        """The whole batches in `data`, None if there is none, and why the one after them cannot be read, or "".

        That one is of no other format than 2, has a wrong CRC or an impossible length.

        Args:
            offset: the first offset that is wanted; a batch may begin before it.
            aborted: first offset and producer id of each aborted transaction, as the broker reports them; records of
                these are left out.
        """
        batches: list[BatchHeader] = []
        bad = ""
        try:
            batches.extend(scan(data, check_crc=check_crc))
        except MalformedDataError as error:
            bad = error.why
        return (cls(target, offset, data, batches, aborted) if batches else None), bad

    @property
    def is_empty(self) -> bool:
        return self.rest is None and self.bad is None and not self.has_batches

    @property
    def has_batches(self) -> bool:
        """Whether batches are left that may be read."""
        return self._at.batch < self._bad_at

    @property
    def selected_end(self) -> int:
        """The offset after what was selected."""
        return self._batches[self._at.batch - 1].end_offset if self._at.batch else self.position

    def select(self, wanted: int, room_bytes: int) -> list[Records]:
        """Take the next batches until they have the records that are wanted or take the room, or one is bad."""
        self._before = self._at
        selected: list[Records] = []
        while self.has_batches and wanted > 0 and room_bytes > 0:
            batch = self._batches[self._at.batch]
            after = self._at.after(batch, self._aborted)
            if after.shows(batch) and batch.count:
                try:
                    selected.append(records_of(self.data, batch))
                except MalformedDataError as error:
                    self.end_before(batch, error.why)
                    break
                wanted -= batch.count
                room_bytes -= selected[-1].size_bytes
            self._at = after
        return selected

    def unselect(self) -> None:
        """Take back the last `select`."""
        self._at = self._before

    def end_before(self, batch: BatchHeader, why: str) -> None:
        """Let the chunk end before a batch that cannot be read."""
        self._bad_at = next(number for number, own in enumerate(self._batches) if own is batch)
        self.bad = RecordBatchError(str(self.target), batch.base_offset, why)


Selected = Sequence[tuple[Chunk, Sequence[Records]]]


def take_rows(chunks: Iterable[Chunk], max_records: int) -> tuple[pa.Table, list[tuple[Chunk, int | None]]]:
    """The next records of chunks, one chunk after the other, up to the first batch that cannot be read.

    Returns:
        At most `max_records` rows with the columns of SCHEMA, and the chunks they were taken from, each with the offset
        of its first row. A chunk without visible records is among them with None, one with a rest may be there twice.

    Raises:
        RecordBatchError: the first batch cannot be read, now and in each later call.
    """
    given = list(chunks)
    tables: list[pa.Table] = []
    taken: list[tuple[Chunk, int | None]] = []
    left = max_records
    if given and (rest := given[0].rest) is not None:
        tables.append(rest.slice(0, left))
        taken.append((given[0], tables[0]["offset"][0].as_py()))
        left -= _cut(given[0], rest, left)
    selected, decoded = _select_readable(given, left)
    if selected:
        rows, firsts = _shown(selected, decoded)
        for chunk, _ in selected[:-1]:
            chunk.position = chunk.selected_end
        _cut(selected[-1][0], rows, left)
        tables.append(rows.slice(0, left))
        taken += zip((chunk for chunk, _ in selected), firsts, strict=True)
    if not taken and given and given[0].bad is not None:
        raise given[0].bad
    return pa.concat_tables(tables) if tables else SCHEMA.empty_table(), taken


def _select_readable(chunks: Sequence[Chunk], wanted: int) -> tuple[Selected, pa.Table]:
    """The next batches of chunks and their records, up to the first batch that cannot be read."""
    while selected := _select(chunks, wanted):
        try:
            return selected, decode_rows([records for _, found in selected for records in found])
        except MalformedDataError as error:
            for chunk, _ in selected:
                chunk.unselect()
            _end_before_first_bad(selected, error)
    return (), None


def _select(chunks: Iterable[Chunk], wanted: int) -> Selected:
    """The next batches of chunks, up to the first that is known to be bad."""
    selected: list[tuple[Chunk, list[Records]]] = []
    left, room_bytes = wanted, _ROOM_BYTES
    for chunk in chunks:
        if left <= 0 or room_bytes <= 0:
            break
        if chunk.has_batches:
            found = chunk.select(left, room_bytes)
            if found or chunk.bad is None:
                selected.append((chunk, found))
            left -= sum(records.batch.count for records in found)
            room_bytes -= sum(records.size_bytes for records in found)
        if chunk.bad is not None:
            break
    return selected


def _end_before_first_bad(selected: Selected, error: MalformedDataError) -> None:
    for chunk, found in selected:
        for records in found:
            try:
                decode_rows([records])
            except MalformedDataError as own:
                chunk.end_before(records.batch, own.why)
                return
    raise error


def _cut(chunk: Chunk, rows: pa.Table, limit: int) -> int:
    """Take rows that end with those of a chunk, up to a limit; returns how many were taken."""
    if rows.num_rows > limit:
        chunk.rest = rows.slice(limit)
        chunk.position = rows["offset"][limit - 1].as_py() + 1
        return limit
    chunk.rest, chunk.position = None, chunk.selected_end
    return int(rows.num_rows)


def _shown(selected: Selected, rows: pa.Table) -> tuple[pa.Table, list[int | None]]:
    """Rows of selected batches with all columns, from the chunks' positions on, and each chunk's first offset."""
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
