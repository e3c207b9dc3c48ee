"""A slot's messages become slices of whole transactions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectx.connectors.cdc.events import Column, Origin, TableShape
from connectx.connectors.cdc.positions import Position, SnapshotState, Visible
from connectx.connectors.cdc.stream import Decoder, Transactions, after_wal
from connectx.connectors.cdc.values import Modes, column_type
from connectx.data.connect_schema import SchemaName, schema_of
from connectx.errors.databases import ReplicationMessageError
from connectx.protocol.pgoutput import Relation
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
    relation,
)

T = relation(1, "id", "name")
U = relation(2, "id", name="u")
PLACEHOLDER = Modes().placeholder


def shape_of(given: Relation) -> TableShape | None:
    if given.name == "hidden":
        return None
    columns = [Column(c.name, column_type(c.type_oid, -1, Modes(), c.name), not c.is_key) for c in given.columns]
    return TableShape(
        given.schema, given.name, tuple(columns), tuple(n for n, c in enumerate(given.columns) if c.is_key)
    )


def transaction(end: int, *changes: Message, xid: int = 9) -> list[tuple[int, bytes]]:
    """A transaction whose changes lie 10 apart before its commit, which ends at `end`."""
    whole: list[Message] = [Begin(end - 5, 1_000_000, xid), *changes, Commit(end - 5, end, 1_000_000)]
    lsns = [end - 90 + 10 * number for number in range(len(whole) - 1)]
    return [(lsn, encoded(message)) for lsn, message in zip([*lsns, end], whole, strict=True)]


def slices(pairs: Sequence[tuple[int, bytes]], position: Position | None = None, **settings: Any) -> list[Transactions]:
    given = {"most": 1, **settings}
    return list(Decoder(shape_of, position or Position(0), given.pop("most"), **given).slices(messages(pairs)))


def events(found: Sequence[Transactions]) -> list[tuple[Any, ...]]:
    """Of each record: op, key, before, after. A tombstone has only a key."""
    rows = []
    for one in found:
        for part in one.parts:
            for row in part.table("topic", Origin("1", "s", "d"), 0).to_pylist():
                value = row["value"]
                key = tuple(row["key"].values()) if row.get("key") else None
                if value is None:
                    rows.append((None, key))
                else:
                    sides = [value[side] and tuple(value[side].values()) for side in ("before", "after")]
                    rows.append((value["op"], key, *sides))
    return rows


def headers(found: Sequence[Transactions]) -> list[list[tuple[str, bytes]] | None]:
    """Names and values of each record's headers, None without any."""
    rows = [row for one in found for part in one.parts for row in part.table("t", Origin("1", "s", "d"), 0).to_pylist()]
    return [[(header["key"], header["value"]) for header in row["headers"]] or None for row in rows]


def test_each_change_becomes_an_event_of_debezium() -> None:
    found = slices(transaction(
        100, T, Insert(1, (b"1", b"a")), Update(1, (b"1", b"b"), None, False), Delete(1, (b"1", None), True)
    ))  # fmt: skip
    assert events(found) == [
        ("c", ("1",), None, ("1", "a")),
        ("u", ("1",), None, ("1", "b")),
        ("d", ("1",), ("1", None), None),
        (None, ("1",)),
    ]
    assert [one.position.offset["lsn"] for one in found] == [100]


def test_full_rows_before_a_change_are_passed_on() -> None:
    found = slices(transaction(100, T, Update(1, (b"1", b"b"), (b"1", b"a"), False), Delete(1, (b"1", b"b"), False)))
    assert events(found)[:2] == [("u", ("1",), ("1", "a"), ("1", "b")), ("d", ("1",), ("1", "b"), None)]


def test_a_changed_key_deletes_one_row_and_creates_another() -> None:
    found = slices(transaction(100, T, Update(1, (b"2", b"a"), (b"1", None), True)))
    assert events(found) == [("d", ("1",), ("1", None), None), (None, ("1",)), ("c", ("2",), None, ("2", "a"))]


