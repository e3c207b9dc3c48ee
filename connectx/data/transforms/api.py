"""Base classes of transformations and predicates, for their authors.

Mirrors Kafka Connect's Transformation and Predicate, on whole tables of records in place of one record at a time. They
run in the worker, for small and large slices alike, and never see converters, Kafka or Spark.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

import pyarrow as pa

from connectx.model.configdef import ConfigDef
from connectx.views import Form, Shown, plugin_form

KAFKA: Final = "org.apache.kafka.connect.transforms."
"""Java package of Kafka Connect's transformations."""


class Transform(Shown):
    """Base of transformations.

    A table of records has the columns `topic` (string), `partition` (int32), `offset` (int64, sinks only), `timestamp`
    (int64, ms since 1970), `key` and `value` (any type: a struct where records have fields) and `headers` (list of
    struct key: string, value: binary, the text of the header in UTF-8).

    Args:
        settings: the transformation's keys without prefix, as text.

    Raises:
        ConfigError: a setting is wrong.
    """

    config: ClassVar[ConfigDef] = ConfigDef()
    java_class: ClassVar[str | None] = None
    version: ClassVar[str | None] = None
    reads: ClassVar[tuple[str, ...]] = ("key", "value", "topic")
    """Columns that it reads or changes. Where that is neither value nor topic, a sink's values keep their own types."""

    reads_time: bool = False
    """Whether it reads the timestamps of records: one that the source does not set is that of a poll."""

    @classmethod
    def variants(cls) -> tuple[type[Transform], ...]:
        """Classes that configurations name in place of this one, such as $Key and $Value. Default: none."""
        return ()

    varied: frozenset[str] = frozenset()
    """Which of key and value have no schemas: a field that no record of a table has may be in the next one's."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.settings: dict[str, Any] = self.config.parse(settings)
        self.configure()

    def configure(self) -> None:
        """Check and prepare `settings`; raise ConfigError for errors that the keys alone do not show."""

    def apply(self, table: pa.Table) -> pa.Table:
        """Return the changed records; missing rows are dropped records. Keep columns that you do not use.

        An exception is the failure of a record: the rows at fault are found by trying smaller tables.
        """
        raise TypeError(f"{type(self).__name__} must define apply")

    def _shown(self) -> Form:
        return plugin_form(self, "transformation")


class Predicate(Shown):
    """Base of predicates, which select the records of a transformation.

    Args:
        settings: the predicate's keys without prefix, as text.

    Raises:
        ConfigError: a setting is wrong.
    """

    config: ClassVar[ConfigDef] = ConfigDef()
    java_class: ClassVar[str | None] = None
    version: ClassVar[str | None] = None
    reads: ClassVar[tuple[str, ...]] = ("key", "value")
    """Columns whose content it reads, as in Transform."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.settings: dict[str, Any] = self.config.parse(settings)

    def test(self, table: pa.Table) -> pa.Array:
        """True or false for each row; null counts as false."""
        raise TypeError(f"{type(self).__name__} must define test")

    def _shown(self) -> Form:
        return plugin_form(self, "predicate")
