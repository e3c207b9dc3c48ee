"""JSON with and without schemas. Mirrors Kafka Connect's JsonConverter.

Without schemas a record is read as the type that the sink wants, or, where it wants none, as text: a JSON string is its
content, everything else its JSON. With schemas a record tells its own type. Stricter than Java: anything behind the
document, numbers that do not fit, and values of another type than the schema's are errors and never cut. Only digits
behind a decimal's scale are rounded.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from connectx.data import connect_schema
from connectx.data.arrays import enclosed
from connectx.data.converter import CONVERTER_CONFIG, Converter, Decoded
from connectx.data.diagnosis import NO_ENVELOPE
from connectx.data.json.arrow import read_json, read_text, split_envelopes
from connectx.data.json.inference import read_documents
from connectx.data.json.reader import NOT_JSON, JsonReader, bound
from connectx.data.json.writer import as_jackson, json_text
from connectx.errors import ConversionError
from connectx.extras import require
from connectx.model.configdef import ConfigDef
from connectx.model.validators import one_of

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType

_SCHEMA_FIRST = re.compile(r'\s*\{\s*"schema"\s*:\s*')
_NO_SCHEMA = '^\\s*\\{\\s*"schema"\\s*:\\s*null'
_BARE_PAYLOAD = r'(?s)^\s*\{\s*"schema"\s*:\s*null\s*,\s*"payload"\s*:\s*(.*)\}\s*$'


@dataclass(frozen=True, slots=True)
class RecordSchema:
    """A schema as records carry it: `text` is exact, `kind` its Spark type, `error` says why there is none."""

    text: str
    kind: DataType | None
    required: bool = False
    error: str | None = None


class JsonConverter(Converter):
    """JSON; see the module's text for what it does with types."""

    java_class = "org.apache.kafka.connect.json.JsonConverter"
    config = (
        ConfigDef(CONVERTER_CONFIG)
        .define(
            "schemas.enable",
            bool,
            True,
            doc="Include schemas within each of the serialized values and keys.",
            group="Schemas",
            importance="HIGH",
        )
        .define(
            "schemas.cache.size",
            int,
            1000,
            doc="Kept for compatibility: schemas are compared per batch here.",
            group="Schemas",
            importance="HIGH",
        )
        .define(
            "decimal.format",
            str,
            "BASE64",
            doc="How decimals are written: BASE64 of the unscaled bytes, or NUMERIC.",
            group="Serialization",
            importance="LOW",
            validator=one_of("BASE64", "NUMERIC", ignore_case=True),
        )
        .define(
            "replace.null.with.default",
            bool,
            True,
            doc="Whether null fields that have a default in the schema get it.",
            group="Serialization",
            importance="LOW",
        )
    )

    @property
    def schemas_enabled(self) -> bool:
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
        text = json_text(values, base64_decimals=self._base64_decimals)
        if self.schemas_enabled:
            schema = connect_schema.schema_of(values.type, optional=False)
            head = as_jackson(json.dumps(schema, separators=(",", ":"), ensure_ascii=False))
            text = enclosed(f'{{"schema":{head},"payload":', text, "}")
        return text.cast(pa.binary())

    def reads_arrow(self) -> bool:
        """JSON is read by Spark."""
        return False

    def from_bytes(self, column: Column, target: DataType | None) -> Column:
        """Without schemas: the document as `target`, or as text. Use `from_envelope` with schemas."""
        from pyspark.sql import functions as f
        from pyspark.sql.types import StringType

        if self.schemas_enabled:
            raise ConversionError("With schemas.enable=true a record's type is in the record: use from_envelope.")
        kind, text = target or StringType(), column.cast("string")
        reader = JsonReader(base64_decimals=self._base64_decimals, use_defaults=False)

        def outcome(parsed: Column) -> Column:
            value, error = _outcome(reader, parsed, parsed["v"], kind, text)
            value = _as_text(value, text) if target is None else value
            return f.struct(value.alias("value"), error.alias("error"))

        return bound(reader.parse(text, kind), outcome)

    def try_from_bytes_arrow(self, records: pa.Array, target: DataType | None) -> Decoded | None:
        """Documents that are all well, as structs of plain fields; with schemas all of the same one. Or as text."""
        if target is None and not self.schemas_enabled:
            return read_documents(records) if self.infers_fields else read_text(records)
        if self.schemas_enabled:
            split = split_envelopes(records)
            if split is None:
                return None
            schema = self.record_schema(split[0])
            records, target = split[1], None if schema.error else schema.kind
        read = read_json(records, target)
        return None if read is None else Decoded.of(read)

    def schema_of_record(self, record: bytes) -> RecordSchema | None:
        """Schema of a record with an envelope, looked up in the worker; None when the record has none."""
        try:
            text = record.decode("utf-8")
            first = _SCHEMA_FIRST.match(text)
            if first is not None:
                _, end = json.JSONDecoder().raw_decode(text, first.end())
                return self.record_schema(text[first.end() : end])
            document = json.loads(text)
            return self.record_schema(json.dumps(document["schema"], separators=(",", ":"), ensure_ascii=False))
        except (ValueError, KeyError, TypeError):
            return None

    def record_schema(self, text: str) -> RecordSchema:
        """Spark type of a schema's text."""
        schema = json.loads(text)
        if schema is None:
            return RecordSchema(text, None)
        require("JsonConverter with schemas.enable=true", "spark", "pyspark")
        try:
            required = not connect_schema.is_optional(schema) if isinstance(schema, dict) else False
            return RecordSchema(text, connect_schema.type_of(schema), required)
        except ConversionError as error:
            return RecordSchema(text, None, error=error.message)

    def from_envelope(self, column: Column, schema: RecordSchema, target: DataType | None) -> Column:
        """Records of one schema: STRUCT<value, error STRING, other STRING>.

        `other` is the schema's text of a record that carries another one; `value` means something only where both
        `error` and `other` are null.
        """
        from pyspark.sql import functions as f
        from pyspark.sql.types import StringType, StructType

        kind = schema.kind or target or StringType()
        if schema.error is not None:
            kind = StringType()
        envelope = StructType().add("schema", StringType()).add("payload", kind)
        text = column.cast("string")
        reader = JsonReader(base64_decimals=True, use_defaults=bool(self.settings["replace.null.with.default"]))

        def outcome(parsed: Column) -> Column:
            found = f.coalesce(parsed["v"]["schema"], f.when(text.rlike(_NO_SCHEMA), f.lit("null")))
            other = f.when(found != schema.text, found)
            payload = parsed["v"]["payload"]
            good, bad = _outcome(reader, parsed, payload, kind, text)
            missing = f.when(payload.isNull(), f.lit("the value is required, and missing or null"))
            error = f.coalesce(
                bad,
                f.when(text.isNotNull() & found.isNull(), f.lit(NO_ENVELOPE)),
                f.when(text.isNotNull(), f.lit(schema.error)) if schema.error else f.lit(None),
                f.when(text.isNotNull(), missing) if schema.required else f.lit(None),
            ).cast("string")
            if schema.kind is None and target is None:
                good = _as_text(good, f.regexp_extract(text, _BARE_PAYLOAD, 1))
            return f.struct(good.alias("value"), f.when(other.isNull(), error).alias("error"), other.alias("other"))

        return bound(reader.parse(text, envelope), outcome)


def _outcome(reader: JsonReader, parsed: Column, value: Column, kind: DataType, text: Column) -> tuple[Column, Column]:
    """Value and error of what was parsed as `kind`."""
    from pyspark.sql import functions as f

    error, problem = f.when(reader.broken(parsed, text), f.lit(NOT_JSON)), reader.problem(value, kind, text)
    return reader.value(value, kind), error if problem is None else f.coalesce(error, problem)


def _as_text(parsed: Column, document: Column) -> Column:
    """A document without a type: the content of a JSON string, the exact text of anything else, null for null.

    The parser's own text would have long numbers rounded.
    """
    from pyspark.sql import functions as f

    exact = f.btrim(document, f.lit(" \t\r\n"))
    return f.when(parsed.isNotNull(), f.when(exact.startswith('"'), parsed).otherwise(exact))
