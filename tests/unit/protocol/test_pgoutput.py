"""Messages of pgoutput are read as PostgreSQL writes them, and anything else is refused."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectx.errors.databases import ReplicationMessageError
from connectx.protocol import pgoutput
from connectx.protocol.pgoutput import Messages, Relation, RelationColumn, Texts
from tests.support.pgoutput import (
    UNCHANGED,
    Begin,
    Commit,
    Delete,
    Insert,
    Message,
    Truncate,
    Update,
    encoded,
    messages,
)

LSNS = st.integers(0, 2**63 - 1)
OIDS = st.integers(0, 2**32 - 1)
MICROS = st.integers(0, 2**60)
NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=20)
VALUES = st.one_of(st.none(), st.just(UNCHANGED), st.binary(max_size=40))
WIDTH = 3
ROWS = st.tuples(*[VALUES] * WIDTH)
COLUMNS = st.builds(RelationColumn, NAMES, OIDS, st.integers(-1, 2**31 - 1), st.booleans())
CHANGES = st.one_of(
    st.builds(Insert, OIDS, ROWS),
    st.builds(Update, OIDS, ROWS, ROWS, st.booleans()),
    st.builds(Update, OIDS, ROWS, st.none(), st.just(False)),
    st.builds(Delete, OIDS, ROWS, st.booleans()),
)
MESSAGES = st.one_of(
    st.builds(Begin, LSNS, MICROS, OIDS),
    st.builds(Commit, LSNS, LSNS, MICROS),
    st.builds(Relation, OIDS, NAMES, NAMES, st.sampled_from("dnfi"), st.lists(COLUMNS, max_size=5).map(tuple)),
    st.builds(Truncate, st.lists(OIDS, max_size=4).map(tuple), st.booleans(), st.booleans()),
    CHANGES,
)


def row(found: Messages, columns: list[Texts], number: int) -> Any:
    """A row as the support's messages have it; None: there is none."""
    values: list[Any] = []
    for kinds, starts, lengths in columns:
        match kinds[number]:
            case pgoutput.TEXT:
                values.append(bytes(found.buffer[starts[number] : starts[number] + lengths[number]]))
            case pgoutput.UNCHANGED:
                values.append(UNCHANGED)
            case pgoutput.NULL:
                values.append(None)
    return tuple(values) if values else None


def read(found: Messages) -> list[Message]:
    """All messages, in the order of their numbers."""
    made: dict[int, Message] = {}
    begins, commits, (numbers, oids) = found.begins(), found.commits(), found.changes()
    made |= {int(n): Begin(int(lsn), int(us), int(xid)) for n, lsn, us, xid in zip(*begins, strict=True)}
    made |= {int(n): Commit(int(lsn), int(end), 0) for n, lsn, end in zip(*commits, strict=True)}
    made |= dict(found.relations())
    made |= {number: Truncate(tables, False, False) for number, tables in found.truncates()}
    rows = found.rows(numbers, WIDTH)
    for at, (number, oid) in enumerate(zip(numbers.tolist(), oids.tolist(), strict=True)):
        old, new = row(found, rows.old, at), row(found, rows.new, at)
        match found.kinds[number]:
            case pgoutput.INSERT:
                made[number] = Insert(oid, new)
            case pgoutput.UPDATE:
                made[number] = Update(oid, new, old, bool(rows.marks[at] == pgoutput.KEY))
            case pgoutput.DELETE:
                made[number] = Delete(oid, old, bool(rows.marks[at] == pgoutput.KEY))
    return [made[number] for number in sorted(made)]


def kept(message: Message) -> Message:
    """A message without what is not read: the time in a commit, and options of TRUNCATE."""
    match message:
        case Commit(lsn, end, _):
            return Commit(lsn, end, 0)
        case Truncate(tables, _, _):
            return Truncate(tables, False, False)
    return message


@given(st.lists(MESSAGES, max_size=8))
def test_what_was_encoded_is_read(given_messages: list[Message]) -> None:
    found = messages((number, encoded(message)) for number, message in enumerate(given_messages))
    assert read(found) == [kept(message) for message in given_messages]
    assert found.lsns.tolist() == list(range(len(given_messages)))


@given(st.lists(st.lists(CHANGES, max_size=4), max_size=8), st.integers(1, 12))
def test_parts_are_whole_transactions_with_enough_messages(transactions: list[list[Message]], least: int) -> None:
    whole = [message for changes in transactions for message in (Begin(1, 0, 1), *changes, Commit(1, 2, 0))]
    found = messages((number, encoded(message)) for number, message in enumerate(whole))
    parts = list(found.parts(least))
    assert [message for part in parts for message in read(part)] == [kept(message) for message in whole]
    assert [lsn for part in parts for lsn in part.lsns.tolist()] == list(range(len(whole)))
    for part in parts[:-1]:
        *inner, last = read(part)
        assert isinstance(last, Commit)
        enough = [number for number, message in enumerate(inner, 1) if isinstance(message, Commit) and number >= least]
        assert len(part) >= least
        assert not enough, "a shorter part would do"
    assert len(parts) == 1 or len(parts[-1])


@given(st.lists(MESSAGES, max_size=3), MESSAGES, st.lists(MESSAGES, max_size=3), st.data())
def test_a_message_that_is_cut_off_or_too_long_is_refused(
    before: list[Message], message: Message, after: list[Message], data: st.DataObject
) -> None:
    whole = encoded(message)
    for broken in (whole[: data.draw(st.integers(0, len(whole) - 1))], whole + b"x"):
        texts = [*map(encoded, before), broken, *map(encoded, after)]
        with pytest.raises(ReplicationMessageError, match="pgoutput"):
            read(messages(enumerate(texts)))


@given(st.lists(st.binary(max_size=60), max_size=4))
def test_any_bytes_are_messages_or_a_typed_error(data: list[bytes]) -> None:
    with suppress(ReplicationMessageError):
        read(messages(enumerate(data)))


def test_messages_that_change_no_row_are_left_out() -> None:
    assert read(messages([(1, b"Y\0\0\0\1pub\0mood\0"), (2, b"O\0\0\0\0\0\0\0\1origin\0")])) == []


def test_an_empty_schema_is_that_of_postgresql_itself() -> None:
    ((_, found),) = messages([(1, b"R\0\0\0\1\0t\0d\0\0")]).relations()
    assert found.schema == "pg_catalog"


def test_values_in_binary_form_are_refused() -> None:
    found = messages([(1, b"I\0\0\0\1N\0\1b\0\0\0\1x")])
    with pytest.raises(ReplicationMessageError, match="a value is not text"):
        found.rows(found.changes()[0], 1)
