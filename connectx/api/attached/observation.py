"""The fold of polls, records and group descriptions of an attached cluster into events. Pure.

Decides which event an observation stands for; `connectx.api.attached.watch` makes the observations. It reports no more
than was observed: all changes between two polls are one change, and a worker that left the group may have been
stopped, killed or cut off. Events carry their origin.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from connectx.core.config_events import event_of
from connectx.core.config_log import ConfigLog
from connectx.core.status_log import StatusLog
from connectx.kafka.admin.group_view import GroupView
from connectx.model import payloads
from connectx.model.causes import Cause, GroupNotStable, OutsideGroup, TakenSilently
from connectx.model.config_records import ConfigRecord
from connectx.model.events import Sighting, Transition
from connectx.model.ids import TaskId
from connectx.model.payloads import Payload
from connectx.model.states import State
from connectx.model.status_records import (
    ConnectorStatusRecord,
    Status,
    StatusRecord,
    TaskStatusRecord,
    TopicStatusRecord,
)
from connectx.values import Value

POLLING, GROUP = "seen by polling REST", "seen by describing the group"
CONFIG_TOPIC, STATUS_TOPIC = "read from the config topic", "read from the status topic"

WorkerTransition = tuple[Transition, str | None]
"""A transition, and the worker that it happened on; None for the cluster itself."""

_ITSELF = -1
_HELD = (State.RUNNING, State.PAUSED, State.FAILED)


class ObservedWorker(Value):
    """An observed worker; `connectors` and `tasks` are those assigned to it."""

    worker_id: str
    url: str
    connectors: tuple[str, ...]
    tasks: tuple[str, ...]
    is_leader: bool


class Picture(Value):
    """The state at the last poll. `group` is None if the group is not observed."""

    workers: tuple[ObservedWorker, ...] = ()
    group: GroupView | None = None
    generation: int | None = None


@dataclass(slots=True)
class Observation:
    """The observed state of a cluster; `observe_` methods return the transitions that follow from an observation.

    Statuses come from `observe_rest` or from `observe_status`, never both.
    """

    config: ConfigLog = field(default_factory=ConfigLog)
    status: StatusLog = field(default_factory=StatusLog)
    group: GroupView | None = None
    generation: int | None = None
    """Estimated: the highest generation in a status record, plus one per observed change of the group."""
    is_settled: bool = True
    scheme: str = "http"
    _reported_generation: int | None = None
    _out: frozenset[str] = frozenset()
    _work: dict[str, dict[int, Status]] = field(default_factory=dict)
    """By connector, then by task, the connector itself under -1."""
    _configs: dict[str, Any] = field(default_factory=dict)
    _urls: dict[str, str] = field(default_factory=dict)
    """Workers that were seen and have not gone, with their URLs where they are known."""

    def picture(self) -> Picture:
        """How things stand."""
        leader = self.group.leader_url if self.group is not None else None
        workers = [
            ObservedWorker(worker_id, url, *self._held_by(worker_id), leader == url)
            for worker_id, url in sorted(self._urls.items())
        ]
        if self.group is None:  # statuses alone do not distinguish an idle worker from a lost one
            workers = [worker for worker in workers if worker.connectors or worker.tasks]
        return Picture(tuple(workers), self.group, self.generation)

    def _held_by(self, worker_id: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Connectors and tasks of a worker: by the group where that is known, else by their statuses."""
        member = self.group.of(worker_id) if self.group is not None else None
        if member is not None:
            return member.work.connectors, tuple(str(task) for task in member.work.tasks)
        mine = [
            TaskId(connector, number)
            for connector, statuses in self._work.items()
            for number, status in statuses.items()
            if status.worker_id == worker_id and status.state in _HELD
        ]
        tasks = tuple(str(task) for task in sorted(mine) if task.task != _ITSELF)
        return tuple(sorted(task.connector for task in mine if task.task == _ITSELF)), tasks

    def observe_rest(self, shown: Mapping[str, Any], after_ms: int | None) -> Iterator[WorkerTransition]:
        """What `GET /connectors?expand=status&expand=info` shows; `after_ms`: the time of the previous request."""
        seen = Sighting(POLLING, after_ms)
        for connector in sorted(shown):
            info = shown[connector].get("info") or {}
            yield from self._observe_info(connector, info, seen)
            status = shown[connector].get("status")
            if status is None:
                continue
            yield from self._observe(connector, _ITSELF, _of_rest(status["connector"]), seen)
            statuses = {int(task["id"]): task for task in status["tasks"]}
            for number in sorted(statuses):
                yield from self._observe(connector, number, _of_rest(statuses[number]), seen)
            for number in sorted(set(self._work.get(connector, ())) - set(statuses) - {_ITSELF}):
                yield from self._observe(connector, number, None, seen)
        for connector in sorted(set(self._configs) - set(shown)):
            del self._configs[connector]
            yield from self._destroyed(connector, seen)
            yield Transition(payloads.ConnectorDeleted(), connector, seen=seen), None

    def _observe_info(self, connector: str, info: Mapping[str, Any], seen: Sighting) -> Iterator[WorkerTransition]:
        before = self._configs.get(connector)
        tasks = len(info.get("tasks", ()))
        now = {"config": info.get("config"), "tasks": tasks}
        self._configs[connector] = now
        if before is None or before["config"] != now["config"]:
            yield Transition(payloads.ConnectorConfigured(before is None), connector, seen=seen), None
        if before is None or before["tasks"] != now["tasks"]:
            yield Transition(payloads.TasksConfigured(tasks), connector, seen=seen), None

    def begin(self) -> Iterator[WorkerTransition]:
        """How things stand once both topics were read to their present end."""
        for connector in self.config.connectors():
            seen = Sighting(CONFIG_TOPIC)
            yield Transition(payloads.ConnectorConfigured(is_new=False), connector, seen=seen), None
            tasks = payloads.TasksConfigured(self.config.task_count(connector))
            yield Transition(tasks, connector, seen=seen), None
        for connector in self.status.connectors():
            status = self.status.connector_status(connector)
            if status is not None:
                yield from self._observe(connector, _ITSELF, status, Sighting(STATUS_TOPIC))
            for task, status in self.status.task_statuses(connector).items():
                seen = Sighting(STATUS_TOPIC, written_ms=self.status.task_since_ms(task))
                yield from self._observe(connector, task.task, status, seen)

    def observe_config(self, log_offset: int, record: ConfigRecord, written_ms: int) -> Iterator[WorkerTransition]:
        """A further record of the config topic."""
        for change in self.config.apply(log_offset, record):
            if event := event_of(change, self.config, log_offset):
                yield Transition(*event, seen=Sighting(CONFIG_TOPIC, written_ms=written_ms)), None

    def observe_status(self, record: StatusRecord, written_ms: int) -> Iterator[WorkerTransition]:
        """A further record of the status topic."""
        if not self.status.apply(record, written_ms):
            return
        seen = Sighting(STATUS_TOPIC, written_ms=written_ms)
        match record:
            case ConnectorStatusRecord(connector, None):
                yield from self._destroyed(connector, seen)
            case ConnectorStatusRecord(connector, status):
                yield from self._observe(connector, _ITSELF, status, seen)
            case TaskStatusRecord(task, status):
                yield from self._observe(task.connector, task.task, status, seen)
            case TopicStatusRecord():
                pass  # the topics that a connector uses are no state

    def observe_rebalance(self) -> Iterator[WorkerTransition]:
        """The group is not Stable: its members are joining."""
        if self.is_settled and self.group is not None:
            for member in self.group.members:
                payload, why = payloads.RebalanceStarted(), GroupNotStable()
                yield self._of_group(payload, why), member.worker_id
        self.is_settled = False

    def departed(self, view: GroupView) -> Mapping[str, str]:
        """Workers that were there and are no members of this group, with their URLs."""
        return {worker_id: self._urls[worker_id] for worker_id in sorted(set(self._urls) - set(view.worker_ids))}

    def observe_group(self, view: GroupView, answering: Collection[str] = ()) -> Iterator[WorkerTransition]:
        """Report workers that joined or left a stable group, and a new round when anything differs from before.

        `answering` are those of the departed workers whose REST still answers.
        """
        before, self.group = self.group, view
        was_settled, self.is_settled = self.is_settled, True
        for member in view.members:
            if self._urls.get(member.worker_id) is None:
                yield self._started(member.worker_id, GROUP)
            self._urls[member.worker_id] = member.url
        for worker_id in self.departed(view):
            if worker_id in answering and worker_id not in self._out:
                why = OutsideGroup(answers=True)
                yield Transition(payloads.MemberLost(), why=why, seen=Sighting(GROUP)), worker_id
            elif worker_id not in answering:
                del self._urls[worker_id]
                why = OutsideGroup(answers=False)
                yield Transition(payloads.WorkerStopped(), why=why, seen=Sighting(GROUP)), worker_id
        self._out = frozenset(self.departed(view))
        if before == view and was_settled:
            return
        if before is not None and self.generation is not None and self.generation == self._reported_generation:
            self.generation += 1  # no status has named that of the new round yet
        self._reported_generation = self.generation
        for member in view.members:
            completed = payloads.RebalanceCompleted(
                leader_url=view.leader_url,
                protocol=view.protocol,
                connectors=tuple(member.work.connectors),
                tasks=tuple(str(task) for task in member.work.tasks),
                delay_ms=member.delay_ms,
            )
            yield self._of_group(completed), member.worker_id
        if view.delay_ms:
            held = {task for member in view.members for task in member.work.tasks}
            lost = tuple(
                str(task) for c in self.config.connectors() for task in self.config.tasks(c) if task not in held
            )
            yield self._of_group(payloads.RebalanceDelayed(lost, view.delay_ms)), None

    def _of_group(self, payload: Payload, why: Cause | None = None) -> Transition:
        return Transition(payload, generation=self.generation, why=why, seen=Sighting(GROUP))

    def _destroyed(self, connector: str, seen: Sighting) -> Iterator[WorkerTransition]:
        for number in sorted(self._work.get(connector, ()), reverse=True):
            yield from self._observe(connector, number, None, seen)

    def _observe(
        self, connector: str, number: int, status: Status | None, seen: Sighting
    ) -> Iterator[WorkerTransition]:
        """The status of a task, or of a connector itself; None: it is gone."""
        statuses = self._work.setdefault(connector, {})
        before = statuses.get(number)
        if before == status:
            return
        payload = payloads.ConnectorState if number == _ITSELF else payloads.TaskState
        task = None if number == _ITSELF else number
        if status is None:
            del statuses[number]
            worker = before.worker_id if before is not None else None
            yield Transition(payload(State.DESTROYED), connector, task, seen=seen), worker
            return
        statuses[number] = status
        generation = status.generation if status.generation >= 0 else None
        if generation is not None:
            self.generation = max(self.generation or 0, generation)
        if status.state in _HELD:
            if status.worker_id not in self._urls:
                yield self._started(status.worker_id, seen.origin)
            if before is not None and before.state in _HELD and before.worker_id != status.worker_id:
                why, origin = TakenSilently(status.worker_id, before.worker_id), Sighting(seen.origin)
                released = Transition(payload(State.UNASSIGNED), connector, task, why=why, seen=origin)
                yield released, before.worker_id
        shown = payload(status.state, status.trace)
        yield Transition(shown, connector, task, generation, seen=seen), status.worker_id

    def _started(self, worker_id: str, origin: str) -> WorkerTransition:
        url = self._urls.setdefault(worker_id, f"{self.scheme}://{worker_id}/")
        return Transition(payloads.WorkerStarted(url), seen=Sighting(origin)), worker_id


def _of_rest(shown: Mapping[str, Any]) -> Status:
    """A status without a generation, which REST does not report."""
    return Status(State(shown["state"]), shown["worker_id"], -1, shown.get("trace"), shown.get("version"))
