"""JSON with and without schemas. Mirrors Kafka Connect's JsonConverter.

Without schemas a record is read as the type that the sink wants, or, where it wants none, as text: a JSON string is its
content, everything else its JSON. A decimal in text is then its digits. With schemas each record carries its type, and
such text is base64. Stricter than Java: anything after the
document, numbers that do not fit, and values of another type than the schema's are errors and never cut. Only digits
beyond a decimal's scale are rounded.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connectx.data import connect_schema
from connectx.data.arrays import enclosed
from connectx.data.chunks import rows_where
from connectx.data.connect_schema import NO_SCHEMA, ColumnSchema
from connectx.data.converter import CONVERTER_CONFIG, Converter, Decoded
from connectx.data.json.documents import read_documents
from connectx.data.json.envelopes import in_objects, split_envelopes, split_one
from connectx.data.json.reader import JsonReader, Recover, read_text
from connectx.data.json.strict import RefusedDocumentError
from connectx.data.json.writer import as_jackson, json_text
from connectx.data.parts import joined
from connectx.errors.plugins import ConfigError, ConversionError
from connectx.model.configdef import ConfigDef
from connectx.model.validators import one_of

_DEFAULT: Final = "\ufdd0default"
"""Stands for a default in the text of a schema: no name begins with this character, which Unicode does not assign."""


@dataclass(frozen=True, slots=True)
class RecordSchema:
    """What a record's schema means: `kind` is None if it is null, `error` is the reason if it cannot be read."""

    kind: pa.DataType | None
    required: bool = False
    error: str | None = None


class JsonConverter(Converter):
    """JSON; see the module's text for what it does with types."""

    java_class = "org.apache.kafka.connect.json.JsonConverter"
    types_nulls = True
    config = (
        ConfigDef(CONVERTER_CONFIG)
        .group("Schemas")
        .define(
            "schemas.enable",
            bool,
            True,
            doc="Include schemas within each of the serialized values and keys.",
            importance="HIGH",
        )
        .define(
            "schemas.cache.size",
            int,
            1000,
            doc="Kept for compatibility: schemas are compared per batch here.",
            importance="HIGH",
        )
        .define(
            "schema.content",
            str,
            None,
            doc="The schema of records that are read, as JsonConverter spells it: they have no envelope (KIP-1054).",
            importance="HIGH",
        )
        .group("Serialization")
        .define(
            "decimal.format",
            str,
            "BASE64",
            doc="How decimals are written: BASE64 of the unscaled bytes, or NUMERIC.",
            importance="LOW",
            validator=one_of("NUMERIC", "BASE64", ignore_case=True),
        )
        .define(
            "replace.null.with.default",
            bool,
            True,
            doc="Whether null fields that have a default in the schema get it.",
            importance="LOW",
        )
    )

    def __init__(self, settings: Mapping[str, str] | None = None, *, is_key: bool = False) -> None:
        super().__init__(settings, is_key=is_key)
        self._schema = NO_SCHEMA
        content = self.settings["schema.content"] if self.has_schemas else None
        self._content = _content_schema(content) if content and content.strip() else None

    def with_schema(self, schema: ColumnSchema) -> JsonConverter:
        """The same converter, which writes this schema, and its nulls and default."""
        made = copy.copy(self)
        made._schema = schema
        return made

    @property
    def has_schemas(self) -> bool:
        """True when each record carries its schema."""
        return bool(self.settings["schemas.enable"])

    @property
    def _base64_decimals(self) -> bool:
        return str(self.settings["decimal.format"]).upper() == "BASE64"

    def to_bytes_arrow(self, values: pa.Array) -> pa.Array:
        """JSON in UTF-8, in Connect's envelope when schemas are enabled.

        Raises:
            ConversionError: a type that JSON or Connect's schemas do not have.
        """
        if pa.types.is_null(values.type):
            return values.cast(pa.binary())
        column = self._schema
        if self.settings["replace.null.with.default"]:
            values = connect_schema.with_defaults(values)
            if column.has_nulls:
                values = connect_schema.with_default(values, column.default)
        text = json_text(values, base64_decimals=self._base64_decimals)
        if column.has_nulls and text.null_count:
            if not column.optional:
                raise ConversionError("The value is null, and its schema is required and has no default.")
            text = pc.fill_null(text, "null")
        if self.has_schemas:
            head = self._head(values.type)
            text = enclosed(f'{{"schema":{head},"payload":', text, "}")
        return text.cast(pa.binary())

    def _head(self, kind: pa.DataType) -> str:
        """The schema that is written; maps that a transformation made of a tombstone have none."""
        if connect_schema.is_schemaless(kind):
            return "null"
        column, spelled = self._schema, []

        def spell(of: pa.DataType, default: Any) -> Any:
            """Defaults as values are spelled: they take their places in the text."""
            if pa.types.is_nested(of):
                return default
            value = pa.array([connect_schema.default_value(of, default)], of)
            spelled.append(json_text(value, base64_decimals=self._base64_decimals)[0].as_py())
            return f"{_DEFAULT}{len(spelled) - 1}"

        schema = connect_schema.schema_of(kind, optional=column.optional, name=column.name, spell=spell)
        if column.default is not None:
            schema |= {"default": spell(kind, column.default)}
        head = as_jackson(json.dumps(schema, separators=(",", ":"), ensure_ascii=False))
        return re.sub(f'"{_DEFAULT}(\\d+)"', lambda found: spelled[int(found[1])], head)

    def from_bytes_arrow(self, records: pa.Array, target: pa.DataType | None = None) -> Decoded:
        """Without schemas: documents as `target`, or as text; with schemas: as each record's own type.

        Raises:
            ConversionError: no one type can hold the values of all schemas.
        """
        if records.null_count == len(records):
            return Decoded.of(pa.nulls(len(records)))
        if self.has_schemas:
            return self._from_envelopes(records, target)
        if self.only_field is not None:
            records = in_objects(records, self.only_field)
        if target is not None:
            return JsonReader(base64_decimals=False, use_defaults=False).read(records, target)
        return read_documents(records) if self.infers_fields else read_text(records)

    def _from_envelopes(self, records: pa.Array, target: pa.DataType | None) -> Decoded:
        nulls = rows_where(records.is_null())
        parts = [(nulls, Decoded.of(pa.nulls(len(nulls))))]
        if self._content is not None:
            rows = rows_where(records.is_valid())
            parts.append((rows, self._payloads(self._content, records.take(rows), target, None)))
            return joined([part for part in parts if len(part[0])])
        seen = np.zeros(len(records), bool)
        seen[nulls.to_numpy()] = True
        for text, rows, payloads in split_envelopes(records):
            seen[rows.to_numpy()] = True

            def recover(row: int, rows: pa.Array = rows) -> str:
                return split_one(records[rows[row].as_py()].as_py())[1]

            parts.append((rows, self._payloads(record_schema(text), payloads, target, recover)))
        left = np.flatnonzero(~seen)
        if len(left):
            errors = [_why_no_envelope(records[row].as_py()) for row in left.tolist()]
            parts.append((pa.array(left, pa.uint64()), Decoded(pa.nulls(len(left)), pa.array(errors, pa.string()))))
        return joined([part for part in parts if len(part[0])])

    def _payloads(
        self, schema: RecordSchema, payloads: pa.Array, target: pa.DataType | None, recover: Recover | None
    ) -> Decoded:
        """Payloads of one schema; `recover` gives the exact text of one, by default the payload itself."""
        if schema.error is not None:
            return Decoded(pa.nulls(len(payloads)), pa.array([schema.error] * len(payloads)))
        kind = target if schema.kind is None else schema.kind
        if kind is None:
            return _documents(payloads, recover) if self.infers_fields else read_text(payloads, recover)
        use_defaults = bool(self.settings["replace.null.with.default"])
        base64_decimals = schema.kind is not None
        try:
            read = JsonReader(base64_decimals=base64_decimals, use_defaults=use_defaults).read(payloads, kind, recover)
        except ConversionError as error:
            return Decoded(pa.nulls(len(payloads)), pa.array([error.message] * len(payloads)))
        if not schema.required:
            return read
        missing = pc.and_(read.value.is_null(), read.error.is_null())
        return Decoded(read.value, pc.if_else(missing, "the value is required, and missing or null", read.error))


