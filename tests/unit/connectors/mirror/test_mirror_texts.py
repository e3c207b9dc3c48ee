"""MirrorSource without a broker: names, settings, offsets, and the search for a translated offset."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectx.connectors.mirror.clients import client_config
from connectx.connectors.mirror.config import CONFIG, SOURCE_ADMIN, SOURCE_READER, Naming, source_partition
from connectx.connectors.mirror.groups import translated
from connectx.connectors.mirror.source import MirrorSource, _with_offset_header
from connectx.errors.plugins import ConfigError
from connectx.kafka.fetcher.chunks import SCHEMA
from connectx.model.ids import TopicPartition
from connectx.model.places import Place
from connectx.plugins.registry import Plugins
from connectx.protocol.offsets_topic import encode_offset_key

CLUSTERS = {"source.cluster.bootstrap.servers": "a:1,b:2", "target.cluster.bootstrap.servers": "c:3"}
BYTES = {"key.converter": "ByteArrayConverter", "value.converter": "ByteArrayConverter"}


def naming(**settings: str) -> Naming:
    dotted = {name.replace("_", "."): text for name, text in settings.items()}
    return Naming.of(CONFIG.parse({**CLUSTERS, **dotted}))


def test_topics_get_the_alias_of_the_source_or_keep_their_names() -> None:
    assert naming(source_cluster_alias="eu").target("orders") == "eu.orders"
    assert naming(replication_policy_separator="_").target("orders") == "source_orders"
    assert naming(replication_policy_class="IdentityReplicationPolicy").target("orders") == "orders"


@pytest.mark.parametrize(
    ("topic", "taken"),
    [("orders", True), ("orders-2", True), ("sales", False), ("orders.replica", False), ("target.orders", False)],
)
def test_topics_are_chosen_by_whole_patterns_and_never_come_back(topic: str, taken: bool) -> None:
    assert naming(topics="orders.*,target.*").takes(topic) is taken


def test_a_cluster_that_mirrors_itself_does_not_mirror_its_mirrors() -> None:
    chosen = naming()
    assert chosen.takes("source.orders")
    assert not chosen.takes("source.orders", same_cluster=True)
    assert not chosen.takes("__consumer_offsets")


@pytest.mark.parametrize(
    ("settings", "key", "problem"),
    [
        ({"key.converter": "StringConverter"}, "key.converter", "keeps the bytes of records"),
        ({"value.converter": None}, "value.converter", "needs ByteArrayConverter in the connector's config"),
        ({"sync.group.offsets.enabled": "true"}, "source.offset.header", "needs source.offset.header"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(settings: dict[str, Any], key: str, problem: str) -> None:
    found = MirrorSource.validate({**CLUSTERS, **BYTES, **settings})
    assert list(found) == [key]
    assert problem in found[key][0]


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"source.cluster.bootstrap.servers": "nowhere"}, "nowhere is not host:port"),
        ({"topics": "a(,b"}, r"Invalid regular expression a\("),
        ({"replication.policy.class": "MyPolicy"}, "String must be one of"),
        ({"source.consumer.auto.offset.reset": "none"}, "it is not earliest or latest"),
        ({"source.cluster.alias": "a b"}, "String must match"),
    ],
)
def test_a_wrong_value_is_refused(settings: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        CONFIG.parse({**CLUSTERS, **settings})


def test_the_connector_is_found_by_javas_name_and_its_place_is_known() -> None:
    assert Plugins().connector_class("org.apache.kafka.connect.mirror.MirrorSourceConnector") is MirrorSource
    assert MirrorSource.places({**CLUSTERS, "topics": "orders"}) == [Place("topic orders of a:1,b:2")]


def test_only_committed_records_of_the_source_make_it_exactly_once() -> None:
    assert MirrorSource.exactly_once_support({}) is True
    assert MirrorSource.exactly_once_support({"source.consumer.isolation.level": "read_uncommitted"}) is False


def test_clients_get_the_settings_of_their_cluster_and_role_and_hide_secrets() -> None:
    config = {
        **CLUSTERS,
        "source.cluster.alias": "eu",
        "source.cluster.security.protocol": "SASL_SSL",
        "source.cluster.sasl.mechanism": "PLAIN",
        "source.cluster.sasl.username": "me",
        "source.cluster.sasl.password": "geheim",
        "source.consumer.fetch.min.bytes": "7",
        "source.consumer.max.poll.records": "5",
        "source.admin.socket.timeout.ms": "1000",
    }
    reader = client_config(config, SOURCE_READER, "m")
    assert {name: reader[name] for name in ("bootstrap.servers", "sasl.username", "fetch.min.bytes")} == {
        "bootstrap.servers": "a:1,b:2",
        "sasl.username": "me",
        "fetch.min.bytes": "7",
    }
    assert "alias" not in reader
    assert "max.poll.records" not in reader
    assert client_config(config, SOURCE_ADMIN, "m")["socket.timeout.ms"] == "1000"
    assert "geheim" not in repr(reader)


def test_source_partitions_are_written_as_mirror_maker_writes_them() -> None:
    partition = source_partition("source", TopicPartition("orders", 3))
    key = b'["mm",{"cluster":"source","partition":3,"topic":"orders"}]'
    assert encode_offset_key("mm", partition) == key
    MirrorSource.check_offsets({}, [(partition, {"offset": 17}), (partition, None)])


@pytest.mark.parametrize(
    ("change", "offset", "problem"),
    [
        ({"cluster": None}, None, "needs 'cluster', a text"),
        ({"partition": "3"}, None, "needs 'partition', a number"),
        ({}, {"position": 1}, "needs 'offset'"),
        ({}, {"offset": -1}, "not negative"),
    ],
)
def test_offsets_that_cannot_be_used_are_refused(
    change: Mapping[str, Any], offset: Mapping[str, Any] | None, problem: str
) -> None:
    partition = {"cluster": "source", "partition": 3, "topic": "orders", **change}
    with pytest.raises(ValueError, match=problem):
        MirrorSource.check_offsets({}, [(partition, offset)])


def test_the_offset_is_the_last_header_of_each_record() -> None:
    headers = [[{"key": "a", "value": b"1"}, {"key": "b", "value": None}], None, [], [{"key": "c", "value": b"\xff"}]]
    count = len(headers)
    rows = pa.table(
        {
            "topic": ["t"] * count,
            "partition": [0] * count,
            "offset": [5, 7, 8, 20],
            "timestamp": [1] * count,
            "key": [None] * count,
            "value": [None] * count,
            "headers": headers,
        },
        schema=SCHEMA,
    )
    made = _with_offset_header(rows, "from")["headers"].to_pylist()
    assert made == [
        [*(own or []), {"key": "from", "value": str(offset).encode()}]
        for own, offset in zip(headers, (5, 7, 8, 20), strict=True)
    ]
    assert _with_offset_header(rows.slice(1, 2), "from")["headers"].to_pylist() == made[1:3]


@given(
    st.lists(st.tuples(st.integers(1, 3), st.integers(1, 4)), max_size=20),
    st.integers(0, 100),
    st.integers(0, 5),
    st.integers(0, 5),
)
def test_a_translated_offset_is_that_of_the_first_record_that_the_group_has_not_read(
    steps: list[tuple[int, int]], wanted: int, start: int, markers: int
) -> None:
    """`steps`: how far the target's and the source's offset of a record are from those of the one before."""
    log, at, source = [], start, 0
    for target_step, source_step in steps:
        at, source = at + target_step, source + source_step
        log.append((at, source))
    end = at + 1 + markers
    found = translated(wanted, start, end, lambda offset: next((r for r in log if r[0] >= offset), None))
    expected = next((target for target, source in log if source >= wanted), log[-1][0] + 1 if log else None)
    assert found == expected


@given(st.lists(st.integers(0, 8), min_size=1, max_size=30), st.integers(0, 9))
def test_no_record_is_left_out_where_the_mirror_repeated_some(starts: list[int], wanted: int) -> None:
    """At least once: after a failure the mirror goes on at an earlier record, in order to the newest."""
    log: list[int] = []
    for first in starts:
        log += range(min(first, max(log, default=-1) + 1), 9)
    found = translated(wanted, 0, len(log), lambda offset: (offset, log[offset]) if offset < len(log) else None)
    assert found is not None
    assert set(range(wanted, 9)) <= set(log[found:])
