"""Values as lines of a file."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from connectx.connectors.files.stream_sink import FileStreamSink, joined_lines
from connectx.data.shapes import united


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
            "Struct{a=1,d=Wed Jan 02 00:00:00 UTC 2013,s=\u00e9}\nnull",
        ),
        (pa.array([[1, None]]), "[1, null]"),
        (pa.nulls(2), "null\nnull"),
        (pa.array(["skipped", "x", "y"]).slice(1), "x\ny"),
    ],
)
def test_values_become_lines(values: pa.Array, text: str) -> None:
    assert bytes(joined_lines(values)).decode() == text


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (
            pa.array([{"some_key": 0, "a": {"b": None}}, {"some_key": None, "a": None}]),
            "{a={b=null}, some_key=0}\n{a=null, some_key=null}",
        ),
        (pa.array([[("x", 1)], None, []], pa.map_(pa.string(), pa.int32())), "{x=1}\nnull\n{}"),
        (united([(np.array([0, 2]), pa.array([1, 2])), (np.array([1]), pa.array(["x"]))]), "1\nx\n2"),
    ],
    ids=["maps", "typed maps", "several shapes"],
)
def test_documents_without_schemas_become_the_text_of_javas_maps(values: pa.Array, text: str) -> None:
    assert bytes(joined_lines(values, schemaless=True)).decode() == text


@pytest.mark.parametrize("config", [{}, {"file": None}, {"file": " "}])
def test_a_file_is_required(config: dict[str, Any]) -> None:
    assert FileStreamSink.validate(config) == {
        "file": ["Invalid value null for configuration file: a file name is required"]
    }
