"""`cx.check` and `cluster.check`: one verdict about a running cluster, a saved history, or topics and a target.

Decides where the sides of a check come from (connectors of a cluster, or names that the caller gives), and how long to
wait for records in flight.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

from connectx.data.converters import SESSION_SETTINGS
from connectx.errors.checks import CheckError
from connectx.history.log import EventLog
from connectx.history.wording import listing, plural
from connectx.jvm.progress import Progress, shown
from connectx.kafka.settings.clients import ClientConfigs
from connectx.model.events import Event
from connectx.model.payloads import ClusterStarted
from connectx.model.worker_config import own_kafka_config
from connectx.plugins.registry import worker_config
from connectx.spark.sessions import SparkProvider
from connectx.spark.slices import TaskSpark
from connectx.values import Value
from connectx.verify.check.commits import COMMITS
from connectx.verify.check.connectors import CheckInput, ConnectorPlaces
from connectx.verify.check.judge import blocked, judge
from connectx.verify.check.named import NamedPlaces
from connectx.verify.check.rows import MAX_ROWS, OnRead
from connectx.verify.check.scenarios import Scenario
from connectx.verify.check.verdict import Verdict
from connectx.verify.check.wanted import Began, Depth, Places, Wanted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SHOWN_AFTER_S: Final = 2.0
_SHOWN_EVERY_S: Final = 0.5
_PAUSE_S: Final = 0.5
_PATIENCE_S: Final = 10.0
"""How long to wait for what is on its way to a running cluster's places when no limit was given."""
_WAITING: Final = "Waiting for rows on their way"

FindPlaces = Callable[[Sequence[Event], Began, TaskSpark], Places]


@runtime_checkable
class Checkable(Protocol):
    def _check_input(self) -> CheckInput:
        """What a check uses of it."""


