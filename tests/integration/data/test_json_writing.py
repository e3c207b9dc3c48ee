"""JSON that Spark writes for connectx is the JSON that Kafka Connect writes."""

from __future__ import annotations

import base64
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as f

from connectx.data.converters import encode
from connectx.data.json.converter import JsonConverter
from connectx.data.simple import IntegerConverter, StringConverter
from connectx.errors import ConversionError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEY = StringConverter(is_key=True)
PLAIN = JsonConverter({"schemas.enable": "false"})
WITH_SCHEMAS = JsonConverter()


def written(spark: SparkSession, values: Any, converter: Any = PLAIN) -> list[Any]:
    table = encode(pa.table({"value": values}), KEY, converter, lambda: spark)
    return [None if value is None else value.decode() for value in table["value"].to_pylist()]


def unscaled(text: str) -> int:
    return int.from_bytes(base64.b64decode(text), "big", signed=True)


def test_single_values(spark: SparkSession) -> None:
    assert written(spark, pa.array([1, None])) == ["1", None]
    assert written(spark, pa.array(['a"\né', None])) == ['"a\\"\\né"', None]
    assert written(spark, pa.array([True])) == ["true"]
    assert written(spark, pa.array([1.5, float("nan"), float("inf")])) == ["1.5", '"NaN"', '"Infinity"']
    assert written(spark, pa.array([b"\xff\x00"])) == ['"/wA="']
    assert written(spark, pa.array([date(1970, 1, 2), date(1969, 12, 31)])) == ["1", "-1"]


def test_null_fields_are_written_and_rows_without_a_column_value_are_the_value(spark: SparkSession) -> None:
    table = encode(pa.table({"b": [1, None], "a": ["x", None], "key": ["k", None]}), KEY, PLAIN, lambda: spark)
    assert table.to_pylist() == [
        {"key": None, "value": b'{"b":1,"a":"x","key":"k"}'},
        {"key": None, "value": b'{"b":null,"a":null,"key":null}'},
    ]


def test_times_are_milliseconds_whatever_the_sessions_time_zone_is(spark: SparkSession) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "America/New_York")
    instants = [
        datetime(2024, 7, 1, 12, 0, 0, 999_999, tzinfo=UTC),
        datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC),
    ]
    walls = [datetime(2024, 3, 10, 2, 30, 0, 5000), datetime(1969, 12, 31, 23, 59, 59, 999_000)]
    for session_or_default in (spark, session):
        assert written(session_or_default, pa.array(instants, pa.timestamp("us", "UTC"))) == ["1719835200999", "-1"]
        assert written(session_or_default, pa.array(walls, pa.timestamp("us"))) == ["1710037800005", "-1"]


