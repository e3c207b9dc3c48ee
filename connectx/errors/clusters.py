"""Errors of clusters and their workers."""

from __future__ import annotations

from collections.abc import Sequence

from connectx.errors.base import ConnectxError


class WorkerStoppedError(ConnectxError):
    """A call to a worker that has ended, or that ended during the call."""

    retriable = True

    def __init__(self, worker: str, reason: str) -> None:
        super().__init__(f"{worker} cannot answer: {reason}.", next_step="Ask another worker.")


class UnknownWorkerError(ConnectxError, KeyError):
    """No worker has that name."""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        super().__init__(f"There is no worker {name!r}.", next_step=f"Known workers: {', '.join(known)}.")


class GroupInUseError(ConnectxError):
    """Another cluster's workers are members of the same group."""

    def __init__(self, group_id: str, members: int, protocol_type: str) -> None:
        super().__init__(
            f"The group {group_id!r} already has {members} member(s) of protocol type {protocol_type!r} on this Kafka.",
            next_step="Set another `group.id` in config=, or pass join=True to add workers to that Connect cluster; "
            "members of a process that was killed leave after session.timeout.ms.",
        )


class AttachError(ConnectxError):
    """A running cluster cannot be attached to, because its group or its topics are ambiguous."""


class NotSeenError(ConnectxError):
    """An attached cluster does not show what a call needs."""


class WorkerFailedError(ConnectxError):
    """A worker failed while a call waited for it."""

    def __init__(self, worker: str, cause: str) -> None:
        super().__init__(
            f"{worker} has failed: {cause or 'without a reason; see its log'}",
            next_step="Fix the cause, then add a worker with cluster.add_worker().",
        )


class NoGateError(ConnectxError):
    """A worker's connections to Kafka cannot be cut or delayed, because there is no gate between them."""

    def __init__(self, worker: str) -> None:
        super().__init__(
            f"The connections of {worker} to Kafka cannot be cut or delayed: there is no gate between them, "
            "because the cluster uses your own Kafka (bootstrap_servers=) or was made with faults=False.",
            next_step="Use the embedded Kafka with its gate, cx.Cluster(), or stall() or pause() the worker instead.",
        )


class NotEmbeddedError(ConnectxError):
    """The broker cannot be killed or restarted, because it is not a child of this cluster."""

    def __init__(self, bootstrap_servers: str) -> None:
        super().__init__(
            f"The Kafka at {bootstrap_servers} is your own, so this cluster cannot kill or restart it.",
            next_step="Use the embedded Kafka (leave out bootstrap_servers=), or stop your Kafka with its own tools.",
        )


class ClusterClosedError(ConnectxError):
    """The cluster was closed, or all its workers have ended."""


class CompactionError(ConnectxError):
    """A connector has no files that can be merged."""
