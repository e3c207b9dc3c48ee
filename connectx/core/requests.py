"""Requests of REST and of the worker's owner: answered from the snapshot, written to the config topic, or forwarded.

Decides who has to answer a request and what is refused meanwhile; every request gets exactly one reply, if only when
the worker ends. Mirrors the request half of Kafka Connect's DistributedHerder; verbs, arguments and replies are in
`connectx.core.verbs`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar, assert_never

from connectx.core import replies, rest_views, verbs
from connectx.core.config_writer import ConfigWriter
from connectx.core.connectors import Connectors
from connectx.core.context import Context, WorkerPhase
from connectx.core.fencing import FencingRounds
from connectx.core.group.leadership import Leadership
from connectx.core.messages import ConfigReadToEnd, Done, Forwarded, ReadConfigToEnd, Refused, Request, WriteStatus
from connectx.core.pending import ReadsFirst, RequestRead
from connectx.core.replies import Body
from connectx.core.signals import FencingOutcome, RequestOrigin, RequestWaiter, RestartOutcome, WriteKind, WriteOutcome
from connectx.core.tasks import Tasks
from connectx.core.verbs import Asks, Verb
from connectx.model.causes import RestartAsked
from connectx.model.config_records import LoggerLevelRecord, RestartRecord
from connectx.model.group import ProtocolVersion
from connectx.model.ids import TaskId
from connectx.model.states import TargetState
from connectx.model.status_records import TopicStatusRecord

_Reads = verbs.ConnectorInfo | verbs.ConnectorStatus | verbs.Tasks | verbs.TaskStatus | verbs.Offsets
_WhileStopping = _Reads | verbs.ConnectorConfig | verbs.ListConnectors | verbs.Topics
_FromSnapshot = _Reads | verbs.ConnectorConfig | verbs.Pause | verbs.Resume
_OfLeader = verbs.ConnectorConfig | verbs.Create | verbs.PutConfig | verbs.Delete | verbs.Stop
_Body = TypeVar("_Body", bound=Body)
_PENDING = (
    "Cannot complete request momentarily due to stale configuration (typically caused by a concurrent config change)"
)


@dataclass(slots=True)
class RequestHandler:
    """Requests that wait for a write to the config topic or a fencing round; reads are in `context.pending`."""

    context: Context
    writer: ConfigWriter
    fencing: FencingRounds
    leadership: Leadership
    connectors: Connectors
    tasks: Tasks
    fencing_offsets: dict[int, verbs.ModifyOffsets] = field(default_factory=dict)
    """Requests that wait for a fencing round, by request id."""
    planned: dict[int, replies.ConnectorStatus] = field(default_factory=dict)
    """Replies to restart requests whose command is being written, by request id."""
    restarting: dict[int, str | TaskId] = field(default_factory=dict)
    """What requests restart and wait for, by request id."""

    def on_request(self, request: Request) -> None:
        """Answer, forward, refuse, or begin what the request needs."""
        request_id, verb = request.request_id, request.verb
        if isinstance(verb, verbs.Worker):
            self._answer(request_id, verb, 200, rest_views.worker(self.context))
        elif not self._is_up_for(verb):
            self._refuse(request_id, 503, f"This worker is {self.context.phase}; ask another one, or try again")
        else:
            self._on_verb(request_id, verb)

    def _on_verb(self, request_id: int, verb: Verb) -> None:
        match verb:
            case verbs.Worker():
                self._answer(request_id, verb, 200, rest_views.worker(self.context))
            case verbs.ListConnectors():
                self._answer(request_id, verb, 200, rest_views.connectors(self.context, verb.expand))
            case verbs.Topics() | verbs.ResetTopics():
                self._on_topics(request_id, verb)
            case verbs.LoggerLevel():
                self.writer.put_logger_level(LoggerLevelRecord(verb.namespace, verb.level), RequestOrigin(request_id))
            case verbs.PutTaskConfigs() | verbs.Fence():
                self._on_internal(request_id, verb)
            case (
                verbs.ConnectorInfo()
                | verbs.ConnectorStatus()
                | verbs.Tasks()
                | verbs.TaskStatus()
                | verbs.Offsets()
                | verbs.Pause()
                | verbs.Resume()
                | verbs.ConnectorConfig(leader=False)
            ):
                self._answer_from_snapshot(request_id, verb)
            case _ if not self.context.group.settled:
                self._refuse(request_id, 409, _PENDING)
            case verbs.RestartConnector() | verbs.RestartTask() | verbs.ModifyOffsets():
                self._read_first(request_id, verb)
            case verbs.ConnectorConfig() | verbs.Create() | verbs.PutConfig() | verbs.Delete() | verbs.Stop():
                if self._is_for_leader(request_id):
                    self._on_leader_verb(request_id, verb)
            case _:
                assert_never(verb)

    def on_config_read(self, waiting: RequestRead, stimulus: ConfigReadToEnd) -> None:
        """The config topic was read to its end for a request."""
        request_id, verb = waiting.request_id, waiting.verb
        if stimulus.error is not None:
            self._refuse(request_id, 500, f"Failed to read to the end of the config topic: {stimulus.error}")
        elif self._is_still_possible(request_id, verb):
            self._after_read(request_id, verb)

    def _after_read(self, request_id: int, verb: ReadsFirst) -> None:
        match verb:
            case verbs.RestartTask():
                self._restart_task(request_id, verb)
            case verbs.RestartConnector():
                self._restart_connector(request_id, verb)
            case verbs.ModifyOffsets():
                if not self._is_stopped(request_id, verb.connector):
                    return
                if self.context.runs_exactly_once(verb.connector):
                    self.fencing_offsets[request_id] = verb
                    self.fencing.request(verb.connector, RequestWaiter(request_id))
                else:
                    self._permit_offsets(request_id, verb)
            case _:
                assert_never(verb)

    def on_written(self, outcome: WriteOutcome, request_id: int) -> None:
        """The write of a request can be read back, or failed."""
        plan = self.planned.pop(request_id, None)
        if outcome.error is not None:
            self._refuse(request_id, outcome.status, outcome.error)
        elif outcome.kind in (WriteKind.CREATE, WriteKind.PUT):
            self._reply(request_id, outcome.status, rest_views.connector_info(self.context, outcome.connector))
        else:
            self._reply(request_id, outcome.status, plan)

    def on_restarted(self, outcome: RestartOutcome) -> None:
        """What a request restarts has started, or has failed to."""
        del self.restarting[outcome.request_id]
        if outcome.error is None:
            self._reply(outcome.request_id, 204)
        else:
            self._refuse(outcome.request_id, 500, outcome.error)

    def on_fenced(self, outcome: FencingOutcome, waiter: RequestWaiter) -> None:
        """A fencing round that a request waited for has ended."""
        verb = self.fencing_offsets.pop(waiter.request_id, None)
        if outcome.error is not None:
            self._refuse(waiter.request_id, outcome.status, outcome.error)
        elif verb is None:
            self._reply(waiter.request_id, 204)
        elif self._is_still_possible(waiter.request_id, verb) and self._is_stopped(waiter.request_id, verb.connector):
            self._permit_offsets(waiter.request_id, verb)

    def stages(self) -> dict[int, str]:
        """What each request without a reply waits for, in the words of Kafka Connect's stages."""
        found: dict[int, str] = {}
        for waiting in self.context.pending.waiting.values():
            if isinstance(waiting, RequestRead):
                found[waiting.request_id] = "reading to the end of the config topic"
        for write in self.writer.queue:
            if isinstance(write.origin, RequestOrigin):
                found[write.origin.request_id] = self.writer.stage()
        for request_id, connector in self.fencing.requests():
            found[request_id] = f"initiating a round of zombie fencing for connector {connector}"
        for request_id, work in self.restarting.items():
            found[request_id] = f"restarting task {work}" if isinstance(work, TaskId) else self.connectors.stage(work)
        return found

    def close(self, error: str) -> None:
        """The worker ends: refuse what waits for a read. Writes and fencing rounds end by themselves."""
        for read_id, waiting in list(self.context.pending.waiting.items()):
            if isinstance(waiting, RequestRead):
                self.context.pending.drop(read_id)
                self._refuse(waiting.request_id, 503, error)

    def _is_up_for(self, verb: Verb) -> bool:
        phase = self.context.phase
        return phase is WorkerPhase.RUNNING or (phase is WorkerPhase.STOPPING and isinstance(verb, _WhileStopping))

    def _on_topics(self, request_id: int, verb: verbs.Topics | verbs.ResetTopics) -> None:
        settings, topics = self.context.settings.worker, list(self.context.status.topics(verb.connector))
        if not settings.topic_tracking_enable:
            self._refuse(request_id, 403, "Topic tracking is disabled.")
        elif isinstance(verb, verbs.Topics):
            used: dict[str, replies.UsedTopics] = {verb.connector: {"topics": topics}}
            self._answer(request_id, verb, 200, used)
        elif not settings.topic_tracking_allow_reset:
            self._refuse(request_id, 403, "Topic tracking reset is disabled.")
        else:
            for topic in topics:
                self.context.emit(WriteStatus(TopicStatusRecord(topic, verb.connector, None)))
            self._answer(request_id, verb, 202, None)

    def _answer_from_snapshot(self, request_id: int, verb: _FromSnapshot) -> None:
        context, connector = self.context, verb.connector
        config = context.config.connector_config(connector)
        if config is None:
            self._refuse(request_id, 404, _not_found(verb))
            return
        match verb:
            case verbs.ConnectorInfo():
                self._answer(request_id, verb, 200, rest_views.connector_info(context, connector))
            case verbs.ConnectorConfig():
                self._answer(request_id, verb, 200, config)
            case verbs.ConnectorStatus():
                status = rest_views.connector_status(context, connector)
                self._answer_status(request_id, verb, status, f"connector {connector}")
            case verbs.Tasks():
                self._answer(request_id, verb, 200, rest_views.tasks(context, connector))
            case verbs.TaskStatus():
                task = TaskId(connector, verb.task)
                self._answer_status(request_id, verb, rest_views.task_status(context, task), f"task {task}")
            case verbs.Offsets():
                self._permit_offsets(request_id, verb)
            case verbs.Pause():
                self.writer.put_target_state(connector, TargetState.PAUSED, RequestOrigin(request_id))
            case verbs.Resume():
                self.writer.put_target_state(connector, TargetState.STARTED, RequestOrigin(request_id))
            case _:
                assert_never(verb)

    def _answer_status(self, request_id: int, verb: Asks[_Body], status: _Body | None, of: str) -> None:
        if status is None:
            self._refuse(request_id, 404, f"No status found for {of}")
        else:
            self._answer(request_id, verb, 200, status)

    def _is_for_leader(self, request_id: int) -> bool:
        """True when this worker leads; otherwise the request was answered or forwarded."""
        group = self.context.group
        if group.is_leader:
            return True
        if group.leader_url:
            self.context.emit(Forwarded(request_id, group.leader_url))
        else:
            self._refuse(request_id, 409, "The leader of the group is not known at the moment; try again")
        return False

    def _on_leader_verb(self, request_id: int, verb: _OfLeader) -> None:
        config, origin = self.context.config.connector_config(verb.connector), RequestOrigin(request_id)
        match verb:
            case verbs.Create():
                self.writer.create_connector(verb.connector, verb.config, verb.initial_state, origin)
            case verbs.PutConfig():
                self.writer.put_connector(verb.connector, verb.config, verb.expected, origin)
            case _ if config is None:
                self._refuse(request_id, 404, _not_found(verb))
            case verbs.ConnectorConfig():
                self._answer(request_id, verb, 200, config)
            case verbs.Delete():
                self.writer.delete_connector(verb.connector, origin)
            case verbs.Stop():
                self.writer.stop_connector(verb.connector, origin)
            case _:
                assert_never(verb)

    def _on_internal(self, request_id: int, verb: verbs.PutTaskConfigs | verbs.Fence) -> None:
        if (refusal := self._signature_error(verb)) is not None:
            self._refuse(request_id, *refusal)
        elif self._is_for_leader(request_id):  # also during a rebalance: the leader's rights are what counts
            if isinstance(verb, verbs.PutTaskConfigs):
                self.writer.put_task_configs(verb.connector, verb.task_configs, RequestOrigin(request_id))
            else:
                self.fencing.request(verb.connector, RequestWaiter(request_id))

    def _signature_error(self, verb: verbs.PutTaskConfigs | verbs.Fence) -> tuple[int, str] | None:
        if self.context.group.protocol is not ProtocolVersion.SESSIONED:
            return None
        return self.context.settings.check_signature(
            self.context.session_key, verb.body, verb.signature, verb.algorithm
        )

    def _read_first(self, request_id: int, verb: ReadsFirst) -> None:
        if _is_of_leader(verb):
            is_mine = self._is_for_leader(request_id)
        else:  # an unknown name may be in records that this worker has not read yet
            is_mine = not self._is_known(verb) or self._is_owned_here(request_id, verb)
        if is_mine:
            read_id = self.context.new_request_id(RequestRead(request_id, verb))
            self.context.emit(ReadConfigToEnd(read_id, self.context.settings.worker.worker_sync_timeout_ms))

    def _is_still_possible(self, request_id: int, verb: ReadsFirst) -> bool:
        """True when nothing that the request needs has changed while it waited; otherwise it was answered."""
        if not self._is_known(verb):
            has_connector = self.context.config.contains(verb.connector)
            self._refuse(request_id, 404, _not_found(verb, has_connector=has_connector))
        elif not self.context.group.settled:
            self._refuse(request_id, 409, _PENDING)
        else:
            return not _is_of_leader(verb) or self._is_for_leader(request_id)
        return False

    def _is_known(self, verb: ReadsFirst) -> bool:
        work = _work_of(verb)
        if isinstance(work, TaskId):
            return self.context.config.has_task(work)
        return self.context.config.contains(work)

    def _is_owned_here(self, request_id: int, verb: ReadsFirst) -> bool:
        """True when this worker runs what shall be restarted; otherwise the request was answered or forwarded."""
        group, work = self.context.group, _work_of(verb)
        if work in group.work.connectors or work in group.work.tasks:
            return True
        url = self.leadership.owner_url(work) if group.is_leader else group.leader_url
        if url and url != self.context.settings.url:
            self.context.emit(Forwarded(request_id, url))
        else:
            self._refuse(request_id, 409, f"The worker that runs {work} is not known at the moment; try again")
        return False

    def _restart_task(self, request_id: int, verb: verbs.RestartTask) -> None:
        task = TaskId(verb.connector, verb.task)
        if task not in self.context.group.work.tasks:
            self._refuse(request_id, 409, f"Task {task} is no longer assigned to this worker")
        else:
            self._restart(task, request_id)

    def _restart_connector(self, request_id: int, verb: verbs.RestartConnector) -> None:
        connector, include_tasks, only_failed = verb.connector, verb.include_tasks, verb.only_failed
        if verb.is_of_leader:
            plan = rest_views.restart_plan(
                self.context, connector, include_tasks=include_tasks, only_failed=only_failed
            )
            if plan is None:
                self._refuse(request_id, 404, f"Status for connector {connector} not found")
                return
            self.planned[request_id] = plan
            self.writer.put_restart(RestartRecord(connector, include_tasks, only_failed), RequestOrigin(request_id))
        elif connector not in self.context.group.work.connectors:
            self._refuse(request_id, 409, f"Connector {connector} is no longer assigned to this worker")
        else:
            self._restart(connector, request_id)

    def execute_restart(self, connector: str, *, include_tasks: bool, only_failed: bool) -> None:
        """A restart record was read (KIP-745): do the part that runs here."""
        work = self.context.group.work
        if connector in work.connectors and (not only_failed or self.connectors.is_failed(connector)):
            self._restart(connector)
        for task in work.tasks:
            wanted = include_tasks and task.connector == connector
            if wanted and (not only_failed or self.tasks.is_failed(task)):
                self._restart(task)

    def _restart(self, work: str | TaskId, *request_ids: int) -> None:
        """Restart what is assigned here. A pending rebalance starts the rest from scratch anyway.

        The requests are answered when it has started, or has failed to.
        """
        cause = RestartAsked()
        self.restarting.update(dict.fromkeys(request_ids, work))
        if isinstance(work, TaskId):
            if work in self.tasks.lives:
                self.tasks.restart(work, cause, request_ids)
            elif self.context.group.settled:
                self.tasks.start(work, cause, request_ids)
        elif work in self.connectors.lives:
            self.connectors.restart(work, cause, request_ids)
        elif self.context.group.settled:
            self.connectors.start(work, cause, request_ids)

    def _is_stopped(self, request_id: int, connector: str) -> bool:
        """True when the connector is STOPPED and has no tasks; otherwise the request was answered."""
        config = self.context.config
        if config.target_state(connector) is TargetState.STOPPED and config.task_count(connector) == 0:
            return True
        reason = (
            "Connectors must be in the STOPPED state before their offsets can be modified. This can be done for the "
            f"specified connector by issuing a 'PUT' request to the '/connectors/{connector}/stop' endpoint"
        )
        self._refuse(request_id, 400, reason)
        return False

    def _permit_offsets(self, request_id: int, verb: verbs.Offsets | verbs.ModifyOffsets) -> None:
        config = self.context.config.connector_config(verb.connector)
        assert config is not None, "checked"
        permit: replies.OffsetsPermit = {
            "type": self.context.connector_type(verb.connector).value,
            "config": config,
        }
        self._answer(request_id, verb, 200, permit)

    def _answer(self, request_id: int, verb: Asks[_Body], status: int, body: _Body) -> None:
        """Reply with the body that the verb asks for."""
        self._reply(request_id, status, body)

    def _reply(self, request_id: int, status: int, body: Body = None) -> None:
        self.context.emit(Done(request_id, status, body))

    def _refuse(self, request_id: int, status: int, message: str) -> None:
        self.context.emit(Refused(request_id, status, message))


