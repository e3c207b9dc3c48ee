"""Envelopes: Connect's of a schema and a payload, taken apart without reading the payload, and objects of one field."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from connectx.data.chunks import rows_where
from connectx.data.json.strict import RefusedDocumentError, members, text_of

NO_ENVELOPE: Final = (
    'JsonConverter with schemas.enable requires "schema" and "payload" fields and may not contain additional fields. '
    "If you are trying to deserialize plain JSON data, set schemas.enable=false in your converter configuration."
)
_LEAST_SHARE: Final = 64
"""A schema is rare if fewer than one in so many records have it."""
_SCHEMA: Final = re.compile(r'\s*\{\s*"schema"\s*:\s*')
_PAYLOAD: Final = re.compile(r'\s*,\s*"payload"\s*:')
_SCALAR: Final = r'^[ \t\r\n]*(-?[0-9][0-9.eE+-]*|"(?:[^"\\]|\\.)*"|true|false)[ \t\r\n]*$'


def in_objects(records: pa.Array, name: str) -> pa.Array:
    """Numbers, texts and booleans as objects with this one field; everything else as it is."""
    field = json.dumps(name).replace("\\", "\\\\")
    return pc.replace_substring_regex(records, _SCALAR, f"{{{field}:\\1}}")


def split_envelopes(records: pa.Array) -> Iterator[tuple[str, pa.Array, pa.Array]]:
    """(text of a schema, row numbers, payloads) of each schema. Rows that belong to none are in no part.

    A record belongs to a schema when it begins as the first record of that schema does, and ends with a brace: whether
    there is one payload in between shows when it is read. Records of rare schemas are taken apart one by one.
    """
    left = rows_where(records.is_valid())
    shares = True
    while shares and len(left) and (known := _head(records[left[0].as_py()].as_py())):
        text, head = known
        documents = records.take(left)
        alike = pc.and_(pc.starts_with(documents, head), pc.ends_with(documents, b"}"))
        yield text, left.filter(alike), pc.binary_slice(documents.filter(alike), len(head), -1)
        shares = alike.true_count * _LEAST_SHARE >= len(left)
        left = left.filter(pc.invert(alike))
    parts: dict[str, tuple[list[int], list[bytes]]] = {}
    for row in left.to_pylist():
        try:
            schema, payload = split_one(records[row].as_py())
        except RefusedDocumentError:
            continue
        rows, payloads = parts.setdefault(schema, ([], []))
        rows.append(row)
        payloads.append(payload.encode())
    for schema, (rows, payloads) in parts.items():
        yield schema, pa.array(rows, pa.uint64()), pa.array(payloads, pa.binary())


def split_one(record: bytes) -> tuple[str, str]:
    """Exact texts of a record's schema and payload.

    Raises:
        RefusedDocumentError: it is not an envelope with exactly these two.
    """
    text = text_of(record)
    given = members(text) if text[0] == "{" else {}
    if given.keys() != {"schema", "payload"}:
        raise RefusedDocumentError(NO_ENVELOPE)
    return given["schema"], given["payload"]


def _head(record: bytes) -> tuple[str, bytes] | None:
    """Text of the schema of a record, and all that comes before its payload; None when it begins otherwise."""
    try:
        text = record.decode("utf-8")
        schema = _SCHEMA.match(text)
        if schema is None:
            return None
        _, end = json.JSONDecoder().raw_decode(text, schema.end())
    except (ValueError, RecursionError):
        return None
    payload = _PAYLOAD.match(text, end)
    return None if payload is None else (text[schema.end() : end], text[: payload.end()].encode())
