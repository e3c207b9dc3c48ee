"""Each anomaly is found by its own rule, on evidence made by hand, and nothing is called valid that was not seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from connectx.errors.checks import NotValidError
from connectx.errors.plugins import ConfigError
from connectx.model.events import EventKind
from connectx.verify.check.attribution import Attribution
from connectx.verify.check.comparison import Comparison
from connectx.verify.check.judge import judge
from connectx.verify.check.rows import Row, Rows
from connectx.verify.check.verdict import Anomaly, Verdict
from tests.support.histories import START_MS, History, kill_of_source, small_cluster


def commit(history: History, worker: str, start: int | None, end: int, records: int, epoch: int | None = 0) -> History:
    """A commit of flights-in-0, from one position to another."""
    begin = None if start is None else {"position": start}
    covered = {"partition": {"filename": "f"}, "from": begin, "offset": {"position": end}}
    kind = EventKind.OFFSETS_COMMITTED if epoch is None else EventKind.TRANSACTION_COMMITTED
    return history.add(kind, worker, "flights-in-0", producer_epoch=epoch, records=records, offsets=[covered])


def flow(records: int = 4) -> History:
    """A source that has committed records 0, 1, ... in one slice."""
    return commit(small_cluster().at(2), "worker-2", None, records, records)


def rows(texts: str, place: str = "topic t", **fields: Any) -> Rows:
    """A row per word, with the offset of its place and a time; of one partition."""
    made = [
        Row(word.encode(), word, partition=0, offset=at, time_ms=START_MS + 2000 + at, topic="t", **fields)
        for at, word in enumerate(texts.split())
    ]
    return Rows(place, lambda: made)


def to_topic(found: str, wanted: str | None = "a b c d", **fields: Any) -> Comparison:
    source = None if wanted is None else rows(wanted, "the source of flights-in")
    fields.setdefault("committed", 4)
    return Comparison(("flights-in",), rows(found), source, **fields)


def to_target(found: str, wanted: str = "a b c d", **fields: Any) -> Comparison:
    fields.setdefault("exact", False)
    return Comparison(("flights-out",), rows(found, "table t"), rows(wanted), from_topic=True, **fields)


def found(verdict: Verdict) -> dict[str, int]:
    return {str(finding.anomaly): finding.count for finding in verdict.findings}


def test_a_run_in_which_everything_arrived_once_and_in_order_is_valid() -> None:
    verdict = judge(flow().events, [to_topic("a b c d"), to_target("a b c d")])
    assert (verdict.answer, verdict.findings, verdict.reasons) == ("valid", (), ())
    assert verdict.require_valid() is verdict
    assert verdict.sentence == "Valid: 4 records in topic t and 4 records in table t, each once and in order."


@pytest.mark.parametrize(
    ("comparison", "anomalies", "examples"),
    [
        (to_topic("a b d"), {"lost": 1}, ["c"]),
        (to_topic("a b c d b a b"), {"duplicated": 3}, ["a", "b", "b"]),
        (to_topic("a c b d"), {"reordered": 1}, ["b"]),
        (to_topic("a c c d"), {"lost": 1, "duplicated": 1}, ["b", "c"]),
        (to_target("a b c"), {"lost": 1}, ["d"]),
        (to_target("a b c d d"), {"duplicated": 1}, ["d"]),
        (to_target("b a c d"), {"reordered": 1}, ["a"]),
    ],
)
def test_each_anomaly_is_counted_and_has_its_records_as_examples(
    comparison: Comparison, anomalies: dict[str, int], examples: list[str]
) -> None:
    verdict = judge(flow().events, [comparison])
    assert verdict.answer == "invalid"
    assert found(verdict) == anomalies
    assert [example.text for finding in verdict.findings for example in finding.examples] == examples
    with pytest.raises(NotValidError) as caught:
        verdict.require_valid()
    assert caught.value.verdict is verdict


def test_rows_that_are_equal_in_the_source_are_no_duplicates() -> None:
    assert judge(flow().events, [to_topic("a a b a", "a a a b")]).answer == "valid"
    assert found(judge(flow().events, [to_topic("a a b a a", "a a a b")])) == {"duplicated": 1}
    assert found(judge(flow().events, [to_topic("a a b", "a a a b")])) == {"lost": 1}


def test_rows_that_are_equal_have_no_order() -> None:
    assert judge(flow(3).events, [to_topic("a b a", "a b a", committed=3)]).answer == "valid"


def test_order_is_compared_within_a_partition_only() -> None:
    source = rows("a b c d", "the source")
    two = Rows("topic t", lambda: [Row(w.encode(), w, p, o) for w, p, o in [("c", 0, 0), ("a", 1, 0), ("d", 0, 1),
                                                                           ("b", 1, 1)]])  # fmt: skip
    assert judge(flow().events, [Comparison(("flights-in",), two, source, 4)]).answer == "valid"


def test_a_target_without_an_order_is_not_asked_for_one() -> None:
    assert judge(flow().events, [to_target("d c b a", ordered=False)]).answer == "valid"


def reasons(verdict: Verdict) -> str:
    assert verdict.answer == "unknown", verdict
    assert not verdict
    return "; ".join(verdict.reasons)


def test_a_run_in_which_nothing_was_committed_is_unknown() -> None:
    assert "nothing ran" in reasons(judge(small_cluster().events, [to_topic("", "", committed=0)]))


def test_rows_of_an_earlier_run_are_compared_though_nothing_was_committed_since() -> None:
    verdict = judge(small_cluster().events, [to_topic("a b c d", committed=0), to_target("a b c d")])
    assert "nothing ran" not in repr(verdict)


def test_a_run_seen_from_outside_is_unknown_for_want_of_commits() -> None:
    attached = History().add(EventKind.ATTACHED, url="http://w:8083/").events
    reported = reasons(judge(attached, [to_topic("a b c d", committed=None)]))
    assert "from outside" in reported
    assert "nothing ran" not in reported


def test_empty_places_show_nothing() -> None:
    assert "no place that was read holds a record" in reasons(judge((), [to_target("", "")]))


def test_a_history_alone_is_unknown() -> None:
    assert "no topic and no target was read" in reasons(judge(flow().events))


def test_a_history_without_its_beginning_is_unknown() -> None:
    assert "beginning of the history is gone" in reasons(judge(flow().events[5:], [to_topic("a b c d")]))


def test_what_is_on_its_way_is_no_loss_and_not_valid_either() -> None:
    pending = Comparison(("flights-out",), rows("a b", "table t"), rows("a b c d", pending=True), from_topic=True)
    verdict = judge(flow().events, [pending])
    assert "2 rows of topic t have not arrived in table t yet" in reasons(verdict)
    assert verdict.pending == 2


def late(found: str, committed: str, rest: str, goal: int | None = None) -> Comparison:
    """A target, and the topic's rows that the sink has committed and those that it has not."""
    done, open_ = rows(committed), rows(rest, pending=True)
    wanted = Rows("topic t", lambda: [*done.read(), *open_.read()])
    return Comparison(("flights-out",), rows(found, "table t"), wanted, from_topic=True, goal=goal)


