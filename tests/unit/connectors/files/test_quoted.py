"""Records of CSV text with line feeds in quoted values: found as Python's csv module finds them."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectx.connectors.files import quoted
from connectx.connectors.files.errors import SourceFileUnreadableError
from connectx.connectors.files.quoted import last_record_end, records_of

TABLES = st.lists(st.lists(st.text('a,"\n ', max_size=6), min_size=2, max_size=3), max_size=8)


def written(rows: list[list[str]], end: str) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator=end).writerows(rows)
    return text.getvalue().encode()


@given(rows=TABLES, end=st.sampled_from(["\n", "\r\n"]))
def test_records_end_outside_of_quotes(rows: list[list[str]], end: str) -> None:
    text = written(rows, end)
    assert last_record_end(text, "in") == len(text)
    records = records_of(text) if text else []
    assert [next(csv.reader(io.StringIO(record.decode(), newline=""))) for record in records] == rows


@given(rows=TABLES, at=st.integers(0, 100))
def test_a_block_ends_where_the_last_complete_record_does(rows: list[list[str]], at: int) -> None:
    text = written(rows, "\n")
    ends = [0, *(len(written(rows[: count + 1], "\n")) for count in range(len(rows)))]
    at = min(at, len(text))
    assert last_record_end(text[:at], "in") == max(end for end in ends if end <= at)


def test_a_quote_that_is_not_closed_is_an_error_that_names_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quoted, "_RECORD_BYTES_MAX", 10)
    assert last_record_end(b'1,"open\n', "in.csv") == 0
    with pytest.raises(SourceFileUnreadableError, match=r"in\.csv .*a quote is not closed"):
        last_record_end(b'1,"open\nand more\n', "in.csv")
