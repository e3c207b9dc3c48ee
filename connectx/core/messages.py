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


class SetTimer(Value):
    """Deliver TimerFired(key, token) at `at_ms` of the core's clock; replaces a timer with the same key."""

    key: TimerKey
    token: int
    at_ms: int


class TimerFired(Value):
    """A timer's time has come; ignored when the core has set that key again since."""

    key: TimerKey
    token: int


class ReadConfigToEnd(Value):
    """Flush, take the end offset now, deliver every record up to it, then ConfigReadToEnd.

    `timeout_ms` None waits without limit.
    """

    request_id: int
    timeout_ms: int | None


class ConfigReadToEnd(Value):
    """Answer to ReadConfigToEnd, after the records themselves; `error` is why the end was not reached."""

    request_id: int
    error: str | None = None


class ConfigRecordRead(Value):
    """One record of the config topic, in log order."""

    log_offset: int
    record: ConfigRecord


class ClaimConfigWrites(Value):
    """Create the leader's transactional producer and initialise it, which fences the former leader (KIP-618)."""

    request_id: int


class AbandonConfigWrites(Value):
    """End a claim or a write of the leader's producer without waiting for Kafka, and drop the producer.

    What was sent may still take effect. The request is answered with an error unless it was answered before; either
    way the core no longer waits for the answer.
    """

    request_id: int


class ConfigWritesClaimed(Value):
    request_id: int
    error: str | None = None


class WriteConfigRecords(Value):
    """Append records to the config topic.

    `privileged` records are the leader's: one transaction of the claimed producer when exactly-once is preparing or
    enabled. Others go through the ordinary producer. Answered by ConfigRecordsWritten.
    """

    request_id: int
    records: tuple[ConfigRecord, ...]
    privileged: bool


class ConfigRecordsWritten(Value):
    """Answer to WriteConfigRecords; `fenced` when another leader has taken over."""

    request_id: int
    error: str | None = None
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


class StartConnector(Value):
    """Instantiate, initialise and start a connector; answered by ConnectorStarted or ConnectorFailed."""

    connector: str
    instance: int
    config: Mapping[str, str | None]
    target_state: TargetState


class StopConnector(Value):
    """Stop the instance; answered by ConnectorStopped, or left alone after a fixed limit."""

    connector: str
    instance: int


class SetConnectorTargetState(Value):
    """Pause, resume or stop a live connector; answered by ConnectorStateReached."""

    connector: str
    instance: int
    target_state: TargetState


class GenerateTaskConfigs(Value):
    """Ask the instance for its task configs; answered by TaskConfigsGenerated."""

    connector: str
    instance: int
    config: Mapping[str, str | None]


class ConnectorStarted(Value):
    """The connector runs (or is paused or stopped, as `state` asked)."""

    connector: str
    instance: int
    state: TargetState
    version: str | None = None


class ConnectorStateReached(Value):
    connector: str
    instance: int
    state: TargetState


class ConnectorFailed(Value):
    """The instance failed, while starting or later by its own report."""

    connector: str
    instance: int
    trace: str


class ConnectorStopped(Value):
    connector: str
    instance: int


class TaskReconfigurationRequested(Value):
    """The instance reports changed task configs (ConnectorContext.requestTaskReconfiguration)."""

    connector: str
    instance: int


class TaskConfigsGenerated(Value):
    """Answer to GenerateTaskConfigs: complete task properties as they go to the config topic, or an error."""

    connector: str
    instance: int
    task_configs: tuple[Mapping[str, str | None], ...] = ()
    error: str | None = None


class SendTaskConfigs(Value):
    """POST task configs to the leader, signed; answered by TaskConfigsSent."""

    request_id: int
    leader_url: str
    connector: str
    task_configs: tuple[Mapping[str, str | None], ...]


class TaskConfigsSent(Value):
    request_id: int
    error: str | None = None


