"""Columns in one piece."""

from __future__ import annotations

import pyarrow as pa


def one_chunk(column: pa.ChunkedArray) -> pa.Array:
    """A column in one piece. One without pieces has none after `combine_chunks` either, until it is called again."""
    combined = column.combine_chunks()
    return combined.combine_chunks() if isinstance(combined, pa.ChunkedArray) else combined
