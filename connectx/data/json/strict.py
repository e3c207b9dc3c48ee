"""One JSON document at a time, read strictly: respelled for Arrow's parser, or refused with a reason.

For the few records that the parser does not take as they are. A reason never holds the record's data.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from functools import partial
from typing import Any, Final, TypeAlias

import msgspec
import pyarrow as pa

from connectx.data.connect_schema import DEFAULT

WHITESPACE: Final = " \t\r\n"
LARGEST_DAY: Final = 3_000_000
LARGEST_MS: Final = 10**15
"""Numbers from here on are no dates and timestamps: seconds or microseconds were meant."""

VALUE: Final = "the value"
"""Name of the whole value in reasons."""
Speller: TypeAlias = Callable[[str, str], str]

_LONGEST_INTEGER: Final = 20
_FLOAT32_END: Final = 3.4028235677973366e38
_NO_DECIMAL: Final = b"\x7f" * 20
_INTEGER: Final = re.compile(r"-?\d+")
_SHORT_INTEGER: Final = re.compile(r"-?\d{1,15}")
_NOT_FINITE: Final = {
    "NaN": "NaN",
    **dict.fromkeys(("Infinity", "+Infinity", "INF", "+INF"), "Infinity"),
    **dict.fromkeys(("-Infinity", "-INF"), "-Infinity"),
}
_CALENDAR: Final = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?([Zz]|[+-]\d\d(:?\d\d)?)?)?")
_EXACT: Final = Context(prec=400)
_LEADING_ZEROS: Final = re.compile(r'("(?:[^"\\]|\\.)*+"?)|(?<![\w.+-])(-?)0+(?=[0-9])', re.DOTALL)
"""Texts, which stay, or zeros before other digits of a number. An open text is taken whole, so that no text costs more
than its length."""
_BASE64_NEEDS_SCHEMA: Final = "and base64 is read only with a schema: write decimals with decimal.format=NUMERIC"


class RefusedDocumentError(ValueError):
    """A document does not have the expected form; the text has the reason."""


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a JSON number")


_DECODER: Final = json.JSONDecoder(parse_constant=_refuse, parse_int=str, parse_float=str)
_ANY: Final[msgspec.json.Decoder[Any]] = msgspec.json.Decoder(msgspec.Raw)
_MEMBERS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ELEMENTS: Final = msgspec.json.Decoder(list[msgspec.Raw])


def text_of(record: bytes) -> str:
    """The document of a record, without spaces around it and zeros before numbers, which Java takes.

    Raises:
        RefusedDocumentError: it is not one JSON document in UTF-8.
    """
    try:
        text = record.decode("utf-8").strip(WHITESPACE)
        _ANY.decode(text)
    except UnicodeDecodeError as error:
        raise RefusedDocumentError(f"it is not UTF-8: {error.reason} at byte {error.start}") from error
    except (msgspec.MsgspecError, RecursionError):
        text = _LEADING_ZEROS.sub(r"\1\2", text)
        _read_slowly(text)
    return text


def _read_slowly(text: str) -> None:
    """Raise what is wrong with a document. Python's decoder takes half a surrogate pair, as Java does."""
    try:
        _DECODER.decode(text)
    except RecursionError as error:
        raise RefusedDocumentError("it is not JSON: it is nested too deeply") from error
    except ValueError as error:
        raise RefusedDocumentError(f"it is not JSON: {error}" if text else "it is empty") from error


def content(text: str) -> str:
    """Content of a JSON string; half a surrogate pair is ? as in Java."""
    return str(_DECODER.decode(text)).encode("utf-8", "replace").decode("utf-8")


def members(text: str) -> dict[str, str]:
    """Names and exact texts of an object's values; of equal names the last counts, as in Java."""
    try:
        return {name: str(raw, "utf-8") for name, raw in _MEMBERS.decode(text).items()}
    except msgspec.MsgspecError:
        return {content(name): value for name, value in _pairs(text)}


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    at = _after_spaces(text, 1)
    while text[at] != "}":
        at = _after_spaces(text, at + (text[at] == ","))
        _, end = _DECODER.raw_decode(text, at)
        start = _after_spaces(text, text.index(":", end) + 1)
        name, (_, end) = text[at:end], _DECODER.raw_decode(text, start)
        yield name, text[start:end]
        at = _after_spaces(text, end)


