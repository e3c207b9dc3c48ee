"""Changes of one table as Debezium's events, in Arrow columns.

Pure. Envelope, source block and names of schemas: Debezium 3.6, SchemaFactory, PostgresSourceInfoStructMaker.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from connectx.connectors.postgres.cdc.values import ColumnType, debezium_schema
from connectx.data.connect_schema import DEFAULT, SchemaName
from connectx.protocol.pgoutput import UNCHANGED, Row

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
_MARKERS: Final = "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental"
_ENVELOPE_VERSION: Final = 2
HEARTBEAT_SCHEMAS: Final = {
    "key": debezium_schema("connector.common.ServerNameKey"),
    "value": debezium_schema("connector.common.Heartbeat"),
}
"""Names of the schemas of a heartbeat's key and value."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    name: str
    type: ColumnType
    is_nullable: bool


@dataclass(frozen=True, slots=True)
class TableShape:
    """A table at a time: its columns, and which of them, by number, are the primary key."""

    schema: str
    name: str
    columns: tuple[Column, ...]
    key: tuple[int, ...]

    @property
    def full(self) -> str:
        """schema.table"""
        return f"{self.schema}.{self.name}"


@dataclass(frozen=True, slots=True)
class Origin:
    """What the `source` block of all events says: version of the connector, topic.prefix, database."""

    version: str
    server: str
    database: str


