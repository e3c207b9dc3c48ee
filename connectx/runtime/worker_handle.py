"""The interface of a running worker, in threads of this process or in a separate process.

`connectx.runtime.worker.Worker` and `connectx.runtime.process.owner.ProcessWorker` implement it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Literal, Protocol

from connectx.core.rules import BrokenRule
from connectx.model.ids import TaskId
from connectx.recording.file import Recording

Isolation = Literal["thread", "process"]


class WorkerState(StrEnum):
    """A worker as its owner sees it, which can differ from its state in the group."""

    STARTING = "starting"
    RUNNING = "running"
    PAUSED = "paused"
    STALLED = "stalled"
    STOPPING = "stopping"
    STOPPED = "stopped"
    KILLED = "killed"
    FAILED = "failed"


JOINED = (WorkerState.RUNNING, WorkerState.PAUSED, WorkerState.STALLED)
ALIVE = (WorkerState.STARTING, *JOINED, WorkerState.STOPPING)

OnFault = Callable[[], None]
"""Called when a fault takes effect: after all events of the worker from before it, before any event from after it."""


def no_op() -> None:
    """Do nothing: the default of callbacks."""


class WorkerHandle(Protocol):
    """A worker as `Cluster` and `Workers` use it."""

    @property
    def name(self) -> str:
        """Unique in the cluster for all time; client ids start with it and a slash."""

    @property
    def isolation(self) -> Isolation:
        """thread, or process: then its sockets freeze and close with it, without a gate."""

    @property
    def state(self) -> WorkerState:
        """Where it is in its life."""

    @property
    def error(self) -> str | None:
        """Why it failed, if it did."""

    @property
    def url(self) -> str:
        """Advertised URL, with a trailing slash; empty until it is known."""

    @property
    def alive(self) -> bool:
        """True while the worker can be asked."""

    def view(self) -> Mapping[str, Any]:
        """The core's latest view of its place in the group; never blocks. Shape: `connectx.core.verbs`, *worker*."""

    def task_metrics(self) -> dict[TaskId, Mapping[str, object]]:
        """Live numbers of the tasks that run there; never blocks."""

    def heartbeat_ms(self) -> int | None:
        """When the group last answered one of its heartbeats, milliseconds since 1970; None before the first."""

    def check(self, timeout_s: float = 10.0) -> tuple[BrokenRule, ...]:
        """Check the rules between the parts of its core; WorkerStoppedError if the core does not answer."""

    def recordings(self, reason: str) -> tuple[Recording, ...]:
        """Return the latest steps of its core, its tasks and its clients, without secrets."""

    def start(self) -> None:
        """Start it and wait until it may join the group; raises ConnectxError if it cannot."""

    def request_stop(self) -> None:
        """Begin to stop gracefully, without waiting."""

    def stop(self, timeout_s: float = 30.0) -> bool:
        """Stop gracefully; False when some work did not stop in time."""

    def kill(self, on_fault: OnFault = no_op) -> None:
        """A fault: end immediately. Nothing happens, and `on_fault` is not called, if it has ended."""

    def freeze(self, *, tasks: bool, on_fault: OnFault = no_op) -> bool:
        """A fault: freeze, with the tasks or without them. False when there is nothing to freeze."""

    def thaw(self) -> bool:
        """End `freeze`; False if it was not frozen."""