def test_each_half_of_a_changed_key_names_the_key_of_the_other_in_a_header() -> None:
    pairs = transaction(100, T, Insert(1, (b"1", b"a")), Update(1, (b'2"', b"a"), (b"1", None), True),
                        Update(1, (b"3", b"b"), (b"2", b"a"), False), Delete(1, (b"3", None), True))  # fmt: skip
    to, back = [("__debezium.newkey", b'{"id":"2\\""}')], [("__debezium.oldkey", b'{"id":"1"}')]
    again = [("__debezium.newkey", b'{"id":"3"}')], [("__debezium.oldkey", b'{"id":"2"}')]
    assert headers(slices(pairs)) == [None, to, to, back, again[0], again[0], again[1], None, None]
    assert headers(slices(pairs, skipped=frozenset("d"))) == [None, back, again[1]]
    assert headers(slices(pairs, skipped=frozenset("c"))) == [to, to, again[0], again[0], None, None]


def test_a_value_that_was_not_sent_is_taken_from_the_old_row_or_is_a_placeholder() -> None:
    found = slices(transaction(
        100, T, Update(1, (b"1", UNCHANGED), None, False), Update(1, (b"1", UNCHANGED), (b"1", b"long"), False)
    ))  # fmt: skip
    assert [row[3] for row in events(found)] == [("1", PLACEHOLDER), ("1", "long")]


def test_tombstones_and_operations_can_be_left_out() -> None:
    pairs = transaction(100, T, Insert(1, (b"1", b"a")), Delete(1, (b"1", None), True), Truncate((1,), False, False))
    assert [row[0] for row in events(slices(pairs, tombstones=False))] == ["c", "d", "t"]
    assert [row[0] for row in events(slices(pairs, skipped=frozenset("dt")))] == ["c"]
    assert slices(pairs, skipped=frozenset("cdt")) == []


def test_changes_of_several_tables_stay_in_one_slice_and_in_order_by_table() -> None:
    (found,) = slices(transaction(100, T, U, Insert(1, (b"1", b"a")), Insert(2, (b"7",)), Insert(1, (b"2", b"b"))))
    assert [(part.shape.name, len(part)) for part in found.parts] == [("t", 2), ("u", 1)]


def test_a_table_that_changes_its_columns_begins_a_new_part() -> None:
    wider = relation(1, "id", "name", "more")
    (found,) = slices(transaction(100, T, Insert(1, (b"1", b"a")), wider, Insert(1, (b"2", b"b", b"c"))))
    assert [[column.name for column in part.shape.columns] for part in found.parts] == [
        ["id", "name"], ["id", "name", "more"],
    ]  # fmt: skip


def test_a_table_is_known_in_later_readings_of_the_same_decoder() -> None:
    decoder, hidden = Decoder(shape_of, Position(0), 9), relation(3, "id", name="hidden")
    first = transaction(100, T, hidden, Insert(1, (b"1", b"a")), Insert(3, (b"7",)))
    second = transaction(200, Insert(3, (b"8",)), Insert(1, (b"2", b"b")))
    more = relation(1, "id", "name", "more")
    third = transaction(300, Insert(1, (b"3", b"c")), more, Insert(1, (b"4", b"d", b"e")))
    (found, later, last) = (list(decoder.slices(messages(pairs))) for pairs in (first, second, third))
    assert [(op, after) for op, _, _, after in events([*found, *later])] == [
        ("c", ("1", "a")), ("c", ("2", "b")),
    ]  # fmt: skip
    assert [len(part.shape.columns) for part in last[0].parts] == [2, 3]
    with pytest.raises(ReplicationMessageError, match="did not describe"):
        list(Decoder(shape_of, Position(0), 9).slices(messages(second)))


def test_tables_that_are_not_read_give_nothing_but_move_the_position() -> None:
    decoder = Decoder(shape_of, Position(0), 1)
    hidden = relation(3, "id", name="hidden")
    assert list(decoder.slices(messages(transaction(100, hidden, Insert(3, (b"1",)))))) == []
    assert decoder.position.lsn == 100


