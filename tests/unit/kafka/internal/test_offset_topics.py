"""Which topic keeps a connector's source offsets, and how it is read."""

from __future__ import annotations

import pytest

from connectx.kafka.internal.offset_topics import OffsetCopier, offsets_topic
from connectx.kafka.settings.clients import ClientConfigs
from connectx.model.ids import TaskId
from connectx.model.worker_config import WorkerConfig, embedded_config

pytestmark = pytest.mark.rule("618.6.4")

WORKER = WorkerConfig.parse(embedded_config({"bootstrap.servers": "a:1,b:2", "group.id": "g"}))
CLIENTS = ClientConfigs(WORKER, "w1", "gate:9")


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, ("g-offsets", False)),
        ({"offsets.storage.topic": "g-offsets"}, ("g-offsets", False)),
        ({"offsets.storage.topic": "mine"}, ("mine", True)),
        ({"producer.override.bootstrap.servers": "b:2, a:1"}, ("g-offsets", False)),
        ({"producer.override.bootstrap.servers": "other:1"}, ("g-offsets", True)),
        ({"offsets.storage.topic": "mine", "producer.override.bootstrap.servers": "other:1"}, ("mine", True)),
    ],
)
def test_a_topic_is_the_connectors_own_unless_name_and_kafka_are_the_workers(
    config: dict[str, str], expected: tuple[str, bool]
) -> None:
    assert offsets_topic(CLIENTS, WORKER, config) == expected


def test_the_connectors_topic_is_read_with_its_overrides_and_committed_only_when_exactly_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    overrides = {"consumer.override.isolation.level": "read_uncommitted", "consumer.override.fetch.min.bytes": "7"}
    config = CLIENTS.offsets_consumer(TaskId("c", 1), overrides, exactly_once=False)
    assert (config["isolation.level"], config["fetch.min.bytes"]) == ("read_uncommitted", "7")
    assert config["client.id"] == "w1/connector-consumer-c-1"
    assert CLIENTS.offsets_consumer(TaskId("c", 1), {}, exactly_once=False)["isolation.level"] == "read_committed"
    assert not caplog.messages
    assert CLIENTS.offsets_consumer(TaskId("c", 1), overrides, exactly_once=True)["isolation.level"] == "read_committed"
    assert caplog.messages == [
        "isolation.level=read_uncommitted is not used for the offsets of exactly-once connector c: it is always "
        "read_committed."
    ]


def test_copies_that_wait_are_dropped_when_the_task_is_cancelled_and_none_come_after(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """No fence stops them: sent late, they would undo what a user set or deleted meanwhile."""
    copier = OffsetCopier(ClientConfigs(WORKER, "w1", "127.0.0.1:1"), "g-offsets", "c-0")
    copier.copy([(b"k", b"v")])
    producer = copier._producer
    assert producer is not None
    assert producer.flush(0.1) == 1  # it takes the events of the connection, which len counts
    copier.cancel()
    assert producer.flush(5) == 0
    copier.copy([(b"k", b"v")])
    assert producer.flush(0.1) == 0
    copier.abandon()
    assert not [text for text in caplog.messages if "not copied" in text]
