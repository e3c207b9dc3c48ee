"""Rules about connectors that conflict with each other, in one cluster or several. Pure.

Topics, groups and transactional ids are compared within one Kafka (`kafka_id`), files, tables and slots everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import combinations
from typing import TypeVar

from connectx.errors.plugins import PatternError
from connectx.history.wording import listing
from connectx.model.patterns import compiled
from connectx.model.places import Place
from connectx.model.states import State
from connectx.values import Value
from connectx.verify.audit.assignments import read_topics
from connectx.verify.audit.findings import Finding, Severity
from connectx.verify.audit.inventory import AuditedConnector, ClusterInventory
from connectx.verify.audit.places import places_of

K = TypeVar("K", str, Place)

DEAD_LETTERS = "errors.deadletterqueue.topic.name"


class _Placed(Value):
    cluster: ClusterInventory
    connector: AuditedConnector

    def name(self, *, among_several: bool) -> str:
        return f"{self.connector.name} ({self.cluster.name})" if among_several else self.connector.name

    @property
    def topics(self) -> list[str]:
        """What it reads, if it is a sink: also topics that are not known to exist, when it names them."""
        return sorted({*self.connector.topics, *read_topics(self.cluster, self.connector)})

    @property
    def group(self) -> str:
        return self.connector.config.get("consumer.override.group.id") or f"connect-{self.connector.name}"


def same_source(clusters: Sequence[ClusterInventory]) -> Iterator[Finding]:
    """Two sources that read the same file, table, slot or topic; it may be meant so when each names its own topics."""
    found = _of_type(clusters, "source")
    for place, readers in _grouped(found, lambda one: places_of(one.connector, ())):
        apart = not place.is_exclusive and _write_apart(readers)
        yield _finding(
            "same_source",
            Severity.WARNING if apart else Severity.ERROR,
            readers,
            f"{_names(readers)} read {place.text}{_on_hosts(place, readers)}",
            "Each row is in both connectors' topics. A consumer of both receives it twice."
            if apart
            else "Each row is written as often as there are readers; a replication slot serves only one of them.",
            "Delete or stop all but one, unless it is intended." if apart else "Delete or stop all but one.",
        )


def same_target(clusters: Sequence[ClusterInventory]) -> Iterator[Finding]:
    """Two sinks that write to the same file, table or bucket: rows of the same topic arrive twice."""
    found = _of_type(clusters, "sink")
    for place, writers in _grouped(found, lambda one: places_of(one.connector, one.topics)):
        shared = sorted({t for a, b in combinations(writers, 2) if _one_kafka(a, b) for t in {*a.topics} & {*b.topics}})
        yield _finding(
            "same_target",
            Severity.ERROR if shared else Severity.WARNING,
            writers,
            f"{_names(writers)} write to {place.text}{_on_hosts(place, writers)}"
            + (f", rows of {listing(['topic ' + topic for topic in shared[:5]])}" if shared else ""),
            "Each row of these topics arrives once for every sink."
            if shared
            else "Rows of different origin get mixed, and may overwrite each other.",
            "Stop all but one, or give each a separate target.",
        )


def topics_overlap(clusters: Sequence[ClusterInventory]) -> Iterator[Finding]:
    """Sources that write to the same topic, sinks whose names and patterns meet, dead letters that come back."""
    for topic, writers in _grouped(_of_type(clusters, "source"), lambda one: one.connector.topics, one_kafka=True):
        yield _finding(
            "same_topic_written",
            Severity.NOTE,
            writers,
            f"{_names(writers)} write to topic {topic}",
            "Their records are mixed; readers cannot distinguish them, and one bad writer stops all readers.",
            "Give each a topic, unless it is intended.",
        )
    sinks = _of_type(clusters, "sink")
    for topic, readers in _grouped(sinks, lambda one: one.topics, one_kafka=True):
        classes = {one.connector.class_name for one in readers}
        patterns = [one for one in readers if one.connector.config.get("topics.regex")]
        if len(classes) < len(readers) and patterns:
            yield _finding(
                "topics_overlap",
                Severity.WARNING,
                readers,
                f"{_names(readers)} of the same class read topic {topic}, "
                f"{patterns[0].connector.name} by topics.regex={patterns[0].connector.config['topics.regex']}",
                "A pattern takes in topics that others have by name: each row is written by both.",
                "Make the pattern narrower.",
            )
    for sink in sinks:
        pattern = sink.connector.config.get("topics.regex")
        letters = sorted({o.connector.config.get(DEAD_LETTERS) or "" for o in sinks if _one_kafka(o, sink)} - {""})
        caught = [topic for topic in letters if pattern and _matches(pattern, topic)]
        if caught:
            yield _finding(
                "dead_letters_read",
                Severity.WARNING,
                [sink],
                f"topics.regex={pattern} takes in the dead letters in {listing(caught)}",
                "Records that could not be written are read again, fail again, and may grow indefinitely.",
                "Make the pattern narrower, or rename the dead letter queue.",
            )


def same_groups(clusters: Sequence[ClusterInventory]) -> Iterator[Finding]:
    """Sinks that share a consumer group, and a sink in the group of the workers."""
    for group, members in _grouped(_of_type(clusters, "sink"), lambda one: [one.group], one_kafka=True):
        yield _finding(
            "same_consumer_group",
            Severity.ERROR,
            members,
            f"{_names(members)} are in the consumer group {group}",
            "Each gets a part of the partitions: every target lacks rows.",
            "Rename one, or set consumer.override.group.id.",
        )
    for cluster in clusters:
        for sink in _of_type([cluster], "sink"):
            if sink.group == cluster.group_id:
                yield _finding(
                    "sink_in_worker_group",
                    Severity.ERROR,
                    [sink],
                    f"Its consumer group {sink.group} is the group of the workers",
                    "Consumers and workers cannot share a group: tasks fail, or workers are thrown out.",
                    "Set another consumer.override.group.id, or rename the connector.",
                )


def same_transactional_ids(clusters: Sequence[ClusterInventory]) -> Iterator[Finding]:
    """Tasks of sources whose producers would have the same transactional id: groups and names that run together."""
    found = _of_type(clusters, "source")

    def ids(one: _Placed) -> list[str]:
        prefix = f"{one.cluster.group_id}-{one.connector.name}"
        return (
            [f"{prefix}-{number}" for number in range(one.connector.configured_tasks)] if one.cluster.group_id else []
        )

    seen: set[tuple[str, ...]] = set()
    for transactional_id, owners in _grouped(found, ids, one_kafka=True):
        names = tuple(one.name(among_several=True) for one in owners)
        if names not in seen:
            seen.add(names)
            yield _finding(
                "same_transactional_id",
                Severity.ERROR,
                owners,
                f"{_names(owners)} have tasks with the transactional id {transactional_id}",
                "With exactly-once sources they shut each other out, again and again.",
                "Rename a connector, or use a group.id that does not end where a name begins.",
            )


def shared_internal_topics(clusters: Sequence[ClusterInventory]) -> Iterator[Finding]:
    """Groups that share their config, offsets or status topic."""
    for one, other in combinations(clusters, 2):
        if not one.kafka_id or one.kafka_id != other.kafka_id or one.group_id == other.group_id:
            continue
        mine = {topic.name: topic.role for topic in one.topics.values() if topic.role}
        shared = sorted(topic.name for topic in other.topics.values() if topic.role and topic.name in mine)
        if shared:
            yield Finding(
                "internal_topics_shared",
                Severity.ERROR,
                listing(shared),
                f"The groups {one.group_id} and {other.group_id} use {listing(shared)}",
                "Both run every connector, write over each other's statuses and offsets, and fence each other."
                if any(mine[name] == "config" for name in shared)
                else "They write over each other's statuses or offsets wherever two connectors have the same name.",
                "Give each group its own topics (export, new topics, import).",
                f"{one.name}, {other.name}",
            )


def _of_type(clusters: Sequence[ClusterInventory], kind: str) -> list[_Placed]:
    """Connectors of a type that are not STOPPED."""
    return [
        _Placed(cluster, connector)
        for cluster in clusters
        for connector in cluster.connectors
        if connector.type == kind and connector.state != State.STOPPED
    ]


def _grouped(
    found: Iterable[_Placed], keys: Callable[[_Placed], Iterable[K]], *, one_kafka: bool = False
) -> list[tuple[K, list[_Placed]]]:
    """What several connectors have, with these connectors; with `one_kafka` only within the same Kafka."""
    having: dict[tuple[str, K], list[_Placed]] = {}
    for one in found:
        where = (one.cluster.kafka_id or one.cluster.name) if one_kafka else ""
        for key in dict.fromkeys(keys(one)):
            having.setdefault((where, key), []).append(one)
    return [(key[1], having[key]) for key in sorted(having) if len(having[key]) > 1]


def _one_kafka(one: _Placed, other: _Placed) -> bool:
    a, b = one.cluster, other.cluster
    return a is b or (bool(a.kafka_id) and a.kafka_id == b.kafka_id)


def _write_apart(sources: Sequence[_Placed]) -> bool:
    """Whether each names topics, and no two the same."""
    topics = [set(one.connector.topics) for one in sources]
    return all(topics) and len(set().union(*topics)) == sum(map(len, topics))


def _matches(pattern: str, topic: str) -> bool:
    try:
        return compiled(pattern).matches(topic)
    except PatternError:
        return False


def _names(found: Sequence[_Placed]) -> str:
    several = len({one.cluster.name for one in found}) > 1
    return listing([one.name(among_several=several) for one in found])


def _on_hosts(place: Place, found: Sequence[_Placed]) -> str:
    several = len({one.connector.worker_id.partition(":")[0] for one in found}) > 1
    return " (on different machines: perhaps different files)" if several and place.is_local else ""


def _finding(
    code: str, severity: Severity, found: Sequence[_Placed], evidence: str, consequence: str, remedy: str
) -> Finding:
    clusters = ", ".join(dict.fromkeys(one.cluster.name for one in found))
    return Finding(code, severity, _names(found), evidence, consequence, remedy, clusters)


OVERLAP_RULES = (same_source, same_target, topics_overlap, same_groups, same_transactional_ids, shared_internal_topics)