def test_a_slice_ends_with_a_transaction_and_when_it_is_full() -> None:
    pairs = [pair for end in (100, 200, 300) for pair in transaction(end, T, *[Insert(1, (b"1", b"a"))] * 2, xid=end)]
    assert [(one.events, one.position.lsn) for one in slices(pairs, most=3)] == [(4, 200), (2, 300)]


@given(st.lists(st.integers(0, 3), max_size=8), st.integers(1, 5), st.integers(0, 9))
def test_any_restart_between_slices_gives_each_change_once(sizes: list[int], most: int, taken: int) -> None:
    pairs = [
        pair
        for number, size in enumerate(sizes)
        for pair in transaction(100 * (number + 1), T, *[Insert(1, (str(number).encode(), b"x"))] * size, xid=number)
    ]
    whole = events(slices(pairs, most=most))
    before = slices(pairs, most=most)[:taken]
    position = Position.of(before[-1].position.offset) if before else Position(0)
    assert events(before) + events(slices(pairs, position, most=most)) == whole
    assert len(whole) == sum(sizes)


def test_within_a_transaction_that_debezium_has_sent_in_part_the_rest_follows() -> None:
    pairs = transaction(200, T, *(Insert(1, (b"%d" % n, b"x")) for n in range(4)))
    lsns = [lsn for lsn, _ in pairs][2:-1]
    offset = {"lsn": lsns[1], "lsn_proc": lsns[1], "lsn_commit": 100, "txId": 9, "messageType": "INSERT"}
    assert [row[1] for row in events(slices(pairs, Position.of(offset)))] == [("2",), ("3",)]


def test_transactions_that_the_snapshot_has_seen_are_not_sent_again() -> None:
    state = SnapshotState(Visible("5:9:7", 250), finished=True)
    pairs = [
        pair
        for end, xid in ((100, 6), (200, 7), (300, 6))
        for pair in transaction(end, T, Insert(1, (b"%d" % end, b"x")), xid=xid)
    ]
    found = slices(pairs, Position(0, snapshot=state))
    assert [row[1] for row in events(found)] == [("200",), ("300",)]
    assert found[0].position.snapshot == state
    assert found[1].position.snapshot is None


def test_the_source_block_names_transaction_position_and_last_commit() -> None:
    found = slices(transaction(200, T, Insert(1, (b"1", b"a"))), Position(100), most=1)
    source = found[0].parts[0].table("t", Origin("0.2.0", "srv", "shop"), 5_000_000).to_pylist()[0]["value"]["source"]
    assert source == {
        "version": "0.2.0", "connector": "postgresql", "name": "srv", "ts_ms": 1000, "snapshot": "false", "db": "shop",
        "sequence": '["100","130"]', "ts_us": 1_000_000, "ts_ns": 1_000_000_000, "schema": "public", "table": "t",
        "txId": 9, "lsn": 130, "xmin": None, "origin": None, "origin_lsn": None,
    }  # fmt: skip


def test_schemas_have_the_names_of_debezium() -> None:
    (found,) = slices(transaction(100, T, Insert(1, (b"1", b"a"))))
    table = found.parts[0].table("srv.public.t", Origin("1", "srv", "shop"), 0)
    assert [SchemaName.of(table.field(side)) for side in ("key", "value")] == [
        SchemaName("srv.public.t.Key"),
        SchemaName("srv.public.t.Envelope", 2),
    ]
    fields = {field["field"]: field for field in schema_of(table["value"].type)["fields"]}
    assert {name: field["name"] for name, field in fields.items() if "name" in field} == {
        "before": "srv.public.t.Value",
        "after": "srv.public.t.Value",
        "source": "io.debezium.connector.postgresql.Source",
        "transaction": "event.block",
    }
    (marker,) = (field for field in fields["source"]["fields"] if field["field"] == "snapshot")
    assert (marker["name"], marker["default"]) == ("io.debezium.data.Enum", "false")


