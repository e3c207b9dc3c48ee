"""Stimuli and effects of a worker's core.

A *stimulus* is a fact that reached the worker; an *effect* is an order to the driver. Every effect that has an answer
carries a `request_id`; the answer brings it back, and an answer to a request that the core no longer waits for is
ignored, with a reason in the step. `connectx.core.group_messages` has those of the group.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from connectx.core.group_messages import GroupEffect, GroupStimulus
from connectx.core.replies import Body
from connectx.core.step import Step
from connectx.core.timer_keys import TimerKey
from connectx.core.verbs import Verb
from connectx.model.config_records import ConfigRecord, SessionKeyRecord
from connectx.model.ids import TaskId
from connectx.model.states import TargetState
from connectx.model.status_records import StatusRecord
from connectx.values import Value


class OfTask(Value):
    """Base of what is about an instance of a task."""

    task: TaskId
    instance: int


class OfConnector(Value):
    """Base of what is about an instance of a connector."""

    connector: str
    instance: int


class OfRequest(Value):
    """Base of effects that are answered, and of requests and their replies."""

    request_id: int


class EffectAnswer(OfRequest):
    """Base of answers; `error` is why the effect was not carried out."""

    error: str | None = None


class SetTimer(Value):
    """Deliver TimerFired(key, token) at `at_ms` of the core's clock; replaces a timer with the same key."""

    key: TimerKey
    token: int
    at_ms: int


class TimerFired(Value):
    """A timer's time has come; ignored when the core has set that key again since."""

    key: TimerKey
    token: int


class ReadConfigToEnd(OfRequest):
    """Flush, take the end offset now, deliver every record up to it, then ConfigReadToEnd.

    `timeout_ms` None waits without limit.
    """

    timeout_ms: int | None


class ConfigReadToEnd(EffectAnswer):
    """Answer to ReadConfigToEnd, after the records themselves; `error` is why the end was not reached."""


class ConfigRecordRead(Value):
    """One record of the config topic, in log order."""

    log_offset: int
    record: ConfigRecord


class ClaimConfigWrites(OfRequest):
    """Create the leader's transactional producer and initialise it, which fences the former leader (KIP-618)."""


class AbandonConfigWrites(OfRequest):
    """End a claim or a write of the leader's producer without waiting for Kafka, and drop the producer.

    What was sent may still take effect. The request is answered with an error unless it was answered before; either
    way the core no longer waits for the answer.
    """


class ConfigWritesClaimed(EffectAnswer):
    """Answer to ClaimConfigWrites."""


class WriteConfigRecords(OfRequest):
    """Append records to the config topic.

    `privileged` records are the leader's: one transaction of the claimed producer when exactly-once is preparing or
    enabled. Others go through the ordinary producer. Answered by ConfigRecordsWritten.
    """

    records: tuple[ConfigRecord, ...]
    privileged: bool


class ConfigRecordsWritten(EffectAnswer):
    """Answer to WriteConfigRecords; `fenced` when another leader has taken over."""

    fenced: bool = False


class WriteStatus(Value):
    """Append to the status topic, without an answer; the driver retries while it can."""

    record: StatusRecord


class StatusRecordRead(Value):
    """One record of the status topic, and when it was written (Unix time)."""

    record: StatusRecord
    timestamp_ms: int | None = None


class InternalTopicsFailed(Value):
    """Reading or writing the internal topics has ended permanently. The driver ends the worker; no core takes this."""

    error: str


class StartConnector(OfConnector):
    """Instantiate, initialise and start a connector; answered by ConnectorStarted or ConnectorFailed."""

    config: Mapping[str, str | None]
    target_state: TargetState


class StopConnector(OfConnector):
    """Stop the instance; answered by ConnectorStopped, or left alone after a fixed limit."""


class SetConnectorTargetState(OfConnector):
    """Pause, resume or stop a live connector; answered by ConnectorStateReached."""

    target_state: TargetState


class GenerateTaskConfigs(OfConnector):
    """Ask the instance for its task configs; answered by TaskConfigsGenerated."""

    config: Mapping[str, str | None]


class ConnectorStarted(OfConnector):
    """The connector runs (or is paused or stopped, as `state` asked)."""

    state: TargetState
    version: str | None = None


class ConnectorStateReached(OfConnector):
    state: TargetState


class ConnectorFailed(OfConnector):
    """The instance failed, while starting or later by its own report."""

    trace: str


class ConnectorStopped(OfConnector):
    """The instance ended."""


class TaskReconfigurationRequested(OfConnector):
    """The instance reports changed task configs (ConnectorContext.requestTaskReconfiguration)."""


class TaskConfigsGenerated(OfConnector):
    """Answer to GenerateTaskConfigs: complete task properties as they go to the config topic, or an error."""

    task_configs: tuple[Mapping[str, str | None], ...] = ()
    error: str | None = None


class SendTaskConfigs(OfRequest):
    """POST task configs to the leader, signed; answered by TaskConfigsSent."""

    leader_url: str
    connector: str
    task_configs: tuple[Mapping[str, str | None], ...]


class TaskConfigsSent(EffectAnswer):
    """Answer to SendTaskConfigs."""


class PrepareTask(OfTask):
    """Create the task's runtime (own thread, plugins, no clients yet): answered by TaskPrepared or TaskFailed.

    `task_count` is how many tasks its connector has; the task fails if that is more than it may have (KIP-1004).
    """

    connector_config: Mapping[str, str | None]
    task_config: Mapping[str, str | None]
    target_state: TargetState
    generation: int
    exactly_once: bool
    task_count: int


class TaskPrepared(OfTask):
    """The task's class could be instantiated and its configuration is sound."""

    version: str | None = None


