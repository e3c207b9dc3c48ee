"""One live worker: its core on a mailbox thread, and everything that carries out the core's effects.

Decides nothing about the group, connectors or tasks: it gives facts to the core and does what the core orders. Faults
(kill, pause, stall) act here, from outside the core, as they do on a real process.
"""

from __future__ import annotations

import itertools
import logging
import secrets
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from connectx.connectors.plugins import Plugins
from connectx.core.context import CoreSettings
from connectx.core.membership import MembershipSettings
from connectx.core.messages import (
    BeginTask,
    CancelTask,
    ClaimConfigWrites,
    CreateSessionKey,
    FenceProducers,
    FenceRequestAnswered,
    FindCoordinator,
    GenerateTaskConfigs,
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
    ShutdownRequested,
    StartConnector,
    Stimulus,
    StopConnector,
    StopTask,
    TaskConfigsSent,
    TaskFailed,
    TaskStopped,
    WorkerShutDown,
    WorkerStarted,
    WriteConfigRecords,
    WriteStatus,
)
from connectx.core.requests import Verb
from connectx.core.rest_views import worker as worker_view
from connectx.core.worker import WorkerCore
from connectx.errors import ConnectxError, WorkerStoppedError
from connectx.kafka.clients import ClientConfigs
from connectx.kafka.fencing import ProducerFencer
from connectx.kafka.group import GroupConnection
from connectx.kafka.internal_topics import InternalTopics
from connectx.model.events import EventKind, Transition
from connectx.model.ids import TaskId
from connectx.model.states import ConnectorType
from connectx.model.worker_config import WorkerConfig
from connectx.protocol.signing import signature_error
from connectx.rest.client import InternalClient
from connectx.rest.server import RestServer
from connectx.runtime.connector_host import ConnectorHost, trace_of
from connectx.runtime.mailbox import Mailbox, now_ms
from connectx.runtime.rest_services import RestServices
from connectx.runtime.sink_runner import SinkRunner
from connectx.runtime.source_runner import SourceRunner
from connectx.runtime.task import TaskRunner, TaskServices, WorkerGone

if TYPE_CHECKING:
    from connectx.spark.sessions import SparkProvider

_log = logging.getLogger(__name__)
_JOIN_S = 2.0
_ZOMBIE_S = 90.0


