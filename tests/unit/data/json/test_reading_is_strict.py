"""Any document is read, or refused, as by a slow and obvious reader, whatever else is in the batch."""

from __future__ import annotations

import base64
import itertools
import json
import math
import re
from datetime import UTC, datetime
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.conversions import PLAIN, without_leading_zeros

WIDE = pa.struct([
    ("s", pa.string()),
    ("y", pa.int8()),
    ("l", pa.int64()),
    ("f", pa.float32()),
    ("d", pa.float64()),
    ("b", pa.bool_()),
    ("date", pa.date32()),
    ("ts", pa.timestamp("us", "UTC")),
    ("ntz", pa.timestamp("us")),
    ("p", pa.decimal128(10, 2)),
    ("raw", pa.binary()),
    ("n", pa.struct([pa.field("x", pa.int32(), nullable=False), ("t", pa.list_(pa.string()))])),
    ("m", pa.map_(pa.string(), pa.int64())),
])  # fmt: skip
FLAT = pa.struct([field for field in WIDE if field.name not in ("m", "n")])
GOOD = [
    b'{"s":"x","l":9007199254740993,"d":0.1,"b":true,"date":19000,"ts":1357016400123,"ntz":-1,"p":1.505,"raw":"/wA="}',
    b"{}",
    b'  {\n "l" : 7 }  ',
    b'{"s":"\\u00e9\\n\\"","unknown":{"deep":[1,2]},"d":1}',
    '{"s":"\u65e5\u672c \U0001f600"}'.encode(),
    b'{"d":1e-400,"s":null}',
    b'{"date":-1,"ts":0,"y":-128,"unknown":"text"}',
    b'{"f":0.1}',
    b'{"f":16777217.0000001}',
    b'{"f":1e-46,"d":"NaN"}',
    b'{"d":123456789.123456789e-5,"s":{"a": 1.10}}',
    b'{"n":{"x":1,"t":["a",null]},"m":{"k":1,"l":null}}',
    b'{"ts":"2013-01-01T05:00:00Z","ntz":"2013-01-01 05:00:00.25","date":"2013-01-01","p":"1.505"}',
    b'{"ts":"2013-01-01T05:00:00+02:00","ntz":"2013-01-01T05:00:00+02:00","s":"\\ud800","p":12,"l":-0}',
    b'{"l":1,"l":2,"unknown":1e999}',
    b"null",
]


DOUBTFUL = [
    *(b"5", b"[]", b'"text"', b"", b" ", b"{", b'{"l":1}{"l":2}', b'{"l":1},"x":5', b'{"l":1},"v":{"l":2}'),
    *(b'{"l":1}}\n{"v":{"l":2}', b'{"l":1.0}', b'{"l":"1"}', b'{"l":1e2}', b'{"s":5}', b'{"d":NaN}', b'{"f":NaN}'),
    *(b'{"d":1e999}', b'{"f":1e39}', b'{"d":-Infinity}', b'{"s":"\xff"}', b'{"\xff":1}', b'{"l":9223372036854775808}'),
    *(
        b'{"b":1}',
        b'{"l":1,}',
        b"{'l':1}",
        b'{"l":01}',
        b'{"s":"a\tb"}',
        b'{"y":200}',
        b'{"p":1.5}',
        b'{"p":"1234"}',
        b'{"p":"AJY="}',
    ),
    *(b'{"p":123456789.5}', b'{"p":"!"}', b'{"raw":"!"}', b'{"date":3000000}', b'{"ts":1000000000000000}'),
    *(b'{"ntz":1.5}', b'{"ts":"2013-02-30T00:00:00Z"}', b'{"date":"2013-02-30"}', b'{"n":{}}', b'{"n":{"x":1,"t":5}}'),
    *(
        b'{"m":[]}',
        b'{"m":{"k":"x"}}',
        b'{"ts":"1500"}',
        b'{"p":""}',
        b'{"unknown":1}',
        b'{"unknown":NaN}',
        b'{"unknown":[-Inf]}',
        b'{"s":"a: Info"}',
        b'{"unknown":"x\\q"}',
    ),
]


def no_constant(name: str) -> Any:
    raise ValueError(name)


class Digits(str):
    """A number as it is spelled."""

    __slots__ = ()


def obvious(record: bytes, kind: pa.DataType) -> Any:
    """One document as a Python value; ValueError where it is none of the type."""
    return of(loads(record.decode("utf-8")), kind)