class InitTaskProducer(OfTask):
    """Initialise transactions on the task's producer: fences older instances. Answered by TaskProducerReady."""


class TaskProducerReady(OfTask):
    producer_epoch: int | None = None


class BeginTask(OfTask):
    """Start the task: read offsets, initialise, start, go into the loop. Answered by TaskStateReached."""


class SetTaskTargetState(OfTask):
    """Pause or resume a task, maybe before it begins; answered by TaskStateReached once it has begun."""

    target_state: TargetState


class StopTask(OfTask):
    """Stop gracefully: finish and commit what was dispatched, then TaskStopped."""


class CancelTask(OfTask):
    """The graceful time is over: close clients without waiting, suppress commits. The thread may become a zombie."""


class TaskStateReached(OfTask):
    """The task runs (`paused` False) or is paused."""

    paused: bool


class TaskFailed(OfTask):
    """The task failed. `fenced` when its producer was fenced by another, of `newer_epoch`."""

    trace: str
    fenced: bool = False
    newer_epoch: int | None = None


class TaskStopped(OfTask):
    """The task's thread has ended after StopTask (or after CancelTask, late)."""


class TopicUsed(Value):
    """A task saw a topic for the first time (KIP-558)."""

    task: TaskId
    topic: str


class SendFenceRequest(OfRequest):
    """PUT /connectors/{c}/fence at the leader, signed; answered by FenceRequestAnswered."""

    leader_url: str
    connector: str


class FenceRequestAnswered(EffectAnswer):
    """Answer to SendFenceRequest.

    `retriable` when the leader was away, moving or rebalancing; `refused` when it did not take the signature (403).
    """

    retriable: bool = False
    refused: bool = False


class FenceProducers(OfRequest):
    """Fence these transactional ids with the connector's admin settings; answered by ProducersFenced."""

    connector: str
    config: Mapping[str, str | None]
    transactional_ids: tuple[str, ...]


class ProducersFenced(EffectAnswer):
    """Answer to FenceProducers."""


class CreateSessionKey(OfRequest):
    """Draw a new random key; answered by SessionKeyCreated."""

    key_bytes: int


class SetLoggerLevel(Value):
    """Set the level of a logger and of those below it: a command for all workers was read (KIP-976)."""

    namespace: str
    level: str


class SessionKeyCreated(OfRequest):
    """Answer to CreateSessionKey. The key is a secret."""

    key: bytes = field(repr=False)
    creation_timestamp_ms: int = 0


class Request(OfRequest):
    """A request from REST or the worker's owner."""

    verb: Verb


class Done(OfRequest):
    """A request was carried out: an HTTP status below 300, and the body that its verb asks for."""

    status: int
    body: Body = None


class Refused(OfRequest):
    """A request was not carried out: an HTTP status of 400 and above, and why."""

    status: int
    message: str


class Forwarded(OfRequest):
    """Another worker decides about a request: the leader, or the owner of its connector or task."""

    worker_url: str


Reply = Done | Refused | Forwarded
"""Answer to a Request: each gets one."""


class WorkerStarted(Value):
    """Internal topics were read to their end at start-up; the worker may join the group."""


class ShutdownRequested(Value):
    """Stop gracefully: stop all work, leave the group, then WorkerShutDown."""


class WorkerShutDown(Value):
    """Effect: nothing is left to do; the driver may close the worker's clients.

    `error` is None after ShutdownRequested; otherwise the worker ended by itself, and this is why.
    """

    error: str | None = None


Answer = (
    ConfigReadToEnd
    | ConfigRecordsWritten
    | ConfigWritesClaimed
    | SessionKeyCreated
    | ProducersFenced
    | FenceRequestAnswered
    | TaskConfigsSent
)
"""Answers to effects of the herder, by request id."""

Effect = (
    GroupEffect
    | SetTimer
    | ReadConfigToEnd
    | ClaimConfigWrites
    | AbandonConfigWrites
    | WriteConfigRecords
    | WriteStatus
    | StartConnector
    | StopConnector
    | SetConnectorTargetState
    | GenerateTaskConfigs
    | SendTaskConfigs
    | PrepareTask
    | InitTaskProducer
    | BeginTask
    | SetTaskTargetState
    | StopTask
    | CancelTask
    | SendFenceRequest
    | FenceProducers
    | CreateSessionKey
    | SetLoggerLevel
    | Reply
    | WorkerShutDown
)
Stimulus = (
    GroupStimulus
    | TimerFired
    | ConfigReadToEnd
    | ConfigRecordRead
    | ConfigWritesClaimed
    | ConfigRecordsWritten
    | StatusRecordRead
    | ConnectorStarted
    | ConnectorStateReached
    | ConnectorFailed
    | ConnectorStopped
    | TaskReconfigurationRequested
    | TaskConfigsGenerated
    | TaskConfigsSent
    | TaskPrepared
    | TaskProducerReady
    | TaskStateReached
    | TaskFailed
    | TaskStopped
    | TopicUsed
    | FenceRequestAnswered
    | ProducersFenced
    | SessionKeyCreated
    | Request
    | WorkerStarted
    | ShutdownRequested
)
"""What the core takes."""

Posted = Stimulus | InternalTopicsFailed
"""What is posted to a worker's mailbox."""


WorkerStep = Step[Effect]


class WorkerShown(Value):
    """What each step of a worker shows to its driver.

    Attributes:
        view: the worker's place in the group (`connectx.core.verbs`, *worker*).
        session_key: signs requests to other workers; None before the leader has written one.
        stages: what each request waits for that has no reply yet, by request id, to follow "the worker is currently".
    """

    view: Mapping[str, Any]
    session_key: SessionKeyRecord | None = field(repr=False)
    stages: Mapping[int, str] = field(default_factory=dict)
