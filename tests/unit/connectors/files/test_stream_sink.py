"""Values as lines of a file."""

from __future__ import annotations

import datetime
from typing import Any

import pyarrow as pa
import pytest

from connectx.connectors.files.stream_sink import FileStreamSink, joined_lines


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (pa.array(["a", None, "\u00e9"]), "a\nnull\n\u00e9"),
        (pa.array([1, None, -2]), "1\nnull\n-2"),
        (pa.array([1.0, 2.5]), "1.0\n2.5"),
        (pa.array([True, False]), "true\nfalse"),
        (pa.array([b"x\xff"]), "x\ufffd"),
        (
            pa.array([{"a": 1, "d": datetime.date(2013, 1, 2), "s": "\u00e9"}, None]),
            '{"a": 1, "d": "2013-01-02", "s": "\u00e9"}\nnull',
        ),
        (pa.array([[1, None]]), "[1, null]"),
        (pa.nulls(2), "null\nnull"),
        (pa.array(["skipped", "x", "y"]).slice(1), "x\ny"),
    ],
)
def test_values_become_lines(values: pa.Array, text: str) -> None:
    assert bytes(joined_lines(values)).decode() == text


@pytest.mark.parametrize("config", [{}, {"file": None}, {"file": " "}])
def test_a_file_is_required(config: dict[str, Any]) -> None:
    assert FileStreamSink.validate(config) == {
        "file": ["Invalid value null for configuration file: a file name is required"]
    }
