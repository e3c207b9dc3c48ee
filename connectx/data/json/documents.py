"""JSON without schemas, each document with the type that it has alone, as Kafka Connect's JsonConverter reads it.

Fields are those of the document, in its order; null is a value of any type. Whole numbers are int64, longer ones are
decimals without a scale, others double; text stays text. Arrow's parser reads documents of one shape. Names in the text
show which ones have the fields of a shape, and the parser refuses other types. Then a regular expression finds those of
the shape. Few documents, or those of rare shapes, are read one by one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connectx.data.chunks import rows_where
from connectx.data.converter import Decoded
from connectx.data.json.key_places import KeyPlaces
from connectx.data.json.parsing import parse
from connectx.data.json.strict import RefusedDocumentError, text_of
from connectx.data.shapes import Part, united

Shape: TypeAlias = Any
"""None of null; an Arrow type of a scalar; (_LIST, shapes of elements); (_OBJECT, (name, shape), ...)."""

_LIST: Final = "["
_OBJECT: Final = "{"
_FEW: Final = 96
"""Documents of a shape that are read one by one, because a call of Arrow's parser would cost more."""
_SAMPLE: Final = 16
_INT64: Final = 1 << 63
_DIGITS: Final = ((10**38, pa.decimal128(38, 0)), (10**76, pa.decimal256(76, 0)))
_LONGEST: Final = len("-") + 76
_TOO_LONG: Final = "an integer of more than 76 digits does not fit"
_SPACE: Final = r"[ \t\r\n]*"
_WHOLE: Final = r"-?(?:0|[1-9]\d{0,17}|[1-8]\d{18})"
"""Fits an int64. Of integers that begin with 9 and have 19 digits only some do."""
_LOW_SURROGATE: Final = r"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_IN_D: Final = rf"[0-7][0-9a-fA-F]{{2}}|[89abAB][0-9a-fA-F]{{2}}{_LOW_SURROGATE}"
_UNICODE: Final = rf"u(?:[0-9a-ce-fA-CE-F][0-9a-fA-F]{{3}}|[dD](?:{_IN_D}))"
_TOKENS: Final = {
    pa.int64(): _WHOLE,
    pa.float64(): rf"{_WHOLE}(?:\.\d+(?:[eE][+-]?\d\d?)?|[eE][+-]?\d\d?)",
    pa.bool_(): "true|false",
    pa.string(): rf'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|{_UNICODE}))*"',
}


def read_documents(records: pa.Array) -> Decoded:
    """Documents by their shapes; a JSON null is no value, and each document that cannot be read has an error."""
    rows = rows_where(records.is_valid()).to_numpy()
    documents = records.drop_null() if records.null_count else records
    parts: list[Part] = []
    left = np.arange(len(documents))
    keys = KeyPlaces(documents) if len(documents) >= _FEW else None
    while keys is not None and len(left) >= _FEW:
        fits, values = _of_one_shape(documents, left, keys)
        if len(fits):
            parts.append((rows[fits], values))
            left = left[~np.isin(left, fits, assume_unique=True)] if len(fits) < len(left) else left[:0]
        if len(fits) < _FEW:
            break  # that was the commonest shape
    more, errors = _one_by_one(rows[left].tolist(), documents.take(pa.array(left)).to_pylist() if len(left) else [])
    parts += more
    if records.null_count:
        parts.append((rows_where(records.is_null()).to_numpy(), pa.nulls(records.null_count)))
    messages = pa.nulls(len(records), pa.string())
    if errors:
        parts.append((np.array(list(errors)), pa.nulls(len(errors))))
        messages = pa.array([errors.get(row) for row in range(len(records))], pa.string())
    return Decoded(united(parts), messages)


