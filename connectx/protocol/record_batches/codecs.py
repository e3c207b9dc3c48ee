"""Compression of records, in the framings that Kafka's brokers and Java clients read and write.

Arrow compresses. Two framings are Kafka's and are built here: snappy in xerial blocks (SnappyOutputStream), and LZ4
frames with independent blocks (Lz4BlockOutputStream), because brokers refuse the linked blocks that Arrow writes.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from connectx.errors.plugins import MalformedDataError
from connectx.model.decoding import WrongShape, read_within, refusing, snappy_size

IDS: Final = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
NAMES: Final = {number: name for name, number in IDS.items()}
MOST_BYTES: Final = 256 * 1024 * 1024
"""Of one batch once it is decompressed: a few kilobytes can hold more than a worker has memory for."""

_BLOCK_BYTES: Final = 64 * 1024
_XERIAL: Final = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
_LZ4_FRAME: Final = bytes.fromhex("04224d18604082")  # version 1, independent blocks of 64 KiB, no checksums
_LZ4_STORED: Final = 1 << 31


@dataclass(frozen=True, slots=True)
class Compression:
    """A codec by Kafka's name (`compression.type`), with its level (`compression.<type>.level`)."""

    name: str = "none"
    level: int | None = None

    @property
    def id(self) -> int:
        """Kafka's number of the codec, as batch attributes have it."""
        return IDS[self.name]


def compress(data: Any, compression: Compression) -> Any:
    """Compress a buffer."""
    match compression.name:
        case "none":
            return data
        case "snappy":
            return _xerial(memoryview(data))
        case "lz4":
            return _lz4_frame(memoryview(data), compression.level)
        case name:
            return pa.Codec(name, compression.level).compress(data)


def decompress(data: Any, name: str) -> Any:
    """Decompress a buffer.

    Raises:
        MalformedDataError: the data is not of that codec, or takes more than MOST_BYTES.
    """
    with refusing(lambda why: MalformedDataError("a record batch", f"it cannot be decompressed with {name}: {why}")):
        match name:
            case "none":
                return data
            case "snappy":
                return _from_snappy(memoryview(data).cast("B"))
            case _:
                found = read_within(pa.CompressedInputStream(pa.BufferReader(data), name), MOST_BYTES)
                check_size(len(found))
                return pa.py_buffer(found)


def check_size(size_bytes: int) -> None:
    """Refuse to decompress more than MOST_BYTES of a batch."""
    if size_bytes > MOST_BYTES:
        raise WrongShape(f"it takes more than {MOST_BYTES} bytes once it is decompressed")


def _xerial(data: memoryview) -> bytes:
    codec = pa.Codec("snappy")
    parts = [_XERIAL]
    for at in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = codec.compress(data[at : at + _XERIAL_BLOCK_BYTES], asbytes=True)
        parts += (struct.pack(">i", len(block)), block)
    return b"".join(parts)


def _lz4_frame(data: memoryview, level: int | None) -> bytes:
    codec = pa.Codec("lz4_raw", level)
    parts = [_LZ4_FRAME]
    for at in range(0, len(data), _BLOCK_BYTES):
        plain = data[at : at + _BLOCK_BYTES]
        block = codec.compress(plain, asbytes=True)
        if len(block) < len(plain):
            parts += (struct.pack("<I", len(block)), block)
        else:
            parts += (struct.pack("<I", len(plain) | _LZ4_STORED), bytes(plain))
    parts.append(struct.pack("<I", 0))
    return b"".join(parts)


def _from_snappy(data: memoryview) -> Any:
    """Xerial blocks, or one block without a frame as librdkafka may write it."""
    if bytes(data[:8]) != _XERIAL[:8]:
        return _snappy_block(data)
    at = len(_XERIAL)
    blocks, size = [], 0
    while at < len(data):
        (length,) = struct.unpack_from(">I", data, at)
        blocks.append(_snappy_block(data[at + 4 : at + 4 + length]))
        size += len(blocks[-1])
        check_size(size)
        at += 4 + length
    return pa.py_buffer(b"".join(blocks))


def _snappy_block(block: memoryview) -> Any:
    size = snappy_size(block)
    check_size(size)
    return pa.Codec("snappy").decompress(block, size, asbytes=True)