def test_a_required_column_that_an_old_row_lacks_has_the_types_zero() -> None:
    shape = TableShape("public", "t", (
        Column("id", column_type(23, -1, Modes(), ""), False), Column("n", column_type(23, -1, Modes(), ""), False)
    ), (0,))  # fmt: skip
    pairs = transaction(100, T, Delete(1, (b"1", None), True))
    found = list(Decoder(lambda _: shape, Position(0), 1).slices(messages(pairs)))
    assert events(found)[0] == ("d", (1,), (1, 0), None)


@pytest.mark.parametrize("cut", [slice(0, -1), slice(1, None)])
def test_a_transaction_without_its_begin_or_end_is_refused(cut: slice) -> None:
    with pytest.raises(ReplicationMessageError, match="without its"):
        slices(transaction(100, T, Insert(1, (b"1", b"a")))[cut])


def test_a_change_of_a_table_that_was_not_described_is_refused() -> None:
    with pytest.raises(ReplicationMessageError, match="did not describe"):
        slices(transaction(100, Insert(1, (b"1", b"a"))))


def test_a_row_with_other_columns_than_its_table_is_refused() -> None:
    with pytest.raises(ReplicationMessageError, match="has not 2 columns"):
        slices(transaction(100, T, Insert(1, (b"1",))))


VALUES = st.one_of(st.none(), st.just(UNCHANGED), st.sampled_from([b"", b"a", b"b", b"long" * 40]))
KEYS = st.sampled_from([b"1", b"2"])
CHANGES = st.one_of(
    st.builds(Insert, st.just(1), st.tuples(KEYS, VALUES)),
    st.builds(Update, st.just(1), st.tuples(KEYS, VALUES), st.none(), st.just(False)),
    st.builds(Update, st.just(1), st.tuples(KEYS, VALUES), st.tuples(KEYS, VALUES), st.booleans()),
    st.builds(Delete, st.just(1), st.tuples(KEYS, VALUES), st.booleans()),
    st.just(Truncate((1,), False, False)),
)


def shown(row: Any, old: Any = None) -> tuple[str | None, ...]:
    """A row as an event shows it; values that were not sent come from the old row, or are placeholders."""
    filled = [
        before if value is UNCHANGED and isinstance(before, bytes) else value
        for value, before in zip(row, old or row, strict=True)
    ]
    return tuple(PLACEHOLDER if value is UNCHANGED else value if value is None else value.decode() for value in filled)


def expected_of(change: Message) -> list[tuple[Any, ...]]:
    """The records of a change."""

    def key_of(row: Any) -> tuple[str]:
        return (row[0].decode(),)

    def deleted(row: Any) -> list[tuple[Any, ...]]:
        return [("d", key_of(row), shown(row), None), (None, key_of(row))]

    match change:
        case Insert(_, new):
            return [("c", key_of(new), None, shown(new))]
        case Delete(_, old, _):
            return deleted(old)
        case Update(_, new, old, is_key) if old is None or old[0] == new[0]:
            return [("u", key_of(new), None if is_key or old is None else shown(old), shown(new, old))]
        case Update(_, new, old, _):
            return [*deleted(old), ("c", key_of(new), None, shown(new, old))]
    return [("t", None, None, None)]


@given(st.lists(CHANGES, max_size=12))
def test_changes_as_columns_are_those_of_one_row_at_a_time(changes: list[Message]) -> None:
    expected = [record for change in changes for record in expected_of(change)]
    assert events(slices(transaction(10_000, T, *changes), most=100)) == expected


def test_an_idle_position_moves_over_wal_and_forgets_the_snapshot() -> None:
    state = SnapshotState(Visible("5:9:7", 250), finished=True)
    assert after_wal(Position(100, snapshot=state), 200) == Position(200, snapshot=state)
    assert after_wal(Position(100, snapshot=state), 250) == Position(250)
    assert after_wal(Position(100), 50) == Position(100)
