"""Who fenced a producer, and since when: what a task that was fenced can say to its user (KIP-618).

Decides who it was from what this worker has read of the status topic and the config topic, and says so when that is not
known yet. It never asks anybody. Kafka Connect shows the producer's exception and leaves the search to its user.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from connectx.core.context import Context
from connectx.model.events import EventKind
from connectx.model.ids import TaskId
from connectx.model.states import State

_EXPLAIN_MS: Final = 60_000
"""For how long a status that comes later may tell who fenced a task: after that it tells of other moves."""


@dataclass(frozen=True, slots=True)
class Fenced:
    """An instance whose producer was fenced.

    `generation` is the group generation that it was started under, `task_config_generation` that of its configuration,
    `newer_epoch` the epoch of the producer that took over, as far as Kafka told it; it was heard of at `heard_ms`.
    """

    task: TaskId
    instance: int
    generation: int
    task_config_generation: int | None
    newer_epoch: int | None = None
    heard_ms: int = 0


@dataclass(frozen=True, slots=True)
class Takeover:
    """Who fenced it. `by` is a worker (host:port), None when it was the leader's round or is not known yet.

    `generation`, `state` and `since_ms` (Unix time) are what that worker reports of the task.
    """

    sentence: str
    known: bool
    by: str | None = None
    generation: int | None = None
    state: State | None = None
    since_ms: int | None = None


def find_takeover(context: Context, fenced: Fenced, restarted_as: int | None = None) -> Takeover:
    """Who fenced an instance; `restarted_as` is a later instance of the same task on this worker."""
    task, config, me = fenced.task, context.config, context.settings.worker_id
    epoch = "" if fenced.newer_epoch is None else f" (epoch {fenced.newer_epoch})"
    if restarted_as is not None:
        sentence = f"this worker started it again, as instance {restarted_as}{epoch}"
        return Takeover(sentence, True, me, context.group.generation)
    status = context.status.task_status(task)
    is_task = task.task < config.task_count(task.connector)
    if is_task and status is not None and status.worker_id != me and status.generation >= fenced.generation:
        since_ms = context.status.task_since_ms(task)
        at = "" if since_ms is None else f" since {_time_of_day(since_ms)}"
        now = f"UNASSIGNED again{at}" if status.state is State.UNASSIGNED else f"{status.state} there{at}"
        sentence = f"worker {status.worker_id} took over {task} in generation {status.generation}{epoch}, {now}"
        return Takeover(sentence, True, status.worker_id, status.generation, status.state, since_ms)
    if config.task_config_generation(task.connector) != fenced.task_config_generation:
        count = config.task_count(task.connector)
        what = f"{task.connector} has newer task configs, for {count} task{'' if count == 1 else 's'}"
        return Takeover(f"the leader fenced it{epoch}: {what}", True)
    sentence = f"who took over {task}{epoch} is not known yet: no other worker reports it in the status topic"
    return Takeover(sentence, False)


@dataclass(slots=True)
class Takeovers:
    """Tells the history who fenced a task: at once, and again when it was not known then and has been read since."""

    context: Context
    unexplained: dict[TaskId, Fenced] = field(default_factory=dict)
    """The last fenced instance of each task of which that is not known yet."""

    def record(self, fenced: Fenced, restarted_as: int | None = None) -> str:
        """An instance was fenced; returns who did it, as far as known, in a sentence."""
        takeover = find_takeover(self.context, fenced, restarted_as)
        _record(self.context, fenced, takeover)
        self.unexplained.pop(fenced.task, None)
        if not takeover.known:
            self.unexplained[fenced.task] = fenced
        return takeover.sentence

    def explain(self, task: TaskId) -> None:
        """The status topic or the config topic says something new about a task."""
        fenced = self.unexplained.get(task)
        if fenced is None:
            return
        if self.context.now_ms - fenced.heard_ms > _EXPLAIN_MS:
            del self.unexplained[task]
        elif (takeover := find_takeover(self.context, fenced)).known:
            del self.unexplained[task]
            _record(self.context, fenced, takeover)

    def explain_tasks(self, connector: str) -> None:
        """The same for all tasks of a connector."""
        for task in [task for task in self.unexplained if task.connector == connector]:
            self.explain(task)


def _record(context: Context, fenced: Fenced, takeover: Takeover) -> None:
    data: dict[str, Any] = {
        "instance": fenced.instance,
        "known": takeover.known,
        "by": takeover.by,
        "by_generation": takeover.generation,
        "newer_epoch": fenced.newer_epoch,
        "state": takeover.state.value if takeover.state is not None else None,
        "since_ms": takeover.since_ms,
    }
    context.record(EventKind.FENCED_BY, fenced.task.connector, fenced.task.task, takeover.sentence, **data)


def _time_of_day(time_ms: int) -> str:
    seconds = time_ms // 1000 % 86_400
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02} UTC"
