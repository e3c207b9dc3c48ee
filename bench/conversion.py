"""CPU time per record of converters in both directions: kinds of JSON beside flat records, Avro beside fastavro."""

from __future__ import annotations

import io
import json
import random
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import partial

import fastavro
import pyarrow as pa

from connectx.data.avro.converter import AvroConverter
from connectx.data.avro.schemas import schema_of
from connectx.data.converters import decode, encode
from connectx.data.json.converter import JsonConverter
from connectx.data.json_schema.converter import JsonSchemaConverter
from connectx.data.protobuf.converter import ProtobufConverter
from connectx.data.simple import StringConverter

RECORDS = 10_000
ROUNDS = 9
KEY = StringConverter(is_key=True)


def columns() -> tuple[dict[str, pa.Array], dict[str, dict[str, pa.Array]]]:
    """(columns of a flat record, further columns of each kind of record)."""
    dice = random.Random(1)
    flat = {
        "id": pa.array(range(RECORDS)),
        "amount": pa.array([dice.randrange(10**6) for _ in range(RECORDS)], pa.int32()),
        "name": pa.array([f"name {number}" for number in range(RECORDS)]),
        "city": pa.array([dice.choice(["Paris", "Rome", "Ulm"]) for _ in range(RECORDS)]),
    }
    cents = [Decimal(dice.randrange(10**8)).scaleb(-2) for _ in range(RECORDS)]
    more = {
        "flat": {},
        "one double": {"more": pa.array([dice.randrange(10**6) / 100 for _ in range(RECORDS)])},
        "one large double": {"more": pa.array([dice.random() * 1e12 for _ in range(RECORDS)])},
        "one list": {"more": pa.array([[1, 2, 3]] * RECORDS)},
        "nested struct": {"more": pa.array([{"x": number, "y": "text"} for number in range(RECORDS)])},
        "one decimal": {"more": pa.array(cents, pa.decimal128(10, 2))},
        "one timestamp": {"more": pa.array([10**15 + number for number in range(RECORDS)], pa.timestamp("us", "UTC"))},
        "bytes": {"more": pa.array([dice.randbytes(12) for _ in range(RECORDS)])},
        "text with quotes": {"more": pa.array([f'quote "{number}"' for number in range(RECORDS)])},
        "one map": {"more": pa.array([[("k", 1), ("l", 2)]] * RECORDS, pa.map_(pa.string(), pa.int64()))},
    }
    return flat, more


def cpu_us(*runs: Callable[[], object]) -> list[float]:
    """Least CPU time of each run, in microseconds per record; the runs take turns."""
    least = [float("inf")] * len(runs)
    for _ in range(ROUNDS):
        for number, run in enumerate(runs):
            start = time.process_time()
            run()
            least[number] = min(least[number], time.process_time() - start)
    return [seconds / RECORDS * 1e6 for seconds in least]


def measure_json() -> Iterator[dict[str, object]]:
    """Every kind of record, written and read, with and without schemas, beside flat records."""
    flat, kinds = columns()
    for enabled in ("false", "true"):
        converter = JsonConverter({"schemas.enable": enabled})
        beside: dict[str, Callable[[], object]] = {}
        for kind, more in kinds.items():
            for direction, case, run in _runs(pa.table(flat | more), kind, converter):
                base, took = cpu_us(beside.setdefault(direction, run), run)
                yield {
                    "measure": "json",
                    "direction": direction,
                    "schemas.enable": enabled,
                    "records": case,
                    "cpu_us_per_record": round(took, 2),
                    "ratio_to_flat": round(took / base, 1),
                }


