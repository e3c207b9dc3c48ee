"""A small world for the pure core: N workers, a model broker and virtual time, without faults but a kill.

The model broker has a group coordinator, a compacted-for-ever config log, a status log and producer epochs. Everything
happens in the order of virtual time; ties go by the order of scheduling, so a run is the same every time.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from connectx.core.context import CoreSettings
from connectx.core.membership import MembershipSettings
from connectx.core.messages import (
    BeginTask,
    CancelTask,
    ClaimConfigWrites,
    ConfigReadToEnd,
    ConfigRecordRead,
    ConfigRecordsWritten,
    ConfigWritesClaimed,
    ConnectorStarted,
    ConnectorStateReached,
    ConnectorStopped,
    CoordinatorFound,
    CreateSessionKey,
    FenceProducers,
    FenceRequestAnswered,
    FindCoordinator,
    GenerateTaskConfigs,
    HeartbeatReplied,
    InitTaskProducer,
    JoinGroupReplied,
    PrepareTask,
    ProducersFenced,
    ReadConfigToEnd,
    Reply,
    Request,
    SendFenceRequest,
    SendHeartbeat,
    SendJoinGroup,
    SendLeaveGroup,
    SendSyncGroup,
    SendTaskConfigs,
    SessionKeyCreated,
    SetConnectorTargetState,
    SetTaskTargetState,
    SetTimer,
    ShutdownRequested,
    StartConnector,
    StatusRecordRead,
    Stimulus,
    StopConnector,
    StopTask,
    SyncGroupReplied,
    TaskConfigsGenerated,
    TaskConfigsSent,
    TaskPrepared,
    TaskProducerReady,
    TaskStateReached,
    TaskStopped,
    TimerFired,
    WorkerShutDown,
    WorkerStarted,
    WriteConfigRecords,
    WriteStatus,
)
from connectx.core.requests import Verb
from connectx.core.worker import WorkerCore
from connectx.model.config_records import ConfigRecord
from connectx.model.events import Transition
from connectx.model.ids import TaskId
from connectx.model.states import ConnectorType, ExactlyOnceSupport, TargetState

LATENCY_MS = 2


def connector_type_of(config: Mapping[str, str | None]) -> ConnectorType:
    """The worlds' connectors are sinks when their class says so."""
    return ConnectorType.SINK if "Sink" in (config.get("connector.class") or "") else ConnectorType.SOURCE


@dataclass
class Member:
    """One member as the coordinator sees it."""

    member_id: str
    worker: SimWorker
    join: SendJoinGroup | None = None
    sync: SendSyncGroup | None = None
    session_timeout_ms: int = 0
    last_seen_ms: int = 0