def _of_one_shape(documents: pa.Array, left: Any, keys: KeyPlaces) -> tuple[Any, pa.Array]:
    """Which of the documents that are left have the commonest shape, and their values; none if they are few."""
    shape = _commonest(documents.take(pa.array(left[:: -(-len(left) // _SAMPLE)])))
    kind, names = _type_of(shape), _names_in_order(shape)
    nothing = left[:0], pa.nulls(0)
    found = left if names is None else keys.with_names(names, left)
    if names and len(found) < _FEW:
        return nothing
    some = documents if len(found) == len(documents) else documents.take(pa.array(found))
    values = parse(some, kind) if names and len(found) else None
    if values is not None and values.type == kind:
        if (exact := _are_exact(values)).all():
            return found, values
        return found[exact], values.filter(pa.array(exact))
    pattern = _pattern(shape)
    if shape is None or pattern is None or not len(some):
        return nothing
    try:
        mask = pc.match_substring_regex(some, f"^{_SPACE}(?:{pattern}){_SPACE}$").to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid:
        return nothing  # the pattern is too long
    values = parse(some.filter(pa.array(mask)), kind, checked=True) if mask.any() else None
    return nothing if values is None else (found[mask], values)


def _commonest(documents: pa.Array) -> Shape:
    """The shape that most of these documents have; None if none of them can be read."""
    counts: dict[Shape, int] = {}
    for document in documents.to_pylist():
        with suppress(RefusedDocumentError, RecursionError):
            shape = _shape_of(_exact(document))
            alike = _alike(shape, counts)
            counts[_merged(shape, alike)] = counts.pop(alike, 0) + 1
    return max(counts, key=lambda shape: counts[shape], default=None)


def _are_exact(values: pa.Array) -> Any:
    """False where a fraction may have been written as a whole number, which the parser takes for one."""
    kind = values.type
    exact = np.ones(len(values), bool)
    if pa.types.is_struct(kind):
        for index in range(kind.num_fields):
            exact &= _are_exact(values.field(index))
    elif pa.types.is_list(kind):
        elements = _are_exact(values.flatten())
        if not elements.all():
            exact[pc.list_parent_indices(values).to_numpy()[~elements]] = False
    elif pa.types.is_floating(kind):
        numbers = values.to_numpy(zero_copy_only=False)
        exact = np.trunc(numbers) != numbers  # NaN of null differs, too
    return exact


def _names_in_order(shape: Shape) -> tuple[str, ...] | None:
    """Names of all fields in the order of a document's text; None where lists hold objects, or there are none."""
    if not isinstance(shape, tuple):
        return ()
    if shape[0] == _LIST:
        return None if any(_names_in_order(inner) != () for inner in shape[1:]) else ()
    names: list[str] = []
    for name, inner in shape[1:]:
        within = _names_in_order(inner)
        if within is None:
            return None
        names += [name, *within]
    return tuple(names)


def _one_by_one(rows: Sequence[int], documents: Sequence[bytes]) -> tuple[list[Part], dict[int, str]]:
    """Values by their shapes, and why a document is refused, by row."""
    by_shape: dict[Shape, tuple[list[int], list[Any]]] = {}
    errors: dict[int, str] = {}
    for row, document in zip(rows, documents, strict=True):
        try:
            value = _exact(document)
            shape = _shape_of(value)
        except RefusedDocumentError as error:
            errors[row] = str(error)
        except RecursionError:
            errors[row] = "it is not JSON: it is nested too deeply"
        else:
            found = by_shape.setdefault(shape, ([], []))
            found[0].append(row)
            found[1].append(value)
    groups: dict[Any, dict[Shape, list[tuple[list[int], list[Any]]]]] = {}
    for shape, group in by_shape.items():
        named = groups.setdefault(_names(shape), {})
        alike = _alike(shape, named)
        named[_merged(shape, alike)] = [*named.pop(alike, []), group]
    parts = []
    for named in groups.values():
        for shape, same in named.items():
            values = [value for _, found in same for value in found]
            parts.append((np.array([row for numbers, _ in same for row in numbers]), _array(values, shape)))
    return parts, errors


def _names(shape: Shape) -> Any:
    """Names of an object's fields: of many shapes only those with the same ones are compared."""
    return tuple(name for name, _ in shape[1:]) if isinstance(shape, tuple) and shape[0] == _OBJECT else None


def _alike(shape: Shape, groups: Iterable[Shape]) -> Shape:
    """A shape that differs at most where one of both has null; otherwise the same shape."""
    for other in groups:
        try:
            _merged(shape, other)
        except _ShapesDifferError:
            continue
        return other
    return shape


def _exact(document: bytes) -> Any:
    """The document as Python's objects.

    Raises:
        RefusedDocumentError: it is not one JSON document, or a number does not fit.
    """
    try:
        return msgspec.json.decode(document)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        text = text_of(document)  # stricter than Java: half surrogate pairs
    return _repaired(json.loads(text, parse_int=_integer))


def _integer(digits: str) -> int:
    if len(digits) > _LONGEST:
        raise RefusedDocumentError(_TOO_LONG)
    return int(digits)


def _repaired(value: Any) -> Any:
    """Half a surrogate pair is ? as in Java.

    Raises:
        RefusedDocumentError: a number does not fit.
    """
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        raise RefusedDocumentError("a number does not fit a double")
    if isinstance(value, list):
        return [_repaired(each) for each in value]
    if isinstance(value, dict):
        return {_repaired(name): _repaired(each) for name, each in value.items()}
    return value


class _ShapesDifferError(Exception):
    """Values of two shapes have no common shape."""


def _shape_of(value: Any) -> Shape:
    match value:
        case None:
            return None
        case bool():
            return pa.bool_()
        case int():
            return _whole(value)
        case float():
            return pa.float64()
        case str():
            return pa.string()
        case dict():
            return (_OBJECT, *((name, _shape_of(each)) for name, each in value.items()))
        case _:
            return (_LIST, *_shapes_of(value))


def _whole(number: int) -> pa.DataType:
    if -_INT64 <= number < _INT64:
        return pa.int64()
    kind = next((kind for end, kind in _DIGITS if abs(number) < end), None)
    if kind is None:
        raise RefusedDocumentError(_TOO_LONG)
    return kind


def _shapes_of(values: Sequence[Any]) -> list[Shape]:
    """Shapes of a list's elements, without null, in a fixed order."""
    found: dict[Shape, None] = {}
    for value in values:
        shape = _shape_of(value)
        if shape is None or shape in found:
            continue
        alike = _alike(shape, found)
        found.pop(alike, None)
        found[_merged(shape, alike)] = None
    return sorted(found, key=str)


def _merged(one: Shape, other: Shape) -> Shape:
    """The shape of values of both, which differ at most where one has null, or a list has no element.

    Raises:
        _ShapesDifferError: they differ otherwise.
    """
    if one is None or one == other:
        return other
    if other is None:
        return one
    if not (isinstance(one, tuple) and isinstance(other, tuple) and one[0] == other[0]):
        raise _ShapesDifferError
    if one[0] == _LIST and (len(one) == 1 or len(other) == 1):
        return max(one, other, key=len)
    if len(one) != len(other):
        raise _ShapesDifferError
    if one[0] == _LIST:
        return (_LIST, *map(_merged, one[1:], other[1:]))
    if any(mine[0] != theirs[0] for mine, theirs in zip(one[1:], other[1:], strict=True)):
        raise _ShapesDifferError
    fields = zip(one[1:], other[1:], strict=True)
    return (_OBJECT, *((name, _merged(mine, theirs)) for (name, mine), (_, theirs) in fields))


@lru_cache(maxsize=64)
def _pattern(shape: Shape) -> str | None:
    """Regular expression of documents of a shape; None if there is none."""
    if shape is None:
        return "null"
    if not isinstance(shape, tuple):
        return _TOKENS.get(shape)
    inner = [_pattern(part if shape[0] == _LIST else part[1]) for part in shape[1:]]
    if None in inner or (shape[0] == _LIST and len(inner) > 1):
        return None
    values = [f"{_SPACE}(?:{one}|null){_SPACE}" for one in inner]
    if shape[0] == _LIST:
        (element,) = values or [f"{_SPACE}null{_SPACE}"]
        return rf"\[(?:{_SPACE}|{element}(?:,{element})*)\]"
    names = [re.escape(json.dumps(name, ensure_ascii=False)) for name, _ in shape[1:]]
    members = ",".join(f"{_SPACE}{name}{_SPACE}:{value}" for name, value in zip(names, values, strict=True))
    return rf"\{{{members or _SPACE}\}}"


@lru_cache(maxsize=64)
def _type_of(shape: Shape) -> pa.DataType:
    """Arrow type of a shape; of elements of several shapes it is a union."""
    if shape is None:
        return pa.null()
    if not isinstance(shape, tuple):
        return shape
    if shape[0] == _OBJECT:
        return pa.struct([(name, _type_of(inner)) for name, inner in shape[1:]])
    kinds = [_type_of(inner) for inner in shape[1:]] or [pa.null()]
    if len(kinds) == 1:
        return pa.list_(kinds[0])
    return pa.list_(united([(np.array([row]), pa.array([], kind)) for row, kind in enumerate(kinds)]).type)


def _array(values: Sequence[Any], shape: Shape) -> pa.Array:
    """Values of one shape."""
    if shape is None:
        return pa.nulls(len(values))
    if pa.types.is_decimal(kind := shape if not isinstance(shape, tuple) else pa.null()):
        return pa.array([None if each is None else Decimal(each) for each in values], kind)
    if not isinstance(shape, tuple):
        return pa.array(values, shape)
    mask = pa.array([each is None for each in values], pa.bool_())
    if shape[0] == _OBJECT:
        columns = [_array([each and each[name] for each in values], inner) for name, inner in shape[1:]]
        fields = [pa.field(name, column.type) for (name, _), column in zip(shape[1:], columns, strict=True)]
        if not columns:
            return pa.array(values, pa.struct([]))
        return pa.StructArray.from_arrays(columns, fields=fields, mask=mask)
    ends = np.cumsum([0, *(len(each or ()) for each in values)])
    elements = [element for each in values for element in each or ()]
    offsets = pa.array(ends.astype(np.int32), mask=np.append(mask.to_numpy(zero_copy_only=False), False))
    return pa.ListArray.from_arrays(offsets, _elements(elements, shape[1:]))


def _elements(values: Sequence[Any], shapes: Sequence[Shape]) -> pa.Array:
    """Elements of lists, which may have several shapes."""
    if len(shapes) < 2:
        return _array(values, shapes[0] if shapes else None)
    groups: dict[Shape, list[int]] = {}
    for row, value in enumerate(values):
        groups.setdefault(_alike(_shape_of(value), shapes), []).append(row)
    return united([(np.array(rows), _array([values[row] for row in rows], shape)) for shape, rows in groups.items()])
