"""A snapshot reads several tables at a time, and its records, markers and positions are those of one moment."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from threading import Event, Timer
from typing import Any

import pyarrow as pa
import pytest

from connectx.connectors.cdc.events import Changes, Column, TableShape
from connectx.connectors.cdc.positions import KeyRange, Position, SnapshotState, Visible
from connectx.connectors.cdc.snapshot import Snapshot
from connectx.connectors.cdc.values import Modes, column_type
from connectx.errors.databases import DatabaseUnavailableError
from tests.support.waiting import until

INT4 = 23
Sent = list[tuple[str, list[str], list[str]]]
"""Of each page: table, ids, markers."""


class Server:
    """Tables with ids from 1 on, and the sessions that read them.

    `gates`: a table, or a range of it (`a to 10`), is read when its event is set. `divides`: tables are so large that
    they are sampled.
    """

    def __init__(self, tables: Mapping[str, int], gates: Mapping[str, Event] | None = None) -> None:
        self.tables = tables
        self.gates = gates or {}
        self.sessions: list[Session] = []
        self.failing = ""
        self.divides = False

    def connect(self) -> Any:
        self.sessions.append(Session(self))
        return self.sessions[-1]


class Session:
    """A PostgresSession without a server."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.statements: list[str] = []
        self.cancelled = Event()
        self.is_closed = False

    def execute(self, sql: str) -> None:
        self.statements.append(sql)

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        self.statements.append(sql)
        if "pg_export_snapshot" in sql:
            return [("moment-1",)]
        if "pg_relation_size" not in sql and "TABLESAMPLE" not in sql:
            return [("5:9:7", 200, 1_000, 9)]
        (rows,) = [count for name, count in self._server.tables.items() if f'."{name}"' in sql]
        if "pg_relation_size" in sql:
            return [(100 * rows if self._server.divides else 0,)]
        assert "TABLESAMPLE SYSTEM (100.0)" in sql, "less than what is sampled at most"
        return [(str(number),) for number in range(1, rows + 1)]

    def read(self, sql: str) -> Iterator[pa.Table]:
        self.statements.append(sql)
        found = re.search(r'FROM ONLY "public"\."(\w+)" t (WHERE .*)?ORDER BY .* LIMIT (\d+)', sql)
        assert found is not None, sql
        name, where, limit = found.groups()
        bounds = dict(re.findall(r" (>|<=) \('(\d+)'\)", where or ""))
        gate = self._server.gates.get(name) or self._server.gates.get(f"{name} to {bounds.get('<=', 'the end')}")
        if gate is not None:
            while not gate.wait(0.01):
                if self.cancelled.is_set():
                    raise DatabaseUnavailableError("cancelled", next_step="")
        if name == self._server.failing:
            raise DatabaseUnavailableError("the server is gone", next_step="")
        first, last = int(bounds.get(">", 0)) + 1, int(bounds.get("<=", self._server.tables[name]))
        ids = [str(number).encode() for number in range(first, last + 1)[: int(limit)]]
        if ids:
            yield pa.table({"id": pa.array(ids, pa.binary())}).cast(pa.schema([("id", pa.string())]))

    def cancel(self) -> None:
        self.cancelled.set()

    def close(self) -> None:
        self.is_closed = True


class Tables:
    """A Catalog without a server."""

    keep = False

    def __init__(self, server: Server) -> None:
        self._server = server

    def partitioned(self) -> set[str]:
        return set()

    def tables(self) -> list[TableShape]:
        column = Column("id", column_type(INT4, -1, Modes(), "id"), False)
        return [TableShape("public", name, (column,), (0,)) for name in self._server.tables]


@pytest.fixture
def snapshot_of() -> Iterator[Callable[..., Snapshot]]:
    made: list[Snapshot] = []

    def make(server: Server, *, threads: int = 1, rows: int = 2) -> Snapshot:
        catalog: Any = Tables(server)
        made.append(Snapshot(server.connect(), catalog, catalog.tables, rows, threads, server.connect))
        return made[-1]

    yield make
    for one in made:
        one.close()


def page_of(changes: Changes) -> tuple[str, list[str], list[str]]:
    assert changes.after is not None
    return changes.shape.name, changes.after.columns[0].to_pylist(), changes.snapshot.to_pylist()


def sent(snapshot: Snapshot, position: Position | None = None, most: int = 1000) -> tuple[Sent, Position]:
    """Pages from a position on, at most so many, and the position after them."""
    found: Sent = []
    now = position or snapshot.begin(100)
    while len(found) < most:
        changes, now = snapshot.next(now)
        if changes is None:
            break
        found.append(page_of(changes))
    return found, now


