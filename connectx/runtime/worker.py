"""One running worker: its core on a mailbox thread, and the parts that carry out the core's effects.

The core decides about group, connectors and tasks: the worker gives it stimuli and carries out its effects. Faults
(kill, pause, stall) act here, from outside the core, as they do on a real process.
"""

from __future__ import annotations

import itertools
import logging
import os
import secrets
import tempfile
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, assert_never

from connectx.core import group_messages, messages, verbs
from connectx.core.rules import BrokenRule
from connectx.core.settings import CoreSettings
from connectx.core.verbs import Verb
from connectx.core.worker import WorkerCore
from connectx.errors.base import ConnectxError
from connectx.errors.clusters import WorkerStoppedError
from connectx.kafka.group import GroupConnection
from connectx.kafka.internal.topics import InternalTopics
from connectx.kafka.settings.clients import ClientConfigs
from connectx.model.clock import Clock
from connectx.model.config_records import SessionKeyRecord
from connectx.model.events import EventKind, Transition
from connectx.model.ids import TaskId
from connectx.model.payloads import WorkerFailed
from connectx.model.worker_config import WorkerConfig
from connectx.plugins.registry import Plugins
from connectx.protocol.signing import signature_error
from connectx.recording.codec import Mask
from connectx.recording.file import Recording, write_recordings
from connectx.recording.recorder import Recorder
from connectx.recording.ring import RecordedCore
from connectx.recording.worker import WORKER
from connectx.rest.loggers import WorkerLoggers
from connectx.rest.server import RestServer
from connectx.rest.services import Asked
from connectx.rest.stages import Stage
from connectx.runtime.calls import Calls
from connectx.runtime.mailbox import Mailbox
from connectx.runtime.masking import masked_errors, masked_transition
from connectx.runtime.metrics import WorkerMetrics
from connectx.runtime.rest_services import RestServices
from connectx.runtime.tasks.host import TaskHost
from connectx.runtime.tasks.java.jvm import WorkerJvm
from connectx.runtime.tasks.services import TaskServices, WorkerGone
from connectx.runtime.worker_handle import ALIVE, JOINED, Isolation, OnFault, WorkerState, no_op
from connectx.values import Value

if TYPE_CHECKING:
    from connectx.spark.slices import SparkSessions

_log = logging.getLogger(__name__)

_JOIN_S = 2.0
_STAGES: Final = {
    "joining": "ensuring membership in the cluster",
    "stable": "polling the group coordinator until interrupted",
    "stopping": "shutting down",
}
"""What a worker does in each state of its view, in the words of Kafka Connect's stages; it starts in those before."""
_SALT_BYTES: Final = 32


class WorkerEnvironment(Value):
    """What a worker is given.

    Attributes:
        config: settings, the same for all workers of a cluster.
        bootstrap_servers: where this worker's clients connect, through the gate if there is one.
        plugins: connector and converter classes.
        spark: starts or borrows Spark.
        record: puts a transition of a worker into the history.
        clock: the time of its core, its tasks and its metrics.
        viewed: called with the core's view of the group after every step; never blocks.
        process_token: of a worker in a separate process; see `ClientConfigs`.
    """

    config: WorkerConfig
    bootstrap_servers: str
    plugins: Plugins
    spark: SparkSessions
    record: Callable[[Transition, str | None], object]
    clock: Clock
    viewed: Callable[[Mapping[str, Any]], object] = lambda view: None
    process_token: str = ""


