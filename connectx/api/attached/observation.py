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
from connectx.model.config_records import ConfigRecord
from connectx.model.events import EventKind, Transition
from connectx.model.ids import TaskId
from connectx.model.states import State
from connectx.model.status_records import ConnectorStatusRecord, Status, StatusRecord, TaskStatusRecord

POLLING, GROUP = "seen by polling REST", "seen by describing the group"
CONFIG_TOPIC, STATUS_TOPIC = "read from the config topic", "read from the status topic"

WorkerTransition = tuple[Transition, str | None]
"""A transition, and the worker that it happened on; None for the cluster itself."""

_ITSELF = -1
_HELD = (State.RUNNING, State.PAUSED, State.FAILED)


@dataclass(frozen=True, slots=True)
class ObservedWorker:
    """A worker that is there, as far as that can be seen; `connectors` and `tasks` are what it has to run."""

    worker_id: str
    url: str
    connectors: tuple[str, ...]
    tasks: tuple[str, ...]
    is_leader: bool


@dataclass(frozen=True, slots=True)
class Picture:
    """How things stood at the last look. `group` is None where it is not looked at."""

    workers: tuple[ObservedWorker, ...] = ()
    group: GroupView | None = None
    generation: int | None = None


@dataclass(slots=True)
class Observation:
    """All that is known of a cluster; `observe_` methods return the transitions that follow from an observation.

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

    # ------------------------------------------------------------------------------------------------------ REST

    def observe_rest(self, shown: Mapping[str, Any], after_ms: int | None) -> Iterator[WorkerTransition]:
        """What `GET /connectors?expand=status&expand=info` shows; `after_ms`: when it was asked last."""
        data: dict[str, Any] = {"origin": POLLING, **({} if after_ms is None else {"after_ms": after_ms})}
        for connector in sorted(shown):
            info = shown[connector].get("info") or {}
            yield from self._observe_info(connector, info, data)
            status = shown[connector].get("status")
            if status is None:
                continue
            yield from self._observe(connector, _ITSELF, _of_rest(status["connector"]), data)
            statuses = {int(task["id"]): task for task in status["tasks"]}
            for number in sorted(statuses):
                yield from self._observe(connector, number, _of_rest(statuses[number]), data)
            for number in sorted(set(self._work.get(connector, ())) - set(statuses) - {_ITSELF}):
                yield from self._observe(connector, number, None, data)
        for connector in sorted(set(self._configs) - set(shown)):
            del self._configs[connector]
            yield from self._destroyed(connector, data)
            yield Transition(EventKind.CONNECTOR_DELETED, connector, data=data), None

    def _observe_info(
        self, connector: str, info: Mapping[str, Any], data: Mapping[str, Any]
    ) -> Iterator[WorkerTransition]:
        before = self._configs.get(connector)
        now = {"config": info.get("config"), "tasks": len(info.get("tasks", ()))}
        self._configs[connector] = now
        if before is None or before["config"] != now["config"]:
            yield (
                Transition(EventKind.CONNECTOR_CONFIGURED, connector, data={**data, "is_new": before is None}),
                None,
            )
        if before is None or before["tasks"] != now["tasks"]:
            yield Transition(EventKind.TASKS_CONFIGURED, connector, data={**data, "tasks": now["tasks"]}), None

    # ---------------------------------------------------------------------------------------------------- topics

    def begin(self) -> Iterator[WorkerTransition]:
        """How things stand once both topics were read to their present end."""
        for connector in self.config.connectors():
            data: dict[str, Any] = {"origin": CONFIG_TOPIC}
            yield Transition(EventKind.CONNECTOR_CONFIGURED, connector, data={**data, "is_new": False}), None
            tasks = self.config.task_count(connector)
            yield Transition(EventKind.TASKS_CONFIGURED, connector, data={**data, "tasks": tasks}), None
        for connector in self.status.connectors():
            status = self.status.connector_status(connector)
            data = {"origin": STATUS_TOPIC}
            if status is not None:
                yield from self._observe(connector, _ITSELF, status, data)
            for task, status in self.status.task_statuses(connector).items():
                since_ms = self.status.task_since_ms(task)
                more = {} if since_ms is None else {"written_ms": since_ms}
                yield from self._observe(connector, task.task, status, {**data, **more})

    def observe_config(self, log_offset: int, record: ConfigRecord, written_ms: int) -> Iterator[WorkerTransition]:
        """A further record of the config topic."""
        for change in self.config.apply(log_offset, record):
            if event := event_of(change, self.config, log_offset):
                kind, connector, data = event
                data = {"origin": CONFIG_TOPIC, "written_ms": written_ms, **data}
                yield Transition(kind, connector, data=data), None

    def observe_status(self, record: StatusRecord, written_ms: int) -> Iterator[WorkerTransition]:
        """A further record of the status topic."""
        if not self.status.apply(record, written_ms):
            return
        data = {"origin": STATUS_TOPIC, "written_ms": written_ms}
        match record:
            case ConnectorStatusRecord(connector, None):
                yield from self._destroyed(connector, data)
            case ConnectorStatusRecord(connector, status):
                yield from self._observe(connector, _ITSELF, status, data)
            case TaskStatusRecord(task, status):
                yield from self._observe(task.connector, task.task, status, data)

    # ----------------------------------------------------------------------------------------------------- group

    def observe_rebalance(self) -> Iterator[WorkerTransition]:
        """The group is not Stable: its members are joining."""
        if self.is_settled and self.group is not None:
            for member in self.group.members:
                data = {"origin": GROUP, "reason": "the group is not stable"}
                yield Transition(EventKind.REBALANCE_STARTED, generation=self.generation, data=data), member.worker_id
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
                yield self._started(member.worker_id, {"origin": GROUP})
            self._urls[member.worker_id] = member.url
        for worker_id in self.departed(view):
            if worker_id in answering and worker_id not in self._out:
                cause = "it answers and is no member of the group: the group has given its work to others"
                yield Transition(EventKind.MEMBER_LOST, cause=cause, data={"origin": GROUP}), worker_id
            elif worker_id not in answering:
                del self._urls[worker_id]
                cause = "it is no member of the group and does not answer: it was stopped, killed or cut off"
                yield Transition(EventKind.WORKER_STOPPED, cause=cause, data={"origin": GROUP}), worker_id
        self._out = frozenset(self.departed(view))
        if before == view and was_settled:
            return
        if before is not None and self.generation is not None and self.generation == self._reported_generation:
            self.generation += 1  # no status has named that of the new round yet
        self._reported_generation = self.generation
        for member in view.members:
            data = {
                "origin": GROUP,
                "leader_url": view.leader_url,
                "protocol": view.protocol,
                "connectors": list(member.work.connectors),
                "tasks": [str(task) for task in member.work.tasks],
                "delay_ms": member.delay_ms,
            }
            yield Transition(EventKind.REBALANCE_COMPLETED, generation=self.generation, data=data), member.worker_id
        if view.delay_ms:
            held = {task for member in view.members for task in member.work.tasks}
            lost = [str(task) for c in self.config.connectors() for task in self.config.tasks(c) if task not in held]
            data = {"origin": GROUP, "delay_ms": view.delay_ms, "lost": lost}
            yield Transition(EventKind.REBALANCE_DELAYED, generation=self.generation, data=data), None

    # ------------------------------------------------------------------------------------------------- one piece

    def _destroyed(self, connector: str, data: Mapping[str, Any]) -> Iterator[WorkerTransition]:
        for number in sorted(self._work.get(connector, ()), reverse=True):
            yield from self._observe(connector, number, None, data)

    def _observe(
        self, connector: str, number: int, status: Status | None, data: Mapping[str, Any]
    ) -> Iterator[WorkerTransition]:
        """The status of a task, or of a connector itself; None: it is gone."""
        statuses = self._work.setdefault(connector, {})
        before = statuses.get(number)
        if before == status:
            return
        kind = EventKind.CONNECTOR_STATE if number == _ITSELF else EventKind.TASK_STATE
        task = None if number == _ITSELF else number
        if status is None:
            del statuses[number]
            worker = before.worker_id if before is not None else None
            yield Transition(kind, connector, task, data={**data, "state": State.DESTROYED.value}), worker
            return
        statuses[number] = status
        generation = status.generation if status.generation >= 0 else None
        if generation is not None:
            self.generation = max(self.generation or 0, generation)
        if status.state in _HELD:
            if status.worker_id not in self._urls:
                yield self._started(status.worker_id, data)
            if before is not None and before.state in _HELD and before.worker_id != status.worker_id:
                cause = f"{status.worker_id} has it now; {before.worker_id} did not say that it gave it up"
                ended = {"origin": data["origin"], "state": State.UNASSIGNED.value}
                yield Transition(kind, connector, task, cause=cause, data=ended), before.worker_id
        shown = {**data, "state": status.state.value, "trace": status.trace}
        yield Transition(kind, connector, task, generation, data=shown), status.worker_id

    def _started(self, worker_id: str, data: Mapping[str, Any]) -> WorkerTransition:
        url = self._urls.setdefault(worker_id, f"{self.scheme}://{worker_id}/")
        return Transition(EventKind.WORKER_STARTED, data={"origin": data["origin"], "url": url}), worker_id


def _of_rest(shown: Mapping[str, Any]) -> Status:
    """A status without a generation, which REST does not report."""
    return Status(State(shown["state"]), shown["worker_id"], -1, shown.get("trace"), shown.get("version"))
