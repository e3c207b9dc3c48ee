"""Input of an audit from a cluster that this process started: its workers' views and settings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from connectx.history.wording import task_of
from connectx.kafka.admin.group_view import worker_id_of
from connectx.model.worker_keys import WorkerKeys
from connectx.verify.audit.gather import AuditInput
from connectx.verify.audit.inventory import AuditedWorker

if TYPE_CHECKING:
    from connectx.api.workers import Worker, Workers
    from connectx.history.log import EventLog
    from connectx.model.clock import Clock
    from connectx.model.worker_config import WorkerConfig
    from connectx.plugins.registry import Plugins
    from connectx.rest.client import RestClient


def audit_input(
    config: WorkerConfig, client: RestClient, workers: Workers, events: EventLog, clock: Clock, plugins: Plugins
) -> AuditInput:
    """The cluster as it is now, without the workers that have ended."""
    running = [worker for worker in workers if worker.view]
    settings = {key: value for key, value in config.values.items() if value is not None}
    internal = {"config": config.config_topic, "offset": config.offset_topic, "status": config.status_topic}
    return AuditInput(
        config.group_id,
        client,
        config,
        {**settings, WorkerKeys.exactly_once_source_support.name: config.exactly_once_source_support.value},
        {role: topic.name for role, topic in internal.items()},
        {worker_id_of(worker.url): worker.url for worker in running},
        lambda: tuple(_workers(worker for worker in workers if worker.view)),
        tuple(events),
        clock,
        plugins.find_connector,
    )


def _workers(running: Iterable[Worker]) -> Iterable[AuditedWorker]:
    for worker in running:
        view = worker.view
        tasks = tuple(str(task_of(task)) for task in view.get("tasks", ()))
        config_offset = view.get("config_offset")
        yield AuditedWorker(
            worker_id_of(worker.url),
            generation=worker.generation,
            config_offset=None if config_offset is None else int(config_offset),
            connectors=tuple(view.get("connectors", ())),
            tasks=tasks,
        )
