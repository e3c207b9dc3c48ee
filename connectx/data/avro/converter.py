"""Avro with a schema registry. Mirrors Confluent's AvroConverter, on whole columns.

Bytes are in Confluent's wire format. The schema of what is written is made from the Arrow type, registered under the
topic's subject, and kept; each record that is read names its schema. Stricter than Java: what does not fit its type is
an error, and never cut.
"""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from connectx.data.avro.codec import AvroCodec
from connectx.data.avro.schemas import schema_of
from connectx.data.avro.types import AvroType, parse
from connectx.data.connect_schema import SchemaName
from connectx.data.registry.client import KnownSchema
from connectx.data.registry.converter import OwnSchema, RegistryConverter
from connectx.data.registry.keys import REGISTRY_CONFIG
from connectx.model.configdef import ConfigDef
from connectx.model.validators import one_of


class AvroConverter(RegistryConverter):
    """Avro in Confluent's wire format; see the module's text.

    Raises:
        MissingExtraError: the packages of the extra `avro` are not installed.
    """

    java_class = "io.confluent.connect.avro.AvroConverter"
    kind = "AVRO"
    label = "Avro"
    requires = (("avro", "fastavro"), ("avro", "pyruhvro"))
    config = (
        ConfigDef(REGISTRY_CONFIG)
        .group("Avro")
        .define(
            "enhanced.avro.schema.support",
            bool,
            False,
            doc="Whether branches of a union of several types are named in full, with their namespaces.",
        )
        .define(
            "connect.meta.data",
            bool,
            True,
            doc="Whether schemas carry Connect's properties, such as connect.name.",
            importance="LOW",
        )
        .define(
            "scrub.invalid.names",
            bool,
            False,
            doc="Whether names that Avro does not take are made valid. Otherwise they are an error.",
        )
        .define(
            "record.name",
            str,
            "",
            doc="Full name of records whose schema has none, such as com.acme.Order. Empty: Connect's ConnectDefault.",
            importance="LOW",
        )
        .define(
            "avro.library",
            str,
            "pyruhvro",
            doc="What reads and writes records: pyruhvro, native code for whole columns (fastavro for other types), "
            "or fastavro alone, record by record.",
            importance="LOW",
            validator=one_of("pyruhvro", "fastavro"),
        )
    )

    def own_schema(self, kind: pa.DataType, name: SchemaName) -> OwnSchema:
        """The schema that AvroData gives to the type.

        Raises:
            ConversionError: Avro has no such type, or does not take a name.
        """
        settings = self.settings
        text = schema_of(kind, name, scrub=settings["scrub.invalid.names"])
        text = text if settings["connect.meta.data"] else _without_metadata(text)
        return OwnSchema(text, self._parsed(text, ()).name)

    def codec(self, known: KnownSchema, record: str = "") -> AvroCodec:
        parsed = self._parsed(known.text, [text for _, text in known.references])
        return AvroCodec(parsed, native=self.settings["avro.library"] == "pyruhvro")

    def _parsed(self, text: str, references: Any) -> AvroType:
        return parse(text, references, full_labels=self.settings["enhanced.avro.schema.support"])


def _without_metadata(text: str) -> str:
    """A schema without the properties that only Connect reads, but with the one that marks a map."""

    def plain(part: Any) -> Any:
        if isinstance(part, list):
            return [plain(one) for one in part]
        if not isinstance(part, dict):
            return part
        made = {
            key: value if key == "default" else plain(value)
            for key, value in part.items()
            if not key.startswith("connect.") or key == "connect.internal.type"
        }
        return made["type"] if made.keys() == {"type"} else made

    return json.dumps(plain(json.loads(text)), separators=(",", ":"), ensure_ascii=False)
