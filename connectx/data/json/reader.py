"""JSON as Connect's JsonConverter reads it, on whole columns: strict, with an error per record.

Arrow's parser reads a batch, and refuses it as a whole. Then each document is checked alone, and those that the
check refuses, or whose values do not fit, are respelled for the parser or refused by `connectx.data.json.strict`.
Where documents are not all objects, each is put into an envelope: what is not exactly one document breaks it, or shows
beside the value.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, Final, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connectx.data.arrays import is_list, lengths_of
from connectx.data.base64_columns import decimals_of_unscaled, decode_base64, fitting
from connectx.data.chunks import rows_where
from connectx.data.connect_schema import default_of, default_value, with_default
from connectx.data.converter import Decoded, OtherFields, with_other_fields, without_other_fields
from connectx.data.json.others import has_others, others_in
from connectx.data.json.parsing import parse
from connectx.data.json.strict import (
    LARGEST_DAY,
    LARGEST_MS,
    VALUE,
    RefusedDocumentError,
    content,
    speller,
    text_of,
)
from connectx.errors.plugins import ConversionError

Recover: TypeAlias = Callable[[int], str]
"""Exact text of the document of a row; raises RefusedDocumentError."""

_NUMBER: Final = pa.decimal256(76, 38)
"""Of this type the parser reads numbers, and text that holds one."""
_STRICT_NUMBER: Final = pa.dictionary(pa.int8(), pa.float64())
"""Stands for numbers that must not be text: parsed as fractions first, and then exactly."""
_SAMPLE: Final = 16
_SAME: Final = (
    pa.types.is_string,
    pa.types.is_boolean,
    pa.types.is_signed_integer,
    pa.types.is_float32,
    pa.types.is_float64,
)
_ISO: Final = r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d{1,6})?Z?$"
_DAY: Final = r"^\d{4}-\d\d-\d\d$"
_DIGITS: Final = r"^-?\d{1,15}$"


@dataclass(frozen=True, slots=True)
class JsonReader:
    """Reads columns of JSON with one set of options.

    Attributes:
        base64_decimals: text in place of a decimal is base64 of its unscaled bytes, otherwise digits.
        use_defaults: a schema's default replaces null and missing fields.
    """

    base64_decimals: bool
    use_defaults: bool

    def read(self, records: pa.Array, kind: pa.DataType, recover: Recover | None = None) -> Decoded:
        """Documents as values of type `kind`.

        Args:
            records: binary; null stays null.
            kind: a struct that ends with `connectx.data.converter.OTHER_FIELDS` gets the names of the fields that it
                does not have.
            recover: gives the document of a row that is not read as it is; by default the record itself.

        Raises:
            ConversionError: JSON cannot be read as this type.
        """
        rows = rows_where(records.is_valid()).to_numpy().astype(np.int64)
        documents = records.drop_null()
        own: Recover = lambda row: text_of(records[row].as_py())  # noqa: E731
        others = OtherFields.of(kind)
        kind = kind if others is None else without_other_fields(kind)
        values, doubtful, held = self._read_all(documents, kind)
        if doubtful.any():
            decoded = self._respelled(records, rows, kind, values, doubtful, recover or own)
        else:
            decoded = Decoded.of(_spread(values, rows, len(records)))
        if others is None:
            return decoded
        names: list[str | None] = [None] * len(records)
        if held is None or has_others(held, others):
            for row in rows[_true(decoded.error.is_null())[rows]].tolist():
                names[row] = others_in((recover or own)(row), others)
        return Decoded(with_other_fields(decoded.value, pa.array(names, pa.string())), decoded.error)

    def _read_all(self, documents: pa.Array, kind: pa.DataType) -> tuple[pa.Array, Any, pa.DataType | None]:
        """Values, which of them are not to be relied on, and the type of all that documents hold; None: not known."""
        nothing = pa.nulls(len(documents), clean(kind)), np.ones(len(documents), bool), None
        samples = _samples(documents, kind)
        taken = _taken_out(kind, samples)
        plain = pa.struct([field for field in kind if field.name not in taken]) if taken else kind
        spelling = self._spelled(plain, samples)
        if spelling is None:
            return nothing
        parsed, held = (None, None) if taken else _parsed(documents, spelling)
        wrong = np.zeros(len(documents), bool)
        found: list[Any] = []
        if parsed is None:
            wrong, found = _checked(documents, _with_taken(spelling, kind, taken))
            parsed, _ = _parsed(documents.filter(pa.array(~wrong)), spelling, checked=True)
        if parsed is None:
            return nothing
        values, doubtful = self._values(parsed, plain)
        if taken:
            values, more = self._put_back(values, kind, _by_name(found, spelling.num_fields, taken))
            doubtful = doubtful | more
        wrong[~wrong] = doubtful
        spread = _spread(values.filter(pa.array(~doubtful)), np.flatnonzero(~wrong), len(documents))
        return spread, wrong, held

    def _put_back(
        self, values: pa.StructArray, kind: pa.DataType, taken: Mapping[str, list[Any]]
    ) -> tuple[pa.Array, Any]:
        """Structs with the fields that were taken out of their documents."""
        doubtful = np.zeros(len(values), bool)
        columns = []
        for field in kind:
            if field.name not in taken:
                columns.append(values.field(values.type.get_field_index(field.name)))
                continue
            if _is_object(field.type):
                column, wrong = self._maps(taken[field.name], field.type)
            else:
                read = read_text(pa.array([raw and bytes(raw) for raw in taken[field.name]], pa.binary()))
                column, wrong = read.value, _true(read.error.is_valid())
            column, missing = self._filled(column, field, values)
            columns.append(column)
            doubtful |= wrong | missing
        return _structs(columns, kind, values), doubtful

    def _maps(self, entries: list[Any], kind: pa.DataType) -> tuple[pa.Array, Any]:
        """Maps of exact JSON by name."""
        lengths = [len(entry or ()) for entry in entries]
        names = [name for entry in entries for name in entry or ()]
        raws = [bytes(raw) for entry in entries if entry for raw in entry.values()]
        read = self.read(pa.array(raws, pa.binary()), kind.item_type)
        wrong = _true(read.error.is_valid())
        if not kind.item_field.nullable:
            wrong = wrong | _true(read.value.is_null())
        doubtful = np.zeros(len(entries), bool)
        doubtful[np.repeat(np.arange(len(entries)), lengths)[wrong]] = True
        offsets = _offsets(np.array(lengths, np.int64), np.array([entry is None for entry in entries], bool))
        return pa.MapArray.from_arrays(offsets, pa.array(names, pa.string()), read.value, type=clean(kind)), doubtful

    def _respelled(
        self, records: pa.Array, rows: Any, kind: pa.DataType, values: pa.Array, doubtful: Any, recover: Recover
    ) -> Decoded:
        """Values of documents as they are, and of those that are respelled."""
        spell = speller(kind, base64_decimals=self.base64_decimals, use_defaults=self.use_defaults)
        good = ~doubtful
        at, texts = [], []
        errors: dict[int, str] = {}
        for row in rows[doubtful].tolist():
            try:
                texts.append(spell(recover(row), VALUE).encode())
                at.append(row)
            except (RefusedDocumentError, RecursionError) as error:
                errors[row] = str(error)
        parsed = parse(pa.array(texts, pa.binary()), respelled_type(kind), checked=True)
        assert parsed is not None, "respelled for this parser"
        respelled, _ = self._values(parsed, kind, respelled=True)
        both = pa.concat_arrays([values.filter(pa.array(good)), respelled])
        places = np.concatenate([rows[good], np.array(at, np.int64)])
        messages = pa.array(list(errors.values()), pa.string())
        return Decoded(
            _spread(both, places, len(records)), _spread(messages, np.array(list(errors), np.int64), len(records))
        )

    def _spelled(self, kind: pa.DataType, samples: Sequence[Any]) -> pa.DataType | None:
        types = pa.types
        present = [sample for sample in samples if sample is not None]
        if types.is_struct(kind):
            objects = [sample for sample in present if isinstance(sample, dict)]
            fields = [(f.name, self._spelled(f.type, [each.get(f.name) for each in objects])) for f in kind]
            return None if any(inner is None for _, inner in fields) else pa.struct(fields)
        if is_list(kind):
            lists = [element for sample in present if isinstance(sample, list) for element in sample]
            inner = self._spelled(kind.value_type, lists)
            return None if inner is None else pa.list_(inner)
        if types.is_decimal(kind):
            number = not isinstance(present[0], str) if present else not self.base64_decimals
            if self.base64_decimals:
                return _STRICT_NUMBER if number else pa.string()
            return _NUMBER
        if types.is_date(kind) or types.is_timestamp(kind):
            return pa.string() if present and isinstance(present[0], str) else pa.int64()
        if types.is_map(kind):
            return None
        return respelled_type(kind)

    def _values(self, parsed: pa.Array, kind: pa.DataType, *, respelled: bool = False) -> tuple[pa.Array, Any]:
        """Values of type `kind`, and which rows hold something that does not fit or is missing."""
        types = pa.types
        if types.is_struct(kind):
            return self._struct(parsed, kind, respelled)
        if is_list(kind) or types.is_map(kind):
            return self._list(parsed, kind, respelled)
        if types.is_floating(kind):
            return parsed, np.zeros(len(parsed), bool) if respelled else _true(pc.invert(pc.is_finite(parsed)))
        if types.is_binary(kind):
            values = decode_base64(parsed)
        elif types.is_decimal(kind):
            values = _decimals(parsed, kind)
        elif types.is_date(kind) or types.is_timestamp(kind):
            values = _times(parsed, kind, respelled=respelled)
        else:
            return parsed, np.zeros(len(parsed), bool)
        return values, _true(pc.and_(values.is_null(), parsed.is_valid()))

    def _struct(self, parsed: pa.StructArray, kind: pa.DataType, respelled: bool) -> tuple[pa.Array, Any]:
        doubtful = np.zeros(len(parsed), bool)
        columns = []
        for index, field in enumerate(kind):
            column, wrong = self._values(parsed.field(index), field.type, respelled=respelled)
            column, missing = self._filled(column, field, parsed)
            doubtful |= wrong | missing
            columns.append(column)
        return _structs(columns, kind, parsed), doubtful

    def _filled(self, column: pa.Array, field: pa.Field, structs: pa.Array) -> tuple[pa.Array, Any]:
        """A field's values with its default, and where one is required and missing."""
        missing = pc.and_(structs.is_valid(), column.is_null())
        default = default_of(field) if self.use_defaults else None
        if default is not None:
            value = default_value(field.type, default)
            column = pc.if_else(missing, pa.scalar(value, column.type), column)
        required = default is None and not field.nullable
        return column, _true(missing) if required else np.zeros(len(column), bool)

    def _list(self, parsed: pa.Array, kind: pa.DataType, respelled: bool) -> tuple[pa.Array, Any]:
        elements = parsed.flatten()
        is_map = pa.types.is_map(kind)
        inner = pa.struct([kind.key_field, kind.item_field]) if is_map else kind.value_type
        values, wrong = self._values(elements, inner, respelled=respelled)
        doubtful = np.zeros(len(parsed), bool)
        if not is_map:
            values = with_default(values, default_of(kind.value_field) if self.use_defaults else None)
            wrong = wrong if kind.value_field.nullable else wrong | _true(values.is_null())
        if wrong.any():
            doubtful[pc.list_parent_indices(parsed).to_numpy()[wrong]] = True
        offsets = _offsets(lengths_of(parsed).to_numpy(), parsed.is_null().to_numpy(zero_copy_only=False))
        if is_map:
            return pa.MapArray.from_arrays(offsets, *values.flatten(), type=clean(kind)), doubtful
        return pa.ListArray.from_arrays(offsets, values, type=clean(kind)), doubtful


