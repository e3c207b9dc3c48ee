"""What the metrics of a worker count."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from connectx.kafka.group import GroupRequests
from connectx.model.events import EventKind
from connectx.model.ids import TaskId
from connectx.runtime.metric_names import PLUGIN_TEXTS
from connectx.runtime.metrics import WorkerMetrics
from connectx.runtime.tasks.plugin_names import TaskPlugins
from connectx.runtime.tasks.record_errors import RecordErrors
from tests.support.histories import transition

VIEW = {
    "state": "stable",
    "generation": 7,
    "protocol": "sessioned",
    "leader_url": "http://127.0.0.1:1/",
    "connectors": ["f"],
    "tasks": [{"connector": "f", "task": 0}],
}
SOURCE = {"slices": 2, "records": 30, "polled": 32, "bytes": 900, "commits": 3, "failed_commits": 1, "poll_ms_max": 9,
          "active": 4, "active_max": 8, "active_avg": 6.0}  # fmt: skip
SINK = {"positions": {"t-0": 5, "t-1": 6}, "records": 11, "read": 12, "lag": 4, "commit_ms_max": 7,
        "active": 1, "active_max": 3, "active_avg": 2.0, "commit_sequence": 9, "late_commits": 2}  # fmt: skip
ERRORS = RecordErrors(
    lambda: 0,
    record_failures=6,
    record_errors=1,
    retries=2,
    errors_logged=5,
    dead_letters=3,
    failed_dead_letters=1,
    error_ms=900,
).metrics()
NAMES = (
    *("total_record_failures_total", "total_record_errors_total", "total_retries_total", "total_errors_logged_total"),
    *("deadletterqueue_produce_requests", "deadletterqueue_produce_failures", "last_error_timestamp"),
)


KAFKA_CONNECT = {
    "worker": "connector-count task-count connector-startup-attempts-total connector-startup-success-total "
    "connector-startup-success-percentage connector-startup-failure-total connector-startup-failure-percentage "
    "task-startup-attempts-total task-startup-success-total task-startup-success-percentage task-startup-failure-total "
    "task-startup-failure-percentage connector-total-task-count connector-running-task-count "
    "connector-paused-task-count connector-failed-task-count connector-unassigned-task-count "
    "connector-destroyed-task-count connector-restarting-task-count",
    "worker-rebalance": "connect-protocol leader-name epoch completed-rebalances-total rebalancing "
    "rebalance-max-time-ms rebalance-avg-time-ms time-since-last-rebalance-ms",
    "coordinator": "assigned-connectors assigned-tasks heartbeat-total heartbeat-response-time-max "
    "last-heartbeat-seconds-ago join-total join-time-avg join-time-max sync-total sync-time-avg sync-time-max "
    "rebalance-total rebalance-latency-avg rebalance-latency-max rebalance-latency-total failed-rebalance-total "
    "last-rebalance-seconds-ago",
    "connector": "status info",
    "connector-task": "status info running-ratio pause-ratio offset-commit-max-time-ms offset-commit-avg-time-ms "
    "offset-commit-failure-percentage offset-commit-success-percentage batch-size-max batch-size-avg",
    "connector-transform": "info",
    "connector-predicate": "info",
    "source-task": "source-record-poll-total source-record-write-total poll-batch-max-time-ms poll-batch-avg-time-ms "
    "source-record-active-count source-record-active-count-max source-record-active-count-avg transaction-size-min "
    "transaction-size-max transaction-size-avg",
    "sink-task": "sink-record-read-total sink-record-send-total sink-record-lag-max partition-count "
    "offset-commit-seq-no offset-commit-completion-total offset-commit-skip-total put-batch-max-time-ms "
    "put-batch-avg-time-ms sink-record-active-count sink-record-active-count-max sink-record-active-count-avg",
    "task-error": "total-record-failures total-record-errors total-records-skipped total-retries total-errors-logged "
    "deadletterqueue-produce-requests deadletterqueue-produce-failures last-error-timestamp",
}
"""What Kafka Connect 4.1 has, without rates; `info` stands for all classes and versions, which are labels."""


class World:
    """Metrics over task metrics that a test sets."""

    def __init__(self) -> None:
        self.view: Mapping[str, Any] = VIEW
        self.task_metrics: Mapping[TaskId, Mapping[str, object]] = {}
        self.now_ms = 1_000
        self.heartbeat_ms: int | None = None
        self.requests = GroupRequests()
        self.metrics = WorkerMetrics(
            lambda: self.view, lambda: self.task_metrics, lambda: self.heartbeat_ms, lambda: self.now_ms, self.requests
        )

    def record(self, kind: EventKind, connector: str | None = "f", task: int | None = 0, **data: Any) -> None:
        self.metrics.observe(transition(kind, connector, task, data=data))

    def samples(self, connectors: Mapping[str, Any] | None = None) -> dict[tuple[str, tuple[str, ...]], float]:
        """Value by name and label values."""
        text = self.metrics.exposition(connectors or {}).decode()
        families = list(text_string_to_metric_families(text))
        names = [family.name for family in families]
        assert len(names) == len(set(names)), "a family stands there once"
        return {(one.name, tuple(one.labels.values())): one.value for family in families for one in family.samples}


@pytest.fixture
def world() -> World:
    return World()


def test_numbers_of_tasks_have_kafka_connects_names(world: World) -> None:
    world.task_metrics = {TaskId("f", 0): SOURCE, TaskId("s", 1): SINK}
    found = world.samples()
    assert found["kafka_connect_source_task_source_record_poll_total", ("f", "0")] == 32
    assert found["kafka_connect_source_task_source_record_write_total", ("f", "0")] == 30
    assert found["kafka_connect_source_task_poll_batch_max_time_ms", ("f", "0")] == 9
    assert found["kafka_connect_connector_task_offset_commit_success_percentage", ("f", "0")] == 0.75
    assert found["kafka_connect_sink_task_sink_record_read_total", ("s", "1")] == 12
    assert found["kafka_connect_sink_task_sink_record_lag_max", ("s", "1")] == 4
    assert found["kafka_connect_sink_task_partition_count", ("s", "1")] == 2
    assert found["kafka_connect_connector_task_offset_commit_max_time_ms", ("s", "1")] == 7
    assert found["kafka_connect_sink_task_offset_commit_seq_no", ("s", "1")] == 9
    assert found["kafka_connect_sink_task_offset_commit_skip_total", ("s", "1")] == 2
    for kind, task, numbers in (("source", ("f", "0"), [4, 8, 6]), ("sink", ("s", "1"), [1, 3, 2])):
        active = f"kafka_connect_{kind}_task_{kind}_record_active_count"
        assert [found[active + part, task] for part in ("", "_max", "_avg")] == numbers
    assert ("kafka_connect_sink_task_sink_record_lag_max", ("f", "0")) not in found


def test_everything_that_kafka_connect_measures_but_rates_is_served(world: World) -> None:
    world.heartbeat_ms = world.now_ms
    world.record(EventKind.REBALANCE_COMPLETED, None, None, took_ms=1)
    families = text_string_to_metric_families(world.metrics.exposition({}).decode())
    served = {family.name for family in families if not family.name.startswith("connectx_")}
    named = [(group, attribute) for group, attributes in KAFKA_CONNECT.items() for attribute in attributes.split()]
    names = {
        f"kafka_connect_{group}_{attribute}".replace("-", "_").removesuffix("_total") for group, attribute in named
    }
    assert served == names


def test_what_is_not_known_is_left_out(world: World) -> None:
    world.task_metrics = {TaskId("s", 1): {**SINK, "lag": None}, TaskId("t", 0): {}}
    found = world.samples()
    assert ("kafka_connect_sink_task_sink_record_lag_max", ("s", "1")) not in found
    assert not [labels for _, labels in found if labels[:1] == ("t",)]


def test_errors_of_a_task_stay_known_when_it_has_failed_as_long_as_it_is_assigned_here(world: World) -> None:
    world.task_metrics = {TaskId("f", 0): {**SOURCE, **ERRORS}}
    found = world.samples()
    assert [found[f"kafka_connect_task_error_{name}", ("f", "0")] for name in NAMES] == [6, 1, 2, 5, 3, 1, 900]
    world.task_metrics = {TaskId("f", 0): {**ERRORS, "ended": True}}
    found = world.samples()
    assert [found[f"kafka_connect_task_error_{name}", ("f", "0")] for name in NAMES] == [6, 1, 2, 5, 3, 1, 900]
    world.view = {**VIEW, "tasks": []}
    found = world.samples()
    assert found["connectx_zombie_tasks", ()] == 0
    assert not [name for name, labels in found if labels == ("f", "0")]


def test_plugins_of_a_task_are_labels(world: World) -> None:
    texts = {text: f"its {text}" for text in PLUGIN_TEXTS}
    plugins = TaskPlugins(texts, (("u", "Upper", "1.0"), ("v", "Lower", "")), (("p", "IsNull", ""),))
    world.task_metrics = {TaskId("f", 0): {**SOURCE, "plugins": plugins}}
    families = text_string_to_metric_families(world.metrics.exposition({}).decode())
    labels = {family.name: [one.labels for one in family.samples] for family in families}
    task = {"connector": "f", "task": "0"}
    shown = {text.replace("-", "_"): f"its {text}" for text in PLUGIN_TEXTS}
    assert labels["kafka_connect_connector_task_info"] == [{**task, **shown}]
    assert labels["kafka_connect_connector_transform_info"] == [
        {**task, "transform": "u", "transform_class": "Upper", "transform_version": "1.0"},
        {**task, "transform": "v", "transform_class": "Lower", "transform_version": ""},
    ]
    assert labels["kafka_connect_connector_predicate_info"] == [
        {**task, "predicate": "p", "predicate_class": "IsNull", "predicate_version": ""}
    ]


def test_states_are_those_that_this_worker_reached_and_end_with_the_work(world: World) -> None:
    status = "kafka_connect_connector_task_status"
    world.record(EventKind.TASK_STATE, state="RUNNING", instance=1)
    world.record(EventKind.CONNECTOR_STATE, task=None, state="RUNNING")
    info = {"f": {"info": {"type": "source", "config": {"connector.class": "FileStreamSource"}},
                  "status": {"connector": {"version": "4.3.0"}}}}  # fmt: skip
    found = world.samples(info)
    assert found[status, ("f", "running", "0")] == 1
    assert found["kafka_connect_connector_status", ("f", "running")] == 1
    assert found["kafka_connect_connector_info", ("f", "FileStreamSource", "source", "4.3.0")] == 1
    assert found["kafka_connect_worker_connector_running_task_count", ("f",)] == 1
    world.record(EventKind.TASK_STATE, state="FAILED", instance=1)
    world.record(EventKind.TASK_ENDED, instance=1)
    assert world.samples()[status, ("f", "failed", "0")] == 1
    world.view = {**VIEW, "tasks": []}
    assert not [labels for name, labels in world.samples() if name == status]


def test_a_task_that_runs_without_being_assigned_is_a_zombie_and_still_running(world: World) -> None:
    world.record(EventKind.TASK_STATE, state="RUNNING", instance=1)
    world.task_metrics = {TaskId("f", 0): SOURCE}
    assert world.samples()["connectx_zombie_tasks", ()] == 0
    world.view = {**VIEW, "tasks": []}
    found = world.samples()
    assert found["connectx_zombie_tasks", ()] == 1
    assert found["kafka_connect_connector_task_status", ("f", "running", "0")] == 1
    world.record(EventKind.TASK_ENDED, instance=1)
    world.task_metrics = {}
    assert world.samples()["connectx_zombie_tasks", ()] == 0


def test_starts_are_counted_once_for_each_instance(world: World) -> None:
    world.record(EventKind.TASK_STATE, state="RUNNING", instance=1)
    world.record(EventKind.TASK_STATE, state="PAUSED", instance=1)
    world.record(EventKind.TASK_STATE, state="RUNNING", instance=1)
    world.record(EventKind.TASK_STATE, state="RESTARTING", instance=1)
    world.record(EventKind.TASK_STATE, state="FAILED", instance=2)
    found = world.samples()
    names = ("attempts", "success", "failure")
    assert [found[f"kafka_connect_worker_task_startup_{name}_total", ()] for name in names] == [2, 1, 1]
    shares = [found[f"kafka_connect_worker_task_startup_{name}_percentage", ()] for name in ("success", "failure")]
    assert shares == [0.5, 0.5]


def test_a_task_tells_the_share_of_its_time_in_each_state_until_it_ends(world: World) -> None:
    running, paused = (f"kafka_connect_connector_task_{name}_ratio" for name in ("running", "pause"))
    world.record(EventKind.TASK_STATE, state="RUNNING", instance=1)
    world.now_ms += 300
    world.record(EventKind.TASK_STATE, state="PAUSED", instance=1)
    world.now_ms += 100
    found = world.samples()
    assert (found[running, ("f", "0")], found[paused, ("f", "0")]) == (0.75, 0.25)
    world.record(EventKind.TASK_ENDED, instance=1)
    assert (running, ("f", "0")) not in world.samples()


def test_the_group_is_told_in_the_words_of_kafkas_clients(world: World) -> None:
    group = "kafka_connect_coordinator_"
    assert (group + "last_heartbeat_seconds_ago", ()) not in world.samples()
    world.heartbeat_ms = world.now_ms
    for took_ms in (10, 30):
        world.record(EventKind.REBALANCE_COMPLETED, None, None, took_ms=took_ms)
    world.now_ms += 500
    found = world.samples()
    assert (found[group + "last_heartbeat_seconds_ago", ()], found[group + "last_rebalance_seconds_ago", ()]) == (
        0.5,
        0.5,
    )
    assert (found[group + "rebalance_total", ()], found[group + "rebalance_latency_total", ()]) == (2, 40)
    assert (found[group + "rebalance_latency_max", ()], found[group + "rebalance_latency_avg", ()]) == (30, 20)


def test_requests_to_the_group_are_counted_and_timed(world: World) -> None:
    for times, numbers in ((world.requests.joins, (10, 20)), (world.requests.syncs, (3, 4)),
                           (world.requests.heartbeats, (1, 5, 2))):  # fmt: skip
        for number in numbers:
            times.add(number)
    world.requests.failed_rebalances = 3
    found = world.samples()
    group = "kafka_connect_coordinator_"
    assert [found[f"{group}join_{name}", ()] for name in ("total", "time_max", "time_avg")] == [2, 20, 15]
    assert [found[f"{group}sync_{name}", ()] for name in ("total", "time_max", "time_avg")] == [2, 4, 3.5]
    assert [found[f"{group}heartbeat_{name}", ()] for name in ("total", "response_time_max")] == [3, 5]
    assert found[group + "failed_rebalance_total", ()] == 3


def test_rebalances_are_counted_and_timed(world: World) -> None:
    group = "kafka_connect_worker_rebalance_"
    assert world.samples()[group + "time_since_last_rebalance_ms", ()] == float("inf")
    for took_ms in (10, 30):
        world.record(EventKind.REBALANCE_COMPLETED, None, None, took_ms=took_ms)
    world.now_ms += 500
    found = world.samples()
    assert found[group + "completed_rebalances_total", ()] == 2
    assert (found[group + "rebalance_max_time_ms", ()], found[group + "rebalance_avg_time_ms", ()]) == (30, 20)
    assert found[group + "time_since_last_rebalance_ms", ()] == 500
    assert found[group + "epoch", ()] == 7
    assert found[group + "leader_name", ("http://127.0.0.1:1/",)] == 1
    world.view = {**VIEW, "state": "joining"}
    assert world.samples()[group + "rebalancing", ()] == 1


def test_transactions_fences_and_skipped_records_are_counted(world: World) -> None:
    for records in (4, 8):
        world.record(EventKind.TRANSACTION_COMMITTED, records=records)
    world.record(EventKind.PRODUCER_FENCED)
    world.record(EventKind.RECORDS_SKIPPED, records=5)
    world.record(EventKind.MEMBER_LOST, None, None)
    found = world.samples()
    sizes = [found[f"kafka_connect_source_task_transaction_size_{name}", ("f", "0")] for name in ("min", "max", "avg")]
    assert sizes == [4, 8, 6]
    assert found["connectx_producers_fenced_total", ("f", "0")] == 1
    assert found["kafka_connect_task_error_total_records_skipped_total", ("f", "0")] == 5
    assert found["connectx_membership_lost_total", ()] == 1


def test_the_lane_of_a_task_and_the_progress_of_its_job_are_gauges_and_jobs_are_counted(world: World) -> None:
    job = {"lane": "bulk", "job": {"job": 2, "parts": 8, "parts_done": 3}}
    begun = {"lane": "bulk", "job": {"job": 1, "parts": 8, "parts_done": None}}
    world.task_metrics = {
        TaskId("f", 0): {**SOURCE, **job},
        TaskId("f", 1): {**SOURCE, **begun},
        TaskId("s", 1): {**SINK, "lane": "tail", "job": None},
    }
    for kind in (EventKind.BULK_STARTED, EventKind.BULK_FAILED, EventKind.BULK_STARTED):
        world.record(kind)
    found = {key: value for key, value in world.samples().items() if key[0].startswith("connectx_bulk")}
    assert found == {
        ("connectx_bulk", ("f", "0")): 1,
        ("connectx_bulk", ("f", "1")): 1,
        ("connectx_bulk", ("s", "1")): 0,
        ("connectx_bulk_job_parts", ("f", "0")): 8,
        ("connectx_bulk_job_parts", ("f", "1")): 8,
        ("connectx_bulk_job_parts_done", ("f", "0")): 3,
        ("connectx_bulk_jobs_total", ("f", "0")): 2,
        ("connectx_bulk_jobs_failed_total", ("f", "0")): 1,
    }


def test_the_leader_counts_what_two_members_claimed_and_what_is_lost(world: World) -> None:
    members = {"a": {"revoked": ["f", "f-0"]}, "b": {"revoked": ["f-0"]}, "c": {"revoked": []}}
    world.record(EventKind.ASSIGNMENT_COMPUTED, None, None, members=members, lost=["f-1"])
    found = world.samples()
    assert (found["connectx_duplicated_assignments_total", ()], found["connectx_lost_work", ()]) == (1, 1)


def test_two_workers_of_one_process_count_for_themselves(world: World) -> None:
    world.record(EventKind.PRODUCER_FENCED)
    assert ("connectx_producers_fenced_total", ("f", "0")) not in World().samples()


def test_a_task_that_has_gone_has_no_share_of_time_and_begins_anew_when_it_comes_back(world: World) -> None:
    running = "kafka_connect_connector_task_running_ratio", ("f", "0")
    world.record(EventKind.TASK_STATE, state="RUNNING", instance=1)
    world.record(EventKind.TASK_ENDED, instance=1, reason="stopped")
    world.record(EventKind.TASK_STATE, state="UNASSIGNED", instance=1)  # the history is told of the end first
    assert running not in world.samples()
    world.now_ms += 3_600_000
    world.record(EventKind.TASK_STATE, state="RUNNING", instance=2)
    world.now_ms += 1_000
    assert world.samples()[running] == 1


def test_a_task_that_fails_after_its_start_is_no_failed_start(world: World) -> None:
    world.record(EventKind.TASK_STATE, state="RUNNING", instance=1)
    world.record(EventKind.TASK_ENDED, instance=1, reason="failed")  # the history is told of the end first
    world.record(EventKind.TASK_STATE, state="FAILED", instance=1)
    world.record(EventKind.TASK_ENDED, instance=2, reason="failed")
    world.record(EventKind.TASK_STATE, state="FAILED", instance=2)
    found = world.samples()
    names = ("attempts", "success", "failure")
    assert [found[f"kafka_connect_worker_task_startup_{name}_total", ()] for name in names] == [2, 1, 1]


def test_the_end_of_a_zombie_hides_nothing_of_its_successor_on_the_same_worker(world: World) -> None:
    world.record(EventKind.TASK_STATE, state="RUNNING", instance=1)
    world.record(EventKind.TASK_STATE, state="UNASSIGNED", instance=1)
    world.record(EventKind.TASK_STATE, state="RUNNING", instance=2)
    world.record(EventKind.TASK_ENDED, instance=1, reason="stopped")
    found = world.samples()
    assert found["kafka_connect_connector_task_status", ("f", "running", "0")] == 1
    assert ("kafka_connect_connector_task_running_ratio", ("f", "0")) in found
