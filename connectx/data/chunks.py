"""Columns in one piece, and a function of Arrow's that is safe for these alone."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc


def one_chunk(column: pa.ChunkedArray) -> pa.Array:
    """A column in one piece. One without pieces has none after `combine_chunks` either, until it is called again."""
    combined = column.combine_chunks()
    return combined.combine_chunks() if isinstance(combined, pa.ChunkedArray) else combined


def rows_where(chosen: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Numbers of the rows that are true. Before Arrow 26 its function ends the process on an empty chunked column."""
    return pc.indices_nonzero(one_chunk(chosen) if isinstance(chosen, pa.ChunkedArray) else chosen)  # noqa: TID251
