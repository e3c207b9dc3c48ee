"""Base of converters whose records name a schema of a registry, in Confluent's wire format.

The schema of what is written is made from the Arrow type, registered under the topic's subject, and kept. Each record
that is read names its schema. A format adds a codec of one schema, and the schema of an Arrow type.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Protocol, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connectx.data.arrays import where_valid
from connectx.data.chunks import rows_where
from connectx.data.connect_schema import NO_NAME, ColumnSchema, SchemaName, with_defaults
from connectx.data.converter import Converter, Decoded
from connectx.data.parts import joined
from connectx.data.registry.client import KnownSchema, RegistryClient
from connectx.data.registry.keys import check_supported, strategy_of, subject_of
from connectx.errors.plugins import ConversionError, SchemaNotFoundError
from connectx.extras import Extra, require
from connectx.values import Value

_HEADER_BYTES: Final = 5
_MAGIC: Final = b"\0"


class Framed(Value):
    """Records of one header: their row numbers, their bodies, and the schema's id or why there is none."""

    rows: pa.Array
    schema_id: int | None
    error: str
    bodies: pa.Array


def framed(body: pa.Array, schema_id: int) -> pa.Array:
    """Bodies (binary) with the header of a schema; null stays null."""
    return pc.binary_join_element_wise(pa.scalar(header(schema_id)), body, b"", null_handling="emit_null")


def header(schema_id: int) -> bytes:
    """The five bytes before a body."""
    return _MAGIC + schema_id.to_bytes(4, "big")


def unframed(records: pa.Array) -> Iterator[Framed]:
    """Records (binary) by the schema that their headers name. Null records are in no part."""
    present = records.is_valid()
    rows = None if records.null_count == 0 else rows_where(present)
    valid = records if rows is None else records.take(rows)
    heads = pc.binary_slice(valid, 0, _HEADER_BYTES).dictionary_encode()
    numbers = pa.array(np.arange(len(records), dtype=np.uint64)) if rows is None else rows
    distinct: list[bytes] = heads.dictionary.to_pylist()
    for index, head in enumerate(distinct):
        there = None if len(distinct) == 1 else rows_where(pc.equal(heads.indices, index))
        of_head = numbers if there is None else numbers.take(there)
        whole = valid if there is None else valid.take(there)
        error = _why_not(head)
        bodies = pc.binary_slice(whole, _HEADER_BYTES, np.iinfo(np.int32).max) if not error else whole
        yield Framed(of_head, None if error else int.from_bytes(head[1:], "big"), error, bodies)


def _why_not(head: bytes) -> str:
    if len(head) < _HEADER_BYTES:
        return f"The record has {len(head)} bytes, fewer than the 5 of Confluent's header."
    if head[:1] != _MAGIC:
        return (
            f"The record begins with byte {head[0]}, not with the 0 of Confluent's header: it was written by another "
            "converter, or its schema id is in a record header, which is not supported."
        )
    return ""


class Codec(Protocol):
    """Reads and writes bodies, without header, of one schema."""

    def read(self, bodies: pa.Array) -> Decoded:
        """Values of bodies (binary); one that cannot be read has an error."""
        ...

    def write(self, values: pa.Array) -> pa.Array:
        """Bodies (binary) of values without null.

        Raises:
            ConversionError: a type or value that the schema does not take.
        """
        ...


class OwnSchema(Value):
    """The schema of an Arrow type: its text, and the full name of its record, empty where it is not a record."""

    text: str
    record: str


@dataclass(slots=True)
class _Kept:
    """What a converter has found out: codecs by id, the schema of each name's last type, and codecs by subject.

    Executors begin without it.
    """

    codecs: dict[int, Codec | str] = field(default_factory=dict)
    own: dict[SchemaName, tuple[pa.DataType, OwnSchema]] = field(default_factory=dict)
    written: dict[tuple[str, OwnSchema], tuple[int, Codec]] = field(default_factory=dict)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), ()