@dataclass(slots=True)
class Changes:
    """Changes of a table in order, one entry of each list for each event.

    Attributes:
        rows_before, rows_after: texts of the columns; None where an event has no such row.
        keyed: the row that gives the record's key; None: no key.
        partial: `rows_before` has only the key.
        tombstones: numbers of events that a record without a value follows.
        commits: end of the commit before the event's transaction, if known.
    """

    shape: TableShape
    ops: list[str] = field(default_factory=list)
    rows_before: list[Row | None] = field(default_factory=list)
    rows_after: list[Row | None] = field(default_factory=list)
    keyed: list[Row | None] = field(default_factory=list)
    partial: list[bool] = field(default_factory=list)
    lsns: list[int] = field(default_factory=list)
    commits: list[int | None] = field(default_factory=list)
    xids: list[int | None] = field(default_factory=list)
    moments_us: list[int] = field(default_factory=list)
    snapshot: list[str] = field(default_factory=list)
    tombstones: list[int] = field(default_factory=list)

    def add(
        self,
        op: str,
        before: Row | None,
        after: Row | None,
        lsn: int,
        transaction: tuple[int | None, int | None, int],
        *,
        is_partial: bool = False,
        snapshot: str = STREAMED,
    ) -> None:
        """Add an event; `transaction` is the end of the commit before it, its id, its commit time (us since 1970)."""
        self.ops.append(op)
        self.rows_before.append(before)
        self.rows_after.append(after)
        self.keyed.append(before if op == DELETE else after)
        self.partial.append(is_partial)
        self.lsns.append(lsn)
        commit, xid, moment_us = transaction
        self.commits.append(commit)
        self.xids.append(xid)
        self.moments_us.append(moment_us)
        self.snapshot.append(snapshot)

    def add_tombstone(self) -> None:
        """Let a record without a value follow the last event."""
        self.tombstones.append(len(self.ops) - 1)

    def table(self, topic: str, origin: Origin, now_us: int) -> pa.Table:
        """The events as columns `key`, `value` and `topic` of a slice; `now_us` is the time of processing."""
        count = len(self.ops)
        row = SchemaName(f"{topic}.Value")
        names = {"before": row, "after": row, "source": _SOURCE_SCHEMA, "transaction": _TRANSACTION_SCHEMA}
        values = {
            "before": self._rows(self.rows_before, self.partial),
            "after": self._rows(self.rows_after, None),
            "source": self._source(origin),
            "transaction": pa.nulls(count, _TRANSACTION),
            "op": pa.array(self.ops, pa.string()),
            **_times(pa.array([now_us] * count, pa.int64())),
        }
        fields = [pa.field(name, array.type, name not in ("source", "op")) for name, array in values.items()]
        fields = [names[field.name].on(field) if field.name in names else field for field in fields]
        value = pa.StructArray.from_arrays(list(values.values()), fields=fields)
        key = self._keys()
        if self.tombstones:
            after = set(self.tombstones)
            order = [row for number in range(count) for row in ((number, None) if number in after else (number,))]
            value = value.take(pa.array(order, pa.int64()))
            if key is not None:
                keyed = [row for number in range(count) for row in ((number,) * (2 if number in after else 1))]
                key = key.take(pa.array(keyed, pa.int64()))
        columns = {"value": value, "topic": pa.array([topic] * len(value), pa.string())}
        schemas = {"value": SchemaName(f"{topic}.Envelope", _ENVELOPE_VERSION)}
        if key is not None:
            columns, schemas = {"key": key, **columns}, {"key": SchemaName(f"{topic}.Key"), **schemas}
        return named_table(columns, schemas)

    # ------------------------------------------------------------------------------------------------- inner parts

    def _rows(self, rows: Sequence[Row | None], partial: Sequence[bool] | None) -> pa.StructArray:
        columns = self.shape.columns
        fields = [column.type.field(column.name, is_nullable=column.is_nullable) for column in columns]
        missing = [row is None for row in rows]
        if all(missing):
            return pa.nulls(len(rows), pa.struct(fields))
        empty: Row = (None,) * len(columns)
        whole = rows if not any(missing) else [empty if row is None else row for row in rows]
        fills = partial if partial is not None and any(partial) else None
        arrays = []
        for number, (column, values) in enumerate(zip(columns, zip(*whole, strict=True), strict=True)):
            array = column_values(column.type, values)
            if fills is not None and not column.is_nullable and number not in self.shape.key:
                absent = pa.scalar(column.type.absent, column.type.arrow)
                array = pc.if_else(pa.array(fills), absent, array)
            arrays.append(array)
        mask = pa.array(missing) if any(missing) else None
        return pa.StructArray.from_arrays(arrays, fields=fields, mask=mask)

    def _keys(self) -> pa.StructArray | None:
        shape = self.shape
        if not shape.key:
            return None
        missing = [row is None for row in self.keyed]
        rows = [(None,) * len(shape.columns) if row is None else row for row in self.keyed]
        arrays = [column_values(shape.columns[at].type, [row[at] for row in rows]) for at in shape.key]
        fields = [shape.columns[at].type.field(shape.columns[at].name, is_nullable=False) for at in shape.key]
        return pa.StructArray.from_arrays(arrays, fields=fields, mask=pa.array(missing) if any(missing) else None)

    def _source(self, origin: Origin) -> pa.StructArray:
        count = len(self.ops)
        moments = _times(pa.array(self.moments_us, pa.int64()))
        lsns = pa.array(self.lsns, pa.int64())
        before = pc.binary_join_element_wise('"', pa.array(self.commits, pa.int64()).cast(pa.string()), '"', "")
        before = pc.fill_null(before, "null")
        sequence = pc.binary_join_element_wise("[", before, ',"', lsns.cast(pa.string()), '"]', "")

        def same(text: str) -> pa.Array:
            return pa.array([text] * count, pa.string())

        values: dict[str, Any] = {
            "version": same(origin.version),
            "connector": same("postgresql"),
            "name": same(origin.server),
            "ts_ms": moments["ts_ms"],
            "snapshot": pa.array(self.snapshot, pa.string()),
            "db": same(origin.database),
            "sequence": sequence,
            "ts_us": moments["ts_us"],
            "ts_ns": moments["ts_ns"],
            "schema": same(self.shape.schema),
            "table": same(self.shape.name),
            "txId": pa.array(self.xids, pa.int64()),
            "lsn": lsns,
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


def named_table(columns: Mapping[str, pa.Array], schemas: Mapping[str, SchemaName]) -> pa.Table:
    """A table of columns; `schemas` are the names of the schemas of some."""
    fields = [pa.field(name, array.type) for name, array in columns.items()]
    fields = [schemas[field.name].on(field) if field.name in schemas else field for field in fields]
    return pa.Table.from_arrays(list(columns.values()), schema=pa.schema(fields))


def column_values(kind: ColumnType, values: Sequence[Any]) -> pa.Array:
    """A column of the texts (bytes) of a row, None or UNCHANGED."""
    unchanged = [value is UNCHANGED for value in values] if UNCHANGED in values else None
    if unchanged is not None:
        values = [None if value is UNCHANGED else value for value in values]
    array = kind.convert(pa.array(values, pa.binary()).cast(pa.string()))
    if unchanged is None:
        return array
    return pc.if_else(pa.array(unchanged), pa.scalar(kind.unavailable, kind.arrow), array)


def _times(micros: pa.Array) -> dict[str, pa.Array]:
    return {"ts_ms": pc.divide(micros, 1000), "ts_us": micros, "ts_ns": pc.multiply(micros, 1000)}
