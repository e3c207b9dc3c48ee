"""Converters, and what a test compares of their results."""

from __future__ import annotations

import json
import re
from typing import Any

from connectx.data.json.converter import JsonConverter
from connectx.data.simple import StringConverter

KEY = StringConverter(is_key=True)
PLAIN = JsonConverter({"schemas.enable": "false"})
WITH_SCHEMAS = JsonConverter()


def envelope(schema: Any, payload: Any) -> bytes:
    return json.dumps({"schema": schema, "payload": payload}, separators=(",", ":")).encode()


def without_leading_zeros(document: str) -> str:
    """JSON whose numbers begin with other digits, as Java's converter reads them: it takes 007 for 7."""
    texts_and_rest = re.split(r'("(?:[^"\\]|\\.)*")', document, flags=re.DOTALL)
    for at in range(0, len(texts_and_rest), 2):
        texts_and_rest[at] = re.sub(r"(?<![\w.+-])(-?)0+(?=[0-9])", r"\1", texts_and_rest[at])
    return "".join(texts_and_rest)
