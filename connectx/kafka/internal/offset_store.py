"""Committed source offsets: the worker's view of the offsets topic, in memory.

It receives every record of the topic. A read first waits for the topic's present end, so that it sees everything that
was committed before it began. It never writes. Mirrors Kafka Connect's KafkaOffsetBackingStore and
OffsetStorageReaderImpl.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final

from connectx.errors.base import ConnectxError
from connectx.errors.kafka import ClientClosedError
from connectx.kafka.internal.topic_tail import TopicTail
from connectx.model.ids import TopicPartition
from connectx.model.source_offsets import SourceOffset, SourcePartition
from connectx.protocol.offsets_topic import decode_offset_key, decode_offset_value, encode_offset_key

# An open transaction in the topic holds readers back; it ends at the latest after transaction.timeout.ms (60 s).
READ_S: Final = 90.0
_LOOK_S: Final = 0.1


class OffsetStore:
    """Offsets by the exact bytes of their keys, so the order of a partition's properties matters."""

    def __init__(self, tail: TopicTail) -> None:
        self._tail = tail
        self._partitions: tuple[TopicPartition, ...] = ()
        self._values: dict[bytes, bytes] = {}
        self._keys: dict[str, dict[bytes, SourcePartition]] = {}

    def use(self, partitions: Sequence[TopicPartition]) -> None:
        """The partitions of the topic, before anything is read."""
        self._partitions = tuple(partitions)

    def apply(self, key: bytes | None, value: bytes | None) -> None:
        """Take in one record; on the tail's thread. MalformedDataError for a key that names no source partition."""
        connector, partition = decode_offset_key.value("a key of the offsets topic", key)
        assert key is not None, "a null key cannot be read"
        if value is None or value == b"null":
            self._values.pop(key, None)
            self._keys.get(connector, {}).pop(key, None)
        else:
            self._values[key] = value
            self._keys.setdefault(connector, {})[key] = partition

    def read(
        self,
        connector: str,
        partitions: Sequence[SourcePartition],
        *,
        timeout_s: float = READ_S,
        cancel: threading.Event | None = None,
    ) -> list[SourceOffset | None]:
        """Read the topic to its end, then look up; None where nothing is committed. Blocks.

        Raises:
            ReadToEndError: the end was not reached in time, for example because a transaction stayed open.
            ClientClosedError: `cancel` was set, or the worker has ended.
            MalformedDataError: a partition is not a flat map of primitive values, or a committed offset is not one.
        """
        keys = [encode_offset_key(connector, partition) for partition in partitions]
        self._refresh(timeout_s, cancel)
        return [self._offset(key) for key in keys]

    def connector_offsets(
        self, connector: str, *, timeout_s: float = READ_S, cancel: threading.Event | None = None
    ) -> list[tuple[SourcePartition, SourceOffset]]:
        """All committed offsets of a connector, in the order of their first commit. Blocks; raises as `read`."""
        self._refresh(timeout_s, cancel)
        found = []
        for key, partition in list(self._keys.get(connector, {}).items()):
            offset = self._offset(key)
            if offset is not None:
                found.append((partition, offset))
        return found

    def known(self, connector: str, partitions: Sequence[SourcePartition]) -> list[SourceOffset | None]:
        """Look up what was read so far. Never blocks; raises MalformedDataError as `read`."""
        return [self._offset(encode_offset_key(connector, partition)) for partition in partitions]

    def partitions(self, connector: str) -> list[SourcePartition]:
        """Source partitions with a committed offset, as known now. Never blocks."""
        return list(self._keys.get(connector, {}).values())

    def _offset(self, key: bytes) -> SourceOffset | None:
        what = f"an offset record with the key {key.decode(errors='replace')}"
        return decode_offset_value.value(what, self._values.get(key))

    def _refresh(self, timeout_s: float, cancel: threading.Event | None) -> None:
        ended = threading.Event()
        outcome: list[ConnectxError | None] = []

        def done(error: ConnectxError | None) -> None:
            outcome.append(error)
            ended.set()

        read_id = self._tail.read_to_end(self._partitions, timeout_s, done)
        while not ended.wait(_LOOK_S):
            if cancel is not None and cancel.is_set():
                self._tail.cancel(read_id)
                raise ClientClosedError("Reading source offsets was cancelled because the task was stopped.")
        if outcome[0] is not None:
            raise outcome[0]
