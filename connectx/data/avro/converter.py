"""Avro with a schema registry. Mirrors Confluent's AvroConverter, on whole columns.

Bytes are in Confluent's wire format. The schema of what is written is made from the Arrow type, registered under the
topic's subject, and kept; each record that is read names its schema. Stricter than Java: what does not fit its type is
an error, and never cut.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from connectx.data.arrays import where_valid
from connectx.data.avro.codec import AvroCodec
from connectx.data.avro.schemas import schema_of
from connectx.data.avro.types import AvroType, parse
from connectx.data.converter import Converter, Decoded
from connectx.data.parts import joined
from connectx.data.registry.client import RegistryClient
from connectx.data.registry.framing import Framed, framed, unframed
from connectx.data.registry.keys import REGISTRY_CONFIG, check_supported, strategy_of, subject_of
from connectx.errors import ConversionError, SchemaNotFoundError
from connectx.extras import require
from connectx.model.configdef import ConfigDef

_KIND: Final = "AVRO"


class AvroConverter(Converter):
    """Avro in Confluent's wire format; see the module's text.

    Raises:
        MissingExtraError: the packages of the extra `avro` are not installed.
    """

    java_class = "io.confluent.connect.avro.AvroConverter"
    by_topic = True
    config = (
        ConfigDef(REGISTRY_CONFIG)
        .define(
            "enhanced.avro.schema.support",
            bool,
            False,
            doc="Whether branches of a union of several types are named in full, with their namespaces.",
            group="Avro",
            importance="MEDIUM",
        )
        .define(
            "connect.meta.data",
            bool,
            True,
            doc="Whether schemas carry Connect's properties, such as connect.name.",
            group="Avro",
            importance="LOW",
        )
        .define(
            "scrub.invalid.names",
            bool,
            False,
            doc="Whether names that Avro does not take are made valid. Otherwise they are an error.",
            group="Avro",
            importance="MEDIUM",
        )
        .define(
            "record.name",
            str,
            "",
            doc="Full name of the records that are written, such as com.acme.Order. Empty: Connect's ConnectDefault.",
            group="Avro",
            importance="LOW",
        )
    )

    def __init__(self, settings: Mapping[str, str] | None = None, *, is_key: bool = False) -> None:
        super().__init__(settings, is_key=is_key)
        check_supported(settings or {})
        require(self.name, "avro", "fastavro", "pyruhvro")
        self._registry = RegistryClient(self.settings, self.name, "key" if is_key else "value")
        self._codecs: dict[int, AvroCodec | str] = {}
        self._written: dict[tuple[str, str], tuple[int, AvroCodec]] = {}
        self._topic = ""

    def for_topic(self, topic: str) -> AvroConverter:
        """The same converter, for records of a topic."""
        made = copy.copy(self)
        made._topic = topic
        return made

    def to_bytes_arrow(self, values: pa.Array) -> pa.Array:
        """Header and Avro body of each value.

        Raises:
            ConversionError: a type or value that Avro, or the subject's schema, does not take.
            SchemaIncompatibleError: the registry refuses the schema.
            RegistryUnavailableError: the registry cannot be asked now.
        """
        if pa.types.is_null(values.type):
            return values.cast(pa.binary())
        schema_id, codec = self._writer(values.type)
        if values.null_count == 0:
            return framed(codec.write(values), schema_id)
        present = values.is_valid()
        bodies = codec.write(values.filter(present))
        places = pc.subtract(pc.cumulative_sum(present.cast(pa.int64())), 1)
        return framed(bodies.take(where_valid(values, places)), schema_id)

    def from_bytes_arrow(self, records: pa.Array, target: pa.DataType | None = None) -> Decoded:
        """Values of the schemas that records name. `target` is not needed.

        Raises:
            ConversionError: no one type holds the values of all schemas.
            RegistryUnavailableError: the registry cannot be asked now.
        """
        if records.null_count == len(records):
            return Decoded.of(pa.nulls(len(records)))
        parts = [(part.rows, self._read(part)) for part in unframed(records)]
        if records.null_count:
            nulls = pc.indices_nonzero(records.is_null())
            parts.append((nulls, Decoded.of(pa.nulls(len(nulls)))))
        return joined(parts)

    def _read(self, part: Framed) -> Decoded:
        codec: AvroCodec | str = part.error
        if part.schema_id is not None:
            codec = self._codecs.get(part.schema_id) or self._reader(part.schema_id)
        if isinstance(codec, str):
            return Decoded(pa.nulls(len(part.rows)), pa.array([codec] * len(part.rows), pa.string()))
        return codec.read(part.body_list())

    def _reader(self, schema_id: int) -> AvroCodec | str:
        """A codec, or why records of this schema cannot be read."""
        try:
            known = self._registry.schema(schema_id)
            if known.kind != _KIND:
                raise ConversionError(f"The schema {schema_id} is {known.kind}, not Avro.")
            found: AvroCodec | str = AvroCodec(self._parsed(known.text, [text for _, text in known.references]))
        except SchemaNotFoundError as error:
            return error.message  # asked for again: a deleted schema may come back
        except ConversionError as error:
            found = error.message
        self._codecs[schema_id] = found
        return found

    def _writer(self, kind: pa.DataType) -> tuple[int, AvroCodec]:
        """Id and codec for values of a type."""
        if not self._topic:
            raise ConversionError(f"{self.name} writes keys and values of records only, no headers.")
        settings = self.settings
        text = schema_of(kind, name=settings["record.name"], scrub=settings["scrub.invalid.names"])
        text = text if settings["connect.meta.data"] else _without_metadata(text)
        own = self._parsed(text, ())
        strategy = strategy_of(settings, is_key=self.is_key)
        if strategy != "TopicNameStrategy" and not own.name:
            side = "key" if self.is_key else "value"
            raise ConversionError(
                f"{side}.subject.name.strategy={strategy} needs records, and the {side} is {own.kind}.",
                next_step=f"Use TopicNameStrategy, or make the {side} a struct.",
            )
        subject = subject_of(strategy, self._topic, own.name, is_key=self.is_key)
        if settings["use.latest.version"] and not settings["auto.register.schemas"]:
            latest = self._registry.latest(subject)
            avro = self._parsed(latest.text, [text for _, text in latest.references])
            return latest.schema_id, self._kept(subject, latest.text, latest.schema_id, avro)
        if (subject, text) not in self._written:
            find = self._registry.register if settings["auto.register.schemas"] else self._registry.lookup
            schema_id = find(subject, _KIND, text, normalize=settings["normalize.schemas"])
            self._kept(subject, text, schema_id, own)
        return self._written[subject, text]

    def _kept(self, subject: str, text: str, schema_id: int, avro: AvroType) -> AvroCodec:
        if (subject, text) not in self._written:
            self._written[subject, text] = schema_id, AvroCodec(avro)
        return self._written[subject, text][1]

    def _parsed(self, text: str, references: Any) -> AvroType:
        return parse(text, references, full_labels=self.settings["enhanced.avro.schema.support"])


def _without_metadata(text: str) -> str:
    """A schema without the properties that only Connect reads."""

    def plain(part: Any) -> Any:
        if isinstance(part, list):
            return [plain(one) for one in part]
        if not isinstance(part, dict):
            return part
        made = {key: value if key == "default" else plain(value) for key, value in part.items()
                if not key.startswith("connect.")}  # fmt: skip
        return made["type"] if made.keys() == {"type"} else made

    return json.dumps(plain(json.loads(text)), separators=(",", ":"), ensure_ascii=False)
