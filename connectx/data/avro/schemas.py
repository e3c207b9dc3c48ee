"""Avro schemas of Arrow types, as Confluent's AvroData writes those of Connect's schemas.

The text follows AvroData's rules, so that a schema that a Java worker has registered is found again: the order of keys,
names of records without one (`ConnectDefault`, `ConnectDefault2`), `connect.version`, `connect.parameters` and
`connect.name` of logical types, and null before the type in unions unless a default comes first.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote_plus

import pyarrow as pa

from connectx.data.arrays import is_binary, is_list, is_text
from connectx.data.connect_schema import DEFAULT
from connectx.errors import ConversionError

NAMESPACE: Final = "io.confluent.connect.avro"
_DATA: Final = "org.apache.kafka.connect.data."
_VALID: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SIMPLE: Final = (
    *((pa.types.is_int32, "int"), (pa.types.is_int64, "long"), (pa.types.is_boolean, "boolean")),
    *((pa.types.is_float32, "float"), (pa.types.is_float64, "double"), (is_text, "string"), (is_binary, "bytes")),
)


def schema_of(kind: pa.DataType, *, name: str = "", version: int | None = None, scrub: bool = False) -> str:
    """Text of the Avro schema of values of an Arrow type.

    Args:
        name: full name of the outermost record; empty: `io.confluent.connect.avro.ConnectDefault`.
        version: of the outermost record (`connect.version`).
        scrub: make names valid that Avro does not take (`scrub.invalid.names`).

    Raises:
        ConversionError: Connect has no such type, or Avro does not take the name of a field.
    """
    made = _Names(scrub).required(kind, "", name)
    if version is not None and pa.types.is_struct(kind):
        last = {"connect.name": made.pop("connect.name")} if name else {}
        made = {**made, "connect.version": version, **last}
    return json.dumps(made, separators=(",", ":"), ensure_ascii=False)


def scrubbed(name: str) -> str:
    """A name that Avro takes: URL-encoded, then everything else an underscore (AvroData.doScrubName)."""
    if not name or _VALID.fullmatch(name):
        return name
    encoded = quote_plus(name, safe="*")
    encoded = f"x{encoded}" if encoded[0].isdigit() else encoded
    return re.sub("[^A-Za-z0-9_]", "_", encoded)


@dataclass(slots=True)
class _Names:
    """Names that one schema has given so far. Equal structs are one record, as equal schemas are in AvroData."""

    scrub: bool
    count: int = 0
    records: list[tuple[pa.DataType, str]] = field(default_factory=list)

    def required(self, kind: pa.DataType, space: str, name: str = "") -> Any:
        """JSON of a type whose values are not null, inside a record of the namespace `space`."""
        if pa.types.is_dictionary(kind):
            return self.required(kind.value_type, space, name)
        if pa.types.is_struct(kind):
            return self._record(kind, space, name)
        if is_list(kind):
            return {"type": "array", "items": self._of_field(kind.value_field, space)}
        if pa.types.is_map(kind):
            return self._map(kind, space)
        return _scalar(kind)

    def _of_field(self, one: pa.Field, space: str) -> Any:
        inner, default = self.required(one.type, space), _default(one)
        if default is not None:
            inner = _with_default(inner, default)
        if not one.nullable:
            return inner
        return ["null", inner] if default is None else [inner, "null"]

    def _record(self, kind: pa.StructType, space: str, name: str) -> Any:
        known = next((full for other, full in self.records if other.equals(kind, check_metadata=True)), None)
        if known is not None:
            namespace, _, simple = known.rpartition(".")
            return simple if namespace == space else known
        full = ".".join(map(self._name, name.split("."))) if name else self._next()
        namespace, _, simple = full.rpartition(".")
        self.records.append((kind, full))
        head = {"type": "record", "name": simple} | ({"namespace": namespace} if namespace != space else {})
        made = {**head, "fields": [self._field(one, namespace) for one in kind]}
        return made | ({"connect.name": name} if name else {})

    def _next(self) -> str:
        self.count += 1
        return f"{NAMESPACE}.ConnectDefault{self.count if self.count > 1 else ''}"

    def _field(self, one: pa.Field, space: str) -> dict[str, Any]:
        default = _default(one)
        made = {"name": self._name(one.name), "type": self._of_field(one, space)}
        return made | ({"default": default} if one.nullable or default is not None else {})

    def _map(self, kind: pa.MapType, space: str) -> Any:
        if is_text(kind.key_type):
            return {"type": "map", "values": self._of_field(kind.item_field, space)}
        entry = (pa.field("key", kind.key_type, False), kind.item_field.with_name("value"))
        head = {"type": "record", "name": "MapEntry"} | ({"namespace": NAMESPACE} if space != NAMESPACE else {})
        return {"type": "array", "items": {**head, "fields": [self._field(one, NAMESPACE) for one in entry]}}

    def _name(self, name: str) -> str:
        made = scrubbed(name) if self.scrub else name
        if not _VALID.fullmatch(made):
            raise ConversionError(
                f"Avro does not take the name {name!r}.",
                next_step="Rename the field, or set scrub.invalid.names=true for the converter.",
            )
        return made


def _scalar(kind: pa.DataType) -> Any:
    types = pa.types
    if types.is_int8(kind) or types.is_int16(kind):
        return {"type": "int", "connect.type": f"int{kind.bit_width}"}
    if types.is_decimal(kind):
        return {
            "type": "bytes",
            "scale": kind.scale,
            "precision": kind.precision,
            "connect.version": 1,
            "connect.parameters": {"scale": str(kind.scale), "connect.decimal.precision": str(kind.precision)},
            "connect.name": f"{_DATA}Decimal",
            "logicalType": "decimal",
        }
    if types.is_date32(kind):
        return _logical("int", "Date", "date")
    if types.is_time(kind):
        return _logical("int", "Time", "time-millis")
    if types.is_timestamp(kind):
        return _logical("long", "Timestamp", "timestamp-millis")
    found = next((name for fits, name in _SIMPLE if fits(kind)), None)
    if found is None:
        raise ConversionError(
            f"AvroConverter cannot write values of type {kind}.", next_step="Cast the column to another type."
        )
    return found


def _logical(kind: str, name: str, logical: str) -> dict[str, Any]:
    return {"type": kind, "connect.version": 1, "connect.name": f"{_DATA}{name}", "logicalType": logical}


def _with_default(inner: Any, default: Any) -> Any:
    """A type with `connect.default`, before the name of a logical type."""
    if not isinstance(inner, dict):
        return {"type": inner, "connect.default": default}
    later = {key: inner[key] for key in ("connect.name", "connect.type", "logicalType") if key in inner}
    return {key: inner[key] for key in inner if key not in later} | {"connect.default": default} | later


def _default(one: pa.Field) -> Any:
    """A field's default as JSON; of bytes and decimals, which Avro spells otherwise, none."""
    kind = one.type
    if pa.types.is_nested(kind) or is_binary(kind) or pa.types.is_decimal(kind):
        return None
    found = (one.metadata or {}).get(DEFAULT.encode())
    return None if found is None else json.loads(found)