class RegistryConverter(Converter, ABC):
    """Base of converters with a schema registry.

    `kind` is the registry's name of the format, `label` the name in messages, `requires` pairs an extra and a module.

    Raises:
        MissingExtraError: the packages of the extra are not installed.
        ConfigError: a setting is wrong.
    """

    by_topic = True
    kind: ClassVar[str]
    label: ClassVar[str]
    requires: ClassVar[tuple[tuple[Extra, str], ...]]

    def __init__(self, settings: Mapping[str, str] | None = None, *, is_key: bool = False) -> None:
        super().__init__(settings, is_key=is_key)
        check_supported(settings or {})
        for extra, module in self.requires:
            require(self.name, extra, module)
        self._registry = RegistryClient(self.settings, self.name, "key" if is_key else "value")
        self._kept = _Kept()
        self._topic = ""
        self._schema = NO_NAME

    @abstractmethod
    def own_schema(self, kind: pa.DataType, name: SchemaName) -> OwnSchema:
        """The schema of values of an Arrow type; `name` is that of the column, otherwise `record.name`.

        Raises:
            ConversionError: the format has no such type.
        """

    @abstractmethod
    def codec(self, known: KnownSchema, record: str = "") -> Codec:
        """A codec of a registered schema; `record` is what is written, in a format whose schemas have several.

        Raises:
            ConversionError: no Arrow type can hold its values.
        """

    def for_topic(self, topic: str) -> Self:
        """The same converter, for records of a topic."""
        made = copy.copy(self)
        made._topic = topic
        return made

    def with_schema(self, schema: ColumnSchema) -> Self:
        """The same converter, with the schema's name in place of `record.name`."""
        made = copy.copy(self)
        made._schema = schema.name
        return made

    def to_bytes_arrow(self, values: pa.Array) -> pa.Array:
        """Header and body of each value.

        Raises:
            ConversionError: a type or value that the format, or the subject's schema, does not take.
            SchemaIncompatibleError: the registry refuses the schema.
            RegistryUnavailableError: the registry cannot be asked now.
        """
        if pa.types.is_null(values.type):
            return values.cast(pa.binary())
        schema_id, codec = self._writer(values.type)
        if not self.settings["ignore.default.for.nullables"]:
            values = with_defaults(values)
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
            nulls = rows_where(records.is_null())
            parts.append((nulls, Decoded.of(pa.nulls(len(nulls)))))
        return joined(parts)

    def _read(self, part: Framed) -> Decoded:
        codec: Codec | str = part.error
        if part.schema_id is not None:
            codec = self._kept.codecs.get(part.schema_id) or self._reader(part.schema_id)
        if isinstance(codec, str):
            return Decoded(pa.nulls(len(part.rows)), pa.array([codec] * len(part.rows), pa.string()))
        return codec.read(part.bodies)

    def _reader(self, schema_id: int) -> Codec | str:
        """A codec, or why records of this schema cannot be read."""
        try:
            found: Codec | str = self._checked_codec(self._registry.schema(schema_id))
        except SchemaNotFoundError as error:
            return error.message  # asked for again: a deleted schema may come back
        except ConversionError as error:
            found = error.message
        self._kept.codecs[schema_id] = found
        return found

    def _checked_codec(self, known: KnownSchema, record: str = "") -> Codec:
        if known.kind != self.kind:
            raise ConversionError(f"The schema {known.schema_id} is {known.kind}, not {self.label}.")
        return self.codec(known, record)

    def _writer(self, kind: pa.DataType) -> tuple[int, Codec]:
        """Id and codec for values of a type."""
        if not self._topic:
            raise ConversionError(f"{self.name} writes keys and values of records only, no headers.")
        settings = self.settings
        own = self._own_schema(kind)
        strategy = strategy_of(settings, is_key=self.is_key)
        if strategy != "TopicNameStrategy" and not own.record:
            side = "key" if self.is_key else "value"
            raise ConversionError(
                f"{side}.subject.name.strategy={strategy} needs records with a name, and the {side} is {kind}.",
                next_step=f"Use TopicNameStrategy, or make the {side} a struct and set {side}.converter.record.name.",
            )
        subject = subject_of(strategy, self._topic, own.record, is_key=self.is_key)
        if settings["use.latest.version"] and not settings["auto.register.schemas"]:
            latest = self._registry.latest(subject)
            return latest.schema_id, self._made(subject, latest, own.record)[1]
        if (subject, own) not in self._kept.written:
            find = self._registry.register if settings["auto.register.schemas"] else self._registry.lookup
            schema_id = find(subject, self.kind, own.text, normalize=settings["normalize.schemas"])
            self._made(subject, KnownSchema(schema_id, self.kind, own.text), own.record)
        return self._kept.written[subject, own]

    def _own_schema(self, kind: pa.DataType) -> OwnSchema:
        """The schema of the last type with this name is kept: batches of a source have the same."""
        record = SchemaName(self.settings["record.name"]) if pa.types.is_struct(kind) else NO_NAME
        name = self._schema.over(record)
        last, own = self._kept.own.get(name, (None, None))
        if own is None or not kind.equals(last, check_metadata=True):
            own = self.own_schema(kind, name)
            self._kept.own[name] = kind, own
        return own

    def _made(self, subject: str, known: KnownSchema, record: str) -> tuple[int, Codec]:
        key, written = (subject, OwnSchema(known.text, record)), self._kept.written
        if key not in written:
            written[key] = known.schema_id, self._checked_codec(known, record)
        return written[key]
