"""Messages of pgoutput are read as PostgreSQL writes them, and anything else is refused."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectx.errors import ReplicationMessageError
from connectx.protocol.pgoutput import (
    UNCHANGED,
    Begin,
    Commit,
    Delete,
    Insert,
    Other,
    Relation,
    RelationColumn,
    Truncate,
    Update,
    decode,
)
from tests.support.pgoutput import encoded

LSNS = st.integers(0, 2**63 - 1)
OIDS = st.integers(0, 2**32 - 1)
MICROS = st.integers(0, 2**60)
NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=20)
VALUES = st.one_of(st.none(), st.just(UNCHANGED), st.binary(max_size=40))
ROWS = st.lists(VALUES, max_size=6).map(tuple)
COLUMNS = st.builds(RelationColumn, NAMES, OIDS, st.integers(-1, 2**31 - 1), st.booleans())
MESSAGES = st.one_of(
    st.builds(Begin, LSNS, MICROS, OIDS),
    st.builds(Commit, LSNS, LSNS, MICROS),
    st.builds(Relation, OIDS, NAMES, NAMES, st.sampled_from("dnfi"), st.lists(COLUMNS, max_size=5).map(tuple)),
    st.builds(Insert, OIDS, ROWS),
    st.builds(Update, OIDS, ROWS, ROWS, st.booleans()),
    st.builds(Update, OIDS, ROWS, st.none(), st.just(False)),
    st.builds(Delete, OIDS, ROWS, st.booleans()),
    st.builds(Truncate, st.lists(OIDS, max_size=4).map(tuple), st.booleans(), st.booleans()),
)


@given(MESSAGES)
def test_what_was_encoded_is_decoded(message: Begin) -> None:
    assert decode(encoded(message)) == message


@given(MESSAGES, st.data())
def test_a_message_that_is_cut_off_or_too_long_is_refused(message: Begin, data: st.DataObject) -> None:
    whole = encoded(message)
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    for broken in (cut, whole + b"x"):
        with pytest.raises(ReplicationMessageError, match="pgoutput"):
            decode(broken)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_message_or_a_typed_error(data: bytes) -> None:
    with suppress(ReplicationMessageError):
        assert decode(data) is not None


def test_messages_that_change_no_row_are_named() -> None:
    assert decode(b"Y\0\0\0\1pub\0mood\0") == Other("Y")
    assert decode(b"O\0\0\0\0\0\0\0\1origin\0") == Other("O")


def test_an_empty_schema_is_that_of_postgresql_itself() -> None:
    found = decode(b"R\0\0\0\1\0t\0d\0\0")
    assert isinstance(found, Relation)
    assert found.schema == "pg_catalog"


def test_values_in_binary_form_are_refused() -> None:
    with pytest.raises(ReplicationMessageError, match="of the kind 98"):
        decode(b"I\0\0\0\1N\0\1b\0\0\0\1x")
