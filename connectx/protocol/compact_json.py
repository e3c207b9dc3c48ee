"""JSON as Kafka Connect's JsonConverter writes it without schemas, byte for byte.

Compact separators, UTF-8, key order kept, nothing escaped but what JSON demands, control characters as Jackson spells
them (upper-case hex). Floating-point numbers are written as Python does, which differs from Java's text below 0.001
and from 10,000,000 on.
"""

from __future__ import annotations

import json
import re
from typing import Any

_ESCAPE = re.compile(r"\\(u[0-9a-f]{4}|.)")


def dumps(value: Any) -> bytes:
    """Compact JSON. ValueError for NaN and infinities, TypeError for what JSON cannot hold."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    if "\\u" in text:
        text = _ESCAPE.sub(lambda found: "\\" + found[1][:1] + found[1][1:].upper(), text)
    return text.encode()


def loads(data: bytes) -> Any:
    """Parse JSON; ValueError for anything else, also for bytes that are not UTF-8 and for NaN."""
    return json.loads(data.decode(), parse_constant=_refuse_constant)


def is_integer(value: Any) -> bool:
    """True for a JSON integer that fits 64 bits (so not for true, 1.0 or 1e3)."""
    return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
