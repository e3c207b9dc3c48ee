"""Settings that all sinks of tables in files have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from connectx.connectors.lake.changes import UpsertSettings
from connectx.model.configdef import ConfigDef, Validator
from connectx.model.validators import at_least, non_empty, one_of, table_name_format

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
        .group(_TABLES)
        .define(
            "table.name.format",
            str,
            default_name,
            doc="Table for the records of a topic.",
            validator=table_name_format(),
        )
        .define(
            "topic.to.table.map",
            list,
            [],
            doc="Tables of single topics, as topic:table,topic:table. All others follow table.name.format.",
            validator=Validator(_map_problem, "list of topic:table"),
        )
        .define(
            "auto.evolve",
            bool,
            True,
            doc="Add columns that the records have and the table lacks, and widen integers, floats and decimals. With "
            "false, records without schemas are read in the table's types.",
        )
    )


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
    "partition.by", list, [], doc="Columns that divide the files of tables that this connector creates.", group=_TABLES
)

UPSERT_CONFIG: Final = (
    ConfigDef()
    .group("Rows")
    .define(
        "insert.mode",
        str,
        "append",
        doc="append: every record is a new row. upsert: a record replaces the row with the same key.",
        importance="HIGH",
        validator=one_of("append", "upsert"),
    )
    .define(
        "pk.mode",
        str,
        "none",
        doc="Where the key of a row comes from: none, record_key or record_value (fields of it).",
        importance="HIGH",
        validator=one_of("none", "record_key", "record_value"),
    )
    .define("pk.fields", list, [], doc="Columns that identify a row.")
    .define(
        "delete.enabled",
        bool,
        False,
        doc="Whether records delete rows: tombstones, and envelopes of Debezium with op d.",
    )
    .define(
        "value.envelope",
        str,
        "none",
        doc="debezium: values are change events of Debezium, with the row in before and after. none: values are rows.",
        validator=one_of("none", "debezium"),
    )
)
"""Where rows can be replaced and deleted."""


def upsert_problems(config: Mapping[str, str | None]) -> dict[str, list[str]]:
    """What contradicts itself in the settings of `UPSERT_CONFIG`, by setting."""
    mode, key = config.get("pk.mode") or "none", (config.get("pk.fields") or "").strip()
    upserts, debezium = config.get("insert.mode") == "upsert", config.get("value.envelope") == "debezium"
    deletes = (config.get("delete.enabled") or "").strip().lower() == "true"
    if not upserts:
        wanted = {"delete.enabled=true": deletes, "value.envelope=debezium": debezium}
        return {
            setting.partition("=")[0]: [f"{setting} needs insert.mode=upsert"]
            for setting, is_wanted in wanted.items()
            if is_wanted
        }
    if mode == "none":
        return {"pk.mode": ["insert.mode=upsert needs pk.mode=record_key or pk.mode=record_value"]}
    if not key:
        return {"pk.fields": ["insert.mode=upsert needs the columns that identify a row in pk.fields"]}
    if deletes and mode == "record_value" and not debezium:
        cause = "a tombstone has no value: delete.enabled=true needs pk.mode=record_key, or value.envelope=debezium"
        return {"delete.enabled": [cause]}
    return {}


FILE_CONFIG: Final = ConfigDef().define(
    "file.size.bytes",
    "LONG",
    128 << 20,
    doc="Size of files that a commit divides its rows into, and that cluster.compact() merges small files to.",
    group=_FLUSHES,
    validator=at_least(1 << 20),
)

FLUSH_CONFIG: Final = (
    ConfigDef()
    .group(_FLUSHES)
    .define(
        "flush.interval.ms",
        int,
        10_000,
        doc="Time between commits. Each commit writes at least one file.",
        importance="HIGH",
        validator=at_least(100),
    )
    .define(
        "flush.size",
        int,
        1_000_000,
        doc="Rows after which a task commits before the interval is over.",
        validator=at_least(1),
    )
    .define(
        "flush.bytes",
        "LONG",
        128 << 20,
        doc="Size of the rows in memory after which a task commits before the interval is over: about three times the "
        "size of the files.",
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
    upserts: UpsertSettings | None = None

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> LakeSettings:
        """From parsed values of a connector."""
        pairs = [entry.partition(":") for entry in values["topic.to.table.map"]]
        tables = {topic.strip(): table.strip() for topic, _, table in pairs}
        upserts = None
        if values.get("insert.mode") == "upsert":
            upserts = UpsertSettings(
                key=tuple(values["pk.fields"]),
                from_record_key=values["pk.mode"] == "record_key",
                deletes=values["delete.enabled"],
                debezium=values["value.envelope"] == "debezium",
            )
        return cls(
            values["table.name.format"],
            tables,
            values["auto.evolve"],
            values["flush.size"],
            values["flush.bytes"],
            upserts,
        )

    def table_of(self, topic: str) -> str:
        """The table that the records of a topic go to."""
        return self.tables.get(topic) or self.name_format.replace(TOPIC, topic)
