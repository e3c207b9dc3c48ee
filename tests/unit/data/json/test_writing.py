"""JSON is written byte for byte as Kafka Connect's JsonConverter writes it on Java 21."""

from __future__ import annotations

import base64
import json
import math
import re
import struct
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectx.data.connect_schema import NO_NAME, described
from connectx.data.converters import encode
from connectx.data.json.converter import JsonConverter
from connectx.errors.plugins import ConversionError
from tests.support.conversions import KEY, PLAIN, WITH_SCHEMAS


def written(values: Any, converter: Any = PLAIN) -> list[Any]:
    table = encode(pa.table({"value": values}), KEY, converter)
    return [None if value is None else value.decode() for value in table["value"].to_pylist()]


MEMBERS = pa.struct({"s": pa.string(), "n": pa.int64(), "f": pa.float64(), "b": pa.bool_(), "l": pa.list_(pa.int8()),
                     "t": pa.timestamp("ms"), "o": pa.struct({"s": pa.string()})})  # fmt: skip


@given(st.data())
def test_members_that_are_the_same_in_all_rows_are_written_as_in_one(data: st.DataObject) -> None:
    pick = {
        "s": st.sampled_from(["", 'a"', "é", None]),
        "n": st.sampled_from([1, -1, None]),
        "f": st.sampled_from([0.0, -0.0, None]),
        "b": st.sampled_from([True, None]),
        "l": st.sampled_from([[1], [], None]),
        "t": st.sampled_from([datetime(2026, 1, 2), None]),
        "o": st.sampled_from([{"s": "x"}, {"s": None}, None]),
    }
    columns = {name: data.draw(st.one_of(some.map(lambda one: [one] * 3), st.lists(some, min_size=3, max_size=3)))
               for name, some in pick.items()}  # fmt: skip
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    values = pa.array([*rows, data.draw(st.sampled_from([None, rows[0]]))], MEMBERS)
    assert written(values) == [written(values[at : at + 1])[0] for at in range(len(values))]


GOLDEN = [line.split("\t") for line in (Path(__file__).parent / "golden.tsv").read_text("utf-8").split("\n") if line]


def golden(kind: str) -> tuple[list[str], list[str]]:
    found = [(each, text) for name, each, text in GOLDEN if name == kind]
    return [each for each, _ in found], [text for _, text in found]


@pytest.mark.parametrize(("kind", "code"), [("float64", ">d"), ("float32", ">f")])
def test_fractions_are_spelled_as_java_spells_them(kind: str, code: str) -> None:
    bits, texts = golden(kind)
    numbers = [struct.unpack(code, int(each, 16).to_bytes(struct.calcsize(code), "big"))[0] for each in bits]
    assert written(pa.array(numbers, kind)) == texts


def test_decimals_are_spelled_as_java_spells_them() -> None:
    numeric = JsonConverter({"schemas.enable": "false", "decimal.format": "NUMERIC"})
    for converter, kind in ((PLAIN, "decimal"), (numeric, "decimal numeric")):
        for number, text in zip(*golden(kind), strict=True):
            unscaled_digits, scale = number.split("/")
            value = pa.array([Decimal(f"{unscaled_digits}E-{scale}")], pa.decimal128(38, int(scale)))
            assert written(value, converter) == [text]


def test_bytes_and_text_are_spelled_as_java_spells_them() -> None:
    inputs, texts = golden("bytes")
    raws = [int(digits, 16).to_bytes(int(size), "big") for digits, size in (each.split("/") for each in inputs)]
    assert written(pa.array(raws)) == texts
    inputs, texts = golden("string")
    assert written(pa.array([bytes.fromhex(each).decode() for each in inputs])) == texts