def read_text(records: pa.Array, recover: Recover | None = None) -> Decoded:
    """Documents as text: the content of a JSON string, the exact text of anything else, null for null."""
    plain = r'^"[^"\\\x00-\x1f]*"$'
    try:
        texts = records.cast(pa.string())
        if pc.all(pc.match_substring_regex(texts, plain)).as_py() is not False:
            return Decoded.of(pc.utf8_slice_codeunits(texts, 1, -1))
    except pa.ArrowInvalid:
        pass  # some record is not UTF-8
    values: list[str | None] = []
    errors: list[str | None] = []
    for row, record in enumerate(records.to_pylist()):
        try:
            values.append(None if record is None else _plain_text(record) if recover is None else _text(recover(row)))
            errors.append(None)
        except RefusedDocumentError as error:
            values.append(None)
            errors.append(str(error))
    return Decoded(pa.array(values, pa.string()), pa.array(errors, pa.string()))


def _plain_text(record: bytes) -> str | None:
    try:
        text = record.decode("utf-8")
        found = msgspec.json.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return _text(text_of(record))  # stricter than Java: numbers beyond a double, half surrogate pairs
    return found if isinstance(found, str) else _text(text.strip(" \t\r\n"))


def _text(text: str) -> str | None:
    return None if text == "null" else content(text) if text[0] == '"' else text


