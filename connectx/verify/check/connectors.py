"""What the connectors of a running cluster should have written where, and what is there.

Decides which topics, sources and targets belong together. It reads from outside: topics with a separate consumer,
sources with task instances that are in no group, targets with queries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from connectx.errors.base import ConnectxError
from connectx.errors.checks import CheckError
from connectx.errors.kafka import TopicMissingError
from connectx.history.wording import listing
from connectx.kafka.admin.client import Admin
from connectx.kafka.admin.topic_snapshot import TopicSnapshot, take_snapshot
from connectx.kafka.settings.clients import ClientConfigs
from connectx.model.events import Event, EventKind
from connectx.model.patterns import compiled
from connectx.model.payloads import ConnectorConfigured
from connectx.plugins.connectors import Connector, SinkConnector
from connectx.plugins.settings import sink_connector_settings
from connectx.plugins.stored import Stored
from connectx.spark.slices import TaskSpark
from connectx.values import Value
from connectx.verify.check.attribution import records_of
from connectx.verify.check.commits import COMMITS, SourceHistory, commits, source_histories
from connectx.verify.check.comparison import Comparison
from connectx.verify.check.dead_letters import NONE, read_dead_letters
from connectx.verify.check.decoding import SinkDecoder
from connectx.verify.check.replay import Replay
from connectx.verify.check.rows import Row, Rows
from connectx.verify.check.sides import (
    Sides,
    Topic,
    committed_by,
    decode_plainly,
    joined_rows,
    mark_of,
    skipped_by,
    topic_rows,
)
from connectx.verify.check.sources import SourceReader, judged_together, partition_numbers, task_configs
from connectx.verify.check.targets import target_of
from connectx.verify.check.wanted import Began, Wanted, target_comparison

if TYPE_CHECKING:
    from connectx.history.log import EventLog
    from connectx.model.worker_config import WorkerConfig
    from connectx.plugins.registry import Plugins
    from connectx.rest.client import RestClient
    from connectx.spark.sessions import SparkProvider

Config = Mapping[str, "str | None"]


class CheckInput(Value):
    """What a check uses of a cluster."""

    events: EventLog
    client: RestClient
    plugins: Plugins
    config: WorkerConfig
    spark: SparkProvider

    @property
    def clients(self) -> ClientConfigs:
        """Settings of the check's own clients, which go around the gate."""
        return ClientConfigs(self.config, "check", self.config.bootstrap_servers)


