"""How many files rows are divided into, so that each has about the size of `file.size.bytes`.

Rows in memory are several times larger than their files. How many times depends on the values, so a part of the rows
is encoded to find out.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pyarrow as pa


def file_count(rows: pa.Table, file_bytes: int) -> int:
    """Number of files of about this size, at least one."""
    if rows.nbytes <= file_bytes:
        return 1
    sample = rows.slice(0, max(1, rows.num_rows * file_bytes // rows.nbytes))
    scale: float = rows.num_rows / sample.num_rows
    return max(1, round(_encoded_bytes(sample) * scale / file_bytes))


def parts(rows: pa.Table, file_bytes: int) -> Iterator[pa.Table]:
    """The rows of each file, in their order."""
    count = file_count(rows, file_bytes)
    cuts = [rows.num_rows * number // count for number in range(count + 1)]
    return (rows.slice(first, end - first) for first, end in pairwise(cuts))


def _encoded_bytes(rows: pa.Table) -> int:
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, compression="zstd")
    return int(sink.tell())
