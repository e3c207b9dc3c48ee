"""Converters that need no Spark give exactly Kafka Connect's bytes."""

from __future__ import annotations

import struct
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from connectx.data.converter import Converter
from connectx.data.converters import decode, encode
from connectx.data.simple import (
    BooleanConverter,
    ByteArrayConverter,
    DoubleConverter,
    FloatConverter,
    IntegerConverter,
    LongConverter,
    ShortConverter,
    StringConverter,
)
from connectx.errors.plugins import ConfigError, ConversionError
from tests.support.shipped import CONVERTERS


def written(values: pa.Array, converter: Converter) -> list[bytes | None]:
    table = encode(pa.table({"value": values}), StringConverter(is_key=True), converter)
    return table["value"].to_pylist()  # type: ignore[no-any-return]


def read(records: list[bytes | None], converter: Converter) -> tuple[list[Any], list[str | None]]:
    table = pa.table({"key": pa.nulls(len(records), pa.binary()), "value": pa.array(records, pa.binary())})
    decoded = decode(table, StringConverter(is_key=True), converter)
    return decoded["value"].to_pylist(), decoded["error"].to_pylist()


def test_text_of_numbers_and_structs_is_javas() -> None:
    text = StringConverter()
    assert written(pa.array([1.0, 1e20, float("nan"), None]), text) == [b"1.0", b"1.0E20", b"NaN", None]
    assert written(pa.array([Decimal("1.50"), None]), text) == [b"1.50", None]
    kind = pa.struct([("a", pa.int32()), ("b", pa.string()), ("l", pa.list_(pa.int32())), ("d", pa.date32())])
    values = pa.array([{"a": 1, "b": None, "l": [1, None], "d": date(2024, 1, 2)}, {}, None], kind)
    assert written(values, text) == [b"Struct{a=1,l=[1, null],d=2024-01-02}", b"Struct{}", None]
    maps = pa.array([[("k", 1.5), ("n", None)], [], None], pa.map_(pa.string(), pa.float32()))
    assert written(maps, text) == [b"{k=1.5, n=null}", b"{}", None]


def test_text_of_times_is_iso_in_utc() -> None:
    instants = pa.array([0, 1_500_000, None], pa.timestamp("us", "America/New_York"))
    expected = [b"1970-01-01 00:00:00", b"1970-01-01 00:00:01.5", None]
    assert written(instants, StringConverter()) == expected
    assert written(instants.cast(pa.timestamp("us")), StringConverter()) == expected


@pytest.mark.parametrize("values", [pa.array([b"x"]), pa.array([timedelta(1)])], ids=["bytes", "duration"])
def test_a_type_without_a_text_form_is_refused(values: pa.Array) -> None:
    with pytest.raises(ConversionError, match="StringConverter cannot write"):
        written(values, StringConverter())


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())], ids=str
)
def test_text_of_every_arrow_kind_is_its_utf8(kind: pa.DataType) -> None:
    values = pa.array(["a", "é€😀", "", None], pa.string()).cast(kind)
    assert written(values, StringConverter()) == [b"a", "é€😀".encode(), b"", None]


def test_integers_and_booleans_are_spelled_as_in_java() -> None:
    assert written(pa.array([0, -(2**63), 2**63 - 1, None]), StringConverter()) == [
        b"0", b"-9223372036854775808", b"9223372036854775807", None,
    ]  # fmt: skip
    assert written(pa.array([True, False, None]), StringConverter()) == [b"true", b"false", None]


def test_broken_utf8_is_read_with_replacement_characters_as_in_java() -> None:
    values, errors = read([b"ok", b"a\xffb", b"\xe2\x82", None], StringConverter())
    assert values == ["ok", "a�b", "�", None]
    assert errors == [None] * 4


def test_only_utf8_is_offered() -> None:
    StringConverter({"converter.encoding": "utf8"})
    with pytest.raises(ConfigError, match=r"converter\.encoding"):
        StringConverter({"converter.encoding": "UTF-16"})


def test_bytes_pass_unchanged() -> None:
    raw = [b"\x00\xff", b"", None]
    for kind in (pa.binary(), pa.large_binary()):
        assert written(pa.array(raw, kind), ByteArrayConverter()) == raw
    assert read(raw, ByteArrayConverter()) == (raw, [None] * 3)


