"""A worker's core, step by step: the test orders what the group, Kafka, plugins and users do.

Every state is reached by stimuli. `following` and `leading` return a settled member of generation 3 at 1,000 ms.
Connector c is configured with two tasks. The worker starts what it was assigned: instance 1 is the connector, if it was
assigned, then come tasks.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, TypeVar, cast

from connectx.core import verbs
from connectx.core.group_messages import (
    CoordinatorFound,
    FindCoordinator,
    GroupEffect,
    GroupStimulus,
    HeartbeatReplied,
    JoinGroupReplied,
    SendHeartbeat,
    SendJoinGroup,
    SendSyncGroup,
    SyncGroupReplied,
)
from connectx.core.messages import (
    ClaimConfigWrites,
    ConfigReadToEnd,
    ConfigRecordRead,
    ConfigRecordsWritten,
    ConfigWritesClaimed,
    ConnectorStarted,
    ConnectorStopped,
    Done,
    Effect,
    FenceProducers,
    FenceRequestAnswered,
    ProducersFenced,
    ReadConfigToEnd,
    Reply,
    Request,
    SendFenceRequest,
    SetTimer,
    StatusRecordRead,
    Stimulus,
    StopConnector,
    StopTask,
    TaskPrepared,
    TaskProducerReady,
    TaskStateReached,
    TaskStopped,
    TimerFired,
    WorkerStarted,
    WorkerStep,
    WriteConfigRecords,
)
from connectx.core.replies import WorkerPlace
from connectx.core.settings import CoreSettings, SignatureCheck
from connectx.core.timer_keys import GroupTimer, TimerKey
from connectx.core.verbs import Verb
from connectx.core.worker import WorkerCore
from connectx.model.config_records import (
    ConfigRecord,
    ConnectorConfigRecord,
    SessionKeyRecord,
    TargetStateRecord,
    TaskCommitRecord,
    TaskConfigRecord,
    TaskCountRecord,
)
from connectx.model.events import EventKind, Transition
from connectx.model.group import Assignment, MemberMetadata, ProtocolVersion, WorkSet
from connectx.model.ids import TaskId
from connectx.model.states import ConnectorType, State, TargetState
from connectx.model.status_records import (
    ConnectorStatusRecord,
    Status,
    StatusRecord,
    TaskStatusRecord,
    TopicStatusRecord,
)
from connectx.model.worker_config import WorkerConfig, own_kafka_config
from connectx.model.worker_keys import WorkerKeys

_Effect = TypeVar("_Effect")
ME, LEADER_URL, MY_URL = "127.0.0.1:8083", "http://127.0.0.1:9999/", "http://127.0.0.1:8083/"
C0, C1 = TaskId("c", 0), TaskId("c", 1)
ALL, NOTHING, CONNECTOR, TASK = WorkSet(("c",), (C0, C1)), WorkSet(), WorkSet(("c",)), WorkSet((), (C0,))
SOURCE: dict[str, str | None] = {"connector.class": "Source"}
SINK: dict[str, str | None] = {"connector.class": "Sink"}
KEY = SessionKeyRecord(b"k" * 32, "HmacSHA256", 1_000)
SESSIONED, EAGER = ProtocolVersion.SESSIONED, ProtocolVersion.EAGER
NOTHING_HAPPENED: tuple[list[Transition], list[Effect]] = ([], [])


def type_of(config: Mapping[str, str | None]) -> ConnectorType:
    return ConnectorType.SINK if config.get("connector.class") == "Sink" else ConnectorType.SOURCE


@cache
def worker_of(**settings: Any) -> WorkerConfig:
    """A worker of group g, Kafka Connect's defaults but for `settings` (`session_timeout_ms=3_000`)."""
    given = {"bootstrap.servers": "127.0.0.1:9", "group.id": "g", "exactly.once.source.support": "enabled"}
    changed = {getattr(WorkerKeys, name).name: value for name, value in settings.items()}
    return WorkerConfig.parse(own_kafka_config(given | changed))


def any_signature(*_: object) -> None:
    """Every signature is right."""


def settings(check_signature: SignatureCheck = any_signature, **worker: Any) -> CoreSettings:
    return CoreSettings(MY_URL, worker_of(**worker), type_of, check_signature)


def task_config(number: int, of: str = "1") -> dict[str, str | None]:
    return {"task.class": "T", "number": str(number), "of": of}


