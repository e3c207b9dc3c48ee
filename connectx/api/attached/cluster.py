"""A Kafka Connect cluster that runs elsewhere: the same interface as `Cluster`, without faults.

Decides where its history comes from (the internal topics and the group where Kafka is given, else polling REST) and
reports what cannot be observed. It starts no worker, and it writes only what a verb requests.
"""

from __future__ import annotations

import atexit
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx

from connectx.api.attached.observation import GROUP, POLLING, Picture
from connectx.api.attached.watch import KafkaSide, Watch
from connectx.api.attached.workers import AttachedWorker, AttachedWorkers
from connectx.api.connect_cluster import ConnectCluster
from connectx.api.movement import MovementReader
from connectx.errors.clusters import AttachError, NotSeenError
from connectx.history.clock import system_clock
from connectx.history.log import EventLog
from connectx.kafka.admin.discovery import CONFIG, GROUP_CALL_S, STATUS, find_group, find_topics
from connectx.kafka.admin.group_view import worker_id_of
from connectx.kafka.admin.groups import GroupClient
from connectx.kafka.settings.clients import ClientConfigs
from connectx.model.events import Event, Transition
from connectx.model.payloads import Attached, Detached
from connectx.model.worker_config import WorkerConfig, own_kafka_config
from connectx.plugins.registry import worker_config
from connectx.rest.client import RestClient
from connectx.rest.exchange import http_client
from connectx.spark.sessions import SparkProvider
from connectx.views import Row, masked_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from connectx.verify.audit.gather import AuditInput

_JOIN_S = 5.0
_ALWAYS = (
    "What happened before this cluster was attached is not in the history, except where it left a status.",
    "Transactions, fencing, commits and counts of records stay inside the workers.",
    "A worker that leaves and does not respond may have been stopped, killed or cut off. From outside these cannot be "
    "distinguished.",
)


