"""Live numbers of tasks and workers, and what was last done to a connector."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from connectx_widgets.last_actions import LastActions
from connectx_widgets.numbers import Numbers

from connectx.api.movement import Movement
from connectx.history.folds.flow import Flow
from connectx.model.events import EventKind
from tests.support.histories import START_MS, History


def worker(
    name: str, metrics: dict[str, Any], heartbeat_ms: int | None = None, state: str = "running", generation: int = 1
) -> Any:
    return SimpleNamespace(
        name=name, task_metrics=metrics, heartbeat_ms=heartbeat_ms, state=state, generation=generation
    )


def numbers(*workers: Any) -> Numbers:
    config = SimpleNamespace(heartbeat_interval_ms=500)
    cluster = SimpleNamespace(workers=list(workers), config=config, has_faults=True)
    return Numbers(cluster)  # type: ignore[arg-type]


def test_tasks_add_up_to_their_connector() -> None:
    read = numbers(worker("worker-1", {"out-0": {"records": 5, "lag": 3}}), worker("worker-2", {"out-1": {"lag": 4}}))
    assert read.read(0)
    assert (read.by_task["out-0"]["lag"], read.by_task["out-1"]["lag"], read.by_connector["out"]["lag"]) == (3, 4, 7)


def test_a_task_has_its_lane_and_the_progress_of_its_job_and_a_connector_its_tasks_in_bulk() -> None:
    job = {"job": 3, "parts": 8, "parts_done": 5}
    in_bulk = {"lane": "bulk", "lane_reason": "104.9 MB wait, and Spark has 8 cores"}
    tail = {"lane": "tail", "lane_reason": "a job failed: jdbc:postgresql://host/db?password=hunter2", "job": None}
    tasks = {"out-0": {**in_bulk, "job": job}, "out-1": {**in_bulk, "job": None}, "out-2": tail, "in-0": {"records": 1}}
    read = numbers(worker("worker-1", tasks))
    assert read.read(0)
    shown = [[of[name] for name in ("lane", "parts", "parts_done")] for of in read.by_task.values()]
    assert shown == [["bulk", 8, 5], ["bulk", None, None], ["tail", None, None], [None, None, None]]
    assert read.by_task["out-0"]["lane_reason"] == in_bulk["lane_reason"]
    assert "hunter2" not in read.by_task["out-2"]["lane_reason"]
    assert read.by_connector["out"]["bulk"] == 2
    assert not read.by_connector["in"].keys() & {"bulk", "lane", "lane_reason", "parts", "parts_done"}


def test_a_source_offset_is_shown_as_text_and_an_unknown_lag_is_none() -> None:
    read = numbers(
        worker("worker-1", {"in-0": {"records": 5, "source_offset": {"position": 7}}, "out-0": {"lag": None}})
    )
    read.read(0)
    assert (read.by_connector["in"]["offset"], read.by_connector["out"]["lag"]) == ('{"position": 7}', None)


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The clock that rates go by: its only item."""
    now_s = [0.0]
    monkeypatch.setattr("connectx_widgets.numbers.time.monotonic", lambda: now_s[0])
    return now_s


