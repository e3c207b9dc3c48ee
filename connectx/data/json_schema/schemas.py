"""JSON Schemas of Arrow types, as Confluent's JsonSchemaData writes those of Connect's schemas."""

from __future__ import annotations

import json
from typing import Any, Final

import pyarrow as pa

from connectx.data.arrays import is_binary, is_list, is_text
from connectx.data.connect_schema import NO_NAME, SchemaName, default_of, default_value, name_of
from connectx.data.json.writer import json_text
from connectx.errors.plugins import ConversionError
from connectx.values import Value

NAMESPACE: Final = "io.confluent.connect.json"
_NUMBERS: Final = (
    (pa.types.is_int8, "int8"),
    (pa.types.is_int16, "int16"),
    (pa.types.is_int32, "int32"),
    (pa.types.is_int64, "int64"),
    (pa.types.is_float32, "float32"),
    (pa.types.is_float64, "float64"),
    (pa.types.is_date32, "int32"),
    (pa.types.is_time, "int32"),
    (pa.types.is_timestamp, "int64"),
)


def schema_of(
    kind: pa.DataType, name: SchemaName = NO_NAME, *, numeric_decimals: bool = False, is_open: bool = True
) -> str:
    """Text of the JSON Schema of values of an Arrow type.

    Args:
        name: of the outermost schema.
        numeric_decimals: decimals are numbers, otherwise text in base64 (`decimal.format`).
        is_open: objects may have further properties (`object.additional.properties`).

    Raises:
        ConversionError: Connect has no such type.
    """
    made = _Spelling(numeric_decimals, is_open).required(name.on(pa.field("value", kind, False)))
    return json.dumps(made, separators=(",", ":"), ensure_ascii=False)


class _Spelling(Value):
    """How decimals and objects are spelled."""

    numeric_decimals: bool
    is_open: bool

    def required(self, one: pa.Field) -> dict[str, Any]:
        """JSON of the type of a field's values that are not null."""
        if pa.types.is_dictionary(one.type):
            return self.required(one.with_type(one.type.value_type))
        name, default = name_of(one), self._default(one)
        parameters = {key: value for key, value in name.parameters if not key.startswith(NAMESPACE)}
        made: dict[str, Any] = {"title": name.name} if name.name else {}
        made |= {"description": name.doc} if name.doc else {}
        made |= self._body(one.type)
        made |= {} if default is None else {"default": default}
        made |= {} if name.version is None else {"connect.version": name.version}
        return made | ({"connect.parameters": parameters} if parameters else {})

    def _body(self, kind: pa.DataType) -> dict[str, Any]:
        if pa.types.is_struct(kind):
            properties = {one.name: self._property(one, number) for number, one in enumerate(kind)}
            return {"type": "object", "properties": properties} | (
                {} if self.is_open else {"additionalProperties": False}
            )
        if is_list(kind):
            return {"type": "array", "items": self._of_field(kind.value_field)}
        return self._map(kind) if pa.types.is_map(kind) else self._scalar(kind)

    def _of_field(self, one: pa.Field) -> dict[str, Any]:
        inner = self.required(one)
        return {"oneOf": [{"type": "null"}, inner]} if one.nullable else inner

    def _property(self, one: pa.Field, index: int) -> dict[str, Any]:
        return {**self._of_field(one), "connect.index": index}

    def _map(self, kind: pa.MapType) -> dict[str, Any]:
        if is_text(kind.key_type):
            return {"type": "object", "connect.type": "map", "additionalProperties": self._of_field(kind.item_field)}
        entry = {
            "key": self._property(kind.key_field, 0),
            "value": self._property(kind.item_field, 1),
        }
        return {"type": "array", "connect.type": "map", "items": {"type": "object", "properties": entry}}

    def _scalar(self, kind: pa.DataType) -> dict[str, Any]:
        types = pa.types
        if types.is_boolean(kind):
            return {"type": "boolean"}
        if is_text(kind):
            return {"type": "string"}
        if is_binary(kind):
            return {"type": "string", "connect.type": "bytes"}
        if types.is_decimal128(kind):
            return {"type": "number" if self.numeric_decimals else "string", "connect.type": "bytes"}
        found = next((name for fits, name in _NUMBERS if fits(kind)), None)
        if found is None:
            raise ConversionError(
                f"JsonSchemaConverter cannot write values of type {kind}.", next_step="Cast the column to another type."
            )
        return {"type": "integer" if found.startswith("int") else "number", "connect.type": found}

    def _default(self, one: pa.Field) -> Any:
        """A field's default as it is written in documents. Nested ones are left out."""
        found = None if pa.types.is_nested(one.type) else default_of(one)
        if found is None or not pa.types.is_decimal(one.type):
            return found
        value = pa.array([default_value(one.type, found)], one.type)
        return json.loads(json_text(value, base64_decimals=not self.numeric_decimals)[0].as_py())
