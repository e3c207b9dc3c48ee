"""The partition that a record goes to, as Java's producer chooses it: by key, or sticky without one.

Sources: Utils.murmur2, BuiltInPartitioner (KIP-480, KIP-794).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_SEED: Final = np.uint32(0x9747B28C)
_M: Final = np.uint32(0x5BD1E995)


def murmur2(keys: Any) -> Any:
    """Hash a binary array as Java's client does; returns uint32. One round for each 4 bytes of the longest key."""
    lengths = pc.fill_null(pc.binary_length(keys), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    offsets = np.frombuffer(keys.buffers()[1], np.int32, len(keys) + 1, keys.offset * 4)[:-1].astype(np.int64)
    content = keys.buffers()[2]
    data = np.frombuffer(content, np.uint8) if content is not None and content.size else np.zeros(1, np.uint8)
    with np.errstate(over="ignore"):
        hashes = _SEED ^ lengths.astype(np.uint32)
        for position in range(0, int(lengths.max(initial=0)) & ~3, 4):
            rows = np.flatnonzero(lengths >= position + 4)
            at = offsets[rows] + position
            word = _little_endian(data, at, 4) * _M
            word = (word ^ (word >> np.uint32(24))) * _M
            hashes[rows] = (hashes[rows] * _M) ^ word
        for rest in (1, 2, 3):
            rows = np.flatnonzero(lengths & 3 == rest)
            at = offsets[rows] + (lengths[rows] & ~3)
            hashes[rows] = (hashes[rows] ^ _little_endian(data, at, rest)) * _M
        hashes = (hashes ^ (hashes >> np.uint32(13))) * _M
        return hashes ^ (hashes >> np.uint32(15))


def _little_endian(data: Any, at: Any, count: int) -> Any:
    word = np.zeros(len(at), np.uint32)
    for byte in range(count):
        word |= data[at + byte].astype(np.uint32) << np.uint32(8 * byte)
    return word


def partitions_of_keys(keys: Any, count: int) -> Any:
    """Partition of each key among `count` (int64 array); a null key counts as an empty one."""
    if not pa.types.is_binary(keys.type):
        keys = keys.cast(pa.binary())
    return (murmur2(keys) & np.uint32(0x7FFFFFFF)).astype(np.int64) % count


class StickyPartitioner:
    """Partitions of records without a key: one partition until `batch_bytes` are in it, then another.

    Args:
        batch_bytes: after how many bytes the partition changes (`batch.size`).
        choose: returns a random index below its argument.
    """

    def __init__(self, batch_bytes: int, choose: Callable[[int], int]) -> None:
        self._batch_bytes = batch_bytes
        self._choose = choose
        self._current: dict[str, tuple[int, int]] = {}

    def assign(self, topic: str, sizes_bytes: Any, available: Sequence[int]) -> Any:
        """Partition of each record (int64 array) by the records' sizes, among partitions that have a leader."""
        assigned = np.empty(len(sizes_bytes), np.int64)
        ends = np.cumsum(sizes_bytes)
        start = counted = 0
        while start < len(assigned):
            partition, used = self._current.get(topic, (-1, 0))
            if partition not in available or used >= self._batch_bytes:
                partition, used = available[self._choose(len(available))], 0
            end = int(np.searchsorted(ends, counted + self._batch_bytes - used, side="left")) + 1
            end = min(end, len(assigned))
            assigned[start:end] = partition
            self._current[topic] = partition, used + int(ends[end - 1]) - counted
            start, counted = end, int(ends[end - 1])
        return assigned
