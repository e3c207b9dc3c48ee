"""EventLog: order, bounds, readers, files."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from connectx.errors.history import EventLogError, EventTimeoutError
from connectx.history.clock import system_clock
from connectx.history.log import EventLog
from connectx.model.causes import LaneObstacle
from connectx.model.events import Event, EventKind, Transition
from connectx.model.ids import TaskId
from connectx.model.payloads import SourceRange, TaskState, TransactionCommitted
from connectx.model.states import State
from tests.support.histories import transition


def ticking(start_ms: int = 1_000) -> EventLog:
    times = iter(range(start_ms, start_ms + 10_000))
    return EventLog(clock=lambda: next(times))


def step(number: int) -> Transition:
    return transition(EventKind.TASK_STEP, "orders", number, data={"step": "begin", "instance": number})


def test_an_event_has_the_transition_and_a_number_a_time_and_a_worker() -> None:
    log = ticking(5_000)
    recorded = transition(EventKind.TASK_STATE, "orders", 1, 3, 7, "because", {"state": State.RUNNING})
    event = log.append(recorded, "worker-1")
    why = LaneObstacle("because")
    expected = Event(1, 5_000, "worker-1", TaskState(State.RUNNING), "orders", 1, 3, 7, why)
    assert event == expected
    assert list(log) == [expected]


def test_data_is_copied_and_made_plain() -> None:
    log = ticking()
    offset: dict[str, Any] = {"position": (1, 2), "raw": b"\x01\xff", "ids": {"b", "a"}, "of": TaskId("orders", 0)}
    event = log.append(Transition(TransactionCommitted(1, (SourceRange({"file": "in"}, offset),))))
    offset["position"] = 99
    plain = {"position": [1, 2], "raw": "01ff", "ids": ["a", "b"], "of": "orders-0"}
    assert event.data == {"records": 1, "offsets": [{"partition": {"file": "in"}, "offset": plain}]}
    assert event.payload == TransactionCommitted(1, (SourceRange({"file": "in"}, plain),))


def test_a_full_log_drops_the_oldest_and_says_how_many() -> None:
    log = EventLog(capacity=3)
    for number in range(5):
        log.append(step(number))
    assert [event.seq for event in log] == [3, 4, 5]
    assert (len(log), log.dropped, log.last_seq) == (3, 2, 5)
    assert "2 dropped" in repr(log)
    assert "2 older ones dropped" in log._repr_html_()


def test_a_capacity_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        EventLog(capacity=0)


def test_since_gives_what_is_newer_and_still_kept() -> None:
    log = EventLog(capacity=3)
    for number in range(5):
        log.append(step(number))
    assert [event.seq for event in log.since(0)] == [3, 4, 5]
    assert [event.seq for event in log.since(4)] == [5]
    assert log.since(5) == ()
    assert log.since(99) == ()


def test_a_log_is_indexed_like_a_sequence() -> None:
    log = ticking()
    for number in range(4):
        log.append(step(number))
    assert log[0].seq == 1
    assert log[-1].seq == 4
    assert [event.seq for event in log[1:3]] == [2, 3]
    with pytest.raises(IndexError):
        log[4]


def test_iteration_is_over_a_snapshot() -> None:
    log = ticking()
    log.append(step(0))
    for event in log:
        log.append(step(event.seq))
    assert len(log) == 2


def test_many_threads_get_numbers_without_gaps_and_times_in_their_order() -> None:
    log = EventLog()

    def write() -> None:
        for number in range(200):
            log.append(step(number), threading.current_thread().name)

    threads = [threading.Thread(target=write) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    events = list(log)
    assert [event.seq for event in events] == list(range(1, 1601))
    assert [event.time_ms for event in events] == sorted(event.time_ms for event in events)


def test_wait_finds_what_is_already_there() -> None:
    log = ticking()
    log.append(step(0))
    log.append(step(1))
    assert log.wait(lambda event: event.task == 1, timeout_s=0).seq == 2
    assert log.wait(lambda event: True, timeout_s=0, since=1).seq == 2


def test_wait_wakes_when_the_event_comes() -> None:
    log = EventLog()
    found: list[Event] = []
    waiter = threading.Thread(target=lambda: found.append(log.wait(lambda event: event.task == 3, timeout_s=30)))
    waiter.start()
    for number in range(5):
        log.append(step(number))
    waiter.join(30)
    assert [event.task for event in found] == [3]


def test_wait_gives_up_with_a_typed_error_that_has_a_next_step() -> None:
    log = ticking()
    log.append(step(0))
    with pytest.raises(EventTimeoutError, match=r"within 0 s; the history has 1 events.*to_pandas") as caught:
        log.wait(lambda event: False, timeout_s=0)
    assert caught.value.retriable


def test_a_subscription_starts_behind_the_newest_event_or_where_it_is_told() -> None:
    log = ticking()
    log.append(step(0))
    live, whole = log.subscribe(), log.subscribe(since=0)
    log.append(step(1))
    assert [event.seq for event in live.get(0)] == [2]
    assert [event.seq for event in whole.get(0)] == [1, 2]
    assert live.get(0) == ()


def test_a_slow_subscription_counts_what_it_missed() -> None:
    log = EventLog(capacity=2)
    slow = log.subscribe()
    for number in range(5):
        log.append(step(number))
    assert [event.seq for event in slow.get(0)] == [4, 5]
    assert slow.dropped == 3


def test_closing_a_subscription_ends_an_iteration_that_waits() -> None:
    log = EventLog()
    subscription = log.subscribe()
    seen: list[int] = []
    started = threading.Event()

    def read() -> None:
        for event in subscription:
            seen.append(event.seq)
            started.set()

    reader = threading.Thread(target=read)
    reader.start()
    log.append(step(0))
    assert started.wait(30)
    subscription.close()
    reader.join(30)
    assert not reader.is_alive()
    assert seen == [1]
    assert subscription.get() == ()


def test_to_pandas_has_one_typed_row_per_event() -> None:
    log = ticking(1_700_000_000_123)
    log.append(transition(EventKind.TASK_STATE, "orders", 0, 3, 7, "why", {"state": "RUNNING"}), "worker-1")
    log.append(transition(EventKind.CLUSTER_STOPPED))
    frame = log.to_pandas()
    columns = ["seq", "time", "worker", "kind", "connector", "task", "generation", "producer_epoch", "cause", "data"]
    assert list(frame.columns) == columns
    assert str(frame["time"].dtype) == "datetime64[ms, UTC]"
    assert frame["time"][0] == pd.Timestamp("2023-11-14T22:13:20.123Z")
    assert str(frame["task"].dtype) == "Int64"
    assert frame["producer_epoch"].tolist() == [7, pd.NA]
    assert frame["kind"].tolist() == ["task_state", "cluster_stopped"]
    assert frame["data"].tolist() == [{"state": "RUNNING"}, {}]
    assert frame["worker"][1] is None


def test_an_empty_log_has_all_forms() -> None:
    log = EventLog()
    assert len(log.to_pandas()) == 0
    assert str(log.to_pandas()["time"].dtype) == "datetime64[ms, UTC]"
    assert repr(log) == "<EventLog: 0 events>"
    assert "empty" in log._repr_html_()


def test_json_lines_give_the_same_log_back(tmp_path: Path) -> None:
    log = EventLog(capacity=3)
    for number in range(5):
        cause = 'ß "quoted"\nline'
        data = {"n": number, "f": 0.1, "none": None, "deep": [{"a": True}]}
        log.append(transition(EventKind.TASK_STEP, "orders", number, 1, 2, cause, data), "w")
    read = EventLog.from_jsonl(log.to_jsonl(tmp_path / "history.jsonl"))
    assert list(read) == list(log)
    assert (read.dropped, read.last_seq) == (2, 5)
    assert read.append(step(0)).seq == 6


def write(path: Path, *lines: str) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def line(**changes: object) -> str:
    event: dict[str, object] = {
        "version": 2,
        "seq": 1,
        "time_ms": 5,
        "worker": None,
        "kind": "task_step",
        "connector": None,
        "task": None,
        "generation": None,
        "producer_epoch": None,
        "cause": "",
        "data": {"step": "begin"},
        "why": None,
    }
    return json.dumps({key: value for key, value in {**event, **changes}.items() if value != "absent"})


@pytest.mark.parametrize(
    ("second", "what"),
    [
        ('{"seq": 2, "time', "Unterminated string"),
        ("", "Expecting value"),
        ("[1]", "not a JSON object"),
        (line(seq=2, cause="absent"), "the key 'cause' is missing"),
        (line(seq=2, kind="no_such_kind"), "no_such_kind"),
        (line(seq=2, task="0"), "task is '0'"),
        (line(seq=True), "seq is True"),
        (line(seq=2, extra=1), "unknown key 'extra'"),
        (line(seq=3), "has sequence number 3 where 2 must be"),
        (line(seq=2, data={}), "the key 'step' is missing"),
        (line(seq=2, data={"step": "jump"}), "'jump' is not a valid StepName"),
        (line(seq=2, data={"step": "begin", "instance": "1"}), "instance: it is '1'"),
        (line(seq=2, version=1), "its version is 1, and this connectx reads version 2"),
        (line(seq=2, why={"type": "Fate"}), "is no cause"),
    ],
)
def test_a_broken_line_is_named(tmp_path: Path, second: str, what: str) -> None:
    path = write(tmp_path / "broken.jsonl", line(), second)
    with pytest.raises(EventLogError, match="Line 2 of ") as caught:
        EventLog.from_jsonl(path)
    assert what in caught.value.message
    assert caught.value.next_step


def test_a_missing_file_and_a_folder_without_rights_are_typed_errors(tmp_path: Path) -> None:
    with pytest.raises(EventLogError, match="could not be read: No such file"):
        EventLog.from_jsonl(tmp_path / "nothing.jsonl")
    with pytest.raises(EventLogError, match="could not be written"):
        EventLog().to_jsonl(tmp_path / "no" / "folder.jsonl")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(EventLogError, match="not UTF-8"):
        EventLog.from_jsonl(tmp_path / "binary")


def test_html_is_escaped_has_no_script_and_shows_the_newest() -> None:
    log = ticking()
    for number in range(12):
        log.append(step(number), "worker-1")
    log.append(transition(EventKind.WORKER_FAILED, cause="<script>alert(1)</script>"), "worker-1")
    html = log._repr_html_()
    assert "<script" not in html
    assert "&lt;script&gt;" in html
    assert "13 events; the newest 10" in html
    assert "orders-11" in html
    assert "orders-2<" not in html


def test_the_system_clock_never_goes_back() -> None:
    clock = system_clock()
    times = [clock() for _ in range(1000)]
    assert times == sorted(times)


def test_the_log_tells_its_stories_and_those_behind_an_event() -> None:
    log = ticking()
    for worker in ("worker-1", "worker-2"):
        log.append(transition(EventKind.FAULT_INJECTED, data={"fault": "kill"}), worker)
    assert [(story.kind, story.worker) for story in log.stories()] == [("kill", "worker-1"), ("kill", "worker-2")]
    assert [str(story) for story in log.stories(since=1)] == ["worker-2 was killed while it ran no task"]


def test_events_are_found_and_waited_for_by_kind_and_values() -> None:
    log = ticking()
    first, second = log.append(step(0), "worker-1"), log.append(step(1), "worker-2")
    assert log.find("task_step") == [first, second]
    assert log.find("task_step", task=1, step="begin") == [second]
    assert log.find("task_step", task={0, 1}, worker={"worker-2", "worker-3"}) == [second]
    assert log.find("task_step", since=1, worker="worker-1") == []
    assert log.wait("task_step", 0, instance=1) == second
    with pytest.raises(EventTimeoutError):
        log.wait("task_step", 0, step="poll")
    with pytest.raises(ValueError, match="task_stop"):
        log.find("task_stop")