def test_nested_rows_and_their_schemas_are_spelled_as_java_spells_them() -> None:
    inner = pa.struct([("x", pa.float64()), ("l", pa.list_(pa.int32()))])
    kind = pa.struct([
        pa.field("i8", pa.int8(), nullable=False), ("i64", pa.int64()), ("f32", pa.float32()), ("b", pa.bool_()),
        ("raw", pa.binary()), ("day", pa.date32()), ("at", pa.timestamp("us", "UTC")), ("price", pa.decimal128(10, 2)),
        ('a"b', inner), ("é\x01😀", pa.string()), ("m", pa.map_(pa.string(), pa.float64())),
        ("ll", pa.list_(pa.list_(pa.string()))),
    ])  # fmt: skip
    one = {
        "i8": -7, "i64": -(2**63), "f32": 0.1, "b": True, "raw": b"\xff\x00", "day": date(1969, 12, 30),
        "at": datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC), "price": Decimal("-12345.67"),
        'a"b': {"x": 1e7, "l": [1, None, -3]}, "é\x01😀": "\u2028😀", "m": [('k "1"', 0.5)],
        "ll": [["a", None], None, []],
    }  # fmt: skip
    texts = dict(zip(*golden("row"), strict=True))
    rows = pa.array([one, {"i8": 0}], kind)
    numeric = JsonConverter({"schemas.enable": "false", "decimal.format": "NUMERIC"})
    assert written(rows) == [texts["one"], texts["nulls"]]
    assert written(rows, numeric)[0] == texts["one numeric"]
    enveloped = [texts["one in an envelope"], texts["nulls in an envelope"]]
    assert written(rows, WITH_SCHEMAS) == enveloped


KINDS = st.recursive(
    st.sampled_from([
        pa.int8(), pa.int64(), pa.bool_(), pa.string(), pa.float32(), pa.float64(), pa.binary(), pa.date32(),
        pa.decimal128(20, 3), pa.null(), pa.large_string(), pa.dictionary(pa.int32(), pa.string()),
    ]),
    lambda inner: st.one_of(
        st.builds(pa.list_, inner),
        st.builds(lambda value: pa.map_(pa.string(), value), inner),
        st.builds(pa.struct, st.dictionaries(st.text(max_size=3), inner, max_size=3)),
    ),
    max_leaves=5,
)  # fmt: skip


