"""Names of metrics, and the source of each value: tables that `connectx.runtime.metrics` reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from connectx.model.events import EventKind

TaskMetrics = Mapping[str, Any]
MetricSpec = tuple[str, str, Callable[[TaskMetrics], float | None]]
"""Name, description, and the number in the live numbers of a task (None: not known)."""


TASK_STATES: Final = ("RUNNING", "PAUSED", "FAILED", "UNASSIGNED", "DESTROYED", "RESTARTING")

WORKER_COUNTS: Final[Mapping[str, str]] = {
    f"{kind}-startup-{what}-total": f"Starts of {kind}s {words}."
    for kind in ("connector", "task")
    for what, words in (("attempts", "that ended"), ("success", "that succeeded"), ("failure", "that failed"))
}

COUNTED: Final[Mapping[EventKind, tuple[str, str, bool]]] = {
    EventKind.RECORDS_SKIPPED: ("task-error_total-records-skipped", "Records skipped because of errors.", True),
    EventKind.RECORDS_FILTERED: ("connectx_records_filtered_total", "Records that transformations dropped.", True),
    EventKind.PRODUCER_FENCED: ("connectx_producers_fenced_total", "Zombies: producers fenced by a successor.", False),
    EventKind.TASK_REFUSED: ("connectx_task_starts_refused_total", "Starts given up: newer configs, no fence.", False),
    EventKind.COMMIT_REFUSED: ("connectx_commits_refused_total", "Commits of a sink that were refused.", False),
    EventKind.BULK_STARTED: ("connectx_bulk_jobs_total", "Jobs of the bulk lane on Spark's executors.", False),
    EventKind.BULK_FAILED: ("connectx_bulk_jobs_failed_total", "Those that failed.", False),
    EventKind.FENCING_COMPLETED: ("connectx_fencing_rounds_total", "Fencing rounds that this leader ended.", False),
    EventKind.FENCING_FAILED: ("connectx_fencing_rounds_failed_total", "Fencing rounds that failed.", False),
    EventKind.LEADERSHIP_FENCED: ("connectx_leadership_fenced_total", "Writes of this leader that were fenced.", False),
    EventKind.MEMBER_LOST: ("connectx_membership_lost_total", "Times that this worker fell out of the group.", False),
}
"""Events that are counted: name, description, and whether their records are counted instead."""


def _of(key: str) -> Callable[[TaskMetrics], float | None]:
    return lambda metrics: metrics.get(key)


def _of_job(key: str) -> Callable[[TaskMetrics], float | None]:
    return lambda metrics: (metrics.get("job") or {}).get(key)


def _is_bulk(metrics: TaskMetrics) -> float | None:
    return None if "lane" not in metrics else float(metrics["lane"] == "bulk")


def _share(part: str, other: str) -> Callable[[TaskMetrics], float | None]:
    def share(metrics: TaskMetrics) -> float | None:
        both = metrics.get(part, 0) + metrics.get(other, 0)
        return float(metrics.get(part, 0) / both) if both else None

    return share


TASK_SPECS: Final[tuple[MetricSpec, ...]] = (
    ("connector-task_offset-commit-max-time-ms", "The longest commit.", _of("commit_ms_max")),
    ("connector-task_offset-commit-avg-time-ms", "Commits on average.", _of("commit_ms_avg")),
    ("connector-task_offset-commit-success-percentage", "Share that succeeded.", _share("commits", "failed_commits")),
    ("connector-task_offset-commit-failure-percentage", "Share that failed.", _share("failed_commits", "commits")),
    ("connector-task_batch-size-max", "Records of the largest slice.", _of("batch_max")),
    ("connector-task_batch-size-avg", "Records of a slice on average.", _of("batch_avg")),
    ("connectx_bulk", "1 while the task is in the bulk lane, 0 in the tail.", _is_bulk),
    ("connectx_bulk_job_parts", "Spark tasks of the bulk job that runs.", _of_job("parts")),
    ("connectx_bulk_job_parts_done", "Those of them that are done.", _of_job("parts_done")),
)

SOURCE_SPECS: Final[tuple[MetricSpec, ...]] = (
    ("source-task_source-record-poll-total", "Records polled.", _of("polled")),
    ("source-task_source-record-write-total", "Records sent to Kafka.", _of("records")),
    ("source-task_poll-batch-max-time-ms", "The longest poll.", _of("poll_ms_max")),
    ("source-task_poll-batch-avg-time-ms", "Polls on average.", _of("poll_ms_avg")),
    ("source-task_source-record-active-count", "Records polled that Kafka is not known to have.", _of("active")),
    ("source-task_source-record-active-count-max", "The most of them.", _of("active_max")),
    ("source-task_source-record-active-count-avg", "On average, whenever they changed.", _of("active_avg")),
    ("connectx_source_bytes_total", "Bytes sent to Kafka.", _of("bytes")),
)

SINK_SPECS: Final[tuple[MetricSpec, ...]] = (
    ("sink-task_sink-record-read-total", "Records fetched.", _of("read")),
    ("sink-task_sink-record-send-total", "Records put.", _of("records")),
    ("sink-task_sink-record-lag-max", "Lag of the task in records, over all its partitions.", _of("lag")),
    ("sink-task_partition-count", "Partitions.", lambda metrics: len(metrics["positions"])),
    ("sink-task_offset-commit-seq-no", "Number of the last commit.", _of("commit_sequence")),
    ("sink-task_offset-commit-completion-total", "Commits that succeeded.", _of("commits")),
    ("sink-task_offset-commit-skip-total", "Outcomes of commits that came too late to count.", _of("late_commits")),
    ("sink-task_put-batch-max-time-ms", "The longest put.", _of("put_ms_max")),
    ("sink-task_put-batch-avg-time-ms", "Puts on average.", _of("put_ms_avg")),
    ("sink-task_sink-record-active-count", "Offsets from what the group holds to what was read.", _of("active")),
    ("sink-task_sink-record-active-count-max", "The most of them.", _of("active_max")),
    ("sink-task_sink-record-active-count-avg", "On average, whenever they changed.", _of("active_avg")),
)

ERROR_SPECS: Final[tuple[MetricSpec, ...]] = (
    ("task-error_total-record-failures", "Records that failed, once for every try.", _of("record_failures")),
    ("task-error_total-record-errors", "Failures beyond errors.tolerance: the task ends.", _of("record_errors")),
    ("task-error_total-retries", "Polls, conversions, puts that were tried again.", _of("retries")),
    ("task-error_total-errors-logged", "Errors that errors.log.enable put into the log.", _of("errors_logged")),
    ("task-error_deadletterqueue-produce-requests", "Records for the dead letter queue.", _of("dead_letters")),
    ("task-error_deadletterqueue-produce-failures", "Those that Kafka refused.", _of("failed_dead_letters")),
    ("task-error_last-error-timestamp", "When a record failed last, ms since 1970.", _of("error_ms")),
)
"""Also of a task that has failed, until it is started again."""

PLUGIN_TEXTS: Final = (
    "connector-class",
    "connector-type",
    "connector-version",
    "task-class",
    "task-version",
    *(f"{side}-converter-{what}" for side in ("key", "value", "header") for what in ("class", "version")),
)
