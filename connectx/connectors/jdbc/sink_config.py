"""Keys of JdbcSink: those of Confluent's JDBC sink connector, and what they mean together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from connectx.connectors.jdbc.database import DatabaseSettings
from connectx.connectors.jdbc.dialects import connection_config
from connectx.connectors.jdbc.rows import KAFKA_KEY, RowSettings
from connectx.connectors.jdbc.source_config import known_zone
from connectx.connectors.jdbc.target import TargetSettings
from connectx.model.configdef import ConfigDef, invalid_value
from connectx.model.validators import at_least, non_empty, one_of, table_name_format

CONFIG = (
    ConfigDef(connection_config("JdbcSink", "Connection"))
    .group("Writes")
    .define(
        "insert.mode",
        str,
        "insert",
        doc="insert: every record is a new row. upsert: a record replaces the row with the same primary key. update: a "
        "record changes the row with the same primary key, if there is one.",
        importance="HIGH",
        validator=one_of("insert", "upsert", "update"),
    )
    .define(
        "batch.size",
        int,
        3_000,
        doc="Most rows of one statement, for MySQL, MariaDB and SQLite. One transaction holds all rows of a poll "
        "(consumer.override.max.poll.records).",
        validator=at_least(1),
    )
    .define(
        "delete.enabled",
        bool,
        False,
        doc="Whether a record without a value (a tombstone) deletes the row with its key. Needs pk.mode=record_key.",
    )
    .define(
        "table.name.format",
        str,
        "${topic}",
        doc="Table for a topic's records; may name a schema, as in public.${topic}.",
        validator=table_name_format(),
    )
    .define(
        "pk.mode",
        str,
        "none",
        doc="Where the primary key comes from: none, kafka (topic, partition and offset), record_key, or record_value "
        "(fields of it).",
        importance="HIGH",
        validator=one_of("none", "kafka", "record_key", "record_value"),
    )
    .define(
        "pk.fields",
        list,
        [],
        doc="Columns of the primary key. Left out: all fields of the key or value, and for pk.mode=kafka "
        f"{', '.join(KAFKA_KEY)}.",
    )
    .define("fields.whitelist", list, [], doc="Fields of values to write, besides the primary key. Left out: all.")
    .define(
        "db.timezone",
        str,
        "UTC",
        doc="Time zone in which timestamps are written to columns that have none.",
        validator=known_zone,
    )
    .define(
        "auto.create", bool, False, doc="Create a missing table for the first records, with columns for their fields."
    )
    .define("auto.evolve", bool, False, doc="Add missing columns to a table. Columns are never changed or dropped.")
    .define(
        "quote.sql.identifiers",
        str,
        "always",
        doc="Whether names of tables and columns are quoted. never: names that need quotes are refused.",
        validator=one_of("always", "never"),
    )
    .define(
        "max.retries",
        int,
        10,
        doc="How often a put is tried again while the database cannot be used, before the task fails; -1: until it "
        "succeeds.",
        validator=at_least(-1),
    )
    .define("retry.backoff.ms", int, 3_000, doc="How long to wait before a put is tried again.", validator=at_least(0))
    .define(
        "offsets.table.name",
        str,
        "connectx_offsets",
        doc="Table that holds the offsets after what was written; it is created when it is missing.",
        importance="LOW",
        validator=non_empty(),
    )
    .define(
        "lock.timeout.ms",
        int,
        2_000,
        doc="How long to wait for the offsets of a partition that another session has locked. PostgreSQL then ends a "
        "session of the same connector that holds them.",
        importance="LOW",
        validator=at_least(1),
    )
    .define(
        "idle.in.transaction.session.timeout.ms",
        int,
        30_000,
        doc="After this time PostgreSQL, MySQL and MariaDB end a session of this connector that is idle within a "
        "transaction.",
        importance="LOW",
        validator=at_least(0),
    )
)


def problems(config: Mapping[str, str | None]) -> dict[str, list[str]]:
    """What does not go together, by key."""
    mode, pk_mode = config.get("insert.mode") or "insert", config.get("pk.mode") or "none"
    fields = [name.strip() for name in (config.get("pk.fields") or "").split(",") if name.strip()]
    deletes = (config.get("delete.enabled") or "").strip().lower() == "true"
    found: dict[str, list[str]] = {}
    if mode in ("upsert", "update") and pk_mode == "none":
        found["pk.mode"] = [
            f"insert.mode={mode} needs pk.mode=record_key or pk.mode=record_value"
            + (", or pk.mode=kafka" if mode == "upsert" else "")
        ]
    if mode == "update" and pk_mode == "kafka":
        found["pk.mode"] = [invalid_value("pk.mode", pk_mode, "insert.mode=update finds no row by a record's offset")]
    if pk_mode == "kafka" and len(fields) not in (0, 3):
        reason = "pk.mode=kafka has three columns: for topic, partition and offset"
        found["pk.fields"] = [invalid_value("pk.fields", config.get("pk.fields"), reason)]
    if deletes and pk_mode != "record_key":
        found["delete.enabled"] = ["delete.enabled=true needs pk.mode=record_key"]
    return found


def target_settings(values: Mapping[str, Any], name: str = "connectx", name_prefix: str = "connectx") -> TargetSettings:
    """How to reach and write the database; `name` is what it shows of this client."""
    return TargetSettings(
        DatabaseSettings.of(values, name),
        name_prefix,
        lock_timeout_ms=values["lock.timeout.ms"],
        idle_timeout_ms=values["idle.in.transaction.session.timeout.ms"],
        batch_rows=values["batch.size"],
    )


def row_settings(values: Mapping[str, Any]) -> RowSettings:
    """How records become rows."""
    pk_mode = values["pk.mode"]
    return RowSettings(
        table_format=values["table.name.format"],
        insert_mode=values["insert.mode"],
        pk_mode=pk_mode,
        key_columns=tuple(values["pk.fields"]) if pk_mode != "none" else (),
        fields=frozenset(values["fields.whitelist"]),
        delete=values["delete.enabled"],
        auto_create=values["auto.create"],
        auto_evolve=values["auto.evolve"],
    )
