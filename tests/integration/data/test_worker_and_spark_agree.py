"""What the worker converts by itself has the very bytes and values that Spark would give."""

from __future__ import annotations

import json
from datetime import date
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as f

from connectx.data.converters import encode
from connectx.data.json.converter import JsonConverter
from connectx.data.reading import frame_of

from .conftest import KEY, PLAIN, WITH_SCHEMAS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TEXTS = ["", "a", 'quote " and \\ and /', "\b\t\n\f\r", "".join(map(chr, range(33))), "é€😀\u2028\u2029\x7f\x80", None]
DAYS = [date(1970, 1, 1), date(1969, 12, 31), date(2262, 4, 11), date(1, 1, 1), None]
INSTANTS = [0, -1, 1, 999, 1000, -999, -1000, -1001, 1_700_000_000_123_456, -62_135_596_800_000_000, None]
VALUES: dict[str, pa.Array] = {
    "text": pa.array(TEXTS),
    "large text": pa.array(TEXTS, pa.large_string()),
    "int8": pa.array([0, -128, 127, None], pa.int8()),
    "int64": pa.array([0, -(2**63), 2**63 - 1, None]),
    "boolean": pa.array([True, False, None]),
    "date": pa.array(DAYS),
    "timestamp": pa.array(INSTANTS, pa.timestamp("us", "UTC")),
    "wall clock": pa.array(INSTANTS, pa.timestamp("us")),
    "struct": pa.array(
        [
            {"a\"b\n": "x\ty", "n": None, "s": {"d": date(1970, 1, 2), "t": None}},
            {"a\"b\n": None, "n": 1, "s": None},
            None,
        ],
        pa.struct([
            ("a\"b\n", pa.string()),
            pa.field("n", pa.int32()),
            ("s", pa.struct([("d", pa.date32()), pa.field("t", pa.bool_())])),
        ]),
    ),
}  # fmt: skip


def no_spark() -> Any:
    raise AssertionError("Spark was asked for")


@pytest.mark.parametrize("converter", [PLAIN, WITH_SCHEMAS], ids=["plain", "with schemas"])
@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES.keys())
def test_json_of_plain_types_is_written_without_spark_with_the_same_bytes(
    spark: SparkSession, values: pa.Array, converter: JsonConverter
) -> None:
    without = encode(pa.table({"value": values}), KEY, converter, no_spark)["value"]
    frame = frame_of(pa.table({"value": values}), spark)
    by_spark = frame.select(converter.to_bytes(f.col("value"), frame.schema["value"].dataType).alias("value")).toArrow()
    assert without.to_pylist() == by_spark["value"].to_pylist()
    for text in without.drop_null().to_pylist():
        json.loads(text)


def test_other_kinds_of_arrow_text_are_written_as_text() -> None:
    plain = encode(pa.table({"value": pa.array(TEXTS)}), KEY, WITH_SCHEMAS, no_spark)
    for kind in (pa.dictionary(pa.int32(), pa.string()), pa.string_view()):
        values = pa.array(TEXTS).cast(kind)
        assert encode(pa.table({"value": values}), KEY, WITH_SCHEMAS, no_spark) == plain


def test_a_sliced_struct_is_written_from_its_own_start() -> None:
    values = pa.array([{"a": 1}, {"a": 2}, None, {"a": 4}]).slice(1, 2)
    assert encode(pa.table({"value": values}), KEY, PLAIN, no_spark)["value"].to_pylist() == [b'{"a":2}', None]


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32(), pa.decimal128(5, 2), pa.binary(), pa.list_(pa.int32())])
def test_what_only_java_can_spell_is_left_to_spark(kind: pa.DataType) -> None:
    assert PLAIN.needs_spark(kind)
    assert PLAIN.needs_spark(pa.struct([("a", pa.int32()), ("b", kind)]))


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


def test_times_of_the_worker_are_rounded_down() -> None:
    values = pa.array([-1, 1_999], pa.timestamp("us", "UTC"))
    assert encode(pa.table({"value": values}), KEY, PLAIN, no_spark)["value"].to_pylist() == [b"-1", b"1"]