def elements(text: str) -> list[str]:
    try:
        return [str(raw, "utf-8") for raw in _ELEMENTS.decode(text)]
    except msgspec.MsgspecError:
        found, at = [], _after_spaces(text, 1)
    while text[at] != "]":
        at = _after_spaces(text, at + (text[at] == ","))
        _, end = _DECODER.raw_decode(text, at)
        found.append(text[at:end])
        at = _after_spaces(text, end)
    return found


def _after_spaces(text: str, at: int) -> int:
    while text[at] in WHITESPACE:
        at += 1
    return at


def speller(kind: pa.DataType, *, base64_decimals: bool, use_defaults: bool) -> Speller:
    """A function that spells one value of type `kind`, given as its exact text, for Arrow's parser.

    The parser is then to read it as `connectx.data.json.reader.respelled_type`. The function raises
    RefusedDocumentError where the value is not of the type; its second argument names the value.

    Args:
        base64_decimals: text in place of a decimal is base64 of its unscaled bytes, otherwise digits.
        use_defaults: a schema's default replaces null and missing fields.
    """
    types = pa.types

    def inner(part: pa.DataType) -> Speller:
        return speller(part, base64_decimals=base64_decimals, use_defaults=use_defaults)

    if types.is_struct(kind):
        fields = [
            (
                field.name,
                json.dumps(field.name),
                inner(field.type),
                not field.nullable and not (use_defaults and DEFAULT.encode() in (field.metadata or {})),
            )
            for field in kind
        ]
        return partial(_object, fields)
    if types.is_map(kind):
        if types.is_string(kind.key_type):
            return partial(_map, inner(kind.item_type), kind.item_field.nullable)
        return partial(_pairs_of, inner(kind.key_type), inner(kind.item_type), kind.item_field.nullable)
    if types.is_list(kind):
        has_default = use_defaults and DEFAULT.encode() in (kind.value_field.metadata or {})
        return partial(_array, inner(kind.value_type), kind.value_field.nullable or has_default)
    if types.is_string(kind):
        return _string
    if types.is_boolean(kind):
        return _boolean
    if types.is_integer(kind):
        return partial(_integer, kind, 1 << (kind.bit_width - 1))
    if types.is_floating(kind):
        return partial(_fraction, kind, _FLOAT32_END if types.is_float32(kind) else float("inf"))
    if types.is_decimal(kind):
        return partial(_decimal, kind, base64_decimals)
    return partial(_base64, kind) if types.is_binary(kind) else partial(_time, kind)


def _object(fields: Sequence[tuple[str, str, Speller, bool]], text: str, path: str) -> str:
    if text == "null":
        return text
    _expect(text, "{", "an object", path)
    given, prefix, spelled = members(text), "" if path == VALUE else f"{path}.", []
    for name, quoted, spell, required in fields:
        value = given.get(name, "null")
        if required and value == "null":
            raise RefusedDocumentError(f"{prefix}{name} is required, and missing or null")
        spelled.append(f"{quoted}:{spell(value, prefix + name)}")
    return "{" + ",".join(spelled) + "}"


def _map(spell: Speller, nullable: bool, text: str, path: str) -> str:
    if text == "null":
        return text
    _expect(text, "{", "an object", path)
    entries = (
        f'{{"key":{json.dumps(key)},"value":{spell(_present(value, nullable, path), f"{path}.{key}")}}}'
        for key, value in members(text).items()
    )
    return "[" + ",".join(entries) + "]"


def _pairs_of(spell_key: Speller, spell: Speller, nullable: bool, text: str, path: str) -> str:
    """A map whose keys are no text is an array of pairs; of equal keys the last counts, as in Java."""
    if text == "null":
        return text
    _expect(text, "[", "an array of keys and values", path)
    entries: dict[str, str] = {}
    for each in elements(text):
        _expect(each, "[", "an array of a key and a value", f"{path}[]")
        pair = elements(each)
        if len(pair) != 2:
            raise RefusedDocumentError(f"{path}[] should be an array of a key and a value, found {len(pair)} elements")
        key = spell_key(_present(pair[0], False, f"{path}[]"), f"{path}[]")
        entries[key] = spell(_present(pair[1], nullable, f"{path}[]"), f"{path}[]")
    return "[" + ",".join(f'{{"key":{key},"value":{value}}}' for key, value in entries.items()) + "]"


def _array(spell: Speller, nullable: bool, text: str, path: str) -> str:
    if text == "null":
        return text
    _expect(text, "[", "an array", path)
    inside = f"{path}[]"
    return "[" + ",".join(spell(_present(value, nullable, inside), inside) for value in elements(text)) + "]"


