"""Texts of PostgreSQL's types become Debezium's forms."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from connectx.connectors.cdc.values import Modes, array_type, column_type, enum_type, hstore_type
from connectx.connectors.shared.unavailable import PLACEHOLDER, unavailable
from connectx.data.connect_schema import schema_of
from connectx.errors.databases import ReplicationMessageError, TableMismatchError

DAY_US = 86_400_000_000


def read(oid: int, texts: list[str | None], modifier: int = -1, **modes: Any) -> list[Any]:
    kind = column_type(oid, modifier, Modes(**modes), "public.t.c")
    array = kind.values(pa.array(texts, pa.string()), "public.t.c")
    assert array.type == kind.arrow
    found: list[Any] = array.to_pylist()
    return found


@pytest.mark.parametrize(
    ("oid", "texts", "values"),
    [
        (16, ["t", "f", None, "true", "false"], [True, False, None, True, False]),
        (21, ["-32768", None], [-32768, None]),
        (23, ["2147483647"], [2147483647]),
        (20, ["-9223372036854775808"], [-9223372036854775808]),
        (26, ["4294967295"], [4294967295]),
        (700, ["1.5", "Infinity"], [1.5, float("inf")]),
        (701, ["0.1", "-Infinity", None], [0.1, float("-inf"), None]),
        (25, ["", "é", None], ["", "é", None]),
        (17, ["\\x0aff", "\\x", None], [b"\x0a\xff", b"", None]),
        (1082, ["1970-01-02", "1969-12-31", None], [1, -1, None]),
        (1082, ["1970-01-02", None, "infinity", "-infinity", "0001-12-31 BC", "4713-01-01 BC", "10000-01-01",
                "5874897-12-31"],
         [1, None, -2147472692, -2147472691, -719_163, -2_440_550, 2_932_897, 2_145_042_905]),
        (1083, ["01:02:03.000004", "24:00:00", None], [3_723_000_004, DAY_US, None]),
        (1114, ["1970-01-01 00:00:01.5", "1969-12-31 23:59:59", None], [1_500_000, -1_000_000, None]),
        (1114, ["infinity", "-infinity", "1970-01-01 00:00:00"], [9223372036825200000, -9223372036832400000, 0]),
        (1114, ["0001-12-31 23:59:59.5 BC", None, "10000-01-01 00:00:00"],
         [-719_162 * DAY_US - 500_000, None, 2_932_897 * DAY_US]),
        (1184, ["2026-01-02 03:04:05+00", "2026-01-02 03:04:05.12+00", None, "infinity"],
         ["2026-01-02T03:04:05.000000Z", "2026-01-02T03:04:05.120000Z", None, "infinity"]),
        (1184, ["0044-03-15 01:02:03.5+00 BC", "0001-01-01 00:00:00+00 BC", "10000-01-01 00:00:00+00", "-infinity"],
         ["-0043-03-15T01:02:03.500000Z", "0000-01-01T00:00:00.000000Z", "+10000-01-01T00:00:00.000000Z", "-infinity"]),
        (1266, ["10:00:00+02", "23:30:00.5-01:30", None], ["08:00:00Z", "01:00:00.5Z", None]),
        (1186, ["1 mon", "-1 days +02:03:04.5", "00:00:00", None],
         [2_629_800_000_000, -DAY_US + 7_384_500_000, 0, None]),
        (2950, ["6ba7b810-9dad-11d1-80b4-00c04fd430c8"], ["6ba7b810-9dad-11d1-80b4-00c04fd430c8"]),
        (3802, ['{"a": 1}'], ['{"a": 1}']),
        (1007, ["{1,NULL,3}", "{}", None], [[1, None, 3], [], None]),
        (1009, ['{a,"b,c",NULL,"NULL","q\\"\\\\x"}', "[2:3]={x,y}"],
         [["a", "b,c", None, "NULL", 'q"\\x'], ["x", "y"]]),
        (1115, ['{"1970-01-01 00:00:01"}'], [[1_000_000]]),
        (1182, ["{infinity,1970-01-02}"], [[-2147472692, 1]]),
        (1000, ["{t,f}"], [[True, False]]),
        (1562, ["", "1", "100000001", None], [b"", b"\x01", b"\x01\x01", None]),
        (99_999, ["anything"], ["anything"]),
    ],
)  # fmt: skip
def test_texts_become_values(oid: int, texts: list[str | None], values: list[Any]) -> None:
    assert read(oid, texts) == values


def test_numeric_is_a_decimal_of_its_precision_or_a_struct_without_one() -> None:
    modifier = (10 << 16 | 2) + 4
    assert read(1700, ["1.50", "-0.05", None], modifier) == [Decimal("1.50"), Decimal("-0.05"), None]
    assert read(1700, ["123.456", "-1", "0", None]) == [
        {"scale": 3, "value": (123456).to_bytes(3, "big")},
        {"scale": 0, "value": b"\xff"},
        {"scale": 0, "value": b"\0"},
        None,
    ]
    assert read(1700, ["1e3"]) == [{"scale": 0, "value": (1000).to_bytes(2, "big")}]
    special = ["1.50", "NaN", "Infinity", "-Infinity", None]
    names = ["1.50", "NAN", "POSITIVE_INFINITY", "NEGATIVE_INFINITY", None]
    assert read(1700, special, modifier, decimals="string") == names
    assert read(1231, ["{NaN,1.50}"], decimals="string") == [["NAN", "1.50"]]
    assert read(1700, ["1.50"], modifier, decimals="double") == [1.5]


def test_a_long_numeric_keeps_all_digits() -> None:
    for whole, fraction in ((60, 20), (5_000, 16_383)):  # Python converts texts of 4,300 digits to int
        (found,) = read(1700, [f"-{'9' * whole}.{'1' * fraction}"])
        expected = -(10**whole - 1) * 10**fraction - (10**fraction - 1) // 9
        assert (int.from_bytes(found["value"], "big", signed=True), found["scale"]) == (expected, fraction)


def test_one_bit_is_a_boolean_and_more_are_bytes_with_the_lowest_first() -> None:
    assert read(1560, ["1", "0", None], 1) == [True, False, None]
    assert read(1560, ["0001000000001", "0000000000000"], 13) == [b"\x01\x02", b""]


MONEY = ["$1,234.55", "-$0.05", "($3.00)", "€92,233,720,368,547,758.07", "¥1,234", None]


@pytest.mark.parametrize(
    ("mode", "digits", "values"),
    [
        ("precise", 2, [Decimal(text) for text in ("1234.55", "-0.05", "-3.00", "92233720368547758.07", "1234.00")]),
        ("precise", 1, [Decimal(text) for text in ("1234.6", "-0.1", "-3.0", "92233720368547758.1", "1234.0")]),
        ("string", 1, ["1234.55", "-0.05", "-3.00", "92233720368547758.07", "1234"]),
        ("double", 1, [1234.55, -0.05, -3.0, 92233720368547758.07, 1234.0]),
    ],
)
def test_money_is_a_number_in_the_form_of_decimals(mode: str, digits: int, values: list[Any]) -> None:
    kind = column_type(790, -1, Modes(decimals=mode, money_digits=digits), "t.c")
    assert kind.values(pa.array(MONEY), "t.c").to_pylist() == [*values, None]


@pytest.mark.parametrize(
    ("mode", "values", "unavailable"),
    [
        ("json", ['{"a":"1","b\\"é":null,"c":"x=>\\\\y, \\"z\\""}', "{}", None], '{"gone":"gone"}'),
        ("map", [[("a", "1"), ('b"é', None), ("c", 'x=>\\y, "z"')], [], None], [("gone", "gone")]),
    ],
)
def test_an_hstore_is_json_or_a_map(mode: str, values: list[Any], unavailable: Any) -> None:
    kind = hstore_type(Modes(hstore=mode, placeholder="gone"))
    texts = ['"a"=>"1", "b\\"é"=>NULL, "c"=>"x=>\\\\y, \\"z\\""', "", None]
    assert kind.values(pa.array(texts), "t.c").to_pylist() == values
    assert kind.values(pa.array(texts), "t.c", np.array([True, False, False])).to_pylist() == [unavailable, *values[1:]]
    assert array_type(kind, Modes()).values(pa.array(['{"\\"a\\"=>\\"1\\"",NULL}']), "t.c").to_pylist() == [
        ['{"a":"1"}' if mode == "json" else [("a", "1")], None]
    ]


@pytest.mark.parametrize("modifier", [-1, (10 << 16 | 2) + 4])
def test_nan_is_refused_in_precise_mode(modifier: int) -> None:
    expected = r"public\.t\.c.*decimal\.handling\.mode=precise.*NaN.*Change decimal\.handling\.mode.*column\.exclude"
    with pytest.raises(ReplicationMessageError, match=expected):
        read(1700, ["1", "NaN"], modifier)


def test_a_precision_that_no_decimal_has_is_refused() -> None:
    with pytest.raises(TableMismatchError, match=r"numeric\(50,2\)"):
        column_type(1700, (50 << 16 | 2) + 4, Modes(), "t.c")


@pytest.mark.parametrize(
    ("oid", "modifier", "mode", "text", "value"),
    [
        (1114, 3, "adaptive", "1970-01-01 00:00:01.5", 1500),
        (1114, 3, "adaptive_time_microseconds", "1970-01-01 00:00:01.5", 1500),
        (1083, 3, "adaptive", "00:00:01.5", 1500),
        (1083, 3, "adaptive_time_microseconds", "00:00:01.5", 1_500_000),
        (1083, -1, "connect", "00:00:01.5", 1500),
        (1184, 3, "adaptive", "2026-01-02 03:04:05.5+00", "2026-01-02T03:04:05.500Z"),
        (1184, 0, "adaptive", "2026-01-02 03:04:05+00", "2026-01-02T03:04:05Z"),
        (1082, -1, "connect", "1970-01-02", datetime.date(1970, 1, 2)),
        (1114, -1, "connect", "1970-01-01 00:00:01.0005", datetime.datetime(1970, 1, 1, 0, 0, 1)),
        (1114, -1, "connect", "1969-12-31 23:59:59.9995", datetime.datetime(1969, 12, 31, 23, 59, 59, 999_000)),
        (1114, 3, "adaptive", "infinity", 9_223_372_036_825_200),
    ],
)
def test_precision_and_mode_decide_units_of_time(oid: int, modifier: int, mode: str, text: str, value: object) -> None:
    assert read(oid, [text], modifier, times=mode) == [value]


def test_bytes_are_hexadecimal_on_demand() -> None:
    assert read(17, ["\\x0aff"], binary="hex") == ["0aff"]


@pytest.mark.parametrize(
    ("oids", "expected"),
    [
        ((25, 1043, 114, 3802, 142, 3614, 99_999), PLACEHOLDER),
        ((17,), PLACEHOLDER.encode()),
        ((1009, 1015, 1014, 199, 3807, 143, 1041, 3905, 1185), [PLACEHOLDER]),
        ((1001,), [PLACEHOLDER.encode()]),
        ((1005, 1007, 1016, 1028, 1021, 1022, 1182, 1183, 1115, 1187), list(PLACEHOLDER.encode())),
        ((2951,), ["b68a35a7-17ad-35b3-af2a-ae46edb4545a"]),
        ((1000,), [bool(byte >> bit & 1) for byte in PLACEHOLDER.encode() for bit in range(7, -1, -1)]),
        ((1700,), {"scale": 0, "value": PLACEHOLDER.encode()}),
        ((1231,), [{"scale": 0, "value": PLACEHOLDER.encode()}]),
    ],
    ids=str,
)
@pytest.mark.parametrize("mode", ["adaptive", "connect"])
def test_an_unchanged_value_is_a_placeholder_that_a_sink_finds(oids: tuple[int, ...], expected: Any, mode: str) -> None:
    for oid in oids:
        kind = column_type(oid, -1, Modes(times=mode), "t.c")
        found = kind.values(pa.nulls(2, pa.binary()), "t.c", np.array([True, False]))
        assert unavailable(found).to_pylist() == [True, False]
        if mode == "adaptive":
            assert found.to_pylist() == [expected, None]


@pytest.mark.parametrize(("oid", "modifier"), [(1231, (4 << 16 | 2) + 4), (1700, (38 << 16) + 4), (20, -1)])
def test_an_unchanged_value_without_a_placeholder_is_refused(oid: int, modifier: int) -> None:
    kind = column_type(oid, modifier, Modes(), "t.c")
    with pytest.raises(ReplicationMessageError, match=r"t\.c"):
        kind.values(pa.nulls(2, pa.binary()), "t.c", np.array([True, False]))


def test_an_array_of_an_enum_names_its_labels_and_has_required_elements() -> None:
    kind = array_type(enum_type("ok,bad", Modes()), Modes(), has_nulls=False)
    assert kind.convert(pa.array(["{ok,bad}"])).to_pylist() == [["ok", "bad"]]
    assert schema_of(kind.arrow)["items"] == {
        "type": "string",
        "optional": False,
        "name": "io.debezium.data.Enum",
        "version": 1,
        "parameters": {"allowed": "ok,bad"},
    }


@pytest.mark.parametrize(
    ("oid", "modifier", "mode", "name"),
    [
        (1082, -1, "adaptive", "io.debezium.time.Date"),
        (1083, 3, "adaptive", "io.debezium.time.Time"),
        (1083, -1, "adaptive", "io.debezium.time.MicroTime"),
        (1083, -1, "connect", "org.apache.kafka.connect.data.Time"),
        (1114, 3, "adaptive", "io.debezium.time.Timestamp"),
        (1114, -1, "adaptive", "io.debezium.time.MicroTimestamp"),
        (1114, -1, "connect", "org.apache.kafka.connect.data.Timestamp"),
        (1184, -1, "adaptive", "io.debezium.time.ZonedTimestamp"),
        (1266, -1, "adaptive", "io.debezium.time.ZonedTime"),
        (1186, -1, "adaptive", "io.debezium.time.MicroDuration"),
        (1700, -1, "adaptive", "io.debezium.data.VariableScaleDecimal"),
        (2950, -1, "adaptive", "io.debezium.data.Uuid"),
        (3802, -1, "adaptive", "io.debezium.data.Json"),
        (142, -1, "adaptive", "io.debezium.data.Xml"),
        (1560, 3, "adaptive", "io.debezium.data.Bits"),
        (1560, 1, "adaptive", None),
        (790, -1, "adaptive", "org.apache.kafka.connect.data.Decimal"),
        (25, -1, "adaptive", None),
    ],
)
def test_schemas_have_the_names_of_debezium(oid: int, modifier: int, mode: str, name: str | None) -> None:
    field = column_type(oid, modifier, Modes(times=mode), "t.c").field("c", is_nullable=True)
    (found,) = schema_of(pa.struct([field]))["fields"]
    assert found.get("name") == name


@pytest.mark.parametrize(
    ("oid", "text", "cause"),
    [
        (1007, "{{1,2},{3,4}}", "several dimensions"),
        (1114, "294276-12-31 00:00:00", r"time\.precision\.mode=adaptive"),
        (1186, "infinity", "interval 'infinity'"),
        (23, "x", "x"),
        (790, "$12,50", r"\$12,50 is not written as 1,234\.50, which lc_monetary"),
    ],
)
def test_a_value_that_no_record_represents_is_refused_with_its_column(oid: int, text: str, cause: str) -> None:
    with pytest.raises(ReplicationMessageError, match=rf"column public\.t\.c .*{cause}.*column\.exclude\.list"):
        read(oid, [text])