@pytest.mark.parametrize(("precision", "scale"), [(1, 0), (10, 2), (18, 18), (19, 0), (38, 0), (38, 10), (38, 36)])
def test_decimals_are_base64_of_their_shortest_unscaled_bytes(spark: SparkSession, precision: int, scale: int) -> None:
    random = Random(precision * 100 + scale)
    limit = 10**precision
    edges = [sign * (256**power // 2 + delta) for power in range(1, 16) for sign in (1, -1) for delta in (-1, 0, 1)]
    numbers = [n for n in (0, 1, -1, limit - 1, 1 - limit, *edges) if abs(n) < limit]
    numbers += [random.randrange(-limit + 1, limit) // 10 ** random.randrange(precision) for _ in range(200)]
    values = [Decimal(f"{number}E-{scale}") for number in numbers]
    texts = written(spark, pa.array([*values, None], pa.decimal128(precision, scale)))
    assert texts.pop() is None
    found = [json.loads(text) for text in texts]
    assert [unscaled(text) for text in found] == numbers
    shortest = [
        number.to_bytes((number + (number < 0)).bit_length() // 8 + 1, "big", signed=True) for number in numbers
    ]
    assert [base64.b64decode(text) for text in found] == shortest


def test_decimals_can_be_numbers(spark: SparkSession) -> None:
    numeric = JsonConverter({"schemas.enable": "false", "decimal.format": "numeric"})
    values = pa.array([Decimal("1.50"), Decimal("-12345678.90")], pa.decimal128(10, 2))
    assert [Decimal(text) for text in written(spark, values, numeric)] == [Decimal("1.50"), Decimal("-12345678.90")]


def test_what_connect_spells_otherwise_is_found_inside_of_everything(spark: SparkSession) -> None:
    kind = pa.struct([("l", pa.list_(pa.date32())), ("m", pa.map_(pa.string(), pa.struct([("d", pa.date32())])))])
    day = date(1970, 1, 11)
    values = pa.array([{"l": [day, None], "m": [("a b", {"d": day})]}, {"l": None, "m": []}, None], kind)
    assert written(spark, values) == ['{"l":[10,null],"m":{"a b":{"d":10}}}', '{"l":null,"m":{}}', None]


def test_field_names_may_hold_anything(spark: SparkSession) -> None:
    kind = pa.struct([("a.b", pa.date32()), ("c d", pa.int32()), ("`e`", pa.string())])
    values = pa.array([{"a.b": date(1970, 1, 2), "c d": 1, "`e`": "x"}], kind)
    assert [json.loads(text) for text in written(spark, values)] == [{"a.b": 1, "c d": 1, "`e`": "x"}]


def test_with_schemas_each_value_is_in_an_envelope_and_null_stays_a_tombstone(spark: SparkSession) -> None:
    row = pa.array([{"id": 1}, None], pa.struct([pa.field("id", pa.int64(), nullable=False)]))
    assert written(spark, row, WITH_SCHEMAS) == [
        '{"schema":{"type":"struct","fields":[{"type":"int64","optional":false,"field":"id"}],"optional":false},'
        '"payload":{"id":1}}',
        None,
    ]
    assert written(spark, pa.array(["é"]), WITH_SCHEMAS) == [
        '{"schema":{"type":"string","optional":false},"payload":"é"}'
    ]


@pytest.mark.parametrize(
    "values",
    [
        pa.array([[(1, "a")]], pa.map_(pa.int32(), pa.string())),
        pa.array([{"x": 1}], pa.struct([("x", pa.duration("us"))])),
    ],
    ids=["map with integer keys", "interval in a struct"],
)
def test_a_type_that_json_does_not_have_is_refused(spark: SparkSession, values: pa.Array) -> None:
    with pytest.raises(ConversionError, match="JsonConverter cannot write"):
        written(spark, values)


def test_text_of_numbers_and_structs_is_javas(spark: SparkSession) -> None:
    assert written(spark, pa.array([1.0, 1e20, float("nan"), None]), StringConverter()) == [
        "1.0",
        "1.0E20",
        "NaN",
        None,
    ]
    kind = pa.struct([("a", pa.int32()), ("b", pa.string()), ("l", pa.list_(pa.int32())), ("d", pa.date32())])
    values = pa.array([{"a": 1, "b": None, "l": [1, None], "d": date(2024, 1, 2)}, None], kind)
    assert written(spark, values, StringConverter()) == ["Struct{a=1,l=[1, null],d=2024-01-02}", None]
    with pytest.raises(ConversionError, match="StringConverter cannot write"):
        written(spark, pa.array([b"x"]), StringConverter())


def test_a_data_frame_is_evaluated_with_its_converters_in_order(spark: SparkSession) -> None:
    frame = spark.range(1000).select(
        f.col("id").cast("int").alias("key"),
        f.struct(f.col("id"), f.concat(f.lit("n"), f.col("id")).alias("name")).alias("value"),
        f.lit("t").alias("topic"),
    )
    table = encode(frame, IntegerConverter(is_key=True), PLAIN, lambda: spark)
    assert table.column_names == ["key", "value", "topic"]
    assert table["key"].to_pylist() == [number.to_bytes(4, "big") for number in range(1000)]
    assert table["value"].to_pylist() == [b'{"id":%d,"name":"n%d"}' % (number, number) for number in range(1000)]


def test_a_data_frame_without_a_column_value_is_the_value(spark: SparkSession) -> None:
    table = encode(spark.range(2).withColumn("topic", f.lit("x")), KEY, PLAIN, lambda: spark)
    assert table.to_pylist() == [
        {"key": None, "value": b'{"id":0,"topic":"x"}'},
        {"key": None, "value": b'{"id":1,"topic":"x"}'},
    ]


def test_a_large_table_keeps_its_order(spark: SparkSession) -> None:
    rows = pa.table({"value": pa.array(range(200_000))})
    table = encode(rows, KEY, PLAIN, lambda: spark)
    assert table["value"].to_pylist() == [b"%d" % number for number in range(200_000)]
