"""The cluster that a notebook or a test starts: Kafka, Spark, workers, and the verbs on them.

Decides the order of starting and stopping. Membership of the group is decided by the workers. Kafka Connect has no such
class, because its workers are started one by one (its tests have EmbeddedConnectCluster).
"""

from __future__ import annotations

import atexit
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from connectx.api.connect_cluster import ConnectCluster
from connectx.api.fault_origin import injected
from connectx.api.faults.agenda import Agenda
from connectx.api.faults.verbs import FaultVerbs
from connectx.api.forms import kafka_fact, spark_fact
from connectx.api.open_clusters import closed, opened, warn_of_another
from connectx.api.recorder import Recorder
from connectx.api.supervisor import STABLE_S, Supervisor
from connectx.api.workers import Worker, Workers
from connectx.errors.clusters import ClusterClosedError, GroupInUseError
from connectx.errors.history import RecordingError
from connectx.errors.kafka import KafkaRequestError, KafkaUnreachableError
from connectx.errors.plugins import ClassNotImportableError, PluginNotFoundError
from connectx.errors.spark import SparkSettingError
from connectx.extras import require
from connectx.history.clock import system_clock
from connectx.history.folds.tracks import Samples
from connectx.history.log import EventLog
from connectx.history.wording import plural
from connectx.jvm.progress import Progress, shown, step
from connectx.kafka.admin.groups import GroupDescription
from connectx.kafka.admin.topics import START_S, describe_group, ensure_internal_topics, require_reachable
from connectx.kafka.broker.embedded import EmbeddedKafka
from connectx.kafka.settings.clients import ClientConfigs
from connectx.model.class_names import path_of
from connectx.model.events import Transition
from connectx.model.payloads import ClusterStarted
from connectx.model.worker_config import NO_DELAY, WorkerConfig, embedded_config, own_kafka_config
from connectx.plugins.registry import is_importable, worker_config
from connectx.recording.file import write_recordings
from connectx.rest.client import RestClient
from connectx.rest.exchange import http_client
from connectx.runtime.process.owner import ProcessEnvironment, ProcessWorker
from connectx.runtime.process.recovery import WorkerRecovery
from connectx.runtime.worker import Worker as ThreadWorker
from connectx.runtime.worker import WorkerEnvironment
from connectx.schema_registry.server import SchemaRegistry
from connectx.spark.sessions import SparkProvider
from connectx.views import Row

if TYPE_CHECKING:
    from plotly.graph_objects import Figure
    from pyspark.sql import SparkSession

    from connectx.runtime.worker_handle import Isolation, WorkerHandle
    from connectx.verify.audit.gather import AuditInput

_PROMPT_S = 2.0  # an answer that takes longer is waited for with progress


