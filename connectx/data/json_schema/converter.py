"""JSON with a JSON Schema in a registry. Mirrors Confluent's JsonSchemaConverter, on whole columns.

A body is the document, in UTF-8, as Kafka Connect's JsonConverter writes it without schemas. Stricter than Java: what
does not fit its type is an error, and never cut, and so is a required property that a document lacks.
"""

from __future__ import annotations

import pyarrow as pa

from connectx.data.connect_schema import SchemaName
from connectx.data.json_schema.codec import JsonSchemaCodec, Validator
from connectx.data.json_schema.nodes import parse
from connectx.data.json_schema.schemas import schema_of
from connectx.data.json_schema.types import type_of
from connectx.data.registry.client import KnownSchema
from connectx.data.registry.converter import OwnSchema, RegistryConverter
from connectx.data.registry.keys import REGISTRY_CONFIG
from connectx.model.configdef import ConfigDef
from connectx.model.validators import one_of


class JsonSchemaConverter(RegistryConverter):
    """JSON with a JSON Schema in Confluent's wire format; see the module's text.

    Raises:
        MissingExtraError: the packages of the extra `jsonschema` are not installed.
    """

    java_class = "io.confluent.connect.json.JsonSchemaConverter"
    kind = "JSON"
    label = "JSON Schema"
    requires = (("jsonschema", "referencing"), ("jsonschema", "jsonschema_rs"))
    config = (
        ConfigDef(REGISTRY_CONFIG)
        .group("JSON Schema")
        .define(
            "json.fail.invalid.schema",
            bool,
            False,
            doc="Whether every document is validated against its schema, when it is written and when it is read.",
        )
        .define(
            "decimal.format",
            str,
            "BASE64",
            doc="How decimals are written: BASE64 of the unscaled bytes, or NUMERIC. Both are read.",
            importance="LOW",
            validator=one_of("BASE64", "NUMERIC", ignore_case=True),
        )
        .define(
            "object.additional.properties",
            bool,
            True,
            doc="Whether schemas that are made allow further properties in objects.",
        )
        .define(
            "generalized.sum.type.support",
            bool,
            False,
            doc="Whether the fields of a union are named connect_union_field_0 instead of by Confluent's older names.",
        )
        .define(
            "flatten.singleton.unions",
            bool,
            True,
            doc="Whether a union of one type is read as that type.",
            importance="LOW",
        )
        .define(
            "record.name",
            str,
            "",
            doc="Title of structs whose schema has no name, such as com.acme.Order: the name of RecordNameStrategy.",
            importance="LOW",
        )
    )

    @property
    def _numeric_decimals(self) -> bool:
        return str(self.settings["decimal.format"]).upper() == "NUMERIC"

    def own_schema(self, kind: pa.DataType, name: SchemaName) -> OwnSchema:
        """The schema that JsonSchemaData gives to the type.

        Raises:
            ConversionError: Connect has no such type.
        """
        is_open = self.settings["object.additional.properties"]
        text = schema_of(kind, name, numeric_decimals=self._numeric_decimals, is_open=is_open)
        return OwnSchema(text, name.name if pa.types.is_struct(kind) else "")

    def codec(self, known: KnownSchema, record: str = "") -> JsonSchemaCodec:
        settings = self.settings
        json_type = type_of(
            parse(known.text, known.references),
            generalized=settings["generalized.sum.type.support"],
            flatten=settings["flatten.singleton.unions"],
        )
        validator = Validator(known.text, known.references) if settings["json.fail.invalid.schema"] else None
        return JsonSchemaCodec(json_type, validator, base64_decimals=not self._numeric_decimals)