def test_a_rate_is_over_eight_seconds_so_that_a_burst_every_few_seconds_does_not_flicker(seconds: list[float]) -> None:
    busy = worker("worker-1", {"in-0": {"records": 1_000_000}})
    read = numbers(busy)
    rates = []
    for second in range(1, 25):
        seconds[0] = second
        busy.task_metrics = {"in-0": {"records": 1_000_000 + 400 * (second // 4)}}
        read.read(0)
        rates.append(read.by_connector["in"]["rate"])
    assert rates[0] == 0, "what was counted before the first sample is no rate"
    assert set(rates[8:]) == {100}


def test_what_a_zombie_writes_is_counted_and_its_lag_is_not(seconds: list[float]) -> None:
    left = worker("worker-2", {"out-0": {"records": 9, "lag": 50}}, generation=4)
    new = worker("worker-3", {"out-0": {"records": 5, "lag": 48}}, generation=5)
    read = numbers(new, left)
    seconds[0] = 2.0
    left.task_metrics = {"out-0": {"records": 609, "lag": 50}}
    read.read(0)
    assert (read.by_task["out-0"]["lag"], read.by_connector["out"]["lag"]) == (48, 48)
    assert (read.by_connector["out"]["rate"], read.by_connector["out"]["zombie"]) == (300, 300)
    assert read.by_connector["out"]["by_zombies"] == 600


def test_retries_and_errors_are_those_of_all_instances_and_stay_when_a_task_ends() -> None:
    first = worker("worker-1", {"out-0": {"records": 5, "retries": 2, "record_failures": 4}})
    read = numbers(first)
    first.task_metrics = {"out-0": {"records": 0, "retries": 1, "record_failures": 0}}
    read.read(0)
    assert (read.by_connector["out"]["retries"], read.by_connector["out"]["errors"]) == (3, 4)
    first.task_metrics = {}
    read.read(0)
    assert (read.by_connector["out"]["retries"], read.by_connector["out"]["lag"]) == (3, None)


def test_a_sink_has_its_lag_in_time_its_latency_and_its_flow(seconds: list[float]) -> None:
    source = worker("worker-1", {"in-0": {"records": 5, "topics": ["flights"]}})
    sink = worker("worker-2", {"out-0": {"lag": 0, "positions": {"flights-0": 5}, "latency": {40: 1}}})
    read = numbers(source, sink)
    sink.task_metrics = {"out-0": {"lag": 4, "positions": {"flights-0": 5}, "latency": {40: 1, 80: 9}}}
    seconds[0] = 2.0
    read.read(1_000)
    read.read(3_250)
    out = read.by_connector["out"]
    assert (out["lag"], out["lagging_since"], out["p50_ms"], out["p99_ms"]) == (4, 1_000, 1117, 1117)
    assert not read.read(9_000), "a lag that only gets older is no news"
    assert read.flows(["in", "out"]) == [Flow("flights", ("in",), ("out",))]
    assert read.flows(["in"]) == [Flow("flights", ("in",), ())]


def test_why_a_task_waits_or_tries_again_is_shown_without_secrets() -> None:
    waiting = {"in-0": {"waits": "in.txt does not exist"}, "out-0": {"retrying": "no answer of db://me:s3cret@host/"}}
    read = numbers(worker("worker-1", waiting))
    read.read(0)
    assert read.by_connector["in"]["waits"] == "in.txt does not exist"
    assert read.by_connector["out"]["waits"] == "retries: no answer of db://me:[hidden]@host/"


def test_what_does_not_change_is_no_news() -> None:
    read = numbers(worker("worker-1", {"in-0": {"records": 5}}, heartbeat_ms=1_000))
    assert read.read(1_100)
    read.read(1_200)  # the rate has fallen to nothing
    assert not read.read(1_300)


def test_a_heartbeat_that_comes_in_time_is_no_news_and_one_that_does_not_is() -> None:
    quiet = worker("worker-1", {}, heartbeat_ms=1_000)
    read = numbers(quiet, worker("worker-2", {}), worker("worker-3", {}, heartbeat_ms=1, state="killed"))
    assert not read.read(1_400)
    quiet.heartbeat_ms = 1_500
    assert not read.read(1_900)
    assert read.read(5_000)
    assert (read.late, read.heartbeats()) == ({"worker-1": 1_500}, {"worker-1": 1_500})
    quiet.heartbeat_ms = 5_100
    assert read.read(5_200)
    assert read.late == {}


def test_of_a_cluster_that_runs_elsewhere_offsets_tell_what_moves() -> None:
    read = numbers()
    read.take(
        {
            "in": Movement(rate=50.4, moved=100, topics=("lines",)),
            "out": Movement(50.0, 90, 10, is_sink=True, topics=("lines",), committed={"lines-0": 90}),
        }
    )
    assert read.read(1_000)
    assert read.by_connector["in"] == {
        "rate": 50, "moved": 100, "committed": 100, "every": 2_000, "lag": None, "lagging_since": None
    }  # fmt: skip
    assert (read.by_connector["out"]["lag"], read.by_connector["out"]["lagging_since"]) == (10, None)
    read.take({"out": Movement(0.0, 90, 10, is_sink=True, topics=("lines",), committed={"lines-0": 90})})
    read.read(3_000)
    assert read.by_connector["out"]["lagging_since"] == 1_000
    assert read.flows(["in", "out"]) == [Flow("lines", ("in",), ("out",))]


def last_action(history: History, *own: tuple[str, int]) -> dict[str, Any] | None:
    actions = LastActions()
    for event in history.events:
        actions.take(event)
    for what, at_ms in own:
        actions.done("lines", what, at_ms, 400, error=False)
    return actions.of("lines")


def test_what_anybody_did_to_a_connector_is_told_once_whoever_reads_it_last() -> None:
    history = History().at(1)
    history.add(EventKind.CONNECTOR_CONFIGURED, "worker-1", "lines", is_new=True, config_offset=3)
    assert last_action(history) == {"what": "created", "at": START_MS + 1_000, "took_ms": None, "error": False}
    history.at(2).add(EventKind.TARGET_STATE_CHANGED, "worker-1", "lines", target_state="PAUSED", config_offset=5)
    history.at(9).add(EventKind.CONNECTOR_CONFIGURED, "worker-2", "lines", is_new=True, config_offset=3)
    history.at(9).add(EventKind.TARGET_STATE_CHANGED, "worker-2", "lines", target_state="PAUSED", config_offset=5)
    assert last_action(history) == {"what": "pause", "at": START_MS + 2_000, "took_ms": None, "error": False}
    history.at(11).add(EventKind.RESTART_REQUESTED, "worker-1", "lines", only_failed=True, config_offset=6)
    assert (last_action(history) or {})["what"] == "restart failed"
    assert last_action(history.add(EventKind.CONNECTOR_DELETED, "worker-1", "lines", config_offset=8)) is None


def test_a_call_of_the_panel_says_how_long_it_took_also_when_a_worker_reads_it_later() -> None:
    history = History().at(1).add(EventKind.RESTART_REQUESTED, "worker-1", "lines", config_offset=6)
    assert (last_action(history, ("restart", START_MS + 1_200)) or {})["took_ms"] == 400
    actions = LastActions()
    actions.done("lines", "pause", START_MS + 900, 300, error=False)
    history = (
        History().at(1).add(EventKind.TARGET_STATE_CHANGED, "worker-1", "lines", target_state="PAUSED", config_offset=1)
    )
    actions.take(history.events[0])
    assert (actions.of("lines") or {})["took_ms"] == 300
