"""What a panel is told: elements that change only when something happened, and no more of them than needed."""

from __future__ import annotations

import json
from dataclasses import replace

from connectx_widgets.elements import (
    Elements,
    changes,
    chunks,
    connector_elements,
    is_running,
    lost_elements,
    newest,
    story_elements,
    task_elements,
    timeline_elements,
)

from connectx.history.folds.lost import LostWork
from connectx.history.folds.snapshot import SnapshotFold, snapshot
from connectx.history.render.timeline import TimelineFold
from connectx.history.sentences.stories import stories
from connectx.model.ids import TaskId
from tests.support.histories import START_MS, History, crowded, kill_of_source, small_cluster


def elements(history: History, now_ms: int | None = None) -> Elements:
    fold = TimelineFold()
    for event in history.events:
        fold.take(event)
    return timeline_elements(fold.timeline(now_ms=now_ms))


def test_time_that_passes_changes_no_element() -> None:
    history = small_cluster()
    assert elements(history, START_MS + 10_000) == elements(history, START_MS + 90_000)


def test_what_happens_to_one_task_changes_its_bar_and_no_other() -> None:
    before = elements(small_cluster())
    after = elements(small_cluster().at(9).state("worker-2", "flights-in-0", "PAUSED"))
    changed, _, dropped = changes(before, after)
    assert ([element["label"] for element in changed.values()], dropped) == (["flights-in-0"], [])


def test_changes_turn_one_picture_into_the_other() -> None:
    before, after = elements(small_cluster()), elements(kill_of_source())
    changed, _, dropped = changes(before, after)
    assert {key: value for key, value in {**before, **changed}.items() if key not in dropped} == after


def test_a_killed_workers_bar_ends_and_its_mark_says_why() -> None:
    drawn = elements(kill_of_source())
    [fault] = [element for element in drawn.values() if element["kind"] == "mark" and element["mark"] == "fault"]
    assert (fault["worker"], fault["title"]) == ("worker-2", "fault: kill worker-2")
    states = [part["state"] for part in next(
        element["parts"] for element in drawn.values()
        if element["kind"] == "bar" and element["worker"] == "worker-2" and element["label"] == "flights-in-0"
    )]  # fmt: skip
    assert "zombie" in states


def test_the_mark_of_a_fault_says_what_followed_and_each_story_is_an_element() -> None:
    told = stories(kill_of_source().events)
    fold = TimelineFold()
    for event in kill_of_source().events:
        fold.take(event)
    marks = timeline_elements(fold.timeline(stories=told))
    [fault] = [element for element in marks.values() if element.get("mark") == "fault"]
    assert fault["title"] == f"fault: kill worker-2; {told[0].sentence}"
    assert story_elements(told)[f"story:{fault['seq']}"]["sentence"] == told[0].sentence


def test_lost_work_says_what_waits_and_until_when() -> None:
    lost = LostWork("worker-2", "was killed", 5, ("out",), (TaskId("in", 0),), 9_000, ("session.timeout.ms",))
    assert lost_elements([lost, replace(lost, worker="worker-3", waits_for=())]) == {
        "lost:worker-2": {
            **{"kind": "lost", "worker": "worker-2", "work": ["in-0", "out"], "due": 9_000},
            "waits": ["session.timeout.ms"],
        },
        "lost:worker-3": {"kind": "lost", "worker": "worker-3", "work": ["in-0", "out"], "due": None, "waits": []},
    }


def test_a_worker_says_all_that_was_done_to_it() -> None:
    row = elements(small_cluster().fault("partition", "worker-3").fault("pause", "worker-3"))["row:worker-3"]
    assert (row["state"], row["words"]) == ("paused", "paused, cut off")
    assert (row["frozen"], row["cut"], row["generation"], row["gone"]) == ("paused", "both", 2, False)


def test_what_happens_to_the_broker_is_a_mark_of_no_worker() -> None:
    from connectx.model.events import EventKind

    drawn = elements(small_cluster().at(9).add(EventKind.FAULT_INJECTED, fault="broker_kill"))
    [mark] = [element for element in drawn.values() if element["kind"] == "mark"]
    assert (mark["worker"], mark["title"]) == (None, "fault: the broker was killed")