class Spelled:
    """What is no text in place of a text: the record's own spelling of it."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and loads(other) == self.value

    __hash__ = None  # type: ignore[assignment]


def loads(text: str) -> Any:
    return json.loads(without_leading_zeros(text), parse_int=Digits, parse_float=Digits, parse_constant=no_constant)


def check(holds: bool) -> None:
    if not holds:
        raise ValueError


def of(value: Any, kind: pa.DataType) -> Any:
    types, is_text = pa.types, isinstance(value, str) and not isinstance(value, Digits)
    if value is None:
        return None
    if types.is_struct(kind):
        check(isinstance(value, dict))
        found = {field.name: of(value.get(field.name), field.type) for field in kind}
        check(all(field.nullable or found[field.name] is not None for field in kind))
        return found
    if types.is_map(kind):
        check(isinstance(value, dict))
        return [(name, of(inner, kind.item_type)) for name, inner in value.items()]
    if types.is_list(kind):
        check(isinstance(value, list))
        return [of(inner, kind.value_type) for inner in value]
    if types.is_string(kind):
        return value.encode("utf-8", "replace").decode() if is_text else Spelled(value)
    if types.is_boolean(kind):
        check(isinstance(value, bool))
        return value
    if types.is_binary(kind):
        check(is_text)
        return base64.b64decode("".join(value.split()), validate=True)
    check(isinstance(value, str))
    if types.is_integer(kind):
        check(not is_text and value.removeprefix("-").isdigit() and -(2**63) <= int(value) < 2**63)
        return pa.array([int(value)], pa.int64()).cast(kind)[0].as_py()
    if types.is_floating(kind):
        return fraction(value, kind, is_text)
    if types.is_decimal(kind):
        check("_" not in value)
        number = Decimal(value)
        check(number.is_finite())
        number = number.quantize(Decimal("0.01"), ROUND_HALF_UP, Context(prec=99))
        check(abs(number) < 10**8)
        return number
    check(not is_text or re.fullmatch(r"-?\d+", value) is None)
    return moment(value, kind)


def fraction(value: str, kind: pa.DataType, is_text: bool) -> float:
    if is_text:
        check(value in ("NaN", "Infinity", "-Infinity", "INF", "+INF", "-INF", "+Infinity"))
        return float(value)
    found = pa.array([value]).cast(kind)[0].as_py()
    check(math.isfinite(found))
    return float(found)


def moment(value: str, kind: pa.DataType) -> Any:
    if re.fullmatch(r"-?\d{1,15}", value):
        number = int(value)
        check(abs(number) < (3_000_000 if pa.types.is_date(kind) else 10**15))
        if pa.types.is_date(kind):
            return pa.array([number], pa.int32()).cast(kind)[0].as_py()
        return pa.array([number * 1000], pa.timestamp("us", kind.tz))[0].as_py()
    check(re.fullmatch(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|z|[+-]\d\d(:?\d\d)?)?)?", value) is not None)
    found = datetime.fromisoformat(value)
    if pa.types.is_date(kind):
        return found.date()
    found = found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
    return found.replace(tzinfo=None) if kind.tz is None else found


def same(found: Any, expected: Any) -> bool:
    if isinstance(expected, dict):
        return expected.keys() == found.keys() and all(same(found[name], expected[name]) for name in expected)
    if isinstance(expected, float):
        return repr(found) == repr(expected)
    return bool(expected == found)


PIECES = [
    *(b'"', b"{", b"}", b",", b":", b"1", b"null", b"\\", b" ", b"\n", b"e5", b"-", b"\x00", b"[", b"]", b"\xff"),
    *(b'{"l":1}', b'"l":2,', b".5", b"true", b'"s":', b'"p":', b"99999999999", b'"AJY="', b'"2024-02-30"', b"\\ud83d"),
]


@st.composite
def documents(draw: st.DrawFn) -> bytes:
    """Documents, some with a few bytes changed, cut or repeated."""
    text = draw(st.sampled_from(GOOD + DOUBTFUL))
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(text)))
        text = text[:at] + draw(st.sampled_from(PIECES)) + text[at + draw(st.integers(0, 2)) :]
    return text


def check_all(records: list[bytes], kind: pa.DataType) -> None:
    read = PLAIN.from_bytes_arrow(pa.array(records, pa.binary()), kind)
    read.value.validate(full=True)
    for record, value, error in zip(records, read.value.to_pylist(), read.error.to_pylist(), strict=True):
        try:
            expected = obvious(record, kind)
        except (ValueError, ArithmeticError):
            assert error is not None, record
            continue
        assert error is None, (record, error)
        assert same(value, expected), (record, value, expected)


@pytest.mark.parametrize("kind", [FLAT, WIDE], ids=["flat", "nested"])
@pytest.mark.parametrize("record", DOUBTFUL)
def test_a_doubtful_document_is_read_or_refused_alone_and_among_others(record: bytes, kind: pa.DataType) -> None:
    for others in ([], [GOOD[0]], [b'{"l":1}'], [b'{"l":2,"unknown":"text"}'], GOOD[:4], GOOD):
        check_all([*others, record], kind)
        check_all([record, *others], kind)


@settings(max_examples=150, deadline=None)
@given(st.lists(documents(), min_size=1, max_size=12), st.sampled_from([FLAT, WIDE]))
def test_any_documents_are_read_or_refused_as_by_the_obvious_reader(records: list[bytes], kind: pa.DataType) -> None:
    check_all(records, kind)


def test_documents_cannot_make_up_for_each_other() -> None:
    for pair in itertools.product(DOUBTFUL[:10], DOUBTFUL[:10]):
        check_all(list(pair), FLAT)


SPANNING = [b'{"s":"}', b'{","l":1}', b"{}{}", b'{"n":{"x":1}', b'{"l":1}{"l":2}', b'{"l":3}']


def test_objects_that_begin_and_end_with_braces_cannot_make_up_for_each_other() -> None:
    for three in itertools.product(SPANNING, repeat=3):
        check_all(list(three), FLAT)
