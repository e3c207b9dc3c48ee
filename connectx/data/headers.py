"""Record headers as text, and as the bytes that `header.converter` makes of them.

A header's value is its text, in UTF-8: so SimpleHeaderConverter, StringConverter and ByteArrayConverter pass it on as
it is, and others write and read what the text spells. Mirrors Kafka Connect's HeaderConverter, on whole columns.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from connectx.data.chunks import one_chunk
from connectx.data.converter import Converter
from connectx.data.json.converter import JsonConverter
from connectx.data.simple import ByteArrayConverter, StringConverter
from connectx.errors.plugins import ConversionError
from connectx.model.class_names import public_name

HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
"""Type of the column `headers`."""

_LONGEST_INTEGER: Final = 20
"""Digits and sign of 64 bits."""
_NUMBER: Final = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?")
_INTEGERS: Final = (("int8", 7), ("int16", 15), ("int32", 31), ("int64", 63))


class HeaderConverter:
    """Converts columns of headers with one converter; `as_is` means that it changes nothing."""

    def __init__(self, converter: Converter | None) -> None:
        self._converter = converter
        self.as_is = converter is None or isinstance(converter, (StringConverter, ByteArrayConverter))

    @property
    def name(self) -> str:
        """Java class name of the converter, or its path."""
        if self._converter is None:
            return "org.apache.kafka.connect.storage.SimpleHeaderConverter"
        return public_name(type(self._converter))

    def write(self, headers: pa.ChunkedArray) -> tuple[pa.ChunkedArray, pa.Array]:
        """Headers with the bytes that go to Kafka, and per record why one cannot be written, null where all can."""
        return self._converted(headers, self._written)

    def read(self, headers: pa.ChunkedArray) -> tuple[pa.ChunkedArray, pa.Array]:
        """Headers with the text of their bytes, and per record why one cannot be read, null where all can."""
        return self._converted(headers, self._read)

    def _converted(
        self, headers: pa.ChunkedArray, convert: Callable[[bytes | None], bytes | None]
    ) -> tuple[pa.ChunkedArray, pa.Array]:
        if self.as_is or headers.null_count == len(headers):
            return headers, pa.nulls(len(headers), pa.string())
        try:
            return self._each(headers, convert), pa.nulls(len(headers), pa.string())
        except ConversionError:
            pass
        rows: list[list[dict[str, Any]] | None] = []
        errors: list[str | None] = []
        for row in headers.to_pylist():
            try:
                made = [{**header, "value": convert(header["value"])} for header in row or ()]
                rows.append(None if row is None else made)
                errors.append(None)
            except ConversionError as error:
                rows.append(None)
                errors.append(error.message)
        return pa.chunked_array([pa.array(rows, HEADERS)]), pa.array(errors, pa.string())

    def _each(self, headers: pa.ChunkedArray, convert: Callable[[bytes | None], bytes | None]) -> pa.ChunkedArray:
        """Every different value converted once."""
        if headers.null_count == len(headers):
            return headers
        rows = one_chunk(headers)
        parts = rows.flatten()
        keys, values = parts.flatten()
        distinct = values.dictionary_encode()
        converted = pa.array([convert(value) for value in distinct.dictionary.to_pylist()], pa.binary())
        made = pa.StructArray.from_arrays([keys, pc.take(converted, distinct.indices)], fields=list(HEADERS.value_type))
        lengths = pc.fill_null(pc.list_value_length(rows), 0).cast(pa.int32())
        offsets = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths)])
        mask = rows.is_null() if rows.null_count else None
        return pa.chunked_array([pa.ListArray.from_arrays(offsets, made, type=HEADERS, mask=mask)])

    def _written(self, value: bytes | None) -> bytes | None:
        if value is None:
            return None
        text = value.decode("utf-8", "replace")
        if isinstance(self._converter, JsonConverter):
            schema, payload = _json_of(text)
            if not self._converter.has_schemas:
                return payload.encode()
            return f'{{"schema":{{"type":"{schema}","optional":false}},"payload":{payload}}}'.encode()
        assert self._converter is not None, "as it is otherwise"
        for number in (_number(text), text):
            try:
                (written,) = self._converter.to_bytes_arrow(pa.array([number])).to_pylist()
                return bytes(written)
            except ConversionError:
                continue
        raise ConversionError(
            f"{self._converter.name} cannot write the header value {text!r}.",
            next_step="Set header.converter to SimpleHeaderConverter or JsonConverter.",
        )

    def _read(self, value: bytes | None) -> bytes | None:
        if value is None:
            return None
        if isinstance(self._converter, JsonConverter):
            return self._read_json(value, self._converter.has_schemas)
        assert self._converter is not None, "as it is otherwise"
        read = self._converter.from_bytes_arrow(pa.array([value], pa.binary()))
        if read.error[0].is_valid:
            raise ConversionError(f"Converting a header from bytes failed: {read.error[0]}")
        found = read.value[0].as_py()
        return (str(found).lower() if isinstance(found, bool) else str(found)).encode()

    def _read_json(self, value: bytes, schemas_enabled: bool) -> bytes | None:
        try:
            document: Any = json.loads(value, parse_int=_Digits, parse_float=_Digits)
            if schemas_enabled:
                document = document["payload"]
        except (ValueError, KeyError, TypeError) as error:
            raise ConversionError(f"Converting a header from bytes failed: {error!r}") from error
        if document is None or isinstance(document, (str, _Digits)):
            return None if document is None else str(document).encode()
        return json.dumps(document, separators=(",", ":"), ensure_ascii=False, default=float).encode()


class _Digits:
    """A number as it is spelled."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __str__(self) -> str:
        return self._text

    def __float__(self) -> float:
        return float(self._text)


def _json_of(text: str) -> tuple[str, str]:
    """(type in a schema, JSON) of what a text spells: true, false, a number, or text (Connect: Values.parseString)."""
    if text in ("true", "false"):
        return "boolean", text
    found = _NUMBER.fullmatch(text)
    if found is None:
        return "string", json.dumps(text, ensure_ascii=False)
    if found.group(2) or found.group(3):
        return "double", text
    if len(text) > _LONGEST_INTEGER:
        return "string", json.dumps(text)
    number = int(text)
    kind = next((kind for kind, bits in _INTEGERS if -(1 << bits) <= number < 1 << bits), None)
    return (kind, text) if kind else ("string", json.dumps(text))


def _number(text: str) -> int | float | bool | str:
    kind, _ = _json_of(text)
    if kind == "boolean":
        return text == "true"
    return text if kind == "string" else float(text) if kind == "double" else int(text)