def check(
    run: Checkable | EventLog | Iterable[Event] | str | Path | None = None,
    *,
    topic: str | Sequence[str] = (),
    target: Any = None,
    key: str | Sequence[str] = (),
    depth: Depth | None = None,
    scenario: Scenario | Sequence[Scenario] = (),
    timeout: float | None = None,
    examples: int = 5,
    max_rows: int = MAX_ROWS,
    connectors: str | Sequence[str] = (),
    bootstrap_servers: str | None = None,
    config: Mapping[str, Any] | None = None,
    spark: SparkSession | Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> Verdict:
    """Report lost, duplicated and reordered rows and fenced writers, or why it is unknown.

    Of a cluster, the connectors name what is compared: sources with topics, topics with targets. With `topic` it is
    compared with `target`, without a connector or a history being needed.

    Args:
        run: a cluster; an event log, events, or a file that `EventLog.to_jsonl` wrote; None: no history.
        topic: topics to read with read_committed. If there is one, and one source connector in the history, all that
            this has committed should be there.
        target: what the topics should have become: a path (lines, .csv, .parquet), a pandas, Arrow or Spark data frame,
            rows, (URL, table) of a database, or a function that returns one of these. Of a cluster: what a sink's
            target holds if the sink cannot read it, or {sink: target}.
        key: fields that identify a record or a row; without it whole records, and all fields that both sides have.
        depth: "rows" compares values and order. "keys" counts keys of topics and targets on Spark: which are missing in
            a target, and which it has too often. By default rows, and keys of topics with more than `max_rows` records.
        scenario: what the run must have reached (`verify.check.scenarios.SCENARIOS`), or predicates over events.
        timeout: limit of reading and waiting, in seconds. Records that were in the topics when the check began are
            waited for, later ones are not. By default a cluster's are waited for 10 s and read without a limit; 0 reads
            once, as it is always done of a saved history.
        examples: how many records to show per finding.
        max_rows: how many rows of a place are compared by value; with more of them the verdict is unknown.
        connectors: names of those to check; by default all. The others' events are left out of account, too.
        bootstrap_servers: where the topics are; by default where the cluster of the history was.
        config: settings of the Kafka clients by Kafka Connect's worker keys, for example security.
        spark: for "keys" without a cluster: a session, or Spark settings; by default a local Spark.
        progress: called for reading that takes more than 2 s, and for waiting; by default bars on a terminal and lines
            in a notebook.

    The classes of the connectors must be importable. The history of an attached cluster has no commits, so a verdict
    about its connectors is never "valid".

    Raises:
        EventLogError: the history cannot be read. ConfigError: no such scenario.
        CheckError: a target that cannot be read. WorkersUnreachableError: no worker answers.
        TopicMissingError, TopicUnreadableError, Kafka*Error: see those.
    """
    scenarios = (scenario,) if isinstance(scenario, str) or callable(scenario) else tuple(scenario)
    chosen = _as_tuple(connectors)
    wanted = Wanted(_as_tuple(topic), target, _as_tuple(key), depth, scenarios, examples, max_rows, chosen)
    cluster = run._check_input() if isinstance(run, Checkable) else None
    with ExitStack() as stack:
        events: Callable[[], list[Event]]
        places: FindPlaces
        if cluster is not None:
            log, provider = cluster.events, cluster.spark
            events = lambda: _with_commits(log) if topic else list(log)  # noqa: E731
            places = (
                partial(NamedPlaces, cluster.clients, wanted) if topic else partial(ConnectorPlaces, cluster, wanted)
            )
        else:
            saved, provider = _saved(run), SparkProvider(spark)
            stack.callback(provider.close)
            events = saved.copy
            places = partial(NamedPlaces, _clients(saved, bootstrap_servers, config) if topic else None, wanted)
        show = stack.enter_context(shown(progress))
        on_read = stack.enter_context(reading_progress(show))
        patience_s = 0.0 if cluster is None else _PATIENCE_S
        return Checking(events, places, provider, wanted).until(timeout, patience_s, on_read, show)


class Checking(Value):
    """Reads and judges until nothing is on its way any more."""

    events: Callable[[], list[Event]]
    places: FindPlaces
    spark: SparkProvider
    wanted: Wanted

    def until(self, timeout_s: float | None, patience_s: float, on_read: OnRead, show: Progress) -> Verdict:
        """The last verdict: nothing is pending, or the time is up.

        Args:
            timeout_s: limits reading and waiting; None: waits for `patience_s` and reads without a limit.
        """
        deadline = time.monotonic() + (patience_s if timeout_s is None else timeout_s)

        def within_limit(place: str, rows: int, size: int) -> None:
            on_read(place, rows, size)
            if timeout_s and time.monotonic() >= deadline:
                raise _TimeUpError(place, rows)

        verdict: Verdict | None = None
        began = Began()
        is_waiting = False
        while True:
            try:
                verdict, waits = self.once(within_limit, began)
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
            time.sleep(min(left_s, _PAUSE_S))

    def once(self, on_read: OnRead, began: Began) -> tuple[Verdict, bool]:
        """The verdict now, and whether a topic is yet to come."""
        events = _about(self.events(), self.wanted.connectors)  # before topics are read: later commits are pending
        spark = TaskSpark(self.spark, SESSION_SETTINGS)
        places = self.places(events, began, spark)
        try:
            places.gather()
            verdict = judge(
                _without(events, places.deleted),
                places.comparisons,
                scenarios=self.wanted.scenarios,
                unseen=places.unseen,
                examples=self.wanted.examples,
                limit=self.wanted.max_rows,
                on_read=on_read,
            )
        except BaseException:  # also an interrupt: it ends what runs in Spark
            spark.interrupt()
            raise
        finally:
            spark.release()
        _set_goals(began.goals, places, verdict)
        waits = places.waits or any(comparison.waits for comparison in places.comparisons)
        waits = waits or (places.begins and not any(checked.found for checked in verdict.checked))
        if places.deleted:
            have = "it was" if len(places.deleted) == 1 else "they were"
            verdict = replace(verdict, notes=(f"{listing(places.deleted)} not checked: {have} deleted",))
        return _without_secrets(verdict, places.masked), waits

    def _unfinished(self, error: _TimeUpError, timeout_s: float) -> Verdict:
        limit = f"the limit of {timeout_s:g} s was reached after {plural(error.rows, 'row')} of {error.place}"
        failed = tuple(one.why for one in blocked(_about(self.events(), self.wanted.connectors)).values())
        return Verdict("unknown", (), (f"{limit} (give the check more time with timeout=)",), (), failed=failed)


class _TimeUpError(Exception):
    """The time limit was reached while a place was read."""

    def __init__(self, place: str, rows: int) -> None:
        super().__init__(place, rows)
        self.place, self.rows = place, rows


def _set_goals(goals: dict[str, int], places: Places, verdict: Verdict) -> None:
    """Note how many rows each place is to get: a topic at first sight, a target once the topics have theirs."""
    compared = list(zip(places.comparisons, verdict.checked, strict=True))
    topics = [(comparison, checked) for comparison, checked in compared if not comparison.from_topic]
    settled = not places.waits and not any(one.waits or checked.pending for one, checked in topics)
    for comparison, checked in compared:
        if settled or not comparison.from_topic:
            goals.setdefault(comparison.found.place, (checked.expected or 0) + checked.pending)


def _about(events: Sequence[Event], connectors: Sequence[str]) -> list[Event]:
    """Events of these connectors and of no connector; all of them if none is named. The first event stays."""
    chosen = (None, *connectors)
    return [event for at, event in enumerate(events) if not (connectors and at) or event.connector in chosen]


def _without(events: Sequence[Event], connectors: Sequence[str]) -> list[Event]:
    return [event for at, event in enumerate(events) if at == 0 or event.connector not in connectors]


def _without_secrets(verdict: Verdict, masked: Callable[[str], str]) -> Verdict:
    """The verdict without values of the connectors' placeholders. Its examples are unchanged records."""
    return replace(
        verdict,
        findings=tuple(replace(f, place=masked(f.place), sentence=masked(f.sentence)) for f in verdict.findings),
        reasons=tuple(masked(reason) for reason in verdict.reasons),
        failed=tuple(masked(error) for error in verdict.failed),
        checked=tuple(replace(checked, place=masked(checked.place)) for checked in verdict.checked),
    )


def _with_commits(log: EventLog) -> list[Event]:
    """A cluster's history if it shows commits, which those of named topics are compared with."""
    events = list(log)
    return events if any(event.kind in COMMITS for event in events) else []


def _saved(history: Any) -> list[Event]:
    if history is None:
        return []
    return list(EventLog.from_jsonl(history) if isinstance(history, (str, Path)) else history)


def _clients(events: Sequence[Event], bootstrap_servers: str | None, config: Mapping[str, Any] | None) -> ClientConfigs:
    started = (event.payload.bootstrap_servers for event in events if isinstance(event.payload, ClusterStarted))
    servers = bootstrap_servers or (config or {}).get("bootstrap.servers") or next(started, None)
    if not servers:
        raise CheckError("The address of the Kafka with the topics is unknown.", next_step="Give bootstrap_servers=.")
    worker = worker_config(own_kafka_config({**(config or {}), "bootstrap.servers": servers}))
    return ClientConfigs(worker, "check")


def _as_tuple(given: str | Sequence[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


@contextmanager
def reading_progress(show: Progress) -> Iterator[OnRead]:
    """Passes on how far the reading is, from two seconds on, and the end of what it has passed on."""
    shown_s = time.monotonic() + _SHOWN_AFTER_S - _SHOWN_EVERY_S
    labels: set[str] = set()

    def on_read(place: str, rows: int, size: int) -> None:
        nonlocal shown_s
        label = f"Reading {place}, rows"
        if rows == size and label in labels:
            show(label, rows, size)
        elif rows != size and time.monotonic() - shown_s > _SHOWN_EVERY_S:
            shown_s = time.monotonic()
            labels.add(label)
            show(label, rows, size)

    yield on_read
