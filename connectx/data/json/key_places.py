"""Where documents have the names of their fields: found in the bytes of a whole column."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

_WIDTH: Final = 8
"""Bytes at the end of a name that are compared."""
_BLOCK_BYTES: Final = 1 << 16
"""Stays in a processor's cache."""
_QUOTE: Final = ord('"')
_COLON: Final = ord(":")


class KeyPlaces:
    """Places of `":` in documents. A text that holds it has a backslash before, which no name ends with."""

    def __init__(self, documents: pa.Array) -> None:
        _, offsets, data = documents.buffers()
        ends = np.frombuffer(offsets, np.int32)[documents.offset : documents.offset + len(documents) + 1]
        content = np.frombuffer(data or b"", np.uint8)[ends[0] : ends[-1]]
        places = _pairs(content)
        self._first = _first(places, ends - ends[0])
        self._counts = np.diff(self._first)
        self._tails = np.zeros(len(places), "<u8")
        if len(content) >= _WIDTH:
            windows = np.ndarray((len(content) - _WIDTH + 1,), "<u8", content, strides=(1,))
            self._tails = windows[np.maximum(places + 1 - _WIDTH, 0)]
            for number, place in enumerate(places[:_WIDTH].tolist()):
                self._tails[number] <<= np.uint64(8 * max(_WIDTH - 1 - place, 0))

    def with_names(self, names: Sequence[str], rows: Any) -> Any:
        """Those of the rows whose documents have exactly these names, in this order, as far as their ends show.

        Rows of which that is unknown are left out: names with escapes, spaces before colons.
        """
        if not names:
            return rows[self._counts[rows] == 0]
        ends = [f'"{name}"'.encode()[-_WIDTH:] for name in names if json.dumps(name, ensure_ascii=False)[1:-1] == name]
        if not ends or len(ends) < len(names) or len(set(ends)) < len(set(names)):
            return rows[:0]
        shifts = np.array([8 * (_WIDTH - len(end)) for end in ends], np.uint64)
        wanted = np.array([int.from_bytes(end, "little") for end in ends], np.uint64)
        found = rows[self._counts[rows] == len(names)]
        if len(found) * len(names) == len(self._tails):
            tails = self._tails.reshape(-1, len(names))
        else:
            tails = self._tails[self._first[found][:, None] + np.arange(len(names))]
        others = (tails >> shifts) != wanted
        return found[~others.any(axis=1)] if others.any() else found


def _first(places: Any, ends: Any) -> Any:
    """Number of the first place in each document, and of all places."""
    count, rest = divmod(len(places), len(ends) - 1)
    if count and not rest:  # one shape: so many in each, which is faster to check than to find
        by_document = places.reshape(-1, count)
        if (by_document[:, 0] >= ends[:-1]).all() and (by_document[:, -1] < ends[1:]).all():
            return np.arange(0, len(places) + 1, count)
    return np.searchsorted(places, ends)


def _pairs(content: Any) -> Any:
    """Places of a quote that a colon follows."""
    found = [np.empty(0, np.int64)]
    for first in range(0, len(content), _BLOCK_BYTES):
        block = content[first : first + _BLOCK_BYTES + 1]
        found.append(np.flatnonzero((block[:-1] == _QUOTE) & (block[1:] == _COLON)) + first)
    return np.concatenate(found)
