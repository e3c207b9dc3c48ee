"""Settings that all sinks of tables in files have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from connectx.model.configdef import ConfigDef, Validator
from connectx.model.validators import at_least, non_empty

TOPIC: Final = "${topic}"
_TABLES: Final = "Tables"
_FLUSHES: Final = "Commits"


def _map_problem(value: Any) -> str | None:
    wrong = [entry for entry in value or () if not all(entry.partition(":")[::2])]
    return f"{wrong[0]} is not topic:table" if wrong else None


def tables_config(default_name: str) -> ConfigDef:
    """Which table a topic goes to, and what may change there."""
    return (
        ConfigDef()
        .define(
            "table.name.format",
            str,
            default_name,
            doc="Table for the records of a topic.",
            group=_TABLES,
            validator=non_empty(),
        )
        .define(
            "topic.to.table.map",
            list,
            [],
            doc="Tables of single topics, as topic:table,topic:table. All others follow table.name.format.",
            group=_TABLES,
            validator=Validator(_map_problem, "list of topic:table"),
        )
        .define(
            "auto.evolve",
            bool,
            True,
            doc="Add columns that the records have and the table lacks, and widen integers, floats and decimals. With "
            "false, records without schemas are read in the table's types.",
            group=_TABLES,
        )
    )


STORAGE: Final = "storage."
"""Prefix of settings that go to the storage library."""

PATH_CONFIG: Final = ConfigDef().define(
    "path",
    str,
    doc="Directory of the tables: a local path, or a URL such as s3://bucket/lake. Settings that begin with storage. "
    "go to the storage library, without this prefix.",
    group="Storage",
    importance="HIGH",
    validator=non_empty(),
)
"""Where tables are directories."""

PARTITION_CONFIG: Final = ConfigDef().define(
    "partition.by",
    list,
    [],
    doc="Columns that divide the files of tables that this connector creates.",
    group=_TABLES,
)

FLUSH_CONFIG: Final = (
    ConfigDef()
    .define(
        "flush.interval.ms",
        int,
        10_000,
        doc="Time between commits. Each commit writes at least one file.",
        group=_FLUSHES,
        importance="HIGH",
        validator=at_least(100),
    )
    .define(
        "flush.size",
        int,
        1_000_000,
        doc="Rows after which a task commits before the interval is over.",
        group=_FLUSHES,
        validator=at_least(1),
    )
    .define(
        "flush.bytes",
        "LONG",
        128 << 20,
        doc="Size of the rows in memory after which a task commits before the interval is over: about three times the "
        "size of the files.",
        group=_FLUSHES,
        validator=at_least(1),
    )
)


@dataclass(frozen=True, slots=True)
class LakeSettings:
    """What the sinks have in common."""

    name_format: str
    tables: Mapping[str, str]
    evolve: bool
    flush_rows: int
    flush_bytes: int

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> LakeSettings:
        """From parsed values of a connector."""
        pairs = [entry.partition(":") for entry in values["topic.to.table.map"]]
        tables = {topic.strip(): table.strip() for topic, _, table in pairs}
        return cls(
            values["table.name.format"], tables, values["auto.evolve"], values["flush.size"], values["flush.bytes"]
        )

    def table_of(self, topic: str) -> str:
        """The table that the records of a topic go to."""
        return self.tables.get(topic) or self.name_format.replace(TOPIC, topic)
