"""What connectors read and write outside Kafka, told from their configurations."""

from __future__ import annotations

import pytest

from connectx.verify.audit.places import sources_of, targets_of


@pytest.mark.parametrize(
    ("config", "places"),
    [
        ({"file": "/data//in.txt"}, ["file /data/in.txt"]),
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
            {"source.cluster.bootstrap.servers": "k:9092", "topics": "a,b"},
            ["topic a of k:9092", "topic b of k:9092"],
        ),
        ({"format": "delta", "format.options.path": "s3://b/t"}, ["delta s3://b/t"]),
        ({"topic": "t"}, []),
    ],
)  # fmt: skip
def test_what_a_source_reads(config: dict[str, str], places: list[str]) -> None:
    assert sources_of(config) == places


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
            ["table a in catalog http://host/x", "table b in catalog http://host/x"],
        ),
        (
            {"connector.class": "ParquetSink", "path": "/lake", "topic.to.table.map": "b:both"},
            ["table a in /lake", "table both in /lake"],
        ),
    ],
)
def test_what_a_sink_writes(config: dict[str, str], places: list[str]) -> None:
    assert targets_of(config, ["a", "b"]) == places
