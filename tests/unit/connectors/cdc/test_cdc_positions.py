"""Debezium's offsets are read and written, and say which changes come next."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectx.connectors.cdc.positions import KeyRange, Position, Resumed, SnapshotState, Visible, check_offset
from connectx.errors.databases import ReplicationMessageError

LSNS = st.integers(1, 2**62)
TEXTS = st.text(max_size=10)
VISIBLE = st.builds(Visible, st.just("5:9:7"), LSNS)
KEYS = st.lists(TEXTS).map(tuple)
RANGES = st.lists(st.builds(KeyRange, KEYS, KEYS)).map(tuple)
STATES = st.one_of(
    st.builds(SnapshotState, VISIBLE, st.lists(TEXTS).map(tuple), st.dictionaries(TEXTS, RANGES)),
    st.builds(SnapshotState, VISIBLE, finished=st.just(True)),
)


@given(st.builds(Position, LSNS, snapshot=st.none() | STATES, last_xid=st.none() | LSNS, commit_us=LSNS))
def test_a_position_comes_back_from_its_offset(position: Position) -> None:
    assert Position.of(position.offset) == position
    check_offset(position.offset)


def test_an_offset_behind_a_transaction_has_debeziums_keys() -> None:
    assert Position(300, last_xid=7, commit_us=5).offset == {
        "lsn": 300, "lsn_proc": 300, "lsn_commit": 300, "txId": 7, "ts_usec": 5, "messageType": "COMMIT",
    }  # fmt: skip


def debezium(**given: Any) -> Position | None:
    return Position.of({"transaction_id": None, "ts_usec": 1, "txId": 9, **given})


def test_an_offset_of_debezium_within_a_transaction_goes_on_there() -> None:
    found = debezium(lsn=150, lsn_proc=150, lsn_commit=100, messageType="UPDATE", lsn_events_processed=2)
    assert found is not None
    assert found.has_sent(90, 8)
    assert not found.has_sent(200, 9)
    resumed = found.within(9)
    assert resumed is not None
    assert [resumed.skips(lsn) for lsn in (140, 150, 150, 150, 160)] == [True, True, True, False, False]
    assert found.within(10) is None


def test_a_change_of_debezium_where_the_commit_before_ends_is_not_sent_again() -> None:
    found = debezium(lsn=150, lsn_proc=150, lsn_commit=150, messageType="DELETE")
    assert found is not None
    resumed = found.within(9)
    assert resumed is not None
    assert [resumed.skips(lsn) for lsn in (150, 150, 160)] == [True, True, False]


@pytest.mark.parametrize("kind", ["BEGIN", "COMMIT"])
def test_an_offset_of_debezium_between_transactions_skips_nothing(kind: str) -> None:
    found = debezium(lsn=150, lsn_proc=150, lsn_commit=150, messageType=kind)
    assert found is not None
    assert found.within(9) is None
    assert found.has_sent(149, 9)
    assert not found.has_sent(150, 10)


@pytest.mark.parametrize("done", ["last_snapshot_record", "snapshot_completed"])
def test_a_finished_snapshot_of_debezium_is_streamed_from_and_an_unfinished_one_begins_again(done: str) -> None:
    assert debezium(lsn=100, snapshot="INITIAL", **{done: True}) == Position(100, last_xid=9, commit_us=1)
    assert debezium(lsn=100, snapshot="INITIAL", last_snapshot_record=False) is None
    assert debezium(lsn=100, snapshot=True, last_snapshot_record=False) is None


def test_debezium_would_snapshot_again_until_the_stream_has_passed_ours() -> None:
    offset = Position(100, snapshot=SnapshotState(Visible("5:9:7", 200), finished=True)).offset
    assert offset["snapshot"] == "INITIAL"
    assert not offset["last_snapshot_record"]
    assert not offset["snapshot_completed"]


def test_an_offset_without_an_lsn_is_refused() -> None:
    with pytest.raises(ReplicationMessageError, match="no lsn"):
        Position.of({"txId": 5})


def test_a_snapshot_has_what_had_ended_when_it_began() -> None:
    visible = Visible("5:9:7,8", 100)
    assert [visible.has(xid) for xid in range(4, 11)] == [True, True, True, False, False, False, False]
    position = Position(10, snapshot=SnapshotState(visible, finished=True))
    assert position.has_sent(50, 6)
    assert not position.has_sent(50, 7)
    assert not position.has_sent(100, 6)  # xids come again after 2^32 transactions


def test_a_transaction_is_compared_over_the_wrap_of_its_id() -> None:
    epoch = 3 << 32
    visible = Visible(f"{epoch - 2}:{epoch + 4}:{epoch + 1}", 100)
    assert [visible.has(xid) for xid in (2**32 - 3, 2**32 - 1, 0, 1, 2, 4)] == [True, True, True, False, True, False]


def test_all_changes_at_the_last_lsn_count_as_sent_without_a_count() -> None:
    resumed = Resumed(150, None)
    assert [resumed.skips(lsn) for lsn in (150, 150, 151)] == [True, True, False]


@pytest.mark.parametrize(
    ("offset", "problem"),
    [
        ({"lsn": "5"}, "Long"),
        ({"lsn": True}, "Long"),
        ({"lsn": 5, "snapshot_completed": "yes"}, "Boolean"),
        ({"lsn": 5, "rows": 5}, "no key 'rows'"),
        ({"txId": 5}, "should contain the key 'lsn'"),
    ],
)
def test_offsets_that_no_task_could_use_are_refused(offset: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        check_offset(offset)


def test_no_offset_and_debeziums_offset_are_accepted() -> None:
    check_offset(None)
    check_offset({"transaction_id": None, "lsn_proc": 5, "messageType": "INSERT", "lsn_commit": 4, "lsn": 5, "txId": 6,
                  "ts_usec": 7})  # fmt: skip
