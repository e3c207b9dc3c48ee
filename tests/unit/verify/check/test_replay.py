"""Records that change rows show by themselves what is missing, came twice or is out of order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from connectx.connectors.cdc.positions import Position, SnapshotState, Visible
from connectx.connectors.cdc.replay import is_reached, row_change
from connectx.kafka.admin.topic_snapshot import TopicSnapshot
from connectx.verify.check.comparison import Comparison
from connectx.verify.check.judge import judge
from connectx.verify.check.replay import HeldRecord, Replay
from connectx.verify.check.sides import Topic
from connectx.verify.check.verdict import Verdict
from tests.support.histories import History, small_cluster
from tests.unit.verify.check.test_judge import commit, found

PLACEHOLDER = "__unavailable"
CHANGE = partial(row_change, placeholder=PLACEHOLDER)
Record = tuple[Any, Any]


class Topical(TopicSnapshot):
    """A topic with a record for each value of `ends`."""

    def read(self) -> Any:
        record = {"topic": self.topic, "partition": 0, "timestamp": 0, "key": None, "value": None}
        yield pa.Table.from_pylist([{**record, "offset": offset} for offset in range(self.ends[0])])


def topic(name: str, records: Sequence[Record]) -> Topic:
    return Topic(Topical(name, {0: 0}, {0: len(records)}, (), False, {}), lambda topic, rows: list(records))


def event(
    op: str, lsn: int, after: Any = None, before: Any = None, *, commit: int | None = 0, key: Any = None
) -> Record:
    """A change at an LSN after a commit; its key is the id unless `key` is False."""
    sequence = f'[{"null" if commit is None else f"{chr(34)}{commit}{chr(34)}"},"{lsn}"]'
    row = after if after is not None else before
    found = None if key is False or row is None else {"id": row["id"]}
    value = {"op": op, "before": before, "after": after, "source": {"lsn": lsn, "sequence": sequence}}
    return found, value


def row(number: int, name: Any = "a") -> dict[str, Any]:
    return {"id": number, "name": name}


def killed_in_a_commit() -> History:
    """A source whose first instance ended before its second commit was reported."""
    history = commit(small_cluster().at(2), "worker-2", None, 2, 2)
    return commit(history, "worker-1", 3, 4, 1, epoch=1)


def verdict_on(
    records: Sequence[Record], rows: Sequence[Mapping[str, Any]], *, keyed: bool = True, ahead: bool = False
) -> Verdict:
    """Records of a topic, and the rows that the table holds."""
    held: list[HeldRecord] = [("t", *event("r", 9, one, key=None if keyed else False)) for one in rows]
    replay = Replay([topic("t", records)], held, CHANGE, lambda: ahead)
    names = ("flights-in",)
    of_records = Comparison(names, replay.records(), committed=3, identified=True, late=replay.late, replayed=True)
    of_rows = Comparison(
        names,
        replay.left(),
        replay.wanted("the source"),
        ordered=False,
        ahead=replay.is_ahead,
        unchecked=replay.unchecked,
    )
    return judge(killed_in_a_commit().events, [of_records, of_rows])


FIRST = [event("r", 5, row(1), commit=None), event("r", 5, row(2), commit=None)]
CHANGES = [
    event("c", 10, row(3)),
    event("u", 12, row(1, "b")),
    event("d", 14, before=row(2)),
    (FIRST[1][0], None),
    event("c", 11, row(4), commit=20),
]
LEFT = [row(1, "b"), row(3), row(4)]


def test_a_commit_that_the_history_missed_is_valid_when_the_records_leave_the_rows() -> None:
    verdict = verdict_on([*FIRST, *CHANGES], LEFT)
    assert (verdict.answer, verdict.reasons, verdict.findings) == ("valid", (), ())
    assert verdict.sentence == "Valid: 7 records in topic t and 3 records in topic t, replayed, each once and in order."


@pytest.mark.parametrize(
    ("records", "anomalies"),
    [
        pytest.param([*FIRST, *CHANGES[1:]], {"lost": 1}, id="an insert is missing"),
        pytest.param([*FIRST, CHANGES[0], *CHANGES[2:]], {"lost": 1}, id="an update is missing"),
        pytest.param([*FIRST, *CHANGES, CHANGES[-1]], {"duplicated": 1}, id="a change came twice"),
        pytest.param([*FIRST, FIRST[0], *CHANGES], {"duplicated": 1}, id="a row was read twice"),
        pytest.param([*FIRST, *CHANGES[1:], CHANGES[0]], {"reordered": 1}, id="a change came late"),
        pytest.param([*FIRST, *CHANGES[:4], *CHANGES], {"duplicated": 3}, id="a commit came twice"),
    ],
)
def test_each_anomaly_of_a_missed_commit_is_found(records: list[Record], anomalies: dict[str, int]) -> None:
    verdict = verdict_on(records, LEFT)
    assert verdict.answer == "invalid"
    assert found(verdict) == anomalies


def test_a_delete_that_is_missing_leaves_a_row_that_nothing_explains() -> None:
    verdict = verdict_on([*FIRST, *CHANGES[:2], CHANGES[4]], LEFT)
    assert verdict.answer == "unknown"
    assert "1 row in topic t, replayed cannot be explained by the source" in verdict.sentence


def test_what_the_source_holds_beyond_what_was_captured_is_still_arriving() -> None:
    verdict = verdict_on([*FIRST, *CHANGES[:2]], LEFT, ahead=True)
    assert (verdict.answer, verdict.lost, verdict.pending) == ("unknown", 0, 1)
    assert verdict_on([*FIRST, *CHANGES], LEFT, ahead=True).answer == "valid"


def test_rows_without_a_key_are_counted() -> None:
    lines = [event("c", 10, row(1), key=False)] * 2
    more = [event("u", 12, row(1, "b"), row(1), key=False), event("d", 14, None, row(1, "b"), key=False)]
    assert verdict_on([*lines, *more], [row(1)], keyed=False).answer == "valid"
    assert found(verdict_on([*lines, more[0]], [row(1)], keyed=False)) == {}
    assert found(verdict_on(lines * 2, [row(1)] * 2, keyed=False)) == {"duplicated": 2}
    assert found(verdict_on([*lines, lines[0]], [row(1)] * 4, keyed=False)) == {"lost": 1}


def test_a_truncate_clears_a_topic() -> None:
    cleared = event("t", 16, commit=20)
    assert verdict_on([*FIRST, cleared, event("c", 18, row(8), commit=20)], [row(8)]).answer == "valid"
    lines = [event("c", 10, row(1), key=False), cleared, event("c", 18, row(8), commit=20, key=False)]
    assert verdict_on(lines, [row(8)], keyed=False).answer == "valid"


@pytest.mark.parametrize(
    "form",
    [
        *(PLACEHOLDER, PLACEHOLDER.encode(), "X191bmF2YWlsYWJsZQ==", [PLACEHOLDER]),
        *({PLACEHOLDER: PLACEHOLDER}, [(PLACEHOLDER, PLACEHOLDER)], '{"__unavailable":"__unavailable"}'),
    ],
)
def test_a_value_that_was_not_sent_stays(form: Any) -> None:
    changes = [event("c", 10, row(1, "long")), event("u", 12, row(1, form)), event("c", 14, row(2))]
    assert verdict_on(changes, [row(1, "long"), row(2)]).answer == "valid"


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param([event("c", 10, row(1)), event("c", 12, {**row(3), "new": 5})], id="a new column"),
        pytest.param([event("c", 10, row(1, [1])), event("u", 12, row(1, None))], id="an array that may not be sent"),
    ],
)
def test_a_field_that_not_all_rows_have_is_not_compared_and_named(changes: list[Record]) -> None:
    verdict = verdict_on(
        [*changes, FIRST[1]], [changes[0][1]["after"], changes[1][1]["after"], row(2)][-len(changes) :]
    )
    assert (verdict.answer, verdict.duplicated) == ("unknown", 0)
    assert "was not compared: not all records have its value" in verdict.sentence


def test_heartbeats_and_tombstones_are_about_no_row() -> None:
    assert CHANGE({"serverName": "s"}, {"ts_ms": 1}) is None
    assert CHANGE({"id": 1}, None) is None
    assert CHANGE({"id": 1}, {"op": "m", "source": {"sequence": None}}) is None


def test_a_moment_is_reached_by_an_offset_after_it() -> None:
    running = SnapshotState(Visible("5:9:7", 200), finished=True)
    offsets = [Position(100), Position(99), Position(150, snapshot=running)]
    assert [is_reached(position.offset, 100) for position in offsets] == [True, False, False]
