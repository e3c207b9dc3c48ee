"""`cluster.check`: checks a running cluster, whose connectors name what is compared with what.

Decides which topics, sources and targets belong together, and how long to wait for records in flight. It reads from
outside: topics with a separate consumer, sources with task instances that are in no group, targets with queries.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from connectx.data.converters import SESSION_SETTINGS
from connectx.errors.base import ConnectxError
from connectx.errors.checks import CheckError
from connectx.errors.kafka import TopicMissingError
from connectx.jvm.progress import Progress, shown
from connectx.kafka.admin.client import Admin
from connectx.kafka.admin.topic_snapshot import TopicSnapshot, take_snapshot
from connectx.kafka.settings.clients import ClientConfigs
from connectx.model.events import Event, EventKind
from connectx.model.payloads import ConnectorConfigured
from connectx.plugins.api import SinkConnector, Stored
from connectx.plugins.settings import sink_connector_settings
from connectx.spark.slices import TaskSpark
from connectx.verify.check.attribution import records_of
from connectx.verify.check.check import as_scenarios, as_tuple, reading_progress
from connectx.verify.check.commits import COMMITS, SourceHistory, commits, source_histories
from connectx.verify.check.comparison import Comparison
from connectx.verify.check.decoding import SinkDecoder
from connectx.verify.check.judge import blocked, judge
from connectx.verify.check.replay import Replay
from connectx.verify.check.rows import MAX_ROWS, OnRead, Row, Rows
from connectx.verify.check.scenarios import Scenario
from connectx.verify.check.sides import (
    Sides,
    Topic,
    committed_by,
    decode_plainly,
    joined_rows,
    skipped_by,
    topic_rows,
)
from connectx.verify.check.sources import SourceReader, judged_together, partition_numbers, task_configs
from connectx.verify.check.targets import target_of
from connectx.verify.check.verdict import Verdict

if TYPE_CHECKING:
    from connectx.history.log import EventLog
    from connectx.model.worker_config import WorkerConfig
    from connectx.plugins.registry import Plugins
    from connectx.rest.client import RestClient
    from connectx.spark.sessions import SparkProvider

Config = Mapping[str, "str | None"]

_PAUSE_S = 0.5
_PATIENCE_S = 10.0
"""How long to wait for what is on its way when no limit was given."""
_WAITING = "Waiting for rows on their way"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the caller of `Cluster.check` may ask for.

    Attributes:
        target: what a sink's target holds, if the sink cannot read it, or {sink: target}; as `connectx.check` takes it.
        key: fields that identify a record or a row; without it whole records, and all fields that both sides have.
        scenario: what the run must have reached (`verify.check.scenarios.SCENARIOS`), or predicates over events.
        examples: how many records to show per finding.
        max_rows: how many rows of a place are compared; with more of them the verdict is unknown.
        progress: called for reading that takes more than 2 s, and for waiting; by default bars on a terminal and lines
            in a notebook.

    A check raises ConfigError (no such scenario), CheckError (a target that cannot be read), WorkersUnreachableError
    (no worker answers), TopicUnreadableError and other errors of Kafka.
    """

    target: Any = None
    key: str | Sequence[str] = ()
    scenario: Scenario | Sequence[Scenario] = ()
    examples: int = 5
    max_rows: int = MAX_ROWS
    progress: Progress | None = None

    @property
    def keys(self) -> tuple[str, ...]:
        """The fields of `key`."""
        return as_tuple(self.key)