def _present(text: str, nullable: bool, path: str) -> str:
    if text == "null" and not nullable:
        raise RefusedDocumentError(f"{path} must not be null")
    return text


def _string(text: str, path: str) -> str:
    if text[0] == '"':
        return json.dumps(content(text)) if "\\u" in text else text
    return text if text == "null" else json.dumps(text)


def _boolean(text: str, path: str) -> str:
    _expect(text, "tfn", "a boolean", path)
    return text


def _integer(kind: pa.DataType, limit: int, text: str, path: str) -> str:
    if text == "null":
        return text
    if not _INTEGER.fullmatch(text):
        raise RefusedDocumentError(f"{path} should be an integer, found {_found(text)}")
    if len(text) > _LONGEST_INTEGER or not -limit <= int(text) < limit:
        raise _unfit(path, kind)
    return text


def _base64(kind: pa.DataType, text: str, path: str) -> str:
    if text == "null":
        return text
    _expect(text, '"', "base64 text", path)
    raw = _bytes_of(content(text))
    if raw is None:
        raise RefusedDocumentError(f"{path} should be base64 text")
    return json.dumps(base64.b64encode(raw).decode())


def _decimal(kind: pa.DataType, base64_decimals: bool, text: str, path: str) -> str:
    if text == "null":
        return text
    if text[0] in "{[tf":
        raise _unfit(path, kind)
    try:
        if text[0] == '"' and base64_decimals:
            unscaled = int.from_bytes(_bytes_of(content(text)) or _NO_DECIMAL, "big", signed=True)
            number = Decimal(unscaled).scaleb(-kind.scale, _EXACT)
        else:
            number = Decimal((content(text) if text[0] == '"' else text).replace("_", "?"))
        number = number.quantize(Decimal(1).scaleb(-kind.scale), ROUND_HALF_UP, _EXACT)
    except InvalidOperation:
        if text[0] == '"' and not base64_decimals and _bytes_of(content(text)):
            raise RefusedDocumentError(f"{path} should be {kind}, {_BASE64_NEEDS_SCHEMA}") from None
        raise _unfit(path, kind) from None
    if not number.is_finite() or len(number.as_tuple().digits) > kind.precision:
        raise _unfit(path, kind)
    return json.dumps(f"{number:f}")


def _fraction(kind: pa.DataType, end: float, text: str, path: str) -> str:
    if text == "null":
        return text
    if text[0] == '"':
        name = content(text)
        if name not in _NOT_FINITE:
            raise RefusedDocumentError(f"{path} should be a number, found text")
        return _NOT_FINITE[name]
    if text[0] in "{[tf":
        raise RefusedDocumentError(f"{path} should be a number, found {_found(text)}")
    if abs(float(text)) >= end:
        raise _unfit(path, kind)
    return text


def _time(kind: pa.DataType, text: str, path: str) -> str:
    """Days or milliseconds as they are, if they are a number, or a date or time in ISO form."""
    if text == "null":
        return text
    if text[0] != '"':
        return json.dumps(_moment(text, kind, path))
    if _SHORT_INTEGER.fullmatch(content(text)):
        raise _unfit(path, kind)
    return json.dumps(_moment(content(text), kind, path))


def _moment(text: str, kind: pa.DataType, path: str) -> str:
    is_date = pa.types.is_date(kind)
    if _SHORT_INTEGER.fullmatch(text):
        if abs(int(text)) >= (LARGEST_DAY if is_date else LARGEST_MS):
            raise _unfit(path, kind)
        return text
    try:
        if not _CALENDAR.fullmatch(text):
            raise _unfit(path, kind)
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is not None and not is_date:
            moment = moment.astimezone(UTC)
    except OverflowError:
        raise _unfit(path, kind) from None
    except RefusedDocumentError:
        raise
    except ValueError:
        raise _unfit(path, kind) from None
    return text[:10] if is_date else moment.replace(tzinfo=None).isoformat(" ", "microseconds")


def _bytes_of(text: str) -> bytes | None:
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        return None


def _expect(text: str, first: str, name: str, path: str) -> None:
    if text[0] not in first:
        raise RefusedDocumentError(f"{path} should be {name}, found {_found(text)}")


def _unfit(path: str, kind: pa.DataType) -> RefusedDocumentError:
    return RefusedDocumentError(f"{path} does not fit {kind}")


def _found(text: str) -> str:
    names = {"{": "an object", "[": "an array", '"': "text", "t": "a boolean", "f": "a boolean", "n": "null"}
    return names.get(text[0]) or ("an integer" if _INTEGER.fullmatch(text) else "a fraction")
