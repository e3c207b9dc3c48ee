"""Keys of JdbcSource: those of Confluent's JDBC source connector, and what they mean together."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Final
from zoneinfo import ZoneInfo

from connectx.connectors.jdbc.database import NUMERIC_MAPPINGS
from connectx.connectors.jdbc.dialects import connection_config
from connectx.connectors.jdbc.tables import ColumnMapping
from connectx.errors.plugins import ConfigError
from connectx.model.configdef import ConfigDef, invalid_value
from connectx.model.patterns import compiled
from connectx.model.validators import at_least, non_empty, one_of, valid_regexes
from connectx.plugins.settings import limit_problems

_END: Final = r""";(?:[;\s]|(?:--|\#)[^'"\n]*|/\*[^'"]*?\*/)*$"""
"""Matched by RE2: comments can be divided in many ways."""

MODES = ("bulk", "incrementing", "timestamp", "timestamp+incrementing")


def known_zone(name: Any) -> str | None:
    """Name of a time zone, as Europe/Berlin"""
    try:
        ZoneInfo(name or "")
    except (KeyError, ValueError, OSError):
        return "Invalid time zone identifier"
    return None


CONFIG = (
    ConfigDef(connection_config("JdbcSource", "Database"))
    .group("Database")
    .define(
        "connection.backoff.ms",
        "LONG",
        10_000,
        doc="How long to wait before the next try when the database cannot be reached; it is tried until it can.",
        importance="LOW",
        validator=at_least(1),
    )
    .define("table.whitelist", list, "", doc="Tables to read, by name or schema.name.")
    .define("table.blacklist", list, "", doc="Tables not to read, by name or schema.name.")
    .define(
        "table.include.list",
        list,
        "",
        doc="Regular expressions; tables whose name, schema.name or catalog.schema.name one of them matches are read.",
        validator=valid_regexes(),
    )
    .define(
        "table.exclude.list",
        list,
        "",
        doc="Regular expressions; tables that one of them matches are not read.",
        validator=valid_regexes(),
    )
    .define("catalog.pattern", str, None, doc="Catalog of the tables; null: any.")
    .define("schema.pattern", str, None, doc="Schema of the tables; null: any.", importance="HIGH")
    .define(
        "numeric.mapping",
        str,
        "none",
        doc="What NUMERIC(precision, scale) becomes. none: Connect's Decimal. precision_only: a whole number, with "
        "scale 0. best_fit: a whole number or a double, as it fits into 18 digits. best_fit_eager_double: a double "
        "whenever there are decimals.",
        importance="LOW",
        validator=one_of(*NUMERIC_MAPPINGS),
    )
    .group("Mode")
    .define(
        "mode",
        str,
        doc="How new rows are found. bulk: each poll reads everything. incrementing: rows with a higher number in a "
        "column. timestamp: rows with a later timestamp. timestamp+incrementing: both; also safe when rows "
        "share a timestamp.",
        importance="HIGH",
        validator=one_of(*MODES),
    )
    .define(
        "incrementing.column.name",
        str,
        "",
        doc="Column whose values only grow. Left out, the column that the database counts up itself.",
    )
    .define(
        "incrementing.column.mapping", list, "", doc="In place of incrementing.column.name, by table: regex:column."
    )
    .define("timestamp.column.name", list, "", doc="Timestamp columns; the first that is not null counts (COALESCE).")
    .define(
        "timestamp.columns.mapping", list, "", doc="In place of timestamp.column.name, by table: regex:[column|column]."
    )
    .define(
        "timestamp.initial",
        "LONG",
        None,
        doc="Milliseconds since 1970 after which the first rows are read, -1 for now. Left out, all rows are read.",
        importance="LOW",
    )
    .define(
        "validate.non.null",
        bool,
        True,
        doc="Whether the incrementing column and one of the timestamp columns must be NOT NULL: rows with a null there "
        "would never be read.",
        importance="LOW",
    )
    .define("query", str, "", doc="A SELECT to read in place of tables. The conditions of the mode are put around it.")
    .define(
        "quote.sql.identifiers",
        str,
        "always",
        doc="Whether names of tables and columns are quoted.",
        validator=one_of("always", "never"),
    )
    .group("Connector")
    .define(
        "table.types",
        list,
        "TABLE",
        doc="Kinds of tables to read: TABLE, VIEW, for PostgreSQL MATERIALIZED VIEW.",
        importance="LOW",
        validator=lambda kinds: next(
            (
                f"{kind} is not one of TABLE, VIEW, MATERIALIZED VIEW"
                for kind in kinds or [""]
                if kind.upper() not in ("TABLE", "PARTITIONED TABLE", "VIEW", "MATERIALIZED VIEW")
            ),
            None,
        ),
    )
    .define(
        "poll.interval.ms",
        int,
        5_000,
        doc="How long to wait after a table had no more rows before it is read again.",
        importance="HIGH",
        validator=at_least(1),
    )
    .define(
        "batch.max.rows",
        int,
        20_000,
        doc="About how many rows one slice takes; Confluent's connector has 100. In mode timestamp rows with the same "
        "timestamp stay together.",
        importance="LOW",
        validator=at_least(1),
    )
    .define(
        "table.poll.interval.ms",
        "LONG",
        60_000,
        doc="How often to look for new and dropped tables, which changes the tasks without a restart of the connector.",
        importance="LOW",
        validator=at_least(1),
    )
    .define(
        "topic.prefix",
        str,
        doc="What the topic's name begins with; the table's name follows. For a query it is the topic.",
        importance="HIGH",
        validator=non_empty(),
    )
    .define(
        "timestamp.delay.interval.ms",
        "LONG",
        0,
        doc="How old a timestamp must be before its row is read, so that transactions with an earlier one can end.",
        importance="HIGH",
        validator=at_least(0),
    )
    .define("db.timezone", str, "UTC", doc="Time zone of timestamps that have none.", validator=known_zone)
    .define(
        "max.connections",
        int,
        0,
        doc="Most connections that tasks open at a time, in equal shares for tasks.max tasks: each task has one, and "
        "Spark's executors have the others in the bulk lane; 0: no limit.",
        validator=at_least(0),
    )
)


def problems(config: Mapping[str, str | None]) -> dict[str, list[str]]:
    """What does not go together, by key."""
    found: dict[str, list[str]] = {}
    given = {key: (value or "").strip() for key, value in config.items()}

    def refuse(key: str, reason: str) -> None:
        found.setdefault(key, []).append(invalid_value(key, given.get(key) or None, reason))

    lists = [key for key in ("table.whitelist", "table.blacklist") if given.get(key)]
    patterns = [key for key in ("table.include.list", "table.exclude.list") if given.get(key)]
    if len(lists) == 2:
        refuse("table.whitelist", "table.whitelist and table.blacklist are exclusive.")
    if lists and patterns:
        refuse(lists[0], f"{lists[0]} and {patterns[0]} are exclusive.")
    if given.get("query") and (lists or patterns):
        refuse("query", f"a query and {(lists + patterns)[0]} are exclusive.")
    _tracked(given, refuse)
    found |= limit_problems(config)
    for key in ("incrementing.column.mapping", "timestamp.columns.mapping"):
        try:
            ColumnMapping.parse(key, [text.strip() for text in given.get(key, "").split(",") if text.strip()])
        except ConfigError as error:
            found.setdefault(key, []).extend(error.problems)
    return found


def single_query(query: str) -> str:
    """`query` as a subquery takes it: without a semicolon at its end, which comments may follow."""
    return compiled(_END).replacement("").first_in(query).strip()


def _tracked(given: Mapping[str, str], refuse: Any) -> None:
    mode = given.get("mode", "")
    for kind, name, mapping in (
        ("timestamp", "timestamp.column.name", "timestamp.columns.mapping"),
        ("incrementing", "incrementing.column.name", "incrementing.column.mapping"),
    ):
        if given.get(name) and given.get(mapping):
            refuse(name, f"{name} and {mapping} are exclusive.")
        detected = kind == "incrementing" and not given.get("query")
        if kind in mode.split("+") and not given.get(name) and not given.get(mapping) and not detected:
            refuse(name, f"the mode {mode} needs a column.")


def executor_connections(values: Mapping[str, Any], config: Mapping[str, str]) -> int:
    """How many connections executors may have for a task at a time."""
    most = int(values["max.connections"])
    return max(0, most // int(config.get("tasks.max") or 1) - 1) if most else sys.maxsize


def bulk_obstacle(values: Mapping[str, Any], config: Mapping[str, str]) -> str:
    """Why executors cannot read for a task with this configuration; empty if they can."""
    if values["mode"] == "bulk":
        return "mode=bulk reads a table in one statement, and its offsets name no row at which a slice could begin"
    return "" if executor_connections(values, config) else "max.connections leaves no connection for executors"


def in_patterns(values: Mapping[str, Any], schema: str, catalog: str) -> bool:
    """Whether schema.pattern and catalog.pattern, with SQL's wildcards, allow this place."""
    return _like(values["schema.pattern"], schema) and _like(values["catalog.pattern"], catalog)


def _like(pattern: str | None, text: str) -> bool:
    if pattern is None:
        return True
    parts = [{"%": ".*", "_": "."}.get(sign, f"\\x{{{ord(sign):x}}}") for sign in pattern]
    return compiled("".join(parts)).matches(text)
