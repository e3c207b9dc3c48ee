"""Lost work: tasks and connectors of a dead worker until another takes them over. Pure.

Kafka Connect shows such work as RUNNING, because no worker writes a status for a dead one. Two times
delay it: the group's session timeout, until the coordinator notices, and then the delay of KIP-415
(scheduled.rebalance.max.delay.ms), in which the leader waits for the worker to come back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from connectx.history.wording import duration, task_of
from connectx.model import payloads
from connectx.model.events import Event, EventKind
from connectx.model.ids import TaskId
from connectx.model.states import State, TargetState
from connectx.model.worker_keys import WorkerKeys
from connectx.values import Value
from connectx.views import Shown

SESSION = WorkerKeys.session_timeout_ms.name
DELAY = WorkerKeys.scheduled_rebalance_max_delay_ms.name

_AFTER_END = (
    EventKind.CONNECTOR_STATE,
    EventKind.TASK_STATE,
    EventKind.CONNECTOR_DELETED,
    EventKind.TASKS_CONFIGURED,
    EventKind.MEMBER_REMOVED,
    EventKind.REBALANCE_DELAYED,
    EventKind.ASSIGNMENT_COMPUTED,
)
_TAKEN = (State.RUNNING, State.PAUSED, State.FAILED, State.STOPPED)


class Grace(Value):
    """How long a group waits for a member, in milliseconds."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_delay_ms: int


class LostWork(Value, Shown):
    """Work that a dead worker ran and no worker runs now.

    Attributes:
        worker: the dead worker.
        how: what happened to it: "was killed" or "failed".
        time_ms: when, milliseconds since 1970.
        connectors, tasks: its work, sorted.
        due_ms: when the group gives it to others at the latest; before that it may still be held back.
        waits_for: the settings that hold it back, in the order in which they count; empty when nothing does any more.
    """

    worker: str
    how: str
    time_ms: int
    connectors: tuple[str, ...]
    tasks: tuple[TaskId, ...]
    due_ms: int
    waits_for: tuple[str, ...]

    def sentence(self, now_ms: int, *, any_left: bool = True) -> str:
        """Return what happened, how long ago, and the time until other workers have the work at the latest.

        `any_left`: another worker can take it over.
        """
        ago = f"{self.worker} {self.how} {duration(max(now_ms - self.time_ms, 0))} ago"
        if not any_left:
            return f"{ago}; no worker is left to take over: cluster.add_worker()"
        why = f" ({', then '.join(self.waits_for)})" if self.is_held_back(now_ms) else ""
        return f"{ago}; {self.remaining(now_ms)}{why}"

    def is_held_back(self, now_ms: int) -> bool:
        """True while a setting still lets the work wait."""
        return bool(self.waits_for) and now_ms < self.due_ms

    def remaining(self, now_ms: int) -> str:
        """Return the time until other workers have the work at the latest, as part of a sentence."""
        if not self.is_held_back(now_ms):
            return "its work is being handed over"
        return f"its work moves in {duration(self.due_ms - now_ms)} at the latest"


def lost_work(events: Iterable[Event], worker: str, grace: Grace) -> LostWork | None:
    """What of `worker`'s work is lost after the last event; None while it lives, and when all has moved."""
    listed = list(events)
    at = next((number for number in range(len(listed) - 1, -1, -1) if _is_end(listed[number], worker)), None)
    if at is None:
        return None
    end, after = listed[at], listed[at + 1 :]
    connectors, tasks = _held(listed[:at], worker)
    left = [name for name in connectors if not _is_settled(name, None, after, worker)]
    left_tasks = [task for task in tasks if not _is_settled(task.connector, task, after, worker)]
    if not left and not left_tasks:
        return None
    names = {*left, *map(str, left_tasks)}
    due_ms, waits_for = _due(end, after, names, grace)
    how = "failed" if end.kind is EventKind.WORKER_FAILED else "was killed"
    return LostWork(worker, how, end.time_ms, tuple(sorted(left)), tuple(sorted(left_tasks)), due_ms, waits_for)


