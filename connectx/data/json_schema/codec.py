"""JSON bodies, without header, of one JSON Schema to Arrow columns and back.

Documents are read by the reader of JsonConverter, in whole columns. Those of schemas with unions are first put in order
one by one: the value of a union becomes a struct with the field of its branch.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from connectx.data.arrays import entry_lists, is_list, is_text, offsets_of, where_valid
from connectx.data.converter import Decoded
from connectx.data.json.reader import JsonReader
from connectx.data.json.strict import RefusedDocumentError, text_of
from connectx.data.json.writer import json_text
from connectx.data.json_schema.types import JsonType, document_type, value_type
from connectx.errors.plugins import ConversionError

_DECODER: Final = msgspec.json.Decoder(float_hook=Decimal)
_ENCODER: Final = msgspec.json.Encoder(decimal_format="number")
_SHOWN: Final = 3
"""Violations that one message names."""


class Validator:
    """Checks documents against a JSON Schema, as `json.fail.invalid.schema` asks for.

    Raises:
        ConversionError: not a JSON Schema.
    """

    def __init__(self, text: str, references: Sequence[tuple[str, str]]) -> None:
        import jsonschema_rs

        try:
            registry = jsonschema_rs.Registry([(name, json.loads(one)) for name, one in references])
            self._validator = jsonschema_rs.validator_for(
                json.loads(text), registry=registry, pattern_options=jsonschema_rs.RegexOptions()
            )
        except (ValueError, jsonschema_rs.ReferencingError) as error:
            raise ConversionError(f"Not a valid JSON Schema: {error}.") from error

    def errors(self, bodies: pa.Array) -> pa.Array:
        """Per document why it is not valid, null where it is (string). One that is not JSON is left to the reader."""
        return pa.array([self._error(body) for body in bodies.to_pylist()], pa.string())

    def _error(self, body: bytes) -> str | None:
        try:
            document = msgspec.json.decode(body)
        except (msgspec.MsgspecError, RecursionError):
            return None
        if self._validator.is_valid(document):
            return None
        found = [
            f"/{'/'.join(map(str, one.instance_path))} ({one.kind.name})"
            for one in self._validator.iter_errors(document)
        ]
        more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        return f"it does not match its JSON Schema at {', '.join(found[:_SHOWN])}{more}"


class JsonSchemaCodec:
    """Reads and writes bodies of one schema.

    Args:
        validator: checks every document that is read or written; None: none is.
        base64_decimals: decimals are written as base64 of their unscaled bytes, otherwise as numbers.
    """

    def __init__(self, json_type: JsonType, validator: Validator | None, *, base64_decimals: bool) -> None:
        self._type = json_type
        self._documents = document_type(json_type)
        self._validator = validator
        self._has_unions = _has(json_type, "union")
        self._has_entries = _has(json_type, "entries")
        self._base64_decimals = base64_decimals
        self._reader = JsonReader(base64_decimals=True, use_defaults=True)

    def read(self, bodies: pa.Array) -> Decoded:
        """Values of documents (binary); one that is not valid has an error."""
        invalid = pa.nulls(len(bodies), pa.string()) if self._validator is None else self._validator.errors(bodies)
        if self._has_unions:
            bodies, refused = self._ordered(bodies)
            invalid = pc.coalesce(invalid, refused)
        found = self._reader.read(bodies, self._documents)
        values = _with_maps(found.value, self._type) if self._has_entries else found.value
        return Decoded(values, pc.coalesce(invalid, found.error))

    def write(self, values: pa.Array) -> pa.Array:
        """Documents (binary) of values without null.

        Raises:
            ConversionError: a type that JSON does not have, or a document that the schema does not allow.
        """
        bodies = json_text(_prepared(values), base64_decimals=self._base64_decimals).cast(pa.binary())
        if self._validator is not None:
            errors = self._validator.errors(bodies).drop_null()
            if len(errors):
                raise ConversionError(f"JsonSchemaConverter cannot write a value: {errors[0]}.")
        return bodies

    def _ordered(self, bodies: pa.Array) -> tuple[pa.Array, pa.Array]:
        """Documents with unions as structs, null where one cannot be read, and why."""
        ordered: list[bytes | None] = []
        errors: list[str | None] = []
        for body in bodies.to_pylist():
            try:
                text = text_of(body)
                ordered.append(_ENCODER.encode(_branched(_DECODER.decode(text), self._type, "the value")))
                errors.append(None)
            except RefusedDocumentError as error:
                ordered.append(None)
                errors.append(str(error))
            except (msgspec.MsgspecError, RecursionError):
                ordered.append(None)
                errors.append("it is not JSON that can be read with this schema")
        return pa.array(ordered, pa.binary()), pa.array(errors, pa.string())


def _has(one: JsonType, kind: str) -> bool:
    return one.kind == kind or any(_has(part, kind) for part in one.parts)


def _branched(value: Any, one: JsonType, path: str) -> Any:
    """A decoded value with unions as objects of one member, named as the branch's field."""
    if value is None:
        return None
    match one.kind:
        case "union":
            number = _branch(value, one)
            if number is None:
                raise RefusedDocumentError(f"{path} is of none of the types of its union")
            return {one.names[number]: _branched(value, one.parts[number], path)}
        case "struct" if isinstance(value, dict):
            parts = dict(zip(one.names, one.parts, strict=True))
            return {name: _branched(inner, parts[name], name) for name, inner in value.items() if name in parts}
        case "list" if isinstance(value, list):
            return [_branched(inner, one.parts[0], f"{path}[]") for inner in value]
        case "map" if isinstance(value, dict):
            return {name: _branched(inner, one.parts[0], f"{path}.{name}") for name, inner in value.items()}
        case "entries" if isinstance(value, list):
            entry = JsonType("struct", parts=one.parts, names=one.names)
            return [_branched(inner, entry, f"{path}[]") for inner in value]
    return value


