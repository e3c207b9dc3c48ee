"""JSON without schemas as structs, for transformations: fields and types are what the documents of a batch hold.

Stands for the Map that Kafka Connect's JsonConverter gives without schemas, where a field that a document does not have
is null. Whole numbers are int64, others double; text stays text.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from connectx.data.converter import Decoded
from connectx.data.json.reader import are_plain_objects, parse, read_text
from connectx.errors.plugins import ConversionError

_MANY: Final = 1_000
_SAMPLE: Final = 16
_NULL: Final = r"^[ \t\r\n]*null[ \t\r\n]*$"
_OBJECT: Final = r"^[ \t\r\n]*\{"
_NO_OBJECT: Final = "The document is not an object, and others of its batch are."


def read_documents(records: pa.Array) -> Decoded:
    """Documents as structs of one type, or as text if none is an object. A JSON null is no value.

    Beside objects a document of another kind is an error, because no column holds both.

    Raises:
        ConversionError: the same field is of several types.
    """
    errors = pa.nulls(len(records), pa.string())
    if not records.null_count and _are_objects(records) and (values := _parsed(records)) is not None:
        return Decoded(values, errors)
    records = pc.if_else(pc.fill_null(pc.match_substring_regex(records, _NULL), False), None, records)
    documents = records.drop_null()
    values = _parsed(documents) if _are_objects(documents) else None
    if values is None:
        texts = read_text(records)
        errors = texts.error
        is_readable = pc.and_(errors.is_null(), records.is_valid())
        is_object = pc.and_(is_readable, pc.fill_null(pc.match_substring_regex(records, _OBJECT), False))
        if not is_object.true_count:
            return texts
        errors = pc.if_else(pc.and_not(is_readable, is_object), _NO_OBJECT, errors)
        documents = records.filter(is_object)
        values = _parsed(documents, checked=True)
        if values is None:
            raise ConversionError(
                "Documents of one batch hold different types in the same field, so that their fields cannot be read.",
                next_step="Give the field one type, use schemas, or lower consumer.override.max.poll.records.",
            )
    there = pc.and_(errors.is_null(), records.is_valid())
    rows = pc.subtract(pc.cumulative_sum(there.cast(pa.int64())), 1)
    return Decoded(values.take(pc.if_else(there, rows, pa.scalar(None, pa.int64()))), errors)


def _are_objects(documents: pa.Array) -> bool:
    if not len(documents) or are_plain_objects(documents):
        return len(documents) > 0
    return bool(pc.all(pc.match_substring_regex(documents, _OBJECT)).as_py())


def _parsed(documents: pa.Array, *, checked: bool = False) -> pa.Array | None:
    """None when the parser refuses one of them, or they do not fit together."""
    found = _like_the_first(documents) if len(documents) >= _MANY else None
    if found is None:
        found = parse(documents, None, checked=checked)
    if found is not None and found.type != _without_times(found.type):
        found = parse(documents, _without_times(found.type), checked=True)
    return None if found is None or found.null_count else found


def _like_the_first(documents: pa.Array) -> pa.Array | None:
    """Read documents with the types of the first ones; None where values of a field have another type, or no type yet.

    This takes less time than inferring types: times are read as text the first time, and threads can share the work.
    Fields that only later documents have come after the others.
    """
    first = parse(documents[:_SAMPLE], None)
    if first is None or _has_unknown(first.type):
        return None
    return parse(documents, _without_times(first.type))


def _has_unknown(kind: pa.DataType) -> bool:
    """Whether no value shows a field's type: the field comes at its place only if its type is inferred."""
    if pa.types.is_struct(kind):
        return any(_has_unknown(field.type) for field in kind)
    return _has_unknown(kind.value_type) if pa.types.is_list(kind) else bool(pa.types.is_null(kind))


def _without_times(kind: pa.DataType) -> pa.DataType:
    """The parser takes text that looks like a time for one; JSON has no times."""
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_without_times(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_without_times(kind.value_type))
    return pa.string() if pa.types.is_timestamp(kind) else kind
