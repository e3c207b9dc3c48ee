"""The identity of a row in a topic, a file or a table: canonical bytes of its values. Pure.

Numbers, times and booleans have one form for all types, because a topic, a data frame and a database return the same
value in different types. A value in another representation is then no loss.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

_SHOWN = 80


def canonical(value: Any) -> str | list[Any] | dict[str, Any] | None:
    """A value as JSON-like text, lists and dicts."""
    if hasattr(value, "item") and not isinstance(value, (str, bytes)):
        value = value.item()  # numpy
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case str():
            return value
        case int():
            return str(value)
        case float():
            return _float(value)
        case Decimal():
            return format(value.normalize(), "f") if value.is_finite() else None
        case datetime():
            return _moment(value)
        case bytes() | bytearray() | memoryview():
            return bytes(value).hex()
        case Mapping():
            return {str(name): canonical(inner) for name, inner in value.items()}
        case Sequence():
            return [canonical(inner) for inner in value]
        case date() | time():
            return value.isoformat()
        case timedelta():
            return str(value.total_seconds())
        case _:
            return None if value != value else str(value)  # noqa: PLR0124, what is not itself is NaN or NaT


def _float(value: float) -> str | None:
    if not math.isfinite(value):
        return None if math.isnan(value) else repr(value)
    return str(int(value)) if value.is_integer() else repr(value)


def _moment(value: datetime) -> str | None:
    if value != value:  # noqa: PLR0124, NaT
        return None
    utc = value if value.tzinfo is None else value.astimezone(UTC)
    return utc.replace(tzinfo=None).isoformat(timespec="microseconds")


def of_fields(row: Mapping[str, Any], names: Sequence[str]) -> bytes:
    """Identity of a row by some of its fields. A field that a record lacks is null in a table, at every depth."""
    return json.dumps([_without_nulls(canonical(row.get(name))) for name in names], sort_keys=True).encode()


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(inner) for name, inner in value.items() if inner is not None}
    return [_without_nulls(inner) for inner in value] if isinstance(value, list) else value


def of_record(key: bytes | None, value: bytes | None) -> bytes:
    """Identity of a record by its bytes."""
    head = "-" if key is None else len(key)
    return b"%s:%s:%s" % (str(head).encode(), key or b"", b"-" if value is None else b"+" + value)


def shown(value: Any) -> str:
    """A row as an example shows it."""
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    text = value if isinstance(value, str) else json.dumps(canonical(value), ensure_ascii=False)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def parsed(value: bytes | None) -> Any:
    """A record's value without knowing its converter: JSON (also within Connect's schema envelope), else text."""
    if value is None:
        return None
    text = value.decode(errors="replace")
    if text[:1] not in ("{", "["):
        return text
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if isinstance(found, dict) and set(found) == {"schema", "payload"}:
        return found["payload"]
    return found


def lines_of_value(value: Any) -> list[str]:
    """The lines that a value without `Stored.line_of` becomes: more than one if it has line feeds in it."""
    text = _line_text(value)
    return ["null"] if text is None else text.split("\n")


def _line_text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, (bool, dict, list)):
        return json.dumps(value, ensure_ascii=False, default=_line_text)
    return str(value)
