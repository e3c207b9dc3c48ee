"""Requests of REST and of the worker's owner: answered from the snapshot, written to the config topic, or forwarded.

Decides who has to answer a request and what is refused meanwhile; every request gets exactly one reply, if only when
the worker ends. Mirrors the request half of Kafka Connect's DistributedHerder; verbs, arguments and replies are in
`connectx.core.verbs`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from connectx.core import rest_views
from connectx.core.config_writer import ConfigWriter, RequestOrigin, WriteKind, WriteOutcome
from connectx.core.connectors import Connectors
from connectx.core.context import Context, WorkerPhase
from connectx.core.fencing import FencingOutcome, FencingRounds, RequestWaiter
from connectx.core.group.leadership import Leadership
from connectx.core.messages import ConfigReadToEnd, ReadConfigToEnd, Reply, Request, WriteStatus
from connectx.core.tasks import Tasks
from connectx.core.verbs import Verb
from connectx.model.config_records import LoggerLevelRecord, RestartRecord
from connectx.model.group import ProtocolVersion
from connectx.model.ids import TaskId
from connectx.model.states import TargetState
from connectx.model.status_records import TopicStatusRecord

_OF_CLUSTER = frozenset({Verb.LIST_CONNECTORS, Verb.TOPICS, Verb.TOPICS_RESET})
_READS = frozenset({Verb.CONNECTOR_INFO, Verb.CONNECTOR_STATUS, Verb.TASKS, Verb.TASK_STATUS, Verb.OFFSETS})
_ANYWHERE = _READS | {Verb.PAUSE, Verb.RESUME}
_WHILE_STOPPING = _READS | {Verb.CONNECTOR_CONFIG, Verb.LIST_CONNECTORS, Verb.TOPICS}
_READS_FIRST = frozenset({Verb.RESTART_CONNECTOR, Verb.RESTART_TASK, Verb.MODIFY_OFFSETS})
_PENDING = (
    "Cannot complete request momentarily due to stale configuration (typically caused by a concurrent config change)"
)


@dataclass(slots=True)
class RequestHandler:
    """Requests that wait for a read of the config topic or a write to it."""

    context: Context
    writer: ConfigWriter
    fencing: FencingRounds
    leadership: Leadership
    connectors: Connectors
    tasks: Tasks
    reading: dict[int, Request] = field(default_factory=dict)
    """Requests by the id of the read that they wait for."""
    fencing_offsets: dict[int, Request] = field(default_factory=dict)
    """MODIFY_OFFSETS requests that wait for a fencing round, by request id."""
    planned: dict[int, Any] = field(default_factory=dict)
    """Replies to restart requests whose command is being written, by request id."""

    # ------------------------------------------------------------------------------------------- what comes in

    def on_request(self, request: Request) -> None:
        """Answer, forward, refuse, or begin what the request needs."""
        verb = Verb(request.verb)
        snapshot_config = verb is Verb.CONNECTOR_CONFIG and not request.args.get("leader")
        if verb is Verb.WORKER:
            self._reply(request, 200, rest_views.worker(self.context))
        elif not self._is_up_for(verb):
            self._reply(request, 503, f"This worker is {self.context.phase}; ask another one, or try again")
        elif verb in _OF_CLUSTER:
            self._answer_without_connector(request, verb)
        elif verb is Verb.LOGGER_LEVEL:
            record = LoggerLevelRecord(request.args["namespace"], request.args["level"])
            self.writer.put_logger_level(record, RequestOrigin(request.request_id))
        elif verb in (Verb.PUT_TASK_CONFIGS, Verb.FENCE):
            self._on_internal(request, verb)
        elif snapshot_config or verb in _ANYWHERE:
            self._answer_from_snapshot(request, verb)
        elif not self.context.group.settled:
            self._reply(request, 409, _PENDING)
        elif verb in _READS_FIRST:
            self._on_reading_verb(request, verb)
        elif self._is_for_leader(request):
            self._on_leader_verb(request, verb)

    def on_config_read(self, stimulus: ConfigReadToEnd) -> None:
        """The config topic was read to its end for a request."""
        request = self.reading.pop(stimulus.request_id, None)
        if request is None:
            return
        connector = request.connector or ""
        if stimulus.error is not None:
            self._reply(request, 500, f"Failed to read to the end of the config topic: {stimulus.error}")
        elif not self._is_still_possible(request):
            return
        elif request.verb == Verb.RESTART_TASK:
            self._restart_task(request, TaskId(connector, int(request.args["task"])))
        elif request.verb == Verb.RESTART_CONNECTOR:
            self._restart_connector(request, connector)
        elif not self._is_stopped(request, connector):
            return
        elif self.context.runs_exactly_once(connector):
            self.fencing_offsets[request.request_id] = request
            self.fencing.request(connector, RequestWaiter(request.request_id))
        else:
            self._permit_offsets(request, connector)

    def on_written(self, outcome: WriteOutcome, request_id: int) -> None:
        """The write of a request can be read back, or failed."""
        plan = self.planned.pop(request_id, None)
        if outcome.error is not None:
            self._answer(request_id, outcome.status, outcome.error)
        elif outcome.kind in (WriteKind.CREATE, WriteKind.PUT):
            self._answer(request_id, outcome.status, rest_views.connector_info(self.context, outcome.connector))
        else:
            self._answer(request_id, outcome.status, plan)

    def on_fenced(self, outcome: FencingOutcome, waiter: RequestWaiter) -> None:
        """A fencing round that a request waited for has ended."""
        request = self.fencing_offsets.pop(waiter.request_id, None)
        if outcome.error is not None:
            self._answer(waiter.request_id, outcome.status, outcome.error)
        elif request is None:
            self._answer(waiter.request_id, 204, None)
        elif self._is_still_possible(request) and self._is_stopped(request, request.connector or ""):
            self._permit_offsets(request, request.connector or "")

    def close(self, error: str) -> None:
        """The worker ends: refuse what waits for a read. Writes and fencing rounds end by themselves."""
        for request in self.reading.values():
            self._reply(request, 503, error)
        self.reading = {}

    def _is_up_for(self, verb: Verb) -> bool:
        phase = self.context.phase
        return phase is WorkerPhase.RUNNING or (phase is WorkerPhase.STOPPING and verb in _WHILE_STOPPING)

    # ----------------------------------------------------------------------------------------- from the snapshot

    def _answer_without_connector(self, request: Request, verb: Verb) -> None:
        settings = self.context.settings
        if verb is Verb.LIST_CONNECTORS:
            self._reply(request, 200, rest_views.connectors(self.context, request.args.get("expand") or ()))
        elif not settings.worker.topic_tracking_enable:
            self._reply(request, 403, "Topic tracking is disabled.")
        elif verb is Verb.TOPICS:
            topics = list(self.context.status.topics(request.connector or ""))
            self._reply(request, 200, {request.connector: {"topics": topics}})
        elif not settings.worker.topic_tracking_allow_reset:
            self._reply(request, 403, "Topic tracking reset is disabled.")
        else:
            for topic in list(self.context.status.topics(request.connector or "")):
                self.context.emit(WriteStatus(TopicStatusRecord(topic, request.connector or "", None)))
            self._reply(request, 202, None)

    def _answer_from_snapshot(self, request: Request, verb: Verb) -> None:
        context, connector = self.context, request.connector or ""
        if not context.config.contains(connector):
            self._reply(request, 404, f"Connector {connector} not found")
        elif verb is Verb.CONNECTOR_INFO:
            self._reply(request, 200, rest_views.connector_info(context, connector))
        elif verb is Verb.CONNECTOR_CONFIG:
            self._reply(request, 200, context.config.connector_config(connector))
        elif verb is Verb.CONNECTOR_STATUS:
            status = rest_views.connector_status(context, connector)
            missing = f"No status found for connector {connector}"
            self._reply(request, 404 if status is None else 200, missing if status is None else status)
        elif verb is Verb.TASKS:
            self._reply(request, 200, rest_views.tasks(context, connector))
        elif verb is Verb.TASK_STATUS:
            task = TaskId(connector, int(request.args["task"]))
            status = rest_views.task_status(context, task)
            self._reply(
                request,
                404 if status is None else 200,
                f"No status found for task {task}" if status is None else status,
            )
        elif verb is Verb.OFFSETS:
            self._permit_offsets(request, connector)
        else:
            state = TargetState.PAUSED if verb is Verb.PAUSE else TargetState.STARTED
            self.writer.put_target_state(connector, state, RequestOrigin(request.request_id))

    # ------------------------------------------------------------------------------------------------ the leader

    def _is_for_leader(self, request: Request) -> bool:
        """True when this worker leads; otherwise the request was answered or forwarded."""
        group = self.context.group
        if group.is_leader:
            return True
        if group.leader_url:
            self.context.emit(Reply(request.request_id, 200, forward_to=group.leader_url))
        else:
            self._reply(request, 409, "The leader of the group is not known at the moment; try again")
        return False

    def _on_leader_verb(self, request: Request, verb: Verb) -> None:
        config, connector = self.context.config, request.connector or ""
        origin = RequestOrigin(request.request_id)
        if verb is Verb.CREATE:
            state = request.args.get("initial_state")
            self.writer.create_connector(connector, request.args["config"], state, origin)
        elif verb is Verb.PUT_CONFIG:
            self.writer.put_connector(connector, request.args["config"], request.args.get("expected"), origin)
        elif not config.contains(connector):
            self._reply(request, 404, f"Connector {connector} not found")
        elif verb is Verb.CONNECTOR_CONFIG:
            self._reply(request, 200, config.connector_config(connector))
        elif verb is Verb.DELETE:
            self.writer.delete_connector(connector, origin)
        else:
            self.writer.stop_connector(connector, origin)

    # ------------------------------------------------------------------------------------------------ internal

    def _on_internal(self, request: Request, verb: Verb) -> None:
        if (refusal := self._signature_error(request.args)) is not None:
            self._reply(request, *refusal)
        elif self._is_for_leader(request):  # also during a rebalance: the leader's rights are what counts
            connector = request.connector or ""
            if verb is Verb.PUT_TASK_CONFIGS:
                origin = RequestOrigin(request.request_id)
                self.writer.put_task_configs(connector, request.args["task_configs"], origin)
            else:
                self.fencing.request(connector, RequestWaiter(request.request_id))

    def _signature_error(self, args: Mapping[str, Any]) -> tuple[int, str] | None:
        if self.context.group.protocol is not ProtocolVersion.SESSIONED:
            return None
        return self.context.settings.check_signature(
            self.context.session_key, args["body"], args.get("signature"), args.get("algorithm")
        )

    # ------------------------------------------------------------------------------- restarts, offsets (read first)

    def _on_reading_verb(self, request: Request, verb: Verb) -> None:
        if _is_of_leader(request):
            is_mine = self._is_for_leader(request)
        else:  # what this worker does not know may be in what it has not read yet
            is_mine = not self._is_known(request) or self._is_owned_here(request)
        if is_mine:
            request_id = self.context.new_request_id()
            self.reading[request_id] = request
            self.context.emit(ReadConfigToEnd(request_id, self.context.settings.worker.worker_sync_timeout_ms))

    def _is_still_possible(self, request: Request) -> bool:
        """True when nothing that the request needs has changed while it waited; otherwise it was answered."""
        if not self._is_known(request):
            work = _work_of(request)
            self._reply(request, 404, f"{'Task' if isinstance(work, TaskId) else 'Connector'} {work} not found")
        elif not self.context.group.settled:
            self._reply(request, 409, _PENDING)
        else:
            return not _is_of_leader(request) or self._is_for_leader(request)
        return False

    def _is_known(self, request: Request) -> bool:
        work = _work_of(request)
        if isinstance(work, TaskId):
            return self.context.config.has_task(work)
        return self.context.config.contains(work)

    def _is_owned_here(self, request: Request) -> bool:
        """True when this worker runs what shall be restarted; otherwise the request was answered or forwarded."""
        group, work = self.context.group, _work_of(request)
        if work in group.work.connectors or work in group.work.tasks:
            return True
        url = self.leadership.owner_url(work) if group.is_leader else group.leader_url
        if url and url != self.context.settings.url:
            self.context.emit(Reply(request.request_id, 200, forward_to=url))
        else:
            self._reply(request, 409, f"The worker that runs {work} is not known at the moment; try again")
        return False

    def _restart_task(self, request: Request, task: TaskId) -> None:
        if task not in self.context.group.work.tasks:
            self._reply(request, 409, f"Task {task} is no longer assigned to this worker")
        else:
            self._restart(task)
            self._reply(request, 204, None)

    def _restart_connector(self, request: Request, connector: str) -> None:
        include_tasks = bool(request.args.get("include_tasks"))
        only_failed = bool(request.args.get("only_failed"))
        if _is_of_leader(request):
            plan = rest_views.restart_plan(
                self.context, connector, include_tasks=include_tasks, only_failed=only_failed
            )
            if plan is None:
                self._reply(request, 404, f"Status for connector {connector} not found")
                return
            self.planned[request.request_id] = plan
            self.writer.put_restart(
                RestartRecord(connector, include_tasks, only_failed), RequestOrigin(request.request_id)
            )
        elif connector not in self.context.group.work.connectors:
            self._reply(request, 409, f"Connector {connector} is no longer assigned to this worker")
        else:
            self._restart(connector)
            self._reply(request, 204, None)

    def execute_restart(self, connector: str, *, include_tasks: bool, only_failed: bool) -> None:
        """A restart record was read (KIP-745): do the part that runs here."""
        work = self.context.group.work
        if connector in work.connectors and (not only_failed or self.connectors.is_failed(connector)):
            self._restart(connector)
        for task in work.tasks:
            wanted = include_tasks and task.connector == connector
            if wanted and (not only_failed or self.tasks.is_failed(task)):
                self._restart(task)

    def _restart(self, work: str | TaskId) -> None:
        """Restart what is assigned here. A pending rebalance starts the rest from scratch anyway."""
        cause = "its restart was requested"
        if isinstance(work, TaskId):
            if work in self.tasks.lives:
                self.tasks.restart(work, cause)
            elif self.context.group.settled:
                self.tasks.start(work, cause)
        elif work in self.connectors.lives:
            self.connectors.restart(work, cause)
        elif self.context.group.settled:
            self.connectors.start(work, cause)

    def _is_stopped(self, request: Request, connector: str) -> bool:
        """True when the connector is STOPPED and has no tasks; otherwise the request was answered."""
        config = self.context.config
        if config.target_state(connector) is TargetState.STOPPED and config.task_count(connector) == 0:
            return True
        reason = (
            f"Connector {connector} must be in the STOPPED state before its offsets can be modified: "
            f"use 'PUT /connectors/{connector}/stop'"
        )
        self._reply(request, 400, reason)
        return False

    def _permit_offsets(self, request: Request, connector: str) -> None:
        body = {
            "type": self.context.connector_type(connector).value,
            "config": self.context.config.connector_config(connector),
        }
        self._reply(request, 200, body)

    # ---------------------------------------------------------------------------------------------------- answers

    def _reply(self, request: Request, status: int, body: Any) -> None:
        self._answer(request.request_id, status, body)

    def _answer(self, request_id: int, status: int, body: Any) -> None:
        self.context.emit(Reply(request_id, status, body))


def _is_of_leader(request: Request) -> bool:
    """True for offsets, and for restarts that go through the config topic (KIP-745); else the owner restarts."""
    flagged = bool(request.args.get("include_tasks") or request.args.get("only_failed"))
    return request.verb == Verb.MODIFY_OFFSETS or (request.verb == Verb.RESTART_CONNECTOR and flagged)


def _work_of(request: Request) -> str | TaskId:
    """The task or the connector that a request is about."""
    connector = request.connector or ""
    return TaskId(connector, int(request.args["task"])) if request.verb == Verb.RESTART_TASK else connector
