"""Gathers the inventory of one cluster: REST, group, topics, transactions, and its workers' own views.

Decides which requests to send, and records what could not be observed as a sentence in `unseen`. The rules judge. It
only reads. Configurations are masked here, so that no rule ever sees a secret.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from connectx.errors.base import ConnectxError
from connectx.errors.rest import RestError
from connectx.history.folds.snapshot import WorkSnapshot, snapshot
from connectx.jvm.progress import Progress, silent
from connectx.kafka.admin.client import Admin
from connectx.kafka.admin.discovery import GROUP_CALL_S
from connectx.kafka.admin.group_view import STABLE, GroupView, group_view
from connectx.kafka.admin.groups import GroupClient
from connectx.kafka.admin.inspection import Inspection
from connectx.kafka.settings.clients import ClientConfigs
from connectx.model.clock import Clock
from connectx.model.decoding import whole_number
from connectx.model.events import Event
from connectx.model.ids import TopicPartition
from connectx.model.states import LOST, State
from connectx.model.worker_config import WorkerConfig
from connectx.model.worker_keys import WorkerKeys
from connectx.plugins.keys import SINK_CONFIG, SOURCE_CONFIG
from connectx.rest.client import RestClient
from connectx.values import Value
from connectx.verify.audit.inventory import (
    AuditedConnector,
    AuditedTask,
    AuditedTopic,
    AuditedTransaction,
    AuditedWorker,
    ClusterInventory,
    ConnectorClass,
)
from connectx.views import Shown, gist, masked, masked_text

T = TypeVar("T")

JUDGED_SETTINGS: Final = tuple(
    key.name
    for key in (
        WorkerKeys.connect_protocol,
        WorkerKeys.connector_client_config_override_policy,
        WorkerKeys.exactly_once_source_support,
        WorkerKeys.heartbeat_interval_ms,
        WorkerKeys.offset_flush_interval_ms,
        WorkerKeys.scheduled_rebalance_max_delay_ms,
        WorkerKeys.session_timeout_ms,
    )
)
"""Worker settings that an audit judges."""

_STEPS: Final = 4
_MOST_PARTITIONS: Final = 2_000
_DISPUTE_S: Final = 3.0
_PAUSE_S: Final = 0.1


class AuditInput(Shown, Value):
    """What an audit is given of a cluster.

    Attributes:
        config: settings of clients that inspect its Kafka; None: Kafka is not inspected.
        settings: worker settings that are known.
        internal: names of the internal topics that are known, by role.
        urls: REST URLs of its workers by id (host:port), as far as they are known.
        claims: asks its workers what they run, as far as they say that themselves.
        clock: the clock of `events`.
        find_class: class for a `connector.class`; None if this process cannot import it.
    """

    name: str
    client: RestClient
    config: WorkerConfig | None
    settings: Mapping[str, Any]
    internal: Mapping[str, str]
    urls: Mapping[str, str]
    claims: Callable[[], tuple[AuditedWorker, ...]]
    events: Sequence[Event]
    clock: Clock
    find_class: Callable[[str], ConnectorClass | None]


def gather(given: AuditInput, progress: Progress = silent) -> ClusterInventory:
    """Return the inventory of a cluster as of now.

    Raises:
        WorkersUnreachableError: no worker answers; everything else that cannot be seen is listed in `unseen`.
    """
    label = f"Auditing {given.name}, steps"
    return _Gathering(given, given.clock()).inventory(lambda done: progress(label, done, _STEPS))


@dataclass
class _Gathering:
    given: AuditInput
    now_ms: int
    unseen: list[str] = field(default_factory=list)
    history: dict[tuple[str, int | None], WorkSnapshot] = field(default_factory=dict)
    """Connectors and tasks as the events show them."""

    def inventory(self, report: Callable[[int], None]) -> ClusterInventory:
        """Read everything; `report` is called with how many of the `_STEPS` are done."""
        report(0)
        client, claims = self.given.client, self._claims()
        connectors = self._connectors(client.expanded())
        known = {
            key: str(self.given.settings[key]) for key in JUDGED_SETTINGS if self.given.settings.get(key) is not None
        }
        if len(known) < len(JUDGED_SETTINGS):
            self.unseen.append("the workers' own settings: REST does not show them (give them with config=)")
        delay = known.get(WorkerKeys.scheduled_rebalance_max_delay_ms.name, "")
        inventory = ClusterInventory(
            self.given.name,
            self.now_ms,
            kafka_id=str(client.root().get("kafka_cluster_id") or ""),
            delay_ms=whole_number(delay),
            connectors=connectors,
            workers=claims,
            settings=masked(known),
        )
        for done, read in enumerate((self._with_group, self._with_plugins, self._with_kafka), start=1):
            report(done)
            inventory = read(inventory)
        report(_STEPS)
        return replace(inventory, unseen=tuple(self.unseen))

    def _claims(self) -> tuple[AuditedWorker, ...]:
        """Reports of workers, requested again for a while if they contradict each other, as in any rebalance."""
        until_s = time.monotonic() + _DISPUTE_S
        while True:
            claims = self.given.claims()
            if not is_disputed(claims) or time.monotonic() > until_s:
                return claims
            time.sleep(_PAUSE_S)

    def _try(self, what: str, ask: Callable[[], T]) -> T | None:
        try:
            return ask()
        except ConnectxError as error:
            self.unseen.append(f"{what}: {masked_text(error.message)}")
            return None

    def _connectors(self, shown: Mapping[str, Mapping[str, Any]]) -> tuple[AuditedConnector, ...]:
        self.history = {(work.connector, work.task): work for work in snapshot(self.given.events).tasks}
        return tuple(_connector(name, shown[name], self.history, self.given.find_class) for name in sorted(shown))

    def _lost(self, task: AuditedTask, connector: str, members: Collection[str]) -> AuditedTask:
        """Mark a task of a lost worker: its last status is outdated, and the reason of the loss is unknown."""
        known = self.history.get((connector, task.number))
        if known is None or known.state != State.UNASSIGNED or task.worker_id in members:
            return task
        still_shown = task.state in (State.RUNNING, State.PAUSED)
        return replace(task, state=LOST, since_ms=known.since_ms) if still_shown else task

    def _with_group(self, inventory: ClusterInventory) -> ClusterInventory:
        config = self.given.config
        if config is None:
            self.unseen.append("the worker group, topics and transactions: no bootstrap_servers= was given")
            return inventory
        clients = ClientConfigs(config, "audit", config.bootstrap_servers)
        client = GroupClient(clients.kafka_python("connectx-audit"), config.group_id, GROUP_CALL_S)
        described = self._try("the worker group", client.describe)
        inventory = replace(inventory, group_id=config.group_id)
        if described is None:
            return inventory
        view = (
            group_view(described.group_id, described.protocol, described.details) if described.state == STABLE else None
        )
        if view is None:
            self.unseen.append(f"what the group {config.group_id} has given to whom: it is {described.state} just now")
            return replace(inventory, is_settled=False)
        connectors = tuple(
            replace(one, tasks=tuple(self._lost(task, one.name, view.worker_ids) for task in one.tasks))
            for one in inventory.connectors
        )
        workers = _workers(view, inventory.workers)
        return replace(inventory, protocol=view.protocol, workers=workers, connectors=connectors)

    def _with_plugins(self, inventory: ClusterInventory) -> ClusterInventory:
        classes = sorted({connector.class_name for connector in inventory.connectors} - {""})
        workers = []
        for worker in inventory.workers:
            url = self.given.urls.get(worker.worker_id, f"http://{worker.worker_id}/")
            client = self.given.client.of(url)
            listed = self._try(f"plugins of {worker.worker_id}", client.plugins)
            if listed is None:
                workers.append(worker)
                continue
            plugins = {plugin["class"]: str(plugin.get("version", "")) for plugin in listed}
            lacks = tuple(cls for cls in classes if cls not in plugins and _is_unknown(client, cls))
            workers.append(replace(worker, plugins=plugins, lacks=lacks))
        types = {connector.class_name: connector.type for connector in inventory.connectors}
        keys = {cls: found for cls in classes if (found := _keys(self.given.client, cls, types[cls]))}
        return replace(inventory, workers=tuple(workers), keys=keys)

    def _with_kafka(self, inventory: ClusterInventory) -> ClusterInventory:
        if self.given.config is None:
            return inventory
        clients = ClientConfigs(self.given.config, "audit", self.given.config.bootstrap_servers)
        admin = Admin(clients.admin())
        try:
            topics = self._try("the topics", lambda: self._topics(admin, inventory))
            if topics is not None:
                brokers = self._try("the brokers", admin.broker_count) or 1
                inventory = replace(inventory, topics=topics, topics_known=True, brokers=brokers)
                if sum(topic.partitions for topic in topics.values()) > _MOST_PARTITIONS:
                    self.unseen.append(f"last stable offsets: there are more than {_MOST_PARTITIONS:,} partitions")
            before = (
                self._try("last stable offsets", lambda: _last_stable_offsets(admin, inventory.topics.values())) or {}
            )
            kafka_python = clients.kafka_python("connectx-audit")
            found = self._try("open transactions", lambda: self._transactions(kafka_python, inventory))
            after = (
                self._try("last stable offsets", lambda: _last_stable_offsets(admin, inventory.topics.values())) or {}
            )
        finally:
            admin.close()
        if found is None:
            return inventory
        stuck = {at for at, stable in after.items() if before.get(at) == stable}
        with_unstable = {
            name: replace(topic, unstable=tuple(sorted(at.partition for at in stuck if at.topic == name)))
            for name, topic in inventory.topics.items()
        }
        return replace(inventory, transactions=found, topics=with_unstable)

    def _topics(self, admin: Admin, inventory: ClusterInventory) -> dict[str, AuditedTopic]:
        roles = {name: role for role, name in self.given.internal.items()}
        if len(roles) < 3:
            missing = sorted({"config", "offset", "status"} - set(roles.values()))
            self.unseen.append(
                f"which topic is its {' and its '.join(missing)} topic (give {missing[0]}.storage.topic)"
            )
        names = admin.topics()
        patterns = any(connector.config.get("topics.regex") for connector in inventory.connectors)
        used = {topic for connector in inventory.connectors for topic in connector.topics}
        wanted = [name for name in names if name in roles or name in used or patterns]
        replicas, settings = admin.replica_counts(wanted), admin.topic_settings(sorted(roles))
        return {
            name: AuditedTopic(
                name,
                len(counts),
                min(counts, default=0),
                (settings.get(name) or {}).get("cleanup.policy", "compact" if name in roles else "delete"),
                roles.get(name, ""),
            )
            for name, counts in sorted(replicas.items())
        }

    def _transactions(self, config: Mapping[str, Any], inventory: ClusterInventory) -> tuple[AuditedTransaction, ...]:
        """Open transactions that touch a topic of this cluster."""
        with Inspection(config) as inspection:
            found = inspection.open_transactions()
        now_ms = self.given.clock()
        return tuple(
            AuditedTransaction(
                one.transactional_id,
                max(now_ms - one.started_ms, 0),
                one.timeout_ms,
                tuple(str(at) for at in one.partitions),
            )
            for one in found
            if one.started_ms > 0 and any(at.topic in inventory.topics for at in one.partitions)
        )


def is_disputed(claims: Sequence[AuditedWorker]) -> bool:
    """Whether workers contradict each other: in who runs what, in the generation, in how much they have read."""
    for works in ([w.connectors for w in claims], [w.tasks for w in claims]):
        listed = [one for work in works for one in work]
        if len(listed) > len(set(listed)):
            return True
    return len({worker.generation for worker in claims}) > 1 or len({worker.config_offset for worker in claims}) > 1


def _connector(
    name: str,
    shown: Mapping[str, Any],
    since: Mapping[tuple[str, int | None], WorkSnapshot],
    find_class: Callable[[str], ConnectorClass | None],
) -> AuditedConnector:
    info = shown.get("info") or {}
    status = shown.get("status") or {"connector": {"state": State.UNASSIGNED.value, "worker_id": ""}, "tasks": []}
    itself = status["connector"]
    config = masked(info.get("config") or {})
    return AuditedConnector(
        name,
        str(info.get("type", "unknown")),
        config,
        str(itself["state"]),
        str(itself["worker_id"]),
        len(info.get("tasks", ())),
        tuple(_task(name, task, since.get((name, int(task["id"])))) for task in status["tasks"]),
        _why(itself),
        find_class(config.get("connector.class") or ""),
    )


def _task(connector: str, shown: Mapping[str, Any], known: WorkSnapshot | None) -> AuditedTask:
    lost = known is not None and known.state == LOST
    state = LOST if lost else str(shown["state"])
    is_same = known is not None and known.state == state
    return AuditedTask(
        int(shown["id"]), state, str(shown["worker_id"]), _why(shown), known.since_ms if known and is_same else None
    )


def _why(shown: Mapping[str, Any]) -> str:
    return masked_text(gist(str(shown.get("trace") or "")))


def _workers(view: GroupView, claims: Iterable[AuditedWorker]) -> tuple[AuditedWorker, ...]:
    """Reports of workers themselves, and for others the information of the group."""
    claimed = {worker.worker_id: worker for worker in claims}
    found = {worker_id: replace(worker, in_group=False) for worker_id, worker in claimed.items()}
    for member in view.members:
        known = AuditedWorker(
            member.worker_id,
            True,
            None,
            member.config_offset,
            member.work.connectors,
            tuple(str(task) for task in member.work.tasks),
            as_of_join=True,
            mismatch=member.error != 0,
        )
        own = claimed.get(member.worker_id)
        found[member.worker_id] = known if own is None else replace(own, in_group=True, mismatch=known.mismatch)
    return tuple(found[worker_id] for worker_id in sorted(found))


def _keys(client: RestClient, cls: str, connector_type: str) -> tuple[str, ...]:
    """Keys of a connector class and those of all connectors of its type; none if no worker describes the class."""
    try:
        own = [str(key["name"]) for key in client.plugin_config(cls)]
    except ConnectxError:
        return ()
    common = SOURCE_CONFIG if connector_type == "source" else SINK_CONFIG
    return tuple(dict.fromkeys((*own, *common.keys)))


def _is_unknown(client: RestClient, cls: str) -> bool:
    """Aliases and classes by path are not listed: the worker reports whether it has them."""
    try:
        client.plugin_config(cls)
    except RestError as error:
        return error.status in (400, 404)
    except ConnectxError:
        return False
    return False


def _last_stable_offsets(admin: Admin, topics: Iterable[AuditedTopic]) -> dict[TopicPartition, int]:
    """Partitions whose last stable offset is below their end, with that offset."""
    partitions = [TopicPartition(topic.name, number) for topic in topics for number in range(topic.partitions)]
    if not partitions or len(partitions) > _MOST_PARTITIONS:
        return {}
    stable = admin.end_offsets(partitions, committed=True)
    ends = admin.end_offsets(partitions)
    return {at: stable[at] for at in partitions if stable[at] < ends[at]}
