"""Changes of one table as Debezium's events, in Arrow columns.

Pure. Envelope, source block and names of schemas: Debezium 3.6, SchemaFactory, PostgresSourceInfoStructMaker.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connectx.connectors.cdc.values import ColumnType, debezium_schema
from connectx.data.connect_schema import DEFAULT, SchemaName
from connectx.data.headers import HEADERS
from connectx.data.transforms.texts import nested_text

CREATE, UPDATE, DELETE, READ, TRUNCATE = "c", "u", "d", "r", "t"
STREAMED: Final = "false"
"""`source.snapshot` of changes in the stream."""

_TRANSACTION: Final = pa.struct(
    [
        pa.field("id", pa.string(), False),
        pa.field("total_order", pa.int64(), False),
        pa.field("data_collection_order", pa.int64(), False),
    ]
)
_TRANSACTION_SCHEMA: Final = SchemaName("event.block", 1)
_SOURCE_SCHEMA: Final = debezium_schema("connector.postgresql.Source")
_NEW_KEY, _OLD_KEY = "__debezium.newkey", "__debezium.oldkey"
"""Headers of the delete and of the create that a changed key becomes."""

_NOT_IN_TOPICS: Final = re.compile(r"[^a-zA-Z0-9._-]")
_MOST_TOPIC_CHARACTERS: Final = 249
_MARKERS: Final = "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental"
_ENVELOPE_VERSION: Final = 2
HEARTBEAT_SCHEMAS: Final = {
    "key": debezium_schema("connector.common.ServerNameKey"),
    "value": debezium_schema("connector.common.Heartbeat"),
}
"""Names of the schemas of a heartbeat's key and value."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table; without `is_in_value` only keys have it."""

    name: str
    type: ColumnType
    is_nullable: bool
    is_in_value: bool = True


@dataclass(frozen=True, slots=True)
class TableShape:
    """A table at a time.

    Attributes:
        columns: those that are read.
        key: numbers of the primary key's columns.
        chosen_key: numbers of the columns that message.key.columns names; empty: there are none.
        hidden: numbers, in a message, of the columns that are not read.
    """

    schema: str
    name: str
    columns: tuple[Column, ...]
    key: tuple[int, ...]
    chosen_key: tuple[int, ...] = ()
    hidden: tuple[int, ...] = ()

    @property
    def full(self) -> str:
        """schema.table"""
        return f"{self.schema}.{self.name}"

    @property
    def message_key(self) -> tuple[int, ...]:
        """Numbers of the columns that are the key of records."""
        return self.chosen_key or self.key

    @property
    def width(self) -> int:
        """How many columns a message has."""
        return len(self.columns) + len(self.hidden)

    @property
    def places(self) -> list[int]:
        """Numbers, in a message, of the columns that are read."""
        return [number for number in range(self.width) if number not in self.hidden]


@dataclass(frozen=True, slots=True)
class Origin:
    """Content of the `source` block of all events: version of the connector, topic.prefix, database."""

    version: str
    server: str
    database: str