def committed(tasks: int, of: str = "2", connector: str = "c") -> tuple[ConfigRecord, ...]:
    """A complete set of task configs."""
    configs = (TaskConfigRecord(TaskId(connector, n), task_config(n, of)) for n in range(tasks))
    return (*configs, TaskCommitRecord(connector, tasks))


def configured(connector: str = "c", tasks: int = 2, /, **config: str | None) -> tuple[ConfigRecord, ...]:
    """A connector with a complete set of task configs and its task count record, then a session key: 4 + tasks."""
    given = {key.replace("_", "."): value for key, value in config.items()}
    new = ConnectorConfigRecord(connector, SOURCE | given)
    return (new, *committed(tasks, "1", connector), TaskCountRecord(connector, tasks), KEY)


def resting(state: TargetState, connector: str = "c") -> TargetStateRecord:
    return TargetStateRecord(connector, state)


def both(step: WorkerStep) -> tuple[list[Transition], list[Effect]]:
    return step.transitions, step.effects


def kinds(step: WorkerStep) -> list[EventKind]:
    return [transition.kind for transition in step.transitions]


def of_kind(step: WorkerStep, *wanted: type[_Effect]) -> list[_Effect]:
    """The effects of these kinds."""
    return [effect for effect in step.effects if isinstance(effect, wanted)]


def replies(step: WorkerStep) -> list[Reply]:
    return of_kind(step, *Reply.__args__)