def _is_of_leader(verb: ReadsFirst) -> bool:
    """True for offsets, and for restarts that go through the config topic (KIP-745); else the owner restarts."""
    return isinstance(verb, verbs.ModifyOffsets) or (isinstance(verb, verbs.RestartConnector) and verb.is_of_leader)


def _work_of(verb: ReadsFirst) -> str | TaskId:
    """The task or the connector that a verb is about."""
    return TaskId(verb.connector, verb.task) if isinstance(verb, verbs.RestartTask) else verb.connector


def _not_found(verb: _FromSnapshot | _OfLeader | ReadsFirst, *, has_connector: bool = False) -> str:
    """What Kafka Connect's herders say of an unknown connector or task; each verb has separate words."""
    name = verb.connector
    match verb:
        case verbs.RestartTask() if has_connector:
            return f"Unknown task: {TaskId(name, verb.task)}"
        case verbs.RestartTask() | verbs.RestartConnector():
            return f"Unknown connector: {name}"
        case verbs.Pause() | verbs.Resume() | verbs.Stop():
            return f"Unknown connector {name}"
        case verbs.ConnectorStatus():
            return f"No status found for connector {name}"
        case verbs.TaskStatus():
            return f"No status found for task {TaskId(name, verb.task)}"
        case _:
            return f"Connector {name} not found"
