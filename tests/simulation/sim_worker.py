"""One simulated worker: a core, and runners that do what it orders in their own time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from connectx.core import verbs
from connectx.core.group_messages import (
    CoordinatorFound,
    FindCoordinator,
    GroupEffect,
    GroupRequestFailed,
    GroupStimulus,
    SendHeartbeat,
    SendJoinGroup,
    SendLeaveGroup,
    SendSyncGroup,
)
from connectx.core.messages import (
    AbandonConfigWrites,
    ClaimConfigWrites,
    ConfigReadToEnd,
    ConfigRecordRead,
    ConfigRecordsWritten,
    ConnectorFailed,
    ConnectorStarted,
    ConnectorStateReached,
    ConnectorStopped,
    CreateSessionKey,
    Done,
    FenceProducers,
    FenceRequestAnswered,
    Forwarded,
    GenerateTaskConfigs,
    PrepareTask,
    ProducersFenced,
    ReadConfigToEnd,
    Refused,
    Reply,
    Request,
    SendFenceRequest,
    SendTaskConfigs,
    SessionKeyCreated,
    SetConnectorTargetState,
    SetLoggerLevel,
    SetTimer,
    StartConnector,
    Stimulus,
    StopConnector,
    StopTask,
    TaskConfigsGenerated,
    TaskConfigsSent,
    TaskStopped,
    TimerFired,
    WorkerShutDown,
    WriteConfigRecords,
    WriteStatus,
)
from connectx.core.settings import CoreSettings
from connectx.core.timer_keys import WorkerTimer
from connectx.core.verbs import Verb
from connectx.model.config_records import TaskCommitRecord
from connectx.model.events import Transition
from connectx.model.ids import TaskId
from connectx.recording.worker import WORKER
from tests.simulation.broker import CONFIG_TOPIC
from tests.simulation.connections import REQUEST_TIMEOUT_MS, deliver_late
from tests.simulation.sim_leader import SimFencer, SimLeader
from tests.simulation.sim_producer import SimProducer
from tests.simulation.sim_sink import SimSink
from tests.simulation.sim_source import PARTITIONS, SimSource
from tests.simulation.sim_task import SimTask

if TYPE_CHECKING:
    from tests.simulation.world import World

RETRIABLE = (403, 409, 503)
CALL_TIMEOUT_MS = 10_000
JOIN_MARGIN_MS = 5_000
LIMITS = (WorkerTimer.CLAIM_LIMIT, WorkerTimer.WRITE_LIMIT)
LIMIT_MS = 3_000  # in place of 30 s, so that faults of some seconds reach them
READ_MS = 100  # between two looks at a topic that is to be read to its end


class SimWorker:
    """A worker: its core, what it has read, and what runs on it."""

    def __init__(self, world: World, name: str, settings: CoreSettings) -> None:
        self.world = world
        self.name = name
        self.recorded = world.cores.make(WORKER, name, settings)
        self.core = self.recorded.core
        self.marks = self.core.marks()  # from before its last step
        self.alive = True
        self.frozen = False  # the core and the worker's heartbeats stand still; tasks go on
        self.tasks_frozen = False
        self.shut_down = False
        self.unreadable = False  # its reads of the config topic time out
        self.sends = self.receives = True  # its links to Kafka, by direction
        self.held: list[Stimulus] = []
        self.read = 0  # the next log offset of the config topic
        self.task_sets: dict[str, int] = {}  # log offsets of the commit records that it has read
        self.leader = SimLeader(self)
        self.fencers: dict[int, SimFencer] = {}
        self.producers: list[SimProducer] = []
        self.node = 0  # that it takes for the group's coordinator
        self.asked: dict[int, tuple[GroupEffect, int]] = {}  # requests of the group, and the node that they go to
        self.history: list[Transition] = []
        self.waiting: dict[int, Callable[[Reply], None]] = {}
        self.tasks: dict[tuple[TaskId, int], SimTask] = {}
        self.connectors: dict[tuple[str, int], StartConnector] = {}
        self.lanes: dict[Any, int] = {}

    @property
    def running(self) -> dict[TaskId, int]:
        """Instances of tasks in their loops that were not told to stop."""
        return {key[0]: key[1] for key, task in self.tasks.items() if task.running and not task.stopping}

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
        match stimulus:
            case ConfigRecordRead(log_offset, TaskCommitRecord(connector)):
                self.task_sets[connector] = log_offset
        self.marks = self.core.marks()
        step = self.recorded.handle(stimulus, self.world.now_ms)
        for transition in step.transitions:
            self.world.note(self, transition)
        for effect in step.effects:
            self.execute(effect)
        self.world.after_step(self, stimulus)

    def wake(self) -> None:
        """Go on after a freeze or a stall, with what came meanwhile."""
        self.frozen = self.tasks_frozen = False
        held, self.held = self.held, []
        for stimulus in held:
            self.handle(stimulus)
        for task in list(self.tasks.values()):
            task.thaw()

    def freeze(self) -> None:
        """As an operating system that stops the process: nothing moves, and nothing is lost."""
        self.frozen = self.tasks_frozen = True

    def ask(self, verb: Verb, answer: Callable[[Reply], None]) -> None:
        """Put a request to the core, after a latency; `answer` is called once, unless the worker is killed."""
        request_id = self.world.next_request()
        self.waiting[request_id] = answer
        self.deliver(Request(request_id, verb))

    def execute(self, effect: Any) -> None:  # a table: one line per effect
        world = self.world
        match effect:
            case SetTimer():
                delay_ms = effect.at_ms - world.now_ms
                world.at(
                    world.timer_ms(min(delay_ms, LIMIT_MS) if effect.key in LIMITS else delay_ms),
                    lambda: self.handle(TimerFired(effect.key, effect.token)),
                )
            case FindCoordinator() | SendJoinGroup() | SendSyncGroup() | SendHeartbeat() | SendLeaveGroup():
                self.ask_group(effect)
            case ReadConfigToEnd():
                world.at(world.latency_ms(), lambda: self.read_to_end(effect))
            case ClaimConfigWrites():
                self.leader.carry_out(effect)
            case AbandonConfigWrites():
                self.leader.abandon(effect.request_id)
            case WriteConfigRecords() if self.writes_in_transactions(effect):
                self.leader.carry_out(effect)
            case WriteConfigRecords():
                world.at(world.latency_ms(), lambda: self.write(effect))
            case WriteStatus():
                world.at(2, lambda: world.publish_status(effect.record))  # one producer: in order
            case Done() | Refused() | Forwarded():
                self.waiting.pop(effect.request_id)(effect)  # a second reply is a KeyError
            case CreateSessionKey():
                self.deliver(SessionKeyCreated(effect.request_id, b"k" * effect.key_bytes, world.now_ms))
            case SetLoggerLevel():
                pass  # nothing is logged here
            case FenceProducers():
                self.fence(effect)
            case SendFenceRequest() | SendTaskConfigs():
                self.ask_leader(effect)
            case WorkerShutDown():
                self.shut_down = True
                self.alive = False
                self.abandon_producers()
            case StartConnector() | StopConnector() | SetConnectorTargetState() | GenerateTaskConfigs():
                self.run_connector(effect)
            case _:
                self.run_task(effect)

    def ask_group(self, effect: GroupEffect) -> None:
        """Send a request; one that gets stuck is lost with its connection."""
        world, request_id = self.world, effect.request_id
        self.asked[request_id] = effect, self.node
        if world.is_stuck():
            world.at(REQUEST_TIMEOUT_MS, lambda: self.lose(request_id))
            return
        world.at(world.latency_ms(), lambda: self.arrive(request_id))
        if isinstance(effect, SendJoinGroup):
            world.at(effect.rebalance_timeout_ms + JOIN_MARGIN_MS, lambda: self.lose(request_id))
        elif isinstance(effect, SendSyncGroup):
            world.at(world.config.request_timeout_ms, lambda: self.lose(request_id))

    def arrive(self, request_id: int) -> None:
        """A request reaches the coordinator, if its connection still exists."""
        if request_id not in self.asked:
            return
        effect, node = self.asked[request_id]
        if not self.sends or self.world.broker_down:
            self.lose(request_id)
            return
        is_lost = self.world.loses_reply() or not self.receives
        if isinstance(effect, SendLeaveGroup):  # it is not answered
            del self.asked[request_id]
        self.reach_coordinator(self.name, effect, node)
        if is_lost:
            self.lose(request_id)

    def lose(self, request_id: int) -> None:
        """The connection of a request is cut: it is not answered, and may arrive later."""
        if request_id not in self.asked:
            return
        effect, node = self.asked.pop(request_id)
        if not isinstance(effect, FindCoordinator):
            deliver_late(self.world, lambda: self.reach_coordinator(None, effect, node))
        if not isinstance(effect, SendLeaveGroup):
            self.deliver(GroupRequestFailed(request_id, "the connection was cut"), "group")

    def reach_coordinator(self, client: str | None, effect: GroupEffect, node: int) -> None:
        """A request arrives at the node that was coordinator when it was sent; without a client it is not answered."""
        coordinator = self.world.broker.coordinator
        self.world.broker.set_time(self.world.now_ms)
        match effect:
            case FindCoordinator():
                self.node = coordinator.find()
                self.hear(CoordinatorFound(effect.request_id))
            case SendJoinGroup():
                self.world.hand_out(coordinator.join(client, effect, node))
            case SendSyncGroup():
                if node == coordinator.find():
                    self.world.checks.on_assignments(effect, coordinator)
                self.world.hand_out(coordinator.sync(client, effect, node))
            case SendHeartbeat():
                self.world.hand_out(coordinator.heartbeat(client, effect, node))
            case SendLeaveGroup():
                self.world.hand_out(coordinator.leave(effect.member_id, node))

    def hear(self, reply: GroupStimulus) -> None:
        """The coordinator's reply is on its way, unless its connection is lost."""
        if not self.receives or self.world.broker_down:
            self.lose(reply.request_id)
        elif self.asked.pop(reply.request_id, None) is not None:
            self.deliver(reply, "group")

    @property
    def reads(self) -> bool:
        """True while the config topic can be read from here."""
        return self.sends and self.receives and not self.unreadable and not self.world.broker_down

    def catch_up(self) -> None:
        """Read what is in the config topic now."""
        broker = self.world.broker
        stable = broker.last_stable(CONFIG_TOPIC, 0)
        if self.read == stable or not self.alive or not self.reads:
            return
        records = broker.read(CONFIG_TOPIC, 0, self.read)
        self.read = stable
        for log_offset, record in records:
            self.handle(ConfigRecordRead(log_offset, record))

    def read_to_end(self, effect: ReadConfigToEnd, end: int | None = None, waited_ms: int = 0) -> None:
        """Take the end now, and wait until all below it is read: a transaction that is open there holds that up."""
        if not self.alive:
            return
        if self.reads:
            end = self.world.broker.end(CONFIG_TOPIC, 0) if end is None else end
            self.catch_up()
            if self.read >= end:
                self.handle(ConfigReadToEnd(effect.request_id))
                return
        if effect.timeout_ms is not None and waited_ms >= effect.timeout_ms:
            self.handle(ConfigReadToEnd(effect.request_id, "timed out"))
        else:
            self.world.at(READ_MS, lambda: self.read_to_end(effect, end, waited_ms + READ_MS))

    def writes_in_transactions(self, effect: WriteConfigRecords) -> bool:
        return effect.privileged and self.world.config.exactly_once_source_support.leader_is_transactional

    def write(self, effect: WriteConfigRecords) -> None:
        """Ordinary records are there at once."""
        world = self.world
        if not self.alive and not world.lands():
            return
        error: str | None = "broker is down"
        if self.sends and not world.broker_down:
            records = effect.records[: world.torn(len(effect.records))]
            world.publish_config(records)
            error = None if records == effect.records else "the broker went away"
            if error is None and (world.loses_reply() or not self.receives):
                error = "the answer was lost"
        self.deliver(ConfigRecordsWritten(effect.request_id, error, fenced=False), "w")

    def fence(self, effect: FenceProducers) -> None:
        """Asked again until it is answered; fencing twice does no harm."""
        if self.alive:
            self.fencers[effect.request_id] = SimFencer(self, effect.request_id, effect.transactional_ids)

    def fenced(self, request_id: int, transactional_ids: tuple[str, ...]) -> None:
        del self.fencers[request_id]
        self.world.fenced.append(transactional_ids)
        self.deliver(ProducersFenced(request_id))

    def cut_all(self) -> None:
        """Lose all connections to Kafka: what was on its way may arrive later."""
        for request_id in list(self.asked):
            self.lose(request_id)
        for task in self.tasks.values():
            task.on_cut()
        self.producers = [producer for producer in self.producers if not producer.is_over]
        for producer in self.producers:
            producer.cut_all()
        for fencer in self.fencers.values():
            fencer.cut_all()

    def abandon_producers(self) -> None:
        """The process ends: so do its producers."""
        for producer in self.producers:
            producer.abandon()
        for fencer in self.fencers.values():
            fencer.cut_all()

    def ask_leader(self, effect: SendFenceRequest | SendTaskConfigs) -> None:
        """Over REST: the answer may get lost, or never come; the caller is told once."""
        verb: Verb
        if isinstance(effect, SendTaskConfigs):
            verb = verbs.PutTaskConfigs(effect.connector, effect.task_configs, b"", "s", "a")
        else:
            verb = verbs.Fence(effect.connector, b"", "s", "a")
        recorded = False
        lost = self.world.loses_reply()

        def answer_with(error: str | None, retriable: bool) -> None:
            nonlocal recorded
            if recorded:
                return
            recorded = True
            if isinstance(effect, SendFenceRequest):
                self.deliver(FenceRequestAnswered(effect.request_id, error, retriable))
            else:
                self.deliver(TaskConfigsSent(effect.request_id, error))

        def answer(reply: Reply) -> None:
            if lost:
                answer_with("the answer was lost", True)
            elif isinstance(reply, Forwarded):
                answer_with(f"moved to {reply.worker_url}", True)
            elif isinstance(reply, Refused) and reply.status in RETRIABLE:
                answer_with(f"{reply.status} {reply.message}", True)
            else:
                answer_with(f"{reply.status} {reply.message}" if isinstance(reply, Refused) else None, False)

        leader = self.world.worker_at(effect.leader_url)
        if leader is None:
            answer_with("connection refused", True)
        else:
            leader.ask(verb, answer)
            self.world.at(CALL_TIMEOUT_MS, lambda: answer_with("no answer in time", True))

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
                configs = tuple(task_config(unique, n, count) for n in range(count))
                self.deliver(TaskConfigsGenerated(*key, configs), key)

    def run_task(self, effect: Any) -> None:
        key = effect.task, effect.instance
        if isinstance(effect, PrepareTask):
            self.world.checks.on_prepare(self, effect)
            kind = SimSink if self.world.is_sink(effect.connector_config) else SimSource
            self.tasks[key] = kind(self, effect, self.task_sets[effect.task.connector])
        elif key in self.tasks:
            self.tasks[key].execute(effect)
        elif isinstance(effect, StopTask):  # its thread has ended
            self.deliver(TaskStopped(*key), key)


def task_config(unique: str, number: int, count: int) -> dict[str, str | None]:
    """One of `count` task configs made from a connector configuration: its share of the source partitions."""
    share = ",".join(str(partition) for partition in range(PARTITIONS) if partition % count == number)
    return {"set": unique, "of": str(count), "n": str(number), "partitions": share}
