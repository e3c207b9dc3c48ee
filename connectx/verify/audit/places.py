"""Files, tables and slots that a connector reads or writes, derived from its configuration.

A connector's class declares them. For classes that are not installed here or declare none, the keys of widely used
connectors count (FileStream, Debezium, the JDBC connectors, S3). Otherwise a connector has no place, and no rule about
places applies to it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

from connectx.model.places import Place, database_of, files, query, tables
from connectx.plugins.connectors import Connector
from connectx.verify.audit.inventory import AuditedConnector, Config

_log = logging.getLogger(__name__)

_TABLE_KEYS = ("table.include.list", "table.whitelist", "tables", "table.name")
_FILE_KEYS = ("file", "path", "input.path")


def places_of(connector: AuditedConnector, topics: Sequence[str]) -> list[Place]:
    """What a source reads or a sink writes, sorted; `topics` are those that a sink reads."""
    config, found = connector.config, None
    if connector.cls is not None and issubclass(connector.cls, Connector):
        try:
            found = connector.cls.places(config, topics)
        except Exception as error:  # a class of another package may raise anything
            _log.warning("The places of connector %s are not known: %s", connector.name, type(error).__name__)
            return []
    if found is None:
        found = [*_sources(config)] if connector.type == "source" else [*_targets(config, topics)]
    return sorted(set(found))


def _sources(config: Config) -> Iterator[Place]:
    yield from _files(config)
    database = _database(config)
    if database and (slot := config.get("slot.name")):
        yield Place(f"replication slot {slot} of {database}", is_exclusive=True)
    if database and (server := config.get("database.server.id")):
        host = database.rpartition("/")[0] or database
        yield Place(f"replication server id {server} of {host}", is_exclusive=True)
    for key in _TABLE_KEYS:
        yield from tables(config.get(key), database)
    yield from query(config.get("query"), database)


def _targets(config: Config, topics: Sequence[str]) -> Iterator[Place]:
    yield from _files(config)
    pattern = config.get("table.name.format") or "${topic}"
    for topic in topics:
        yield from tables(pattern.replace("${topic}", topic), _database(config))
        if bucket := config.get("s3.bucket.name"):
            yield Place(f"bucket {bucket}/{config.get('topics.dir') or 'topics'}/{topic}")


def _files(config: Config) -> Iterator[Place]:
    for key in _FILE_KEYS:
        yield from files(config.get(key))


def _database(config: Config) -> str:
    if url := config.get("connection.url"):
        return database_of(url)
    if host := config.get("database.hostname"):
        return f"{host}:{config.get('database.port') or ''}/{config.get('database.dbname') or ''}".rstrip("/")
    return ""
