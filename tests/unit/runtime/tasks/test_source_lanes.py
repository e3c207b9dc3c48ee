"""Both lanes of a source make the same records of the same rows, for each converter, transformation and predicate.

The worker encodes a slice as one table, and executors encode it in batches of any size: neither may show in a record.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark import cloudpickle

from connectx.data.converter import Converter
from connectx.data.headers import HeaderConverter
from connectx.data.json.converter import JsonConverter
from connectx.data.registry.converter import RegistryConverter
from connectx.data.transforms.chain import Chain
from connectx.data.transforms.encoding import Encoded, transform_and_encode
from connectx.errors.base import ConnectxError
from connectx.errors.plugins import ConversionError
from connectx.kafka.producer.batching import Batcher, EncodedBatch, PartitionsOf, rows_by_topic
from connectx.kafka.settings.producer_options import producer_options
from connectx.plugins.registry import Plugins
from connectx.protocol.record_batches import decode, finish
from connectx.runtime.tasks.source import bulk_job
from connectx.runtime.tasks.source.bulk_job import Recipe, encode_rows
from tests.support.lane_cases import CHAINS, CONDITIONS, KINDS, SETTINGS, STAMP_MS, TOPIC, cuts, rows
from tests.support.shipped import CONVERTERS, PACKAGE, PREDICATES, TRANSFORMS

pytestmark = pytest.mark.rule("always.8")

ROWS = 20
PRODUCER = {"batch.size": 2_000, "compression.type": "lz4"}
TOPICS = (TOPIC, "other", *(f"{topic}-2020" for topic in (TOPIC, "other")), "r-routed")
PARTITIONS = {topic: PartitionsOf(3, range(3)) for topic in TOPICS}
JSON = JsonConverter()
NO_CHAIN = Chain()
Record = tuple[Any, ...]


@pytest.fixture(autouse=True)
def on_an_executor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_job, "_this_task", lambda: (2, 0))


def recipe(
    steps: Chain = NO_CHAIN, key: Converter = JSON, value: Converter = JSON, headers: Converter | None = None
) -> Recipe:
    return Recipe(1, TOPIC, PARTITIONS, steps, key, value, HeaderConverter(headers), True, PRODUCER, None, STAMP_MS)


def made(of: Recipe, table: pa.Table) -> Encoded:
    converters = of.key_converter, of.value_converter, of.header_converter
    return transform_and_encode(table, of.topic, of.chain, *converters, skip_unwritable=of.skip_bad, now_ms=of.now_ms)


def reasons(encoded: Encoded) -> dict[int, str]:
    return {**{failure.row: failure.message for failure in encoded.failures}, **encoded.unwritable}


def records_in(batches: Iterable[EncodedBatch], chooses: set[Any]) -> list[Record]:
    """Records in the order of rows, and those of a partition in its order. `chooses` are times of records without key
    and partition, whose partition is left to chance.
    """
    found: list[Record] = []
    last: dict[Any, int] = {}
    for batch in batches:
        (decoded,) = decode(finish(batch.records))
        for row in decoded.rows.drop_columns("offset").to_pylist():
            assert last.get(batch.target, 0) < row["timestamp"]
            last[batch.target] = row["timestamp"]
            partition = None if row["timestamp"] in chooses else batch.target.partition
            found.append((row["timestamp"], batch.target.topic, partition, row["key"], row["value"], row["headers"]))
    return sorted(found, key=lambda record: record[0])


def by_the_worker(of: Recipe, encoded: Encoded) -> Iterator[EncodedBatch]:
    batcher = Batcher(producer_options(PRODUCER), random.Random(1).randrange)
    for topic, part, numbers in rows_by_topic(encoded.records, TOPIC):
        for batch in batcher.encode(part, topic, numbers, PARTITIONS[topic], of.now_ms):
            assert isinstance(batch, EncodedBatch)
            yield batch


def by_executors(
    of: Recipe, tables: list[pa.Table], monkeypatch: pytest.MonkeyPatch
) -> tuple[list[EncodedBatch], Mapping[str, Any], dict[int, str]]:
    """Batches, what the last row counts, and reasons by row of all tables."""
    bad: dict[int, str] = {}
    at = 0

    def encoded(table: pa.Table, *given: Any, **more: Any) -> Encoded:
        nonlocal at, bad
        found = transform_and_encode(table, *given, **more)
        bad |= {at + row: why for row, why in reasons(found).items()}
        at += table.num_rows
        return found

    monkeypatch.setattr(bulk_job, "transform_and_encode", encoded)
    sent = cloudpickle.loads(cloudpickle.dumps(of))
    with suppress(ConnectxError):  # this copy of the mock registry numbers schemas in order
        made(sent, pa.concat_tables(tables))
    *found, counts = [row for batch in encode_rows(sent, [(0, table) for table in tables]) for row in batch.to_pylist()]
    return [bulk_job._batch_of(row, PRODUCER) for row in found], counts, bad


def same(of: Recipe, table: pa.Table, chance: random.Random, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare the lanes, with errors.tolerance=all and with none, where a bad row fails both lanes."""
    try:
        whole = made(of, table)
    except ConversionError as error:
        why = str(error)
        _, counts, _ = by_executors(of, cuts(table, chance), monkeypatch)
        assert counts["failed"] == why
        return
    columns = whole.records.to_pydict()
    chooses = {
        at
        for at, *named in zip(*(columns.get(name, ()) for name in ("timestamp", "key", "partition")), strict=True)
        if named == [None, None]
    }
    wanted, bad = records_in(by_the_worker(of, whole), chooses), reasons(whole)
    batches, counts, bad_of_executors = by_executors(of, cuts(table, chance), monkeypatch)
    assert bad_of_executors == bad
    assert records_in(batches, chooses) == wanted
    assert counts["failed"] is None
    assert (counts["records"], counts["filtered"], counts["bad"]) == (len(wanted), whole.filtered, len(bad))
    assert counts["why"] in bad.values() if bad else counts["why"] is None
    strict = replace(of, skip_bad=False)
    try:
        failed = bool(made(strict, table).failures)
    except ConnectxError:
        failed = True
    _, counts, _ = by_executors(strict, [table], monkeypatch)
    assert failed == (counts["failed"] is not None) == bool(bad)


