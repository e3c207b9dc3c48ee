"""JSON as Kafka Connect's JsonConverter writes it without schemas, byte for byte.

Compact separators, UTF-8, key order kept, nothing escaped but what JSON demands, control characters as Jackson spells
them (upper-case hex). Floating-point numbers are written as Python does, which differs from Java's text below 0.001
and from 10,000,000 on.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final

_MOST_LEVELS: Final = 100
"""Of nesting that is read. What is read is written again, by code that calls itself for each level."""

_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_ESCAPE = re.compile(r"\\(u[0-9a-f]{4}|.)")


def dumps(value: Any, *, errors: str = "strict") -> bytes:
    """Compact JSON.

    Args:
        value: what JSON can hold.
        errors: what becomes of a lone surrogate, as in `str.encode`: "replace" makes it a question mark.

    Raises:
        ValueError: for NaN and infinities, and for lone surrogates. TypeError: for what JSON cannot hold.
    """
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    if "\\u" in text:
        text = _ESCAPE.sub(lambda found: "\\" + found[1][:1] + found[1][1:].upper(), text)
    return text.encode(errors=errors)


def loads(data: bytes) -> Any:
    """Parse JSON; its texts are valid Unicode, as a lone surrogate becomes a question mark.

    Raises:
        ValueError: for anything else, also for bytes that are not UTF-8, for NaN, for numbers beyond floating point and
            for more than 100 levels. RecursionError: for many more levels.
    """
    return _checked(json.loads(data.decode(), parse_constant=_refuse_constant), _MOST_LEVELS)


def _checked(value: Any, levels: int) -> Any:
    if isinstance(value, str):
        return _SURROGATE.sub("?", value)
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("a number is too large")
    if not isinstance(value, dict | list):
        return value
    if not levels:
        raise ValueError(f"it has more than {_MOST_LEVELS} levels")
    if isinstance(value, list):
        return [_checked(item, levels - 1) for item in value]
    return {_SURROGATE.sub("?", name): _checked(item, levels - 1) for name, item in value.items()}


def is_integer(value: Any) -> bool:
    """True for a JSON integer that fits 64 bits (so not for true, 1.0 or 1e3)."""
    return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
