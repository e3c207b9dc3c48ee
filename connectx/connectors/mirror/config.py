"""Keys of MirrorSource: those of MirrorMaker 2's MirrorSourceConnector, and what they mean together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from connectx.model.configdef import ConfigDef, invalid_value
from connectx.model.ids import TopicPartition
from connectx.model.patterns import matches_any, problem_of
from connectx.model.validators import addresses, at_least, matching, one_of

_JAVA: Final = "org.apache.kafka.connect.mirror."
_DEFAULT: Final = "DefaultReplicationPolicy"
_IDENTITY: Final = "IdentityReplicationPolicy"
_CONVERTERS: Final = ("ByteArrayConverter", "ByteArray", "org.apache.kafka.connect.converters.ByteArrayConverter")
SOURCE_READER: Final = ("source.cluster.", "source.consumer.")
"""Prefixes of the settings of the client that reads records."""
SOURCE_ADMIN: Final = ("source.cluster.", "source.admin.")
"""Prefixes of the settings of the client that asks the source for topics, offsets and groups."""
TARGET_ADMIN: Final = ("target.cluster.", "target.admin.")
"""Prefixes of the settings of the client that creates topics and sets offsets of groups in the target."""


def _patterns_problem(patterns: Any) -> str | None:
    for pattern in patterns or ():
        if problem := problem_of(pattern):
            return f"Invalid regular expression {pattern}: {problem}"
    return None


CONFIG: Final = (
    ConfigDef()
    .group("Clusters")
    .define(
        "source.cluster.bootstrap.servers",
        list,
        doc="Brokers of the cluster to read. Other source.cluster.*, source.consumer.* and source.admin.* keys are "
        "settings of its clients, such as source.cluster.security.protocol.",
        importance="HIGH",
        validator=addresses(),
    )
    .define(
        "target.cluster.bootstrap.servers",
        list,
        doc="Brokers of the worker's own Kafka, to create topics there and to set offsets of groups. Other "
        "target.cluster.* and target.admin.* keys are settings of that client.",
        importance="HIGH",
        validator=addresses(),
    )
    .define(
        "source.cluster.alias",
        str,
        "source",
        doc="Name of the source: the prefix of topics, and part of source partitions.",
        importance="HIGH",
        validator=matching(r"[a-zA-Z0-9._-]+"),
    )
    .define(
        "target.cluster.alias",
        str,
        "target",
        doc="Name of the target: topics of the source that have it as their prefix came from here, and are left out.",
        validator=matching(r"[a-zA-Z0-9._-]+"),
    )
    .group("Topics")
    .define(
        "topics",
        list,
        ".*",
        doc="Topics to mirror: names and regular expressions.",
        importance="HIGH",
        validator=_patterns_problem,
    )
    .define(
        "topics.exclude",
        list,
        r"mm2.*\.internal,.*\.replica,__.*",
        doc="Topics to leave out: names and regular expressions.",
        importance="HIGH",
        validator=_patterns_problem,
    )
    .define(
        "replication.policy.class",
        str,
        _JAVA + _DEFAULT,
        doc=f"Names of topics in the target: {_DEFAULT} puts the source's alias before them, {_IDENTITY} keeps them.",
        validator=one_of(_DEFAULT, _IDENTITY, _JAVA + _DEFAULT, _JAVA + _IDENTITY),
    )
    .define(
        "replication.policy.separator",
        str,
        ".",
        doc="Text between the alias and the topic's name.",
        importance="LOW",
        validator=matching(r"[a-zA-Z0-9._-]+"),
    )
    .define(
        "replication.factor",
        "SHORT",
        -1,
        doc="Replication factor of topics that are created; -1 is the broker's default.",
    )
    .define(
        "sync.topic.configs.enabled",
        bool,
        True,
        doc="Whether topics are created with cleanup policy, retention, compaction and record size of the source's.",
    )
    .define(
        "refresh.topics.enabled", bool, True, doc="Whether to look for new topics and partitions.", importance="LOW"
    )
    .define(
        "refresh.topics.interval.seconds",
        int,
        600,
        doc="How often to look for new topics and partitions.",
        importance="LOW",
        validator=at_least(1),
    )
    .define(
        "source.consumer.max.poll.records",
        int,
        20_000,
        doc="Most records of a poll, which with transaction.boundary=poll are one transaction for each partition.",
        importance="LOW",
        validator=at_least(1),
    )
    .group("Offsets")
    .define(
        "source.consumer.auto.offset.reset",
        str,
        None,
        doc="Where to begin a partition without a source offset: earliest (the default) or latest. If set, also where "
        "to continue when the source has removed records that were not read yet, or created the topic again; if "
        "not set, that fails the task.",
        validator=lambda value: None if value in (None, "earliest", "latest") else "it is not earliest or latest",
    )
    .define(
        "source.offset.header",
        str,
        "",
        doc="Header that each mirrored record gets, with its offset in the source. By it offsets of groups are "
        "translated. Empty: none, and records stay exactly as they are.",
    )
    .define(
        "sync.group.offsets.enabled",
        bool,
        False,
        doc="Whether committed offsets of groups of the source are translated and set in the target, for groups that "
        "have no members there, and only forward. Needs source.offset.header.",
    )
    .define(
        "sync.group.offsets.interval.seconds",
        int,
        60,
        doc="How often offsets of groups are translated.",
        validator=at_least(1),
    )
    .define(
        "groups",
        list,
        ".*",
        doc="Groups whose offsets are translated: names and regular expressions.",
        validator=_patterns_problem,
    )
    .define(
        "groups.exclude",
        list,
        "console-consumer-.*,connect-.*,__.*",
        doc="Groups to leave out: names and regular expressions.",
        validator=_patterns_problem,
    )
)


@dataclass(frozen=True, slots=True)
class Naming:
    """Which topics are mirrored, and their names in the target (MirrorMaker 2: TopicFilter, ReplicationPolicy)."""

    alias: str
    target_alias: str
    separator: str
    keeps_names: bool
    wanted: tuple[str, ...]
    excluded: tuple[str, ...]

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Naming:
        """From parsed keys."""
        return cls(
            values["source.cluster.alias"],
            values["target.cluster.alias"],
            values["replication.policy.separator"],
            values["replication.policy.class"].endswith(_IDENTITY),
            tuple(values["topics"]),
            tuple(values["topics.exclude"]),
        )

    def takes(self, topic: str, *, same_cluster: bool = False) -> bool:
        """Whether a topic of the source is mirrored; `same_cluster`: the source is the target, too."""
        if not matches(topic, self.wanted, self.excluded):
            return False
        came_from = (self.target_alias, self.alias) if same_cluster else (self.target_alias,)
        return self.keeps_names or not topic.startswith(tuple(alias + self.separator for alias in came_from))

    def target(self, topic: str) -> str:
        """Name of a topic in the target."""
        return topic if self.keeps_names else f"{self.alias}{self.separator}{topic}"


def matches(name: str, wanted: tuple[str, ...], excluded: tuple[str, ...]) -> bool:
    """Whether a whole name fits one of the patterns, and none of those to leave out."""
    return matches_any(wanted, name) and not matches_any(excluded, name)


def problems(config: Mapping[str, str | None]) -> dict[str, list[str]]:
    """What does not go together, by key."""
    found: dict[str, list[str]] = {}
    for side in ("key", "value"):
        given = (config.get(f"{side}.converter") or "").strip()
        if given not in _CONVERTERS:
            reason = "MirrorSource keeps the bytes of records, which needs ByteArrayConverter in the connector's config"
            found[f"{side}.converter"] = [invalid_value(f"{side}.converter", given or None, reason)]
    syncs = (config.get("sync.group.offsets.enabled") or "").strip().lower() == "true"
    if syncs and not (config.get("source.offset.header") or "").strip():
        found["source.offset.header"] = ["sync.group.offsets.enabled=true needs source.offset.header"]
    return found


def source_partition(alias: str, at: TopicPartition) -> dict[str, Any]:
    """As MirrorMaker 2 writes it."""
    return {"cluster": alias, "partition": at.partition, "topic": at.topic}


def offset_problem(partition: Mapping[str, Any], offset: Mapping[str, Any] | None) -> str | None:
    """What is wrong with a source offset that a user wants to set; None when it can be used."""
    for name, kind in (("cluster", str), ("partition", int), ("topic", str)):
        value = partition.get(name)
        if not isinstance(value, kind) or isinstance(value, bool):
            return f"The source partition needs '{name}', a {'number' if kind is int else 'text'}"
    if offset is None:
        return None
    value = offset.get("offset")
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        return "The source offset needs 'offset', a number that is not negative: that of the last mirrored record"
    return None
