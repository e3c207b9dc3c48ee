"""Names of fields of JSON that a wanted type does not have, at every depth."""

from __future__ import annotations

import json
from collections.abc import Iterator, Set

import pyarrow as pa

from connectx.data.arrays import is_list
from connectx.data.converter import OtherFields
from connectx.data.json.strict import elements, members


def has_others(held: pa.DataType, others: OtherFields) -> bool:
    """Whether documents whose parser found this type may have fields to name."""
    if others.within is None:
        return _has_more(held, others.kind, others.allowed)
    at = held.get_field_index(others.within)
    return at >= 0 and _has_more(held.field(at).type, others.kind)


def others_in(text: str, others: OtherFields) -> str | None:
    """Names of the fields to name, in a document that was read, as a list in JSON; None for none."""
    if others.within is not None:
        text = "null" if text == "null" else members(text).get(others.within, "null")
    found = list(dict.fromkeys(_more(text, others.kind, others.allowed)))
    return json.dumps(found) if found else None


def _has_more(held: pa.DataType, kind: pa.DataType, allowed: Set[str] = frozenset()) -> bool:
    if pa.types.is_struct(kind) and pa.types.is_struct(held):
        known = {field.name: field.type for field in kind}
        return any(
            _has_more(field.type, known[field.name])
            if field.name in known
            else field.name not in allowed and not pa.types.is_null(field.type)
            for field in held
        )
    return is_list(kind) and is_list(held) and _has_more(held.value_type, kind.value_type)


def _more(text: str, kind: pa.DataType, allowed: Set[str] = frozenset()) -> Iterator[str]:
    """Names of fields with values that the type lacks, of a document that it fits."""
    if text == "null":
        return
    if pa.types.is_struct(kind):
        known = {field.name: field.type for field in kind}
        for name, value in members(text).items():
            if name in known:
                yield from (f"{name}.{inner}" for inner in _more(value, known[name]))
            elif name not in allowed and value != "null":
                yield name
    elif is_list(kind):
        for element in elements(text) if pa.types.is_nested(kind.value_type) else ():
            yield from _more(element, kind.value_type)
    elif pa.types.is_map(kind) and pa.types.is_string(kind.key_type) and pa.types.is_nested(kind.item_type):
        for value in members(text).values():
            yield from _more(value, kind.item_type)
