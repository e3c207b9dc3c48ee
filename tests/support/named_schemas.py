"""A source of rows whose schemas have names, and a sink that keeps what it gets, in both lanes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa

from connectx.data.connect_schema import TIME_NAME, SchemaName, described
from connectx.data.frames import as_spark_takes, in_arrow, spark_schema
from connectx.plugins.connectors import SinkConnector, SourceConnector
from connectx.plugins.slices import SinkBatch, Slice
from connectx.plugins.tasks import SinkTask, SourceTask

SLICES = 2
LEVEL = SchemaName("com.acme.Level", 3, "How loud", (("allowed", "low,high"),))
INNER = pa.struct(
    [
        described(pa.field("clock", pa.int32()), SchemaName(TIME_NAME, 1)),
        described(pa.field("level", pa.string()), LEVEL, "low"),
    ]
)
VALUE = pa.struct(
    [
        pa.field("id", pa.int64()),
        described(pa.field("at", pa.int64()), SchemaName("io.debezium.time.MicroTimestamp", 1)),
        described(pa.field("price", pa.decimal128(10, 2)), SchemaName(doc="Net", parameters=(("currency", "EUR"),))),
        described(pa.field("inner", INNER), SchemaName("com.acme.Inner", 2)),
        pa.field("levels", pa.list_(described(pa.field("element", pa.string()), LEVEL))),
        pa.field("times", pa.map_(pa.string(), described(pa.field("value", pa.int64()), SchemaName("com.acme.Nanos")))),
    ]
)
KEY = pa.struct([described(pa.field("id", pa.int64(), nullable=False), SchemaName("com.acme.Id", 1))])
COLUMNS = pa.schema(
    [
        SchemaName("com.acme.Key", 1).on(pa.field("key", KEY)),
        SchemaName("com.acme.Order", 2, "An order").on(pa.field("value", VALUE)),
    ]
)


def rows(count: int) -> pa.Table:
    """Orders with nulls at all levels; every fifth is a tombstone."""
    keys = [{"id": number} for number in range(count)]
    values = [None if number % 5 == 4 else _order(number) for number in range(count)]
    table = pa.table({"key": pa.array(keys, KEY), "value": pa.array(values, VALUE)}, COLUMNS)
    return table.cast(as_spark_takes(COLUMNS))


def _slices(offset: Mapping[str, Any] | None) -> int:
    return int(offset["slices"]) if offset else 0


def _order(number: int) -> dict[str, Any]:
    inner = {"clock": number % 1000, "level": "high" if number % 2 else None}
    full = {
        **{"at": number * 1_000_000, "price": Decimal(number) / 4, "inner": inner},
        **{"levels": ["low", "high"][: number % 3], "times": [("t", number)]},
    }
    return {"id": number, **({} if number % 7 == 6 else full)}


class NamedSource(SourceConnector):
    """Sends two slices of `rows` to its `topic`: from the worker, or as a DataFrame with the same metadata."""

    class Task(SourceTask):
        """The source offset is the number of slices."""

        def poll(self, spark: Any, offset: Any) -> Slice | None:
            return self._slice(rows(int(self.settings["rows"])), offset)

        def waiting_bytes(self, offset: Any) -> int:
            return SLICES - _slices(offset)

        def poll_bulk(self, spark: Any, offset: Any, max_bytes: int) -> Slice | None:
            table = rows(int(self.settings["rows"]))
            return self._slice(spark.createDataFrame(table, spark_schema(table.schema)), offset)

        def _slice(self, rows: Any, offset: Any) -> Slice | None:
            done = _slices(offset)
            return None if done == SLICES else Slice(rows, {"slices": done + 1}, topic=self.settings["topic"])

    task_class = Task


class NamedSink(SinkConnector):
    """Keeps rows in files in its `folder`, which are named by what wrote them: put, stage or save."""

    @classmethod
    def bulk_obstacle(cls, config: Mapping[str, str | None]) -> str | None:
        return None

    class Task(SinkTask):
        """In bulk the columns are those that another task has put: one whose folder is `like`."""

        stages_rows = True

        def put(self, batch: SinkBatch) -> None:
            if batch.rows.num_rows:
                self._kept("put", batch.rows)

        def plan(self, token: str, topic: str) -> pa.Schema:
            return kept(Path(self.settings["like"]), "put")[0].schema

        def stage(self, plan: pa.Schema, token: str, batches: Iterator[SinkBatch]) -> Iterator[pa.Table]:
            for batch in batches:
                if batch.rows.num_rows:
                    yield self._kept("stage", batch.rows)

        def save(self, token: str, ranges: Any, frame: Any) -> None:
            self._kept("save", in_arrow(frame))

        def commit(self, token: str, ranges: Any, messages: Sequence[Any]) -> None:
            """`save` has written."""

        def discard(self, token: str, messages: Sequence[Any]) -> None:
            """Nothing is left in other places."""

        def _kept(self, by: str, rows: pa.Table) -> pa.Table:
            table = rows.select(["partition", "offset", "key", "value"])
            path = Path(self.settings["folder"], f"{by}-{uuid4().hex}")
            with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
                writer.write_table(table)
            path.rename(path.with_suffix(".arrow"))
            return table

    task_class = Task


def kept(folder: Path, by: str) -> list[pa.Table]:
    """What a sink has kept by its way."""
    return [pa.ipc.open_file(str(path)).read_all() for path in sorted(folder.glob(f"{by}-*.arrow"))]
