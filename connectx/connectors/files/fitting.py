"""Values of rows as Arrow columns: which types they have, what does not fit a type, and which fields it lacks.

It loses nothing in silence: `fitted` returns what is not in the column beside it. A value that does not fit makes its
row's value null, however deep it is. A field that a struct lacks is returned alone, below the names that lead to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from itertools import accumulate
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

_GUESSES: Final = (pa.int64(), pa.float64(), pa.timestamp("us", "UTC"), pa.bool_())
_DIGITS: Final = r"^-?[0-9]+$"
_INTEGER: Final = r"^(0|-?[1-9][0-9]*)$"
_FRACTION: Final = r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?$"
_DOUBLE_DIGITS: Final = 15
"""Numbers with so many digits can be written as they were read."""
_MOST_DIGITS: Final = 38
_UNFIT: Final = (pa.ArrowException, TypeError, ValueError, OverflowError)


class Number(float):
    """A fraction that keeps its text, for decimals."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


class Fitted(NamedTuple):
    """A column of as many values as there were.

    Attributes:
        unfit: numbers of the values that do not fit; they are null.
        lacked: fields that the type lacks, by the number of the value.
    """

    column: pa.Array
    unfit: set[int]
    lacked: dict[int, Any]


def fitted(values: Sequence[Any], kind: pa.DataType, *, exact: bool = False) -> Fitted:
    """Values as a column.

    Args:
        exact: a text does not fit a number that is written in another way, as `02134` is no integer.
    """
    if pa.types.is_struct(kind):
        return _structs(values, kind, exact)
    if pa.types.is_list(kind):
        return _lists(values, kind, exact)
    if pa.types.is_map(kind):
        return _maps(values, kind, exact)
    return _scalars(values, kind, exact)


def type_of(values: Sequence[Any]) -> pa.DataType:
    """The type of JSON values: text if they have several. Integers beyond int64 are decimals."""
    kinds = {float if kind is Number else kind for kind in map(type, values)} - {type(None)}
    if not kinds:
        return pa.null()
    if kinds == {bool}:
        return pa.bool_()
    if kinds == {int}:
        return _integers([value for value in values if value is not None])
    if kinds <= {int, float}:
        return pa.float64()
    if kinds == {dict}:
        return pa.struct([(name, type_of(of_name)) for name, of_name in _by_name(values) if is_name(name)])
    if kinds == {list}:
        return pa.list_(type_of([element for value in values for element in value or ()]))
    return pa.string()


def type_of_texts(texts: Sequence[str]) -> pa.DataType:
    """The narrowest type that all texts can be read as and written from without losing digits; otherwise text."""
    column = pa.array(texts, pa.string())
    for kind in _GUESSES:
        try:
            _from_text(column, kind, exact=True)
        except _UNFIT:
            continue
        return kind
    return pa.string()


def widened(kind: pa.DataType, values: Sequence[Any]) -> pa.DataType:
    """The type with the fields that structs of the values have and it lacks, at every depth."""
    if pa.types.is_struct(kind):
        known = {field.name: field for field in kind}
        for name, of_name in _by_name(values):
            if name in known:
                known[name] = known[name].with_type(widened(known[name].type, of_name))
            elif is_name(name) and not pa.types.is_null(new := type_of(of_name)):
                known[name] = pa.field(name, new)
        return pa.struct(list(known.values()))
    if pa.types.is_list(kind):
        elements = [element for value in values if isinstance(value, list) for element in value]
        return pa.list_(kind.value_field.with_type(widened(kind.value_type, elements)))
    return kind


def united(kind: pa.DataType, other: pa.DataType) -> pa.DataType:
    """The type with the fields that structs of another type have and it lacks, at every depth."""
    if pa.types.is_struct(kind) and pa.types.is_struct(other):
        known = {field.name: field for field in kind}
        for field in other:
            mine = known.get(field.name)
            known[field.name] = field if mine is None else mine.with_type(united(mine.type, field.type))
        return pa.struct(list(known.values()))
    if pa.types.is_list(kind) and pa.types.is_list(other):
        return pa.list_(kind.value_field.with_type(united(kind.value_type, other.value_type)))
    return kind


def new_field(name: str, kind: pa.DataType, wide: pa.DataType) -> str:
    """The path of the first field that a wider type has more than a type: `a.b`."""
    if pa.types.is_list(kind):
        return new_field(name, kind.value_type, wide.value_type)
    known = {field.name: field.type for field in kind}
    first = next(field for field in wide if known.get(field.name) != field.type)
    path = f"{name}.{first.name}"
    return new_field(path, known[first.name], first.type) if first.name in known else path


def is_name(name: str) -> bool:
    """False for a name with half of a surrogate pair, which no field can have."""
    return not any("\ud800" <= character <= "\udfff" for character in name)


def _integers(values: Sequence[int]) -> pa.DataType:
    longest = max(values, key=abs)
    if min(values) >= -(1 << 63) and max(values) < 1 << 63:
        return pa.int64()
    return pa.decimal128(_MOST_DIGITS, 0) if abs(longest) < 10**_MOST_DIGITS else pa.string()


def _by_name(values: Sequence[Any]) -> Iterator[tuple[str, list[Any]]]:
    """Values of each field of the objects among values, in the order in which fields come."""
    objects = [value for value in values if isinstance(value, dict)]
    for name in dict.fromkeys(name for value in objects for name in value):
        yield name, [value.get(name) for value in objects]