class Worker:
    """A worker of the group, in threads of this process."""

    isolation: Final[Isolation] = "thread"

    def __init__(self, name: str, environment: WorkerEnvironment) -> None:
        self.name = name
        self.state = WorkerState.STARTING
        self.error: str | None = None
        self._given = environment
        self._clock = environment.clock
        self._moving = threading.Lock()
        self._unfrozen = threading.Event()
        self._unfrozen.set()
        self._gone = threading.Event()  # its later events are ignored
        self._over = threading.Event()  # its core has shut down, or it was killed
        config = environment.config
        self._stage = Stage("awaiting startup", self._clock())
        self._mailbox = Mailbox(f"{name}-core", self._handle, self._fail, self._clock)
        self._recorder = Recorder(config.recording_max_bytes, Mask(secrets.token_bytes(_SALT_BYTES)))
        self._clients = ClientConfigs(
            config, name, environment.bootstrap_servers, environment.process_token, self._recorder
        )
        self._topics = InternalTopics(config, self._clients, self.post)
        self._group = GroupConnection(config, self._clients, self.post)
        plugins = self._plugins = environment.plugins.on_path(config)
        self._providers = plugins.providers(config)
        self._calls = Calls(name, self._clients, config, self.post, self._providers)
        self._loggers = WorkerLoggers()
        self._task_host = TaskHost(self._task_services(), plugins, self._gone.is_set)
        self._metrics = WorkerMetrics(
            self.view, self._task_host.counted, self.heartbeat_ms, self._clock, self._group.requests
        )
        self._services = RestServices(
            config,
            self._clients,
            plugins,
            self._topics,
            self.view,
            self._record,
            self._providers,
            self._metrics,
            self._loggers,
            self._task_host.jvm,
            stage=lambda: self._stage,
            heartbeat_ms=self.heartbeat_ms,
            clock=self._clock,
        )
        self._rest = RestServer(self.ask, self._services, config, name=name)
        self._recorded: RecordedCore[WorkerCore] | None = None
        self._view: Mapping[str, Any] = {}
        self._session_key: SessionKeyRecord | None = None
        self._heartbeat_ms: int | None = None
        self._replies: dict[int, Asked] = {}
        self._early: list[messages.Request] | None = []
        self._request_ids = itertools.count(1)

    def start(self, prepare: Callable[[], object] = no_op) -> None:
        """Bind REST, read the internal topics to their end, then join the group. Blocks until it may join.

        Args:
            prepare: called when REST listens, before the internal topics are read.

        Raises:
            ConnectxError: a port is taken, Kafka cannot be reached, an internal topic is unusable.
            WorkerStoppedError: it was ended meanwhile.
        """
        config, plugins = self._given.config, self._plugins
        try:
            settings = CoreSettings(self._rest.start(), config, plugins.connector_type, self._check_signature)
            self._recorded = self._recorder.worker(WORKER, self.name, settings)
            self._mailbox.start()
            self._stage = Stage("initializing and reading to the end of internal topics", self._clock())
            prepare()
            self._group.start()
            self._topics.start()
            if not self._move(WorkerState.RUNNING, WorkerState.STARTING):
                raise WorkerStoppedError(self.name, f"it was {self.state} before it had started")
        except BaseException as error:
            self._fail(error)
            self._release()  # also of what was begun after another thread had ended this worker
            raise
        self.post(messages.WorkerStarted())
        self._take_early_requests()

    def request_stop(self) -> None:
        """Begin to stop, without waiting: REST takes nothing more, work ends. `stop` waits for the end."""
        if self.state is WorkerState.STARTING:
            self._end_now(WorkerState.STOPPED, "the worker was stopped before it had started")
        elif self._move(WorkerState.STOPPING, *JOINED, then=self._run_on):
            self._rest.stop(timeout_s=0)
            self.post(messages.ShutdownRequested())

    def stop(self, timeout_s: float = 30.0) -> bool:
        """Stop all work, leave the group, close. Returns False when some work did not stop in time."""
        self.request_stop()
        if not self.alive:
            return True
        in_time = self._over.wait(timeout_s)
        in_time = self._task_host.join(_JOIN_S if in_time else 0.0) and in_time
        if not self._move(WorkerState.STOPPED, WorkerState.STOPPING):
            return False  # it was killed, or failed
        self._gone.set()
        self._task_host.end("its worker was stopped")
        self._group.close()
        self._topics.close()
        self._mailbox.close()
        self._mailbox.join(_JOIN_S)
        self._rest.stop()
        self._services.close()
        self._calls.close()
        self._fail_replies("the worker was stopped")
        return in_time

    def kill(self, on_fault: OnFault = no_op) -> None:
        """A fault: end everything of this worker immediately, without commit, abort or goodbye."""
        if self.alive:
            self.jvm.kill()  # what it has committed is in the history before the fault
            on_fault()
        self._end_now(WorkerState.KILLED, "the worker was killed")

    def freeze(self, *, tasks: bool, on_fault: OnFault = no_op) -> bool:
        """A fault: the core stops, heartbeats with it; with `tasks` the tasks stop, too, at their next step.

        False when there is nothing to freeze.
        """
        frozen = WorkerState.PAUSED if tasks else WorkerState.STALLED
        jvm = self.jvm
        if self.state in (WorkerState.RUNNING, WorkerState.STALLED):
            if tasks:
                jvm.freeze()  # what it has committed is in the history before the fault
            on_fault()

        def stand_still() -> None:
            self._mailbox.freeze()
            if tasks:
                self._unfrozen.clear()

        moved = self._move(frozen, WorkerState.RUNNING, WorkerState.STALLED, then=stand_still)
        if self.state is not WorkerState.PAUSED:
            jvm.thaw()
        return moved

    def thaw(self) -> bool:
        """End `freeze`: process queued stimuli. False if it was not frozen."""
        return self._move(WorkerState.RUNNING, WorkerState.PAUSED, WorkerState.STALLED, then=self._run_on)

    @property
    def alive(self) -> bool:
        return self.state in ALIVE

    @property
    def jvm(self) -> WorkerJvm:
        """The JVM of its Java connectors."""
        return self._task_host.jvm

    def _move(self, to: WorkerState, *sources: WorkerState, then: Callable[[], None] | None = None) -> bool:
        """Change the state; False when another thread was faster. The thread that ends the worker cleans up."""
        with self._moving:
            if self.state not in sources:
                return False
            self.state = to
            if then is not None:
                then()
            return True

    def _run_on(self) -> None:
        self.jvm.thaw()
        self._unfrozen.set()
        self._mailbox.thaw()

    def _fail(self, error: BaseException) -> None:
        """It cannot start, or its core broke an invariant: nothing that it decides can be trusted any more."""
        cause = str(error) or type(error).__name__
        self.error = self.error or cause
        if self._end_now(WorkerState.FAILED, cause):
            self._write_recording(f"the worker failed: {cause}")
            self._given.record(Transition(WorkerFailed(cause)), self.name)

    def _end_now(self, state: WorkerState, reason: str) -> bool:
        if not self._move(state, *ALIVE):
            return False
        self._gone.set()
        self._unfrozen.set()
        self._mailbox.kill()
        self._task_host.end(reason)
        self._release()
        self._fail_replies(reason)
        self._over.set()
        return True

    def _release(self) -> None:
        """Drop everything that leads outside, as it is."""
        self._group.abandon()
        self._topics.abandon()
        self._rest.abandon()
        self._services.close()
        self._calls.close()

    def post(self, stimulus: messages.Posted) -> None:
        """Hand a stimulus to the core, from any thread; values of placeholders are hidden in its errors."""
        self._mailbox.post(masked_errors(stimulus, self._providers.masked))

    def ask(self, verb: Verb) -> Asked:
        """Put a request to the core; the future ends with its Reply, or WorkerStoppedError.

        A request about connectors waits until the internal topics are read, as in Kafka Connect.
        """
        future = Asked()
        request = messages.Request(next(self._request_ids), verb)
        self._replies[request.request_id] = future
        if self._gone.is_set():
            self._fail_replies("the worker has ended")
        elif isinstance(verb, verbs.Worker) or not self._is_early(request):
            self.post(request)
        return future

    def _is_early(self, request: messages.Request) -> bool:
        """Keep a request for the time when the internal topics are read; False when they are."""
        with self._moving:
            if self._early is None:
                return False
            self._early.append(request)
            return True

    def _take_early_requests(self) -> None:
        with self._moving:
            early, self._early = self._early or [], None
        for request in early:
            self.post(request)

    @property
    def url(self) -> str:
        return self._rest.url

    def view(self) -> Mapping[str, Any]:
        return self._view

    def heartbeat_ms(self) -> int | None:
        return self._heartbeat_ms

    def task_metrics(self) -> dict[TaskId, Mapping[str, object]]:
        """Live numbers of the tasks that run here."""
        return self._task_host.task_metrics()

    def _on_reply(self, effect: messages.Reply) -> None:
        future = self._replies.pop(effect.request_id, None)
        if future is not None and future.set_running_or_notify_cancel():
            future.set_result(effect)

    def _fail_replies(self, reason: str) -> None:
        for request_id in list(self._replies):
            future = self._replies.pop(request_id, None)  # the thread that pops it answers it
            if future is not None and future.set_running_or_notify_cancel():
                future.set_exception(WorkerStoppedError(self.name, reason))

    def check(self, timeout_s: float = 10.0) -> tuple[BrokenRule, ...]:
        """Check the rules between the parts of its core, on the core's thread; a broken one writes the recording.

        Raises:
            WorkerStoppedError: it has not started, or its core does not answer in time, as while it is paused.
        """
        recorded = self._recorded
        if recorded is None:
            raise WorkerStoppedError(self.name, "it has not started")
        answer: Future[tuple[BrokenRule, ...]] = Future()
        if self.alive:
            self._mailbox.call(lambda: answer.set_result(recorded.check()))
        else:  # nothing moves its core any more
            answer.set_result(recorded.check())
        try:
            broken = answer.result(timeout_s)
        except FutureTimeoutError:
            raise WorkerStoppedError(self.name, f"its core did not answer within {timeout_s:g} s") from None
        if broken:
            self._write_recording(f"a rule is broken: {'; '.join(map(str, broken))}")
        return broken

    def recordings(self, reason: str) -> tuple[Recording, ...]:
        """Return the latest steps of its core, its tasks and its clients, without secrets; empty before its start."""
        return self._recorder.recordings(reason)

    def _write_recording(self, reason: str) -> None:
        """Write the recording to a new file of this user, and log where it is."""
        try:
            if not (recordings := self.recordings(reason)):
                return
            descriptor, path = tempfile.mkstemp(prefix=f"connectx-{self.name}-", suffix=".jsonl")
            os.close(descriptor)
            write_recordings(Path(path), recordings)
        except (ConnectxError, OSError):  # the worker has a failure to report
            _log.warning("%s: its recording could not be written", self.name, exc_info=True)
        else:
            steps = len(recordings[0].entries)
            _log.error("%s: %s. Its last %d steps: connectx replay --core %s", self.name, reason, steps, path)

    def _handle(self, stimulus: messages.Posted) -> None:
        assert self._recorded is not None
        if isinstance(stimulus, messages.InternalTopicsFailed):
            self._fail(WorkerStoppedError(self.name, f"its internal topics have failed ({stimulus.error})"))
            return
        if isinstance(stimulus, group_messages.HeartbeatReplied) and stimulus.error in (None, "REBALANCE_IN_PROGRESS"):
            self._heartbeat_ms = self._clock()
        step = self._recorded.handle(stimulus, self._clock())
        if step.ignored is not None:
            _log.debug("%s ignores %s: %s", self.name, type(stimulus).__name__, step.ignored)
        for transition in step.transitions:
            if transition.kind is EventKind.TASK_REFUSED:
                connector, task = transition.connector, transition.task
                _log.warning("%s does not start %s-%s: %s", self.name, connector, task, transition.cause)
            self._record(transition)
        self._session_key = step.shown.session_key
        for effect in step.effects:
            if self._gone.is_set():
                return
            self._carry_out(effect)
        self._note_stages(step.shown)
        self._view = step.shown.view
        self._given.viewed(self._view)

    def _note_stages(self, shown: messages.WorkerShown) -> None:
        """Keep what the worker does, and for each request, with the time since when."""
        description = _STAGES.get(shown.view["state"])
        if description is not None and description != self._stage.description:
            self._stage = Stage(description, self._clock())
        for request_id, future in list(self._replies.items()):
            stage, description = future.stage, shown.stages.get(request_id)
            if description is None:
                if stage is not None and stage.completed_ms is None:
                    future.stage = replace(stage, completed_ms=self._clock())
            elif stage is None or stage.completed_ms is not None or stage.description != description:
                future.stage = Stage(description, self._clock())

    def _carry_out(self, effect: messages.Effect) -> None:  # one line per effect: a table
        match effect:
            case (
                group_messages.FindCoordinator()
                | group_messages.SendJoinGroup()
                | group_messages.SendSyncGroup()
                | group_messages.SendHeartbeat()
                | group_messages.SendLeaveGroup()
            ):
                self._group.execute(effect)
            case (
                messages.ReadConfigToEnd()
                | messages.ClaimConfigWrites()
                | messages.AbandonConfigWrites()
                | messages.WriteConfigRecords()
                | messages.WriteStatus()
            ):
                self._topics.execute(effect)
            case (
                messages.InitTaskProducer()
                | messages.BeginTask()
                | messages.SetTaskTargetState()
                | messages.StopTask()
                | messages.CancelTask()
            ):
                self._task_host.send_to_task(effect)
            case messages.SetConnectorTargetState() | messages.GenerateTaskConfigs() | messages.StopConnector():
                self._task_host.send_to_connector(effect)
            case messages.SetTimer():
                self._mailbox.set_timer(effect)
            case messages.StartConnector():
                self._task_host.start_connector(effect)
            case messages.PrepareTask():
                self._task_host.prepare_task(effect)
            case messages.SendTaskConfigs():
                self._calls.send_task_configs(effect, self._session_key)
            case messages.SendFenceRequest():
                self._calls.send_fence_request(effect, self._session_key)
            case messages.FenceProducers():
                self._calls.fence_producers(effect)
            case messages.CreateSessionKey():
                self._on_create_session_key(effect)
            case messages.SetLoggerLevel():
                self._loggers.execute(effect)
            case messages.Done() | messages.Refused() | messages.Forwarded():
                self._on_reply(effect)
            case messages.WorkerShutDown():
                self._on_shut_down(effect)
            case _:
                assert_never(effect)

    def _record(self, transition: Transition) -> None:
        self._metrics.observe(transition)
        self._given.record(transition, self.name)

    def _task_services(self) -> TaskServices:
        return TaskServices(
            worker=self.name,
            config=self._given.config,
            clients=self._clients,
            spark=self._given.spark,
            offsets=self._topics.offsets,
            post=self.post,
            record=lambda transition: self._record(masked_transition(transition, self._providers.masked)),
            clock=self._clock,
            pulse=self._pulse,
            place=self.view,
            ended=lambda task, instance: None,  # those who give the services on listen
            providers=self._providers,
        )

    def _pulse(self) -> None:
        self._unfrozen.wait()
        if self._gone.is_set():
            raise WorkerGone

    def _check_signature(
        self, key: SessionKeyRecord | None, body: bytes, signature: str | None, algorithm: str | None
    ) -> tuple[int, str] | None:
        accepted = self._given.config.inter_worker_verification_algorithms
        return signature_error(key, body, signature, algorithm, accepted)

    def _on_create_session_key(self, effect: messages.CreateSessionKey) -> None:
        self.post(messages.SessionKeyCreated(effect.request_id, secrets.token_bytes(effect.key_bytes), self._clock()))

    def _on_shut_down(self, effect: messages.WorkerShutDown) -> None:
        if effect.error is None:
            self._over.set()
        else:
            self._fail(WorkerStoppedError(self.name, effect.error))