@dataclass(frozen=True, slots=True)
class RowTexts:
    """Rows before or after changes, one for each event.

    Attributes:
        columns: UTF-8 text of each value (binary); null also where the event has no such row.
        unchanged: by number of a column, a mask of values that PostgreSQL did not send.
        missing: mask of events without such a row; None: all have one.
    """

    columns: Sequence[pa.Array]
    unchanged: Mapping[int, Any] = field(default_factory=dict)
    missing: Any = None


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes of a table in order, as columns with an entry for each event.

    Attributes:
        ops: CREATE, UPDATE, DELETE, READ or TRUNCATE (string).
        before, after: rows; None: no event has one. Events of a changed key have both.
        lsns: int64.
        commits: end of the commit before the event's transaction (int64), null when it is not known.
        xids: transaction ids (int64), null when they are not known.
        moments: commit times (int64), us since 1970.
        snapshot: `source.snapshot` (string).
        partial: mask of events whose row before has only the key; None: none has.
        tombstones: numbers of the events that a record without a value follows.
        moved: mask of the deletes and creates that a changed key became; None: there are none.
    """

    shape: TableShape
    ops: pa.StringArray
    before: RowTexts | None
    after: RowTexts | None
    lsns: pa.Int64Array
    commits: pa.Int64Array
    xids: pa.Int64Array
    moments: pa.Int64Array
    snapshot: pa.StringArray
    partial: Any = None
    tombstones: Any = ()
    moved: Any = None

    def __len__(self) -> int:
        return len(self.ops)

    def table(self, topic: str, origin: Origin, now_us: int) -> pa.Table:
        """The events as columns `key`, `value` and `topic` of a slice; `now_us` is the time of processing."""
        count = len(self)
        row = SchemaName(f"{topic}.Value")
        names = {"before": row, "after": row, "source": _SOURCE_SCHEMA, "transaction": _TRANSACTION_SCHEMA}
        before, after = self._arrays(self.before, self.partial), self._arrays(self.after, None)
        values = {
            "before": self._rows(self.before, before, CREATE),
            "after": self._rows(self.after, after, DELETE),
            "source": self._source(origin),
            "transaction": pa.nulls(count, _TRANSACTION),
            "op": self.ops,
            **_times(pa.repeat(pa.scalar(now_us, pa.int64()), count)),
        }
        fields = [pa.field(name, array.type, name not in ("source", "op")) for name, array in values.items()]
        fields = [names[field.name].on(field) if field.name in names else field for field in fields]
        value = pa.StructArray.from_arrays(list(values.values()), fields=fields)
        key, headers = self._keys(before, after), self._headers(before, after)
        if len(self.tombstones):
            follows = np.zeros(count, bool)
            follows[self.tombstones] = True
            record = np.repeat(np.arange(count), 1 + follows)
            is_tombstone = np.concatenate([[False], record[1:] == record[:-1]])
            value = value.take(pa.array(record, mask=is_tombstone))
            key = None if key is None else key.take(pa.array(record))
            headers = None if headers is None else headers.take(pa.array(record))
        columns = {"value": value, "topic": pa.repeat(topic, len(value))}
        columns |= {} if headers is None else {"headers": headers}
        schemas = {"value": SchemaName(f"{topic}.Envelope", _ENVELOPE_VERSION)}
        if key is not None:
            columns, schemas = {"key": key, **columns}, {"key": SchemaName(f"{topic}.Key"), **schemas}
        return named_table(columns, schemas)

    def _arrays(self, rows: RowTexts | None, partial: Any) -> list[pa.Array]:
        """The columns of rows as values."""
        if rows is None:
            return []
        arrays = []
        for number, (column, texts) in enumerate(zip(self.shape.columns, rows.columns, strict=True)):
            array = column.type.values(texts, f"{self.shape.full}.{column.name}", rows.unchanged.get(number))
            if partial is not None and not column.is_nullable and number not in self.shape.key:
                absent = pa.scalar(column.type.absent, column.type.arrow)
                array = pc.if_else(pa.array(partial), absent, array)
            arrays.append(array)
        return arrays

    def _rows(self, rows: RowTexts | None, arrays: Sequence[pa.Array], moved: str) -> pa.StructArray:
        """Rows as values; halves of a changed key with the operation `moved` have none."""
        columns = [(number, column) for number, column in enumerate(self.shape.columns) if column.is_in_value]
        fields = [column.type.field(column.name, is_nullable=column.is_nullable) for _, column in columns]
        if rows is None:
            return pa.nulls(len(self), pa.struct(fields))
        missing = rows.missing
        if self.moved is not None:
            hidden = self.moved & pc.equal(self.ops, moved).to_numpy(zero_copy_only=False)
            missing = hidden if missing is None else missing | hidden
        if not fields:
            return pa.array([{}] * len(self), pa.struct([]), mask=missing)
        mask = None if missing is None else pa.array(missing)
        return pa.StructArray.from_arrays([arrays[number] for number, _ in columns], fields=fields, mask=mask)

    def _keys(self, before: Sequence[pa.Array], after: Sequence[pa.Array]) -> pa.StructArray | None:
        """The key of the row before a delete, otherwise that of the row after."""
        key, fields = self.shape.message_key, self._key_fields()
        if not key:
            return None
        if not before or not after:
            found = [(before or after)[at] for at in key] if before or after else []
            found = found or [pa.nulls(len(self), one.type) for one in fields]
        else:
            is_delete = pc.equal(self.ops, DELETE)
            found = [pc.if_else(is_delete, before[at], after[at]) for at in key]
        truncates = pc.equal(self.ops, TRUNCATE)
        return pa.StructArray.from_arrays(found, fields=fields, mask=truncates if truncates.true_count else None)

    def _key_fields(self) -> list[pa.Field]:
        columns = [self.shape.columns[at] for at in self.shape.message_key]
        return [column.type.field(column.name, is_nullable=column.is_nullable) for column in columns]

    def _headers(self, before: Sequence[pa.Array], after: Sequence[pa.Array]) -> pa.ListArray | None:
        """The key of the other half of each changed key, as SimpleHeaderConverter writes it; None: no event has one."""
        if self.moved is None:
            return None
        which = pa.array(np.flatnonzero(self.moved))
        is_delete = pc.equal(self.ops, DELETE).take(which)
        others = [pc.if_else(is_delete, after[at].take(which), before[at].take(which)) for at in self.shape.message_key]
        texts = nested_text(pa.StructArray.from_arrays(others, fields=self._key_fields()), "headers")
        names = pc.if_else(is_delete, _NEW_KEY, _OLD_KEY)
        made = pa.StructArray.from_arrays([names, texts.cast(pa.binary())], fields=list(HEADERS.value_type))
        offsets = np.append(0, np.cumsum(self.moved)).astype(np.int32)
        return pa.ListArray.from_arrays(pa.array(offsets), made, type=HEADERS)

    def _source(self, origin: Origin) -> pa.StructArray:
        count = len(self)
        moments = _times(self.moments)
        before = pc.binary_join_element_wise('"', self.commits.cast(pa.string()), '"', "")
        before = pc.fill_null(before, "null")
        sequence = pc.binary_join_element_wise("[", before, ',"', self.lsns.cast(pa.string()), '"]', "")
        values: dict[str, Any] = {
            "version": pa.repeat(origin.version, count),
            "connector": pa.repeat("postgresql", count),
            "name": pa.repeat(origin.server, count),
            "ts_ms": moments["ts_ms"],
            "snapshot": self.snapshot,
            "db": pa.repeat(origin.database, count),
            "sequence": sequence,
            "ts_us": moments["ts_us"],
            "ts_ns": moments["ts_ns"],
            "schema": pa.repeat(self.shape.schema, count),
            "table": pa.repeat(self.shape.name, count),
            "txId": self.xids,
            "lsn": self.lsns,
            "xmin": pa.nulls(count, pa.int64()),
            "origin": pa.nulls(count, pa.string()),
            "origin_lsn": pa.nulls(count, pa.int64()),
        }
        optional = ("snapshot", "sequence", "ts_us", "ts_ns", "txId", "lsn", "xmin", "origin", "origin_lsn")
        fields = [pa.field(name, array.type, name in optional) for name, array in values.items()]
        at = list(values).index("snapshot")
        fields[at] = debezium_schema("data.Enum", allowed=_MARKERS).on(
            fields[at].with_metadata({DEFAULT: json.dumps(STREAMED)})
        )
        return pa.StructArray.from_arrays(list(values.values()), fields=fields)


def topic_name(prefix: str, table: str) -> str:
    """Topic of a table (`schema.table`), with `_` for what a topic cannot have (SchemaTopicNamingStrategy).

    A character beyond 16 bits is two in Java.
    """
    name = _NOT_IN_TOPICS.sub(lambda found: "__" if found[0] > "\uffff" else "_", f"{prefix}.{table}")
    return name[:_MOST_TOPIC_CHARACTERS]


def named_table(columns: Mapping[str, pa.Array], schemas: Mapping[str, SchemaName]) -> pa.Table:
    """A table of columns; `schemas` are the names of the schemas of some."""
    fields = [pa.field(name, array.type) for name, array in columns.items()]
    fields = [schemas[field.name].on(field) if field.name in schemas else field for field in fields]
    return pa.Table.from_arrays(list(columns.values()), schema=pa.schema(fields))


def _times(micros: pa.Array) -> dict[str, pa.Array]:
    return {"ts_ms": pc.divide(micros, 1000), "ts_us": micros, "ts_ns": pc.multiply(micros, 1000)}