@dataclass
class Coordinator:
    """The group coordinator of a real broker, reduced to what one group needs."""

    world: World
    members: dict[str, Member] = field(default_factory=dict)
    generation: int = 0
    state: str = "EMPTY"  # EMPTY, PREPARING, COMPLETING, STABLE
    leader: str = ""
    protocol: str = ""
    last_id: int = 0

    def join(self, worker: SimWorker, effect: SendJoinGroup) -> None:
        if effect.member_id and effect.member_id not in self.members:
            self._reply_join(worker, effect, "UNKNOWN_MEMBER_ID")
            return
        member = self.members.get(effect.member_id)
        if member is None:
            self.last_id += 1
            member = Member(f"{worker.name}-m{self.last_id}", worker)
            self.members[member.member_id] = member
        member.join, member.session_timeout_ms = effect, effect.session_timeout_ms
        member.last_seen_ms = self.world.now_ms
        self.state = "PREPARING"
        self._complete_join()

    def sync(self, worker: SimWorker, effect: SendSyncGroup) -> None:
        error = self._check(effect.member_id, effect.generation)
        if error is None and self.state == "PREPARING":
            error = "REBALANCE_IN_PROGRESS"
        if error is not None:
            worker.deliver(SyncGroupReplied(effect.request_id, error, None))
            return
        self.members[effect.member_id].sync = effect
        leader = self.members.get(self.leader)
        if leader is not None and leader.sync is not None:
            self.state = "STABLE"
            assignments = leader.sync.assignments
            for member in list(self.members.values()):
                if member.sync is not None:
                    assignment = assignments.get(member.member_id)
                    member.worker.deliver(SyncGroupReplied(member.sync.request_id, None, assignment))

    def heartbeat(self, worker: SimWorker, effect: SendHeartbeat) -> None:
        error = self._check(effect.member_id, effect.generation)
        if error is None:
            self.members[effect.member_id].last_seen_ms = self.world.now_ms
            error = "REBALANCE_IN_PROGRESS" if self.state == "PREPARING" else None
        worker.deliver(HeartbeatReplied(effect.request_id, error))

    def leave(self, member_id: str) -> None:
        if self.members.pop(member_id, None) is not None:
            self.state = "PREPARING" if self.members else "EMPTY"
            self._complete_join()

    def expire(self) -> None:
        for member in list(self.members.values()):
            waiting = self.state == "PREPARING" and member.join is not None
            silent_ms = self.world.now_ms - member.last_seen_ms
            if not waiting and silent_ms > member.session_timeout_ms > 0:
                self.leave(member.member_id)

    def _check(self, member_id: str, generation: int) -> str | None:
        if member_id not in self.members:
            return "UNKNOWN_MEMBER_ID"
        return None if generation == self.generation else "ILLEGAL_GENERATION"

    def _complete_join(self) -> None:
        if self.state != "PREPARING" or any(member.join is None for member in self.members.values()):
            return
        self.generation += 1
        self.state = "COMPLETING"
        if self.leader not in self.members:
            self.leader = next(iter(self.members))
        offered = [{m.version.wire_name for m in member.join.protocols} for member in self.members.values() if member.join]
        common = set.intersection(*offered)
        first = self.members[self.leader].join
        assert first is not None
        chosen = next(m.version for m in first.protocols if m.version.wire_name in common)
        metadata = {
            member.member_id: next(m for m in member.join.protocols if m.version is chosen)
            for member in self.members.values()
            if member.join is not None
        }
        for member in self.members.values():
            assert member.join is not None
            members = metadata if member.member_id == self.leader else {}
            reply = JoinGroupReplied(
                member.join.request_id, None, self.generation, member.member_id, self.leader, chosen.wire_name, members
            )
            member.join, member.sync, member.last_seen_ms = None, None, self.world.now_ms
            member.worker.deliver(reply)

    def _reply_join(self, worker: SimWorker, effect: SendJoinGroup, error: str) -> None:
        worker.deliver(JoinGroupReplied(effect.request_id, error, -1, effect.member_id, "", "", {}))


