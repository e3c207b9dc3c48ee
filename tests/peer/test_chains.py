"""Random records through Kafka Connect's own converters, transformations and predicates, and through connectx.

Java answers record by record. connectx gets the batch, and each record alone: both are to be Java's answer. What
`docs/limits.md` names is left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from connectx.data.connect_schema import SchemaName, type_of
from connectx.data.headers import HEADERS
from connectx.data.json.converter import JsonConverter
from connectx.data.transforms.chain import ROW
from connectx.data.transforms.encoding import record_table, transform_and_encode
from connectx.model.worker_config import embedded_config
from connectx.plugins.registry import Plugins, worker_config
from connectx.runtime.tasks.sink.conversion import BadRecord, Conversion, Wanted
from tests.support.chain_cases import ChainCase, a_case
from tests.support.connect_classes import DROPPED, REFUSED, Answer, ConnectClasses, connect_classes, prefixed

PLUGINS, WORKER = Plugins(), worker_config(embedded_config({"group.id": "g"}))
SEEDS = range(8)
CASES_OF_A_SEED = 12


@pytest.fixture(scope="module")
def java() -> Iterator[ConnectClasses]:
    with connect_classes() as classes:
        yield classes


def raw_table(records: Sequence[Mapping[str, Any]]) -> pa.Table:
    headers = [[{"key": name, "value": value} for name, value in record["headers"]] for record in records]
    types = {"topic": pa.string(), "partition": pa.int32(), "offset": pa.int64(), "timestamp": pa.int64()}
    columns = {name: pa.array([record[name] for record in records], kind) for name, kind in types.items()}
    columns |= {side: pa.array([record[side] for record in records], pa.binary()) for side in ("key", "value")}
    return pa.table({**columns, "headers": pa.array(headers, HEADERS)})


def pairs(headers: Sequence[Mapping[str, Any]] | None) -> tuple[tuple[str, bytes | None], ...]:
    return tuple((header["key"], header["value"]) for header in headers or ())


def sink_answers(case: ChainCase, records: Sequence[Mapping[str, Any]]) -> list[Answer]:
    conversion = Conversion.of(PLUGINS, case.config, WORKER, reads_fields=True)
    found: dict[int, Answer] = {}
    places = {record["offset"]: place for place, record in enumerate(records)}

    def judge(bad: Sequence[BadRecord]) -> None:
        found.update({each.row: Answer(REFUSED) for each in bad})

    table, _ = conversion.read(raw_table(records), records[0]["topic"], Wanted(None, None), judge)
    settings = {"schemas.enable": "false", "decimal.format": "NUMERIC", "replace.null.with.default": "false"}
    for side in ("key", "value"):
        chunks = [JsonConverter(settings).to_bytes_arrow(chunk) for chunk in table[side].chunks]
        table = table.set_column(table.column_names.index(side), side, pa.chunked_array(chunks, pa.binary()))
    for record in table.to_pylist():
        key, value = (record[side] and ("value", json.loads(record[side])) for side in ("key", "value"))
        found[places[record["offset"]]] = Answer("ok", record["topic"], key, value, pairs(record["headers"]))
    return [found.get(place, Answer(DROPPED)) for place in range(len(records))]


def source_answers(case: ChainCase, records: Sequence[Mapping[str, Any]]) -> list[Answer]:
    raw, out = raw_table(records), prefixed(case.config, "out.")
    chain, headers = PLUGINS.chain(case.config), PLUGINS.header_converter(case.config, WORKER)
    converters = [PLUGINS.converter(side, out, WORKER) for side in ("key", "value")]
    table = source_table(raw, case.schema or {})
    made = transform_and_encode(table, None, chain, converters[0], converters[1], headers, skip_unwritable=True)
    parts = chain.apply(record_table(table, None)).parts if chain else []
    left = sorted(row for part in parts for row in part[ROW].to_pylist()) if chain else range(len(records))
    found = {row: Answer(REFUSED) for row in (*(each.row for each in made.failures), *made.unwritable)}
    rows = [row for row in left if row not in made.unwritable]
    for row, record in zip(rows, made.records.to_pylist(), strict=True):
        key, value = (document(record[side], out.get(f"{side}.converter.schemas.enable")) for side in ("key", "value"))
        found[row] = Answer("ok", record["topic"], key, value, pairs(record["headers"]))
    return [found.get(place, Answer(DROPPED)) for place in range(len(records))]


def source_table(raw: pa.Table, schema: Mapping[str, Any]) -> pa.Table:
    """Rows of a source, whose fields are required where the schema says so."""
    read = JsonConverter({"replace.null.with.default": "false"}).from_bytes_arrow(raw["value"].combine_chunks())
    assert read.error.null_count == len(read.error), read.error
    kind = type_of(schema)
    value = read.value.cast(kind) if pa.types.is_null(read.value.type) else read.value
    named = SchemaName.from_json(*(schema.get(key) for key in ("name", "version", "doc", "parameters")))
    batch = pa.record_batch({"value": value})
    typed = pa.ipc.read_record_batch(batch.serialize(), pa.schema([named.on(pa.field("value", kind))]))
    table = raw.drop_columns(["value", "offset"]).append_column(typed.schema.field(0), typed.column(0))
    return table.set_column(table.column_names.index("key"), "key", raw["key"].cast(pa.string()))


def document(written: bytes | None, schemas: str | None) -> Any:
    """What a JsonConverter wrote, as `ConnectClasses` has it."""
    if written is None:
        return None
    found = json.loads(written)
    return ("value", found) if schemas == "false" else (found["schema"], found["payload"])


def without_tombstones(answer: Answer) -> Answer:
    """For sinks a null is a null, with a schema or without one."""
    key, value = (None if side == ("value", None) else side for side in (answer.key, answer.value))
    return replace(answer, key=key, value=value)


@pytest.mark.parametrize("sink", [True, False], ids=["sink", "source"])
@pytest.mark.parametrize("seed", SEEDS)
def test_records_become_what_java_makes_of_them(java: ConnectClasses, seed: int, sink: bool) -> None:
    random = Random(f"{seed} {sink}")
    own = sink_answers if sink else source_answers
    for _ in range(CASES_OF_A_SEED):
        case = a_case(random, sink=sink)
        wanted = java.answers(case.records, case.config, sink=sink)
        alone = [answer for record in case.records for answer in own(case, [record])]
        for found in (own(case, case.records), alone):
            shown = [without_tombstones(each) if sink else each for each in found]
            assert shown == [without_tombstones(each) if sink else each for each in wanted], case
