"""Headers between their text and their bytes."""

from __future__ import annotations

import pyarrow as pa
import pytest

from connectx.data.chunks import one_chunk
from connectx.data.headers import HEADERS, HeaderConverter
from connectx.data.json.converter import JsonConverter
from connectx.data.simple import BooleanConverter, IntegerConverter, StringConverter
from connectx.data.transforms.chain import Chain, Step
from connectx.data.transforms.encoding import transform_and_encode
from connectx.data.transforms.routing import RegexRouter
from connectx.errors.plugins import ConversionError

PLAIN = JsonConverter({"schemas.enable": "false"})


def column(*rows: list[tuple[str, bytes | None]] | None) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(rows, HEADERS)])


def pairs(headers: pa.ChunkedArray) -> list[list[tuple[str, bytes | None]] | None]:
    return [None if row is None else [(h["key"], h["value"]) for h in row] for row in headers.to_pylist()]


@pytest.mark.parametrize("converter", [None, StringConverter()])
def test_simple_and_string_headers_are_their_text(converter: StringConverter | None) -> None:
    given = column([("a", b"1")], None)
    made = HeaderConverter(converter)
    assert made.as_is
    assert made.write(given)[0] is given
    assert made.read(given)[0] is given


@pytest.mark.parametrize(
    ("text", "schema", "payload"),
    [
        (b"x y", "string", b'"x y"'),
        (b"1", "int8", b"1"),
        (b"-129", "int16", b"-129"),
        (b"1.5", "double", b"1.5"),
        (b"true", "boolean", b"true"),
        (b"007", "string", b'"007"'),
    ],
)
def test_json_headers_are_what_their_text_spells(text: bytes, schema: str, payload: bytes) -> None:
    given = column(None, [("h", text), ("n", None)], [])
    written = HeaderConverter(PLAIN).write(given)[0]
    assert pairs(written) == [None, [("h", payload), ("n", None)], []]
    assert pairs(HeaderConverter(PLAIN).read(written)[0]) == pairs(given)
    enveloped = HeaderConverter(JsonConverter()).write(given)[0]
    wanted = b'{"schema":{"type":"%s","optional":false},"payload":%s}' % (schema.encode(), payload)
    assert pairs(enveloped)[1] == [("h", wanted), ("n", None)]
    assert pairs(HeaderConverter(JsonConverter()).read(enveloped)[0]) == pairs(given)


def test_numbers_are_bytes_and_what_is_no_number_is_an_error() -> None:
    given = column([("h", b"258")])
    written = HeaderConverter(IntegerConverter()).write(given)[0]
    assert pairs(written) == [[("h", b"\0\0\1\2")]]
    assert pairs(HeaderConverter(IntegerConverter()).read(written)[0]) == pairs(given)
    assert pairs(HeaderConverter(BooleanConverter()).read(column([("h", b"\1")]))[0]) == [[("h", b"true")]]
    written, errors = HeaderConverter(IntegerConverter()).write(column([("h", b"x")], [("h", b"1")]))
    assert "cannot write the header value 'x'" in errors[0].as_py()
    assert pairs(written) == [None, [("h", b"\0\0\0\1")]]


def test_only_the_record_whose_header_cannot_be_written_is_left_out() -> None:
    values = pa.array(["a", None, "c", "d"])
    headers = one_chunk(column([("h", b"1")], None, [("h", b"x")], [("h", b"2")]))
    rows, texts, numbers = pa.table({"value": values, "headers": headers}), StringConverter(), IntegerConverter()
    chain = Chain((Step("t", RegexRouter({"regex": "t", "replacement": "u"})),))
    for steps in (Chain(), chain):
        made = transform_and_encode(rows, "t", steps, texts, texts, HeaderConverter(numbers), skip_unwritable=True)
        assert list(made.unwritable) == [2]
        assert made.records["value"].to_pylist() == [b"a", None, b"d"]
        assert made.rows == 4
        with pytest.raises(ConversionError, match="cannot write the header value 'x'"):
            transform_and_encode(rows, "t", steps, texts, texts, HeaderConverter(numbers))


def test_only_the_record_with_a_broken_header_cannot_be_read() -> None:
    headers, errors = HeaderConverter(PLAIN).read(column([("h", b"1")], [("h", b"{")], None))
    assert pairs(headers) == [[("h", b"1")], None, None]
    assert [error is None for error in errors.to_pylist()] == [True, False, True]
    assert "Converting a header from bytes failed" in errors[1].as_py()
