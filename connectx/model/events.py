"""Events of a cluster: the vocabulary of the history that panels, checks and DataFrames show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from connectx.views import Form, Shown, brief, masked, masked_text


class EventKind(StrEnum):
    """Kinds of events, grouped by subject. A comment names the keys of `data`.

    Events of an attached cluster also have `origin`: what they were seen by, and not before when (`after_ms`), or when
    they were written (`written_ms`).
    """

    # cluster and workers
    CLUSTER_STARTED = "cluster_started"  # bootstrap_servers, group_id
    CLUSTER_STOPPED = "cluster_stopped"
    ATTACHED = "attached"  # url, group_id, blind_spots: from here on a running cluster was observed from outside
    SIGHT_LOST = "sight_lost"  # origin, error: a source of observations does not answer
    SIGHT_REGAINED = "sight_regained"  # origin
    DETACHED = "detached"
    WORKER_STARTED = "worker_started"  # url
    WORKER_STOPPED = "worker_stopped"
    WORKER_FAILED = "worker_failed"  # error
    FAULT_INJECTED = "fault_injected"  # fault (the verb, or broker_kill, broker_restart), direction, chaos_seed, ...
    FAULT_FAILED = "fault_failed"  # fault, error: planned or scheduled, and not possible when its time had come
    # group
    REBALANCE_STARTED = "rebalance_started"  # reason
    REBALANCE_COMPLETED = "rebalance_completed"  # leader, leader_url, protocol, connectors, tasks, delay_ms
    ASSIGNMENT_COMPUTED = "assignment_computed"  # members: {url: work}, lost, delay_ms
    REBALANCE_DELAYED = "rebalance_delayed"  # delay_ms, lost
    MEMBER_REMOVED = "member_removed"  # group, members: said goodbye for a worker whose process has ended
    MEMBER_LOST = "member_lost"  # error: this member was dropped by the coordinator or lost it
    LEADERSHIP_CLAIMED = "leadership_claimed"  # transactional_id
    LEADERSHIP_FENCED = "leadership_fenced"  # error
    # config topic
    CONNECTOR_CONFIGURED = "connector_configured"  # config_offset
    CONNECTOR_DELETED = "connector_deleted"  # config_offset
    TASKS_CONFIGURED = "tasks_configured"  # tasks: how many there are, task_config_generation, config_offset
    TASKS_INCONSISTENT = "tasks_inconsistent"
    TARGET_STATE_CHANGED = "target_state_changed"  # target_state, config_offset
    TASK_COUNT_RECORDED = "task_count_recorded"  # task_count
    SESSION_KEY_ROTATED = "session_key_rotated"
    RESTART_REQUESTED = "restart_requested"  # include_tasks, only_failed, config_offset
    # fencing
    FENCING_STARTED = "fencing_started"  # task_count, transactional_ids
    FENCING_COMPLETED = "fencing_completed"  # task_count
    FENCING_FAILED = "fencing_failed"  # error
    # connectors and tasks: where they are in their life
    CONNECTOR_STATE = "connector_state"  # state, trace
    TASK_STATE = "task_state"  # state, trace, instance
    TASK_STEP = "task_step"  # step (of a task's start, such as init_producer; or stop, cancel), instance
    TASK_REFUSED = "task_refused"  # reason: start-up aborted (newer task configs, no task count record, not assigned)
    TASK_ENDED = "task_ended"  # instance, reason: its thread really ended (a zombie ends here)
    # data
    TRANSACTION_COMMITTED = "transaction_committed"  # instance, records, offsets: [{partition, from, offset}]
    TRANSACTION_ABORTED = "transaction_aborted"  # records, reason
    PRODUCER_FENCED = "producer_fenced"  # instance, transactional_id, error, open_ms, newer_epoch
    FENCED_BY = "fenced_by"  # instance, known, by, by_generation, newer_epoch, state, since_ms; cause: in a sentence
    OFFSETS_COMMITTED = "offsets_committed"  # records, offsets (sink: partition to offset); of a source as above
    OFFSETS_ALTERED = "offsets_altered"  # offsets: [{partition, offset}], None: all were reset; by a user's request
    COMMIT_REFUSED = "commit_refused"  # reason, partitions (sink: not owner, or the target's row was ahead)
    PARTITIONS_ASSIGNED = "partitions_assigned"  # partitions
    PARTITIONS_REVOKED = "partitions_revoked"  # partitions
    PARTITIONS_LOST = "partitions_lost"  # partitions
    RECORDS_SKIPPED = "records_skipped"  # records, reason, dead_letters: how many of them are in the queue
    LANE_CHANGED = "lane_changed"  # lane (tail, bulk), reason
    BULK_STARTED = "bulk_started"  # token, ranges: {partition: [first, end]}; a job on Spark's executors
    BULK_STAGED = "bulk_staged"  # token, records, refused
    BULK_FAILED = "bulk_failed"  # error; a sink adds token, and offsets: up to which the worker reads on
    RECORDS_FILTERED = "records_filtered"  # records: dropped on purpose by a transformation
    LAG_ALARM = "lag_alarm"  # lag: above lag.alarm.records for lag.alarm.ms; since_ms
    LAG_ALARM_OVER = "lag_alarm_over"  # lag, lasted_ms


@dataclass(frozen=True, slots=True)
class Transition:
    """One change as the core reports it; the driver adds who and when and makes it an `Event`.

    `producer_epoch` is that of the transaction that the change is about, or else of the producer's open or last one.
    `cause` is a short sentence part in plain words: why this happened ("worker-1 left the group").
    """

    kind: EventKind
    connector: str | None = None
    task: int | None = None
    generation: int | None = None
    producer_epoch: int | None = None
    cause: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, repr=False)
class Event(Shown):
    """One line of the history.

    `seq` counts from 1 without gaps within a cluster's history, `time_ms` is wall-clock milliseconds since 1970 taken
    from one monotonic clock per process, `worker` is the worker's name (None for the cluster itself).
    """

    seq: int
    time_ms: int
    worker: str | None
    kind: EventKind
    connector: str | None = None
    task: int | None = None
    generation: int | None = None
    producer_epoch: int | None = None
    cause: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)

    def _shown(self) -> Form:
        about = self.connector if self.task is None else f"{self.connector}-{self.task}"
        facts = {
            "time": _clock_time(self.time_ms),
            "worker": self.worker,
            "about": about,
            "generation": self.generation,
            "producer epoch": self.producer_epoch,
            "cause": masked_text(self.cause),
            **{name: brief(value) for name, value in masked(self.data).items()},
        }
        shown = {name: value for name, value in facts.items() if value not in (None, "")}
        return Form(f"Event {self.seq}: {self.kind}", shown)


def _clock_time(time_ms: int) -> str:
    seconds, milliseconds = divmod(time_ms, 1000)
    hours, minutes = seconds // 3600 % 24, seconds // 60 % 60
    return f"{hours:02}:{minutes:02}:{seconds % 60:02}.{milliseconds:03} UTC"