def test_bytes_are_not_made_of_anything_else() -> None:
    with pytest.raises(ConversionError, match=r"ByteArrayConverter .* string"):
        written(pa.array(["a"]), ByteArrayConverter())


@pytest.mark.parametrize(
    ("converter", "kind", "form", "values"),
    [
        (ShortConverter(), pa.int16(), ">h", [0, -1, 32767, -32768]),
        (IntegerConverter(), pa.int32(), ">i", [0, -1, 2**31 - 1, -(2**31)]),
        (LongConverter(), pa.int64(), ">q", [0, -1, 2**63 - 1, -(2**63)]),
        (FloatConverter(), pa.float32(), ">f", [0.0, -1.5, float("inf")]),
        (DoubleConverter(), pa.float64(), ">d", [0.0, -1.5, 5e-324]),
        (BooleanConverter(), pa.bool_(), ">?", [True, False]),
    ],
    ids=lambda case: getattr(case, "name", str(case)),
)
def test_numbers_are_big_endian_both_ways(
    converter: Converter, kind: pa.DataType, form: str, values: list[Any]
) -> None:
    records = [struct.pack(form, value) for value in values]
    assert written(pa.array([*values, None], kind), converter) == [*records, None]
    assert read([*records, None], converter) == ([*values, None], [None] * (len(values) + 1))
    decoded, errors = read([b"", b"\x01" * 9, records[0]], converter)
    assert decoded == [None, None, values[0]]
    assert [error is not None for error in errors] == [True, True, False]


def test_a_slice_of_an_array_is_written_and_read_from_its_own_start() -> None:
    values = pa.array([1, None, 3, 4], pa.int32()).slice(1, 2)
    assert written(values, IntegerConverter()) == [None, struct.pack(">i", 3)]
    records = pa.array([b"a", b"b", None, b"c"], pa.binary()).slice(1, 2)
    table = pa.table({"key": records, "value": records})
    decoded = decode(table, StringConverter(is_key=True), StringConverter())
    assert decoded["value"].to_pylist() == ["b", None]


@pytest.mark.parametrize(
    ("converter", "values"),
    [
        (IntegerConverter(), pa.array([2**31])),
        (ShortConverter(), pa.array([1.5])),
        (FloatConverter(), pa.array([1.1], pa.float64())),
        (LongConverter(), pa.array(["1"])),
        (BooleanConverter(), pa.array([1])),
    ],
)
def test_what_does_not_fit_is_refused_and_never_cut(converter: Converter, values: pa.Array) -> None:
    with pytest.raises(ConversionError, match="cannot write"):
        written(values, converter)


@pytest.mark.parametrize(
    "converter", [cls() for cls in CONVERTERS if not cls.by_topic], ids=lambda converter: converter.name
)
def test_null_is_a_tombstone_for_every_converter(converter: Converter) -> None:
    assert written(pa.nulls(2), converter) == [None, None]
    assert read([None, None], converter) == ([None, None], [None, None])


def test_other_columns_pass_and_times_become_milliseconds() -> None:
    headers = pa.array(
        [[{"key": "h", "value": b"1"}]], pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    )
    rows = pa.table({
        "key": ["k"],
        "value": ["v"],
        "topic": ["t"],
        "partition": pa.array([3], pa.int64()),
        "timestamp": pa.array([1_700_000_000_123_456], pa.timestamp("us", "UTC")),
        "headers": headers,
        "other": [1],
    })  # fmt: skip
    table = encode(rows, StringConverter(is_key=True), StringConverter())
    assert table.to_pylist() == [
        {
            "key": b"k",
            "value": b"v",
            "topic": "t",
            "partition": 3,
            "timestamp": 1_700_000_000_123,
            "headers": [{"key": "h", "value": b"1"}],
        }
    ]
    assert (table.schema.field("partition").type, table.schema.field("timestamp").type) == (pa.int32(), pa.int64())


def test_an_empty_table_stays_empty() -> None:
    empty = pa.table({"value": pa.array([], pa.string())})
    assert encode(empty, StringConverter(is_key=True), StringConverter()).num_rows == 0
    records = pa.table({"key": pa.array([], pa.binary()), "value": pa.array([], pa.binary())})
    for converter in (cls() for cls in CONVERTERS if not cls.by_topic):
        assert decode(records, StringConverter(is_key=True), converter).num_rows == 0
