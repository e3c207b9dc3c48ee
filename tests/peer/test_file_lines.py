"""Random values through Kafka Connect's FileStreamSinkTask and through FileStreamSink: the same lines, byte by byte.

Bytes are left out: Java prints the address of their array.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from connectx.connectors.files.stream_sink import FileStreamSink
from connectx.data.transforms.objects import object_texts
from connectx.model.worker_config import embedded_config
from connectx.plugins.registry import Plugins, worker_config
from connectx.plugins.slices import SinkBatch
from connectx.plugins.stored import Stored
from connectx.runtime.tasks.sink.conversion import BadRecord, Conversion, Wanted
from connectx.verify.check.decoding import SinkDecoder
from connectx.verify.check.identity import lines_of_value
from connectx.verify.check.sides import UNREADABLE
from tests.peer.test_chains import raw_table
from tests.support.chain_cases import ChainCase, a_case
from tests.support.connect_classes import JSON, ConnectClasses, connect_classes

PLUGINS, WORKER = Plugins(), worker_config(embedded_config({"group.id": "g"}))
SEEDS = range(8)
CASES_OF_A_SEED = 15
MOMENTS = (-62_198_755_200_000, -62_135_596_800_001, -12_219_292_800_001, -1, 0, 1_709_251_199_999, 253_402_300_800_000)


@pytest.fixture(scope="module")
def java() -> Iterator[ConnectClasses]:
    with connect_classes() as classes:
        yield classes


def without_bytes(random: Random) -> ChainCase:
    while True:
        case = a_case(random, sink=True)
        plain = json.dumps(case.schema).replace('"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal"', "")
        if '"type": "bytes"' not in plain:
            return case


def our_lines(case: ChainCase, records: Sequence[Mapping[str, Any]], path: Path) -> tuple[str, list[int]]:
    task = FileStreamSink.Task()
    conversion = Conversion.of(PLUGINS, case.config, WORKER, reads_fields=task.reads_fields)
    bad: list[BadRecord] = []
    table, _ = conversion.read(raw_table(records), records[0]["topic"], Wanted(None, None), bad.extend)
    task.start({"file": str(path)}, None)  # type: ignore[arg-type]
    task.put(SinkBatch(table, {}, not conversion.value_converter.has_schemas))
    task.stop()
    return path.read_text(), table["offset"].to_pylist()


def checked_lines(case: ChainCase, records: Sequence[Mapping[str, Any]]) -> str:
    """The text that `cluster.check` expects in the file."""
    stored = Stored("file", lambda: iter([]), lines=True, ordered=True, line_of=object_texts)
    found = SinkDecoder.of(PLUGINS, case.config, WORKER, stored)(records[0]["topic"], raw_table(records))
    lines = [line for _, value in found if value is not UNREADABLE for line in lines_of_value(value)]
    return "".join(f"{line}\n" for line in lines)


def comparable(case: ChainCase, text: str) -> list[str]:
    """Lines; of maps that a transformation made in no order, since Java's depends on how it made them."""
    is_exact = case.schema is not None or "transforms" not in case.config
    return [line if is_exact else "".join(sorted(line)) for line in text.splitlines()]


@pytest.mark.parametrize("seed", SEEDS)
def test_lines_are_those_of_kafka_connect(java: ConnectClasses, seed: int, tmp_path: Path) -> None:
    random = Random(f"lines {seed}")
    for number in range(CASES_OF_A_SEED):
        case = without_bytes(random)
        wanted = java.file_lines(case.records, case.config, str(tmp_path / f"java-{number}"))
        text, offsets = our_lines(case, case.records, tmp_path / f"ours-{number}")
        assert checked_lines(case, case.records) == text, case
        assert (comparable(case, text), offsets) == (comparable(case, wanted[0]), wanted[1]), case


@pytest.mark.parametrize("key", ["string", "int32", "int64", "boolean", "float", "double"])
def test_maps_have_the_order_of_javas(java: ConnectClasses, key: str, tmp_path: Path) -> None:
    random, made = Random(key), []
    draw: dict[str, Any] = {
        "string": lambda: "".join(random.choices("abcÄ€😀 ", k=random.randint(0, 9))),
        "int32": lambda: random.randint(-(2**31), 2**31 - 1),
        "int64": lambda: random.randint(-(2**63), 2**63 - 1),
        "boolean": lambda: random.random() < 0.5,
        "float": lambda: random.choice((0.5, -1.0, 3.25, 1e10, random.randint(0, 1 << 20) / 1024)),
        "double": lambda: random.uniform(-1e9, 1e9),
    }
    for count in (0, 1, 12, 13, 30, 200):
        keys = list({draw[key](): None for _ in range(count)})
        pairs = [[each, number] for number, each in enumerate(keys)]
        made.append(dict(pairs) if key == "string" else pairs)
    schema = {"type": "map", "keys": {"type": key}, "values": {"type": "int32"}, "optional": False}
    case = case_of([{"schema": schema, "payload": payload} for payload in made], schemas=True)
    assert_alike(java, case, tmp_path)


def test_moments_numbers_and_documents_have_javas_text(java: ConnectClasses, tmp_path: Path) -> None:
    logical = "org.apache.kafka.connect.data."
    moment = {"type": "int64", "name": f"{logical}Timestamp", "version": 1}
    decimal = {"type": "bytes", "name": f"{logical}Decimal", "version": 1, "parameters": {"scale": "9"}}
    values: list[tuple[dict[str, Any], Any]] = [(moment, each) for each in MOMENTS]
    values += [(decimal, text) for text in ("AA==", "AQ==", "/w==", "O5rKAA==")]
    values += [({"type": "double"}, each) for each in (0.0, -7.5, 1e7, 9999999.5, 1e-3, 9.99e-4, 1e300, 123.0)]
    values += [({"type": "float"}, each) for each in (0.1, 1e10, 3.4e38, 1.0)]
    case = case_of(
        [{"schema": {**schema, "optional": False}, "payload": value} for schema, value in values], schemas=True
    )
    assert_alike(java, case, tmp_path)
    documents = [
        {"some_key": 0},
        "some_key",
        '{"a":1}',
        [1, "x", None, {"b": [], "a": {}}],
        12,
        12.5,
        True,
        None,
        {},
        [],
    ]
    documents += [{f"k{number}": number for number in range(30)}, {"é": "😀", "": ""}, 1e100, "two\nlines"]
    case = case_of(documents, schemas=False)
    assert_alike(java, case, tmp_path)


def assert_alike(java: ConnectClasses, case: ChainCase, folder: Path) -> None:
    for name in ("java", "ours"):
        (folder / name).unlink(missing_ok=True)
    wanted, offsets = java.file_lines(case.records, case.config, str(folder / "java"))
    found, ours = our_lines(case, case.records, folder / "ours")
    assert [pair for pair in zip(found.splitlines(), wanted.splitlines(), strict=False) if pair[0] != pair[1]] == []
    assert (len(found), ours) == (len(wanted), offsets)


def case_of(values: Sequence[Any], *, schemas: bool) -> ChainCase:
    base = a_case(Random("plain"), sink=True)
    record = {**base.records[0], "topic": "t", "key": None, "headers": []}
    records = tuple({**record, "offset": at, "value": json.dumps(value).encode()} for at, value in enumerate(values))
    config = {"key.converter": JSON, "value.converter": JSON, "value.converter.schemas.enable": str(schemas).lower()}
    return replace(
        base, records=records, schema=None, config=config | {"header.converter": base.config["header.converter"]}
    )