class SimWorker:
    """A worker: its core, what it has read, and runners that do at once what they are told."""

    def __init__(self, world: World, name: str, settings: CoreSettings) -> None:
        self.world = world
        self.name = name
        self.core = WorkerCore(settings)
        self.alive = True
        self.frozen = False
        self.read = 0
        self.history: list[Transition] = []
        self.replies: dict[int, Reply] = {}
        self.timers: dict[str, int] = {}
        self.running: dict[TaskId, int] = {}
        self.shut_down = False

    def deliver(self, stimulus: Stimulus, delay_ms: int = LATENCY_MS) -> None:
        self.world.at(delay_ms, lambda: self.handle(stimulus))

    def handle(self, stimulus: Stimulus) -> None:
        if not self.alive:
            return
        if self.frozen:
            self.world.at(10, lambda: self.handle(stimulus))
            return
        step = self.core.handle(stimulus, self.world.now_ms)
        for transition in step.transitions:
            self.history.append(transition)
            self.world.history.append((self.world.now_ms, self.name, transition))
        for effect in step.effects:
            self.execute(effect)

    def execute(self, effect: Any) -> None:  # a table: one line per effect
        world, deliver = self.world, self.deliver
        match effect:
            case SetTimer():
                world.at(max(0, effect.at_ms - world.now_ms), lambda: self.handle(TimerFired(effect.key, effect.token)))
            case FindCoordinator():
                deliver(CoordinatorFound(effect.request_id))
            case SendJoinGroup():
                world.at(LATENCY_MS, lambda: world.coordinator.join(self, effect))
            case SendSyncGroup():
                world.at(LATENCY_MS, lambda: world.coordinator.sync(self, effect))
            case SendHeartbeat():
                world.at(LATENCY_MS, lambda: world.coordinator.heartbeat(self, effect))
            case SendLeaveGroup():
                world.at(LATENCY_MS, lambda: world.coordinator.leave(effect.member_id))
            case ReadConfigToEnd():
                world.at(LATENCY_MS, lambda: self.read_to_end(effect.request_id))
            case ClaimConfigWrites():
                world.leader_epoch += 1
                world.claims[self.name] = world.leader_epoch
                deliver(ConfigWritesClaimed(effect.request_id))
            case WriteConfigRecords():
                world.at(LATENCY_MS, lambda: self.write(effect))
            case WriteStatus():
                world.at(LATENCY_MS, lambda: world.publish_status(effect.record))
            case Reply():
                self.replies[effect.request_id] = effect
            case CreateSessionKey():
                deliver(SessionKeyCreated(effect.request_id, b"k" * 32, world.now_ms))
            case WorkerShutDown():
                self.shut_down = True
                self.alive = False
            case _:
                self.execute_work(effect)

    def execute_work(self, effect: Any) -> None:
        world, deliver = self.world, self.deliver
        match effect:
            case StartConnector():
                deliver(ConnectorStarted(effect.connector, effect.instance, effect.target_state, "1"))
            case StopConnector():
                deliver(ConnectorStopped(effect.connector, effect.instance))
            case SetConnectorTargetState():
                deliver(ConnectorStateReached(effect.connector, effect.instance, effect.target_state))
            case GenerateTaskConfigs():
                count = int(effect.config.get("tasks.max") or 1)
                configs = tuple({**effect.config, "task.class": "T", "n": str(n)} for n in range(count))
                deliver(TaskConfigsGenerated(effect.connector, effect.instance, configs))
            case PrepareTask():
                deliver(TaskPrepared(effect.task, effect.instance, "1"))
            case InitTaskProducer():
                world.epochs[effect.task] = world.epochs.get(effect.task, -1) + 1
                deliver(TaskProducerReady(effect.task, effect.instance, world.epochs[effect.task]))
            case BeginTask():
                self.running[effect.task] = effect.instance
                deliver(TaskStateReached(effect.task, effect.instance, paused=False))
            case SetTaskTargetState():
                paused = effect.target_state is TargetState.PAUSED
                deliver(TaskStateReached(effect.task, effect.instance, paused=paused))
            case StopTask() | CancelTask():
                self.running.pop(effect.task, None)
                deliver(TaskStopped(effect.task, effect.instance))
            case FenceProducers():
                world.fenced.append(effect.transactional_ids)
                deliver(ProducersFenced(effect.request_id))
            case SendFenceRequest():
                args = {"body": b"", "signature": "s", "algorithm": "a"}
                world.ask_url(effect.leader_url, Verb.FENCE, effect.connector, args, self.on_fence_answer(effect))
            case SendTaskConfigs():
                args = {"task_configs": effect.task_configs, "body": b"", "signature": "s", "algorithm": "a"}
                url, verb = effect.leader_url, Verb.PUT_TASK_CONFIGS
                world.ask_url(url, verb, effect.connector, args, self.on_configs_answer(effect))

    def on_fence_answer(self, effect: SendFenceRequest) -> Callable[[Reply], None]:
        def answer(reply: Reply) -> None:
            error = None if reply.status < 400 else str(reply.body)
            self.deliver(FenceRequestAnswered(effect.request_id, error, retriable=reply.status in (409, 503)))

        return answer

    def on_configs_answer(self, effect: SendTaskConfigs) -> Callable[[Reply], None]:
        return lambda reply: self.deliver(
            TaskConfigsSent(effect.request_id, None if reply.status < 400 else str(reply.body))
        )

    def read_to_end(self, request_id: int | None = None) -> None:
        while self.read < len(self.world.config_log):
            log_offset, record = self.read, self.world.config_log[self.read]
            self.read += 1
            self.handle(ConfigRecordRead(log_offset, record))
        if request_id is not None:
            self.handle(ConfigReadToEnd(request_id))

    def write(self, effect: WriteConfigRecords) -> None:
        if not self.alive:
            return
        if effect.privileged and self.world.claims.get(self.name) != self.world.leader_epoch:
            self.deliver(ConfigRecordsWritten(effect.request_id, "fenced", fenced=True))
            return
        self.world.publish_config(effect.records)
        self.deliver(ConfigRecordsWritten(effect.request_id))

    def ask(self, verb: Verb, connector: str | None = None, **args: Any) -> Reply:
        """Ask and run the world until the answer is there."""
        request_id = self.world.next_request()
        self.handle(Request(request_id, verb, connector, args))
        self.world.run_until(lambda: request_id in self.replies)
        return self.replies[request_id]