class Cluster(FaultVerbs, ConnectCluster):
    """A Kafka Connect cluster of this process: a `ConnectCluster` with workers and faults.

    Args:
        workers: how many workers to start.
        config: worker settings by Kafka Connect's keys; they override the profile.
        bootstrap_servers: your own Kafka; by default one is started for this cluster and stopped with it.
        spark: your own session, or settings of one that is made for this cluster and closed with it:
            `{"spark.master": "spark://host:7077", ...}`, or `{"spark.remote": "sc://host:15002"}` for Spark Connect.
            By default a local one is started. `config` may contain these settings, too, like a worker's file.
        isolation: "thread": workers are threads of this process; "process": each is a separate process, killed by
            SIGKILL and paused by SIGSTOP, and all share one Spark Connect server.
        fast_failover: with "process": when a worker's process has ended, remove it from its groups immediately instead
            of waiting for its session timeout; sets scheduled.rebalance.max.delay.ms to 0 unless `config` has it. Off
            by default, because Kafka Connect cannot do it. Without it, the cluster behaves like Kafka Connect.
        faults: put a gate before the embedded Kafka, so that workers can be cut off from Kafka (costs some throughput).
        join: allow joining a group that already has members (with `bootstrap_servers`).
        registry: start a schema registry on a free port of 127.0.0.1; `registry_url` is where it listens.
        progress: called for long work with (what, done, total). By default bars on a terminal and lines in a notebook.

    The embedded cluster uses short rebalance settings (`connectx.model.worker_config.EMBEDDED_PROFILE`); with
    `bootstrap_servers` Kafka Connect's defaults apply. Use it as a context manager, or call `close`.

    Raises:
        ConfigError: settings are wrong; the message lists all problems.
        NoJavaError, JarDownloadError, PortTakenError, DiskFullError, BrokerError: Kafka could not be started.
        GroupInUseError: another cluster uses the same `group.id`.
        MissingExtraError: `registry` needs the extra `avro`.
        SparkNotSharedError: `spark` is a classic session, and isolation is "process".
        SparkSettingError, SparkMasterError, SparkStartError: Spark settings are wrong, or no session can be made.
    """

    has_faults = True

    def __init__(
        self,
        workers: int = 1,
        *,
        config: Mapping[str, Any] | None = None,
        bootstrap_servers: str | None = None,
        spark: SparkSession | Mapping[str, Any] | None = None,
        isolation: Isolation = "thread",
        fast_failover: bool = False,
        faults: bool = True,
        join: bool = False,
        registry: bool = False,
        progress: Progress | None = None,
    ) -> None:
        if workers < 1:
            raise ValueError(f"workers must be at least 1, not {workers}")
        if isolation not in ("thread", "process"):
            raise ValueError(f'isolation must be "thread" or "process", not {isolation!r}')
        if fast_failover and isolation == "thread":
            raise ValueError('fast_failover needs isolation="process": the end of a thread is never certain')
        given = {**(NO_DELAY if fast_failover else {}), **(config or {})}
        bootstrap_servers = bootstrap_servers or given.get("bootstrap.servers")
        clock = system_clock()
        super().__init__(EventLog(clock=clock), clock)
        self.workers: Workers = Workers()
        self._isolation: Isolation = isolation
        self._fast_failover = fast_failover
        self._agenda = Agenda(self.events)
        self._recorder = Recorder(self.workers, clock)
        self._supervisor: Supervisor | None = None
        self._kafka: EmbeddedKafka | None = None
        profile = embedded_config(given) if bootstrap_servers is None else own_kafka_config(given)
        if bootstrap_servers is not None:
            profile["bootstrap.servers"] = bootstrap_servers
        self._config = worker_config(profile)  # before anything is started
        self._plugins = self._plugins.on_path(self._config)
        for warning in self._config.warnings:
            warnings.warn(warning, stacklevel=2)
        if bootstrap_servers is None:
            warn_of_another(self._config.group_id)
        self._spark = SparkProvider(_chosen(spark, self._config.spark_settings), serve=isolation == "process")
        self._client = RestClient(self._urls, http=http_client(self._config))
        try:
            with shown(progress) as show:
                self._start_spark_and_kafka(show, embedded=bootstrap_servers is None, gate=faults)
                self._registry = self._endings.enter_context(SchemaRegistry(self._config)) if registry else None
                self._endings.callback(self._client.close)
                self._endings.callback(self._stop_workers)
                self._endings.callback(self._agenda.close)
                self._endings.callback(self._end_starting)  # the agenda waits for what has begun
                self._endings.callback(self._recorder.stop)
                self._recorder.start()
                with step(show, f"Starting {plural(workers, 'worker')}"):
                    self._start(workers, join, show)
        except BaseException:
            self.close()
            raise
        opened(self)
        atexit.register(self.close)  # after those of Kafka's and Spark's processes, so that it runs before them

    def _start_spark_and_kafka(self, show: Progress, *, embedded: bool, gate: bool) -> None:
        """Start Spark's driver in the background, then Kafka if it is embedded, and connect to a Spark of settings."""
        self._endings.callback(self._spark.close)
        self._spark.start()
        if embedded:
            self._kafka = EmbeddedKafka(gate=gate, progress=show)
            self._endings.callback(self._kafka.stop)
            with step(show, "Starting Kafka"):
                self._kafka.start()
            self._config = self._config.connected_to(self._kafka.bootstrap_servers)
        if self._spark.settings is not None:
            with step(show, f"Connecting to Spark at {self._spark.settings.shown}"):
                self._spark.get()

    def _check_class(self, name: str) -> None:
        try:
            self._plugins.connector_class(name)
        except PluginNotFoundError:  # it may have been installed since
            self._plugins = self._plugins.on_path(self._config)
            self._plugins.connector_class(name)

    def _as_text(self, config: Mapping[str, Any]) -> dict[str, str | None]:
        for value in config.values():
            if self._isolation == "process" and isinstance(value, type) and not is_importable(value):
                raise ClassNotImportableError(path_of(value))
        return super()._as_text(config)

    def add_worker(self, timeout: float | None = 30.0, *, config: Mapping[str, Any] | None = None) -> Worker:
        """Start another worker. It joins the group, which rebalances.

        Waits until the group is stable, `timeout` seconds at most; with None it does not wait for the group. `config`
        are settings of this worker alone, over those of the cluster: for a rolling upgrade, worker by worker
        with another `exactly.once.source.support`. ConfigError for a setting that all workers must share.
        """
        self._check_open()
        handle = self._running().new_worker(config)
        self.events.append(injected("add_worker"), handle.name)
        handle.start()
        if timeout is not None:
            self.wait_stable(timeout)
        return self.workers[handle.name]

    @property
    def leader(self) -> Worker | None:
        """The worker that leads the group; None while no leader is known."""
        leaders = [worker for worker in self.workers if worker.state == "running" and worker.is_leader]
        return max(leaders, key=lambda worker: worker.generation or 0, default=None)  # one cut off may think it leads

    @property
    def generation(self) -> int | None:
        """Generation of the group, the highest that a member reports."""
        known = [worker.generation for worker in self.workers if worker.generation is not None]
        return max(known, default=None)

    def wait_stable(self, timeout: float = STABLE_S) -> None:
        """Wait until all running workers that are not cut off agree on one generation and have started their work."""
        self._running().wait_stable([worker for worker in self.workers if worker.is_healthy], timeout)

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` for any other Kafka client; never goes through the gate."""
        return self._config.bootstrap_servers

    @property
    def registry_url(self) -> str | None:
        """URL of the schema registry that was started with `registry=True`: a value for `schema.registry.url`."""
        return None if self._registry is None else self._registry.url

    @property
    def config(self) -> WorkerConfig:
        """Settings of the workers."""
        return self._config

    def overview(self) -> dict[str, object]:
        """The cluster in a few words: kafka, group, generation, leader, exactly-once sources, spark."""
        leader = self.leader
        return {
            "kafka": kafka_fact(self._kafka, self.bootstrap_servers),
            "group": self._config.group_id,
            "generation": self.generation,
            "leader": leader.name if leader else None,
            "exactly-once sources": self._config.exactly_once_source_support.value,
            "spark": spark_fact(self._spark),
            **({} if self._registry is None else {"schema registry": self._registry.url}),
        }

    def record(self, path: str | Path) -> Path:
        """Write the latest steps of each worker's cores to a file that `connectx replay --core` replays.

        It contains no secrets: see docs/recordings.md. Worker processes that have ended are left out.

        Raises:
            RecordingError: the file cannot be written, or no worker keeps its steps.
        """
        reason = "cluster.record was called"
        recordings = [recording for worker in self.workers for recording in worker.recordings(reason)]
        if not recordings:
            raise RecordingError(
                "No worker of this cluster keeps the steps of its core.",
                next_step="Set the worker key recording.max.bytes above 0, and record while a worker runs.",
            )
        return write_recordings(Path(path), recordings)

    def throughput(self) -> Figure:
        """Records a second by connector and task up to now, as a plotly figure to explore.

        Records of a source count when it sends them to Kafka, those of a sink when its target has accepted them, also
        records of zombies. Sampled twice a second since this cluster was made. Faults and rebalances are marked.
        """
        require("A plotly figure", "notebook", "plotly")
        from connectx.history.render.figure import throughput_figure

        return throughput_figure(self._recorder.counts(), self.events, self._recorder.sampled_ms)

    def lag(self) -> Figure:
        """Lag of each sink connector and task over time, in records, as a plotly figure to explore.

        Sampled twice a second since this cluster was made. A task that no worker runs has no lag.
        """
        require("A plotly figure", "notebook", "plotly")
        from connectx.history.render.figure import lag_figure

        return lag_figure(self._recorder.lags(), self.events, self._recorder.sampled_ms)

    def samples(self) -> Samples:
        """Records moved by task, and lag, sampled twice a second since this cluster was made."""
        return Samples(self._recorder.counts(), self._recorder.lags())

    def latency(self) -> Figure:
        """How long records took from their time in Kafka to the commit of each sink, as a plotly figure to explore.

        Median and 99th percentile in milliseconds, at most 9 % too high. A sink that is not exactly-once commits every
        `offset.flush.interval.ms`. Sampled twice a second since this cluster was made.
        """
        require("A plotly figure", "notebook", "plotly")
        from connectx.history.render.figure import latency_figure

        return latency_figure(self._recorder.latencies(), self.events, self._recorder.sampled_ms)

    def audit_input(self) -> AuditInput:
        """The input of an audit of this cluster."""
        from connectx.api.audit_input import audit_input

        return audit_input(self._config, self._client, self.workers, self.events, self._clock, self._plugins)

    def close(self) -> None:
        """Stop workers, Spark and Kafka as far as this cluster started them. A second call does nothing."""
        try:
            super().close()
        finally:
            closed(self)
            atexit.unregister(self.close)

    def _start(self, workers: int, join: bool, progress: Progress) -> None:
        clients = ClientConfigs(self._config, "cluster", self._config.bootstrap_servers)
        if self._kafka is None and not join:
            require_reachable(clients)
            group = _described(clients, self._config.group_id, progress)
            if group.members:
                raise GroupInUseError(self._config.group_id, len(group.members), group.protocol_type)
        ensure_internal_topics(clients, self._config)
        self.events.append(Transition(ClusterStarted(self._config.bootstrap_servers, self._config.group_id)))
        self._supervisor = self._supervise()
        self._supervisor.start(workers)

    def _supervise(self) -> Supervisor:
        through = self._kafka.worker_bootstrap_servers if self._kafka is not None else self._config.bootstrap_servers
        gate = self._kafka.gate if self._kafka is not None else None
        record, clock = self.events.append, self._clock
        if self._isolation == "process":
            url, fast = self._spark.connect_url, self._fast_failover
            recovery = WorkerRecovery(self._config, self._client, self._plugins, url, record, fast)

            def make(name: str, config: WorkerConfig) -> WorkerHandle:
                return ProcessWorker(name, ProcessEnvironment(config, through, url, record, recovery.settle))
        else:

            def make(name: str, config: WorkerConfig) -> WorkerHandle:
                return ThreadWorker(name, WorkerEnvironment(config, through, self._plugins, self._spark, record, clock))

        return Supervisor(self.workers, make, gate, self.events, self._config, clock)

    def _stop_workers(self) -> None:
        if self._supervisor is not None:
            self._supervisor.stop()

    def _end_starting(self) -> None:
        if self._supervisor is not None:
            self._supervisor.end_starting()

    def _urls(self) -> list[str]:
        self._check_open()
        running = [worker for worker in self.workers if worker.state == "running"]
        urls = [worker.url for worker in sorted(running, key=lambda worker: worker.cut is not None)]
        if not urls:
            raise ClusterClosedError("No worker is running.", next_step="Add one with cluster.add_worker().")
        return urls

    def _running(self) -> Supervisor:
        self._check_open()
        assert self._supervisor is not None
        return self._supervisor

    def _worker_rows(self) -> list[Row]:
        return [worker.row() for worker in self.workers]


def _chosen(
    spark: SparkSession | Mapping[str, Any] | None, settings: Mapping[str, str]
) -> SparkSession | Mapping[str, Any] | None:
    """The session of a cluster, or its settings: `spark` is what was passed, `settings` are in the worker's."""
    if isinstance(spark, Mapping):
        return {**settings, **spark}
    if spark is not None and settings:
        raise SparkSettingError([f"spark= is a session already, and {', '.join(settings)} would be of another one"])
    return settings or None if spark is None else spark


def _described(clients: ClientConfigs, group_id: str, progress: Progress) -> GroupDescription:
    """The worker group. A broker that has just started is still making the topic of its group coordinator."""
    try:
        return describe_group(clients, group_id, _PROMPT_S)
    except (KafkaRequestError, KafkaUnreachableError):
        with step(progress, "Waiting for Kafka's group coordinator"):
            return describe_group(clients, group_id, START_S)
