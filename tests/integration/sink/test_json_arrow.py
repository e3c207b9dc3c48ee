"""JSON read by Arrow in the worker is what Spark reads, or is left to Spark."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from connectx.data.json.arrow import read_json
from connectx.data.json.converter import JsonConverter
from connectx.data.reading import read_columns

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

CONVERTER = JsonConverter({"schemas.enable": "false"})


def target() -> StructType:
    from pyspark.sql import types as t

    return t.StructType(
        [
            t.StructField("s", t.StringType()),
            t.StructField("y", t.ByteType()),
            t.StructField("h", t.ShortType()),
            t.StructField("i", t.IntegerType()),
            t.StructField("l", t.LongType()),
            t.StructField("f", t.FloatType()),
            t.StructField("d", t.DoubleType()),
            t.StructField("b", t.BooleanType()),
            t.StructField("date", t.DateType()),
            t.StructField("ts", t.TimestampType()),
            t.StructField("ntz", t.TimestampNTZType()),
        ]
    )


def by_spark(spark: SparkSession, records: list[bytes | None]) -> tuple[pa.Array, list[str | None]]:
    """What `from_bytes` gives: values and errors."""
    from pyspark.sql import functions as f

    frame = spark.createDataFrame(pa.table({"record": pa.array(records, pa.binary())}))
    read = CONVERTER.from_bytes(f.col("record"), target())
    table = frame.select(read.alias("read")).select("read.value", "read.error").toArrow()
    return table["value"].combine_chunks(), table["error"].to_pylist()


GOOD = [
    b'{"s":"x","h":1,"i":-2,"l":9007199254740993,"d":0.1,"b":true,"date":19000,"ts":1357016400123,"ntz":-1}',
    b"{}",
    b'  {\n "l" : 7 }  ',
    b'{"s":"\\u00e9\\n\\"","unknown":{"deep":[1,2]},"d":1}',
    '{"s":"\u65e5\u672c \U0001f600"}'.encode(),
    b'{"d":1e-400,"s":null}',
    b'{"date":-1,"ts":0,"y":-128}',
    b'{"f":0.1}',
    b'{"f":16777217.0000001}',
    b'{"f":1e-46}',
    b'{"d":123456789.123456789e-5}',
]
DOUBTFUL = [
    *(b"null", b"5", b"[]", b'"text"', b"", b" ", b"{", b'{"l":1}{"l":2}', b'{"l":1},"x":5', b'{"l":1},"v":{"l":2}'),
    *(b'{"l":1}}\n{"v":{"l":2}', b'{"l":1.0}', b'{"l":"1"}', b'{"l":1e2}', b'{"s":5}', b'{"d":NaN}', b'{"d":"NaN"}'),
    *(b'{"d":1e999}', b'{"d":-Infinity}', b'{"s":"\xff"}', b'{"l":9223372036854775808}', b'{"h":40000}', b'{"b":1}'),
    *(b'{"l":1,"l":2}', b'{"l":1,}', b"{'l':1}", b'{"l":01}', b'{"ts":"2013-01-01T05:00:00Z"}', b'{"s":{"a":1}}'),
    *(b'{"date":"2013-01-01"}', b'{"date":3000000}', b'{"ts":1000000000000000}', b'{"ntz":1.5}', b'{"s":"a\tb"}'),
]


def test_what_arrow_reads_is_what_spark_reads(spark: SparkSession) -> None:
    records: list[bytes | None] = [*GOOD, None, GOOD[0]]
    mine = read_json(pa.array(records, pa.binary()), target())
    theirs, errors = by_spark(spark, records)
    assert errors == [None] * len(records)
    assert mine is not None
    assert mine.type == theirs.type
    assert mine.to_pylist() == theirs.to_pylist()


@pytest.mark.parametrize("record", DOUBTFUL)
def test_a_batch_with_anything_doubtful_is_left_to_spark(record: bytes) -> None:
    assert read_json(pa.array([GOOD[0], record], pa.binary()), target()) is None


def test_types_that_arrow_reads_otherwise_are_left_to_spark() -> None:
    from pyspark.sql import types as t

    records = pa.array([b"{}"], pa.binary())
    assert read_json(records, None) is None
    assert read_json(records, t.StringType()) is None
    for kind in (t.DecimalType(5, 2), t.BinaryType(), t.ArrayType(t.LongType())):
        assert read_json(records, t.StructType([t.StructField("x", kind)])) is None
    with_default = t.StructField("x", t.LongType(), metadata={"connect.default": 5})
    assert read_json(records, t.StructType([with_default])) is None


def test_a_missing_required_field_is_left_to_spark() -> None:
    from pyspark.sql import types as t

    required = t.StructType([t.StructField("x", t.LongType(), nullable=False)])
    assert read_json(pa.array([b'{"x":1}', b"{}"], pa.binary()), required) is None
    read = read_json(pa.array([b'{"x":1}'], pa.binary()), required)
    assert read is not None
    assert read.to_pylist() == [{"x": 1}]


# ----------------------------------------------------------------------------------------------------- with schemas

SCHEMA = (
    b'{"type":"struct","optional":true,"fields":[{"field":"id","type":"int64","optional":false},'
    b'{"field":"name","type":"string","optional":true},'
    b'{"field":"at","type":"int64","optional":true,"name":"org.apache.kafka.connect.data.Timestamp","version":1}]}'
)


def enveloped(*payloads: bytes, schema: bytes = SCHEMA) -> list[bytes | None]:
    return [b'{"schema":%s,"payload":%s}' % (schema, payload) for payload in payloads]


def test_records_of_one_schema_are_what_spark_reads(spark: SparkSession) -> None:
    converter = JsonConverter({})
    records = [*enveloped(b'{"id":1,"name":"x","at":1357016400000}', b' {"id":2} '), None]
    mine = converter.try_from_bytes_arrow(pa.array(records, pa.binary()), None)
    assert mine is not None
    doubtful = [*records, *enveloped(b'{"id":3}', schema=SCHEMA.replace(b"true", b" true"))]
    theirs = read_columns([(pa.array(doubtful, pa.binary()), converter, None)], lambda: spark)[0]
    assert converter.try_from_bytes_arrow(pa.array(doubtful, pa.binary()), None) is None
    assert mine.value.type == theirs.value.type
    assert mine.value.to_pylist() == theirs.value.to_pylist()[:3]


@pytest.mark.parametrize(
    "record",
    [
        *enveloped(b"null", b'{"id":1},"x":5', b'{"id":1},"payload":{"id":2}', b'{"name":"no id"}', b'{"id":"1"}'),
        b'{"schema":%s,"payload":{"id":1}} ' % SCHEMA,
        b'{"payload":{"id":1},"schema":%s}' % SCHEMA,
        b'{"schema":%s}' % SCHEMA,
        b'{"schema":null,"payload":{"id":1}}',
        b'{"id":1}',
        b"5",
        b"",
    ],
)
def test_anything_else_with_schemas_is_left_to_spark(record: bytes) -> None:
    converter = JsonConverter({})
    for records in ([record], [*enveloped(b'{"id":1}'), record]):
        assert converter.try_from_bytes_arrow(pa.array(records, pa.binary()), None) is None


def test_sliced_and_empty_batches() -> None:
    records = pa.array([b"{", None, *GOOD, b"{"], pa.binary()).slice(1, len(GOOD) + 1)
    read = read_json(records, target())
    assert read is not None
    assert read.to_pylist()[0] is None
    assert read.to_pylist()[1]["s"] == "x"
    assert len(read_json(pa.array([], pa.binary()), target()) or []) == 0
    read = read_json(pa.array([None], pa.binary()), target())
    assert read is not None
    assert read.to_pylist() == [None]


def mutated() -> st.SearchStrategy[bytes]:
    """Documents with a few bytes changed, cut or repeated."""
    pieces = st.sampled_from(
        [b'"', b"{", b"}", b",", b":", b"1", b"null", b"\\", b" ", b"\n", b"e5", b"-", b"\x00", b"[", b"]"]
    )

    @st.composite
    def mutate(draw: st.DrawFn) -> bytes:
        text = draw(st.sampled_from(GOOD))
        for _ in range(draw(st.integers(1, 3))):
            at = draw(st.integers(0, len(text)))
            text = text[:at] + draw(pieces) + text[at + draw(st.integers(0, 2)) :]
        return text

    return mutate()


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(mutated(), min_size=200, max_size=200))
def test_mutated_documents_are_never_read_otherwise_than_by_spark(spark: SparkSession, records: list[bytes]) -> None:
    theirs, errors = by_spark(spark, list(records))
    values = theirs.to_pylist()
    for record, value, error in zip(records, values, errors, strict=True):
        mine = read_json(pa.array([record], pa.binary()), target())
        if mine is not None:
            assert error is None, record
            assert mine.to_pylist() == [value], record


def test_several_rows_per_document_cannot_make_up_for_each_other() -> None:
    pairs = itertools.product(DOUBTFUL, DOUBTFUL)
    assert [pair for pair in pairs if read_json(pa.array(pair, pa.binary()), target()) is not None] == []