def _branch(value: Any, one: JsonType) -> int | None:
    """The first branch of the value's simple type, otherwise the struct that has most of its fields."""
    scores = []
    for number, part in enumerate(one.parts):
        if part.kind != "struct" and _is_of(value, part):
            return number
        scores.append(_alike(value, part))
    best = max(scores, default=0)
    return scores.index(best) if best else None


def _is_of(value: Any, one: JsonType) -> bool:
    if one.kind in ("list", "entries"):
        return isinstance(value, list)
    if one.kind == "map":
        return isinstance(value, dict)
    if isinstance(value, bool):
        return one.accepts in ("boolean", "any")
    wanted = {"integer": int, "number": (int, float, Decimal), "string": str, "any": object}.get(one.accepts, ())
    return isinstance(value, wanted)  # type: ignore[arg-type]


def _alike(value: Any, one: JsonType) -> int:
    if one.kind != "struct" or not isinstance(value, dict):
        return 0
    parts = dict(zip(one.names, one.parts, strict=True))
    return sum(1 + _alike(inner, parts[name]) for name, inner in value.items() if name in parts)


def _with_maps(values: pa.Array, one: JsonType) -> pa.Array:
    """Lists of keys and values as the maps that they are."""
    if not _has(one, "entries"):
        return values
    mask = values.is_null() if values.null_count else None
    if one.kind in ("struct", "union"):
        columns = [_with_maps(values.field(number), part) for number, part in enumerate(one.parts)]
        kinds = zip(value_type(one), columns, strict=True)
        fields = [pa.field(field.name, column.type, True, field.metadata) for field, column in kinds]
        return pa.StructArray.from_arrays(columns, fields=fields, mask=mask)
    offsets = offsets_of(values)
    if one.kind == "list":
        return pa.ListArray.from_arrays(offsets, _with_maps(values.flatten(), one.parts[0]))
    if one.kind == "map":
        entries = entry_lists(values).flatten()
        return pa.MapArray.from_arrays(offsets, entries.field(0), _with_maps(entries.field(1), one.parts[0]))
    entries = values.flatten()
    key, value = (_with_maps(entries.field(number), part) for number, part in enumerate(one.parts))
    return pa.MapArray.from_arrays(offsets, key, value)


def _prepared(values: pa.Array) -> pa.Array:
    """Values of types that JSON text is written of: times as milliseconds, maps with other keys as lists."""
    kind, types = values.type, pa.types
    if not _needs_preparing(kind):
        return values
    if types.is_dictionary(kind):
        return _prepared(values.cast(kind.value_type))
    if types.is_time(kind):
        return values.cast(pa.time32("ms"), safe=False).cast(pa.int32())
    if types.is_struct(kind):
        columns = [_prepared(values.field(number)) for number in range(kind.num_fields)]
        mask = values.is_null() if values.null_count else None
        return pa.StructArray.from_arrays(columns, names=[one.name for one in kind], mask=mask)
    if types.is_map(kind):
        entries = entry_lists(values).flatten()
        key, value = _prepared(entries.field(0)), _prepared(entries.field(1))
        if is_text(kind.key_type):
            return pa.MapArray.from_arrays(offsets_of(values), key, value)
        return pa.ListArray.from_arrays(offsets_of(values), pa.StructArray.from_arrays([key, value], ["key", "value"]))
    return where_valid(values, pa.ListArray.from_arrays(offsets_of(values), _prepared(values.flatten())))


def _needs_preparing(kind: pa.DataType) -> bool:
    types = pa.types
    if types.is_struct(kind):
        return any(_needs_preparing(one.type) for one in kind)
    if types.is_map(kind):
        return not is_text(kind.key_type) or _needs_preparing(kind.item_type)
    if is_list(kind):
        return _needs_preparing(kind.value_type)
    return bool(types.is_time(kind) or (types.is_dictionary(kind) and _needs_preparing(kind.value_type)))