def _structs(values: Sequence[Any], kind: pa.StructType, exact: bool) -> Fitted:
    unfit = {at for at, value in enumerate(values) if not isinstance(value, dict | None)}
    objects = [value if isinstance(value, dict) else None for value in values]
    lacked: dict[int, Any] = {}
    columns = []
    for field in kind:
        found = fitted([None if one is None else one.get(field.name) for one in objects], field.type, exact=exact)
        columns.append(found.column)
        unfit |= found.unfit
        for at, rest in found.lacked.items():
            lacked.setdefault(at, {})[field.name] = rest
    names = {field.name for field in kind}
    for at, one in enumerate(objects):
        for name, value in (one or {}).items():
            if name not in names and value is not None:
                lacked.setdefault(at, {})[name] = value
    missing = [one is None or at in unfit for at, one in enumerate(objects)]
    if not columns:
        return Fitted(pa.array([None if one else {} for one in missing], kind), unfit, lacked)
    fields = [pa.field(field.name, column.type) for field, column in zip(kind, columns, strict=True)]
    return Fitted(pa.StructArray.from_arrays(columns, fields=fields, mask=pa.array(missing)), unfit, lacked)


def _lists(values: Sequence[Any], kind: pa.DataType, exact: bool) -> Fitted:
    lists = [value if isinstance(value, list) else [] for value in values]
    unfit = {at for at, value in enumerate(values) if not isinstance(value, list | None)}
    places = [(row, at) for row, one in enumerate(lists) for at in range(len(one))]
    found = fitted([lists[row][at] for row, at in places], kind.value_type, exact=exact)
    unfit |= {places[number][0] for number in found.unfit}
    lacked: dict[int, Any] = {}
    for number, rest in found.lacked.items():
        row, at = places[number]
        lacked.setdefault(row, [None] * len(lists[row]))[at] = rest
    column = pa.ListArray.from_arrays(_offsets(lists), found.column)
    return Fitted(_without(column, values, unfit), unfit, lacked)


def _maps(values: Sequence[Any], kind: pa.MapType, exact: bool) -> Fitted:
    """Maps of objects, or of the pairs that Arrow has of a map."""
    pairs = [list(value.items()) if isinstance(value, dict) else value for value in values]
    unfit = {at for at, value in enumerate(pairs) if not isinstance(value, list | None)}
    maps = [value if isinstance(value, list) else [] for value in pairs]
    rows = [row for row, one in enumerate(maps) for _ in one]
    keys = fitted([key for one in maps for key, _ in one], kind.key_type, exact=exact)
    items = fitted([item for one in maps for _, item in one], kind.item_type, exact=exact)
    for number in (*keys.unfit, *items.unfit, *items.lacked):
        unfit.add(rows[number])
    entries = keys.column.fill_null("") if pa.types.is_string(kind.key_type) else keys.column
    column = pa.MapArray.from_arrays(_offsets(maps), entries, items.column)
    return Fitted(_without(column, values, unfit), unfit, {})


def _offsets(lists: Sequence[Sequence[Any]]) -> pa.Array:
    return pa.array(accumulate(map(len, lists), initial=0), pa.int32())


def _without(column: pa.Array, values: Sequence[Any], unfit: set[int]) -> pa.Array:
    """The column with null where there is no value, or one that does not fit."""
    missing = [value is None or at in unfit for at, value in enumerate(values)]
    return pc.if_else(pa.array(missing, pa.bool_()), pa.scalar(None, column.type), column) if any(missing) else column


def _scalars(values: Sequence[Any], kind: pa.DataType, exact: bool, first: int = 0) -> Fitted:
    try:
        return Fitted(_column(values, kind, exact), set(), {})
    except _UNFIT:
        if len(values) == 1:
            return Fitted(pa.nulls(1, kind), {first}, {})
    half = len(values) // 2
    parts = _scalars(values[:half], kind, exact, first), _scalars(values[half:], kind, exact, first + half)
    return Fitted(pa.concat_arrays([part.column for part in parts]), parts[0].unfit | parts[1].unfit, {})


def _column(values: Sequence[Any], kind: pa.DataType, exact: bool) -> pa.Array:
    """Scalars of one type, as pyarrow converts them, but not booleans as numbers, nor numbers as times."""
    given = set(map(type, values)) - {type(None)}
    if given == {str} and not pa.types.is_string(kind):
        return _from_text(pa.array(values, pa.string()), kind, exact=exact)
    if bool in given and not pa.types.is_boolean(kind):
        raise TypeError("a boolean is no number")
    if given & {int, float, Number} and pa.types.is_temporal(kind):
        raise TypeError("a number is no date or time")
    if pa.types.is_integer(kind) and any(isinstance(one, float) and not one.is_integer() for one in values):
        raise ValueError("a fraction is no integer")
    if pa.types.is_decimal(kind):
        values = [Decimal(getattr(one, "text", repr(one))) if isinstance(one, float) else one for one in values]
    return pa.array(values, kind)


def _from_text(texts: pa.Array, kind: pa.DataType, *, exact: bool) -> pa.Array:
    """Texts as values; times without a zone are UTC."""
    if pa.types.is_integer(kind) and pc.all(pc.match_substring_regex(texts, _DIGITS)).as_py() is False:
        raise ValueError("no integer")
    if exact and (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        pattern = _INTEGER if pa.types.is_integer(kind) else _FRACTION
        digits = pc.utf8_length(pc.replace_substring_regex(texts, r"^-?(0\.0*|0$)?|\.", ""))
        is_short = pc.or_(pc.less_equal(digits, _DOUBLE_DIGITS), pa.scalar(pa.types.is_integer(kind)))
        if pc.all(pc.and_(pc.match_substring_regex(texts, pattern), is_short)).as_py() is False:
            raise ValueError("a number that is written in another way")
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        zoned = pc.match_substring_regex(texts, r"(Z|[+-]\d\d:?\d\d)$")
        texts = pc.if_else(zoned, texts, pc.binary_join_element_wise(texts, "Z", ""))
    return texts.cast(kind)
