"""Geometry of the timeline: rows, lanes, clipping, bands, marks, titles."""

from __future__ import annotations

from itertools import pairwise
from math import inf

from connectx.history.render.timeline import Bar, MarkKind, timeline
from connectx.model.events import EventKind
from tests.support.histories import START_MS, History, crowded, kill_of_source, pause_with_fence, small_cluster


def bar(history: History, worker: str, label: str) -> Bar:
    rows = {row.worker: row for row in timeline(history.events).rows}
    return next(bar for bar in (*rows[worker].bars, *rows[worker].connector_bars) if bar.label == label)


def test_rows_are_workers_and_bars_are_tasks_with_connectors_apart() -> None:
    drawn = timeline(small_cluster().events)
    assert [row.worker for row in drawn.rows] == ["worker-1", "worker-2", "worker-3"]
    assert [[bar.label for bar in row.bars] for row in drawn.rows] == [
        ["flights-out-1"],
        ["flights-in-0"],
        ["flights-out-0"],
    ]
    assert [[bar.label for bar in row.connector_bars] for row in drawn.rows] == [["flights-in"], ["flights-out"], []]
    assert [row.is_leader for row in drawn.rows] == [True, False, False]


def test_colours_follow_first_appearance() -> None:
    assert timeline(small_cluster().events).connectors == ("flights-in", "flights-out")
    late = small_cluster().at(9).start("worker-1", "audit-0")
    assert timeline(late.events).connectors == ("flights-in", "flights-out", "audit")


def test_what_happens_to_the_broker_or_an_executor_is_a_mark_of_no_worker() -> None:
    history = small_cluster().at(5).add(EventKind.FAULT_INJECTED, fault="broker_kill")
    history.at(8).add(EventKind.FAULT_INJECTED, fault="broker_restart")
    history.at(9).add(EventKind.FAULT_INJECTED, fault="executor_kill")
    drawn = timeline(history.events)
    assert [(mark.kind, mark.time_ms - START_MS, mark.title) for mark in drawn.marks] == [
        (MarkKind.FAULT, 5_000, "fault: the broker was killed"),
        (MarkKind.FAULT, 8_000, "the broker was started again"),
        (MarkKind.FAULT, 9_000, "fault: an executor of Spark was killed"),
    ]
    assert not [mark for row in drawn.rows for mark in row.marks]


def test_open_bars_reach_to_the_end_of_the_window() -> None:
    drawn = timeline(small_cluster().events, now_ms=START_MS + 60_000)
    [row] = [row for row in drawn.rows if row.worker == "worker-2"]
    assert row.bars[0].end_ms is None
    assert drawn.clip(row.bars[0].end_ms) == START_MS + 60_000


def test_a_window_clips_bars_and_leaves_out_what_is_before_it() -> None:
    drawn = timeline(kill_of_source().events, window_ms=4_000)
    assert (drawn.start_ms, drawn.end_ms) == (START_MS + 12_600, START_MS + 16_600)
    rows = {row.worker: row for row in drawn.rows}
    assert rows["worker-2"].bars == ()
    assert rows["worker-2"].marks == ()
    assert drawn.clip(rows["worker-1"].bars[0].start_ms) == drawn.start_ms
    assert [band.generation for band in drawn.bands] == [3, 4]


def test_two_tasks_at_a_time_take_two_lanes_and_a_successor_takes_its_own_lane_again() -> None:
    history = small_cluster().at(3).start("worker-3", "flights-in-1")
    history.at(5).state("worker-3", "flights-out-0", "RESTARTING")
    history.start("worker-3", "flights-out-0", instance=2)
    rows = {row.worker: row for row in timeline(history.events).rows}
    assert rows["worker-3"].task_lanes == 2
    assert [(bar.label, bar.lane) for bar in rows["worker-3"].bars] == [
        ("flights-out-0", 0),
        ("flights-in-1", 1),
        ("flights-out-0", 0),
    ]


def test_a_zombie_and_its_successor_on_one_worker_do_not_share_a_lane() -> None:
    history = small_cluster().at(5).step("worker-3", "flights-out-0", "cancel")
    history.at(6).start("worker-3", "flights-out-0", instance=2).at(9).ended("worker-3", "flights-out-0")
    rows = {row.worker: row for row in timeline(history.events).rows}
    assert [bar.lane for bar in rows["worker-3"].bars] == [0, 1]


def test_a_cut_says_which_way_when_it_is_only_one() -> None:
    history = small_cluster().fault("partition", "worker-3", direction="both")
    history.fault("partition", "worker-3", direction="in")
    marks = {row.worker: row.marks for row in timeline(history.events).rows}["worker-3"]
    assert [mark.title for mark in marks] == ["fault: partition worker-3", "fault: partition worker-3 (in)"]


def test_bars_of_one_lane_never_overlap() -> None:
    for history in (small_cluster(), kill_of_source(), pause_with_fence(), crowded(), crowded(3, 20, 1800)):
        for row in timeline(history.events).rows:
            for bars, lanes in ((row.bars, row.task_lanes), (row.connector_bars, row.connector_lanes)):
                for lane in range(lanes):
                    spans = sorted((bar.start_ms, bar.end_ms or inf) for bar in bars if bar.lane == lane)
                    assert spans
                    assert all(a[1] <= b[0] for a, b in pairwise(spans))