class ConnectorPlaces:
    """What the connectors of a cluster read and write."""

    def __init__(
        self, cluster: CheckInput, wanted: Wanted, events: Sequence[Event], began: Began, spark: TaskSpark
    ) -> None:
        self._cluster = cluster
        self._wanted = wanted
        self._events = events
        self._began = began
        self._spark = spark
        self._histories = source_histories(events)
        self._snapshots: dict[str, TopicSnapshot] = {}
        self._providers = cluster.plugins.providers(cluster.config)
        self.masked: Callable[[str], str] = self._providers.masked
        self.comparisons: list[Comparison] = []
        self.unseen: list[str] = []
        self.waits = self.begins = False
        self.deleted: tuple[str, ...] = ()

    def gather(self) -> None:
        client, resolve = self._cluster.client, self._providers.resolve
        present = client.connectors()
        unknown = [name for name in self._wanted.connectors if name not in present]
        if unknown:
            named = f"There is no connector {unknown[0]}; there are {listing(sorted(present))}."
            raise CheckError(
                named if present else f"There is no connector {unknown[0]}.", next_step="Correct connectors=."
            )
        configs = {name: resolve(client.config(name)) for name in self._wanted.connectors or present}
        sinks = {name: config for name, config in configs.items() if self._is_sink(config)}
        sources = {name: config for name, config in configs.items() if name not in sinks}
        self.begins = bool(configs) and not any(event.kind in COMMITS for event in self._events)
        if not self._wanted.connectors:
            committed = {event.connector or "" for event in self._events if event.kind in COMMITS}
            self.deleted = tuple(sorted(committed - set(present)))
        targets = self._given_targets(sinks)
        self._take_sources(sources)
        for name, config in sinks.items():
            self._take_sink(name, config, targets.get(name))

    def _is_sink(self, config: Config) -> bool:
        return issubclass(self._connector_class(config), SinkConnector)

    def _connector_class(self, config: Config) -> type[Connector]:
        return self._cluster.plugins.connector_class(config.get("connector.class") or "")

    def _given_targets(self, sinks: Mapping[str, Config]) -> dict[str, Any]:
        given = self._wanted.target
        if given is None:
            return {}
        if isinstance(given, Mapping):
            unknown = sorted(set(given) - set(sinks))
            if unknown:
                raise CheckError(f"There is no sink connector {unknown[0]}.", next_step="Name one in target=.")
            return dict(given)
        if len(sinks) != 1:
            raise CheckError(
                f"A target was given, and there are {len(sinks)} sink connectors.",
                next_step="Name the sink: target={'name of the sink': target}.",
            )
        return {next(iter(sinks)): given}

    def _snapshot(self, topic: str) -> TopicSnapshot | None:
        if topic not in self._snapshots:
            try:
                taken = take_snapshot(self._cluster.clients, topic)
                written = self._began.written.setdefault(topic, taken.written)
                self._snapshots[topic] = taken.without_later(written)
            except TopicMissingError:
                self.unseen.append(f"topic {topic} does not exist")
                self.waits = True
                return None
        return self._snapshots[topic]

    def _take_sources(self, sources: Mapping[str, Config]) -> None:
        numbers = partition_numbers(self._histories)
        by_topic: dict[str, list[SourceReader]] = {}
        problems: dict[str, str] = {}
        for name, config in sources.items():
            tasks = task_configs(self._cluster.client.tasks(name), self._providers.resolve)
            mine = [history for history in self._histories if history.connector == name]
            plugins, worker = self._cluster.plugins, self._cluster.config
            places = numbers.get(name, {})
            latest = partial(self._latest, name)
            reader = SourceReader(name, config, tasks, mine, plugins, worker, self._spark, places, latest)
            topics = set(self._cluster.client.topics(name)) | {config.get("topic") or ""} - {""}
            if not topics:
                self.unseen.append(f"connector {name} has used no topic")
            for topic in sorted(topics):
                by_topic.setdefault(topic, []).append(reader)
            problems[name] = reader.problem() if topics else ""
        users = {topic: [reader.connector for reader in readers] for topic, readers in by_topic.items()}
        for together in judged_together(users, {name for name, problem in problems.items() if problem}):
            taken = [snapshot for topic in together if (snapshot := self._snapshot(topic)) is not None]
            read = {snapshot.topic for snapshot in taken}
            names = set(users[together[0]])
            whole = all(topic in read for topic, connectors in users.items() if not names.isdisjoint(connectors))
            if taken:
                self.comparisons += self._compared(taken, by_topic[together[0]], problems, is_whole=whole)

    def _latest(self, connector: str) -> list[SourceHistory]:
        histories = source_histories(list(self._cluster.events))
        return [history for history in histories if history.connector == connector]

    def _compared(
        self,
        snapshots: Sequence[TopicSnapshot],
        readers: Sequence[SourceReader],
        problem_of: Mapping[str, str],
        *,
        is_whole: bool,
    ) -> Iterator[Comparison]:
        """What should be in topics, and what is. `is_whole`: these are all topics that the sources have used.

        If the history does not show what was committed, records are also replayed, if the source allows that.
        """
        names = tuple(reader.connector for reader in readers)
        problems = [problem for name in names if (problem := problem_of[name])]
        whole = Rows(f"the source of {' and '.join(names)}", lambda: _chain(readers, snapshots[0].topic))
        counted = sum(_committed(self._events, name) for name in names)
        key = () if not problems else self._wanted.key
        found = joined_rows([topic_rows(Topic(snapshot, decode_plainly), key) for snapshot in snapshots])
        hidden = [reason for snapshot in snapshots for reason in snapshot.hidden]
        waits = any(snapshot.waits for snapshot in snapshots)
        may_change = not problems and any(reader.rows_may_change() for reader in readers)
        replay = self._replay(readers[0], snapshots) if problems and is_whole and len(readers) == 1 else None
        yield Comparison(
            names,
            found if replay is None else replay.records(),
            None if problems else whole,
            committed=counted if is_whole else None,
            identified=bool(key) or replay is not None,
            exact=not (may_change or _reconfigured(self._events, names)),
            tolerated=skipped_by(self._events, names, by_kafka=True),
            hidden=(*hidden, *(problem for problem in problems if "cannot read its source" not in problem)),
            waits=waits,
            goal=self._began.goals.get(found.place),
            late=tuple if replay is None else replay.late,
            replayed=replay is not None,
        )
        if replay is not None:
            yield Comparison(
                names,
                replay.left(),
                replay.wanted(whole.place),
                ordered=False,
                hidden=tuple(hidden),
                waits=waits,
                ahead=replay.is_ahead,
                unchecked=replay.unchecked,
            )

    def _replay(self, reader: SourceReader, snapshots: Sequence[TopicSnapshot]) -> Replay | None:
        if self._wanted.key or not any(history.unrecorded for history in reader.histories):
            return None
        try:
            return reader.replay(snapshots, self._wanted.max_rows)
        except ConnectxError as error:
            self.unseen.append(f"the source of {reader.connector} cannot be read: {error.message.rstrip('.')}")
            return None

    def _take_sink(self, name: str, config: Config, given: Any) -> None:
        settings = sink_connector_settings(config)
        topics = settings.topics or self._matching(settings.topics_regex or "")
        by_place: dict[str, tuple[Stored, list[Topic]]] = {}
        classes: tuple[type, ...] = (self._connector_class(config),)
        for topic in sorted(topics):
            try:
                stored = self._stored(config, topic) if given is None else self._given(given, config, topic)
            except ConnectxError as error:
                self.unseen.append(f"the target of {name} cannot be read: {error.message.rstrip('.')}")
                continue
            if stored is None:
                self.unseen.append(f"connector {name} cannot read its target (pass it as target=)")
                continue
            snapshot = self._snapshot(topic)
            if snapshot is not None:
                decoder = SinkDecoder.of(self._cluster.plugins, config, self._cluster.config, stored)
                classes += decoder.conversion.classes
                by_place.setdefault(stored.place, (stored, []))[1].append(Topic(snapshot, decoder))
        take = partial(take_snapshot, self._cluster.clients)
        letters = read_dead_letters(name, config, take) if by_place else NONE
        for stored, read in by_place.values():
            committed = committed_by(self._events, name)
            sides = Sides(
                read, stored, committed, self._wanted.key, take, dead_letters=letters, mark=mark_of(self._events, name)
            )
            goal = self._began.goals.get(stored.place)
            self.comparisons.append(
                target_comparison((name,), sides, self._events, self._wanted, self._spark, classes=classes, goal=goal)
            )

    def _stored(self, config: Config, topic: str) -> Stored | None:
        cls = self._connector_class(config)
        assert issubclass(cls, SinkConnector), "only sinks have targets"
        if self._cluster.plugins.chain(config).reads("topic"):
            return None  # its transformations decide where a record goes
        stored = cls.stored(config, topic)
        is_kept = self._wanted.key in ((), stored.key if stored else ())
        return stored and replace(stored, key=stored.key if is_kept else ())

    def _given(self, given: Any, config: Config, topic: str) -> Stored:
        """The user's target; its lines are those that the sink makes of values."""
        stored, cls = target_of(given), self._connector_class(config)
        assert issubclass(cls, SinkConnector), "only sinks have targets"
        if not stored.lines or stored.line_of is not None or self._wanted.key:
            return stored
        own = cls.stored(config, topic)
        return stored if own is None else replace(stored, line_of=own.line_of)

    def _matching(self, regex: str) -> list[str]:
        admin = Admin(self._cluster.clients.admin())
        try:
            return [topic for topic in admin.topics() if compiled(regex).matches(topic)]
        finally:
            admin.close()


def _chain(readers: Sequence[SourceReader], topic: str) -> Iterator[Row]:
    for reader in readers:
        yield from reader.rows(topic)


def _committed(events: Sequence[Event], connector: str) -> int:
    seqs = {commit.event.seq: commit.event for commit in commits(events) if commit.event.connector == connector}
    return sum(records_of(event) for event in seqs.values())


def _reconfigured(events: Sequence[Event], connectors: Sequence[str]) -> bool:
    """Whether one of them had another configuration before: what it wrote then may look different."""
    configured = [event.connector for event in events if event.kind is EventKind.CONNECTOR_CONFIGURED]
    offsets = {
        (event.connector, event.payload.config_offset)
        for event in events
        if isinstance(event.payload, ConnectorConfigured) and event.connector in connectors
    }
    return bool(configured) and len(offsets) > len({connector for connector, _ in offsets})
