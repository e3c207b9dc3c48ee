"""No result depends on which records share a batch: each is what it is alone."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connectx.data.headers import HEADERS
from connectx.model.worker_config import embedded_config
from connectx.plugins.registry import Plugins, worker_config
from connectx.runtime.tasks.sink.conversion import BadRecord, Conversion, Wanted

PLUGINS: Final = Plugins()
WORKER: Final = worker_config(embedded_config({"group.id": "batches"}))
APACHE: Final = "org.apache.kafka.connect.transforms."

STEPS: Final[Mapping[str, Mapping[str, str]]] = {
    "none": {},
    "Cast": {"type": "Cast$Value", "spec": "a:string,b:int32"},
    "Cast of all": {"type": "Cast$Value", "spec": "string"},
    "DropHeaders": {"type": "DropHeaders", "headers": "h"},
    "ExtractField": {"type": "ExtractField$Value", "field": "a"},
    "Filter": {"type": "Filter"},
    "Flatten": {"type": "Flatten$Value"},
    "HeaderFrom": {"type": "HeaderFrom$Value", "fields": "a", "headers": "h", "operation": "move"},
    "HoistField": {"type": "HoistField$Value", "field": "all"},
    "InsertField": {"type": "InsertField$Value", "topic.field": "t", "offset.field": "a"},
    "InsertHeader": {"type": "InsertHeader", "header": "n", "value.literal": "1"},
    "MaskField": {"type": "MaskField$Value", "fields": "a"},
    "RegexRouter": {"type": "RegexRouter", "regex": "(.*)", "replacement": "x-$1"},
    "ReplaceField": {"type": "ReplaceField$Value", "renames": "a:z", "exclude": "b"},
    "SetSchemaMetadata": {"type": "SetSchemaMetadata$Value", "schema.name": "s"},
    "TimestampConverter": {"type": "TimestampConverter$Value", "field": "a", "target.type": "string", "format": "yyyy"},
    "TimestampRouter": {"type": "TimestampRouter"},
    "ValueToKey": {"type": "ValueToKey", "fields": "a"},
}

SCALARS = st.none() | st.booleans() | st.sampled_from([0, 7, 12, 1234567890123456789, 10**25, 12.5, 1.0, "x", "12", ""])
FIELDS = st.dictionaries(
    st.sampled_from(["a", "b", "c"]), SCALARS | st.lists(SCALARS, max_size=2) | st.just({"a": 1}), max_size=3
)
PLAIN = st.binary(max_size=3) | (SCALARS | FIELDS | st.lists(FIELDS, max_size=2)).map(
    lambda value: json.dumps(value).encode()
)

SCHEMAS: Final[Sequence[tuple[Any, Sequence[Any]]]] = [
    ({"type": "int32"}, [1, 2]),
    ({"type": "string", "optional": True}, ["x", None]),
    (
        {"type": "struct", "fields": [{"field": "a", "type": "int64", "optional": True}]},
        [{"a": 1}, {"a": None}, {"a": "x"}],
    ),
    (
        {"type": "struct", "fields": [{"field": "a", "type": "string"}, {"field": "b", "type": "double"}]},
        [{"a": "1", "b": 2}],
    ),
    ({"type": "array", "items": {"type": "boolean"}}, [[True], []]),
    (None, [{"a": 1}, 2]),
]
ENVELOPES = st.sampled_from(
    [json.dumps({"schema": schema, "payload": value}).encode() for schema, values in SCHEMAS for value in values]
    + [b"{}"]
)
NUMBERS = st.binary(min_size=3, max_size=4)

CONVERTERS: Final[Mapping[str, tuple[str, st.SearchStrategy[bytes]]]] = {
    "JSON without schemas": ("org.apache.kafka.connect.json.JsonConverter", PLAIN),
    "JSON with schemas": ("org.apache.kafka.connect.json.JsonConverter", ENVELOPES),
    "text": ("org.apache.kafka.connect.storage.StringConverter", PLAIN),
    "bytes": ("org.apache.kafka.connect.converters.ByteArrayConverter", PLAIN),
    "integers": ("org.apache.kafka.connect.converters.IntegerConverter", NUMBERS),
}


def conversion(kind: str, step: Mapping[str, str], *, predicate: str | None = None) -> Conversion:
    """Of a sink that reads fields."""
    name, _ = CONVERTERS[kind]
    config = {"value.converter": name, "key.converter": name}
    config |= {
        f"{side}.converter.schemas.enable": str(kind == "JSON with schemas").lower() for side in ("key", "value")
    }
    if step:
        config |= {"transforms": "s", **{f"transforms.s.{key}": text for key, text in step.items()}}
        config["transforms.s.type"] = APACHE + step["type"]
    if predicate is not None:
        config |= {
            "transforms.s.predicate": "p",
            "predicates": "p",
            "predicates.p.type": f"{APACHE}predicates.{predicate}",
        }
    return Conversion.of(PLUGINS, config, WORKER, reads_fields=True)


def read(of: Conversion, records: pa.Table, without: Collection[str] = ()) -> dict[int, str]:
    """The outcome of each record, by offset, without some columns."""
    outcomes: dict[int, str] = {}
    offsets = records["offset"].to_pylist()

    def judge(bad: Sequence[BadRecord]) -> None:
        outcomes.update({offsets[each.row]: each.stage for each in bad})

    rows, _ = of.read(records, "t", Wanted(), judge)
    rest = rows.drop_columns(list(without)).to_pylist()
    return outcomes | {at: repr(row) for at, row in zip(rows["offset"].to_pylist(), rest, strict=True)}


def table(values: Sequence[bytes | None], keys: Sequence[bytes | None]) -> pa.Table:
    count = len(values)
    headers = [[{"key": "h", "value": b"1"}] if row % 3 else [] for row in range(count)]
    return pa.table(
        {
            "topic": pa.array(["t"] * count),
            "partition": pa.array([0] * count, pa.int32()),
            "offset": pa.array(range(count), pa.int64()),
            "timestamp": pa.array([1_700_000_000_000 + row for row in range(count)], pa.int64()),
            "key": pa.array(keys, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "headers": pa.array(headers, HEADERS),
        }
    )


def compare(of: Conversion, records: pa.Table) -> None:
    together = read(of, records)
    alone: dict[int, str] = {}
    for row in range(records.num_rows):
        alone |= read(of, records.slice(row, 1))
    assert together == alone


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("kind", ["JSON without schemas", "JSON with schemas"])
@settings(max_examples=10)
@given(data=st.data())
def test_a_record_is_transformed_as_if_it_were_alone(kind: str, name: str, data: st.DataObject) -> None:
    one = CONVERTERS[kind][1] | st.none()
    values = data.draw(st.lists(one, min_size=2, max_size=8))
    keys = data.draw(st.lists(one, min_size=len(values), max_size=len(values)))
    predicate = data.draw(st.sampled_from([None, "RecordIsTombstone"]))
    compare(conversion(kind, STEPS[name], predicate=predicate if STEPS[name] else None), table(values, keys))


@pytest.mark.parametrize("kind", CONVERTERS)
@settings(max_examples=10)
@given(data=st.data())
def test_a_record_is_read_as_if_it_were_alone(kind: str, data: st.DataObject) -> None:
    some = data.draw(st.lists(CONVERTERS[kind][1] | st.none(), min_size=2, max_size=6))
    chosen = data.draw(st.lists(st.sampled_from(some), min_size=2, max_size=90))
    compare(conversion(kind, {}), table(chosen, chosen[::-1]))


@pytest.mark.parametrize("kind", CONVERTERS)
@settings(max_examples=10)
@given(data=st.data())
def test_a_record_is_read_among_many_as_if_it_were_alone(kind: str, data: st.DataObject) -> None:
    """Many records of one shape, with nulls between them, are read by other code than few."""
    body = st.sampled_from([data.draw(CONVERTERS[kind][1]), None])
    drawn = data.draw(st.lists(st.tuples(body, body), min_size=2, max_size=6))
    of = conversion(kind, {})
    places = ("offset", "timestamp", "headers")
    records = table(*map(list, zip(*drawn * 40, strict=True)))
    alone = [read(of, records.slice(row, 1), places)[row] for row in range(len(drawn))]
    together = read(of, records, places)
    assert [together[row] for row in range(records.num_rows)] == alone * 40
