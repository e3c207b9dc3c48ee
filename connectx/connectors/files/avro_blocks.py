"""Avro files block by block: decompressed with a limit, as one stream that is not compressed.

Libraries decompress a block whole, whatever it holds. Source: Avro specification 1.12, object container files.
"""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Iterator
from typing import IO, Final

import pyarrow as pa

from connectx.connectors.files.limits import MOST_BYTES
from connectx.model.decoding import WrongShape, read_within, snappy_size

_MAGIC: Final = b"Obj\x01"
_SYNC_BYTES: Final = 16
_CRC_BYTES: Final = 4
_LONGEST_VARINT: Final = 10
_TOO_LARGE: Final = f"one of its blocks holds more than {MOST_BYTES} bytes"


class AvroBlocks:
    """The file for a reader of Avro that does not know its codec; `read_bytes` counts what blocks hold.

    Raises:
        ValueError: it is no Avro file or ends within a block, its codec is unknown, or a block holds more than
            MOST_BYTES. Never EOFError, which fastavro takes for the end of the file.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.read_bytes = 0
        if self._exactly(len(_MAGIC)) != _MAGIC:
            raise ValueError("it does not begin as an Avro file does")
        metadata = dict(self._metadata())
        self._codec = metadata.pop("avro.codec", b"null").decode("ascii", "replace")
        self._sync = self._exactly(_SYNC_BYTES)
        self._rest = memoryview(_header(metadata) + self._sync)
        self._blocks = self._plain_blocks()

    def read(self, size: int) -> bytes:
        """The next bytes, fewer at the end only."""
        parts = []
        while size > 0:
            if not self._rest:
                block = next(self._blocks, None)
                if block is None:
                    break
                self._rest = memoryview(block)
            parts.append(bytes(self._rest[:size]))
            self._rest = self._rest[size:]
            size -= len(parts[-1])
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _plain_blocks(self) -> Iterator[bytes]:
        while (count := self._long(may_end=True)) is not None:
            packed = self._exactly(self._size())
            if self._exactly(_SYNC_BYTES) != self._sync:
                raise ValueError("one of its blocks does not end with the file's marker")
            plain = _decompressed(packed, self._codec)
            self.read_bytes += len(plain)
            yield b"".join((_varint(count), _varint(len(plain)), plain, self._sync))

    def _metadata(self) -> Iterator[tuple[str, bytes]]:
        while count := self._long():
            if count < 0:
                count = -count
                self._long()  # the size of this part
            for _ in range(count):
                name = self._exactly(self._size()).decode()
                yield name, self._exactly(self._size())

    def _size(self) -> int:
        size = self._long()
        assert size is not None
        if not 0 <= size <= MOST_BYTES:
            raise ValueError(f"one of its parts claims {size} bytes, and at most {MOST_BYTES} are read")
        return size

    def _exactly(self, size: int) -> bytes:
        found = self._file.read(size) if size else b""
        if len(found) < size:
            raise ValueError("it ends within a block")
        return found

    def _long(self, *, may_end: bool = False) -> int | None:
        number = 0
        for at in range(_LONGEST_VARINT):
            byte = self._file.read(1)
            if not byte:
                if may_end and at == 0:
                    return None
                raise ValueError("it ends within a number")
            number |= (byte[0] & 0x7F) << 7 * at
            if byte[0] < 0x80:
                return (number >> 1) ^ -(number & 1)
        raise ValueError("one of its numbers is too long")


def _decompressed(packed: bytes, codec: str) -> bytes:
    """A block in plain bytes. ValueError if they are more than MOST_BYTES."""
    match codec:
        case "null":
            return packed
        case "deflate":
            plain = zlib.decompressobj(-zlib.MAX_WBITS).decompress(packed, MOST_BYTES + 1)
        case "bzip2":
            plain = bz2.BZ2Decompressor().decompress(packed, MOST_BYTES + 1)
        case "xz":
            plain = lzma.LZMADecompressor().decompress(packed, MOST_BYTES + 1)
        case "zstandard":
            plain = read_within(pa.CompressedInputStream(pa.BufferReader(packed), "zstd"), MOST_BYTES)
        case "snappy":
            plain = _snappy(packed[:-_CRC_BYTES])
        case _:
            raise ValueError(f"its codec {codec!r} is unknown")
    if len(plain) > MOST_BYTES:
        raise ValueError(_TOO_LARGE)
    return plain


def _snappy(packed: bytes) -> bytes:
    try:
        size = snappy_size(packed)
    except WrongShape as error:
        raise ValueError(str(error)) from error
    if size > MOST_BYTES:
        raise ValueError(_TOO_LARGE)
    return bytes(pa.Codec("snappy").decompress(packed, size, asbytes=True))


def _header(metadata: dict[str, bytes]) -> bytes:
    pairs = [(name.encode(), value) for name, value in {**metadata, "avro.codec": b"null"}.items()]
    texts = b"".join(_varint(len(part)) + part for pair in pairs for part in pair)
    return _MAGIC + _varint(len(pairs)) + texts + _varint(0)


def _varint(number: int) -> bytes:
    rest = (number << 1) ^ (number >> 63)
    found = bytearray()
    while rest > 0x7F:
        found.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes(found) + bytes([rest])