def ids(found: Sent) -> dict[str, list[str]]:
    rows: dict[str, list[str]] = {}
    for name, some, _ in found:
        rows.setdefault(name, []).extend(some)
    return rows


def test_one_thread_sends_table_after_table_with_debeziums_markers(snapshot_of: Callable[..., Snapshot]) -> None:
    found, after = sent(snapshot_of(Server({"a": 3, "b": 1, "c": 2})))
    first, last = "first_in_data_collection", "last_in_data_collection"
    assert found == [
        ("a", ["1", "2"], ["first", "true"]),
        ("a", ["3"], [last]),
        ("b", ["1"], [last]),
        ("c", ["1", "2"], [first, "last"]),
    ]
    assert after.snapshot is not None
    assert after.snapshot.finished


def test_the_last_record_is_marked_when_tables_after_it_are_empty(snapshot_of: Callable[..., Snapshot]) -> None:
    found, _ = sent(snapshot_of(Server({"empty": 0, "a": 2, "also": 0})))
    assert found == [("a", ["1", "2"], ["first", "last"])]


def test_nothing_is_sent_of_empty_tables_or_none(snapshot_of: Callable[..., Snapshot]) -> None:
    for tables in ({"a": 0, "b": 0}, {}):
        found, after = sent(snapshot_of(Server(tables), threads=2))
        assert found == []
        assert after.snapshot is not None
        assert after.snapshot.finished


@pytest.mark.parametrize(("threads", "sessions"), [(1, 1), (2, 2), (9, 3)])
def test_as_many_sessions_as_tables_import_the_first_ones_moment(
    snapshot_of: Callable[..., Snapshot], threads: int, sessions: int
) -> None:
    server = Server({"a": 5, "b": 4, "c": 1})
    found, _ = sent(snapshot_of(server, threads=threads))
    assert ids(found) == {"a": list("12345"), "b": list("1234"), "c": ["1"]}
    assert len(server.sessions) == sessions
    for session in server.sessions[1:]:
        assert session.statements[0] == server.sessions[0].statements[0]
        assert session.statements[1] == "SET TRANSACTION SNAPSHOT 'moment-1'"
    markers = [marker for _, _, page in found for marker in page]
    assert (markers.index("first"), markers.count("first")) == (0, 1)
    assert (markers.index("last"), markers.count("last")) == (len(markers) - 1, 1)


def test_a_slow_table_holds_up_no_other(snapshot_of: Callable[..., Snapshot]) -> None:
    gate = Event()
    server = Server({"a": 1, "slow": 1, "b": 3, "c": 3}, {"slow": gate})
    snapshot = snapshot_of(server, threads=2)
    found, position = sent(snapshot, most=3)
    assert [name for name, _, _ in found] == ["a", "b", "b"]
    gate.set()
    rest, _ = sent(snapshot, position)
    assert ids(found + rest) == {"a": ["1"], "slow": ["1"], "b": ["1", "2", "3"], "c": ["1", "2", "3"]}


@pytest.mark.parametrize("slow", ["a", "b", "c"])
def test_the_first_table_begins_and_the_last_one_ends_a_snapshot(
    snapshot_of: Callable[..., Snapshot], slow: str
) -> None:
    gate = Event()
    server = Server({"a": 3, "b": 3, "c": 3}, {slow: gate})
    timer = Timer(0.1, gate.set)
    timer.start()
    found, _ = sent(snapshot_of(server, threads=3))
    assert (found[0][0], found[0][2][0]) == ("a", "first")
    assert (found[-1][0], found[-1][2]) == ("c", ["last"])
    markers = [marker for _, _, page in found for marker in page]
    assert [markers.count(one) for one in ("first", "last", "true")] == [1, 1, 3]
    assert markers.count("first_in_data_collection") == markers.count("last_in_data_collection") == 2


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_a_snapshot_goes_on_after_each_position_with_the_rows_that_were_not_sent(
    snapshot_of: Callable[..., Snapshot], threads: int
) -> None:
    tables = {"none": 0, "a": 5, "b": 3, "c": 1}
    every, _ = sent(snapshot_of(Server(tables), threads=threads))
    for count in range(len(every) + 1):
        before, position = sent(snapshot_of(Server(tables), threads=threads), most=count)
        stored = Position.of(position.offset)
        assert stored == position
        after, _ = sent(snapshot_of(Server(tables), threads=threads), stored)
        assert ids(before + after) == {"a": list("12345"), "b": list("123"), "c": ["1"]}
        markers = [marker for _, _, page in before + after for marker in page]
        assert markers.count("first") == 1