def test_rows_lie_below_each_other_with_their_bars_and_marks_inside() -> None:
    for history in (small_cluster(), pause_with_fence(), crowded(3, 20)):
        bottom = 42
        for row, y in timeline(history.events).placed(42):
            assert y == bottom
            bottom = y + row.height
            edges = sorted((row.top(bar), row.top(bar) + bar.height) for bar in (*row.bars, *row.connector_bars))
            assert all(0 < top < end < row.height for top, end in edges)
            assert all(a == b or a[1] <= b[0] for a, b in pairwise(edges))
            assert all(0 < row.middle(mark) < row.height for mark in row.marks)


def test_parts_tell_state_generation_epoch_duration_and_cause() -> None:
    parts = bar(kill_of_source(), "worker-2", "flights-in-0").parts
    assert [part.title(START_MS) for part in parts] == [
        "flights-in-0 on worker-2: starting, generation 2, epoch 0, lasted 0.1 s",
        "flights-in-0 on worker-2: running, generation 2, epoch 0, lasted 8.7 s",
        "flights-in-0 on worker-2: zombie, generation 2, epoch 0, lasted 0.4 s; its worker was killed",
    ]


def test_a_zombie_whose_write_was_rejected_says_so() -> None:
    assert bar(pause_with_fence(), "worker-2", "flights-in-0").parts[-1].title(START_MS) == (
        "flights-in-0 on worker-2: zombie, generation 2, epoch 0, lasted 9.0 s; the group removed its worker; "
        "its write at epoch 0 was rejected"
    )


def test_marks_lie_on_the_lane_of_their_task_and_faults_on_the_row() -> None:
    rows = {row.worker: row for row in timeline(crowded().events).rows}
    marks = rows["worker-1"].marks
    kinds = [mark.kind for mark in marks]
    assert kinds == [MarkKind.ABORTED] * 2 + [MarkKind.FAULT] + [MarkKind.FENCED] * 2
    lanes = {bar.label: bar.lane for bar in rows["worker-1"].bars}
    assert marks[0].lane == lanes["orders-warehouse-replica-eu-0"]
    assert marks[2].lane is None
    assert [mark.title for mark in marks[2:]] == [
        "fault: stall worker-1",
        "orders-warehouse-replica-eu-0 on worker-1: its write at epoch 3 was rejected",
        "audit-1 on worker-1: its commit was refused (the table is ahead)",
    ]


def test_an_open_part_says_for_how_long_it_lasts() -> None:
    [part] = bar(small_cluster(), "worker-1", "flights-in").parts
    assert part.title(part.start_ms + 3_000) == "flights-in on worker-1: running, generation 2, for 3.0 s"


def test_marks_of_one_task_in_quick_succession_are_one_and_faults_never_are() -> None:
    history = small_cluster().at(8).fault("kill", "worker-2").fault("partition", "worker-2")
    history.add(EventKind.TRANSACTION_ABORTED, "worker-2", "flights-in-0")
    history.at(8.9).fenced("worker-2", "flights-in-0", epoch=0).fenced("worker-2", "flights-in-0", epoch=0)
    history.at(9.1).fenced("worker-2", "flights-in-0", epoch=0)
    marks = {row.worker: row.marks for row in timeline(history.events).rows}["worker-2"]
    about = "flights-in-0 on worker-2"
    assert [(mark.kind, mark.title) for mark in marks] == [
        (MarkKind.FAULT, "fault: kill worker-2"),
        (MarkKind.FAULT, "fault: partition worker-2"),
        (MarkKind.FENCED, f"{about}: a transaction was aborted; {about}: its write at epoch 0 was rejected (2 times)"),
        (MarkKind.FENCED, f"{about}: its write at epoch 0 was rejected"),
    ]


def test_marks_that_a_long_window_cannot_show_apart_are_one() -> None:
    history = small_cluster()
    for second in range(10, 1_510, 3):
        history.at(second).add(EventKind.TRANSACTION_ABORTED, "worker-2", "flights-in-0")
    marks = {row.worker: row.marks for row in timeline(history.events).rows}["worker-2"]
    assert 100 < len(marks) <= 150
    assert marks[0].title.endswith("a transaction was aborted (4 times)")


def test_bands_say_generation_members_leader_reason_and_delay() -> None:
    bands = timeline(kill_of_source().events).bands
    assert bands[2].title == (
        "generation 3, 0.2 s, worker-1 and worker-3; leader worker-1; worker-2 was lost (killed); lost work waits 3.0 s"
    )
    history = small_cluster().at(9).add(EventKind.REBALANCE_STARTED, "worker-3", cause="a member left")
    band = timeline(history.events, now_ms=START_MS + 10_000).bands[-1]
    assert (band.generation, band.title) == (None, "rebalance under way: a member left")
    assert band.end_ms is None


def test_an_empty_history_is_an_empty_timeline() -> None:
    drawn = timeline([])
    assert (drawn.rows, drawn.bands, drawn.start_ms, drawn.end_ms) == ((), (), 0, 0)
