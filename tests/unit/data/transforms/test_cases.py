"""Each provided transformation gives what the Java class of its name gives, case by case."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from connectx.data.connect_schema import TIME_NAME, SchemaName
from connectx.data.json.converter import JsonConverter
from connectx.data.transforms.chain import Chain, Step, in_order
from connectx.data.transforms.columns import HEADERS
from tests.support.shipped import PACKAGE, TRANSFORMS

STAMP_MS = 1_483_425_001_864  # 2017-01-03T06:30:01.864Z


@dataclass
class Case:
    """A record, a transformation, and what becomes of `column`."""

    name: str
    settings: dict[str, str]
    given: Any
    wanted: Any
    column: str = "value"
    key: Any = None
    headers: Any = None
    topic: str = "test"
    kind: Any = None
    timestamp: int | None = STAMP_MS
    wanted_type: Any = None
    extra: dict[str, Any] = field(default_factory=dict)


def table(case: Case) -> pa.Table:
    return pa.table(
        {
            "topic": pa.array([case.topic], pa.string()),
            "partition": pa.array([7], pa.int32()),
            "offset": pa.array([42], pa.int64()),
            "timestamp": pa.array([case.timestamp], pa.int64()),
            "key": pa.array([case.key]),
            "value": pa.array([case.given], case.kind),
            "headers": pa.array([case.headers], HEADERS),
        }
    )


def transformed(name: str, settings: dict[str, str], rows: pa.Table) -> pa.Table:
    outcome = Chain((Step("t", TRANSFORMS[PACKAGE + name](settings)),)).apply(rows)
    assert not outcome.failures, outcome.failures[0].message
    return in_order(outcome.parts)


MOMENT = datetime(2017, 1, 3, 6, 30, 1, 864000, tzinfo=UTC)
WIDE = pa.struct([("i8", pa.int8()), ("i64", pa.int64()), ("f", pa.float64()), ("b", pa.bool_()), ("s", pa.string())])
CASES = [
    Case(
        "InsertField$Value",
        {
            "topic.field": "topic_field!",
            "partition.field": "partition_field",
            "offset.field": "offset_field",
            "timestamp.field": "timestamp_field?",
            "static.field": "instance_id",
            "static.value": "my-instance-id",
        },
        {"magic": 42},
        {
            "magic": 42,
            "topic_field": "test",
            "partition_field": 7,
            "offset_field": 42,
            "timestamp_field": MOMENT,
            "instance_id": "my-instance-id",
        },
    ),
    Case("InsertField$Value", {"static.field": "x", "static.value": "y"}, None, None),
    Case("InsertField$Key", {"topic.field": "t"}, None, {"id": 1, "t": "test"}, column="key", key={"id": 1}),
    Case(
        "ReplaceField$Value",
        {"exclude": "dont", "renames": "abc:xyz,foo:bar"},
        {"dont": "whatever", "abc": 42, "foo": True, "etc": "etc"},
        {"xyz": 42, "bar": True, "etc": "etc"},
    ),
    Case("ReplaceField$Value", {"include": "a,b", "exclude": "b"}, {"a": 1, "b": 2, "c": 3}, {"a": 1}),
    Case("ReplaceField$Value", {"exclude": "a"}, {"a": 1}, {}),
    Case("ReplaceField$Value", {"exclude": "a"}, None, None),
    Case(
        "MaskField$Value",
        {"fields": "i8,i64,f,b,s"},
        {"i8": 8, "i64": 64, "f": 1.5, "b": True, "s": "hello"},
        {"i8": 0, "i64": 0, "f": 0.0, "b": False, "s": ""},
        kind=WIDE,
    ),
    Case("MaskField$Value", {"fields": "s", "replacement": "***"}, {"s": "secret", "n": 1}, {"s": "***", "n": 1}),
    Case("MaskField$Value", {"fields": "n", "replacement": "-7"}, {"n": 12}, {"n": -7}),
    Case("MaskField$Value", {"fields": "s"}, {"s": None}, {"s": None}, kind=pa.struct([("s", pa.string())])),
    Case("MaskField$Value", {"fields": "l"}, {"l": [1, 2]}, {"l": []}),
    Case(
        "MaskField$Value",
        {"fields": "t,d,x"},
        {"t": MOMENT, "d": date(2017, 1, 3), "x": Decimal("1.50")},
        {"t": datetime(1970, 1, 1, tzinfo=UTC), "d": date(1970, 1, 1), "x": Decimal("0.00")},
        kind=pa.struct([("t", pa.timestamp("us", "UTC")), ("d", pa.date32()), ("x", pa.decimal128(5, 2))]),
    ),
    Case("ValueToKey", {"fields": "b,a"}, {"a": 1, "b": 2, "c": 3}, {"b": 2, "a": 1}, column="key"),
    Case("ExtractField$Value", {"field": "magic"}, {"magic": 42}, 42),
    Case("ExtractField$Key", {"field": "id"}, None, "a", column="key", key={"id": "a"}),
    Case("ExtractField$Value", {"field": "magic"}, None, None),
    Case("ExtractField$Value", {"field": "a.b", "field.syntax.version": "V2"}, {"a": {"b": 3}}, 3),
    Case("ExtractField$Value", {"field": "a.b", "field.syntax.version": "V1"}, {"a.b": 3}, 3),
    Case("ExtractField$Value", {"field": "`a.b`.c", "field.syntax.version": "V2"}, {"a.b": {"c": 3}}, 3),
    Case("ExtractField$Value", {"field": "a..`b\\`.c`d`", "field.syntax.version": "V2"}, {"a": {"": {"b`.c`d": 3}}}, 3),
    Case("ExtractField$Value", {"field": "`a`.", "field.syntax.version": "V2"}, {"a": {"": 3}}, 3),
    Case("HoistField$Value", {"field": "magic"}, 42, {"magic": 42}),
    Case("HoistField$Value", {"field": "magic"}, None, {"magic": None}),
    Case("Flatten$Value", {}, {"A": {"B": {"x": 1}, "y": "z"}, "w": True}, {"A.B.x": 1, "A.y": "z", "w": True}),
    Case("Flatten$Value", {"delimiter": "#"}, {"A": {"B": [1, 2]}}, {"A#B": [1, 2]}),
    Case(
        "Flatten$Value",
        {},
        {"A": None},
        {"A.x": None},
        kind=pa.struct([("A", pa.struct([pa.field("x", pa.int32(), nullable=False)]))]),
        wanted_type=pa.struct([("A.x", pa.int32())]),
    ),
    Case(
        "RegexRouter", {"regex": "(.*)-(.*)-(\\d\\d\\d\\d)", "replacement": "$1$2"}, 1, "ab", "topic", topic="a-b-2026"
    ),
    Case("RegexRouter", {"regex": "b", "replacement": "x"}, 1, "abc", "topic", topic="abc"),
    Case("RegexRouter", {"regex": "(?<n>.*)", "replacement": "pre-${n}\\$"}, 1, "pre-t$", "topic", topic="t"),
    Case("RegexRouter", {"regex": "(.*)", "replacement": "$11"}, 1, "t1", "topic", topic="t"),
    Case("TimestampRouter", {}, 1, "test-20170103", "topic"),
    Case(
        "TimestampRouter",
        {"topic.format": "a-${timestamp}-${topic}", "timestamp.format": "yyyy-MM-dd'T'HHmmss.SSS"},
        1,
        "a-2017-01-03T063001.864-test",
        "topic",
    ),
    Case("TimestampConverter$Value", {"target.type": "Timestamp"}, STAMP_MS, MOMENT),
    Case("TimestampConverter$Value", {"target.type": "unix"}, MOMENT, STAMP_MS),
    Case("TimestampConverter$Value", {"target.type": "unix", "unix.precision": "seconds"}, MOMENT, 1_483_425_001),
    Case(
        "TimestampConverter$Value",
        {"target.type": "Timestamp", "unix.precision": "nanoseconds"},
        STAMP_MS * 1_000_000 + 999_999,
        MOMENT,
    ),
    Case("TimestampConverter$Value", {"target.type": "Date"}, MOMENT, date(2017, 1, 3)),
    Case("TimestampConverter$Value", {"target.type": "Date"}, -1, date(1969, 12, 31)),
    Case("TimestampConverter$Value", {"target.type": "Time"}, MOMENT, time(6, 30, 1, 864_000)),
    Case("TimestampConverter$Value", {"target.type": "Time"}, -1, time(23, 59, 59, 999_000)),
    Case("TimestampConverter$Value", {"target.type": "unix"}, time(0, 0, 1), 1_000),
    Case(
        "TimestampConverter$Value",
        {"target.type": "string", "format": "EEE, d MMM yyyy hh:mm a"},
        MOMENT,
        "Tue, 3 Jan 2017 06:30 AM",
    ),
    Case(
        "TimestampConverter$Value",
        {"target.type": "unix", "format": "d MMMM yyyy, h:mm a"},
        "3 jan 2017, 12:30 PM",
        1_483_446_600_000,
    ),
    Case(
        "TimestampConverter$Value",
        {"target.type": "string", "format": "yyyy MM dd HH mm ss SSS z"},
        MOMENT,
        "2017 01 03 06 30 01 864 UTC",
    ),
    Case(
        "TimestampConverter$Value",
        {"field": "ts", "target.type": "Timestamp", "format": "yyyy-MM-dd'T'HH:mm:ss.SSSXXX"},
        {"ts": "2017-01-03T08:30:01.864+02:00", "other": "x"},
        {"ts": MOMENT, "other": "x"},
    ),
    Case(
        "TimestampConverter$Value",
        {"field": "ts", "target.type": "unix", "format": "yyyyMMdd"},
        {"ts": "20170103"},
        {"ts": 1_483_401_600_000},
    ),
    Case(
        "TimestampConverter$Value",
        {"field": "ts", "target.type": "unix"},
        {"ts": date(2017, 1, 3)},
        {"ts": 1_483_401_600_000},
    ),
    Case("TimestampConverter$Value", {"field": "nope", "target.type": "unix"}, {"ts": 1}, {"ts": 1}),
    Case("InsertHeader", {"header": "h", "value.literal": "1"}, 1, [("h", b"1")], "headers"),
    Case(
        "InsertHeader",
        {"header": "h", "value.literal": "1"},
        1,
        [("h", b"0"), ("h", b"1")],
        "headers",
        headers=[("h", b"0")],
    ),
    Case(
        "DropHeaders", {"headers": "a,b"}, 1, [("c", b"3")], "headers", headers=[("a", b"1"), ("c", b"3"), ("b", b"2")]
    ),
    Case(
        "HeaderFrom$Value",
        {"fields": "a,b", "headers": "ha,hb", "operation": "copy"},
        {"a": 1, "b": True, "c": 2.0},
        [("ha", b"1"), ("hb", b"true")],
        "headers",
    ),
    Case(
        "HeaderFrom$Value",
        {"fields": "a", "headers": "ha", "operation": "move"},
        {"a": 1, "b": True},
        {"b": True},
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.name} {case.settings} {case.given}")
def test_a_record_becomes_what_java_makes_of_it(case: Case) -> None:
    made = transformed(case.name, case.settings, table(case))
    (found,) = made[case.column].to_pylist()
    if case.column == "headers":
        found = [(header["key"], header["value"]) for header in found]
    assert found == case.wanted
    if case.wanted_type is not None:
        assert made[case.column].type == case.wanted_type


CASTS: list[tuple[Any, Any, str, Any]] = [
    (300, pa.int64(), "int8", 44),
    (-129, pa.int32(), "int8", 127),
    (2**40 + 5, pa.int64(), "int32", 5),
    (1.9, pa.float64(), "int32", 1),
    (-1.9, pa.float64(), "int64", -1),
    (1e20, pa.float64(), "int64", 2**63 - 1),
    (1e20, pa.float64(), "int32", 2**31 - 1),
    (-1e20, pa.float64(), "int32", -(2**31)),
    (float("nan"), pa.float64(), "int64", 0),
    (300.7, pa.float64(), "int8", 44),
    (0.5, pa.float64(), "boolean", False),
    (2, pa.int8(), "boolean", True),
    (True, pa.bool_(), "int16", 1),
    (True, pa.bool_(), "float64", 1.0),
    ("42", pa.string(), "int8", 42),
    ("+42", pa.string(), "int64", 42),
    ("TRUE", pa.string(), "boolean", True),
    ("yes", pa.string(), "boolean", False),
    ("٤٢", pa.string(), "int8", 42),
    ("-４2", pa.string(), "int64", -42),
    (" +1.5e0 ", pa.string(), "float32", 1.5),
    (" 1.5f ", pa.string(), "float64", 1.5),
    (42, pa.int64(), "string", "42"),
    (1.0, pa.float64(), "string", "1.0"),
    (1e7, pa.float64(), "string", "1.0E7"),
    (123456.789, pa.float64(), "string", "123456.789"),
    (0.0001, pa.float64(), "string", "1.0E-4"),
    (0.001, pa.float64(), "string", "0.001"),
    (-0.0, pa.float64(), "string", "-0.0"),
    (0.1, pa.float32(), "string", "0.1"),
    (True, pa.bool_(), "string", "true"),
    (b"\x01\x02", pa.binary(), "string", "AQI="),
    (Decimal("1.50"), pa.decimal128(5, 2), "string", "1.50"),
    (Decimal("-1.50"), pa.decimal128(5, 2), "int32", -1),
    (Decimal("-0.7"), pa.decimal128(20, 1), "float64", -0.7),
    (Decimal("1E-9"), pa.decimal128(20, 10), "float64", 1e-9),
    (MOMENT, pa.timestamp("us", "UTC"), "int64", STAMP_MS),
    (MOMENT, pa.timestamp("us", "UTC"), "string", "2017-01-03T06:30:01.864Z"),
    (date(2017, 1, 3), pa.date32(), "string", "2017-01-03"),
    (date(2017, 1, 3), pa.date32(), "int32", 17169),
    (None, pa.int64(), "string", None),
]


@pytest.mark.parametrize(("given", "kind", "target", "wanted"), CASTS)
def test_a_cast_is_javas(given: Any, kind: Any, target: str, wanted: Any) -> None:
    whole = transformed("Cast$Value", {"spec": target}, table(Case("", {}, given, None, kind=kind)))
    assert whole["value"].to_pylist() == [wanted]
    inner = table(Case("", {}, {"f": given, "g": 1}, None, kind=pa.struct([("f", kind), ("g", pa.int32())])))
    field = transformed("Cast$Value", {"spec": f"f:{target}"}, inner)
    assert field["value"].to_pylist() == [{"f": wanted, "g": 1}]


FAILURES: list[tuple[str, dict[str, str], Any, str]] = [
    ("InsertField$Value", {"topic.field": "t"}, "text",
     "Only Struct objects supported for [field insertion], found: string"),
    ("InsertField$Value", {"topic.field": "a"}, {"a": 1}, "Cannot create field because of field name duplication a"),
    ("ValueToKey", {"fields": "b"}, {"a": 1}, "Field does not exist: b"),
    ("ValueToKey", {"fields": "b"}, None,
     "Only Map objects supported in absence of schema for [copying fields from value to key], found: null"),
    ("MaskField$Value", {"fields": "a"}, {"a": {"b": 1}}, "Cannot mask value of type: struct"),
    ("MaskField$Value", {"fields": "a", "replacement": "x"}, {"a": 1}, "Unable to convert x"),
    ("MaskField$Value", {"fields": "a", "replacement": "x"}, {"a": True}, "Cannot mask value of type bool with custom"),
    ("ExtractField$Value", {"field": "b"}, {"a": 1}, "Unknown field: b"),
    ("Cast$Value", {"spec": "int8"}, "1000", "out of range for requested data type"),
    ("Cast$Value", {"spec": "int8"}, "𝟒", "Value (𝟒) was out of range for requested data type"),
    ("Cast$Value", {"spec": "float64"}, "٣", "Value (٣) was out of range for requested data type"),
    ("Cast$Value", {"spec": "float64"}, "\xa01", "Value (\xa01) was out of range for requested data type"),
    ("Cast$Value", {"spec": "int8"}, "x", "Value (x) was out of range for requested data type"),
    ("Cast$Value", {"spec": "a:int8"}, {"a": [1]}, "Cast transformation does not support casting from list"),
    ("TimestampConverter$Value", {"target.type": "unix", "format": "yyyy"}, "x", "does not match pattern (yyyy)"),
    ("TimestampConverter$Value", {"target.type": "unix"}, 1.5, "does not correspond to a known timestamp type format"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "settings", "given", "cause"), FAILURES)
def test_what_java_refuses_is_a_failure_of_the_record(
    name: str, settings: dict[str, str], given: Any, cause: str
) -> None:
    outcome = Chain((Step("t", TRANSFORMS[PACKAGE + name](settings)),)).apply(table(Case("", {}, given, None)))
    (failure,) = outcome.failures
    assert cause in failure.message
    assert not outcome.parts


@pytest.mark.parametrize(
    ("name", "settings", "column", "wanted"),
    [
        ("ExtractField$Value", {"field": "b"}, "value", None),
        ("ValueToKey", {"fields": "a,b"}, "key", {"a": 1, "b": None}),
        (
            "HeaderFrom$Value",
            {"fields": "b", "headers": "h", "operation": "move"},
            "headers",
            [{"key": "h", "value": None}],
        ),
    ],
)
def test_a_field_that_a_record_without_schema_does_not_have_is_null(
    name: str, settings: dict[str, str], column: str, wanted: Any
) -> None:
    without = JsonConverter({"schemas.enable": "false"})
    chain = Chain((Step("t", TRANSFORMS[PACKAGE + name](settings)),)).reading(without, without)
    outcome = chain.apply(table(Case("", {}, {"a": 1}, None)))
    assert not outcome.failures
    assert in_order(outcome.parts)[column].to_pylist() == [wanted]


def test_a_record_without_time_cannot_be_routed_by_it() -> None:
    rows = table(Case("", {}, 1, None, timestamp=None))
    outcome = Chain((Step("t", TRANSFORMS[f"{PACKAGE}TimestampRouter"]({})),)).apply(rows)
    assert "Timestamp missing on record" in outcome.failures[0].message


def whole(name: str, settings: dict[str, str], *rows: Any) -> list[Any]:
    """What becomes of records without schemas, and None of those that are refused."""
    without = JsonConverter({"schemas.enable": "false"})
    without.infers_fields = True
    texts = pa.array([json.dumps(row).encode() for row in rows])
    given = table(Case("", {}, None, None)).take(pa.array([0] * len(rows)))
    read = without.from_bytes_arrow(texts).value
    chain = Chain((Step("t", TRANSFORMS[PACKAGE + name](settings)),)).reading(without, without)
    made = chain.apply(given.set_column(given.column_names.index("value"), "value", read))
    values = iter(in_order(made.parts)["value"].to_pylist() if made.parts else [])
    failed = {failure.row for failure in made.failures}
    return [None if number in failed else next(values) for number in range(len(rows))]


@pytest.mark.parametrize(
    ("name", "settings", "given", "wanted"),
    [
        ("InsertField$Value", {"topic.field": "a"}, {"a": 1, "b": 2}, {"a": "test", "b": 2}),
        ("InsertField$Value", {"topic.field": "a!"}, {"b": 2}, {"b": 2, "a": "test"}),
        ("ReplaceField$Value", {"renames": "b:a.b"}, {"a.b": 1, "b": 2}, {"a.b": 1}),
        ("Flatten$Value", {}, {"a": {"b": 1}, "a.b": 2}, {"a.b": 2}),
        ("ValueToKey", {"fields": "a,a"}, {"a": 1}, {"a": 1}),
        ("MaskField$Value", {"fields": "a,c"}, {"a": {"x": 1}}, {"a": {}, "c": None}),
        ("Cast$Value", {"spec": "a:int8,c:int8"}, {"a": 300}, {"a": 44, "c": None}),
        ("MaskField$Value", {"fields": "a", "replacement": "1.5"}, {"a": 2**70}, {"a": 1}),
        ("TimestampConverter$Value", {"field": "c", "target.type": "unix"}, {"a": 1}, {"a": 1, "c": None}),
        ("ExtractField$Value", {"field": "a.x", "field.syntax.version": "V2"}, {"a": None}, None),
    ],
)
def test_records_without_schemas_are_javas_maps(name: str, settings: dict[str, str], given: Any, wanted: Any) -> None:
    assert whole(name, settings, given) == [wanted]


def test_only_records_with_a_value_of_another_type_are_refused() -> None:
    settings = {"field": "t", "target.type": "Timestamp"}
    assert whole("TimestampConverter$Value", settings, {"t": [1]}, {"t": None}, {"t": [2]}) == [None, {"t": None}, None]


TIMES = pa.struct([SchemaName(TIME_NAME, 1).on(pa.field("t", pa.int32()))])


@pytest.mark.parametrize(
    ("name", "settings", "column", "wanted"),
    [
        ("Cast$Value", {"spec": "t:string"}, "value", {"t": "23:59:59.999Z"}),
        ("Cast$Value", {"spec": "t:int64"}, "value", {"t": 86_399_999}),
        ("TimestampConverter$Value", {"field": "t", "target.type": "unix"}, "value", {"t": 86_399_999}),
        ("MaskField$Value", {"fields": "t"}, "value", {"t": 0}),
        (
            "HeaderFrom$Value",
            {"fields": "t", "headers": "h", "operation": "copy"},
            "headers",
            [{"key": "h", "value": b"23:59:59.999Z"}],
        ),
    ],
)
def test_a_time_that_was_read_as_a_number_is_a_time(
    name: str, settings: dict[str, str], column: str, wanted: Any
) -> None:
    rows = table(Case("", {}, {"t": 86_399_999}, None, kind=TIMES))
    assert transformed(name, settings, rows)[column].to_pylist() == [wanted]
    of_arrow = pa.array([{"t": time(23, 59, 59, 999_000)}], pa.struct([("t", pa.time32("ms"))]))
    made = transformed(name, settings, rows.set_column(rows.column_names.index("value"), "value", of_arrow))
    if name != "MaskField$Value":
        assert made[column].to_pylist() == [wanted]


def test_headers_of_nested_values_are_connects_text() -> None:
    kind = pa.struct([("m", pa.map_(pa.string(), pa.list_(pa.int8()))), ("s", pa.struct([("q", pa.string())]))])
    rows = table(Case("", {}, {"m": [('k"', [1, None])], "s": {"q": "a\\b"}}, None, kind=kind))
    settings = {"fields": "m,s", "headers": "m,s", "operation": "copy"}
    found = transformed("HeaderFrom$Value", settings, rows)["headers"].to_pylist()
    assert found == [[{"key": "m", "value": b'{"k\\"":[1,null]}'}, {"key": "s", "value": b'{"q":"a\\\\b"}'}]]


def test_headers_of_objects_without_schemas_have_the_order_of_javas_maps() -> None:
    rows = table(Case("", {}, {"o": {"name": 1, "id": [{"b": 2, "a": None}]}}, None))
    transform = TRANSFORMS[f"{PACKAGE}HeaderFrom$Value"]({"fields": "o", "headers": "h", "operation": "copy"})
    transform.varied = frozenset({"value"})
    (found,) = transform.apply(rows)["headers"].to_pylist()
    assert found == [{"key": "h", "value": b'{"name":1,"id":[{"a":null,"b":2}]}'}]


@pytest.mark.parametrize(
    ("kind", "text", "wanted"),
    [
        (pa.int8(), "300", 44),
        (pa.int32(), "1.9", 1),
        (pa.float64(), "-1", -1.0),
        (pa.decimal128(5, 2), "1.5", Decimal("1.50")),
    ],
)
def test_a_replacement_is_narrowed_to_its_field(kind: pa.DataType, text: str, wanted: Any) -> None:
    rows = table(Case("", {}, {"n": 5}, None, kind=pa.struct([("n", kind)])))
    assert transformed("MaskField$Value", {"fields": "n", "replacement": text}, rows)["value"].to_pylist() == [
        {"n": wanted}
    ]


@pytest.mark.parametrize(
    ("target", "precision", "given", "wanted"),
    [
        ("unix", "seconds", 2**62, (2**63 - 1) // 1000),
        ("Time", "milliseconds", -(2**63), time(16, 47, 4, 192_000)),
    ],
)
def test_times_beyond_the_range_are_the_nearest_ones(target: str, precision: str, given: int, wanted: Any) -> None:
    settings = {"target.type": target, "unix.precision": precision}
    assert transformed("TimestampConverter$Value", settings, table(Case("", {}, given, None)))["value"].to_pylist() == [
        wanted
    ]
