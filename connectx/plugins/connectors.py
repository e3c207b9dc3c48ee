"""Base classes of connectors, for their authors.

Mirror Kafka Connect's SourceConnector and SinkConnector. A connector decides nothing about transactions, fencing or
ownership: the runtime does. Its class describes it to the rest of the product.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from connectx.extras import Extra, require
from connectx.model.configdef import ConfigDef
from connectx.model.places import Place
from connectx.model.source_offsets import SourceOffset, SourcePartition
from connectx.plugins.contexts import ConnectorContext
from connectx.plugins.stored import Compaction, Stored
from connectx.plugins.tasks import SinkTask, SourceTask
from connectx.views import Form, Shown, plugin_form


class Connector(Shown):
    """Base of connectors. `config` describes the keys that users set; validation uses it."""

    config: ClassVar[ConfigDef]
    added_groups: ClassVar[tuple[str, ...]] = ()
    """Groups of `config` that its Java class lacks: a validation shows them once one of their keys is given."""
    java_class: ClassVar[str | None] = None
    """Java class that it replaces: configurations may name it, and REST shows it. Subclasses do not inherit it."""
    other_names: ClassVar[tuple[str, ...]] = ()
    """Further values of `connector.class`, such as Java classes whose configurations it takes. Not inherited either."""
    summary: ClassVar[str] = ""
    """What it reads or writes, in a few words, for tables of connectors."""
    version: ClassVar[str | None] = None
    offsets_in_kafka: ClassVar[bool] = False
    """Kafka has all of its offsets, so a user who alters them there has altered them all (KIP-875)."""
    requires: ClassVar[tuple[tuple[Extra, str], ...]] = ()
    """Optional modules that its tasks import, each after the extra of connectx that brings it."""

    def start(self, config: Mapping[str, str], context: ConnectorContext) -> None:
        """Take the validated configuration; raise to fail the connector."""
        self.settings = dict(config)

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        """Divide the work into at most `max_tasks` task configurations. Default: one task with the whole config."""
        return [self.settings]

    def monitor_interval_ms(self) -> int | None:
        """How often the runtime calls `monitor` while the connector is started. Default None: never."""
        return None

    def monitor(self) -> None:
        """Inspect the outside system, and call `context.request_task_reconfiguration` when the tasks must change.

        Runs on the connector's thread, which stops the connector only after this call. An error fails the connector.
        """

    def stop(self) -> None:
        """Release what `start` took."""

    @classmethod
    def places(cls, config: Mapping[str, str | None], topics: Sequence[str] = ()) -> Sequence[Place] | None:
        """Return what a source reads or a sink writes outside Kafka, for the audit, which finds overlaps.

        Args:
            config: the configuration as it was given: secrets are masked, placeholders are not replaced.
            topics: those that a sink reads.

        Default None: unknown, and the audit goes by the keys of widely used connectors.
        """
        return None

    @classmethod
    def check_requirements(cls) -> None:
        """Raise MissingExtraError unless all that `requires` names is installed."""
        for extra, module in cls.requires:
            require(cls.__name__, extra, module)

    def _shown(self) -> Form:
        return plugin_form(self, "source connector" if isinstance(self, SourceConnector) else "sink connector")

    @classmethod
    def validate(cls, config: Mapping[str, str | None]) -> Mapping[str, Sequence[str]]:
        """Errors beyond the checks of `config`: key to messages. Must not change anything."""
        return {}


class SourceConnector(Connector):
    """A source: reads an outside system into topics. Set `task_class` or nest a class called Task."""

    task_class: ClassVar[type[SourceTask]]
    exactly_once: ClassVar[bool | None] = None
    """Whether it is supported with any config; None: unknown."""

    @classmethod
    def exactly_once_support(cls, config: Mapping[str, str | None]) -> bool | None:
        """True: supported with this config, False: not, None: unknown (KIP-618, SourceConnector.exactlyOnceSupport)."""
        return cls.exactly_once

    @classmethod
    def check_offsets(
        cls, config: Mapping[str, str | None], offsets: Sequence[tuple[SourcePartition, SourceOffset | None]]
    ) -> None:
        """Refuse a user's offsets if the tasks could not continue from them; None resets a partition.

        Kafka Connect: SourceConnector.alterOffsets (KIP-875). Raises ValueError with the reason.
        """

    @classmethod
    def can_define_transaction_boundaries(cls, config: Mapping[str, str | None]) -> bool | None:
        """True: supported with this config, so that transaction.boundary=connector is allowed (KIP-618).

        Its tasks then use `context.transaction`. Kafka Connect: SourceConnector.canDefineTransactionBoundaries.
        """
        return False


class SinkConnector(Connector):
    """A sink: writes topics to an outside system. Set `task_class` or nest a class called Task."""

    task_class: ClassVar[type[SinkTask]]

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        """Default: every task gets the whole configuration, and the consumer group divides the partitions."""
        return [self.settings] * max_tasks

    @classmethod
    def key_fields(cls, config: Mapping[str, str | None]) -> Sequence[str] | None:
        """Names of the fields of records' keys that the target stores; empty: all. Default None: it stores no key.

        Keys without schemas are then read as structs. A key that is no object is the only field, if one is named.
        """
        return None

    @classmethod
    def stored(cls, config: Mapping[str, str | None], topic: str) -> Stored | None:
        """Return the rows of a topic's target. Default None: unknown."""
        return None

    @classmethod
    def compact(cls, config: Mapping[str, str | None], topic: str) -> Compaction | None:
        """Merge small files of the target of a topic, while tasks write to it. Default None: it has no such files.

        Raises:
            RetriableError: other writers changed the same files meanwhile.
        """
        return None

    @classmethod
    def bulk_obstacle(cls, config: Mapping[str, str | None]) -> str | None:
        """Why Spark's executors cannot stage records with this configuration. None: its task defines `stage`."""
        return f"{cls.__name__} writes in the worker only"

    @classmethod
    def bulk_classes(cls, config: Mapping[str, str | None]) -> Sequence[type]:
        """Classes whose modules executors need besides those of the connector, converters and transformations."""
        return ()

    @classmethod
    def flush_interval_ms(cls, config: Mapping[str, str | None]) -> int | None:
        """Time between flushes of a task. Default None: the worker's offset.flush.interval.ms."""
        return None
