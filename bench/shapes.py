"""CPU time per record of batches of several shapes beside one shape, and of one shape beside Arrow's parser alone."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any

import pyarrow as pa

from bench.conversion import RECORDS, cpu_us
from connectx.data.converter import Decoded
from connectx.data.json.converter import JsonConverter
from connectx.data.json.parsing import parse
from connectx.data.transforms.chain import Chain, in_order
from connectx.plugins.registry import Plugins

SHAPES = (1, 2, 5, 10, 1_000)
BATCHES = (500, RECORDS)
COLUMNS = ("id", "amount", "name", "city", "paid", "at", "note")
CHAIN = {
    "transforms": "insert",
    "transforms.insert.type": "org.apache.kafka.connect.transforms.InsertField$Value",
    "transforms.insert.topic.field": "topic",
}
TYPES = {int: "int64", float: "double", str: "string", bool: "boolean"}


def _value(dice: random.Random, number: int) -> dict[str, Any]:
    values = (
        number,
        dice.randrange(10**6) + 0.25,
        f"name {number}",
        dice.choice(["Paris", "Rome", "Ulm"]),
        number % 3 == 0,
        "2026-11-21T10:00:00Z",
        "a text of some forty characters, or a few",
    )
    return dict(zip(COLUMNS, values, strict=True))


def _of_shape(value: dict[str, Any], shape: int) -> dict[str, Any]:
    """Some fields are missing, one is text, or, with many shapes, one has another name."""
    if shape >= 10:
        return {**value, f"more{shape}": 1}
    left = {name: each for place, (name, each) in enumerate(value.items()) if not place or not shape >> (place - 1) & 1}
    return left | ({"id": str(left["id"])} if shape % 2 else {})


def _documents(shapes: int, count: int) -> list[dict[str, Any]]:
    dice = random.Random(1)
    return [_of_shape(_value(dice, number), dice.randrange(shapes)) for number in range(count)]


def _envelope(value: dict[str, Any]) -> dict[str, Any]:
    fields = [{"field": name, "type": TYPES[type(each)]} for name, each in value.items()]
    return {"schema": {"type": "struct", "fields": fields}, "payload": value}


def _read(converter: JsonConverter, records: pa.Array) -> Decoded:
    return converter.from_bytes_arrow(records)


def _transformed(converter: JsonConverter, chain: Chain, records: pa.Array) -> pa.Table:
    table = pa.table({"topic": pa.array(["t"] * len(records)), "value": converter.from_bytes_arrow(records).value})
    return in_order(chain.apply(table).parts)


def measure_shapes() -> Iterator[dict[str, object]]:
    """Batches of one to a thousand shapes, read, and read and transformed."""
    chain = Plugins().chain(CHAIN)
    for enabled, count in product(("false", "true"), BATCHES):
        converter = JsonConverter({"schemas.enable": enabled})
        converter.infers_fields = True
        batches: dict[int, pa.Array] = {}
        for shapes in SHAPES:
            documents = _documents(shapes, count)
            made = map(_envelope, documents) if converter.has_schemas else documents
            texts = [json.dumps(document, separators=(",", ":")).encode() for document in made]
            batches[shapes] = pa.array(texts, pa.binary())
        runs: list[Callable[[], object]] = []
        for records in batches.values():
            runs += [partial(_read, converter, records), partial(_transformed, converter, chain, records)]
        kind = converter.from_bytes_arrow(batches[1]).value.type
        alone = [] if converter.has_schemas else [partial(parse, batches[1], kind)]
        took = cpu_us(*runs, *alone)
        for number, shapes in enumerate(SHAPES):
            read, transformed = took[2 * number : 2 * number + 2]
            beside = {"ratio_to_arrow_alone": round(read / took[-1], 2)} if shapes == 1 and alone else {}
            yield {
                "measure": "shapes",
                "schemas.enable": enabled,
                "batch": count,
                "shapes": shapes,
                "read_cpu_us_per_record": round(read * RECORDS / count, 2),
                "ratio_to_one_shape": round(read / took[0], 1),
                "transformed_ratio_to_one_shape": round(transformed / took[1], 1),
                **beside,
            }
