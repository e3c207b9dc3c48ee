"""Numbers that others spell: what `int` takes or refuses does not matter."""

from __future__ import annotations

import pytest

from connectx.connectors.lake.parquet_table import partition_of
from connectx.data.headers import _json_of
from connectx.history.wording import task_of
from connectx.model.decoding import exceeds, whole_number

ODD = ["\u00b2", "\u0661", "9" * 5000, "", "-1", "+1", "1_0", " 1"]


@pytest.mark.parametrize("text", [*ODD, str(2**63)])
def test_only_ascii_digits_of_64_bits_are_a_number(text: str) -> None:
    assert whole_number(text) is None
    assert whole_number(str(2**63 - 1)) == 2**63 - 1


def test_zeros_before_a_number_do_not_count() -> None:
    assert [whole_number(text) for text in ("0", "0" * 5000, f"{7:020d}", "0" * 99 + "8")] == [0, 0, 7, 8]


def test_a_number_of_any_length_may_exceed_a_limit() -> None:
    texts = ("8", "08", "9" * 30, "9" * 5000, "7", "0" * 99 + "7", "", "-8", "x")
    assert [exceeds(text, 7) for text in texts] == [True] * 4 + [False] * 5


@pytest.mark.parametrize("text", ODD)
def test_names_with_odd_numbers_are_names_of_others(text: str) -> None:
    assert partition_of(f"t+{text}+1.parquet") is None
    assert partition_of(f"t+1+{text}.parquet") is None
    assert task_of(f"x-{text}") is None or text == "-1"


def test_a_header_of_thousands_of_digits_is_text() -> None:
    assert _json_of("9" * 5000)[0] == "string"
