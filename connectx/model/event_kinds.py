"""Names of the events in a history, as files, tables and `events.find` spell them. Pure."""

from __future__ import annotations

from enum import StrEnum


class EventKind(StrEnum):
    """Kinds of events, by subject. `connectx.model.payloads` has one class for each, with what the event records."""

    # cluster and workers
    CLUSTER_STARTED = "cluster_started"
    CLUSTER_STOPPED = "cluster_stopped"
    ATTACHED = "attached"
    SIGHT_LOST = "sight_lost"
    SIGHT_REGAINED = "sight_regained"
    DETACHED = "detached"
    WORKER_STARTED = "worker_started"
    WORKER_STOPPED = "worker_stopped"
    WORKER_FAILED = "worker_failed"
    FAULT_INJECTED = "fault_injected"
    FAULT_FAILED = "fault_failed"
    # group
    REBALANCE_STARTED = "rebalance_started"
    REBALANCE_COMPLETED = "rebalance_completed"
    ASSIGNMENT_COMPUTED = "assignment_computed"
    REBALANCE_DELAYED = "rebalance_delayed"
    MEMBER_REMOVED = "member_removed"
    MEMBER_LOST = "member_lost"
    LEADERSHIP_CLAIMED = "leadership_claimed"
    LEADERSHIP_FENCED = "leadership_fenced"
    # config topic
    CONNECTOR_CONFIGURED = "connector_configured"
    CONNECTOR_DELETED = "connector_deleted"
    TASKS_CONFIGURED = "tasks_configured"
    TASKS_INCONSISTENT = "tasks_inconsistent"
    TARGET_STATE_CHANGED = "target_state_changed"
    TASK_COUNT_RECORDED = "task_count_recorded"
    SESSION_KEY_ROTATED = "session_key_rotated"
    RESTART_REQUESTED = "restart_requested"
    # fencing
    FENCING_STARTED = "fencing_started"
    FENCING_COMPLETED = "fencing_completed"
    FENCING_FAILED = "fencing_failed"
    # connectors and tasks: where they are in their life
    CONNECTOR_STATE = "connector_state"
    TASK_STATE = "task_state"
    TASK_STEP = "task_step"
    TASK_REFUSED = "task_refused"
    TASK_ENDED = "task_ended"
    # data
    TRANSACTION_COMMITTED = "transaction_committed"
    TRANSACTION_ABORTED = "transaction_aborted"
    PRODUCER_FENCED = "producer_fenced"
    FENCED_BY = "fenced_by"
    OFFSETS_COMMITTED = "offsets_committed"
    OFFSETS_ALTERED = "offsets_altered"
    COMMIT_REFUSED = "commit_refused"
    PARTITIONS_ASSIGNED = "partitions_assigned"
    PARTITIONS_REVOKED = "partitions_revoked"
    PARTITIONS_LOST = "partitions_lost"
    RECORDS_SKIPPED = "records_skipped"
    LANE_CHANGED = "lane_changed"
    BULK_SENT_BY_WORKER = "bulk_sent_by_worker"
    BULK_STARTED = "bulk_started"
    BULK_STAGED = "bulk_staged"
    BULK_FAILED = "bulk_failed"
    RECORDS_FILTERED = "records_filtered"
    LAG_ALARM = "lag_alarm"
    LAG_ALARM_OVER = "lag_alarm_over"