def test_a_snapshot_keeps_what_is_newest_and_says_when_something_is_missing() -> None:
    drawn = elements(crowded())
    size = len(json.dumps(drawn))
    assert newest(drawn, 2 * size) == (drawn, True)
    kept, whole = newest(drawn, size // 2)
    assert not whole
    assert len(json.dumps(kept)) <= size // 2
    assert {key for key, element in drawn.items() if element["kind"] == "row"} <= set(kept)
    open_bars = {
        key for key, element in drawn.items() if element["kind"] == "bar" and element["parts"][-1]["to"] is None
    }
    assert open_bars & set(kept)


def test_a_snapshot_of_many_connectors_stays_within_its_limit() -> None:
    history = small_cluster()
    for number in range(100):
        history.at(9 + number).state("worker-1", f"flights{number}x", "RUNNING")
    shown = {**elements(history), **connector_elements(snapshot(history.events), {})}
    kept, whole = newest(shown, 8_000)
    assert (whole, len(json.dumps(kept)) <= 8_000) == (False, True)


def test_a_picture_that_keeps_the_newest_shows_of_them_what_the_whole_one_shows() -> None:
    whole, some, recorded, taken_in_part = TimelineFold(), TimelineFold(10), SnapshotFold(), SnapshotFold(10)
    sizes = []
    for event in many_rebalances(100).events:
        for fold in (whole, some, recorded, taken_in_part):
            fold.take(event)
        sizes.append(len(timeline_elements(some.timeline())))
    everything, kept = timeline_elements(whole.timeline()), timeline_elements(some.timeline())
    for key, element in kept.items():  # a mark whose bar is gone knows no lane
        assert element == everything[key] or element == {**everything[key], "kind": "mark", "lane": None}
    assert {key for key, element in everything.items() if is_running({key: element})} <= set(kept)
    assert max(sizes) == max(sizes[: len(sizes) // 2]) < len(everything) // 4
    assert taken_in_part.snapshot() == recorded.snapshot()


def many_rebalances(rounds: int) -> History:
    """With each round a task moves to and fro, and is fenced. A worker comes and goes, another is there at both ends; a
    task ran but once, another has a zombie from the beginning."""
    history = History().started("worker-1", "worker-2", "worker-3", "worker-4").at(0.5).start("worker-1", "once-0")
    history.ended("worker-1", "once-0", reason="stopped")
    history.start("worker-1", "stuck-0", 1).step("worker-1", "stuck-0", "cancel", 1).start("worker-1", "stuck-0", 2)
    for number in range(1, rounds + 1):
        here, there = ("worker-1", "worker-2") if number % 2 else ("worker-2", "worker-1")
        group = {here: ["orders-0"], there: [], **({"worker-3": []} if number % 3 else {})}
        group |= {"worker-4": []} if number in (1, rounds - 2) else {}
        history.at(60 * number).rebalance(number, leader="worker-1", work=group)
        history.start(here, "orders-0", number, epoch=number)
        history.at(60 * number + 5).fenced(there, "orders-0", number - 1)
    return history


def test_large_pictures_go_in_several_messages() -> None:
    drawn = elements(crowded())
    parts = list(chunks(drawn, 2_000))
    assert len(parts) > 1
    assert {key: value for part in parts for key, value in part.items()} == drawn
    assert all(len(json.dumps(part)) <= 2_100 or len(part) == 1 for part in parts)


def test_nothing_goes_on_when_everything_has_ended() -> None:
    from connectx.model.events import EventKind

    history = small_cluster()
    assert is_running(elements(history))
    for worker in ("worker-1", "worker-2", "worker-3"):
        assert is_running(elements(history)), "the age of a worker's heartbeat grows"
        history.at(60).add(EventKind.WORKER_STOPPED, worker)
    assert not is_running(elements(history))


def test_a_heartbeat_that_is_overdue_is_part_of_a_workers_line_and_another_is_not() -> None:
    fold = TimelineFold()
    for event in small_cluster().events:
        fold.take(event)
    rows = timeline_elements(fold.timeline(), {"worker-2": 7})
    assert [rows[f"row:worker-{number}"]["late"] for number in (1, 2, 3)] == [None, 7, None]


def test_each_task_is_an_element_with_its_numbers() -> None:
    shown = task_elements(snapshot(small_cluster().events), {"flights-out-1": {"rate": 7, "lag": 3}})
    assert list(shown) == ["task:flights-in-0", "task:flights-out-0", "task:flights-out-1"]
    one = shown["task:flights-out-1"]
    assert (one["task"], one["state"], one["worker"], one["rate"], one["lag"]) == (1, "RUNNING", "worker-1", 7, 3)
    assert shown["task:flights-in-0"]["epoch"] == 0


def test_connectors_have_their_tasks_counted_by_state_and_failed_ones_named() -> None:
    history = small_cluster().at(9).state("worker-1", "flights-out-1", "FAILED", trace="ValueError: no")
    shown = connector_elements(snapshot(history.events), {"flights-out": {"rate": 7, "lag": 3}})
    sink = shown["connector:flights-out"]
    assert (sink["tasks"], sink["failed"]) == ({"FAILED": 1, "RUNNING": 1}, ["flights-out-1"])
    assert (sink["rate"], sink["lag"]) == (7, 3)


def test_a_deleted_connector_is_shown_no_more() -> None:
    from connectx.model.events import EventKind

    fold = SnapshotFold()
    for event in small_cluster().at(9).add(EventKind.CONNECTOR_DELETED, "worker-1", "flights-out").events:
        fold.take(event)
    assert list(connector_elements(fold.snapshot(), {})) == ["connector:flights-in"]


def test_of_a_connector_only_the_fields_that_changed_are_sent_and_none_for_one_that_is_gone() -> None:
    before: Elements = {"connector:a": {"kind": "connector", "rate": 1, "state": "RUNNING"}, "row:w": {"kind": "row"}}
    after: Elements = {"connector:a": {"kind": "connector", "rate": 2}, "row:w": {"kind": "row"}}
    assert changes(before, after) == ({}, {"connector:a": {"rate": 2, "state": None}}, [])


def test_numbers_that_are_not_known_and_troubles_that_are_not_there_are_left_out() -> None:
    numbers = {"flights-in": {"rate": 0, "lag": 0, "offset": None, "retries": 0, "errors": 3}}
    element = connector_elements(snapshot(small_cluster().events), numbers)["connector:flights-in"]
    assert {name: element[name] for name in ("rate", "lag", "errors")} == {"rate": 0, "lag": 0, "errors": 3}
    assert not {"offset", "retries"} & element.keys()