def converter(cls: type[Converter], *, is_key: bool = False) -> Converter:
    registry = {"schema.registry.url": f"mock://{uuid4().hex}"} if issubclass(cls, RegistryConverter) else {}
    return cls(registry, is_key=is_key)


def test_each_provided_transformation_and_predicate_has_a_case() -> None:
    assert {name.removeprefix(PACKAGE).partition("$")[0] for name in TRANSFORMS} == SETTINGS.keys()
    assert {name.rpartition(".")[2] for name in PREDICATES} == CONDITIONS.keys()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cls", CONVERTERS)
def test_both_lanes_write_the_same_keys_and_values(
    cls: type[Converter], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(f"{cls.__name__} {kind}")
    of = recipe(key=converter(cls, is_key=True), value=converter(cls))
    same(of, rows(KINDS[kind], ROWS, chance), chance, monkeypatch)


@pytest.mark.parametrize("cls", [cls for cls in CONVERTERS if not cls.by_topic])
def test_both_lanes_write_the_same_headers(cls: type[Converter], monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(cls.__name__)
    table = rows(KINDS["string"], ROWS, chance)
    texts = [any(header["value"] == b"t" for header in row or ()) for row in table["headers"].to_pylist()]
    for part in (table, table.filter(pc.invert(pa.array(texts)))):
        same(recipe(headers=cls()), part, chance, monkeypatch)


@pytest.mark.parametrize("case", CHAINS)
def test_both_lanes_transform_alike(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(case)
    same(recipe(Plugins().chain(CHAINS[case])), rows(KINDS["wide"], ROWS, chance), chance, monkeypatch)
