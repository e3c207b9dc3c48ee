"""Records as a peek shows them, and dead letters that are corrected and sent again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from connectx.api.peek import ERRORS, DeadLetters, Record, Records, newest
from connectx.errors.checks import PeekError
from connectx.kafka.admin.topic_snapshot import TopicSnapshot

RECORD = Record("t", 0, 7, 1_700_000_000_000, {"id": 1}, {"name": "a"}, {"trace": "x"}, b'{"id":1}', b'{"name":"a"}')
LETTER = replace(RECORD, headers={"trace": "x", f"{ERRORS}exception.message": "no such id", f"{ERRORS}topic": "rows"})


def test_a_record_is_a_line_with_key_value_headers_and_place() -> None:
    assert RECORD.row() == {
        **{"partition": 0, "offset": 7, "time (UTC)": "22:13:20.000"},
        **{"key": "{'id': 1}", "value": "{'name': 'a'}", "headers": "trace=x"},
    }
    assert replace(RECORD, value="v" * 1_000).row()["value"] == "v" * 199 + "…"
    assert "1 newest records of topic t" in repr(Records([RECORD], "newest records of topic t"))


def test_a_dead_letter_shows_its_reason_in_place_of_the_headers_that_say_it() -> None:
    assert (LETTER.row()["headers"], LETTER.row()["reason"]) == ("trace=x", "no such id")
    table = Records([RECORD, LETTER], "records").to_pandas()
    assert list(table["reason"]) == ["", "no such id"]
    assert list(table["value"]) == [{"name": "a"}] * 2


def test_dead_letters_are_sent_again_as_they_are_or_corrected_all_at_once() -> None:
    sent: list[list[bytes | None]] = []

    def send(letters: Sequence[Record]) -> None:
        sent.append([letter.raw_value for letter in letters])

    letters = DeadLetters([LETTER, LETTER], "out", "dead", send)
    assert letters.send_again() == 2
    assert letters.send_again(lambda value: (value or b"").upper()) == 2
    assert sent == [[b'{"name":"a"}'] * 2, [b'{"NAME":"A"}'] * 2]
    assert DeadLetters([], "out", "dead", send).send_again() == 0
    assert len(sent) == 2


def test_only_the_end_of_a_topic_is_read_with_room_for_the_ends_of_transactions() -> None:
    snapshot = TopicSnapshot("t", {0: 10, 1: 0}, {0: 30, 1: 1_000}, (), False, {})
    assert newest(snapshot, 20).starts == {0: 10, 1: 960}
    assert newest(snapshot, None) is snapshot


def test_one_dead_letter_is_sent_again_alone() -> None:
    sent: list[Record] = []
    letters = DeadLetters([LETTER, replace(LETTER, offset=8)], "out", "dead", sent.extend)
    assert letters.only(0, 8).send_again() == 1
    assert [letter.offset for letter in sent] == [8]
    with pytest.raises(PeekError, match="no dead letter at offset 9 of dead-0 among these 2"):
        letters.only(0, 9)