def _parsed(
    documents: pa.Array, spelling: pa.DataType, *, checked: bool = False
) -> tuple[pa.Array | None, pa.DataType | None]:
    """Documents as the parser reads them, and the type of all that they hold, if they are not checked."""
    first = parse(documents, _with_numbers(spelling, pa.float64()), checked=checked)
    if first is None:
        return None, None
    exact = _with_numbers(spelling, _NUMBER)
    return first if first.type == exact else parse(documents, exact, checked=True), first.type


def _with_numbers(spelling: pa.DataType, number: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(spelling):
        return pa.struct([(field.name, _with_numbers(field.type, number)) for field in spelling])
    if is_list(spelling):
        return pa.list_(_with_numbers(spelling.value_type, number))
    return number if spelling == _STRICT_NUMBER else spelling


def respelled_type(kind: pa.DataType) -> pa.DataType:
    """The type as which Arrow's parser reads documents that were respelled.

    Raises:
        ConversionError: JSON cannot be read as this type.
    """
    types = pa.types
    if types.is_struct(kind):
        return pa.struct([(field.name, respelled_type(field.type)) for field in kind])
    if is_list(kind):
        return pa.list_(respelled_type(kind.value_type))
    if types.is_map(kind):
        return pa.list_(pa.struct([("key", respelled_type(kind.key_type)), ("value", respelled_type(kind.item_type))]))
    if types.is_decimal(kind):
        return _NUMBER
    if types.is_date32(kind) or types.is_timestamp(kind) or types.is_binary(kind):
        return pa.string()
    if any(fits(kind) for fits in _SAME):
        return kind
    raise ConversionError(f"JsonConverter cannot read values of type {kind}.")


def clean(kind: pa.DataType) -> pa.DataType:
    """The type with fields that may be null: the type of values."""
    if pa.types.is_struct(kind):
        return pa.struct([_clean_field(field) for field in kind])
    if is_list(kind):
        return pa.list_(_clean_field(kind.value_field).with_name("item"))
    if pa.types.is_map(kind):
        return pa.map_(clean(kind.key_type), _clean_field(kind.item_field).with_name("value"))
    return kind


def _clean_field(field: pa.Field) -> pa.Field:
    return pa.field(field.name, clean(field.type), metadata=field.metadata)


def _samples(documents: pa.Array, kind: pa.DataType) -> list[Any]:
    """The first documents, where they show how a value is spelled that may be spelled in several ways."""
    samples = []
    if _is_ambiguous(kind):
        for document in documents[:_SAMPLE].to_pylist():
            try:
                samples.append(json.loads(document))
            except (ValueError, RecursionError):
                continue
    return samples


def _is_ambiguous(kind: pa.DataType) -> bool:
    """True where documents may spell values as numbers or as text."""
    types = pa.types
    if types.is_struct(kind):
        return any(types.is_string(field.type) or _is_ambiguous(field.type) for field in kind)
    if is_list(kind):
        return _is_ambiguous(kind.value_type)
    return bool(types.is_decimal(kind) or types.is_date(kind) or types.is_timestamp(kind))


def _taken_out(kind: pa.DataType, samples: Sequence[Any]) -> tuple[str, ...]:
    """Fields that Arrow's parser cannot read: maps, and text for which documents hold other JSON."""
    if not pa.types.is_struct(kind):
        return ()
    objects = [sample for sample in samples if isinstance(sample, dict)]

    def other(field: pa.Field) -> bool:
        found = (each.get(field.name) for each in objects)
        return pa.types.is_string(field.type) and any(not isinstance(each, str | None) for each in found)

    return tuple(field.name for field in kind if _is_object(field.type) or other(field))


def _is_object(kind: pa.DataType) -> bool:
    """True of maps that JSON spells as objects: their keys are text."""
    return bool(pa.types.is_map(kind) and pa.types.is_string(kind.key_type))


def _with_taken(spelling: pa.DataType, kind: pa.DataType, taken: tuple[str, ...]) -> pa.DataType:
    """A struct's type with fields at its end that are taken out as exact JSON: maps of null, or null."""
    if not taken:
        return spelling
    raw = {field.name: pa.map_(pa.string(), pa.null()) if _is_object(field.type) else pa.null() for field in kind}
    return pa.struct([*spelling, *((name, raw[name]) for name in taken)])


def _by_name(found: list[Any], first: int, taken: tuple[str, ...]) -> dict[str, list[Any]]:
    """Fields of checked documents, from number `first` on."""
    return {
        name: [None if each is None else getattr(each, f"f{first + number}") for each in found]
        for number, name in enumerate(taken)
    }


def _checked(documents: pa.Array, spelling: pa.DataType) -> tuple[Any, list[Any]]:
    """Which documents are not of the type, each looked at alone, and the others as msgspec's structs.

    msgspec has no fields whose names JSON has to escape: with one of these no document counts as checked.
    """
    if _has_escaped_names(spelling):
        return np.ones(len(documents), bool), []
    decode = _checker(spelling).decode
    wrong, found = np.zeros(len(documents), bool), []
    for row, document in enumerate(documents.to_pylist()):
        try:
            found.append(decode(document.decode("utf-8")))
        except (msgspec.MsgspecError, ValueError, RecursionError):
            wrong[row] = True
    return wrong, found


def _has_escaped_names(spelling: pa.DataType) -> bool:
    if pa.types.is_struct(spelling):
        return any(
            json.dumps(field.name, ensure_ascii=False) != f'"{field.name}"' or _has_escaped_names(field.type)
            for field in spelling
        )
    return is_list(spelling) and _has_escaped_names(spelling.value_type)


@lru_cache(maxsize=64)
def _checker(spelling: pa.DataType) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(_python_type(spelling))


def _python_type(spelling: pa.DataType) -> Any:
    types = pa.types
    if types.is_struct(spelling):
        names = {f"f{index}": field.name for index, field in enumerate(spelling)}
        fields = [(f"f{index}", _python_type(field.type), None) for index, field in enumerate(spelling)]
        return msgspec.defstruct("Document", fields, rename=names) | None
    if is_list(spelling):
        return list[_python_type(spelling.value_type)] | None  # type: ignore[misc]
    if types.is_map(spelling):
        return dict[str, msgspec.Raw] | None
    if types.is_null(spelling):
        return msgspec.Raw
    if types.is_integer(spelling):
        limit = 1 << (spelling.bit_width - 1)
        return Annotated[int, msgspec.Meta(ge=-limit, le=limit - 1)] | None
    if types.is_boolean(spelling):
        return bool | None
    if spelling == _NUMBER:
        return float | str | None
    return float | None if types.is_floating(spelling) or spelling == _STRICT_NUMBER else str | None


def _decimals(parsed: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_string(parsed.type):
        return decimals_of_unscaled(decode_base64(parsed), kind)
    rounded = pc.round(parsed, ndigits=kind.scale, round_mode="half_towards_infinity")
    return fitting(rounded.cast(pa.decimal256(76, kind.scale)), kind)


def _times(parsed: pa.Array, kind: pa.DataType, *, respelled: bool) -> pa.Array:
    """Of numbers, or of text in ISO form. Text of digits is a number only where a number was respelled."""
    if pa.types.is_string(parsed.type):
        times = _times_of_text(parsed, kind)
        if not respelled:
            return times
        digits = _true(pc.match_substring_regex(parsed, _DIGITS))
        numbers = pc.if_else(pa.array(digits), parsed, pa.scalar(None, pa.string())).cast(pa.int64())
        return pc.coalesce(_times(numbers, kind, respelled=True), times)
    if pa.types.is_date(kind):
        return _within(parsed, LARGEST_DAY).cast(pa.int32()).cast(kind)
    return _within(parsed, LARGEST_MS).cast(pa.timestamp("ms", kind.tz)).cast(kind)


def _times_of_text(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Dates and times in ISO form; null where a text is none, or where one of all does not exist."""
    is_date = pa.types.is_date(kind)
    iso = pc.match_substring_regex(texts, _DAY if is_date else _ISO)
    plain = pc.utf8_rtrim(pc.if_else(iso, texts, pa.scalar(None, pa.string())), "Z")
    try:
        return plain.cast(kind if is_date else pa.timestamp("us")).cast(kind)
    except pa.ArrowInvalid:
        return pa.nulls(len(texts), kind)


def _within(numbers: pa.Array, limit: int) -> pa.Array:
    fits = pc.and_(pc.less(numbers, limit), pc.greater(numbers, -limit))
    return pc.if_else(fits, numbers, pa.scalar(None, pa.int64()))


def _structs(columns: list[pa.Array], kind: pa.DataType, structs: pa.Array) -> pa.Array:
    """Structs of these columns, null where `structs` are."""
    if not columns:
        return structs.cast(clean(kind))
    mask = structs.is_null() if structs.null_count else None
    return pa.StructArray.from_arrays(columns, fields=list(clean(kind)), mask=mask)


def _offsets(lengths: Any, nulls: Any) -> pa.Array:
    """Offsets of lists with these lengths; null where a list is null."""
    ends = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return pa.array(ends, pa.int32(), mask=np.append(nulls, False))


def _true(mask: pa.Array) -> Any:
    """A mask as numpy; null is false."""
    return pc.fill_null(mask, False).to_numpy(zero_copy_only=False)


def _spread(values: pa.Array, rows: Any, count: int) -> pa.Array:
    """Values at their rows, null elsewhere."""
    if len(values) == count and (rows[1:] > rows[:-1]).all():
        return values
    places = np.full(count, -1, np.int64)
    places[rows] = np.arange(len(rows))
    return values.take(pa.array(places, mask=places < 0))
