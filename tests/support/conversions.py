"""Converters, and what a test compares of their results."""

from __future__ import annotations

import json
from typing import Any

from connectx.data.json.converter import JsonConverter
from connectx.data.simple import StringConverter

KEY = StringConverter(is_key=True)
PLAIN = JsonConverter({"schemas.enable": "false"})
WITH_SCHEMAS = JsonConverter()


def envelope(schema: Any, payload: Any) -> bytes:
    return json.dumps({"schema": schema, "payload": payload}, separators=(",", ":")).encode()