def measure_avro() -> Iterator[dict[str, object]]:
    """A narrow record by AvroConverter, beside fastavro, which makes and takes Python's objects."""
    flat, _ = columns()
    rows = pa.table(flat).combine_chunks().to_struct_array()
    rows = rows.combine_chunks() if isinstance(rows, pa.ChunkedArray) else rows
    converter = AvroConverter({"schema.registry.url": "mock://bench"}).for_topic("t")
    written = converter.to_bytes_arrow(rows)
    schema = fastavro.parse_schema(json.loads(schema_of(rows.type)))
    objects, bodies = rows.to_pylist(), [record[5:] for record in written.to_pylist()]

    def by_fastavro() -> None:
        for row in objects:
            fastavro.schemaless_writer(io.BytesIO(), schema, row)

    def read_by_fastavro() -> None:
        for body in bodies:
            fastavro.schemaless_reader(io.BytesIO(body), schema, None)

    for direction, own, others in (
        ("write", lambda: converter.to_bytes_arrow(rows), by_fastavro),
        ("read", lambda: converter.from_bytes_arrow(written), read_by_fastavro),
    ):
        took, beside = cpu_us(own, others)
        yield {
            "measure": "avro",
            "direction": direction,
            "records_per_cpu_s": round(1e6 / took),
            "fastavro_records_per_cpu_s": round(1e6 / beside),
        }


def measure_json_schema() -> Iterator[dict[str, object]]:
    """A narrow record by JsonSchemaConverter, with and without validation."""
    flat, _ = columns()
    rows = pa.table(flat).combine_chunks().to_struct_array()
    rows = rows.combine_chunks() if isinstance(rows, pa.ChunkedArray) else rows
    for validated in ("false", "true"):
        settings = {"schema.registry.url": "mock://bench", "json.fail.invalid.schema": validated}
        converter = JsonSchemaConverter(settings).for_topic("t")
        written = converter.to_bytes_arrow(rows)
        took = cpu_us(partial(converter.to_bytes_arrow, rows), partial(converter.from_bytes_arrow, written))
        for direction, one in zip(("write", "read"), took, strict=True):
            yield {
                "measure": "json_schema",
                "direction": direction,
                "json.fail.invalid.schema": validated,
                "records_per_cpu_s": round(1e6 / one),
            }


def measure_protobuf() -> Iterator[dict[str, object]]:
    """A narrow record by ProtobufConverter."""
    flat, _ = columns()
    rows = pa.table(flat).combine_chunks().to_struct_array()
    rows = rows.combine_chunks() if isinstance(rows, pa.ChunkedArray) else rows
    converter = ProtobufConverter({"schema.registry.url": "mock://bench"}).for_topic("t")
    written = converter.to_bytes_arrow(rows)
    took = cpu_us(partial(converter.to_bytes_arrow, rows), partial(converter.from_bytes_arrow, written))
    for direction, one in zip(("write", "read"), took, strict=True):
        yield {"measure": "protobuf", "direction": direction, "records_per_cpu_s": round(1e6 / one)}


def _runs(table: pa.Table, kind: str, converter: JsonConverter) -> Iterator[tuple[str, str, Callable[[], object]]]:
    """(direction, name, what to measure) of a kind of record."""
    rows = pa.table({"value": table.combine_chunks().to_struct_array()})
    records = encode(rows, KEY, converter).append_column("topic", pa.array(["t"] * RECORDS))
    types = {"t": pa.struct(list(table.schema))}
    yield "write", kind, lambda: encode(rows, KEY, converter)
    yield "read", kind, lambda: decode(records, KEY, converter, types)
    if kind == "flat":
        one, many = with_broken(records, RECORDS), with_broken(records, 100)
        yield "read", "flat, 1 in 10,000 bad", lambda: decode(one, KEY, converter, types)
        yield "read", "flat, 1 % bad", lambda: decode(many, KEY, converter, types)


def with_broken(records: pa.Table, every: int) -> pa.Table:
    """Records of which one in `every` is cut off, holds text for a number, or a number that does not fit."""
    changes = ((b"}", b""), (b'"amount":', b'"amount":"x","a":'), (b'"amount":', b'"amount":9999999999,"a":'))
    values = records["value"].to_pylist()
    for number, row in enumerate(range(every // 2, RECORDS, every)):
        head, payload, tail = values[row].rpartition(b'{"id"')
        values[row] = head + payload + tail.replace(*changes[number % len(changes)], 1)
    return records.set_column(records.column_names.index("value"), "value", pa.array(values, pa.binary()))