def test_an_empty_table_is_done_with_the_next_page(snapshot_of: Callable[..., Snapshot]) -> None:
    _, position = sent(snapshot_of(Server({"none": 0, "a": 5})), most=1)
    assert position.snapshot is not None
    assert position.snapshot.done == ("public.none",)
    assert position.snapshot.reading == {"public.a": (KeyRange(("2",)),)}


def divided(tables: Mapping[str, int], gates: Mapping[str, Event] | None = None) -> Server:
    server = Server(tables, gates)
    server.divides = True
    return server


def test_a_large_table_is_read_in_as_many_ranges_as_there_are_threads(snapshot_of: Callable[..., Snapshot]) -> None:
    server = divided({"small": 3, "large": 30})
    snapshot = snapshot_of(server, threads=3)
    found, position = sent(snapshot, most=1)
    assert position.snapshot is not None
    assert len(server.sessions) == 3
    rest, _ = sent(snapshot, position)
    read = ids(found + rest)
    assert {name: sorted(map(int, rows)) for name, rows in read.items()} == {
        "small": [1, 2, 3],
        "large": list(range(1, 31)),
    }
    statements = [statement for session in server.sessions for statement in session.statements if "LIMIT" in statement]
    bounds = {tuple(re.findall(r"<= \('(\d+)'\)", statement)) for statement in statements if "large" in statement}
    assert bounds == {("10",), ("20",), ()}
    assert not any("<=" in statement for statement in statements if "small" in statement)


@pytest.mark.parametrize("slow", ["a to 10", "a to the end", "b to 15", "b to the end"])
def test_markers_of_a_divided_table_are_those_of_one_that_is_read_in_a_row(
    snapshot_of: Callable[..., Snapshot], slow: str
) -> None:
    gate = Event()
    Timer(0.1, gate.set).start()
    found, _ = sent(snapshot_of(divided({"a": 20, "b": 30}, {slow: gate}), threads=2))
    markers = {name: [marker for table, _, page in found if table == name for marker in page] for name in ("a", "b")}
    assert (found[0][0], markers["a"][0], markers["a"].count("first")) == ("a", "first", 1)
    assert (found[-1][0], markers["b"][-1], markers["b"].count("last")) == ("b", "last", 1)
    assert (markers["a"][-1], markers["b"][0]) == ("last_in_data_collection", "first_in_data_collection")
    assert markers["a"].count("true") == 18
    assert markers["b"].count("true") == 28


@pytest.mark.parametrize("threads", [2, 3])
def test_divided_tables_go_on_after_each_position_also_with_other_threads(
    snapshot_of: Callable[..., Snapshot], threads: int
) -> None:
    tables = {"a": 17, "none": 0, "b": 25}
    every, _ = sent(snapshot_of(divided(tables), threads=threads))
    for count in range(len(every) + 1):
        before, position = sent(snapshot_of(divided(tables), threads=threads), most=count)
        stored = Position.of(position.offset)
        assert stored == position
        after, _ = sent(snapshot_of(divided(tables), threads=1 + count % 4), stored)
        read = ids(before + after)
        assert {name: sorted(map(int, rows)) for name, rows in read.items()} == {
            "a": list(range(1, 18)),
            "b": list(range(1, 26)),
        }
        markers = [marker for _, _, page in before + after for marker in page]
        assert (markers.count("first"), markers.count("first_in_data_collection")) == (1, 1)


def test_a_range_whose_rows_are_gone_after_a_restart_ends_its_table(snapshot_of: Callable[..., Snapshot]) -> None:
    state = SnapshotState(Visible("5:9:7", 200), reading={"public.a": (KeyRange((), ("2",)), KeyRange(("8",)))})
    found, position = sent(snapshot_of(Server({"a": 5}), threads=2), Position(100, snapshot=state))
    assert ids(found) == {"a": ["1", "2"]}
    assert position.snapshot is not None
    assert position.snapshot.finished


def test_closing_cancels_what_runs_and_drops_all_sessions(snapshot_of: Callable[..., Snapshot]) -> None:
    server = Server({"a": 5, "slow": 1}, {"slow": Event()})
    snapshot = snapshot_of(server, threads=2)
    sent(snapshot, most=1)
    until(lambda: server.sessions[1].statements[-1].startswith("SELECT"), "the slow table to be read")
    snapshot.close()
    assert server.sessions[1].cancelled.is_set()
    assert [session.is_closed for session in server.sessions] == [True, True]


def test_an_error_of_any_session_ends_the_snapshot(snapshot_of: Callable[..., Snapshot]) -> None:
    server = Server({"a": 3, "b": 1})
    server.failing = "b"
    snapshot = snapshot_of(server, threads=2)
    with pytest.raises(DatabaseUnavailableError, match="the server is gone"):
        sent(snapshot)