def test_what_failed_tasks_hold_up_is_blocked_and_not_worth_waiting_for() -> None:
    history = flow().state("worker-3", "flights-out-0", "FAILED", trace="OSError: disk full")
    partly = judge(history.events, [to_topic("a b c d"), late("a b", "a b", "c d")])
    blocked = "2 rows of topic t have not arrived in table t yet, because flights-out-0 failed"
    assert (reasons(partly), partly.pending) == (blocked, 2), "the other task runs"
    assert partly.sentence == f"Unknown: flights-out-0 failed: OSError: disk full; {blocked}."
    history.state("worker-1", "flights-out-1", "FAILED", trace="OSError: disk full")
    wholly = judge(history.events, [to_topic("a b c d"), late("a b", "a b", "c d")])
    assert "yet, because flights-out-0 and flights-out-1 failed" in reasons(wholly)
    assert wholly.pending == 0
    assert [checked.pending for checked in wholly.checked] == [0, 2]
    assert "still missing" in repr(wholly)


def test_the_error_of_a_failed_task_comes_first_and_is_not_cut() -> None:
    error = f"The table {'t' * 300} is missing. Create it, or set auto.create=true, and restart the task."
    history = flow().state("worker-3", "flights-out-0", "FAILED", trace=f"{error}\nTraceback ...")
    for comparison, answer in ((to_target("a b c"), "invalid"), (to_target("a b c d"), "valid")):
        verdict = judge(history.events, [to_topic("a b c d"), comparison])
        assert verdict.answer == answer
        assert repr(verdict).splitlines()[1] == f"✕ flights-out-0 failed: {error}"
        assert error.rstrip(".") in verdict._repr_html_()