class AttachedCluster(ConnectCluster):
    """A cluster that runs elsewhere, of Kafka Connect or of connectx, observed from outside until `close`.

    Args:
        url: REST address of one of its workers, like "http://host:8083".
        bootstrap_servers: its Kafka. The history then also comes from the group and the internal topics.
        group_id: the workers' `group.id`; by default the group of which the worker at `url` is a member.
        config: the required settings of the workers' properties file: `security.protocol`, `sasl.*` and
            `ssl.*` to log in to Kafka, `config.storage.topic` and `status.storage.topic` (by default they are found by
            their content). `audit` inspects these settings.
        spark: your own session, or settings of one as in `Cluster`, for `check`; by default a local one
            is started when first needed.
        poll_s: pause between two polls, seconds.
        http: connections to use, with your own login, certificates or headers, such as httpx.Client(auth=(user,
            password)); by default those of the system.

    Raises:
        WorkersUnreachableError, RestError: there is no worker at `url`.
        AttachError: its group or its topics are ambiguous; name them.
        KafkaUnreachableError, KafkaLoginError, KafkaPermissionError, KafkaRequestError, TopicMissingError
        ConfigError, ClientSettingError: a setting is wrong.
    """

    _title = "Attached cluster"
    _new_one = "Attach again with cx.attach()."
    _last_event = Detached()

    def __init__(
        self,
        url: str,
        *,
        bootstrap_servers: str | None = None,
        group_id: str | None = None,
        config: Mapping[str, Any] | None = None,
        spark: SparkSession | Mapping[str, Any] | None = None,
        poll_s: float = 2.0,
        http: httpx.Client | None = None,
    ) -> None:
        if poll_s <= 0:
            raise ValueError(f"poll_s must be above 0, not {poll_s}")
        clock = system_clock()
        super().__init__(EventLog(clock=clock), clock)
        given = dict(config or {})
        bootstrap_servers = bootstrap_servers or given.get("bootstrap.servers")
        self.url = url if url.endswith("/") else f"{url}/"
        self._poll_s = poll_s
        self._given = given
        self._internal: dict[str, str] = {}
        self._config: WorkerConfig | None = None
        self._watch: Watch | None = None
        self._scheme = urlsplit(url).scheme
        self._client = RestClient(
            self._urls, http=http or (http_client() if self._scheme == "http" else httpx.Client())
        )
        self._spark = SparkProvider(spark)
        self.workers: AttachedWorkers = AttachedWorkers(self._picture)
        self._endings.callback(self._spark.close)
        if http is None:
            self._endings.callback(self._client.close)
        try:
            self.version = str(self._client.root()["version"])
            kafka = None
            if bootstrap_servers is not None:
                kafka = self._kafka_side(str(bootstrap_servers), group_id or given.get("group.id"), given)
            watch = Watch(self._client, kafka, self.events, poll_s, clock, self._scheme)
            self._endings.callback(watch.close)
            self._watch = watch
            attached = Attached(masked_text(self.url), self.group_id, tuple(self.blind_spots))
            self.events.append(Transition(attached))
            watch.start()
        except BaseException:
            self.close()
            raise
        atexit.register(self.close)

    @property
    def blind_spots(self) -> tuple[str, ...]:
        """Sentences about what this history cannot show, and about endpoints that do not answer now, and since when."""
        spots = list(_ALWAYS)
        if self._config is None:
            spots += [
                "Without bootstrap_servers= neither the worker group nor the internal topics are seen: no generation, "
                "no leader, no rebalance, no restart, no worker that runs nothing.",
                f"REST is polled every {self._poll_s:g} s: shorter states are missed. An event has the time of the "
                "poll that found it, and `after_ms` that of the previous poll.",
            ]
        else:
            spots += [
                "Kafka does not report the generation of a group. The estimate is the highest one in a status record, "
                "plus one per observed membership change.",
                f"The group is described every {self._poll_s:g} s: a rebalance that changed nothing in between is not "
                "seen.",
            ]
        if self._watch is not None:
            for origin, (since_ms, error) in list(self._watch.lost.items()):
                since = datetime.fromtimestamp(since_ms / 1000, tz=UTC).strftime("%H:%M:%S UTC")
                spots.append(f"Nothing is {origin} since {since}: {error}")
        return tuple(spots)

    def _check_class(self, name: str) -> None:
        """Only the workers know which classes they have."""

    @property
    def group_id(self) -> str | None:
        """The worker group, None where Kafka is not observed."""
        return None if self._config is None else self._config.group_id

    @property
    def config(self) -> WorkerConfig:
        """Settings of the clients for Kafka: yours, over Kafka Connect's defaults.

        NotSeenError without `bootstrap_servers`. The workers' own settings cannot be seen.
        """
        if self._config is None:
            raise NotSeenError(
                "Kafka is not observed: this cluster was attached with its REST address only.",
                next_step='Attach with bootstrap_servers="host:port".',
            )
        return self._config

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of its Kafka; NotSeenError if it was not given."""
        return self.config.bootstrap_servers

    @property
    def leader(self) -> AttachedWorker | None:
        """The worker that leads the group, None where the group is not observed."""
        return next((worker for worker in self.workers if worker.is_leader), None)

    @property
    def generation(self) -> int | None:
        """Estimated generation: the highest one in a status record, plus one per observed membership change."""
        return self._picture().generation

    def wait_committed(self, name: str, *wanted: Any, **options: Any) -> Event:
        """NotSeenError: commits stay inside the workers."""
        raise NotSeenError(
            "Commits of an attached cluster are not visible.",
            next_step="Wait for records in the topic: cx.read_topic(topic, bootstrap_servers, at_least=...).",
        )

    def overview(self) -> dict[str, object]:
        """The cluster in a few words: url, version, kafka, group, generation, leader, sources of its history."""
        leader = self.leader
        seen = [POLLING] if self._config is None else [GROUP, "the config and status topics"]
        lost = [] if self._watch is None else list(self._watch.lost)
        return {
            "url": masked_text(self.url),
            "Kafka Connect": self.version,
            **({} if self._config is None else {"kafka": self.bootstrap_servers}),
            "group": self.group_id,
            "generation": self.generation,
            "leader": leader.name if leader else None,
            "origin": ", ".join(seen) + (f"; does not answer: {', '.join(lost)}" if lost else ""),
        }

    def movement_reader(self) -> MovementReader:
        """A new reader of how records move, computed from offsets; close it when you are done."""
        return MovementReader(self._client.impatient(), self._config)

    def audit_input(self) -> AuditInput:
        """The input of an audit of this cluster: its statuses, its group, and the settings in `config`."""
        from connectx.verify.audit.gather import AuditInput
        from connectx.verify.audit.inventory import AuditedWorker

        picture = self._picture()

        def claims() -> tuple[AuditedWorker, ...]:
            group = self._picture().group
            members = () if group is None else group.worker_ids  # the group reports on these
            seen = [worker for worker in self._picture().workers if worker.worker_id not in members]
            return tuple(AuditedWorker(one.worker_id, connectors=one.connectors, tasks=one.tasks) for one in seen)

        return AuditInput(
            self.group_id or masked_text(self.url),
            self._client,
            self._config,
            self._given,
            self._internal,
            {seen.worker_id: seen.url for seen in picture.workers},
            claims,
            tuple(self.events),
            self._clock,
            self._plugins.find_connector,
        )

    def close(self) -> None:
        """Stop looking. The cluster itself continues. A second call does nothing."""
        try:
            super().close()
        finally:
            atexit.unregister(self.close)

    def _kafka_side(self, bootstrap_servers: str, group_id: str | None, given: Mapping[str, Any]) -> KafkaSide:
        base = {"isolation.level": "read_committed", **given, "bootstrap.servers": bootstrap_servers}
        anybody = worker_config(own_kafka_config({**base, "group.id": group_id or "connectx-attach"}))
        clients = ClientConfigs(anybody, "attached")
        shown = self._client.expanded()
        if group_id is None:
            group_id = find_group(clients, self._worker_ids(shown))
        topics = {kind: given.get(f"{kind}.storage.topic") for kind in (CONFIG, STATUS)}
        wanted = [kind for kind, topic in topics.items() if topic is None]
        topics |= find_topics(clients, wanted, list(shown)) if wanted else {}
        self._internal = {kind: str(topic) for kind, topic in topics.items()}
        if offsets := given.get("offset.storage.topic"):
            self._internal["offset"] = str(offsets)
        named = {f"{kind}.storage.topic": topic for kind, topic in topics.items()}
        self._config = worker_config(own_kafka_config({**base, **named, "group.id": group_id}))
        clients = ClientConfigs(self._config, "attached")
        group = GroupClient(clients.kafka_python("connectx-attached-group"), group_id, GROUP_CALL_S)
        if not _has_members(group):
            raise AttachError(
                f"The group {group_id} has no member at {bootstrap_servers}.",
                next_step="Check group_id= (the workers' group.id) and bootstrap_servers=, or leave group_id= out.",
            )
        return KafkaSide(clients, group, str(topics[CONFIG]), str(topics[STATUS]))

    def _worker_ids(self, shown: Mapping[str, Any]) -> set[str]:
        statuses = [one["status"] for one in shown.values() if one.get("status")]
        worker_ids = {part["worker_id"] for status in statuses for part in (status["connector"], *status["tasks"])}
        return {worker_id_of(self.url), *worker_ids} - {""}

    def _picture(self) -> Picture:
        return Picture() if self._watch is None else self._watch.picture

    def _urls(self) -> list[str]:
        """The worker that was named, then the others: they forward to each other."""
        self._check_open()
        others = [seen.url for seen in self._picture().workers if seen.url != self.url]
        return [self.url, *others]

    def _worker_rows(self) -> list[Row]:
        return [worker.row() for worker in self.workers]


def _has_members(group: GroupClient) -> bool:
    """Whether it has members, or gets one soon: workers that start serve REST before they join."""
    end_s = time.monotonic() + _JOIN_S
    while not group.describe().members:
        if time.monotonic() >= end_s:
            return False
        time.sleep(0.2)
    return True


attach = AttachedCluster
"""`connectx.attach` begins the observation."""
