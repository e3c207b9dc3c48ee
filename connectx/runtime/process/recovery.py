"""Recovery after a worker's process has ended: ends its Spark jobs, removes it from its groups.

With fast failover the groups need not wait for a session timeout, because the process is certainly dead. Safety is
unchanged: the new task instance fences the old producer before it starts (KIP-618), and an exactly-once sink locks its
offsets in the target. Kafka Connect has no such recovery, because no worker knows for certain that another one is dead.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from connectx.errors.base import ConnectxError
from connectx.kafka.admin.topics import describe_group, remove_members
from connectx.kafka.settings.clients import ClientConfigs, member_prefix
from connectx.model.causes import ProcessEnded
from connectx.model.events import Transition
from connectx.model.ids import TaskId
from connectx.model.payloads import MemberRemoved
from connectx.model.states import ConnectorType
from connectx.runtime.worker_handle import WorkerState
from connectx.spark.remote import release_sessions

if TYPE_CHECKING:
    from concurrent.futures import Future

    from connectx.model.worker_config import WorkerConfig
    from connectx.plugins.registry import Plugins
    from connectx.rest.client import RestClient
    from connectx.runtime.process.owner import ProcessWorker

_CALL_S = 15.0
_log = logging.getLogger(__name__)


class WorkerRecovery:
    """Ends what remains of workers when their processes end.

    Args:
        config: settings of the workers.
        client: asks the workers that are left.
        plugins: distinguishes sinks from sources.
        spark_url: address of the Spark Connect server, once it is up.
        record: puts a transition of a worker into the history.
        fast_failover: send LeaveGroup for a worker that has ended without it.
    """

    def __init__(
        self,
        config: WorkerConfig,
        client: RestClient,
        plugins: Plugins,
        spark_url: Future[str],
        record: Callable[[Transition, str | None], object],
        fast_failover: bool,
    ) -> None:
        self._config = config
        self._client = client
        self._plugins = plugins
        self._spark_url = spark_url
        self._record = record
        self._fast_failover = fast_failover
        self._kafka = ClientConfigs(config, "cluster", config.bootstrap_servers)

    def settle(self, worker: ProcessWorker) -> None:
        """The process of `worker` has ended. Blocks on Kafka and Spark for some seconds at most; never raises."""
        if self._fast_failover and worker.state is not WorkerState.STOPPED:
            self._remove_members(worker)
        if worker.spark_sessions and self._spark_url.done() and self._spark_url.exception() is None:
            release_sessions(self._spark_url.result(), worker.spark_sessions)

    def _remove_members(self, worker: ProcessWorker) -> None:
        """Leave each group for it. Where that fails, its session runs out, as without fast failover."""
        view = worker.view()
        removals: list[Callable[[], None]] = []
        if view.get("member_id"):
            removals.append(partial(self._remove, worker.name, self._config.group_id, [view["member_id"]]))
        connectors = sorted({str(task["connector"]) for task in view.get("tasks", [])})
        removals += [partial(self._leave_if_sink, worker, connector) for connector in connectors]
        for removal in removals:
            try:
                removal()
            except ConnectxError as error:
                _log.warning("could not send LeaveGroup for %s: %s", worker.name, error)

    def _leave_if_sink(self, worker: ProcessWorker, connector: str) -> None:
        settings = self._client.impatient().config(connector)
        if self._plugins.connector_type(settings) is ConnectorType.SINK:
            self._leave_sink_group(worker, connector, settings)

    def _leave_sink_group(self, worker: ProcessWorker, connector: str, settings: Mapping[str, str | None]) -> None:
        group_id = str(self._kafka.sink_consumer(TaskId(connector, 0), settings)["group.id"])
        group = describe_group(self._kafka, group_id, _CALL_S)
        own = member_prefix(worker.name, worker.process_token)  # a worker of another cluster may have the same name
        pairs = zip(group.members, group.client_ids, strict=True)
        dead = [member for member, client_id in pairs if client_id.startswith(own)]
        if dead:
            self._remove(worker.name, group_id, dead)

    def _remove(self, worker: str, group_id: str, members: list[str]) -> None:
        remove_members(self._kafka, group_id, members, "its process has ended", _CALL_S)
        self._record(Transition(MemberRemoved(group_id, tuple(members)), why=ProcessEnded()), worker)