def test_rows_that_are_dead_letters_are_not_expected_in_the_target() -> None:
    wanted = Rows("topic t", lambda: [replace(row, excused=row.text == "c") for row in rows("a b c d").read()])
    dead = replace(to_target("a b d"), wanted=wanted, dead_letters=("t-dlq", 1))
    verdict = judge(flow().events, [to_topic("a b c d"), dead])
    assert (verdict.answer, verdict.pending) == ("valid", 0), verdict
    assert verdict.sentence == (
        "Valid: 4 records in topic t and 3 records in table t, each once and in order; 1 in t-dlq."
    )
    assert [one.expected for one in verdict.checked] == [4, 3]
    also_there = judge(flow().events, [replace(dead, found=rows("a b c d", "table t"))])
    assert also_there.answer == "valid", "put again after a kill, it was taken"
    assert found(judge(flow().events, [replace(dead, found=rows("a d", "table t"))])) == {"lost": 1}, "b is no letter"


def appended(older: str, later: str) -> Comparison:
    made = [*(replace(row, older=True) for row in rows(older).read()), *rows(later).read()]
    return replace(to_target("", exact=True), found=Rows("file out.txt", lambda: made))


def test_rows_that_are_older_than_the_connector_are_a_finding_and_not_duplicates() -> None:
    verdict = judge(flow().events, [appended("a b c d x", "a b c d")])
    assert verdict.answer == "valid", verdict
    assert found(verdict) == {"older": 5}
    assert verdict.sentence == "Valid: 4 records in file out.txt, each once and in order; 5 older rows in file out.txt."
    assert "5 rows of file out.txt are older than flights-out: its first task found them there" in repr(verdict)
    assert found(judge(flow().events, [appended("a b c d", "a c b d d")])) == {
        **{"older": 4, "duplicated": 1, "reordered": 1}
    }
    assert found(judge(flow().events, [appended("x y", "a b c")])) == {"older": 2, "lost": 1}


def test_a_row_that_only_older_rows_hold_is_neither_there_nor_lost() -> None:
    verdict = judge(flow().events, [appended("a b", "c d")])
    assert found(verdict) == {"older": 2}
    assert "2 rows of topic t are in file out.txt only among those that are older than flights-out" in reasons(verdict)


def test_what_came_after_the_check_began_is_not_waited_for() -> None:
    topic = to_topic("a b c d")
    assert judge(flow().events, [topic, late("a b", "a b", "c d", goal=2)]).answer == "valid"
    assert judge(flow().events, [topic, late("a b", "a b", "c d", goal=3)]).pending == 2


def test_what_is_behind_an_open_transaction_is_no_loss_and_worth_waiting_for() -> None:
    verdict = judge(flow().events, [to_topic("a b", hidden=("a transaction is open",), waits=True)])
    assert "a transaction is open" in reasons(verdict)
    assert verdict.pending == 2


def test_equal_records_are_unknown_where_nobody_knows_how_many_there_should_be() -> None:
    assert "2 rows in topic t equal another" in reasons(judge(flow().events, [to_topic("a a a b", None)]))


def test_equal_records_are_duplicates_where_a_key_identifies_them() -> None:
    assert found(judge(flow().events, [to_topic("a b c d a", None, identified=True)])) == {"duplicated": 1}


def test_without_a_source_to_read_the_commits_of_the_history_count() -> None:
    assert judge(flow().events, [to_topic("a b c d", None)]).answer == "valid"
    assert found(judge(flow().events, [to_topic("a b c", None)])) == {"lost": 1}
    assert "1 record more than the history has commits of" in reasons(
        judge(flow().events, [to_topic("a b c d e", None)])
    )
    assert "are unknown" in reasons(judge(flow().events, [to_topic("a b c d", None, committed=None)]))


def test_rows_that_nothing_explains_are_no_duplicates() -> None:
    verdict = judge(flow().events, [to_topic("a b c d x")])
    assert "1 row in topic t cannot be explained by the source of flights-in, for example 'x'" in reasons(verdict)


