"""Values have one identity whatever type carries them, and different values have different ones."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest

from connectx.verify.check.identity import canonical, of_fields, of_record, parsed, shown

NOON = datetime(2026, 1, 2, 12, 0, 0, 5, UTC)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (5, 5.0),
        (5, np.int64(5)),
        (5, Decimal("5.00")),
        (True, np.bool_(True)),
        (None, float("nan")),
        (None, pd.NaT),
        (NOON, NOON.replace(tzinfo=None)),
        (NOON, NOON.astimezone(timezone(timedelta(hours=2)))),
        (NOON, pd.Timestamp(NOON)),
        (b"\x01", bytearray(b"\x01")),
        ({"a": 1, "b": [1, 2]}, {"b": [1.0, 2], "a": "1"}),
    ],
)
def test_the_same_value_in_two_types_has_one_identity(left: Any, right: Any) -> None:
    assert canonical(left) == canonical(right)
    assert of_fields({"x": left}, ["x"]) == of_fields({"x": right}, ["x"])


@pytest.mark.parametrize(
    ("left", "right"),
    [(5, 6), (0.1, 0.2), ("a", "b"), (None, "None"), (True, 1), (date(2026, 1, 2), NOON), ("", None), ([1], [1, 1])],
)
def test_different_values_have_different_identities(left: Any, right: Any) -> None:
    assert of_fields({"x": left}, ["x"]) != of_fields({"x": right}, ["x"])


def test_a_field_that_a_record_lacks_is_null_in_a_table() -> None:
    record, row = {"x": [{"a": 1, "b": {}}]}, {"x": [{"a": 1, "b": {"c": None}, "d": None}]}
    assert of_fields(record, ["x", "y"]) == of_fields(row, ["x", "y"])


def test_the_bytes_of_key_and_value_cannot_be_mistaken_for_each_other() -> None:
    pairs = [(None, b"ab"), (b"", b"ab"), (b"a", b"b"), (b"ab", b""), (b"ab", None), (None, None), (b"1:", b"+x")]
    assert len({of_record(*pair) for pair in pairs}) == len(pairs)


def test_fields_are_told_apart_by_their_place() -> None:
    assert of_fields({"a": 1, "b": 2}, ["a", "b"]) != of_fields({"a": 2, "b": 1}, ["a", "b"])


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (None, None),
        (b"text", "text"),
        (b'{"a": 1}', {"a": 1}),
        (b'{"schema": {"type": "string"}, "payload": "x"}', "x"),
        (b"{broken", "{broken"),
    ],
)
def test_values_are_understood_without_their_converter(value: bytes | None, found: Any) -> None:
    assert parsed(value) == found


def test_examples_are_short() -> None:
    assert shown(b"line") == "line"
    assert shown({"a": 1}) == '{"a": "1"}'
    assert len(shown("x" * 500)) == 80
