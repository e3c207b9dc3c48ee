"""Inventory of a cluster at one moment, the input of all rules. Values only, without secrets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TypeAlias

from connectx.values import Value
from connectx.views import Shown

Config = Mapping[str, "str | None"]
ConnectorClass: TypeAlias = type


class AuditedTask(Value):
    """One task: its status, and since when that lasts (Unix time) where the history shows it."""

    number: int
    state: str
    worker_id: str
    why: str = ""
    since_ms: int | None = None


class AuditedConnector(Value):
    """One connector.

    Attributes:
        config: masked.
        configured_tasks: how many tasks it was given; `tasks` have a status.
        cls: its class; None if it cannot be found here.
    """

    name: str
    type: str
    config: Config
    state: str
    worker_id: str
    configured_tasks: int
    tasks: tuple[AuditedTask, ...] = ()
    why: str = ""
    cls: ConnectorClass | None = None

    @property
    def class_name(self) -> str:
        """Value of `connector.class`, empty if it is not known."""
        return self.config.get("connector.class") or ""

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that its configuration names: `topics` of a sink, `topic` of a source.

        None of a source with a router, which writes elsewhere; `topics` of a source (MirrorMaker 2) are its origin's.
        """
        is_source = self.type == "source"
        if is_source and any("Router" in (self.config.get(key) or "") for key in self.config if _is_type(key)):
            return ()
        named = (self.config.get("topic" if is_source else "topics") or "").split(",")
        return tuple(topic.strip() for topic in named if topic.strip())


def _is_type(key: str) -> bool:
    return key.startswith("transforms.") and key.endswith(".type")


class AuditedWorker(Value, Shown):
    """One worker.

    Attributes:
        in_group: None when the group was not inspected.
        generation: group generation that it reports; None when it cannot be asked.
        config_offset: the next config record that it has not read: now (ours), or when it last joined.
        connectors, tasks: what it runs or has to run, "orders-0" for a task.
        plugins: class to version of what it can run; None when it did not answer.
        lacks: classes of connectors that it does not know.
        as_of_join: `config_offset` is that of its last join; what it has read since cannot be seen.
        mismatch: the leader had no newer configs than its members when it last assigned (CONFIG_MISMATCH).
    """

    worker_id: str
    in_group: bool | None = None
    generation: int | None = None
    config_offset: int | None = None
    connectors: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    plugins: Mapping[str, str] | None = None
    lacks: tuple[str, ...] = ()
    as_of_join: bool = False
    mismatch: bool = False


class AuditedTopic(Value):
    """One topic. `role` is config, offset or status for an internal one.

    `unstable` are partitions whose last stable offset stayed below the end while the transactions were listed.
    """

    name: str
    partitions: int
    replicas: int = 1
    cleanup_policy: str = "delete"
    role: str = ""
    unstable: tuple[int, ...] = ()


class AuditedTransaction(Value):
    """A transaction that has not ended; `partitions` as "topic-0"."""

    transactional_id: str
    age_ms: int
    timeout_ms: int
    partitions: tuple[str, ...] = ()


class ClusterInventory(Value):
    """One cluster.

    Attributes:
        name: for readers.
        kafka_id: id of its Kafka cluster; clusters with the same id share topics, groups and transactional ids.
        protocol: of the group, on the wire: default, compatible or sessioned; empty when the group was not inspected.
        delay_ms: scheduled.rebalance.max.delay.ms, where it is known.
        topics: the internal ones, and those that its connectors name, by name; missing ones are left out.
        topics_known: whether topics were looked at.
        settings: worker settings by key, as far as they are known; masked.
        keys: configuration keys of each connector class, as far as workers describe it, the common ones included.
        unseen: what could not be looked at, in sentences.
    """

    name: str
    taken_ms: int
    kafka_id: str = ""
    group_id: str = ""
    protocol: str = ""
    is_settled: bool = True
    delay_ms: int | None = None
    connectors: tuple[AuditedConnector, ...] = ()
    workers: tuple[AuditedWorker, ...] = ()
    topics: Mapping[str, AuditedTopic] = field(default_factory=dict)
    topics_known: bool = False
    brokers: int = 1
    transactions: tuple[AuditedTransaction, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unseen: tuple[str, ...] = ()
