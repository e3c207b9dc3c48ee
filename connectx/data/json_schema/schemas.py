"""JSON Schemas of Arrow types, as Confluent's JsonSchemaData writes those of Connect's schemas."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from connectx.data.arrays import is_binary, is_list, is_text
from connectx.data.connect_schema import DEFAULT
from connectx.errors import ConversionError

_DATA: Final = "org.apache.kafka.connect.data."
_NUMBERS: Final = (
    *((pa.types.is_int8, "int8"), (pa.types.is_int16, "int16"), (pa.types.is_int32, "int32")),
    *((pa.types.is_int64, "int64"), (pa.types.is_float32, "float32"), (pa.types.is_float64, "float64")),
)


def schema_of(
    kind: pa.DataType,
    *,
    name: str = "",
    version: int | None = None,
    numeric_decimals: bool = False,
    is_open: bool = True,
) -> str:
    """Text of the JSON Schema of values of an Arrow type.

    Args:
        name: title of the outermost schema, `version` its `connect.version`.
        numeric_decimals: decimals are numbers, otherwise text in base64 (`decimal.format`).
        is_open: objects may have further properties (`object.additional.properties`).

    Raises:
        ConversionError: Connect has no such type.
    """
    made = _Spelling(numeric_decimals, is_open).required(kind)
    made = {"title": name, **made} if name else made
    made |= {} if version is None else {"connect.version": version}
    return json.dumps(made, separators=(",", ":"), ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class _Spelling:
    """How decimals and objects are spelled."""

    numeric_decimals: bool
    is_open: bool

    def required(self, kind: pa.DataType, default: Any = None) -> dict[str, Any]:
        """JSON of a type whose values are not null."""
        if pa.types.is_dictionary(kind):
            return self.required(kind.value_type, default)
        if pa.types.is_struct(kind):
            properties = {one.name: self._property(one, number) for number, one in enumerate(kind)}
            return {"type": "object", "properties": properties} | (
                {} if self.is_open else {"additionalProperties": False}
            )
        if is_list(kind):
            return {"type": "array", "items": self._of_field(kind.value_field)}
        if pa.types.is_map(kind):
            return self._map(kind)
        made = self._scalar(kind)
        return made if default is None else {**made, "default": default}

    def _of_field(self, one: pa.Field) -> dict[str, Any]:
        inner = self.required(one.type, _default(one))
        return {"oneOf": [{"type": "null"}, inner]} if one.nullable else inner

    def _property(self, one: pa.Field, index: int) -> dict[str, Any]:
        return {**self._of_field(one), "connect.index": index}

    def _map(self, kind: pa.MapType) -> dict[str, Any]:
        if is_text(kind.key_type):
            return {"type": "object", "connect.type": "map", "additionalProperties": self._of_field(kind.item_field)}
        entry = {
            "key": self._property(pa.field("key", kind.key_type, False), 0),
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
            parameters = {"scale": str(kind.scale), "connect.decimal.precision": str(kind.precision)}
            spelled = "number" if self.numeric_decimals else "string"
            return {**_logical(spelled, "Decimal", "bytes"), "connect.parameters": parameters}
        if types.is_date32(kind):
            return _logical("integer", "Date", "int32")
        if types.is_time(kind):
            return _logical("integer", "Time", "int32")
        if types.is_timestamp(kind):
            return _logical("integer", "Timestamp", "int64")
        found = next((name for fits, name in _NUMBERS if fits(kind)), None)
        if found is None:
            raise ConversionError(
                f"JsonSchemaConverter cannot write values of type {kind}.", next_step="Cast the column to another type."
            )
        return {"type": "integer" if found.startswith("int") else "number", "connect.type": found}


def _logical(spelled: str, name: str, connect_type: str) -> dict[str, Any]:
    return {"type": spelled, "title": f"{_DATA}{name}", "connect.version": 1, "connect.type": connect_type}


def _default(one: pa.Field) -> Any:
    found = (one.metadata or {}).get(DEFAULT.encode())
    return None if found is None or pa.types.is_nested(one.type) else json.loads(found)
