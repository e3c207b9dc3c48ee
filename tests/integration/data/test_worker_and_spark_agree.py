"""What the worker reads by itself has the very values that Spark would give."""

from __future__ import annotations

import json
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as f

from connectx.data.reading import frame_of
from tests.support.conversions import PLAIN

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def documents(seed: int, count: int) -> list[bytes | None]:
    """JSON, and JSON with a character put in or taken out."""
    random = Random(seed)

    def value(depth: int) -> Any:
        if depth and random.random() < 0.5:
            inner = [value(depth - 1) for _ in range(random.randrange(3))]
            return inner if random.random() < 0.5 else {f"k{i}": item for i, item in enumerate(inner)}
        text = 'aé"\\\n{}[]:,😀'[random.randrange(8) :]
        return random.choice([None, True, random.randrange(-(10**20), 10**20), random.random(), text])

    found: list[bytes | None] = [
        None,
        b"",
        b" ",
        b"null",
        b" null ",
        b'"x"',
        b' "x" ',
        b"NaN",
        b"1.50",
        b"01",
        b'"\xff"',
    ]
    for _ in range(count):
        text = json.dumps(value(3), ensure_ascii=random.random() < 0.5)
        at = random.randrange(len(text) + 1)
        if random.random() < 0.5:
            text = (
                text[:at]
                + random.choice(['"', "{", "}", "]", ",", "1", " ", "x", ""])
                + text[at + random.randrange(2) :]
            )
        found.append(text.encode())
    return found


def test_json_as_text_is_read_or_refused_alike(spark: SparkSession) -> None:
    records = documents(11, 800)
    here = PLAIN.try_from_bytes_arrow(pa.array(records, pa.binary()), None)
    assert here is not None
    frame = frame_of(pa.table({"value": pa.array(records, pa.binary())}), spark)
    by_expression = frame.select(PLAIN.from_bytes(f.col("value"), None).alias("read")).toArrow()
    there = by_expression["read"].to_pylist()
    pairs = zip(records, here.value.to_pylist(), here.error.to_pylist(), there, strict=True)
    for record, value, error, by_spark in pairs:
        if record == b"NaN":  # Spark's parser takes it
            assert error is not None
            continue
        assert (error is None) == (by_spark["error"] is None), record
        if error is None:
            assert value == by_spark["value"], record


def test_lines_in_json_go_through_without_spark() -> None:
    here = PLAIN.try_from_bytes_arrow(pa.array([b'"one"', '"zw\u00f6lf 😀"'.encode(), None, b'""'], pa.binary()), None)
    assert here is not None
    assert here.value.to_pylist() == ["one", "zwölf 😀", None, ""]
    assert here.error.null_count == 4
