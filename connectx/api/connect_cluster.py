"""Base class of started and attached clusters: connectors and verbs by REST, views of a history.

It makes no decision about the group and starts no worker: `connectx.api.cluster` starts them, `connectx.api.attached`
only observes. It works on any Kafka Connect cluster. Kafka Connect has no such class.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, Self

from connectx.api.connector import Connector
from connectx.api.forms import html_form, text_form, with_panel
from connectx.api.misspelled_keys import warn_of_misspelled
from connectx.api.movement import backlog, topic_sizes
from connectx.api.notes import Notes
from connectx.api.waits import wait_committed
from connectx.errors.base import ConnectxError
from connectx.errors.clusters import ClusterClosedError
from connectx.extras import require
from connectx.history.log import EventLog
from connectx.jvm.progress import Progress, in_kernel, shown, step
from connectx.model.clock import Clock
from connectx.model.events import Event, Transition
from connectx.model.payloads import ClusterStopped, Detached
from connectx.plugins.registry import Plugins
from connectx.rest.client import RestClient
from connectx.views import Listed, Row

if TYPE_CHECKING:
    from plotly.graph_objects import Figure
    from pyspark.sql import SparkSession

    from connectx.api.movement import MovementReader
    from connectx.api.peek import DeadLetters, Peeker
    from connectx.api.transfer.exporter import Backup
    from connectx.api.transfer.importer import ImportReport
    from connectx.history.folds.tracks import Samples
    from connectx.model.worker_config import WorkerConfig
    from connectx.plugins.stored import Compaction
    from connectx.rest.bodies import Plugin
    from connectx.spark.sessions import SparkProvider
    from connectx.verify.audit.findings import Audit
    from connectx.verify.audit.gather import AuditInput
    from connectx.verify.check.connectors import CheckInput
    from connectx.verify.check.verdict import Verdict

PANELS: Final = "connectx.panels"
"""Group of entry points. Each names a function that makes a live panel of a cluster."""


class WorkerView(Protocol):
    """The attributes that workers of all kinds of clusters have."""

    @property
    def name(self) -> str:
        """Its name in the history."""

    @property
    def state(self) -> str:
        """running, or why not."""

    @property
    def url(self) -> str:
        """Its REST URL."""

    @property
    def tasks(self) -> list[str]:
        """Its tasks, like "orders-0"."""

    @property
    def connectors(self) -> list[str]:
        """Names of the connectors that it runs."""

    @property
    def generation(self) -> int | None:
        """Latest group generation of which it was a member."""

    @property
    def is_leader(self) -> bool:
        """Whether it leads the group."""

    @property
    def task_metrics(self) -> Mapping[str, Mapping[str, object]]:
        """Live numbers of its tasks, as far as they are known."""


class WorkersFace(Protocol):
    """The workers of any cluster."""

    def __iter__(self) -> Iterator[WorkerView]: ...

    def __len__(self) -> int: ...

    def name_of(self, worker_id: str) -> str:
        """Name of the worker that a status calls by its host:port."""

    def lost_on(self, worker_id: str) -> str | None:
        """Why the work that a status places on a worker is lost; None while the worker lives."""


class ConnectCluster(ABC):
    """A Kafka Connect cluster: its connectors, its history, and its text and HTML forms.

    Args:
        events: its history.
        clock: the clock of that history.

    A subclass sets `_client` (for workers that answer), `_spark` and `workers`, puts what must be ended into
    `_endings`, and calls `close` when its start fails.
    """

    workers: WorkersFace
    _client: RestClient
    _spark: SparkProvider
    _title: ClassVar[str] = "Cluster"
    _new_one: ClassVar[str] = "Make a new one with cx.Cluster()."
    has_faults: ClassVar[bool] = False
    """Whether its workers can be broken on purpose."""
    _last_event: ClassVar[ClusterStopped | Detached] = ClusterStopped()

    def __init__(self, events: EventLog, clock: Clock) -> None:
        self.events = events
        self._clock = clock
        self._notes = Notes(events)
        self._plugins = Plugins()
        self._endings = contextlib.ExitStack()
        self._panel: Any = None
        self._closed = False

    def create(
        self, name: str, config: Mapping[str, Any], *, initial_state: str | None = None, timeout: float = 30.0
    ) -> Connector:
        """Create a connector from Kafka Connect's keys; `connector.class` may also be a Python class.

        Warns of a key that has no effect and resembles one that has.

        Raises:
            PluginNotFoundError: there is no such connector class (only for a `Cluster` that this process started).
            ClassNotImportableError: a class of a notebook, and workers that are separate processes.
            ConfigRejectedError: the configuration is invalid; has all messages.
            ConnectorExistsError: a connector of that name exists.
        """
        text, name = self._as_text(config), name.strip()  # as workers do with the names of new connectors
        if text.get("connector.class"):
            self._check_class(str(text["connector.class"]))
        self._client.create(name, text, initial_state=initial_state, timeout_s=timeout)
        warn_of_misspelled(self._client, name, text, level=2)
        return self[name]

    @abstractmethod
    def _check_class(self, name: str) -> None:
        """Refuse a class that certainly does not exist, before a worker gets the request."""

    def validate(self, config: Mapping[str, Any]) -> Mapping[str, Any]:
        """Check a configuration without creating anything; the shape is that of Kafka Connect's REST."""
        return self._client.validate(self._as_text(config))

    def plugins(self) -> Listed[Plugin]:
        """Connector classes that can be used: class, type and version, in the shape of Kafka Connect's REST."""
        return Listed(self._client.plugins(), "connector classes")

    def __getitem__(self, name: str) -> Connector:
        return Connector(
            name,
            self._client,
            worker_name=self.workers.name_of,
            lost=self.workers.lost_on,
            notes=self._notes_of,
        )

    @property
    def connectors(self) -> Listed[Connector]:
        """All connectors, by name."""
        return Listed([self[name] for name in self._client.connectors()], "connectors")

    def status(self, name: str) -> Mapping[str, Any]:
        """State of a connector and its tasks, in the shape of Kafka Connect's REST; see `Connector.status`."""
        return self[name].status()

    def wait(self, name: str, state: str = "RUNNING", timeout: float = 60.0) -> None:
        """Wait until a connector and all its tasks (at least one if RUNNING) are in `state`.

        Raises:
            ConnectorFailedError: it or a task has FAILED instead; has the trace.
            WaitTimeoutError: not within `timeout` seconds.
        """
        self[name].wait(state, timeout)

    def wait_committed(
        self,
        name: str,
        records: int = 0,
        *,
        offset: Mapping[str, Any] | None = None,
        worker: str | None = None,
        since: int = 0,
        timeout: float = 60.0,
    ) -> Event:
        """Wait until a connector has committed `records` records and the source `offset`; without both, for any commit.

        Args:
            records: total number of records in its commits after `since`.
            offset: a source offset in any of its source partitions, such as {"position": 1024}.
            worker: count only commits of this worker.
            since: number of the event after which commits count, such as `cluster.events.last_seq`.

        Returns the event of the commit.

        Raises:
            WaitTimeoutError: not within `timeout` seconds.
            NotSeenError: this is an attached cluster, whose commits are not visible.
        """
        return wait_committed(
            self.events,
            name,
            records,
            offset,
            worker,
            since,
            timeout,
            waits=lambda: str(self._notes_of(name).get("waits", "")),
        )

    def _notes_of(self, connector: str) -> dict[str, object]:
        return self._notes.of(connector, (worker.task_metrics for worker in self.workers))

    def _as_text(self, config: Mapping[str, Any]) -> dict[str, str | None]:
        """The values as the strings that Kafka Connect has."""
        return {key: self._plugins.as_text(value) for key, value in config.items()}

    @abstractmethod
    def overview(self) -> dict[str, object]:
        """The cluster in a few words."""

    def panel(self) -> Any:
        """The live panel, an ipywidget: also shown by the cluster as the last line of a cell. There is one a cluster.

        Raises:
            ClusterClosedError: this cluster is closed.
            MissingExtraError: ipywidgets or anywidget are not installed.
            ImportError: no installed package has a panel.
        """
        self._check_open()
        if self._panel is None or self._panel.stopped:  # one that has failed, or that was closed
            require("The live panel", "notebook", "ipywidgets", "anywidget")
            self._panel = panel_factory("cluster")(self)
        return self._panel

    @abstractmethod
    def audit_input(self) -> AuditInput:
        """The input of an audit of this cluster."""

    def audit(self, *, progress: Progress | None = None) -> Audit:
        """Report mistakes that cause errors now or later: findings with evidence, consequence and remedy."""
        return audit(self, progress=progress)

    @property
    @abstractmethod
    def config(self) -> WorkerConfig:
        """Settings by which Kafka is reached."""

    @property
    def spark(self) -> SparkSession:
        """The Spark session of this cluster, or for looking at it; started when it is first needed."""
        with shown(None) as show:
            return self._spark_session(show)

    def _spark_session(self, show: Progress) -> SparkSession:
        if self._spark.ready:
            return self._spark.get()
        with step(show, "Starting Spark"):
            return self._spark.get()

    def _check_input(self) -> CheckInput:
        """What a check of this cluster uses."""
        from connectx.verify.check.connectors import CheckInput

        return CheckInput(self.events, self._client, self._plugins, self.config, self._spark)

    def check(self, **wanted: Any) -> Verdict:
        """Report what was lost, duplicated, reordered and fenced: `connectx.check` of this cluster."""
        from connectx.verify.check.check import check

        return check(self, **wanted)

    def peek(self, name: str, rows: int = 20, where: Callable[[Any], bool] | None = None) -> Listed[Any]:
        """The last `rows` of a topic, of the topic of a source, or of the target of a sink, oldest first.

        Args:
            name: of a connector or a topic.
            where: returns True for rows to keep. It gets a `connectx.api.peek.Record` (`key` and `value` as the
                connector's converters read them, `headers`, ...), or a row of the target as a dict. All is read then.

        Raises:
            TopicMissingError: no topic and no connector has this name.
            PeekError: the sink cannot read its target.
        """
        return self._peeker().peek(name, rows, where)

    def dead_letters(self, sink: str, rows: int = 100) -> DeadLetters:
        """The newest dead letters of a sink with their reasons; `send_again` sends them to their original topics.

        Raises:
            PeekError: the sink has no dead letter queue.
        """
        return self._peeker().dead_letters(sink, rows)

    def compact(self, sink: str) -> Listed[Compaction]:
        """Merge the small files of a sink's tables. The sink continues, and its offsets do not change.

        Raises:
            CompactionError: the connector has no files that can be merged.
            RetriableError: other writers changed the same files meanwhile.
        """
        from connectx.api.compaction import compact

        return compact(self._client, self._plugins, self.config, sink)

    def _peeker(self) -> Peeker:
        from connectx.api.peek import Peeker

        return Peeker(self._client, self._plugins, self.config)

    def backlog(self, connector: str) -> int:
        """How many records of its topics a sink has not committed, also while no task of it runs; about, for
        markers of transactions count.

        Raises:
            TopicMissingError: a topic does not exist. KafkaUnreachableError and other errors of Kafka.
            ConfigError: the connector is no sink.
        """
        return backlog(self._client, self.config, connector)

    def movement_reader(self) -> MovementReader | None:
        """A reader that computes rates and lag from offsets; None: the tasks of the workers report them."""
        return None

    def topic_sizes(self, topics: Sequence[str]) -> dict[str, int]:
        """About how many records these topics hold, by topic; markers of transactions count, missing topics do not.

        Raises:
            KafkaUnreachableError and other errors of Kafka.
        """
        return topic_sizes(self.config, topics)

    def samples(self) -> Samples | None:
        """Throughput and lag since this object was made; None if they are not sampled."""
        return None

    def timeline(self, since: int = 0) -> Figure:
        """Tasks over workers, after event number `since` and up to now, as a plotly figure to explore.

        Throughput and lag are below on the same time axis. If plotly cannot be shown, it is a picture. The timeline
        of a closed cluster ends at its last event.
        """
        require("A plotly figure", "notebook", "plotly")
        from connectx.history.render.figure import timeline_figure

        return timeline_figure(
            self.events, since=since, now_ms=None if self._closed else self._clock(), samples=self.samples()
        )

    def report(self, path: str | Path) -> Path:
        """Write the timeline with its story as one HTML page that needs no network and no script."""
        from connectx.history.render.report import write_report

        return write_report(self.events, path, samples=self.samples())

    def export_to(
        self, path: str | Path, *, secrets: bool = False, stop: bool = False, progress: Progress | None = None
    ) -> Backup:
        """Write configurations, target states and offsets of all connectors to a JSON file.

        Secrets are masked unless `secrets`. With `stop` the connectors are stopped first, so their offsets are
        then final, for a move to another cluster.
        """
        from connectx.api.transfer.exporter import export_to

        with shown(progress) as show:
            return export_to(self._client, path, secrets=secrets, stop=stop, progress=show)

    def import_from(
        self,
        path: str | Path,
        *,
        secrets: Mapping[str, Mapping[str, str]] | None = None,
        overwrite: bool = False,
        progress: Progress | None = None,
    ) -> ImportReport:
        """Restore connectors of an exported file; each stays STOPPED until it has its offsets.

        `secrets` are values of masked keys: {connector: {key: value}}. With `overwrite` connectors that run are
        replaced, too, and continue from the offsets of the file.

        Raises:
            BackupFileError, ImportRefusedError: the file cannot be used, or nothing was changed for another reason.
            ImportIncompleteError: some could not be restored and are STOPPED; has the `report`.
        """
        from connectx.api.transfer.importer import import_from

        with shown(progress) as show:
            return import_from(self._client, path, secrets=secrets, overwrite=overwrite, progress=show)

    def close(self) -> None:
        """End what this object has started. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        try:
            self._endings.close()  # each of them, whatever the others raise
        finally:
            self.events.append(Transition(self._last_event))
            if self._panel is not None:
                self._panel.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._closed:
            raise ClusterClosedError("This cluster is closed.", next_step=self._new_one)

    @abstractmethod
    def _worker_rows(self) -> list[Row]:
        """The table of workers."""

    def _connector_rows(self) -> list[Row]:
        try:
            names = self._client.impatient().connectors()
        except ConnectxError:  # no worker answers now; the table of workers shows it
            return []
        return [self[name].row() for name in names]

    def _shown_facts(self) -> dict[str, object] | None:
        return None if self._closed else self.overview()

    def __repr__(self) -> str:
        facts = self._shown_facts()
        connectors = [] if facts is None else self._connector_rows()
        return text_form(self._title, facts, self._worker_rows(), connectors)

    def _repr_html_(self) -> str:
        facts = self._shown_facts()
        connectors = [] if facts is None else self._connector_rows()
        now = None if self._closed else self._clock()
        return html_form(self._title, facts, self._worker_rows(), connectors, self.events, now, self.samples())

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        """The live panel where a kernel can show one, and the forms without it for everybody else."""
        forms: dict[str, Any] = {"text/plain": repr(self), "text/html": self._repr_html_()}
        if not self._closed and in_kernel():
            with contextlib.suppress(ImportError):
                forms = with_panel(forms, self.panel())
        return forms


def panel_factory(name: str) -> Callable[..., Any]:
    """Load a factory of panels that an installed package declares as an entry point in the group PANELS.

    Args:
        name: "cluster" for the widget of a notebook, "page" for a page in the browser.

    Raises:
        ImportError: no installed package declares it.
    """
    for point in entry_points(group=PANELS, name=name):
        factory: Callable[..., Any] = point.load()
        return factory
    raise ImportError(f"No installed package registers a panel as {PANELS}. Run: pip install 'connectx[notebook]'")


def audit(*clusters: ConnectCluster, progress: Progress | None = None) -> Audit:
    """Find mistakes in these clusters that cause errors now or later.

    Also compares the clusters: their sources, targets, groups and topics. It only reads. Each finding has evidence
    without secrets, a consequence and a remedy; `unseen` lists what could not be read.

    Args:
        progress: called for each step; by default bars on a terminal and lines in a notebook.

    Raises:
        WorkersUnreachableError: no worker of a cluster answers.
        ClusterClosedError: a cluster is closed.
    """
    from connectx.verify.audit.gather import gather
    from connectx.verify.audit.rules import judge

    if not clusters:
        raise ValueError("audit needs a cluster: cx.audit(cluster, ...)")
    with shown(progress) as show:
        return judge([gather(cluster.audit_input(), show) for cluster in clusters])
