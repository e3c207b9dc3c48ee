"""Protobuf with a schema registry. Mirrors Confluent's ProtobufConverter, on whole columns.

Stricter than Java: what does not fit its type is an error, and never cut.
"""

from __future__ import annotations

import pyarrow as pa

from connectx.data.connect_schema import SchemaName
from connectx.data.protobuf.codec import ProtobufCodec
from connectx.data.protobuf.pools import descriptor_of
from connectx.data.protobuf.schemas import schema_of
from connectx.data.protobuf.types import Options
from connectx.data.registry.client import KnownSchema
from connectx.data.registry.converter import OwnSchema, RegistryConverter
from connectx.data.registry.keys import REGISTRY_CONFIG
from connectx.model.configdef import ConfigDef
from connectx.model.validators import one_of


class ProtobufConverter(RegistryConverter):
    """Protobuf in Confluent's wire format; see the module's text.

    Raises:
        MissingExtraError: the packages of the extra `protobuf` are not installed.
    """

    java_class = "io.confluent.connect.protobuf.ProtobufConverter"
    kind = "PROTOBUF"
    label = "Protobuf"
    requires = (("protobuf", "proto_schema_parser"), ("protobuf", "ptars"))
    config = (
        ConfigDef(REGISTRY_CONFIG)
        .group("Protobuf")
        .define(
            "optional.for.nullables",
            bool,
            False,
            doc="Whether fields that may be null are written as optional. Otherwise null is read as 0 or empty.",
        )
        .define(
            "wrapper.for.nullables",
            bool,
            False,
            doc="Whether fields that may be null are written as wrappers, and wrappers are read as single values.",
        )
        .define(
            "wrapper.for.raw.primitives",
            bool,
            True,
            doc="Whether a wrapper as the whole value is read as a single value.",
        )
        .define("int.for.enums", bool, False, doc="Whether enums are read as numbers instead of text.")
        .define(
            "generate.index.for.unions",
            bool,
            True,
            doc="Whether the name of a union ends with an underscore and the index of its oneof.",
            importance="LOW",
        )
        .define(
            "flatten.unions",
            bool,
            False,
            doc="Whether members of a oneof are fields of their message instead of a struct.",
            importance="LOW",
        )
        .define(
            "enhanced.protobuf.schema.support",
            bool,
            False,
            doc="Whether schemas that are read have the full names of messages and enums, with their packages.",
        )
        .define(
            "scrub.invalid.names",
            bool,
            False,
            doc="Whether names that Protobuf does not take are made valid. Otherwise they are an error.",
        )
        .define(
            "record.name",
            str,
            "",
            doc="Full name of the message of structs whose schema has no name. Empty: ConnectDefault1.",
            importance="LOW",
        )
        .define(
            "protobuf.library",
            str,
            "ptars",
            doc="What reads and writes records: ptars, native code for whole columns, or "
            "google.protobuf, record by record.",
            importance="LOW",
            validator=one_of("ptars", "google.protobuf"),
        )
    )

    def own_schema(self, kind: pa.DataType, name: SchemaName) -> OwnSchema:
        """The schema that ProtobufData gives to the type.

        Raises:
            ConversionError: Protobuf has no such type, or does not take a name.
        """
        settings = self.settings
        text, record = schema_of(
            kind,
            name,
            optional=settings["optional.for.nullables"],
            wrapped=settings["wrapper.for.nullables"],
            scrub=settings["scrub.invalid.names"],
        )
        return OwnSchema(text, record)

    def codec(self, known: KnownSchema, record: str = "") -> ProtobufCodec:
        settings = self.settings
        options = Options(
            int_for_enums=settings["int.for.enums"],
            wrapper_for_nullables=settings["wrapper.for.nullables"],
            flatten_unions=settings["flatten.unions"],
            index_for_unions=settings["generate.index.for.unions"],
            wrapper_for_raw_primitives=settings["wrapper.for.raw.primitives"],
            full_names=settings["enhanced.protobuf.schema.support"],
        )
        return ProtobufCodec(
            descriptor_of(known.text, known.references),
            options,
            record=record,
            native=settings["protobuf.library"] == "ptars",
        )
