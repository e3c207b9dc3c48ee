"""What topics and a target have in common is what can be compared; where that is nothing, the check says so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from connectx.connectors.jdbc.rows import RowSettings
from connectx.connectors.lake.changes import UpsertSettings
from connectx.kafka.admin.topic_snapshot import TopicSnapshot
from connectx.plugins.stored import Stored
from connectx.verify.check.comparison import Comparison
from connectx.verify.check.judge import judge
from connectx.verify.check.sides import Sides, Topic, decode_plainly, joined_rows, topic_rows
from connectx.verify.check.sources import judged_together, task_configs
from connectx.verify.check.targets import target_of
from connectx.verify.check.verdict import Verdict

RECORDS = [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]


class Held(TopicSnapshot):
    """A topic of which somebody has read the records."""

    def read(self) -> Any:
        row = {"topic": "t", "partition": 0, "offset": 0, "timestamp": 0, "key": None, "value": None}
        yield pa.Table.from_pylist([row] * self.ends[0])


def sides(target: Sequence[Any], key: tuple[str, ...] = ()) -> Sides:
    snapshot = Held("t", {0: 0}, {0: 2}, (), False, {})
    topic = Topic(snapshot, lambda name, rows: [(None, record) for record in RECORDS])
    return Sides([topic], target_of(target), None, key)


@pytest.mark.parametrize("target", [RECORDS, [{"id": 1, "more": 5}], ["a line"], []])
def test_rows_that_share_a_field_with_the_records_are_compared(target: Sequence[Any]) -> None:
    assert sides(target).doubts == ()


def test_rows_without_a_field_of_the_records_are_all_alike_and_compared_with_nothing() -> None:
    assert sides([{"number": 1}, {"number": 2}]).doubts == ("the records and the given rows have no field in common",)


def test_rows_without_a_field_of_the_key_cannot_be_told_apart() -> None:
    assert sides(RECORDS, key=("id",)).doubts == ()
    assert sides(RECORDS, key=("idd",)).doubts == (
        "the field idd, which was to identify rows, is not in the given rows",
    )


def upserted(*ids: int) -> Verdict:
    """A table that keeps one row for each id, behind a topic of records with these ids."""
    records = [{"id": number, "name": str(place)} for place, number in enumerate(ids)]
    snapshot = Held("t", {0: 0}, {0: len(ids)}, (), False, {})
    topic = Topic(snapshot, lambda name, rows: [(None, record) for record in records])
    table = pa.Table.from_pylist([{"id": number, "name": "?"} for number in sorted(set(ids))])
    both = Sides([topic], Stored("table x", lambda: iter([table]), key=("id",)), None)
    return judge(
        (),
        [Comparison(("out",), both.found(), both.wanted(), ordered=False, from_topic=True, unchecked=both.unchecked)],
    )


def test_a_row_for_each_key_is_valid_and_one_that_records_have_changed_is_not_known() -> None:
    assert upserted(1, 2).answer == "valid"
    changed = upserted(1, 2, 1)
    assert changed.answer == "unknown"
    assert changed.reasons == ("records of topic t change rows of table x, of which only the keys were compared",)


def with_deletes(changes: Sequence[tuple[int, str | None]], rows: Sequence[int], *, committed: int = 99) -> Verdict:
    """A table of these ids behind records with ids as keys, whose values are names; None deletes."""
    decoded = [(number, name and {"name": name}) for number, name in changes]

    class Numbered(Held):
        def read(self) -> Any:
            row = {"topic": "t", "partition": 0, "timestamp": 0, "key": None, "value": None}
            yield pa.Table.from_pylist([{**row, "offset": offset} for offset in range(len(decoded))])

    topic = Topic(Numbered("t", {0: 0}, {0: len(decoded)}, (), False, {}), lambda name, rows: decoded)
    table = pa.table({"id": pa.array(rows, pa.int64())})
    upserts = UpsertSettings(key=("id",), from_record_key=True, deletes=True, debezium=False)
    stored = Stored("table x", lambda: iter([table]), key=("id",), change=upserts.change)
    both = Sides([topic], stored, {"t-0": committed})
    comparison = Comparison(("out",), both.found(), both.wanted(), ordered=False, exact=False, from_topic=True)
    return judge((), [comparison])


def test_a_row_that_was_deleted_is_not_wanted_and_one_that_came_back_is() -> None:
    changes = [(1, "a"), (2, "b"), (3, "c"), (1, None), (2, None), (2, "again")]
    assert with_deletes(changes, [2, 3]).answer == "valid"
    assert with_deletes(changes, [3]).answer == "invalid"
    assert with_deletes(changes, [2, 2, 3]).answer == "invalid"
    assert with_deletes(changes, [1, 2, 3]).answer == "unknown"


def test_a_row_whose_delete_is_pending_may_be_there_or_not() -> None:
    changes = [(1, "a"), (2, "b"), (1, None), (2, "c")]
    assert with_deletes(changes, [1, 2], committed=2).answer == "valid"
    assert with_deletes(changes, [2], committed=2).findings == ()
    assert with_deletes(changes, [1], committed=2).answer == "invalid"


def kept(
    changes: Sequence[tuple[int, Any]],
    rows: Sequence[Mapping[str, Any]],
    *,
    committed: int = 99,
    partitions: int = 1,
) -> Verdict:
    """A table with these rows behind records with ids as keys; None deletes."""

    class Numbered(Held):
        def read(self) -> Any:
            row = {"topic": "t", "timestamp": 0, "key": None, "value": None}
            found = [{**row, "offset": at, "partition": at % partitions} for at in range(len(changes))]
            yield pa.Table.from_pylist(found)

    topic = Topic(Numbered("t", {0: 0}, {0: len(changes)}, (), False, {}), lambda name, _: list(changes))
    change = UpsertSettings(key=("id",), from_record_key=True, deletes=True, debezium=False).change
    stored = Stored("table x", lambda: iter([pa.Table.from_pylist(list(rows))]), key=("id",), change=change)
    both = Sides([topic], stored, {f"t-{number}": committed for number in range(partitions)})
    comparison = Comparison(
        ("out",),
        both.found(),
        both.wanted(),
        ordered=False,
        exact=False,
        from_topic=True,
        unchecked=both.unchecked,
        outdated=both.outdated,
    )
    return judge((), [comparison])


CHANGES = [(1, {"n": 1}), (2, {"n": 2}), (1, {"n": 3}), (2, None), (3, {"n": 4}), (2, {"n": 5})]
LEFT = [{"id": 1, "n": 3}, {"id": 2, "n": 5}, {"id": 3, "n": 4}]


def test_rows_that_records_have_changed_and_deleted_are_compared_with_the_last_record_of_their_key() -> None:
    assert kept(CHANGES, LEFT).answer == "valid"
    assert kept([*CHANGES, (3, None)], LEFT[:2]).answer == "valid"


def test_values_that_records_keep_are_those_of_the_record_before() -> None:
    mark = "__debezium_unavailable_value"
    changes = [(1, {"n": 1, "a": "long"}), (1, {"n": 2, "a": mark}), (1, {"n": 3, "a": mark}), (2, {"n": 4, "a": "x"})]
    rows = [{"id": 1, "n": 3, "a": "long"}, {"id": 2, "n": 4, "a": "x"}]
    assert kept(changes, rows).answer == "valid"
    for other in ("wrong", mark):
        different = kept(changes, [{**rows[0], "a": other}, rows[1]])
        assert (different.answer, different.lost) == ("unknown", 0)
        assert "look different" in " ".join(different.reasons)
    unknown = kept([*changes[1:], (2, None), (2, {"n": 5, "a": mark})], [rows[0], {"id": 2, "n": 5, "a": "old"}])
    assert unknown.answer == "unknown"
    (reason,) = unknown.reasons
    assert "without all of their values" in reason


@pytest.mark.parametrize("lost", range(3))
def test_a_row_that_is_lost_is_found_among_changed_and_deleted_ones(lost: int) -> None:
    verdict = kept(CHANGES, [row for at, row in enumerate(LEFT) if at != lost])
    assert (verdict.answer, verdict.lost) == ("invalid", 1)


def test_a_row_that_holds_an_older_record_of_its_key_has_lost_the_last_one() -> None:
    verdict = kept(CHANGES, [{"id": 1, "n": 1}, *LEFT[1:]])
    assert (verdict.answer, verdict.lost) == ("invalid", 1)


def test_a_row_whose_values_look_different_is_not_called_lost() -> None:
    verdict = kept(CHANGES, [{"id": 1, "n": 77}, *LEFT[1:]])
    assert verdict.answer == "unknown"
    assert "holds 1 row that nothing explains" in verdict.reasons[0]


def test_a_row_that_was_deleted_and_is_still_there_is_not_valid() -> None:
    assert kept([*CHANGES, (3, None)], LEFT).answer == "unknown"


def test_a_row_with_changes_that_are_pending_may_hold_any_of_them() -> None:
    for n in (1, 3):
        verdict = kept([(1, {"n": 1}), (1, {"n": 3})], [{"id": 1, "n": n}], committed=1)
        assert (verdict.findings, verdict.pending) == ((), 1)
    assert kept([(1, {"n": 1}), (1, None)], [], committed=1).findings == ()


def test_the_last_of_records_in_several_partitions_is_not_known() -> None:
    verdict = kept([(1, {"n": 1}), (1, {"n": 2})], [{"id": 1, "n": 1}], partitions=2)
    assert verdict.reasons == (
        "records of topic t change rows of table x from several partitions, of which only the keys were compared",
    )
    assert kept([(1, {"n": 1}), (1, {"n": 2})], [], partitions=2).answer == "invalid"


@pytest.mark.parametrize("key", [1, {"id": 1, "more": 2}])
def test_records_change_rows_of_a_jdbc_sink_by_their_keys(key: Any) -> None:
    settings = RowSettings("t", "upsert", "record_key", ("id",), delete=True)
    assert settings.change(("id",), key, {"n": 1}) == ({"id": 1, "n": 1}, False)
    assert settings.change(("id",), key, None) == ({"id": 1}, True)
    assert replace(settings, delete=False).change(("id",), key, None) == (None, False)
    some = replace(settings, fields=frozenset({"n"}))
    assert some.change(("id",), key, {"n": 1, "m": 2}) == ({"id": 1, "n": 1}, False)


def test_a_source_is_read_again_with_what_stands_behind_its_placeholders() -> None:
    listed = [
        {"id": {"connector": "c", "task": 1}, "config": {"password": "${env:P}", "none": None}},
        {"id": {"connector": "c", "task": 0}, "config": {"password": "${env:P}"}},
    ]
    resolved = task_configs(
        listed, lambda config: {key: text and text.replace("${env:P}", "s3") for key, text in config.items()}
    )
    assert resolved == [{"password": "s3"}, {"password": "s3"}]


def test_a_topic_is_read_up_to_its_end_after_its_target_was_read() -> None:
    """Otherwise a row that arrives in between seems to come from nowhere."""
    taken: list[str] = []

    def again(topic: str) -> TopicSnapshot:
        taken.append(topic)
        return Held("t", {0: 0}, {0: 1}, (), False, {})

    first = Held("t", {0: 0}, {0: 0}, (), False, {})
    both = Sides([Topic(first, lambda _, rows: [(None, "a line")] * rows.num_rows)], target_of(["a line"]), None)
    both = replace(both, take_again=again)
    assert taken == []
    assert len([*both.wanted().read()]) == len([*both.wanted().read()]) == 1
    assert taken == ["t"]


def test_a_transaction_that_was_opened_later_hides_nothing_that_is_checked() -> None:
    reason = "records after an open transaction in topic t cannot be read yet"
    snapshot = TopicSnapshot("t", {0: 0}, {0: 7}, (reason, "the topic is compacted"), True, {}, {0: 9})
    assert snapshot.without_later({0: 8}) is snapshot
    later = snapshot.without_later({0: 7})
    assert (later.waits, later.hidden) == (False, ("the topic is compacted",))


def test_topics_of_a_source_that_is_only_counted_are_judged_together() -> None:
    users = {"a": ["cdc"], "b": ["cdc"], "c": ["files"], "d": ["files"], "e": ["x", "y"], "f": ["x"]}
    assert judged_together(users, {"cdc", "x"}) == [["a", "b"], ["c"], ["d"], ["e"], ["f"]]


def test_equal_records_of_two_topics_are_not_copies_of_each_other() -> None:
    class Named(Held):
        def read(self) -> Any:
            for table in super().read():
                yield table.set_column(0, "topic", pa.array([self.topic] * table.num_rows))

    topics = [Topic(Named(name, {0: 0}, {0: 1}, (), False, {}), decode_plainly) for name in ("t", "u")]
    joined = joined_rows([topic_rows(topic, ()) for topic in topics])
    assert (joined.place, joined.size) == ("topic t and topic u", 2)
    assert judge((), [Comparison(("cdc",), joined, committed=2)]).answer == "valid"
    (lost,) = judge((), [Comparison(("cdc",), joined, committed=3)]).findings
    assert lost.count == 1
