"""`cx.check`: checks a saved history, topics and a target, without a cluster.

The arguments decide what is compared with what. Without a source that can be read again, the number of records that the
history reports as committed is the expectation.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from connectx.errors.checks import CheckError
from connectx.history.log import EventLog
from connectx.jvm.progress import Progress, shown
from connectx.kafka.admin.topic_snapshot import take_snapshot
from connectx.kafka.settings.clients import ClientConfigs
from connectx.model.events import Event, EventKind
from connectx.model.payloads import ClusterStarted
from connectx.model.worker_config import own_kafka_config
from connectx.plugins.registry import worker_config
from connectx.verify.check.attribution import records_of
from connectx.verify.check.commits import commits
from connectx.verify.check.comparison import Comparison
from connectx.verify.check.judge import judge
from connectx.verify.check.rows import MAX_ROWS, OnRead
from connectx.verify.check.scenarios import Scenario
from connectx.verify.check.sides import (
    Sides,
    Topic,
    committed_by,
    decode_plainly,
    skipped_by,
    topic_rows,
)
from connectx.verify.check.targets import target_of
from connectx.verify.check.verdict import Verdict

_SHOWN_AFTER_S = 2.0
_SHOWN_EVERY_S = 0.5


def check(
    *,
    history: EventLog | Iterable[Event] | str | Path | None = None,
    topic: str | Sequence[str] = (),
    target: Any = None,
    bootstrap_servers: str | None = None,
    key: str | Sequence[str] = (),
    scenario: Scenario | Sequence[Scenario] = (),
    config: Mapping[str, Any] | None = None,
    examples: int = 5,
    max_rows: int = MAX_ROWS,
    progress: Progress | None = None,
) -> Verdict:
    """Compare what a run read and wrote: lost, duplicated and reordered rows, fenced writers, or why it is unknown.

    Args:
        history: an event log, events, or a file that `EventLog.to_jsonl` wrote.
        topic: topics to read with read_committed. If there is one, and one source connector in the history, all that
            this has committed should be there.
        target: what the topics should have become: a path (lines, .csv, .parquet), a pandas, Arrow or Spark data frame,
            rows, (uri, table) of PostgreSQL, or a function that returns one of these.
        bootstrap_servers: where the topics are; by default where the history's cluster was.
        key: fields that identify a record; without it whole records and all fields that both sides have.
        scenario: what the run must have reached (`verify.check.scenarios.SCENARIOS`), or predicates over events.
        config: settings of the Kafka clients by Kafka Connect's worker keys, for example security.
        examples: how many records to show per finding.
        max_rows: how many rows of a place are compared; with more of them the verdict is unknown.
        progress: called for reading that takes more than 2 s; by default bars on a terminal and lines in a notebook.

    Raises:
        EventLogError: the history cannot be read. ConfigError: no such scenario.
        CheckError: a target that cannot be read. TopicMissingError, TopicUnreadableError, Kafka*Error: see those.
    """
    events = _events(history)
    topics, keys = as_tuple(topic), as_tuple(key)
    clients = _clients(events, bootstrap_servers, config) if topics else None
    read = [Topic(take_snapshot(clients, name), decode_plainly) for name in topics if clients is not None]
    comparisons = [_of_topic(one, events, keys, alone=len(read) == 1) for one in read]
    if target is not None:
        if not read:
            raise CheckError("A target is compared with topics, and none was named.", next_step="Name them: topic=.")
        comparisons.append(_of_target(read, target, events, keys))
    with shown(progress) as show, reading_progress(show) as on_read:
        return judge(
            events, comparisons, scenarios=as_scenarios(scenario), examples=examples, limit=max_rows, on_read=on_read
        )


def _of_topic(topic: Topic, events: Sequence[Event], key: tuple[str, ...], *, alone: bool) -> Comparison:
    by_seq = {commit.event.seq: commit.event for commit in commits(events)}
    sources = tuple(dict.fromkeys(event.connector or "" for event in by_seq.values()))
    sources = sources if alone and len(sources) == 1 else ()  # who else wrote what is not in the history
    records = sum(records_of(event) for event in by_seq.values())
    snapshot = topic.snapshot
    return Comparison(
        sources,
        topic_rows(topic, key),
        committed=records if sources else None,
        identified=bool(key),
        tolerated=skipped_by(events, sources, by_kafka=True),
        hidden=snapshot.hidden,
        waits=snapshot.waits,
    )


def _of_target(topics: Sequence[Topic], target: Any, events: Sequence[Event], key: tuple[str, ...]) -> Comparison:
    stored = target_of(target)
    sinks = tuple(dict.fromkeys(e.connector or "" for e in events if e.kind is EventKind.PARTITIONS_ASSIGNED))
    committed = committed_by(events)
    sides = Sides(topics, stored, committed if committed or sinks else None, key)
    return Comparison(
        sinks or ("the sink",),
        sides.found(),
        sides.wanted(),
        ordered=stored.ordered,
        exact=stored.lines and not key,
        from_topic=True,
        tolerated=skipped_by(events, sinks),
        unchecked=sides.unchecked,
        hidden=(*sides.doubts, *(reason for topic in topics for reason in topic.snapshot.hidden)),
        waits=any(topic.snapshot.waits for topic in topics),
    )


def _events(history: EventLog | Iterable[Event] | str | Path | None) -> list[Event]:
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


def as_tuple(given: str | Sequence[str]) -> tuple[str, ...]:
    """One name, or several."""
    return (given,) if isinstance(given, str) else tuple(given)


def as_scenarios(given: Scenario | Sequence[Scenario]) -> tuple[Scenario, ...]:
    """One scenario, or several."""
    return (given,) if isinstance(given, str) or callable(given) else tuple(given)


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
