"""Avro schemas of Arrow types, as Confluent's AvroData writes those of Connect's schemas.

The text follows AvroData's rules, so that a schema that a Java worker has registered is found again: the order of keys,
names of records without one (`ConnectDefault`, `ConnectDefault2`), `connect.doc`, `connect.version`,
`connect.parameters`, `connect.default` and `connect.name`, and null before the type in unions unless a default comes
first. A record with a name is defined once.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote_plus

import pyarrow as pa

from connectx.data.arrays import is_binary, is_list, is_text
from connectx.data.base64_columns import unscaled_bytes
from connectx.data.connect_schema import (
    DATE_NAME,
    DECIMAL_NAME,
    NO_NAME,
    TIME_NAME,
    TIMESTAMP_NAME,
    SchemaName,
    default_of,
    default_value,
    name_of,
)
from connectx.data.json.writer import as_jackson
from connectx.errors.plugins import ConversionError
from connectx.values import Value

NAMESPACE: Final = "io.confluent.connect.avro"
_LOGICAL: Final = {
    ("bytes", DECIMAL_NAME): "decimal",
    ("int", DATE_NAME): "date",
    ("int", TIME_NAME): "time-millis",
    ("long", TIMESTAMP_NAME): "timestamp-millis",
}
_PASSED_ON: Final = "avro"
"""Parameters that begin so are properties of the type, too."""

_ENTRY: Final = "MapEntry"
_VALID: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SIMPLE: Final = (
    (pa.types.is_int8, "int"),
    (pa.types.is_int16, "int"),
    (pa.types.is_int32, "int"),
    (pa.types.is_date32, "int"),
    (pa.types.is_time, "int"),
    (pa.types.is_timestamp, "long"),
    (pa.types.is_decimal, "bytes"),
    (pa.types.is_int64, "long"),
    (pa.types.is_boolean, "boolean"),
    (pa.types.is_float32, "float"),
    (pa.types.is_float64, "double"),
    (is_text, "string"),
    (is_binary, "bytes"),
)


def schema_of(kind: pa.DataType, name: SchemaName = NO_NAME, *, scrub: bool = False) -> str:
    """Text of the Avro schema of values of an Arrow type.

    Args:
        name: of the outermost schema; a record without one is `io.confluent.connect.avro.ConnectDefault`.
        scrub: make names valid that Avro does not take (`scrub.invalid.names`).

    Raises:
        ConversionError: Connect has no such type, or Avro does not take a name.
    """
    made = _Names(scrub).required(name.on(pa.field("value", kind, False)), "")
    return as_jackson(json.dumps(made, separators=(",", ":"), ensure_ascii=False))


def scrubbed(name: str) -> str:
    """A name that Avro takes: URL-encoded, then everything else an underscore (AvroData.doScrubName)."""
    if not name or _VALID.fullmatch(name):
        return name
    encoded = quote_plus(name, safe="*")
    encoded = f"x{encoded}" if encoded[0].isdigit() else encoded
    return re.sub("[^A-Za-z0-9_]", "_", encoded)


class _Record(Value):
    kind: pa.StructType
    name: SchemaName
    full_name: str


@dataclass(slots=True)
class _Names:
    """Names that one schema has given so far. Equal structs are one record, as equal schemas are in AvroData."""

    scrub: bool
    count: int = 0
    records: list[_Record] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)

    def required(self, one: pa.Field, space: str) -> Any:
        """JSON of the type of values that are not null, inside a record of the namespace `space`."""
        kind, name, default = one.type, name_of(one), _default(one)
        if pa.types.is_dictionary(kind):
            return self.required(one.with_type(kind.value_type), space)
        if pa.types.is_struct(kind):
            return self._record(kind, space, name)
        if is_list(kind):
            return {"type": "array", "items": self._of_field(kind.value_field, space), **_properties(name, default)}
        if pa.types.is_map(kind):
            return {**self._map(kind, space, name), **_properties(name, default)}
        return _scalar(kind, name, default)

    def _of_field(self, one: pa.Field, space: str) -> Any:
        inner = self.required(one, space)
        if not one.nullable:
            return inner
        return ["null", inner] if _default(one) is None else [inner, "null"]

    def _record(self, kind: pa.StructType, space: str, name: SchemaName) -> Any:
        known = self._known(kind, name)
        if known:
            namespace, _, simple = known.rpartition(".")
            return simple if namespace == space else known
        full = self._full_name(name.name) if name.name else self._next()
        namespace, _, simple = full.rpartition(".")
        self.records.append(_Record(kind, name, full))
        head = {"type": "record", "name": simple} | ({"namespace": namespace} if namespace != space else {})
        return {**head, "fields": [self._field(one, namespace) for one in kind], **_properties(name, None)}

    def _known(self, kind: pa.StructType, name: SchemaName) -> str:
        """Full name of the record that a struct is, if there is one already."""
        for one in self.records:
            if name.name and one.name.name == name.name:
                if one.kind != kind:
                    raise ConversionError(
                        f"Two structs of different fields have the name {name.name}, and an Avro schema holds one.",
                        next_step="Give one of them another name.",
                    )
                return one.full_name
            if one.name == name and one.kind.equals(kind, check_metadata=True):
                return one.full_name
        return ""

    def _full_name(self, name: str) -> str:
        return ".".join(map(self._name, name.split(".")))

    def _next(self) -> str:
        self.count += 1
        return f"{NAMESPACE}.ConnectDefault{self.count if self.count > 1 else ''}"

    def _field(self, one: pa.Field, space: str) -> dict[str, Any]:
        name, default = SchemaName.of(one), _default(one)
        is_known = name.name in self.seen and pa.types.is_struct(one.type)
        self.seen |= {name.name} if name.name else set()
        made = {"name": self._name(one.name), "type": self._of_field(one, space)}
        made |= {"default": default} if one.nullable or default is not None else {}
        return made | ({"connect.parameters": dict(name.parameters)} if is_known and name.parameters else {})

    def _map(self, kind: pa.MapType, space: str, name: SchemaName) -> dict[str, Any]:
        if is_text(kind.key_type):
            return {"type": "map", "values": self._of_field(kind.item_field, space)}
        entry = (kind.key_field.with_name("key"), kind.item_field.with_name("value"))
        full = self._full_name(name.name) if name.name else f"{NAMESPACE}.{_ENTRY}"
        namespace, _, simple = full.rpartition(".")
        head = {"type": "record", "name": simple} | ({"namespace": namespace} if space != namespace else {})
        made = {**head, "fields": [self._field(one, namespace) for one in entry]}
        made |= {"connect.internal.type": _ENTRY} if name.name else {}
        return {"type": "array", "items": made}

    def _name(self, name: str) -> str:
        made = scrubbed(name) if self.scrub else name
        if not _VALID.fullmatch(made):
            raise ConversionError(
                f"Avro does not take the name {name!r}.",
                next_step="Rename the field, or set scrub.invalid.names=true for the converter.",
            )
        return made


def _scalar(kind: pa.DataType, name: SchemaName, default: Any) -> Any:
    found = next((avro for fits, avro in _SIMPLE if fits(kind)), None)
    if found is None:
        raise ConversionError(
            f"AvroConverter cannot write values of type {kind}.", next_step="Cast the column to another type."
        )
    made = {"type": found}
    made |= {"scale": kind.scale, "precision": kind.precision} if pa.types.is_decimal(kind) else {}
    narrow = {"connect.type": f"int{kind.bit_width}"} if pa.types.is_int8(kind) or pa.types.is_int16(kind) else {}
    logical = _LOGICAL.get((found, name.name))
    made |= _properties(name, default, **narrow, **({} if logical is None else {"logicalType": logical}))
    return found if made.keys() == {"type"} else made


def _properties(name: SchemaName, default: Any, **more: str) -> dict[str, Any]:
    """Connect's properties of a type in AvroData's order; `more` come after the name."""
    made: dict[str, Any] = {"connect.doc": name.doc} if name.doc else {}
    made |= {} if name.version is None else {"connect.version": name.version}
    made |= {"connect.parameters": dict(name.parameters)} if name.parameters else {}
    made |= {} if default is None else {"connect.default": default}
    made |= {"connect.name": name.name} if name.name else {}
    return made | more | {key: value for key, value in name.parameters if key.startswith(_PASSED_ON)}


def _default(one: pa.Field) -> Any:
    """A field's default as Avro spells it: bytes are text of ISO 8859-1. Nested ones are left out."""
    found = None if pa.types.is_nested(one.type) else default_of(one)
    if found is None:
        return None
    if pa.types.is_floating(one.type):
        return float(found)
    if is_binary(one.type):
        return bytes(default_value(pa.binary(), found)).decode("latin-1")
    if pa.types.is_decimal(one.type):
        unscaled = unscaled_bytes(pa.array([default_value(one.type, found)], one.type))
        return bytes(unscaled[0].as_py()).decode("latin-1")
    return found