class WorkerScript:
    """The core and what it has ordered: `open` has orders without an answer, `timers` the last timer of each key."""

    def __init__(self, core_settings: CoreSettings | None = None) -> None:
        self.core = WorkerCore(core_settings or settings())
        self.now_ms = 1_000
        self.offset = 0
        self.unread: list[ConfigRecord] = []
        self.open: list[Any] = []
        self.timers: dict[TimerKey, SetTimer] = {}

    def do(self, *stimuli: Stimulus) -> WorkerStep:
        """Hand in stimuli; what they lead to, in order."""
        done = WorkerStep()
        for stimulus in stimuli:
            self.open = [effect for effect in self.open if not _answers(stimulus, effect)]
            step = self.core.handle(stimulus, self.now_ms)
            done.ignored = step.ignored
            done.transitions += step.transitions
            done.effects += step.effects
            for effect in step.effects:
                if isinstance(effect, SetTimer):
                    self.timers[effect.key] = effect
                elif hasattr(effect, "request_id") and not isinstance(effect, Reply):
                    self.open.append(effect)
        return done

    def ignores(self, stimulus: Stimulus) -> bool:
        """True when the core takes nothing from the stimulus, reports why, and does not change."""
        before = copy.deepcopy(self.core)
        step = self.do(stimulus)
        return both(step) == NOTHING_HAPPENED and step.ignored is not None and self.core == before

    def take(self, kind: type[_Effect]) -> _Effect:
        """The oldest order of a kind without an answer; it counts as answered now."""
        found = next((effect for effect in self.open if isinstance(effect, kind)), None)
        assert found is not None, f"no {kind.__name__} waits for an answer"
        self.open.remove(found)
        return found

    def waits_for(self, kind: type[Any]) -> bool:
        return any(isinstance(effect, kind) for effect in self.open)

    def fire(self, key: TimerKey) -> WorkerStep:
        """The timer fires, when it is due or now."""
        timer = self.timers.pop(key)
        self.now_ms = max(self.now_ms, timer.at_ms)
        return self.do(TimerFired(key, timer.token))

    def fire_late(self, timer: SetTimer) -> WorkerStep:
        """A timer fires that was cancelled or set again."""
        return self.do(TimerFired(timer.key, timer.token))

    def ask(self, verb: Verb, request_id: int = 77) -> WorkerStep:
        return self.do(Request(request_id, verb))

    def place(self) -> WorkerPlace:
        """The worker's own view of its place in the group."""
        (reply,) = self.ask(verbs.Worker(), 99).effects
        assert isinstance(reply, Done)
        return cast("WorkerPlace", reply.body)

    def see(self, *records: ConfigRecord) -> WorkerStep:
        """The next records of the config topic are read."""
        self.offset += len(records)
        start = self.offset - len(records)
        return self.do(*(ConfigRecordRead(start + number, record) for number, record in enumerate(records)))

    def read_to_end(self, *records: ConfigRecord, error: str | None = None) -> WorkerStep:
        """Answer the oldest read of the config topic, after what was written and these records of others."""
        asked = self.take(ReadConfigToEnd)
        found, self.unread = ((*self.unread, *records), []) if error is None else ((), self.unread)
        return merged(self.see(*found), self.do(ConfigReadToEnd(asked.request_id, error)))

    def written(self, error: str | None = None, *, fenced: bool = False) -> WorkerStep:
        """Answer the oldest write to the config topic; its records are read later."""
        asked = self.take(WriteConfigRecords)
        self.unread += asked.records if error is None else ()
        return self.do(ConfigRecordsWritten(asked.request_id, error, fenced))

    def fenced(self, error: str | None = None) -> WorkerStep:
        """Answer the oldest order to fence producers."""
        return self.do(ProducersFenced(self.take(FenceProducers).request_id, error))

    def carry_out(self) -> WorkerStep:
        """Answer reads, writes and fencing orders until there are none."""
        done = WorkerStep()
        while True:
            if self.waits_for(WriteConfigRecords):
                done = merged(done, self.written())
            elif self.waits_for(ReadConfigToEnd):
                done = merged(done, self.read_to_end())
            elif self.waits_for(FenceProducers):
                done = merged(done, self.fenced())
            else:
                return done

    def show(
        self, subject: str | TaskId, state: State, worker_id: str = ME, generation: int = 3, at_ms: int | None = None
    ) -> WorkerStep:
        """A status of a connector or task is read."""
        return self.status(status_of(subject, state, worker_id, generation), at_ms)

    def status(self, record: StatusRecord, at_ms: int | None = None) -> WorkerStep:
        return self.do(StatusRecordRead(record, at_ms))

    def topic_used(self, topic: str, connector: str = "c") -> WorkerStep:
        return self.status(TopicStatusRecord(topic, connector, 0, 1))

    def found(self) -> WorkerStep:
        """The coordinator is found."""
        return self.do(CoordinatorFound(self.take(FindCoordinator).request_id))

    def start(self) -> WorkerStep:
        """Start, and look for the coordinator; the group gives this worker its id, and it joins with that."""
        self.do(WorkerStarted())
        self.found()
        return self.join_refused("MEMBER_ID_REQUIRED")

    def join_refused(self, error: str) -> WorkerStep:
        return self.do(JoinGroupReplied(self.take(SendJoinGroup).request_id, error, -1, "me", "", "", {}))

    def joined(
        self,
        generation: int = 3,
        *,
        leads: bool = False,
        others: Mapping[str, MemberMetadata] | None = None,
        protocol: str = "sessioned",
    ) -> WorkerStep:
        """The group is joined, as its leader beside others or as a follower."""
        join = self.take(SendJoinGroup)
        offered = next(one for one in join.protocols if one.version.wire_name == protocol)
        members = {"me": offered} | dict(others or {}) if leads else {}
        leader = "me" if leads else "other"
        return self.do(JoinGroupReplied(join.request_id, None, generation, "me", leader, protocol, members))

    def assigned(
        self,
        work: WorkSet = NOTHING,
        revoked: WorkSet = NOTHING,
        *,
        ahead: int = 0,
        error: int = 0,
        delay_ms: int = 0,
        version: ProtocolVersion = SESSIONED,
    ) -> WorkerStep:
        """The leader, `ahead` records of this worker, assigns and revokes; a leader gets what it has computed."""
        sync = self.take(SendSyncGroup)
        given = Assignment(version, error, "other", LEADER_URL, self.offset + ahead, work, revoked, delay_ms)
        return self.do(SyncGroupReplied(sync.request_id, None, sync.assignments.get("me", given)))

    def claimed(self, error: str | None = None) -> WorkerStep:
        """Answer the claim of the config topic."""
        return self.do(ConfigWritesClaimed(self.take(ClaimConfigWrites).request_id, error))

    def heartbeat(self, error: str | None = None) -> WorkerStep:
        """The next heartbeat is due and answered."""
        sent = self.fire(GroupTimer.HEARTBEAT)
        return merged(sent, self.do(HeartbeatReplied(self.take(SendHeartbeat).request_id, error)))

    def rejoin(self) -> WorkerStep:
        """The group rebalances."""
        return self.heartbeat("REBALANCE_IN_PROGRESS")

    def rebalance(self, work: WorkSet = NOTHING, revoked: WorkSet = NOTHING, **assignment: Any) -> WorkerStep:
        """The group rebalances, to generation 4 unless another is given; what comes of the assignment."""
        generation = assignment.pop("generation", 4)
        if not self.waits_for(SendJoinGroup):
            self.rejoin()
        self.joined(generation)
        return self.assigned(work, revoked, **assignment)

    def lead(self, others: Mapping[str, MemberMetadata] | None = None, generation: int = 3) -> WorkerStep:
        """The group that was joined names this worker its leader, and it claims the config topic."""
        self.joined(generation, leads=True, others=others)
        step = self.assigned()
        return merged(step, self.claimed()) if self.waits_for(ClaimConfigWrites) else step

    def connector_runs(self, instance: int = 1, state: TargetState = TargetState.STARTED) -> WorkerStep:
        return self.do(ConnectorStarted("c", instance, state, "1"))

    def answer_fencing(
        self, error: str | None = None, *, retriable: bool = False, is_refused: bool = False
    ) -> WorkerStep:
        """The leader answers the fence request of a task."""
        request_id = self.take(SendFenceRequest).request_id
        return self.do(FenceRequestAnswered(request_id, error, retriable, is_refused))

    def task_runs(self, instance: int = 1, task: TaskId = C0) -> WorkerStep:
        """An exactly-once task goes through its start."""
        self.do(TaskPrepared(task, instance, "1"))
        if self.waits_for(SendFenceRequest):
            self.answer_fencing()
        else:
            self.carry_out()
        self.do(TaskProducerReady(task, instance, 7))
        self.read_to_end()
        return self.do(TaskStateReached(task, instance, paused=False))

    def stops(self, step: WorkerStep) -> WorkerStep:
        """All that the step stops has stopped."""
        tasks = (TaskStopped(effect.task, effect.instance) for effect in of_kind(step, StopTask))
        connectors = (ConnectorStopped(effect.connector, effect.instance) for effect in of_kind(step, StopConnector))
        return self.do(*tasks, *connectors)


