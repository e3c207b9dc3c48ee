"""What connectors read and write outside Kafka, told from their configurations."""

from __future__ import annotations

import pytest

import connectx as cx
from connectx.plugins.registry import Plugins
from connectx.verify.audit.inventory import AuditedConnector
from connectx.verify.audit.places import places_of

PLUGINS = Plugins()


def texts(kind: str, config: dict[str, str], topics: list[str]) -> list[str]:
    cls = PLUGINS.find_connector(config.get("connector.class", ""))
    return [place.text for place in places_of(AuditedConnector("c", kind, config, "RUNNING", "", 1, cls=cls), topics)]


@pytest.mark.parametrize(
    ("config", "places"),
    [
        ({"file": "/data//in.txt"}, ["file /data/in.txt"]),
        ({"connector.class": "DirectorySource", "path": "/data//in"}, ["file /data/in"]),
        ({"file": "${file:/p:x}"}, []),
        (
            {"database.hostname": "db", "database.port": "5432", "database.dbname": "shop", "slot.name": "s",
             "table.include.list": "a.b, a.c"},
            ["replication slot s of db:5432/shop", "table a.b of db:5432/shop", "table a.c of db:5432/shop"],
        ),
        (
            {"connection.url": "jdbc:postgresql://me:secret@db:5432/shop?ssl=true", "query": "select  1"},
            ["query select 1 of db:5432/shop"],
        ),
        (
            {"connector.class": "io.confluent.connect.jdbc.JdbcSourceConnector", "table.whitelist": "a,b",
             "connection.url": "jdbc:postgresql://me:secret@db/shop?ssl=true"},
            ["table a of db/shop", "table b of db/shop"],
        ),
        (
            {"connector.class": "PostgresCdcSource", "database.hostname": "db", "database.dbname": "shop",
             "table.include.list": "a.b"},
            ["replication slot debezium of db:5432/shop", "table a.b of db:5432/shop"],
        ),
        (
            {"connector.class": "MirrorSource", "source.cluster.bootstrap.servers": "k:9092", "topics": "a,b"},
            ["topic a of k:9092", "topic b of k:9092"],
        ),
        ({"connector.class": "SparkSource", "format": "delta", "format.options.path": "s3://b/t"}, ["delta s3://b/t"]),
        ({"topic": "t"}, []),
    ],
)  # fmt: skip
def test_what_a_source_reads(config: dict[str, str], places: list[str]) -> None:
    assert texts("source", config, []) == places


@pytest.mark.parametrize(
    ("config", "places"),
    [
        ({"file": "/out"}, ["file /out"]),
        (
            {"connection.url": "postgresql://u:p@db/shop", "table.name.format": "raw_${topic}"},
            ["table raw_a of db/shop", "table raw_b of db/shop"],
        ),
        ({"connection.url": "jdbc:postgresql://db/shop"}, ["table a of db/shop", "table b of db/shop"]),
        (
            {"connection.url": "jdbc:sqlite:/data/shop.db"},
            ["table a of sqlite:/data/shop.db", "table b of sqlite:/data/shop.db"],
        ),
        ({"s3.bucket.name": "lake"}, ["bucket lake/topics/a", "bucket lake/topics/b"]),
        ({"connector.class": "DeltaSink", "path": "/lake/"}, ["table a in /lake", "table b in /lake"]),
        (
            {"connector.class": "IcebergSink", "iceberg.catalog.uri": "http://me:pw@host/x"},
            ["table default.a in catalog http://host/x", "table default.b in catalog http://host/x"],
        ),
        (
            {"connector.class": "ParquetSink", "path": "/lake", "topic.to.table.map": "b:both"},
            ["table a in /lake", "table both in /lake"],
        ),
    ],
)
def test_what_a_sink_writes(config: dict[str, str], places: list[str]) -> None:
    assert texts("sink", config, ["a", "b"]) == places


def test_a_class_that_cannot_answer_has_no_places() -> None:
    class Broken(cx.SourceConnector):
        @classmethod
        def places(cls, config: object, topics: object = ()) -> list[object]:  # type: ignore[override]
            raise RuntimeError("broken")

    audited = AuditedConnector("c", "source", {"file": "/in"}, "RUNNING", "", 1, cls=Broken)
    assert places_of(audited, []) == []