class World:
    """N workers and a broker in virtual time, starting at 1,000,000 ms."""

    def __init__(self, workers: int, **settings: Any) -> None:
        self.now_ms = 1_000_000
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._seq = 0
        self._requests = 0
        self.coordinator = Coordinator(self)
        self.config_log: list[ConfigRecord] = []
        self.leader_epoch = 0
        self.claims: dict[str, int] = {}
        self.epochs: dict[TaskId, int] = {}
        self.fenced: list[tuple[str, ...]] = []
        self.statuses: list[Any] = []
        self.history: list[tuple[int, str, Transition]] = []
        self.workers: dict[str, SimWorker] = {}
        self.settings = {"exactly_once": ExactlyOnceSupport.ENABLED, "scheduled_rebalance_max_delay_ms": 3_000} | settings
        for _ in range(workers):
            self.add_worker()
        self._tick()

    def add_worker(self) -> SimWorker:
        name = f"worker-{len(self.workers) + 1}"
        settings = CoreSettings(
            url=f"http://127.0.0.1:{8080 + len(self.workers)}/",
            group_id="g",
            membership=MembershipSettings(
                session_timeout_ms=3_000, heartbeat_interval_ms=500, rebalance_timeout_ms=60_000
            ),
            connector_type_of=connector_type_of,
            check_signature=lambda *_: None,
            **self.settings,
        )
        worker = SimWorker(self, name, settings)
        self.workers[name] = worker
        for status in self.statuses:
            worker.deliver(StatusRecordRead(status), 0)
        self.at(0, worker.read_to_end)
        worker.deliver(WorkerStarted(), 1)
        return worker

    def at(self, delay_ms: int, action: Callable[[], None]) -> None:
        self._seq += 1
        heapq.heappush(self._events, (self.now_ms + delay_ms, self._seq, action))

    def next_request(self) -> int:
        self._requests += 1
        return self._requests

    def run_until(self, condition: Callable[[], bool], limit_ms: int = 120_000) -> None:
        deadline = self.now_ms + limit_ms
        while not condition():
            assert self._events, "nothing will happen any more"
            at_ms, _, action = heapq.heappop(self._events)
            assert at_ms <= deadline, self.story()
            self.now_ms = at_ms
            action()

    def run_for(self, duration_ms: int) -> None:
        end_ms = self.now_ms + duration_ms
        done: list[bool] = []
        self.at(duration_ms, lambda: done.append(True))
        self.run_until(lambda: bool(done), duration_ms)
        assert self.now_ms == end_ms

    def settle(self, limit_ms: int = 60_000) -> None:
        """Run until every living worker is settled in one generation, everything runs once, and it stays so."""
        deadline = self.now_ms + limit_ms
        while True:
            self.run_until(self.is_settled, deadline - self.now_ms)
            before = len(self.config_log), self.coordinator.generation
            self.run_for(500)
            if self.is_settled() and before == (len(self.config_log), self.coordinator.generation):
                return

    def is_settled(self) -> bool:
        living = [worker for worker in self.workers.values() if worker.alive]
        views = [worker.core.context for worker in living]
        if not all(view.group.settled for view in views) or len({view.group.generation for view in views}) != 1:
            return False
        config = views[0].config
        wanted = sorted(task for c in config.connectors() for task in config.tasks(c))
        connectors = sorted(c for view in views for c in view.group.work.connectors)
        running = sorted(task for worker in living for task in worker.running)
        return running == wanted and connectors == list(config.connectors())

    def publish_config(self, records: tuple[ConfigRecord, ...]) -> None:
        self.config_log.extend(records)
        for worker in self.workers.values():
            self.at(LATENCY_MS, worker.read_to_end)

    def publish_status(self, record: Any) -> None:
        self.statuses.append(record)
        for worker in self.workers.values():
            worker.deliver(StatusRecordRead(record))

    def ask_url(
        self, url: str, verb: Verb, connector: str, args: Mapping[str, Any], answer: Callable[[Reply], None]
    ) -> None:
        worker = next(w for w in self.workers.values() if w.core.context.settings.url == url)
        request_id = self.next_request()

        def poll() -> None:
            if not worker.alive:
                answer(Reply(request_id, 503, "connection refused"))
            elif request_id in worker.replies:
                reply = worker.replies[request_id]
                answer(Reply(request_id, 409, "moved") if reply.forward_to else reply)
            else:
                self.at(1, poll)

        self.at(LATENCY_MS, lambda: worker.handle(Request(request_id, verb, connector, args)))
        self.at(LATENCY_MS + 1, poll)

    def kill(self, name: str) -> None:
        self.workers[name].alive = False
        self.workers[name].running.clear()

    def stop(self, name: str) -> None:
        self.workers[name].handle(ShutdownRequested())

    @property
    def leader(self) -> SimWorker:
        return next(w for w in self.workers.values() if w.alive and w.core.context.group.is_leader)

    def story(self) -> str:
        """The whole history, for a failed assertion."""
        return "\n".join(
            f"{at_ms - 1_000_000:>7} {name} {t.kind.value} {t.connector or ''}{'' if t.task is None else '-' + str(t.task)}"
            f" {t.cause} {dict(t.data)}"
            for at_ms, name, t in self.history
        )

    def _tick(self) -> None:
        self.coordinator.expire()
        self.at(100, self._tick)