def test_rows_that_look_different_in_a_target_are_not_called_lost() -> None:
    assert "values were changed or look different" in reasons(judge(flow().events, [to_target("a b c x")]))
    assert found(judge(flow().events, [to_target("a b x")])) == {"lost": 1}
    assert found(judge(flow().events, [to_target("a b c x", exact=True)])) == {"lost": 1}


def test_rows_that_may_have_changed_in_the_source_are_not_called_lost_unless_no_record_is_in_their_place() -> None:
    verdict = judge(flow().events, [to_topic("a b c D", exact=False)])
    assert (verdict.answer, found(verdict)) == ("unknown", {})
    assert verdict.reasons == (
        "1 row of the source of flights-in cannot be found in topic t, which holds 1 row that nothing explains: "
        "rows of the source or the connector's configuration were changed meanwhile",
    )
    assert found(judge(flow().events, [to_topic("a b D", exact=False)])) == {"lost": 1}


def test_records_that_were_skipped_on_purpose_are_not_called_lost() -> None:
    assert "errors.tolerance" in reasons(judge(flow().events, [to_topic("a b c", tolerated=1)]))
    assert found(judge(flow().events, [to_topic("a b", tolerated=1)])) == {"lost": 1}


def test_a_source_that_holds_other_rows_than_it_had_proves_nothing() -> None:
    assert "it was changed meanwhile" in reasons(judge(flow().events, [to_topic("a b c d", "a b c d e")]))


def test_a_place_that_is_too_large_is_unknown() -> None:
    assert "only 3 rows of topic t" in reasons(judge(flow().events, [to_topic("a b c d")], limit=3))


def test_other_reasons_of_the_caller_count() -> None:
    assert "a connector is gone" in reasons(judge(flow().events, [to_topic("a b c d")], unseen=["a connector is gone"]))


@pytest.mark.parametrize("records", [1, 3])
def test_a_gap_between_commits_is_a_skip(records: int) -> None:
    history = commit(flow(), "worker-2", 6, 8, records, epoch=1)  # each transaction has its own
    verdict = judge(history.events, [to_topic("a b c d", None, committed=4)])
    assert found(verdict) == {"skipped": 1}
    assert "from {'position': 6} on, after {'position': 4}" in verdict.findings[0].moments[0].sentence


def test_a_commit_whose_worker_ended_before_the_answer_came_is_no_skip() -> None:
    """Its successor begins where Kafka says; whether anything is missing, the records tell."""
    history = flow().at(10).fault("kill", "worker-2")
    history.at(13).start("worker-3", "flights-in-0", instance=2)
    commit(history.at(14), "worker-3", 6, 8, 2, epoch=1)
    assert judge(history.events, [to_topic("a b c d e f g h", "a b c d e f g h", committed=6)]).answer == "valid"
    assert found(judge(history.events, [to_topic("a b c d g h", "a b c d e f g h", committed=6)]))["lost"] == 2
    unread = judge(history.events, [to_topic("a b c d e f g h", None, committed=None)])
    assert unread.answer == "unknown"
    assert "1 commit of flights-in ended with its worker" in unread.sentence


def test_a_commit_behind_the_own_last_one_is_nonmonotonic() -> None:
    history = commit(flow(), "worker-2", 4, 2, 1)
    assert "nonmonotonic" in found(judge(history.events, [to_topic("a b c d", None)]))


def test_a_commit_that_ends_behind_its_start_is_nonmonotonic() -> None:
    history = commit(small_cluster().at(2), "worker-2", 4, 2, 1)
    assert found(judge(history.events, [to_topic("a", None, committed=1)])) == {"nonmonotonic": 1}


def test_commits_that_cover_the_same_are_duplicates_and_the_zombie_is_named() -> None:
    history = flow().at(10).fault("stall", "worker-2")
    history.at(13).start("worker-3", "flights-in-0", instance=2)
    commit(history.at(14), "worker-3", 4, 7, 3, epoch=None)
    commit(history.at(15), "worker-2", 4, 6, 2, epoch=None)
    verdict = judge(history.events, [to_topic("a b c d e f g e f", None, committed=None)])
    assert found(verdict) == {"duplicated": 2}
    moment = verdict.findings[0].moments[0]
    assert (moment.seq, moment.worker) == (history.events[-1].seq, "worker-2")
    assert moment.sentence == (
        "worker-2, stalled since 22:13:30.000, committed 2 records of flights-in-0 in 1 commit after worker-3 had "
        "taken flights-in-0 over at 22:13:33.100"
    )


