"""Rows of MySQL's text protocol as Arrow columns, without a Python object for each value.

Each row is a packet of length-encoded texts. Python finds where packets begin; numpy finds where the values of a column
begin and end in all of them, and Arrow copies these. Source: "Text Resultset Row" in MySQL's Source Code Documentation.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_Positions = npt.NDArray[np.int64]
_HEADER: Final = struct.Struct("<I")
_HEADER_BYTES: Final = 4
"""Three bytes are the length of a packet, one is its number."""
_MOST_BYTES: Final = 0xFFFFFF
"""A packet of this length continues in the next one."""
_NULL: Final = 0xFB
_LONG: Final = ((0xFC, 2), (0xFD, 3), (0xFE, 8))
"""First bytes of a value whose length follows in so many bytes."""
_END: Final = 0xFE
_END_BYTES: Final = 9
"""The last packet is shorter; a row that begins with the same byte is longer."""
_ERROR: Final = 0xFF
_READ_BYTES: Final = 1 << 18
_BATCH_BYTES: Final = 32 << 20


class RowReader:
    """Reads the rows of one result set.

    Args:
        receive: returns up to so many bytes from the server, at least one; it raises when the connection is lost.
        fail: raises the error that a packet of the server describes.
        columns: how many columns a row has.
    """

    def __init__(self, receive: Callable[[int], bytes], fail: Callable[[bytes], None], columns: int) -> None:
        self._receive = receive
        self._fail = fail
        self._columns = columns
        self._data = bytearray()
        self._ended = False

    def next(self, rows: int) -> list[pa.Array]:
        """Columns of the next rows as Arrow's binary, at most `rows` or about 32 MB of them; empty after the last."""
        data, starts, at = self._data, list[int](), 0
        while not self._ended and len(starts) < rows and at < _BATCH_BYTES:
            start = at + _HEADER_BYTES
            if start > len(data):
                self._fill(start)
            length = _HEADER.unpack_from(data, at)[0] & _MOST_BYTES
            if start + length > len(data) or length == _MOST_BYTES:
                length = self._whole(start, length)
            if data[start] >= _END and (data[start] == _ERROR or length < _END_BYTES):
                self._end(bytes(data[start : start + length]))
                break
            starts.append(start)
            at = start + length
        self._data = data[at:]
        return _columns(data, starts, self._columns) if starts else []

    def _fill(self, until: int) -> None:
        while len(self._data) < until:
            self._data += self._receive(_READ_BYTES)

    def _whole(self, start: int, length: int) -> int:
        """Receive all of a packet and of those that continue it; returns their length as one packet."""
        self._fill(start + length)
        part = length
        while part == _MOST_BYTES:
            end = start + length
            self._fill(end + _HEADER_BYTES)
            part = _HEADER.unpack_from(self._data, end)[0] & _MOST_BYTES
            del self._data[end : end + _HEADER_BYTES]
            self._fill(end + part)
            length += part
        return length

    def _end(self, packet: bytes) -> None:
        self._ended = True
        if packet[0] == _ERROR:
            self._fail(packet)


def _columns(data: bytearray, starts: list[int], count: int) -> list[pa.Array]:
    octets, buffer = np.frombuffer(data, np.uint8), pa.py_buffer(data)
    at, found = np.array(starts, np.int64), list[pa.Array]()
    chosen = pa.py_buffer(np.arange(0, 2 * len(starts), 2))
    for _ in range(count):
        begin, end, is_null = _values(octets, at)
        # Every second one of these binaries is a value, the others are what is between values.
        edges = np.empty(2 * len(starts), np.int32)
        edges[0::2], edges[1::2] = begin, end
        between = pa.Array.from_buffers(pa.binary(), len(edges) - 1, [None, pa.py_buffer(edges), buffer])
        is_valid = pa.py_buffer(np.packbits(~is_null, bitorder="little"))
        found.append(between.take(pa.Array.from_buffers(pa.int64(), len(starts), [is_valid, chosen])))
        at = end
    return found


def _values(octets: npt.NDArray[np.uint8], at: _Positions) -> tuple[_Positions, _Positions, npt.NDArray[np.bool_]]:
    """(begin, end, is null) of the values at these positions."""
    first = octets[at]
    is_null = first == _NULL
    begin, length = at + 1, np.where(is_null, 0, first).astype(np.int64)
    for mark, size in _LONG:
        here = np.flatnonzero(first == mark)
        if len(here):
            digits = octets[at[here, None] + np.arange(1, size + 1)].astype(np.int64)
            length[here] = (digits << np.arange(0, 8 * size, 8)).sum(axis=1)
            begin[here] += size
    return begin, begin + length, is_null
