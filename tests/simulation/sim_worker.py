"""One simulated worker: a core, and runners that do what it orders in their own time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from connectx.core.context import CoreSettings
from connectx.core.messages import (
    BeginTask,
    CancelTask,
    ClaimConfigWrites,
    ConfigReadToEnd,
    ConfigRecordRead,
    ConfigRecordsWritten,
    ConfigWritesClaimed,
    ConnectorFailed,
    ConnectorStarted,
    ConnectorStateReached,
    ConnectorStopped,
    CoordinatorFound,
    CreateSessionKey,
    FenceProducers,
    FenceRequestAnswered,
    FindCoordinator,
    GenerateTaskConfigs,
    GroupRequestFailed,
    GroupStimulus,
    InitTaskProducer,
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
    StartConnector,
    Stimulus,
    StopConnector,
    StopTask,
    TaskConfigsGenerated,
    TaskConfigsSent,
    TaskFailed,
    TaskPrepared,
    TaskProducerReady,
    TaskStateReached,
    TaskStopped,
    TimerFired,
    TopicUsed,
    WorkerShutDown,
    WriteConfigRecords,
    WriteStatus,
)
from connectx.core.requests import Verb
from connectx.core.worker import WorkerCore
from connectx.model.events import Transition
from connectx.model.ids import TaskId
from connectx.model.states import TargetState
from tests.simulation.broker import CONFIG_TOPIC

if TYPE_CHECKING:
    from tests.simulation.world import World

RETRIABLE = (403, 409, 503)
CALL_TIMEOUT_MS = 10_000


@dataclass
class SimTask:
    """A task runner; it exists until its thread ends, cancelled or not."""

    worker: SimWorker
    order: PrepareTask
    task_config_generation: int | None
    producer_epoch: int | None = None
    running: bool = False
    paused: bool = False
    stopping: bool = False

    @property
    def transactional_id(self) -> str:
        return f"g-{self.order.task}"

    @property
    def is_fenced(self) -> bool:
        """True when a newer producer has its transactional id."""
        return self.producer_epoch != self.worker.world.broker.epochs.get(self.transactional_id)

    @property
    def can_commit(self) -> bool:
        """True for an exactly-once task in its loop that nobody has fenced."""
        return self.order.exactly_once and self.running and not self.is_fenced

    def try_to_commit(self) -> None:
        """A task whose producer was fenced fails as soon as it wants to commit."""
        if self.order.exactly_once and self.running and self.is_fenced and not self.stopping:
            self.worker.end_task((self.order.task, self.order.instance), "fenced by another")


class SimWorker:
    """A worker: its core, what it has read, and what runs on it."""

    def __init__(self, world: World, name: str, settings: CoreSettings) -> None:
        self.world = world
        self.name = name
        self.core = WorkerCore(settings)
        self.alive = True
        self.frozen = False
        self.shut_down = False
        self.unreadable = False  # its reads of the config topic time out
        self.cut_off = False  # its group requests fail
        self.held: list[Stimulus] = []
        self.read = 0
        self.claim: int | None = None
        self.node = 0  # that it takes for the group's coordinator
        self.lost_replies: set[int] = set()
        self.history: list[Transition] = []
        self.waiting: dict[int, Callable[[Reply], None]] = {}
        self.tasks: dict[tuple[TaskId, int], SimTask] = {}
        self.connectors: dict[tuple[str, int], StartConnector] = {}
        self.lanes: dict[Any, int] = {}

    @property
    def running(self) -> dict[TaskId, int]:
        """Instances of tasks in their loops that were not told to stop."""
        return {key[0]: key[1] for key, task in self.tasks.items() if task.running and not task.stopping}

    # ------------------------------------------------------------------------------------------------- stimuli

    def deliver(self, stimulus: Stimulus, lane: Any = None, delay_ms: int | None = None) -> None:
        """Hand a stimulus in after a latency; those of one lane keep their order."""
        at_ms = self.world.now_ms + (self.world.latency_ms() if delay_ms is None else delay_ms)
        if lane is not None:
            at_ms = self.lanes[lane] = max(at_ms, self.lanes.get(lane, 0))
        self.world.at(at_ms - self.world.now_ms, lambda: self.handle(stimulus))

    def handle(self, stimulus: Stimulus) -> None:
        if not self.alive and not (self.shut_down and isinstance(stimulus, Request)):
            return
        if self.frozen:
            self.held.append(stimulus)
            return
        step = self.core.handle(stimulus, self.world.now_ms)
        for transition in step.transitions:
            self.history.append(transition)
            self.world.checks.on_transition(transition)
            self.world.history.append((self.world.now_ms, self.name, transition))
        for effect in step.effects:
            self.execute(effect)
        self.world.after_step(self, stimulus)

    def wake(self) -> None:
        self.frozen = False
        held, self.held = self.held, []
        for stimulus in held:
            self.handle(stimulus)

    def ask(self, verb: Verb, connector: str | None, args: Mapping[str, Any], answer: Callable[[Reply], None]) -> None:
        """Put a request to the core, after a latency; `answer` is called once, unless the worker is killed."""
        request_id = self.world.next_request()
        self.waiting[request_id] = answer
        self.deliver(Request(request_id, verb, connector, args))

    # ------------------------------------------------------------------------------------------------- effects

    def execute(self, effect: Any) -> None:  # a table: one line per effect
        world = self.world
        match effect:
            case SetTimer():
                delay_ms = max(0, effect.at_ms - world.now_ms)
                world.at(delay_ms, lambda: self.handle(TimerFired(effect.key, effect.token)))
            case FindCoordinator() | SendJoinGroup() | SendSyncGroup() | SendHeartbeat() | SendLeaveGroup():
                world.at(world.latency_ms(), lambda: self.ask_coordinator(effect))
            case ReadConfigToEnd():
                world.at(world.latency_ms(), lambda: self.read_to_end(effect))
            case ClaimConfigWrites():
                world.at(world.latency_ms(), lambda: self.take_claim(effect))
            case WriteConfigRecords():
                world.at(world.latency_ms(), lambda: self.write(effect))
            case WriteStatus():
                world.at(2, lambda: world.publish_status(effect.record))  # one producer: in order
            case Reply():
                self.waiting.pop(effect.request_id)(effect)  # a second reply is a KeyError
            case CreateSessionKey():
                self.deliver(SessionKeyCreated(effect.request_id, b"k" * effect.key_bytes, world.now_ms))
            case FenceProducers():
                world.at(world.latency_ms(), lambda: self.fence(effect))
            case SendFenceRequest() | SendTaskConfigs():
                self.ask_leader(effect)
            case WorkerShutDown():
                self.shut_down = True
                self.alive = False
            case StartConnector() | StopConnector() | SetConnectorTargetState() | GenerateTaskConfigs():
                self.run_connector(effect)
            case _:
                self.run_task(effect)

    def ask_coordinator(self, effect: Any) -> None:
        says_goodbye = self.shut_down and isinstance(effect, SendLeaveGroup)
        if not self.alive and not says_goodbye:
            return
        coordinator = self.world.broker.coordinator
        self.world.broker.set_time(self.world.now_ms)
        if self.cut_off or self.world.broker_down:
            if not isinstance(effect, SendLeaveGroup):
                self.deliver(GroupRequestFailed(effect.request_id, "cut off"), "group")
            return
        if self.world.loses_reply():
            self.lost_replies.add(effect.request_id)
        match effect:
            case FindCoordinator():
                self.node = coordinator.find()
                self.hear(CoordinatorFound(effect.request_id))
            case SendJoinGroup():
                self.world.hand_out(coordinator.join(self.name, effect, self.node))
            case SendSyncGroup():
                self.world.checks.on_assignments(effect, coordinator)
                self.world.hand_out(coordinator.sync(self.name, effect, self.node))
            case SendHeartbeat():
                self.world.hand_out(coordinator.heartbeat(self.name, effect, self.node))
            case SendLeaveGroup():
                self.world.hand_out(coordinator.leave(effect.member_id, self.node))

    def hear(self, reply: GroupStimulus) -> None:
        """The coordinator's reply is on its way, unless it gets lost."""
        lost = reply.request_id in self.lost_replies
        self.deliver(GroupRequestFailed(reply.request_id, "lost") if lost else reply, "group")

    def catch_up(self) -> None:
        """Read what is in the config topic now."""
        if self.unreadable:
            return
        for log_offset, record in self.world.broker.read(CONFIG_TOPIC, 0, self.read):
            self.read = log_offset + 1
            self.handle(ConfigRecordRead(log_offset, record))

    def read_to_end(self, effect: ReadConfigToEnd) -> None:
        if not self.alive or not (self.unreadable or self.world.broker_down):
            self.catch_up()
            self.handle(ConfigReadToEnd(effect.request_id))
        elif effect.timeout_ms is None:
            self.world.at(200, lambda: self.read_to_end(effect))
        else:
            self.deliver(ConfigReadToEnd(effect.request_id, "timed out"), delay_ms=effect.timeout_ms)

    def take_claim(self, effect: ClaimConfigWrites) -> None:
        if self.alive and self.world.broker_down:
            self.deliver(ConfigWritesClaimed(effect.request_id, "broker is down"), "leader", 500)
        elif self.alive:
            self.claim = self.world.broker.init_transactions("connect-cluster-g")
            self.deliver(ConfigWritesClaimed(effect.request_id), "leader")

    def write(self, effect: WriteConfigRecords) -> None:
        if not self.alive:
            return
        world, transactional = self.world, effect.privileged and self.core.context.settings.exactly_once != "disabled"
        error, lost = None, world.loses_reply()
        if world.broker_down:
            error = "broker is down"
        elif transactional and self.claim != world.broker.epochs.get("connect-cluster-g"):
            error = "fenced"
        else:
            world.publish_config(effect.records, transactional=transactional)
            error = "the answer was lost" if lost else None
        if error is not None and transactional:
            self.claim = None
        failed = error is not None and transactional
        self.deliver(ConfigRecordsWritten(effect.request_id, error, fenced=failed), "leader" if transactional else "w")

    def fence(self, effect: FenceProducers) -> None:
        if self.world.broker_down:
            self.world.at(500, lambda: self.fence(effect))
        elif self.alive:
            for transactional_id in effect.transactional_ids:
                self.world.broker.init_transactions(transactional_id)
            self.world.fenced.append(effect.transactional_ids)
            self.deliver(ProducersFenced(effect.request_id))

    def ask_leader(self, effect: SendFenceRequest | SendTaskConfigs) -> None:
        """Over REST: the answer may get lost, or never come; the caller is told once."""
        args: dict[str, Any] = {"body": b"", "signature": "s", "algorithm": "a"}
        verb, told = Verb.FENCE, False
        if isinstance(effect, SendTaskConfigs):
            verb, args["task_configs"] = Verb.PUT_TASK_CONFIGS, effect.task_configs
        lost = self.world.loses_reply()

        def tell(error: str | None, retriable: bool) -> None:
            nonlocal told
            if told:
                return
            told = True
            if isinstance(effect, SendFenceRequest):
                self.deliver(FenceRequestAnswered(effect.request_id, error, retriable))
            else:
                self.deliver(TaskConfigsSent(effect.request_id, error))

        def answer(reply: Reply) -> None:
            if lost:
                tell("the answer was lost", True)
            elif reply.forward_to is not None or reply.status in RETRIABLE:
                tell(f"{reply.status} {reply.body}", True)
            else:
                tell(None if reply.status < 400 else f"{reply.status} {reply.body}", False)

        leader = self.world.worker_at(effect.leader_url)
        if leader is None:
            tell("connection refused", True)
        else:
            leader.ask(verb, effect.connector, args, answer)
            self.world.at(CALL_TIMEOUT_MS, lambda: tell("no answer in time", True))

    # -------------------------------------------------------------------------------------- connectors and tasks

    def run_connector(self, effect: Any) -> None:
        key = effect.connector, effect.instance
        world = self.world
        if isinstance(effect, StartConnector):
            self.connectors[key] = effect
            if effect.config.get("connector.class") == "Broken":
                self.deliver(ConnectorFailed(*key, "fails in this test"), key)
            else:
                self.deliver(ConnectorStarted(*key, effect.target_state, "1"), key)
            return
        assert key in self.connectors, f"{effect} for a connector that is not there"
        match effect:
            case StopConnector():
                del self.connectors[key]
                self.deliver(ConnectorStopped(*key), key, world.stop_ms())
            case SetConnectorTargetState():
                self.deliver(ConnectorStateReached(*key, effect.target_state), key)
            case GenerateTaskConfigs():
                count, unique = int(effect.config.get("tasks.max") or 1), str(effect.config)
                configs = tuple({"set": unique, "of": str(count), "n": str(n)} for n in range(count))
                self.deliver(TaskConfigsGenerated(*key, configs), key)

    def run_task(self, effect: Any) -> None:
        key = effect.task, effect.instance
        if isinstance(effect, PrepareTask):
            self.world.checks.on_prepare(self, effect)
            generation = self.core.context.config.task_config_generation(effect.task.connector)
            self.tasks[key] = SimTask(self, effect, generation, paused=effect.target_state is TargetState.PAUSED)
            self.deliver(TaskPrepared(*key, "1"), key)
            return
        task = self.tasks.get(key)
        if task is None:  # its thread has ended
            if isinstance(effect, StopTask):
                self.deliver(TaskStopped(*key), key)
            return
        match effect:
            case InitTaskProducer():
                self.init_producer(task, key)
            case BeginTask():
                self.world.checks.on_begin(task)
                task.running = True
                self.deliver(TaskStateReached(*key, task.paused), key)
                self.deliver(TopicUsed(effect.task, f"topic-of-{effect.task.connector}"), key)
            case SetTaskTargetState():
                task.paused = effect.target_state is TargetState.PAUSED
                if task.running:
                    self.deliver(TaskStateReached(*key, task.paused), key)
            case StopTask():
                task.stopping = True
                self.world.at(self.world.stop_ms(), lambda: self.end_task(key))
            case CancelTask():
                self.world.at(self.world.stop_ms(), lambda: self.end_task(key))

    def init_producer(self, task: SimTask, key: tuple[TaskId, int]) -> None:
        task.producer_epoch = self.world.broker.init_transactions(task.transactional_id)
        self.deliver(TaskProducerReady(*key, task.producer_epoch), key)

    def end_task(self, key: tuple[TaskId, int], trace: str | None = None) -> None:
        """The thread of a task ends; the core may have forgotten it long ago."""
        if self.tasks.pop(key, None) is not None:
            self.deliver(TaskStopped(*key) if trace is None else TaskFailed(*key, trace), key)