def values_of(kind: pa.DataType) -> st.SearchStrategy[Any]:
    types = pa.types
    if types.is_struct(kind):
        some: st.SearchStrategy[Any] = st.fixed_dictionaries({field.name: values_of(field.type) for field in kind})
    elif types.is_map(kind):
        some = st.dictionaries(st.text(max_size=3), values_of(kind.item_type), max_size=3).map(lambda d: [*d.items()])
    elif types.is_list(kind):
        some = st.lists(values_of(kind.value_type), max_size=3)
    elif types.is_integer(kind):
        some = st.integers(-(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1)
    elif types.is_floating(kind):
        some = st.floats(width=kind.bit_width)
    elif types.is_decimal(kind):
        some = st.integers(-(10**20) + 1, 10**20 - 1).map(lambda n: Decimal(n).scaleb(-kind.scale))
    else:
        some = {
            pa.bool_(): st.booleans(), pa.binary(): st.binary(max_size=9), pa.date32(): st.dates(),
            pa.null(): st.none(),
        }.get(kind, st.text(st.characters(exclude_categories=["Cs"]), max_size=8))  # fmt: skip
    return st.none() | some


def obvious(value: Any, kind: pa.DataType) -> str:
    """JSON of one value, character by character."""
    types = pa.types
    if value is None:
        return "null"
    if types.is_struct(kind):
        return "{" + ",".join(f"{escaped(f.name)}:{obvious(value[f.name], f.type)}" for f in kind) + "}"
    if types.is_map(kind):
        return "{" + ",".join(f"{escaped(k)}:{obvious(v, kind.item_type)}" for k, v in value) + "}"
    if types.is_list(kind):
        return "[" + ",".join(obvious(element, kind.value_type) for element in value) + "]"
    if types.is_floating(kind):
        return fraction(value, kind)
    if types.is_binary(kind):
        return f'"{base64.b64encode(value).decode()}"'
    if types.is_decimal(kind):
        number = int(value.scaleb(kind.scale))
        return obvious(number.to_bytes((number + (number < 0)).bit_length() // 8 + 1, "big", signed=True), pa.binary())
    if types.is_date(kind):
        return str((value - date(1970, 1, 1)).days)
    return {True: "true", False: "false"}[value] if types.is_boolean(kind) else escaped(value)


def escaped(value: Any) -> str:
    if not isinstance(value, str):
        return str(value)
    short = {"\\": "\\\\", '"': '\\"', "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
    units = [short.get(c) or (c if " " <= c <= "\uffff" else re.sub("....", r"\\u\g<0>", utf16(c))) for c in value]
    return '"' + "".join(units) + '"'


def utf16(character: str) -> str:
    return character.encode("utf-16-be").hex().upper()


def fraction(value: float, kind: pa.DataType) -> str:
    if not math.isfinite(value):
        return '"NaN"' if math.isnan(value) else '"Infinity"' if value > 0 else '"-Infinity"'
    digits = str(np.float32(value)) if kind == pa.float32() else repr(value)
    sign, numbers, exponent = Decimal(digits).as_tuple()
    if 0 < abs(value) < (1e-43 if kind == pa.float32() else 1e-321) and len(numbers) == 1:
        sign, numbers, exponent = Decimal(f"{Decimal(value):.1e}").as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, numbers)).rstrip("0")
    size = len(numbers) + exponent - 1  # the exponent of d.ddd
    minus = "-" if sign else ""
    if not text:
        return f"{minus}0.0"
    if not 1e-3 <= abs(value) < 1e7:
        return f"{minus}{text[0]}.{text[1:] or '0'}E{size}"
    if size < 0:
        return f"{minus}0.{'0' * (-size - 1)}{text}"
    return f"{minus}{text[: size + 1].ljust(size + 1, '0')}.{text[size + 1 :] or '0'}"


@given(st.data())
def test_any_value_is_written_as_by_the_obvious_writer(data: st.DataObject) -> None:
    kind = data.draw(KINDS)
    rows = data.draw(st.lists(values_of(kind), min_size=1, max_size=6))
    values = pa.array(rows, kind)
    start = data.draw(st.integers(0, len(rows) - 1))
    expected = [None if row is None else obvious(row, kind) for row in values.to_pylist()]
    assert written(values) == expected
    assert written(values[start:]) == expected[start:]


def unscaled(text: str) -> int:
    return int.from_bytes(base64.b64decode(text), "big", signed=True)


def test_single_values() -> None:
    assert written(pa.array([1, None])) == ["1", None]
    assert written(pa.array(['a"\né', None])) == ['"a\\"\\né"', None]
    assert written(pa.array([True])) == ["true"]
    assert written(pa.array([1.5, float("nan"), float("inf")])) == ["1.5", '"NaN"', '"Infinity"']
    assert written(pa.array([b"\xff\x00"])) == ['"/wA="']
    assert written(pa.array([date(1970, 1, 2), date(1969, 12, 31)])) == ["1", "-1"]


def test_null_fields_are_written_and_rows_without_a_column_value_are_the_value() -> None:
    table = encode(pa.table({"b": [1, None], "a": ["x", None], "key": ["k", None]}), KEY, PLAIN)
    assert table.to_pylist() == [
        {"key": None, "value": b'{"b":1,"a":"x","key":"k"}'},
        {"key": None, "value": b'{"b":null,"a":null,"key":null}'},
    ]


def test_times_are_milliseconds_rounded_down() -> None:
    instants = [
        datetime(2024, 7, 1, 12, 0, 0, 999_999, tzinfo=UTC),
        datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC),
    ]
    walls = [datetime(2024, 3, 10, 2, 30, 0, 5000), datetime(1969, 12, 31, 23, 59, 59, 999_000)]
    for zone in ("UTC", "America/New_York"):
        assert written(pa.array(instants, pa.timestamp("us", zone))) == ["1719835200999", "-1"]
    assert written(pa.array(walls, pa.timestamp("us"))) == ["1710037800005", "-1"]
    assert written(pa.array([-1, 1_999_999], pa.timestamp("ns"))) == ["-1", "1"]
    assert written(pa.array([-1, 7], pa.timestamp("s"))) == ["-1000", "7000"]


@pytest.mark.parametrize(("precision", "scale"), [(1, 0), (10, 2), (18, 18), (19, 0), (38, 0), (38, 10), (38, 36)])
def test_decimals_are_base64_of_their_shortest_unscaled_bytes(precision: int, scale: int) -> None:
    random = Random(precision * 100 + scale)
    limit = 10**precision
    edges = [sign * (256**power // 2 + delta) for power in range(1, 16) for sign in (1, -1) for delta in (-1, 0, 1)]
    numbers = [n for n in (0, 1, -1, limit - 1, 1 - limit, *edges) if abs(n) < limit]
    numbers += [random.randrange(-limit + 1, limit) // 10 ** random.randrange(precision) for _ in range(200)]
    values = [Decimal(f"{number}E-{scale}") for number in numbers]
    texts = written(pa.array([*values, None], pa.decimal128(precision, scale)))
    assert texts.pop() is None
    found = [json.loads(text) for text in texts]
    assert [unscaled(text) for text in found] == numbers
    shortest = [
        number.to_bytes((number + (number < 0)).bit_length() // 8 + 1, "big", signed=True) for number in numbers
    ]
    assert [base64.b64decode(text) for text in found] == shortest


def test_decimals_can_be_numbers() -> None:
    numeric = JsonConverter({"schemas.enable": "false", "decimal.format": "numeric"})
    values = pa.array([Decimal("1.50"), Decimal("-12345678.90")], pa.decimal128(10, 2))
    assert [Decimal(text) for text in written(values, numeric)] == [Decimal("1.50"), Decimal("-12345678.90")]


def test_what_connect_spells_otherwise_is_found_inside_of_everything() -> None:
    kind = pa.struct([("l", pa.list_(pa.date32())), ("m", pa.map_(pa.string(), pa.struct([("d", pa.date32())])))])
    day = date(1970, 1, 11)
    values = pa.array([{"l": [day, None], "m": [("a b", {"d": day})]}, {"l": None, "m": []}, None], kind)
    assert written(values) == ['{"l":[10,null],"m":{"a b":{"d":10}}}', '{"l":null,"m":{}}', None]


def test_field_names_may_hold_anything() -> None:
    kind = pa.struct([("a.b", pa.date32()), ("c d", pa.int32()), ("`e`", pa.string())])
    values = pa.array([{"a.b": date(1970, 1, 2), "c d": 1, "`e`": "x"}], kind)
    assert [json.loads(text) for text in written(values)] == [{"a.b": 1, "c d": 1, "`e`": "x"}]


def test_with_schemas_each_value_is_in_an_envelope_and_null_stays_a_tombstone() -> None:
    row = pa.array([{"id": 1}, None], pa.struct([pa.field("id", pa.int64(), nullable=False)]))
    assert written(row, WITH_SCHEMAS) == [
        '{"schema":{"type":"struct","fields":[{"type":"int64","optional":false,"field":"id"}],"optional":false},'
        '"payload":{"id":1}}',
        None,
    ]
    assert written(pa.array(["é"]), WITH_SCHEMAS) == ['{"schema":{"type":"string","optional":false},"payload":"é"}']


def test_a_type_that_json_does_not_have_is_refused() -> None:
    with pytest.raises(ConversionError, match="JsonConverter cannot write"):
        written(pa.array([{"x": 1}], pa.struct([("x", pa.duration("us"))])))


def test_maps_whose_keys_are_no_text_are_arrays_of_pairs() -> None:
    values = pa.array([[(1, "a"), (-2, None)], [], None], pa.map_(pa.int32(), pa.string()))
    assert written(values) == ['[[1,"a"],[-2,null]]', "[]", None]
    parts = '"keys":{"type":"int32","optional":false},"values":{"type":"string","optional":true}'
    schema = f'{{"type":"map",{parts},"optional":false}}'
    assert written(values[:1], WITH_SCHEMAS) == [f'{{"schema":{schema},"payload":[[1,"a"],[-2,null]]}}']


def test_null_elements_of_lists_get_their_default() -> None:
    element = described(pa.field("item", pa.int32()), NO_NAME, 7)
    assert written(pa.array([[1, None], None, []], pa.list_(element))) == ["[1,7]", None, "[]"]


def test_a_large_table_keeps_its_order() -> None:
    rows = pa.table({"value": pa.array(range(200_000))})
    table = encode(rows, KEY, PLAIN)
    assert table["value"].to_pylist() == [b"%d" % number for number in range(200_000)]


def test_defaults_in_schemas_are_spelled_as_values_are() -> None:
    price = described(pa.field("p", pa.decimal128(5, 2)), NO_NAME, "AJY=")
    share = described(pa.field("f", pa.float32()), NO_NAME, -198279.109375)
    rows = pa.array([{"p": None, "f": 1.5}], pa.struct([price, share]))
    numeric = JsonConverter({"decimal.format": "NUMERIC"})
    for converter, wanted in ((WITH_SCHEMAS, '"AJY="'), (numeric, "1.50")):
        (text,) = written(rows, converter)
        assert f'"default":{wanted},"field":"p"' in text
        assert '"default":-198279.11,"field":"f"' in text
