"""Keys of PostgresCdcSource: those of Debezium's PostgreSQL connector that it supports; others are refused."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode

from connectx.connectors.cdc.columns import KEY_COLUMNS
from connectx.connectors.cdc.values import MOST_FRACTION_DIGITS
from connectx.connectors.shared.unavailable import PLACEHOLDER
from connectx.model.configdef import ConfigDef, invalid_value
from connectx.model.spelling import misspelled
from connectx.model.validators import at_least, between, matching, non_empty, one_of, valid_regex, valid_regexes

SNAPSHOT_MODES: Final = ("initial", "initial_only", "always", "no_data", "never", "when_needed")
MISMATCH_STRATEGIES: Final = ("trust_offset", "trust_slot", "trust_greater_lsn", "no_validation")
CONNECTION_KEYS: Final = "database.hostname, database.port, database.dbname, database.user or database.password"

_SLOT = "Replication"
_TABLES = "Tables"
_EVENTS = "Events"
_SSL: Final = ("sslmode", "sslcert", "sslkey", "sslpassword", "sslrootcert")

_NAMESPACES: Final = (
    "binary.handling|column|converters|custom.metric|database|datatype|decimal.handling|event|extended|field.name",
    "flush.lsn|guardrail|heartbeat|hstore|include.schema|include.unknown|incremental|internal|interval|log|lsn|message",
    "money|notification|offset.mismatch|openlineage|plugin.name|post.processors|provide.transaction|publication",
    "publish|query.fetch|read.only|replica.identity|retriable|sanitize|schema|signal|skip.messages|skipped|slot",
    "snapshot|source.struct|sourceinfo|status.update|streaming|table|time.precision|tombstones|topic|transaction.metadata",
    "unavailable.value|vector|xmin",
)
_DEBEZIUM: Final = re.compile(rf"({'|'.join(_NAMESPACES)})(\..*)?")
_CONNECT: Final = re.compile(r"topic\.creation\..*")

_WITHOUT_EFFECT: Final[Mapping[str, tuple[str, ...]]] = {
    "database.tcpKeepAlive": ("true", "false"),
    "database.initial.statements": ("",),
    "extended.headers.enabled": ("false",),
    "flush.lsn.source": ("true",),
    "field.name.adjustment.mode": ("none",),
    "include.unknown.datatypes": ("true", "false"),
    "provide.transaction.metadata": ("false",),
    "schema.name.adjustment.mode": ("none",),
    "schema.refresh.mode": ("columns_diff", "columns_diff_exclude_unchanged_toast"),
    "slot.drop.on.stop": ("false",),
    "slot.failover": ("false",),
    "slot.max.retries": (),
    "slot.retry.delay.ms": (),
    "snapshot.isolation.mode": ("repeatable_read", "serializable"),
    "snapshot.locking.mode": ("none",),
    "snapshot.max.threads.multiplier": ("1",),
    "xmin.fetch.interval.ms": ("0",),
}
"""Keys of Debezium that change nothing here, with the values that may be given; empty: any."""


def _key_columns(given: str | None) -> str | None:
    for part in filter(str.strip, (given or "").split(";")):
        if not KEY_COLUMNS.fullmatch(part) or valid_regex().check(part):
            return f"{part} is not table:column,column with regular expressions"
    return None


CONFIG: Final = (
    ConfigDef()
    .group("Database")
    .define(
        "database.hostname",
        str,
        doc="Host of the server; a path that begins with / is the folder of its socket.",
        importance="HIGH",
        validator=non_empty(),
    )
    .define("database.port", int, 5432, doc="Port of the server.", importance="HIGH")
    .define("database.user", str, doc="User with the attribute REPLICATION who may read the tables.", importance="HIGH")
    .define("database.password", str, None, doc="Password of the user.", importance="HIGH", secret=True)
    .define("database.dbname", str, doc="Database to read.", importance="HIGH", validator=non_empty())
    .define("database.sslmode", str, None, doc="sslmode of libpq, as require or verify-full.")
    .define("database.sslcert", str, None, doc="File of the client's certificate.")
    .define("database.sslkey", str, None, doc="File of the client's key (PEM, for libpq).")
    .define("database.sslpassword", str, None, doc="Password of the client's key.", secret=True)
    .define("database.sslrootcert", str, None, doc="File of the certificates to trust.")
    .group(_EVENTS)
    .define(
        "topic.prefix",
        str,
        doc="Name of the server in topics, records and source offsets. A table's topic is prefix.schema.table.",
        importance="HIGH",
        validator=matching(r"[a-zA-Z0-9_.\-]+"),
    )
    .group(_SLOT)
    .define(
        "plugin.name",
        str,
        "pgoutput",
        doc="Output plugin of the slot. Debezium's default is decoderbufs, which is not supported.",
        validator=one_of("pgoutput"),
    )
    .define(
        "slot.name",
        str,
        "debezium",
        doc="Replication slot to read. It is created if it does not exist and no source offset is stored.",
        importance="HIGH",
        validator=matching("[a-z0-9_]{1,63}"),
    )
    .define(
        "slot.read.mode",
        str,
        "auto",
        doc="How the slot is read. auto: a backlog by SQL, and then what follows over a replication connection if the "
        "server allows one. stream: over a replication connection only. sql: by SQL only. Not a key of Debezium.",
        validator=one_of("auto", "stream", "sql"),
    )
    .define(
        "status.update.interval.ms",
        int,
        10_000,
        doc="How often a replication connection reports to the server at least. It must be less than the server's "
        "wal_sender_timeout.",
        importance="LOW",
        validator=at_least(10),
    )
    .define("publication.name", str, "dbz_publication", doc="Publication to read.", importance="HIGH")
    .define(
        "publication.autocreate.mode",
        str,
        "all_tables",
        doc="What to do about the publication. all_tables: create it for all tables if it does not exist, which needs "
        "a superuser. filtered: create it for the tables that the lists choose, or set its tables to them. disabled: "
        "it must exist.",
        validator=one_of("all_tables", "filtered", "disabled"),
    )
    .define(
        "publish.via.partition.root",
        bool,
        False,
        doc="Whether a publication that the task creates or changes names the root of a partitioned table, so that "
        "all partitions have one topic. Otherwise each partition has its own.",
        importance="LOW",
    )
    .define(
        "offset.mismatch.strategy",
        str,
        "trust_offset",
        doc="What to do when the slot does not fit the source offset, because it is gone, was created again or is "
        "ahead. trust_offset: fail. trust_slot: continue at the slot's position; changes may be missing or come twice. "
        "trust_greater_lsn: continue at the later of both positions; changes may be missing. no_validation: continue "
        "at the source offset, and fail only if the slot is gone or has lost WAL after it; changes may be missing; "
        "Debezium's default. With snapshot.mode=when_needed a snapshot is taken instead.",
        validator=one_of(*MISMATCH_STRATEGIES),
    )
    .group(_TABLES)
    .define(
        "snapshot.mode",
        str,
        "initial",
        doc="When to read all rows first. initial: when no source offset is stored. initial_only: the same, and no "
        "changes afterwards, without a slot and a publication. always: at each start of the task. no_data, never: not "
        "at all. when_needed: as initial, and also when the slot does not fit the offset.",
        validator=one_of(*SNAPSHOT_MODES),
    )
    .define(
        "schema.include.list",
        list,
        "",
        doc="Regular expressions; only tables of these schemas are read.",
        validator=valid_regexes(),
    )
    .define(
        "schema.exclude.list",
        list,
        "",
        doc="Regular expressions; tables of these schemas are not read.",
        validator=valid_regexes(),
    )
    .define(
        "table.include.list",
        list,
        "",
        doc="Regular expressions for schema.table; only these tables are read.",
        importance="HIGH",
        validator=valid_regexes(),
    )
    .define(
        "table.exclude.list",
        list,
        "",
        doc="Regular expressions for schema.table; these tables are not read.",
        validator=valid_regexes(),
    )
    .define(
        "column.include.list",
        list,
        "",
        doc="Regular expressions for schema.table.column; values have only these columns. A key has all of its "
        "columns.",
        validator=valid_regexes(),
    )
    .define(
        "column.exclude.list",
        list,
        "",
        doc="Regular expressions for schema.table.column; values do not have these columns. A key has all of its "
        "columns.",
        validator=valid_regexes(),
    )
    .group(_EVENTS)
    .define(
        "message.key.columns",
        str,
        None,
        doc="Columns that are the key of records in place of the primary key: table:column,column;table:column. Tables "
        "and columns are regular expressions, as public.orders or (.*).orders.",
        validator=_key_columns,
    )
    .group(_TABLES)
    .define(
        "snapshot.fetch.size",
        int,
        10_240,
        doc="How many rows of a snapshot one slice takes; each slice is a transaction in Kafka.",
        importance="LOW",
        validator=at_least(1),
    )
    .define(
        "snapshot.max.threads",
        int,
        1,
        doc="How many tables, or ranges of large tables, a snapshot reads at a time, each over a separate connection "
        "and as of the same moment.",
        validator=at_least(1),
    )
    .group(_EVENTS)
    .define(
        "max.batch.size",
        int,
        16_384,
        doc="About how many changes one slice takes. A transaction of PostgreSQL is never divided. Debezium's default "
        "is 2,048.",
        validator=at_least(1),
    )
    .define(
        "max.queue.size",
        int,
        65_536,
        doc="About how many changes are read from the slot at a time. Later readings of a long backlog have up to 8 "
        "times as many, while these fit into 64 MiB. Debezium's default is 8,192.",
        validator=at_least(1),
    )
    .define(
        "poll.interval.ms",
        "LONG",
        50,
        doc="How long to wait before the slot is read again when it had no changes. Debezium's default is 500.",
        validator=at_least(1),
    )
    .define(
        "heartbeat.interval.ms",
        int,
        0,
        doc="How often to write a record to the topic of heartbeats; 0: never. The slot is advanced without "
        "heartbeats, too.",
        validator=at_least(0),
    )
    .define(
        "topic.heartbeat.prefix",
        str,
        "__debezium-heartbeat",
        doc="What the topic of heartbeats begins with; topic.prefix follows after a dot.",
        importance="LOW",
    )
    .group(_SLOT)
    .define(
        "slot.advance.interval.ms",
        "LONG",
        10_000,
        doc="How often source offset and slot are advanced while no table changes, and the slot while a backlog is "
        "read ahead, so that the server can drop WAL. Not a key of Debezium.",
        importance="LOW",
        validator=at_least(1),
    )
    .group(_EVENTS)
    .define(
        "tombstones.on.delete",
        bool,
        True,
        doc="Whether a record without a value follows each delete, for compaction of topics.",
    )
    .define(
        "skipped.operations",
        list,
        "t",
        doc="Operations that give no records: c (insert), u (update), d (delete), t (truncate), or none.",
        importance="LOW",
        validator=lambda given: None if set(given or ()) <= {"c", "u", "d", "t", "none"} else "use c, u, d, t or none",
    )
    .define(
        "decimal.handling.mode",
        str,
        "precise",
        doc="What NUMERIC and MONEY become. precise: Connect's Decimal, or a struct of scale and value where a NUMERIC "
        "has no precision. string: text. double: a double, which may lose digits.",
        validator=one_of("precise", "string", "double"),
    )
    .define(
        "money.fraction.digits",
        int,
        2,
        doc="Scale of the Decimal that MONEY becomes.",
        importance="LOW",
        validator=between(0, MOST_FRACTION_DIGITS),
    )
    .define(
        "hstore.handling.mode",
        str,
        "json",
        doc="What HSTORE becomes. json: a JSON object as text. map: a map of texts.",
        importance="LOW",
        validator=one_of("json", "map"),
    )
    .define(
        "time.precision.mode",
        str,
        "adaptive",
        doc="What dates and times become. adaptive: days, and milliseconds or microseconds as the column's precision "
        "needs. adaptive_time_microseconds: the same, with times of day always in microseconds. connect: Connect's "
        "Date, Time and Timestamp, in milliseconds.",
        validator=one_of("adaptive", "adaptive_time_microseconds", "connect"),
    )
    .define(
        "binary.handling.mode",
        str,
        "bytes",
        doc="What BYTEA becomes.",
        importance="LOW",
        validator=one_of("bytes", "hex"),
    )
    .define(
        "unavailable.value.placeholder",
        str,
        PLACEHOLDER,
        doc="Text in place of a value stored out of line (TOAST) that an update did not change.",
    )
)


def problems(config: Mapping[str, str | None]) -> dict[str, list[str]]:
    """What the definition cannot find: keys of Debezium that are not supported, and lists that exclude each other."""
    found: dict[str, list[str]] = {}
    meant = dict(misspelled(config.keys(), CONFIG.keys))
    for key, value in config.items():
        if key in CONFIG or not _DEBEZIUM.fullmatch(key) or _CONNECT.fullmatch(key):
            continue
        allowed = _WITHOUT_EFFECT.get(key)
        if allowed is None:
            hint = f"; did you mean {meant[key]}?" if key in meant else ""
            found[key] = [invalid_value(key, value, f"PostgresCdcSource does not support this key{hint}")]
        elif allowed and (value or "").lower() not in allowed:
            found[key] = [invalid_value(key, value, f"PostgresCdcSource supports only {' or '.join(allowed)}")]
    for kind in ("schema", "table", "column"):
        include, exclude = f"{kind}.include.list", f"{kind}.exclude.list"
        if config.get(include) and config.get(exclude):
            found[exclude] = [invalid_value(exclude, config[exclude], f"{include} is set, too; use one of them")]
    return found


def uri(values: Mapping[str, Any]) -> str:
    """The libpq URI of a parsed configuration."""
    host, port = values["database.hostname"], values["database.port"]
    password = values["database.password"]
    login = {"user": values["database.user"], "password": password.value if password else None}
    options = {name: values[f"database.{name}"] for name in _SSL}
    parameters = {"host": host, "port": str(port), **login, **options, "connect_timeout": "10"}
    texts = {name: getattr(given, "value", given) for name, given in parameters.items() if given}
    return f"postgresql:///{quote(values['database.dbname'], safe='')}?{urlencode(texts, quote_via=quote, safe='/')}"