def _answers(stimulus: Stimulus, effect: Any) -> bool:
    """True for the answer to an order; those to the group have separate numbers."""
    if isinstance(stimulus, Request) or getattr(stimulus, "request_id", None) != effect.request_id:
        return False
    return isinstance(stimulus, GroupStimulus) is isinstance(effect, GroupEffect)


def merged(*steps: WorkerStep) -> WorkerStep:
    """What the steps show together."""
    transitions = [transition for step in steps for transition in step.transitions]
    return WorkerStep(transitions, [effect for step in steps for effect in step.effects], steps[-1].ignored)


def status_of(subject: str | TaskId, state: State, worker_id: str = ME, generation: int = 3) -> StatusRecord:
    status = Status(state, worker_id, generation)
    return TaskStatusRecord(subject, status) if isinstance(subject, TaskId) else ConnectorStatusRecord(subject, status)


def member(url: str = "http://other/", offset: int = 6) -> MemberMetadata:
    """Metadata of another member that joins without claims."""
    return MemberMetadata(SESSIONED, url, offset)


def starting(
    records: Iterable[ConfigRecord] = configured(), check_signature: SignatureCheck = any_signature, **worker: Any
) -> WorkerScript:
    """A worker that has read the config topic, and has not started yet."""
    script = WorkerScript(settings(check_signature, **worker))
    script.see(*records)
    return script


def following(work: WorkSet = ALL, records: Iterable[ConfigRecord] = configured(), **changes: Any) -> WorkerScript:
    """A follower that was assigned `work`; its next request to the group has number 5, any other 1."""
    script = starting(records, **changes)
    script.start()
    script.joined()
    script.assigned(work)
    return script


def claiming(
    records: Iterable[ConfigRecord] = configured(), others: Mapping[str, MemberMetadata] | None = None, **changes: Any
) -> WorkerScript:
    """A new leader that waits for its claim of the config topic."""
    script = starting(records, **changes)
    script.start()
    script.joined(leads=True, others=others)
    script.assigned()
    return script


def leading(
    records: Iterable[ConfigRecord] = configured(), others: Mapping[str, MemberMetadata] | None = None, **changes: Any
) -> WorkerScript:
    """The leader, of itself alone unless there are others; with exactly-once its request 1 was the claim."""
    script = starting(records, **changes)
    script.start()
    script.lead(others)
    return script
