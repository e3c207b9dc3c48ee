"""The interface of converters: values to bytes of Kafka records, and back.

Mirrors Kafka Connect's Converter, on whole columns: Arrow arrays in and out, without state, so that executors can run
the same code. A converter never drops a record: what cannot be read comes back with an error beside it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Set
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from connectx.data.connect_schema import ColumnSchema
from connectx.errors.plugins import ConversionError
from connectx.model.configdef import ConfigDef
from connectx.values import Value

CONVERTER_CONFIG = ConfigDef().define(
    "converter.type", str, None, doc="How this converter will be used: key, value or header.", importance="LOW"
)

OTHER_FIELDS: Final = "connectx_other_fields"
"""Field of a wanted type that takes the names of fields which the type does not have, as a list in JSON.

Fields that are null do not count. A name within a struct has the names of the structs before it, with dots. A sink that
refuses such records wants a struct that ends with it.
"""

_RULE: Final = b"connectx.other.fields"


class Decoded(Value):
    """Values that a converter read: `error` (string) has per row why there is none, otherwise null."""

    value: pa.Array
    error: pa.Array

    @classmethod
    def of(cls, value: pa.Array) -> Decoded:
        return cls(value, pa.nulls(len(value), pa.string()))


class Converter:
    """Base of converters. Null is a tombstone in both directions.

    Args:
        settings: the converter's keys without prefix, such as `schemas.enable`.
        is_key: True when it converts keys.

    `infers_fields` asks for structs where records have fields and neither a schema nor a wanted type. `only_field`
    names the field of structs that stand for values without fields, if they have no schema.

    Raises:
        ConfigError: a setting is wrong.
    """

    java_class: ClassVar[str]
    config: ClassVar[ConfigDef] = CONVERTER_CONFIG
    types_nulls: ClassVar[bool] = False
    """True when a null that has a schema is a value, or refused by its type. Otherwise it is a tombstone."""
    by_topic: ClassVar[bool] = False
    """True when the bytes of a value depend on its topic: `for_topic` is then called before `to_bytes_arrow`."""

    def __init__(self, settings: Mapping[str, str] | None = None, *, is_key: bool = False) -> None:
        self.settings: dict[str, Any] = self.config.parse(settings or {})
        self.is_key = is_key
        self.infers_fields = False
        self.only_field: str | None = None

    @property
    def has_schemas(self) -> bool:
        """False when records have no schemas, so that each may have other fields."""
        return True

    def for_topic(self, topic: str) -> Converter:
        """The converter for values that go to a topic. Default: the same for all topics."""
        return self

    def with_schema(self, schema: ColumnSchema) -> Converter:
        """The converter for values of a column with this schema. Default: the same, which writes no schemas."""
        return self

    def to_bytes_arrow(self, values: pa.Array) -> pa.Array:
        """Values as binary.

        Raises:
            ConversionError: this converter does not take the type.
        """
        raise self.refuses(values.type)

    def from_bytes_arrow(self, records: pa.Array, target: pa.DataType | None = None) -> Decoded:
        """Values of binary records; a record that cannot be read has an error.

        Args:
            target: type of the values, if the records do not contain it. None: the type in the record.
        """
        raise ConversionError(f"{self.name} reads nothing.")

    @property
    def name(self) -> str:
        """Short name, as in messages."""
        return type(self).__name__

    def refuses(self, kind: object) -> ConversionError:
        """The error for a type that this converter does not take."""
        side = "key" if self.is_key else "value"
        return ConversionError(
            f"{self.name} cannot write a {side} of type {kind}.",
            next_step=f"Set {side}.converter to another converter, for example JsonConverter, or change the column.",
        )


@dataclass(frozen=True, slots=True)
class OtherFields:
    """Which fields of a document are to be named.

    Attributes:
        kind: the fields that are not.
        allowed: names of more fields that are not, within no other field.
        within: only fields within this field are named; None: all.
    """

    kind: pa.DataType
    allowed: Set[str]
    within: str | None

    @classmethod
    def of(cls, kind: pa.DataType) -> OtherFields | None:
        """What a wanted type asks for; None: it does not ask for names."""
        if not pa.types.is_struct(kind) or not kind.num_fields:
            return None
        rule = (kind.field(kind.num_fields - 1).metadata or {}).get(_RULE)
        if rule is None:
            return None
        allowed, within = json.loads(rule)
        row = without_other_fields(kind)
        return cls(row if within is None else row.field(within).type, frozenset(allowed), within)


def with_others(kind: pa.DataType, allowed: Collection[str], *, within: str | None = None) -> pa.DataType:
    """A struct's type that ends with `OTHER_FIELDS`: converters of records without schemas fill it.

    Args:
        allowed: names that are not reported.
        within: only fields within this field are reported, with their names there.
    """
    rule = json.dumps([sorted(allowed), within])
    return pa.struct([*kind, pa.field(OTHER_FIELDS, pa.string(), metadata={_RULE: rule})])


def without_other_fields(kind: pa.DataType) -> pa.DataType:
    """The type of the values alone."""
    return pa.struct(list(kind)[:-1])


def with_other_fields(values: pa.Array, names: pa.Array) -> pa.Array:
    """Structs with the names of the other fields of their documents."""
    fields = [*values.type, pa.field(OTHER_FIELDS, pa.string())]
    return pa.StructArray.from_arrays([*values.flatten(), names], fields=fields, mask=values.is_null())


def other_fields_of(values: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """Names of fields that the wanted type of structs lacks; None: it did not ask for them."""
    if not pa.types.is_struct(values.type) or values.type.get_field_index(OTHER_FIELDS) < 0:
        return None
    return pc.struct_field(values, OTHER_FIELDS)