@dataclass(slots=True)
class Began:
    """How things stood when a check began, so that it does not wait for what comes later.

    Attributes:
        goals: how many rows each place is to get.
        written: by topic and partition, the offset after the last record.
    """

    goals: dict[str, int] = field(default_factory=dict)
    written: dict[str, Mapping[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClusterChecker:
    """Checks one cluster."""

    events: EventLog
    client: RestClient
    plugins: Plugins
    config: WorkerConfig
    spark: SparkProvider

    @property
    def clients(self) -> ClientConfigs:
        """Settings of the check's own clients, which go around the gate."""
        return ClientConfigs(self.config, "check", self.config.bootstrap_servers)

    def check(self, wanted: Wanted, timeout_s: float | None) -> Verdict:
        """Judge, again and again while something is on its way, for `timeout_s` seconds at most.

        What the topics held when the check began is waited for, what came later is not. None: wait up to 10 s, and read
        without a limit. 0: read once, without a limit.
        """
        with shown(wanted.progress) as show, reading_progress(show) as on_read:
            return self._check_until(wanted, timeout_s, on_read, show)

    def _check_until(self, wanted: Wanted, timeout_s: float | None, on_read: OnRead, show: Progress) -> Verdict:
        deadline = time.monotonic() + (_PATIENCE_S if timeout_s is None else timeout_s)

        def within_limit(place: str, rows: int, size: int) -> None:
            on_read(place, rows, size)
            if timeout_s and time.monotonic() >= deadline:
                raise _TimeUpError(place, rows)

        verdict: Verdict | None = None
        began = Began()
        is_waiting = False
        with self.events.subscribe() as news:
            while True:
                try:
                    verdict, waits = self._check(wanted, within_limit, began)
                except _TimeUpError as error:
                    return self._unfinished(error, timeout_s or 0.0) if verdict is None else verdict
                left_s = deadline - time.monotonic()
                if not (verdict.pending or waits) or left_s <= 0:
                    if is_waiting:
                        show(_WAITING, 1, 1)
                    return verdict
                if not is_waiting:
                    is_waiting = True
                    show(_WAITING, 0, 1)
                paused_s = time.monotonic()
                news.get(min(left_s, _PAUSE_S))
                time.sleep(max(0.0, min(paused_s + _PAUSE_S, deadline) - time.monotonic()))  # however busy it is

    def _unfinished(self, error: _TimeUpError, timeout_s: float) -> Verdict:
        read = f"the check did not end within {timeout_s:g} s: {error.rows:,} rows of {error.place} were read"
        stuck = (f"blocked: {one.why}" for one in blocked(list(self.events)).values())
        return Verdict("unknown", (), (f"{read} (give it more time with timeout=)", *stuck), ())

    def _check(self, wanted: Wanted, on_read: OnRead, began: Began) -> tuple[Verdict, bool]:
        """The verdict now, and whether a topic is yet to come."""
        events = list(self.events)  # before the topics are looked at: what is committed later is pending
        gathering = _Gathering(self, events, wanted, began)
        try:
            gathering.gather()
            verdict = judge(
                events,
                gathering.comparisons,
                scenarios=as_scenarios(wanted.scenario),
                unseen=gathering.unseen,
                examples=wanted.examples,
                limit=wanted.max_rows,
                on_read=on_read,
            )
        except BaseException:  # also an interrupt: it ends what runs in Spark
            gathering.spark.interrupt()
            raise
        finally:
            gathering.spark.release()
        _set_goals(began.goals, gathering, verdict)
        waits = gathering.waits or any(comparison.waits for comparison in gathering.comparisons)
        return _without_secrets(verdict, gathering.masked), waits


class _TimeUpError(Exception):
    """The time limit was reached while a place was read."""

    def __init__(self, place: str, rows: int) -> None:
        super().__init__(place, rows)
        self.place, self.rows = place, rows


class _Gathering:
    def __init__(self, checker: ClusterChecker, events: Sequence[Event], wanted: Wanted, began: Began) -> None:
        self._checker = checker
        self._events = events
        self._wanted = wanted
        self._histories = source_histories(events)
        self._snapshots: dict[str, TopicSnapshot] = {}
        self.spark = TaskSpark(checker.spark, SESSION_SETTINGS)
        self._providers = checker.plugins.providers(checker.config)
        self.masked = self._providers.masked
        self.comparisons: list[Comparison] = []
        self.unseen: list[str] = []
        self.waits = False
        self._began = began

    def gather(self) -> None:
        """Everything that can be compared."""
        client, resolve = self._checker.client, self._providers.resolve
        configs = {name: resolve(client.config(name)) for name in client.connectors()}
        sinks = {name: config for name, config in configs.items() if self._is_sink(config)}
        sources = {name: config for name, config in configs.items() if name not in sinks}
        self.waits = bool(configs) and not any(event.kind in COMMITS for event in self._events)  # the first is to come
        gone = sorted({history.connector for history in self._histories} - set(sources))
        self.unseen += [f"connector {name} was deleted, so its source cannot be read again" for name in gone]
        targets = self._given_targets(sinks)
        self._take_sources(sources)
        for name, config in sinks.items():
            self._take_sink(name, config, targets.get(name))

    def _is_sink(self, config: Config) -> bool:
        return issubclass(self._checker.plugins.connector_class(config.get("connector.class") or ""), SinkConnector)

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
                taken = take_snapshot(self._checker.clients, topic)
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
            tasks = task_configs(self._checker.client.tasks(name), self._providers.resolve)
            mine = [history for history in self._histories if history.connector == name]
            plugins, worker = self._checker.plugins, self._checker.config
            places = numbers.get(name, {})
            latest = partial(self._latest, name)
            reader = SourceReader(name, config, tasks, mine, plugins, worker, self.spark, places, latest)
            topics = set(self._checker.client.topics(name)) | {config.get("topic") or ""} - {""}
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
        histories = source_histories(list(self._checker.events))
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
        key = () if not problems else self._wanted.keys
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
        if self._wanted.keys or not any(history.unrecorded for history in reader.histories):
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
        for topic in sorted(topics):
            try:
                stored = target_of(given) if given is not None else self._stored(config, topic)
            except ConnectxError as error:
                self.unseen.append(f"the target of {name} cannot be read: {error.message.rstrip('.')}")
                continue
            if stored is None:
                self.unseen.append(f"connector {name} cannot read its target (pass it as target=)")
                continue
            snapshot = self._snapshot(topic)
            if snapshot is not None:
                decoder = SinkDecoder(config, stored, self._checker.plugins, self._checker.config)
                by_place.setdefault(stored.place, (stored, []))[1].append(Topic(snapshot, decoder))
        for stored, read in by_place.values():
            again = partial(take_snapshot, self._checker.clients)
            sides = Sides(read, stored, committed_by(self._events, name), self._wanted.keys, again)
            self.comparisons.append(
                Comparison(
                    (name,),
                    sides.found(),
                    sides.wanted(),
                    ordered=stored.ordered,
                    exact=stored.lines and not self._wanted.keys,
                    from_topic=True,
                    tolerated=skipped_by(self._events, (name,)),
                    unchecked=sides.unchecked,
                    outdated=sides.outdated,
                    hidden=(*sides.doubts, *(reason for topic in read for reason in topic.snapshot.hidden)),
                    waits=any(topic.snapshot.waits for topic in read),
                    goal=self._began.goals.get(stored.place),
                )
            )

    def _stored(self, config: Config, topic: str) -> Stored | None:
        cls = self._checker.plugins.connector_class(config.get("connector.class") or "")
        assert issubclass(cls, SinkConnector), "only sinks have targets"
        if self._checker.plugins.chain(config).reads("topic"):
            return None  # its transformations decide where a record goes
        stored = cls.stored(config, topic)
        return stored and replace(stored, key=stored.key if not self._wanted.keys else ())

    def _matching(self, regex: str) -> list[str]:
        admin = Admin(self._checker.clients.admin())
        try:
            return [topic for topic in admin.topics() if re.fullmatch(regex, topic)]
        finally:
            admin.close()


def _set_goals(goals: dict[str, int], gathering: _Gathering, verdict: Verdict) -> None:
    """Note how many rows each place is to get: a topic at first sight, a target once the topics have theirs."""
    compared = list(zip(gathering.comparisons, verdict.checked, strict=True))
    topics = [(comparison, checked) for comparison, checked in compared if not comparison.from_topic]
    settled = not gathering.waits and not any(one.waits or checked.pending for one, checked in topics)
    for comparison, checked in compared:
        if settled or not comparison.from_topic:
            goals.setdefault(comparison.found.place, (checked.expected or 0) + checked.pending)


def _without_secrets(verdict: Verdict, masked: Callable[[str], str]) -> Verdict:
    """The verdict without values of the connectors' placeholders. Its examples are unchanged records."""
    return replace(
        verdict,
        findings=tuple(replace(f, place=masked(f.place), sentence=masked(f.sentence)) for f in verdict.findings),
        reasons=tuple(masked(reason) for reason in verdict.reasons),
        checked=tuple(replace(checked, place=masked(checked.place)) for checked in verdict.checked),
    )


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
