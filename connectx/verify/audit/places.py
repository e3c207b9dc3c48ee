"""Files, tables and slots that a connector reads or writes, derived from its configuration. Pure.

It knows the keys of widely used connectors (FileStream, Debezium, the JDBC connectors, S3, MirrorMaker 2) and of
connectx's. A connector that uses none of these keys has no place, and no rule about places applies to it.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from connectx.verify.audit.inventory import Config

_LOGIN = re.compile(r"//[^/@]*@")
_TABLE_KEYS = ("table.include.list", "table.whitelist", "tables", "table.name")
_FILE_KEYS = ("file", "path", "input.path")
_LAKE_SINK = re.compile(r"(^|\.)(ParquetSink|DeltaSink|IcebergSink)(Connector)?$")


def sources_of(config: Config) -> list[str]:
    """What a source reads: files, tables, replication slots, topics of another Kafka, formats of Spark."""
    return sorted({*_files(config), *_slots(config), *_tables(config), *_mirrored(config), *_formats(config)})


def targets_of(config: Config, topics: list[str]) -> list[str]:
    """What a sink writes to: files, tables, buckets; `topics` are those that it reads; sorted."""
    if found := _LAKE_SINK.search(config.get("connector.class") or ""):
        folder = posixpath.normpath(config.get("path") or "")
        if found[2] == "IcebergSink":
            folder = f"catalog {_LOGIN.sub('//', config.get('iceberg.catalog.uri') or '')}"
        return sorted(f"table {name} in {folder}" for name in _named(config, topics))
    places = set(_files(config))
    database = _database(config)
    pattern = config.get("table.name.format") or ("${topic}" if database else "")
    places |= {f"table {pattern.replace('${topic}', topic)} of {database}" for topic in topics if database and pattern}
    if url := config.get("http.api.url"):
        bare = _LOGIN.sub("//", url).partition("?")[0]
        places |= {f"web service {bare.replace('${topic}', topic)}" for topic in topics}
    if bucket := config.get("s3.bucket.name"):
        folder = config.get("topics.dir") or "topics"
        places |= {f"bucket {bucket}/{folder}/{topic}" for topic in topics}
    return sorted(places)


def _named(config: Config, topics: list[str]) -> set[str]:
    """Tables of these topics, as the sinks of tables in files name them."""
    mapped = dict(entry.split(":", 1) for entry in (config.get("topic.to.table.map") or "").split(",") if ":" in entry)
    tables = {topic.strip(): table.strip() for topic, table in mapped.items()}
    pattern = config.get("table.name.format") or "${topic}"
    return {tables.get(topic) or pattern.replace("${topic}", topic) for topic in topics}


def _files(config: Config) -> Iterator[str]:
    for key in _FILE_KEYS:
        if (path := config.get(key)) and "${" not in path:
            yield f"file {posixpath.normpath(path)}"


def _slots(config: Config) -> Iterator[str]:
    database = _database(config)
    if database and (slot := config.get("slot.name")):
        yield f"replication slot {slot} of {database}"
    if database and (server := config.get("database.server.id")):
        yield f"replication server id {server} of {database.rpartition('/')[0] or database}"


def _tables(config: Config) -> Iterator[str]:
    database = _database(config)
    if not database:
        return
    for key in _TABLE_KEYS:
        for table in (config.get(key) or "").split(","):
            if table.strip():
                yield f"table {table.strip()} of {database}"
    if query := config.get("query"):
        yield f"query {' '.join(query.split())} of {database}"


def _mirrored(config: Config) -> Iterator[str]:
    if servers := config.get("source.cluster.bootstrap.servers"):
        for topic in (config.get("topics") or ".*").split(","):
            yield f"topic {topic.strip()} of {servers}"


def _formats(config: Config) -> Iterator[str]:
    if path := config.get("format.options.path"):
        yield f"{config.get('format')} {path}"


def _database(config: Config) -> str:
    """host:port/name, without login and parameters."""
    if url := config.get("connection.url"):
        bare = _LOGIN.sub("//", url.removeprefix("jdbc:")).partition("?")[0]
        return bare.partition("//")[2].rstrip("/") or bare
    if host := config.get("database.hostname"):
        port, name = config.get("database.port") or "", config.get("database.dbname") or ""
        return f"{host}:{port}/{name}".rstrip("/")
    return ""
