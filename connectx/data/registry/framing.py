"""Confluent's wire format on whole columns: a zero byte, the schema's id in four bytes, then the body."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connectx.values import Value

_HEADER_BYTES: Final = 5
_MAGIC: Final = b"\0"


class Framed(Value):
    """Records of one header: their row numbers, their bodies, and the schema's id or why there is none."""

    rows: pa.Array
    schema_id: int | None
    error: str
    bodies: pa.Array


def framed(body: pa.Array, schema_id: int) -> pa.Array:
    """Bodies (binary) with the header of a schema; null stays null."""
    return pc.binary_join_element_wise(pa.scalar(header(schema_id)), body, b"", null_handling="emit_null")


def header(schema_id: int) -> bytes:
    """The five bytes before a body."""
    return _MAGIC + schema_id.to_bytes(4, "big")


def unframed(records: pa.Array) -> Iterator[Framed]:
    """Records (binary) by the schema that their headers name. Null records are in no part."""
    present = records.is_valid()
    rows = None if records.null_count == 0 else pc.indices_nonzero(present)
    valid = records if rows is None else records.take(rows)
    heads = pc.binary_slice(valid, 0, _HEADER_BYTES).dictionary_encode()
    numbers = pa.array(np.arange(len(records), dtype=np.uint64)) if rows is None else rows
    distinct: list[bytes] = heads.dictionary.to_pylist()
    for index, head in enumerate(distinct):
        there = None if len(distinct) == 1 else pc.indices_nonzero(pc.equal(heads.indices, index))
        of_head = numbers if there is None else numbers.take(there)
        whole = valid if there is None else valid.take(there)
        error = _why_not(head)
        bodies = pc.binary_slice(whole, _HEADER_BYTES, np.iinfo(np.int32).max) if not error else whole
        yield Framed(of_head, None if error else int.from_bytes(head[1:], "big"), error, bodies)


def _why_not(head: bytes) -> str:
    if len(head) < _HEADER_BYTES:
        return f"The record has {len(head)} bytes, fewer than the 5 of Confluent's header."
    if head[:1] != _MAGIC:
        return (
            f"The record begins with byte {head[0]}, not with the 0 of Confluent's header: it was written by another "
            "converter, or its schema id is in a record header, which is not supported."
        )
    return ""