def test_a_take_over_has_the_time_that_its_sentence_tells() -> None:
    history = flow().at(10).fault("kill", "worker-2").ended("worker-2", "flights-in-0")
    history.at(13).start("worker-3", "flights-in-0", instance=2)
    moment = Attribution(history.events).of_write(["flights-in"], START_MS + 15_000)
    assert moment is not None
    assert (moment.time_ms, moment.seq) == (START_MS + 13_100, history.events[-1].seq)
    assert moment.sentence.startswith("worker-3 had taken flights-in-0 over at 22:13:33.100 from worker-2, killed")


def test_the_zombie_is_named_also_when_it_committed_first() -> None:
    history = flow().at(10).fault("stall", "worker-2")
    history.at(13).start("worker-3", "flights-in-0", instance=2)
    commit(history.at(14), "worker-2", 4, 6, 2, epoch=None)
    commit(history.at(15), "worker-3", 4, 6, 2, epoch=None)
    verdict = judge(history.events, [to_topic("a b c d e f e f", None, committed=None)])
    assert [moment.worker for moment in verdict.findings[0].moments] == ["worker-2"]


def test_the_topic_counts_duplicates_more_exactly_than_the_commits_that_overlap() -> None:
    history = flow().at(10).fault("stall", "worker-2")
    history.at(13).start("worker-3", "flights-in-0", instance=2)
    commit(history.at(14), "worker-3", 4, 7, 3, epoch=None)
    commit(history.at(15), "worker-2", 4, 6, 2, epoch=None)
    found_rows = [Row(w.encode(), w, 0, at, START_MS + 15_000) for at, w in enumerate("abcdefge")]
    comparison = replace(to_topic("", "a b c d e f g"), found=Rows("topic t", lambda: found_rows))
    verdict = judge(history.events, [comparison])
    assert found(verdict) == {"duplicated": 1}
    assert verdict.findings[0].examples[0].moment is not None
    assert "went on writing for flights-in-0" in verdict.findings[0].examples[0].moment.sentence


def test_commits_whose_events_come_late_are_judged_by_their_offsets() -> None:
    history = small_cluster().at(10).fault("pause", "worker-2")
    history.at(16).start("worker-3", "flights-in-0", instance=2, epoch=1)
    commit(history.at(17), "worker-3", 4, 8, 4, epoch=1)
    commit(history.at(20), "worker-2", None, 4, 4)
    assert judge(history.events, [to_topic("a b c d e f g h", None, committed=8)]).answer == "valid"


def test_offsets_that_a_user_altered_begin_a_new_chapter() -> None:
    history = flow().add(EventKind.OFFSETS_ALTERED, "worker-1", "flights-in", offsets=None)
    commit(history, "worker-2", None, 4, 4)
    twice = to_topic("a b c d a b c d", "a b c d a b c d", committed=8, ordered=False)
    assert judge(history.events, [twice]).answer == "valid"


def test_offsets_without_a_number_are_compared_for_equality() -> None:
    def token(history: History, start: str | None, end: str) -> None:
        begin = None if start is None else {"token": start}
        covered = {"partition": {}, "from": begin, "offset": {"token": end}}
        history.add(EventKind.TRANSACTION_COMMITTED, "worker-2", "flights-in-0", records=1, offsets=[covered])

    chain = small_cluster()
    for start, end in [(None, "x"), ("x", "k"), ("k", "z")]:
        token(chain, start, end)
    comparison = to_topic("a b c", None, committed=3)
    assert judge(chain.events, [comparison]).answer == "valid"
    token(chain, "k", "z")
    assert found(judge(chain.events, [replace(comparison, committed=4)])) == {"lost": 1, "duplicated": 1}
    token(chain, "q", "r")
    assert "skipped" in found(judge(chain.events, [comparison]))


