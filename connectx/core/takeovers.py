"""Explains the fencing of a task: the worker that took it over, and since when (KIP-618).

Decides it from what this worker has read of the status topic and the config topic, and reports if that is not
known yet. It sends no request. Kafka Connect shows the producer's exception and leaves the search to its user.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, assert_never

from connectx.core.context import Context
from connectx.model.causes import FencedByLeader, RestartedHere, TakenOver, Takeover, TakeoverUnknown
from connectx.model.ids import TaskId
from connectx.model.payloads import FencedBy
from connectx.values import Value

_EXPLAIN_MS: Final = 60_000
"""For how long a later status may show which task instance fenced a task. After that it belongs to other moves."""


class Fenced(Value):
    """An instance whose producer was fenced.

    `generation` is the group generation that it was started under, `task_config_generation` that of its configuration,
    `newer_epoch` the epoch of the producer that took over, if Kafka reported it; it was received at `received_ms`.
    """

    task: TaskId
    instance: int
    generation: int
    task_config_generation: int | None
    newer_epoch: int | None = None
    received_ms: int = 0


def find_takeover(context: Context, fenced: Fenced, restarted_as: int | None = None) -> Takeover:
    """Who fenced an instance; `restarted_as` is a later instance of the same task on this worker."""
    task, config, me = fenced.task, context.config, context.settings.worker_id
    if restarted_as is not None:
        return RestartedHere(restarted_as, fenced.newer_epoch)
    status = context.status.task_status(task)
    is_task = task.task < config.task_count(task.connector)
    if is_task and status is not None and status.worker_id != me and status.generation >= fenced.generation:
        since_ms = context.status.task_since_ms(task)
        return TakenOver(status.worker_id, task, status.generation, fenced.newer_epoch, status.state, since_ms)
    if config.task_config_generation(task.connector) != fenced.task_config_generation:
        return FencedByLeader(task.connector, config.task_count(task.connector), fenced.newer_epoch)
    return TakeoverUnknown(task, fenced.newer_epoch)


@dataclass(slots=True)
class Takeovers:
    """Records which task instance fenced a task: immediately, and again when it is read later."""

    context: Context
    unexplained: dict[TaskId, Fenced] = field(default_factory=dict)
    """The last fenced instance of each task of which that is not known yet."""

    def record(self, fenced: Fenced, restarted_as: int | None = None) -> Takeover:
        """An instance was fenced; returns who did it, as far as known."""
        takeover = find_takeover(self.context, fenced, restarted_as)
        _record(self.context, fenced, takeover)
        self.unexplained.pop(fenced.task, None)
        if isinstance(takeover, TakeoverUnknown):
            self.unexplained[fenced.task] = fenced
        return takeover

    def explain(self, task: TaskId) -> None:
        """The status topic or the config topic has a new record of a task."""
        fenced = self.unexplained.get(task)
        if fenced is None:
            return
        if self.context.now_ms - fenced.received_ms > _EXPLAIN_MS:
            del self.unexplained[task]
        elif not isinstance(takeover := find_takeover(self.context, fenced), TakeoverUnknown):
            del self.unexplained[task]
            _record(self.context, fenced, takeover)

    def explain_tasks(self, connector: str) -> None:
        """The same for all tasks of a connector."""
        for task in [task for task in self.unexplained if task.connector == connector]:
            self.explain(task)


def _record(context: Context, fenced: Fenced, takeover: Takeover) -> None:
    by, generation, state, since_ms = None, None, None, None
    match takeover:
        case TakenOver():
            by, generation = takeover.by, takeover.generation
            state, since_ms = takeover.state, takeover.since_ms
        case RestartedHere():
            by, generation = context.settings.worker_id, context.group.generation
        case FencedByLeader() | TakeoverUnknown():
            pass
        case _:
            assert_never(takeover)
    known = not isinstance(takeover, TakeoverUnknown)
    payload = FencedBy(known, fenced.instance, by, generation, fenced.newer_epoch, state, since_ms)
    context.record(payload, fenced.task.connector, fenced.task.task, takeover)
