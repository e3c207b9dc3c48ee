"""JSON is read strictly: each record has its value or an error, and nothing is cut, wrapped or dropped silently."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from connectx.data.converters import decode, encode
from connectx.data.json.converter import JsonConverter
from connectx.data.json.envelopes import NO_ENVELOPE
from connectx.data.json.reader import JsonReader
from connectx.errors.plugins import ConfigError
from tests.support.conversions import KEY, PLAIN, WITH_SCHEMAS, envelope, without_leading_zeros

NUMERIC = JsonConverter({"schemas.enable": "false", "decimal.format": "NUMERIC"})


def read(
    records: Sequence[bytes | None], converter: JsonConverter, target: pa.DataType | None = None
) -> tuple[list[Any], list[str | None]]:
    """Values, and errors without their common head."""
    table = pa.table({
        "key": pa.nulls(len(records), pa.binary()),
        "value": pa.array(records, pa.binary()),
        "topic": ["t"] * len(records),
    })  # fmt: skip
    decoded = decode(table, KEY, converter, None if target is None else {"t": target})
    decoded.validate(full=True)
    errors = [e and e.removeprefix("Converting the value from bytes failed: ") for e in decoded["error"].to_pylist()]
    return decoded["value"].to_pylist(), errors


ROW = pa.struct([
    pa.field("id", pa.int32(), nullable=False),
    ("tiny", pa.int8()),
    ("double", pa.float64()),
    ("at", pa.timestamp("us", "UTC")),
    ("on", pa.date32()),
    ("price", pa.decimal128(10, 2)),
    ("text", pa.string()),
    ("flag", pa.bool_()),
    ("raw", pa.binary()),
    ("list", pa.list_(pa.struct([pa.field("x", pa.int8(), nullable=False)]))),
    ("map", pa.map_(pa.string(), pa.int32())),
])  # fmt: skip


def without_nulls(values: list[Any]) -> list[Any]:
    """Structs without their null fields."""
    return [{k: v for k, v in value.items() if v is not None} if isinstance(value, dict) else value for value in values]


@pytest.mark.parametrize(
    ("record", "value"),
    [
        (b'{"id":1}', {"id": 1}),
        (b' {"id" : 1 , "unknown": [1, {"a": 2}]} ', {"id": 1}),
        (b'{"id":1,"tiny":-128,"double":2}', {"id": 1, "tiny": -128, "double": 2.0}),
        (b'{"id":1,"double":"Infinity"}', {"id": 1, "double": float("inf")}),
        (b'{"id":1,"at":1500}', {"id": 1, "at": datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC)}),
        (b'{"id":1,"at":"2024-01-02T03:04:05Z"}', {"id": 1, "at": datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)}),
        (b'{"id":1,"on":1}', {"id": 1, "on": date(1970, 1, 2)}),
        (b'{"id":1,"on":"2024-01-02"}', {"id": 1, "on": date(2024, 1, 2)}),
        (b'{"id":1,"price":1.5}', {"id": 1, "price": Decimal("1.50")}),
        (b'{"id":1,"price":"1250"}', {"id": 1, "price": Decimal("1250.00")}),
        (b'{"id":1,"price":"-12.5"}', {"id": 1, "price": Decimal("-12.50")}),
        (b'{"id":1,"price":null,"text":null}', {"id": 1}),
        (b'{"id":1,"flag":true,"raw":"/wA="}', {"id": 1, "flag": True, "raw": b"\xff\x00"}),
        (b'{"id":1,"list":[{"x":1}],"map":{"k":2}}', {"id": 1, "list": [{"x": 1}], "map": [("k", 2)]}),
        ('{"id":1,"text":"é\\n😀"}'.encode(), {"id": 1, "text": "é\n😀"}),
        (b"null", None),
        (None, None),
    ],
)
def test_a_good_record_is_read(record: bytes | None, value: Any) -> None:
    values, errors = read([record], PLAIN, ROW)
    assert (without_nulls(values), errors) == ([value], [None])


BAD = {
    b"": "it is empty",
    b"junk": "it is not JSON: Expecting value: line 1 column 1 (char 0)",
    b'{"id":1': "it is not JSON: Expecting ',' delimiter: line 1 column 8 (char 7)",
    b'{"id":1} {"id":2}': "it is not JSON: Extra data: line 1 column 10 (char 9)",
    b'{"id":1}]': "it is not JSON: Extra data: line 1 column 9 (char 8)",
    b'{"id":1}} x': "it is not JSON: Extra data: line 1 column 9 (char 8)",
    b"{'id':1}": "it is not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)",
    b'{"id":1,"text":"\xff"}': "it is not UTF-8: invalid start byte at byte 16",
    b'[{"id":1}]': "the value should be an object, found an array",
    b"5": "the value should be an object, found an integer",
    b"{}": "id is required, and missing or null",
    b'{"id":null}': "id is required, and missing or null",
    b'{"id":3000000000}': "id does not fit int32",
    b'{"id":1.5}': "id should be an integer, found a fraction",
    b'{"id":"1"}': "id should be an integer, found text",
    b'{"id":1,"tiny":200}': "tiny does not fit int8",
    b'{"id":1,"double":1e999}': "double does not fit double",
    b'{"id":1,"double":"many"}': "double should be a number, found text",
    b'{"id":1,"at":"soon"}': "at does not fit timestamp[us, tz=UTC]",
    b'{"id":1,"at":1.5}': "at does not fit timestamp[us, tz=UTC]",
    b'{"id":1,"on":99999999}': "on does not fit date32[day]",
    b'{"id":1,"price":123456789.5}': "price does not fit decimal128(10, 2)",
    b'{"id":1,"price":"!"}': "price does not fit decimal128(10, 2)",
    b'{"id":1,"price":"AJY="}': "price should be decimal128(10, 2), and base64 is read only with a schema: "
    "write decimals with decimal.format=NUMERIC",
    b'{"id":1,"on":"2024"}': "on does not fit date32[day]",
    b'{"id":1,"at":"1500"}': "at does not fit timestamp[us, tz=UTC]",
    b'{"id":1,"price":true}': "price does not fit decimal128(10, 2)",
    b'{"id":1,"flag":"true"}': "flag should be a boolean, found text",
    b'{"id":1,"raw":"!"}': "raw should be base64 text",
    b'{"id":1,"list":{"x":1}}': "list should be an array, found an object",
    b'{"id":1,"list":[{"x":1},{"x":null}]}': "list[].x is required, and missing or null",
    b'{"id":1,"list":[{"x":300}]}': "list[].x does not fit int8",
    b'{"id":1,"map":{"k":"v"}}': "map.k should be an integer, found text",
}


def test_each_bad_record_has_its_reason_and_no_value_and_its_neighbours_are_read() -> None:
    records: list[bytes | None] = []
    for record in BAD:
        records += [record, b'{"id":7}']
    values, errors = read(records, PLAIN, ROW)
    assert without_nulls(values[1::2]) == [{"id": 7}] * len(BAD)
    assert errors[1::2] == [None] * len(BAD)
    assert values[::2] == [None] * len(BAD)
    assert dict(zip(BAD, errors[::2], strict=True)) == BAD


def test_zeros_before_a_number_are_skipped() -> None:
    values, errors = read([b'{"id":007}', b'{"id":-00}', b'{"id":8}'], PLAIN, pa.struct([("id", pa.int64())]))
    assert (values, errors) == ([{"id": 7}, {"id": 0}, {"id": 8}], [None] * 3)


def test_without_a_wanted_type_a_record_is_its_exact_text() -> None:
    records = [
        b' {"a": 0.12345678901234567890, "b":1e999} ',
        b'"te\\u0078t"',
        b"1.50",
        b"true",
        b"null",
        b"[]",
        b"x",
        None,
    ]
    values, errors = read(records, PLAIN)
    assert values == ['{"a": 0.12345678901234567890, "b":1e999}', "text", "1.50", "true", None, "[]", None, None]
    assert [error is None for error in errors] == [True] * 6 + [False, True]


def test_random_documents_are_read_or_refused_as_by_another_parser() -> None:
    random = Random(7)

    def document(depth: int) -> Any:
        kinds = [None, True, random.randrange(-(10**6), 10**6), random.random(), 'aé"\\\n{}[]:,'[random.randrange(6) :]]
        if depth and random.random() < 0.6:
            inner = [document(depth - 1) for _ in range(random.randrange(4))]
            return inner if random.random() < 0.5 else {f"k{i}": value for i, value in enumerate(inner)}
        return random.choice(kinds)

    records = []
    for _ in range(600):
        text = json.dumps(document(3), ensure_ascii=random.random() < 0.5)
        if random.random() < 0.5:
            at = random.randrange(len(text) + 1)
            text = (
                text[:at] + random.choice(['"', "{", "}", "]", ",", "1", " ", "x"]) + text[at + random.randrange(2) :]
            )
        records.append(text.encode())
    values, errors = read(list(records), PLAIN)
    for record, value, error in zip(records, values, errors, strict=True):
        try:
            expected = json.loads(without_leading_zeros(record.decode()))
        except ValueError:
            assert error is not None, record
            continue
        assert error is None, (record, error)
        if expected is None or isinstance(expected, str):
            assert value == expected
        else:
            assert json.loads(value) == expected


@pytest.mark.parametrize(("precision", "scale"), [(10, 2), (18, 0), (38, 10), (38, 36), (38, 38)])
def test_decimals_of_connect_are_read_exactly(precision: int, scale: int) -> None:
    random = Random(precision + scale)
    numbers = [0, 1, -1, 10**precision - 1, 1 - 10**precision]
    numbers += [
        random.randrange(1 - 10**precision, 10**precision) // 10 ** random.randrange(precision) for _ in range(200)
    ]
    sized = [number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True) for number in numbers]
    too_large = (10**precision).to_bytes(17, "big")
    records = [json.dumps(base64.b64encode(raw).decode()).encode() for raw in (*sized, too_large)]
    reader = JsonReader(base64_decimals=True, use_defaults=False)
    found = reader.read(pa.array(records, pa.binary()), pa.decimal128(precision, scale))
    values, errors = found.value.to_pylist(), found.error.to_pylist()
    assert values.pop() is None
    assert errors.pop() is not None
    assert errors == [None] * len(numbers)
    assert values == [Decimal(f"{number}E-{scale}") for number in numbers]


@pytest.mark.parametrize("converter", [PLAIN, NUMERIC])
def test_decimals_without_a_schema_may_be_text_of_digits(converter: JsonConverter) -> None:
    values, errors = read([b'"12.5"', b"12.5", b'"AJY="'], converter, pa.decimal128(10, 2))
    assert values == [Decimal("12.50"), Decimal("12.50"), None]
    assert [error is None for error in errors] == [True, True, False]


def test_times_without_zone_are_read_as_they_are() -> None:
    values, errors = read([b"1710037800005", b'"2024-03-10T02:30:00"', b"-1"], PLAIN, pa.timestamp("us"))
    assert errors == [None] * 3
    assert values == [
        datetime(2024, 3, 10, 2, 30, 0, 5000),
        datetime(2024, 3, 10, 2, 30),
        datetime(1969, 12, 31, 23, 59, 59, 999_000),
    ]


INT = {"type": "int32", "optional": False}
PERSON = {
    "type": "struct",
    "optional": False,
    "fields": [
        {"type": "int32", "optional": False, "field": "id"},
        {"type": "string", "optional": False, "default": "nobody", "field": "name"},
    ],
}
OLDER_PERSON = {
    "type": "struct",
    "optional": False,
    "fields": [
        {"type": "int32", "optional": False, "field": "id"},
        {"type": "int64", "optional": True, "field": "age"},
    ],
}


def test_a_record_with_its_schema_tells_its_type() -> None:
    values, errors = read([envelope(INT, 5), None, envelope(INT, None), envelope(INT, "5")], WITH_SCHEMAS)
    assert values == [5, None, None, None]
    assert errors == [
        None, None, "the value is required, and missing or null", "the value should be an integer, found text",
    ]  # fmt: skip


def test_a_default_stands_in_for_null_unless_that_is_switched_off() -> None:
    records: list[bytes | None] = [envelope(PERSON, {"id": 1}), envelope(PERSON, {"id": 2, "name": None}), None]
    values, errors = read(records, WITH_SCHEMAS)
    assert (values, errors) == ([{"id": 1, "name": "nobody"}, {"id": 2, "name": "nobody"}, None], [None] * 3)
    values, errors = read(records, JsonConverter({"replace.null.with.default": "false"}))
    assert values == [None] * 3
    assert errors == ["name is required, and missing or null"] * 2 + [None]


def test_several_schemas_in_one_batch_are_read_in_order_and_put_together() -> None:
    records = [
        envelope(PERSON, {"id": 1, "name": "a"}),
        envelope(OLDER_PERSON, {"id": 2, "age": 5}),
        b"junk",
        envelope(PERSON, {"id": 3, "name": "c"}),
        envelope({"type": "strange"}, 1),
        envelope(OLDER_PERSON, {"id": "x"}),
        b'{"payload":1}',
        json.dumps({"payload": {"id": 4, "name": "d"}, "schema": PERSON}).encode(),
    ]
    values, errors = read(records, WITH_SCHEMAS)
    assert without_nulls(values) == [
        {"id": 1, "name": "a"},
        {"id": 2, "age": 5},
        None,
        {"id": 3, "name": "c"},
        None,
        None,
        None,
        {"id": 4, "name": "d"},
    ]
    assert errors == [
        None,
        None,
        "it is not JSON: Expecting value: line 1 column 1 (char 0)",
        None,
        "Unknown schema type: strange.",
        "id should be an integer, found text",
        NO_ENVELOPE,
        None,
    ]


def test_a_null_schema_means_a_value_without_one() -> None:
    values, errors = read([b'{"schema":null,"payload":{"a": 1.10}}', b'{"schema": null, "payload": "x"}'], WITH_SCHEMAS)
    assert (values, errors) == (['{"a": 1.10}', "x"], [None, None])
    values, errors = read([b'{"schema":null,"payload":{"id":1}}'], WITH_SCHEMAS, ROW)
    assert (without_nulls(values), errors) == ([{"id": 1}], [None])


def test_plain_json_is_not_taken_for_an_envelope() -> None:
    values, errors = read([b'{"id":1}', b"null", b"1"], WITH_SCHEMAS)
    assert (values, errors) == ([None] * 3, [NO_ENVELOPE] * 3)


def test_records_of_one_batch_may_have_any_schemas() -> None:
    double = {"type": "double"}
    records = [envelope(INT, 1), envelope({"type": "string"}, "a"), envelope(double, 2.5), None, envelope(INT, 3)]
    values, errors = read(records, WITH_SCHEMAS)
    assert repr(values) == repr([1, "a", 2.5, None, 3])
    assert errors == [None] * 5


def test_what_is_written_is_read_back() -> None:
    rows = pa.table({
        "i8": pa.array([1, None], pa.int8()),
        "i64": pa.array([2**53 + 1, None], pa.int64()),
        "f32": pa.array([1.1, None], pa.float32()),
        "text": ["é", None],
        "raw": pa.array([b"\xff", None]),
        "day": pa.array([date(2024, 1, 2), None]),
        "at": pa.array([datetime(2024, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC), None], pa.timestamp("us", "UTC")),
        "money": pa.array([Decimal("-12345678901234567890.1234"), None], pa.decimal128(30, 4)),
        "list": pa.array([[date(2024, 1, 2), None], None], pa.list_(pa.date32())),
        "map": pa.array([[("a", Decimal("1.5"))], None], pa.map_(pa.string(), pa.decimal128(5, 1))),
        "inner": pa.array([{"x": 1}, None], pa.struct([("x", pa.int16())])),
    })  # fmt: skip
    records = encode(rows, KEY, WITH_SCHEMAS)
    decoded = decode(records, KEY, WITH_SCHEMAS)
    assert decoded["error"].null_count == 2
    assert decoded["value"].to_pylist() == rows.to_pylist()
    plain = encode(rows, KEY, NUMERIC).append_column("topic", pa.array(["t"] * 2))
    kind = pa.struct(list(rows.schema))
    assert decode(plain, KEY, PLAIN, {"t": kind})["value"].to_pylist() == rows.to_pylist()


def test_keys_and_values_and_topics_have_their_own_types() -> None:
    records = pa.table({
        "topic": ["a", "b", "a", "c"],
        "partition": pa.array([0, 1, 2, 3], pa.int32()),
        "offset": pa.array([10, 11, 12, 13], pa.int64()),
        "timestamp": pa.array([1000, 2000, None, 4000], pa.timestamp("ms", "UTC")),
        "key": pa.array([b'{"k":1}', b"null", None, b"?"], pa.binary()),
        "value": pa.array([b'{"id":1}', b'{"name":"x"}', b"!", b'{"id":3}'], pa.binary()),
    })  # fmt: skip
    types = {"a": pa.struct([("id", pa.int32())]), "b": pa.struct([("name", pa.string())])}
    types["c"] = types["a"]
    decoded = decode(records, PLAIN, PLAIN, types)
    assert decoded.column_names == ["topic", "partition", "offset", "timestamp", "key", "value", "error"]
    assert decoded["timestamp"].to_pylist() == [1000, 2000, None, 4000]
    assert decoded["offset"].to_pylist() == [10, 11, 12, 13]
    assert decoded["key"].to_pylist() == ['{"k":1}', None, None, None]
    assert without_nulls(decoded["value"].to_pylist()) == [{"id": 1}, {"name": "x"}, None, None]
    assert decoded["error"].to_pylist() == [
        None,
        None,
        "Converting the value from bytes failed: it is not JSON: Expecting value: line 1 column 1 (char 0)",
        "Converting the key from bytes failed: it is not JSON: Expecting value: line 1 column 1 (char 0)",
    ]


def test_a_large_batch_keeps_its_order_and_finds_its_one_bad_record() -> None:
    values = [b'{"id":%d,"name":"n"}' % number for number in range(150_000)]
    values[77_777] = b'{"id":"x"}'
    table = pa.table({"key": pa.nulls(len(values), pa.binary()), "value": values, "topic": ["t"] * len(values)})
    decoded = decode(table, KEY, PLAIN, {"t": pa.struct([("id", pa.int64())])})
    bad = decoded.filter(decoded["error"].is_valid())
    assert bad["error"].to_pylist() == ["Converting the value from bytes failed: id should be an integer, found text"]
    assert decoded["value"][77_777].as_py() is None
    ids = [None if value is None else value["id"] for value in decoded["value"].to_pylist()]
    assert ids == [None if number == 77_777 else number for number in range(150_000)]


def enveloped(schema: dict[str, Any], payload: str) -> bytes:
    return f'{{"schema":{json.dumps(schema)},"payload":{payload}}}'.encode()


def read_values(*records: bytes | None, settings: dict[str, str] | None = None) -> tuple[list[Any], list[Any]]:
    decoded = JsonConverter(settings or {}).from_bytes_arrow(pa.array(records, pa.binary()))
    return decoded.value.to_pylist(), decoded.error.to_pylist()


def test_maps_whose_keys_are_no_text_are_arrays_of_pairs() -> None:
    schema = {"type": "map", "keys": {"type": "int32"}, "values": {"type": "string", "optional": True}}
    inside = {"type": "struct", "fields": [{**schema, "field": "m"}]}
    found, errors = read_values(
        enveloped(schema, '[[0,"1f"],[7,null],[0,"last"]]'),
        enveloped(schema, '{"0":"1f"}'),
        enveloped(schema, '[["x","1f"]]'),
        enveloped(inside, '{"m":[[1,"a"]]}'),
    )
    assert found == [[(0, "last"), (7, None)], None, None, {"m": [(1, "a")]}]
    assert [error is None for error in errors] == [True, False, False, True]


def test_null_elements_of_lists_get_their_default() -> None:
    schema = {"type": "array", "items": {"type": "int32", "optional": True, "default": 0}}
    assert read_values(enveloped(schema, "[null,1]"))[0] == [[0, 1]]
    kept = {"replace.null.with.default": "false"}
    assert read_values(enveloped(schema, "[null,1]"), settings=kept)[0] == [[None, 1]]


@pytest.mark.parametrize("name", ['q"uote', "b\\s", "tab\t"])
def test_names_that_json_escapes_are_read_beside_records_of_other_types(name: str) -> None:
    schema = {"type": "struct", "fields": [{"type": "int32", "optional": True, "field": name}]}
    good, bad = (enveloped(schema, json.dumps({name: value})) for value in (1, "x"))
    found, errors = read_values(good, bad)
    assert found == [{name: 1}, None]
    assert "should be an integer" in errors[1]


def test_the_schema_in_the_settings_is_that_of_every_record() -> None:
    schema = {"type": "struct", "fields": [{"type": "int8", "field": "a"}], "optional": False}
    settings = {"schema.content": json.dumps(schema)}
    found, errors = read_values(b'{"a":1}', None, b'{"a":300}', b"null", settings=settings)
    assert found == [{"a": 1}, None, None, None]
    assert [error is None for error in errors] == [True, True, False, False]
    assert read_values(b'{"a":1}', settings={**settings, "schemas.enable": "false"})[0] == ['{"a":1}']
    with pytest.raises(ConfigError):
        JsonConverter({"schema.content": '{"type":"none"}'})


def test_a_default_that_does_not_fit_is_an_error_of_its_records_alone() -> None:
    broken = {"type": "struct", "fields": [{"type": "int8", "optional": True, "default": "x", "field": "a"}]}
    fine = {"type": "struct", "fields": [{"type": "int8", "optional": True, "field": "a"}]}
    found, errors = read_values(enveloped(broken, "{}"), enveloped(fine, '{"a":1}'))
    assert found == [None, {"a": 1}]
    assert [error is None for error in errors] == [False, True]
