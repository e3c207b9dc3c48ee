"""Record batches of one partition out of one answer, and how their records become rows."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from connectx.model.ids import TopicPartition
from connectx.protocol.record_batches import HEADERS, BatchHeader, decode_rows, scan

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


class Chunk:
    """Batches that follow each other. Records are decoded when they are taken.

    Attributes:
        size_bytes: of all batches, as they came.
        end_offset: the offset after the last batch.
        last_epoch: the leader epoch of the last batch.
        position: the offset after what was taken, transaction markers included.
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
        self._data = data
        self._batches = deque(batches)
        self._aborted = deque(sorted(aborted))
        self._aborted_producers: set[int] = set()
        self._decoded: pa.Table | None = None
        self._decoded_end = offset
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
            MalformedDataError: the data are no batches of format 2, or a CRC is wrong.
        """
        batches = list(scan(data, check_crc=check_crc))
        return cls(target, offset, data, batches, aborted) if batches else None

    @property
    def is_empty(self) -> bool:
        """Whether everything was taken."""
        return self._decoded is None and not self._batches

    def take(self, max_records: int) -> pa.Table | None:
        """The next records, at most `max_records`, with the columns of SCHEMA; None if what is left has none.

        Raises:
            MalformedDataError: records do not fit their batch.
        """
        if self._decoded is None:
            self._decoded = self._decode(max_records)
        rows = self._decoded
        if rows is None:
            self.position = self._decoded_end
            return None
        if rows.num_rows > max_records:
            taken, self._decoded = rows.slice(0, max_records), rows.slice(max_records)
            self.position = taken["offset"][-1].as_py() + 1
            return taken
        self._decoded, self.position = None, self._decoded_end
        return rows

    def _decode(self, wanted: int) -> pa.Table | None:
        """Records of the next batches, until there are as many as wanted."""
        batches: list[BatchHeader] = []
        count = 0
        while self._batches and count < wanted:
            batch = self._batches.popleft()
            self._decoded_end = batch.end_offset
            if self._is_visible(batch):
                batches.append(batch)
                count += batch.count
        if not batches:
            return None
        rows = decode_rows(self._data, batches)
        if batches[0].base_offset < self.position:
            rows = rows.filter(pc.greater_equal(rows["offset"], self.position))
        if rows.num_rows == 0:
            return None
        stamps = rows["timestamp"]
        if any(batch.first_timestamp_ms < 0 for batch in batches):
            stamps = pc.if_else(pc.equal(stamps, -1), None, stamps)
        columns = [
            pa.repeat(self.target.topic, rows.num_rows),
            pa.repeat(pa.scalar(self.target.partition, pa.int32()), rows.num_rows),
            rows["offset"],
            stamps,
            *(rows["key"], rows["value"], rows["headers"]),
        ]
        return pa.table(columns, schema=SCHEMA)

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