class PrepareTask(Value):
    """Create the task's runtime (own thread, plugins, no clients yet): answered by TaskPrepared or TaskFailed."""

    task: TaskId
    instance: int
    connector_config: Mapping[str, str | None]
    task_config: Mapping[str, str | None]
    target_state: TargetState
    generation: int
    exactly_once: bool


class TaskPrepared(Value):
    """The task's class could be instantiated and its configuration is sound."""

    task: TaskId
    instance: int
    version: str | None = None


class InitTaskProducer(Value):
    """Initialise transactions on the task's producer: fences older instances. Answered by TaskProducerReady."""

    task: TaskId
    instance: int


class TaskProducerReady(Value):
    task: TaskId
    instance: int
    producer_epoch: int | None = None


class BeginTask(Value):
    """Start the task: read offsets, initialise, start, go into the loop. Answered by TaskStateReached."""

    task: TaskId
    instance: int


class SetTaskTargetState(Value):
    """Pause or resume a task, maybe before it begins; answered by TaskStateReached once it has begun."""

    task: TaskId
    instance: int
    target_state: TargetState


class StopTask(Value):
    """Stop gracefully: finish and commit what was dispatched, then TaskStopped."""

    task: TaskId
    instance: int


class CancelTask(Value):
    """The graceful time is over: close clients without waiting, suppress commits. The thread may become a zombie."""

    task: TaskId
    instance: int


class TaskStateReached(Value):
    """The task runs (`paused` False) or is paused."""

    task: TaskId
    instance: int
    paused: bool


class TaskFailed(Value):
    """The task failed. `fenced` when its producer was fenced by another, of `newer_epoch`."""

    task: TaskId
    instance: int
    trace: str
    fenced: bool = False
    newer_epoch: int | None = None


class TaskStopped(Value):
    """The task's thread has ended after StopTask (or after CancelTask, late)."""

    task: TaskId
    instance: int


class TopicUsed(Value):
    """A task saw a topic for the first time (KIP-558)."""

    task: TaskId
    topic: str


class SendFenceRequest(Value):
    """PUT /connectors/{c}/fence at the leader, signed; answered by FenceRequestAnswered."""

    request_id: int
    leader_url: str
    connector: str


class FenceRequestAnswered(Value):
    """Answer to SendFenceRequest.

    `retriable` when the leader was away, moving or rebalancing; `refused` when it did not take the signature (403).
    """

    request_id: int
    error: str | None = None
    retriable: bool = False
    refused: bool = False


class FenceProducers(Value):
    """Fence these transactional ids with the connector's admin settings; answered by ProducersFenced."""

    request_id: int
    connector: str
    config: Mapping[str, str | None]
    transactional_ids: tuple[str, ...]


class ProducersFenced(Value):
    request_id: int
    error: str | None = None


class CreateSessionKey(Value):
    """Draw a new random key; answered by SessionKeyCreated."""

    request_id: int
    key_bytes: int


class SetLoggerLevel(Value):
    """Set the level of a logger and of those below it: a command for all workers was read (KIP-976)."""

    namespace: str
    level: str


class SessionKeyCreated(Value):
    """Answer to CreateSessionKey. The key is a secret."""

    request_id: int
    key: bytes = field(repr=False)
    creation_timestamp_ms: int = 0


class Request(Value):
    """A request from REST or the worker's owner."""

    request_id: int
    verb: Verb


class Done(Value):
    """A request was carried out: an HTTP status below 300, and the body that its verb asks for."""

    request_id: int
    status: int
    body: Body = None


class Refused(Value):
    """A request was not carried out: an HTTP status of 400 and above, and why."""

    request_id: int
    status: int
    message: str


class Forwarded(Value):
    """Another worker decides about a request: the leader, or the owner of its connector or task."""

    request_id: int
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
    """

    view: Mapping[str, Any]
    session_key: SessionKeyRecord | None = field(repr=False)
