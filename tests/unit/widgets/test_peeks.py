"""Data as a page gets it: tables of texts, newest first, filtered, secrets hidden; one dead letter to correct."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from connectx_widgets.actions import parse
from connectx_widgets.questions import answer

from connectx.api.peek import ERRORS, DeadLetters, Record
from connectx.views import Listed

RECORD = Record("t", 0, 7, 1_700_000_000_000, "k", "db://me:s3cret@host/", {"trace": "x"}, b"k", b"v")
LETTER = replace(RECORD, value="", headers={f"{ERRORS}exception.message": "no such id"}, raw_value=b"{bad")


def cluster(items: list[Any], sent: list[Record] | None = None) -> Any:
    letters = DeadLetters(items, "out", "dead", ([] if sent is None else sent).extend)
    return SimpleNamespace(
        peek=lambda name, rows: Listed(items[-rows:], "rows"), dead_letters=lambda sink, rows: letters
    )


def peek(items: list[Any], text: str = "") -> Any:
    return answer(cluster(items), {"question": "peek", "name": "t", "filter": text})


def test_records_are_newest_first_without_secrets() -> None:
    shown = peek([RECORD, replace(RECORD, offset=8, value="later")])
    assert shown["columns"] == ["partition", "offset", "time (UTC)", "key", "value", "headers"]
    assert [row[1] for row in shown["rows"]] == ["8", "7"]
    assert shown["rows"][1][4] == "db://me:[hidden]@host/"
    assert shown["call"] == 'cluster.peek("t")'


def test_a_filter_looks_at_more_rows_than_are_shown() -> None:
    items = [replace(RECORD, offset=number, value="Wanted" if number == 3 else "other") for number in range(500)]
    assert [row[1] for row in peek(items, "wanted")["rows"]] == ["3"]
    assert len(peek(items)["rows"]) == 20


def test_rows_of_a_target_are_shown_with_all_their_columns() -> None:
    assert peek([{"a": 1}, {"b": None}])["columns"] == ["b", "a"]
    assert peek([{"a": 1}, {"b": None}])["rows"] == [["", ""], ["", "1"]]


def test_a_dead_letter_has_its_reason_and_its_value_to_correct() -> None:
    shown = answer(cluster([LETTER]), {"question": "letters", "name": "out", "filter": ""})
    assert (shown["rows"][0][-1], shown["places"]) == ("no such id", [[0, 7]])
    asked = {"question": "letter", "name": "out", "partition": 0, "offset": 7}
    assert answer(cluster([LETTER]), asked) == {"value": "{bad"}
    assert answer(cluster([replace(LETTER, raw_value=b"\xff")]), asked) == {"value": None}


@pytest.mark.parametrize(("value", "written"), [(None, b"{bad"), ("{}", b"{}")])
def test_one_dead_letter_is_sent_again_as_it_is_or_corrected(value: str | None, written: bytes) -> None:
    sent: list[Record] = []
    message = {"verb": "send_again", "connector": "out", "partition": 0, "offset": 7, "value": value}
    call = parse(cluster([LETTER], sent), message)
    call.run()
    assert call.text.startswith('cluster.dead_letters("out").only(0, 7).send_again(')
    assert [letter.raw_value for letter in sent] == [written]