def test_a_commit_that_does_not_say_where_it_starts_is_unknown() -> None:
    history = small_cluster()
    covered = {"partition": {"shard": 1}, "offset": {"n": 4}}
    history.add(EventKind.TRANSACTION_COMMITTED, "worker-2", "flights-in-0", records=4, offsets=[covered])
    assert "did not report where" in reasons(judge(history.events, [to_topic("a b c d", None)]))


def test_a_row_that_a_target_lost_has_the_commit_that_went_past_it() -> None:
    history = flow().at(20).add(EventKind.OFFSETS_COMMITTED, "worker-3", "flights-out-0", records=4, offsets={"t-0": 4})
    example = judge(history.events, [to_target("a b c")]).findings[0].examples[0]
    assert (example.text, example.partition, example.offset) == ("d", 0, 3)
    assert example.moment is not None
    assert (example.moment.seq, example.moment.worker) == (history.events[-1].seq, "worker-3")
    assert example.moment.sentence == "worker-3 committed offset 4 of t-0, which is after it"


def test_who_was_fenced_by_whom_and_since_when_is_said_and_is_no_harm() -> None:
    events = commit(kill_of_source().at(17), "worker-3", None, 4, 4, epoch=1).events
    verdict = judge(events, [to_topic("a b c d")])
    assert verdict.answer == "valid"
    assert [finding.anomaly for finding in verdict.findings] == [Anomaly.FENCED]
    assert verdict.findings[0].sentence == (
        "worker-2's producer of flights-in-0 (epoch 0) is fenced by worker-3 with epoch 1 since 22:13:36.600; 0 writes "
        "of it were rejected"
    )
    assert verdict.sentence.endswith("each once and in order; 1 writer fenced.")


@pytest.mark.parametrize(
    ("scenario", "reached"),
    [("killed", True), ("fenced", True), ("moved", True), ("rebalanced", True), ("stalled", False), ("aborted", False)],
)
def test_a_scenario_that_was_not_reached_makes_the_verdict_unknown(scenario: str, reached: bool) -> None:
    events = commit(kill_of_source().at(17), "worker-3", None, 4, 4, epoch=1).events
    verdict = judge(events, [to_topic("a b c d")], scenarios=[scenario])
    assert verdict.answer == ("valid" if reached else "unknown")
    assert reached or f"the scenario {scenario} was not reached" in reasons(verdict)


def test_a_kill_of_a_worker_without_tasks_is_not_the_scenario() -> None:
    history = flow().started("worker-9").at(20).fault("kill", "worker-9")
    assert judge(history.events, [to_topic("a b c d")], scenarios=["killed"]).answer == "unknown"


def test_a_scenario_may_be_a_predicate() -> None:
    def long_enough(events: Sequence[Any]) -> bool:
        return len(events) > 1000

    verdict = judge(flow().events, [to_topic("a b c d")], scenarios=[long_enough])
    assert "the scenario long_enough was not reached" in reasons(verdict)


def test_an_unknown_scenario_is_an_error_that_names_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="no scenario 'kiled'; there are aborted, fenced, killed"):
        judge(flow().events, [to_topic("a b c d")], scenarios=["kiled"])


def test_the_forms_show_findings_with_examples_and_moments() -> None:
    history = flow().at(20).add(EventKind.OFFSETS_COMMITTED, "worker-3", "flights-out-0", records=4, offsets={"t-0": 4})
    verdict = judge(history.events, [to_topic("a b c d"), to_target("a <b> c")], unseen=["something is hidden"])
    text, html = repr(verdict), verdict._repr_html_()
    assert text.splitlines()[0] == "Invalid: 1 lost."
    assert "? something is hidden" in text
    assert "worker-3 committed offset 4 of t-0" in text
    assert "'d' at partition 0, offset 3" in text
    assert "<script" not in html
    assert "Verdict: invalid" in html
    assert "something is hidden" in html
    table = verdict.to_pandas()
    assert table["anomaly"].tolist() == ["lost", "lost"]
    assert table["offset"].tolist() == [1, 3]
    assert table["event"].tolist() == [history.events[-1].seq] * 2


def test_the_same_evidence_gives_the_same_verdict() -> None:
    history = flow()
    comparisons = [to_topic("a a c d x y"), to_target("d b c")]
    assert judge(history.events, comparisons) == judge(history.events, comparisons)
    assert repr(judge(history.events, comparisons)) == repr(judge(history.events, comparisons))