def _documents(payloads: pa.Array, recover: Recover | None) -> Decoded:
    """Payloads of the schema null, which are documents without schemas."""
    if recover is None:
        return read_documents(payloads)
    texts: list[str | None] = []
    errors: list[str | None] = []
    for row in range(len(payloads)):
        try:
            texts.append(recover(row))
            errors.append(None)
        except RefusedDocumentError as error:
            texts.append(None)
            errors.append(str(error))
    read = read_documents(pa.array(texts, pa.string()).cast(pa.binary()))
    return Decoded(read.value, pc.coalesce(pa.array(errors, pa.string()), read.error))


def record_schema(text: str) -> RecordSchema:
    """What the text of a schema means."""
    schema = json.loads(text)
    if schema is None:
        return RecordSchema(None)
    try:
        required = not connect_schema.is_optional(schema) if isinstance(schema, dict) else False
        return RecordSchema(connect_schema.type_of(schema), required)
    except ConversionError as error:
        return RecordSchema(None, error=error.message)


def _content_schema(text: str) -> RecordSchema:
    """The schema in the setting schema.content.

    Raises:
        ConfigError: it is no schema.
    """
    try:
        schema = record_schema(text)
    except ValueError as error:
        schema = RecordSchema(None, error=f"it is not JSON: {error}")
    if schema.error is not None:
        raise ConfigError([f"Invalid value for configuration schema.content: {schema.error}"])
    return schema


def _why_no_envelope(record: bytes) -> str:
    try:
        split_one(record)
    except RefusedDocumentError as error:
        return str(error)
    raise AssertionError("only records without an envelope are left")