class WorkerState(StrEnum):
    """A worker as its owner sees it. What it says of itself to the group is another matter."""

    STARTING = "starting"
    RUNNING = "running"
    PAUSED = "paused"
    STALLED = "stalled"
    STOPPED = "stopped"
    KILLED = "killed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a worker is given.

    Attributes:
        config: settings, the same for all workers of a cluster.
        bootstrap_servers: where this worker's clients connect, through the gate if there is one.
        plugins: connector and converter classes.
        spark: starts or borrows Spark.
        record: puts a transition of a worker into the history.
    """

    config: WorkerConfig
    bootstrap_servers: str
    plugins: Plugins
    spark: SparkProvider
    record: Callable[[Transition, str | None], object]


class Worker:
    """A worker of the group, in threads of this process.

    Args:
        name: unique in the process for all time; client ids start with it and a slash.
        surroundings: what it is given.
    """

    def __init__(self, name: str, surroundings: Surroundings) -> None:
        self.name = name
        self.state = WorkerState.STARTING
        self.error: str | None = None
        self._given = surroundings
        config = surroundings.config
        self._mailbox = Mailbox(f"{name}-core", self._handle, self._crashed)
        self._clients = ClientConfigs(config, name, surroundings.bootstrap_servers)
        self._topics = InternalTopics(config, self._clients, self.post)
        self._group = GroupConnection(config, self._clients, self.post)
        self._fencer = ProducerFencer(self._clients)
        self._calls = ThreadPoolExecutor(4, thread_name_prefix=f"{name}-calls")
        self._internal = InternalClient()
        services = RestServices(config, self._clients, surroundings.plugins, self._topics, self.view)
        self._rest = RestServer(self.ask, services, config, name=name)
        self._core: WorkerCore | None = None
        self._view: Mapping[str, Any] = {}
        self._connectors: dict[tuple[str, int], ConnectorHost] = {}
        self._runners: dict[tuple[TaskId, int], TaskRunner] = {}
        self._replies: dict[int, Future[Reply]] = {}
        self._request_ids = itertools.count(1)
        self._unfrozen = threading.Event()
        self._unfrozen.set()
        self._gone = threading.Event()
        self._shut_down = threading.Event()
        self._effects = self._effect_table()

    # ----------------------------------------------------------------------------------------------- life cycle

    def start(self) -> None:
        """Bind REST, read the internal topics to their end, then join the group. Blocks until it may join.

        Raises:
            ConnectxError: a port is taken, Kafka cannot be reached, an internal topic is unusable.
        """
        url = self._rest.start()
        self._core = WorkerCore(self._core_settings(url))
        self._mailbox.start()
        try:
            self._topics.start()
            self._group.start()
        except BaseException as error:
            self._fail(error)
            raise
        self.state = WorkerState.RUNNING
        self.post(WorkerStarted())

    def stop(self, timeout_s: float = 30.0) -> bool:
        """Stop all work, leave the group, close. Returns False when work had to be left behind."""
        if self.state in (WorkerState.STOPPED, WorkerState.KILLED):
            return True
        self.thaw()
        self.post(ShutdownRequested())
        in_time = self._shut_down.wait(timeout_s)
        self.state = WorkerState.STOPPED
        self._close(in_time)
        return in_time

    def kill(self) -> None:
        """A fault: everything of this worker ends at once, nothing is committed, aborted, closed or left politely."""
        if self.state in (WorkerState.STOPPED, WorkerState.KILLED):
            return
        self.state = WorkerState.KILLED
        self._gone.set()
        self._unfrozen.set()
        self._mailbox.kill()
        for runner in list(self._runners.values()):
            runner.kill()
        for host in list(self._connectors.values()):
            host.kill()
        self._group.abandon()
        self._topics.abandon()
        self._rest.abandon()
        self._internal.close()
        self._fencer.abandon()
        self._calls.submit(self.join_tasks, _ZOMBIE_S)
        self._calls.shutdown(wait=False)
        self._fail_replies("the worker was killed")

    def freeze(self, *, tasks: bool) -> None:
        """A fault: the core stops, heartbeats with it; with `tasks` the tasks stop, too, at their next step."""
        self._mailbox.freeze()
        if tasks:
            self._unfrozen.clear()
        self.state = WorkerState.PAUSED if tasks else WorkerState.STALLED

    def thaw(self) -> None:
        """End `freeze`: go on with what has come in meanwhile."""
        self._unfrozen.set()
        self._mailbox.thaw()
        if self.state in (WorkerState.PAUSED, WorkerState.STALLED):
            self.state = WorkerState.RUNNING

    def join_tasks(self, timeout_s: float) -> bool:
        """Wait until all task threads have ended; after a kill they take a moment to notice."""
        ended = True
        for (task, instance), runner in list(self._runners.items()):
            if runner.join(timeout_s):
                self._forget_runner(task, instance, "its worker was killed")
            else:
                ended = False
        return ended

    def _close(self, in_time: bool) -> None:
        self._gone.set()
        for runner in list(self._runners.values()):
            if not runner.join(_JOIN_S if in_time else 0.0):
                runner.kill()
        for host in list(self._connectors.values()):
            host.kill()
        self._group.close()
        self._topics.close()
        self._mailbox.close()
        self._mailbox.join(_JOIN_S)
        self._rest.stop()
        self._internal.close()
        self._calls.shutdown(wait=False, cancel_futures=True)
        self._fail_replies("the worker was stopped")

    # ------------------------------------------------------------------------------------------------- requests

    def post(self, stimulus: Stimulus) -> None:
        """Hand a stimulus to the core, from any thread."""
        self._mailbox.post(stimulus)

    def ask(self, verb: Verb, connector: str | None, args: Mapping[str, Any]) -> Future[Reply]:
        """Put a request to the core; the future ends with its Reply, or WorkerStoppedError."""
        future: Future[Reply] = Future()
        request_id = next(self._request_ids)
        self._replies[request_id] = future
        if self._gone.is_set():
            self._fail_replies("the worker has ended")
        else:
            self.post(Request(request_id, verb, connector, args))
        return future

    @property
    def url(self) -> str:
        """Advertised URL, with a trailing slash."""
        return self._rest.url

    @property
    def alive(self) -> bool:
        """True while the worker can be asked."""
        return self.state not in (WorkerState.STOPPED, WorkerState.KILLED, WorkerState.FAILED)

    def view(self) -> Mapping[str, Any]:
        """Its place in the group as its core last said; never blocks. Shape: `connectx.core.requests`, *worker*."""
        return self._view

    def facts(self) -> dict[TaskId, Mapping[str, object]]:
        """Live numbers of the tasks that run here."""
        return {task: runner.facts() for (task, _), runner in sorted(self._runners.items())}

    # ------------------------------------------------------------------------------------------------- the core

    def _core_settings(self, url: str) -> CoreSettings:
        config, plugins = self._given.config, self._given.plugins
        return CoreSettings(
            url=url,
            group_id=config.group_id,
            membership=MembershipSettings(
                session_timeout_ms=config.session_timeout_ms,
                heartbeat_interval_ms=config.heartbeat_interval_ms,
                rebalance_timeout_ms=config.rebalance_timeout_ms,
            ),
            connector_type_of=plugins.connector_type,
            check_signature=lambda key, body, signature, algorithm: signature_error(
                key, body, signature, algorithm, config.inter_worker_verification_algorithms
            ),
            offered=config.connect_protocol,
            exactly_once=config.exactly_once_source_support,
            scheduled_rebalance_max_delay_ms=config.scheduled_rebalance_max_delay_ms,
            worker_sync_timeout_ms=config.worker_sync_timeout_ms,
            worker_unsync_backoff_ms=config.worker_unsync_backoff_ms,
            task_shutdown_graceful_timeout_ms=config.task_shutdown_graceful_timeout_ms,
            inter_worker_key_ttl_ms=config.inter_worker_key_ttl_ms,
            topic_tracking_enable=config.topic_tracking_enable,
            topic_tracking_allow_reset=config.topic_tracking_allow_reset,
        )

    def _handle(self, stimulus: Stimulus) -> None:
        assert self._core is not None
        step = self._core.handle(stimulus, now_ms())
        for transition in step.transitions:
            self._given.record(transition, self.name)
        for effect in step.effects:
            self._effects[type(effect)](effect)
        if step.transitions:
            self._view = worker_view(self._core.context)

    def _crashed(self, error: BaseException) -> None:
        """The core broke an invariant: nothing that it decides can be trusted any more."""
        self._fail(error)

    def _fail(self, error: BaseException) -> None:
        self.error = str(error) or type(error).__name__
        self._given.record(Transition(EventKind.WORKER_FAILED, cause=self.error, data={"error": self.error}), self.name)
        self.kill()
        self.state = WorkerState.FAILED

    def _effect_table(self) -> dict[type, Callable[[Any], None]]:
        group, topics, task = self._group.execute, self._topics.execute, self._on_task_effect
        return {
            **dict.fromkeys((FindCoordinator, SendJoinGroup, SendSyncGroup, SendHeartbeat, SendLeaveGroup), group),
            **dict.fromkeys((ReadConfigToEnd, ClaimConfigWrites, WriteConfigRecords, WriteStatus), topics),
            **dict.fromkeys((InitTaskProducer, BeginTask, SetTaskTargetState, StopTask, CancelTask), task),
            **dict.fromkeys((SetConnectorTargetState, GenerateTaskConfigs, StopConnector), self._on_connector_effect),
            SetTimer: self._mailbox.set_timer,
            StartConnector: self._on_start_connector,
            PrepareTask: self._on_prepare_task,
            SendTaskConfigs: self._on_send_task_configs,
            SendFenceRequest: self._on_send_fence_request,
            FenceProducers: self._on_fence_producers,
            CreateSessionKey: self._on_create_session_key,
            Reply: self._on_reply,
            WorkerShutDown: self._on_shut_down,
        }

    # --------------------------------------------------------------------------------------- connectors and tasks

    def _on_start_connector(self, effect: StartConnector) -> None:
        plugins = self._given.plugins
        host = ConnectorHost(effect, plugins.create_connector, plugins.task_configs, self.post)
        self._connectors[effect.connector, effect.instance] = host
        host.start()

    def _on_connector_effect(self, effect: SetConnectorTargetState | GenerateTaskConfigs | StopConnector) -> None:
        key = effect.connector, effect.instance
        self._connectors[key].execute(effect)
        if isinstance(effect, StopConnector):
            del self._connectors[key]

    def _on_prepare_task(self, effect: PrepareTask) -> None:
        services = TaskServices(
            worker=self.name,
            config=self._given.config,
            clients=self._clients,
            spark=self._given.spark,
            offsets=self._topics.offsets,
            post=self._post_of_task,
            record=self._record_of_task,
            pulse=self._pulse,
        )
        is_source = self._given.plugins.connector_type(effect.connector_config) is ConnectorType.SOURCE
        runner: TaskRunner
        if is_source:
            runner = SourceRunner(effect, services, self._given.plugins)
        else:
            runner = SinkRunner(effect, services, self._given.plugins)
        self._runners[effect.task, effect.instance] = runner
        runner.start()

    def _on_task_effect(
        self, effect: InitTaskProducer | BeginTask | SetTaskTargetState | StopTask | CancelTask
    ) -> None:
        runner = self._runners.get((effect.task, effect.instance))
        if runner is not None:
            runner.execute(effect)

    def _post_of_task(self, stimulus: Stimulus) -> None:
        """Stimuli of runners; the end of a thread is told to the history, also when the core has forgotten it."""
        if self._gone.is_set():
            return
        if isinstance(stimulus, TaskStopped | TaskFailed):
            reason = "failed" if isinstance(stimulus, TaskFailed) else "stopped"
            self._forget_runner(stimulus.task, stimulus.instance, reason)
        self.post(stimulus)

    def _record_of_task(self, transition: Transition) -> None:
        self._given.record(transition, self.name)

    def _forget_runner(self, task: TaskId, instance: int, reason: str) -> None:
        if self._runners.pop((task, instance), None) is not None:
            data = {"instance": instance, "reason": reason}
            self._given.record(Transition(EventKind.TASK_ENDED, task.connector, task.task, data=data), self.name)

    def _pulse(self) -> None:
        self._unfrozen.wait()
        if self._gone.is_set() and self.state is not WorkerState.STOPPED:
            raise WorkerGone

    # -------------------------------------------------------------------------------------------- calls that block

    def _call(self, function: Callable[[], None]) -> None:
        if not self._gone.is_set():
            self._calls.submit(function)

    def _on_send_task_configs(self, effect: SendTaskConfigs) -> None:
        key = self._session_key()

        def send() -> None:
            error = None
            try:
                self._internal.send_task_configs(effect.leader_url, effect.connector, effect.task_configs, key)
            except ConnectxError as failure:
                error = str(failure)
            self.post(TaskConfigsSent(effect.request_id, error))

        self._call(send)

    def _on_send_fence_request(self, effect: SendFenceRequest) -> None:
        key = self._session_key()

        def send() -> None:
            error, retriable = None, False
            try:
                self._internal.fence(effect.leader_url, effect.connector, key)
            except ConnectxError as failure:
                error, retriable = str(failure), failure.retriable
            self.post(FenceRequestAnswered(effect.request_id, error, retriable))

        self._call(send)

    def _session_key(self) -> Any:
        assert self._core is not None
        return self._core.context.session_key

    def _on_fence_producers(self, effect: FenceProducers) -> None:
        def fence() -> None:
            error = None
            try:
                self._fencer.fence(effect.connector, effect.config, effect.transactional_ids)
            except ConnectxError as failure:
                error = str(failure)
            except Exception as failure:
                error = trace_of(failure)
            self.post(ProducersFenced(effect.request_id, error))

        self._call(fence)

    def _on_create_session_key(self, effect: CreateSessionKey) -> None:
        size_bits = self._given.config.inter_worker_key_size or 256
        self.post(SessionKeyCreated(effect.request_id, secrets.token_bytes(size_bits // 8), now_ms()))

    def _on_reply(self, effect: Reply) -> None:
        future = self._replies.pop(effect.request_id, None)
        if future is not None:
            future.set_result(effect)

    def _fail_replies(self, reason: str) -> None:
        for request_id in list(self._replies):
            future = self._replies.pop(request_id, None)  # whoever pops it answers it
            if future is not None:
                future.set_exception(WorkerStoppedError(self.name, reason))

    def _on_shut_down(self, effect: WorkerShutDown) -> None:
        self._shut_down.set()