class Remains(Value):
    """`lost_work` of one worker, computed incrementally: each step reads only the events after `seq`.

    A value, so that looks from several threads do no harm to each other.

    Attributes:
        events: what counts of the history up to `seq`; nothing once it is over.
        work: what is lost after the event `seq`.
        is_over: the worker has ended and all of its work has moved, which never changes again.
    """

    worker: str
    grace: Grace
    events: tuple[Event, ...] = ()
    seq: int = 0
    work: LostWork | None = None
    is_over: bool = False

    def then(self, news: Sequence[Event]) -> Remains:
        """With the events after `seq`, oldest first."""
        if self.is_over or not news:
            return self
        kept = list(self.events)
        has_ended = any(_is_end(event, self.worker) for event in kept)
        for event in news:
            if _is_end(event, self.worker):
                kept.append(event)
                has_ended = True
            elif event.worker == self.worker and event.kind is EventKind.REBALANCE_COMPLETED:
                kept = [*kept, event] if has_ended else [event]
            elif has_ended and (event.kind in _AFTER_END or isinstance(event.payload, payloads.TargetStateChanged)):
                kept.append(event)
        work = lost_work(kept, self.worker, self.grace)
        is_over = has_ended and work is None
        return Remains(self.worker, self.grace, () if is_over else tuple(kept), news[-1].seq, work, is_over)


def _is_end(event: Event, worker: str) -> bool:
    if event.worker != worker:
        return False
    match event.payload:
        case payloads.FaultInjected("kill") | payloads.WorkerFailed():
            return True
        case _:
            return False


def _held(before: Sequence[Event], worker: str) -> tuple[list[str], list[TaskId]]:
    """Its work by the last assignment that it got."""
    for event in reversed(before):
        if event.worker == worker and isinstance(event.payload, payloads.RebalanceCompleted):
            found = [task_of(task) for task in event.payload.tasks or ()]
            return list(event.payload.connectors or ()), [task for task in found if task]
    return [], []


def _is_settled(connector: str, task: TaskId | None, after: Sequence[Event], worker: str) -> bool:
    """True when another worker has it, or when there is nothing to have any more."""
    return any(
        event.connector == connector and (_is_gone(event, task) or (event.worker != worker and _is_taken(event, task)))
        for event in after
    )


def _is_taken(event: Event, task: TaskId | None) -> bool:
    match event.payload:
        case payloads.ConnectorState(state) if task is None:
            return state in _TAKEN
        case payloads.TaskState(state) if task is not None:
            return event.task == task.task and state in _TAKEN
    return False


def _is_gone(event: Event, task: TaskId | None) -> bool:
    match event.payload:
        case payloads.ConnectorDeleted():
            return True
        case payloads.TasksConfigured(tasks):
            return task is not None and task.task >= tasks
        case payloads.TargetStateChanged(target_state):
            return task is not None and target_state is TargetState.STOPPED
        case _:
            return False


def _due(end: Event, after: Sequence[Event], lost: set[str], grace: Grace) -> tuple[int, tuple[str, ...]]:
    """Until when the work waits at the latest, and for which settings."""
    delay_ms = grace.max_delay_ms
    waits_for: tuple[str, ...] = (SESSION, DELAY) if delay_ms else (SESSION,)
    due_ms = end.time_ms + grace.session_timeout_ms + grace.heartbeat_interval_ms + delay_ms
    for event in after:
        match event.payload:
            case payloads.MemberRemoved() if event.worker == end.worker:
                due_ms, waits_for = event.time_ms + grace.heartbeat_interval_ms + delay_ms, (DELAY,) if delay_ms else ()
            case payloads.RebalanceDelayed(waiting, wait_ms) if lost.intersection(waiting):
                due_ms, waits_for = event.time_ms + wait_ms, (DELAY,)
            case payloads.AssignmentComputed(members) if lost & _assigned(members.values()):
                due_ms, waits_for = event.time_ms, ()
    return due_ms, waits_for


def _assigned(members: Iterable[payloads.MemberWork]) -> set[str]:
    return {name for work in members for name in work.assigned}
